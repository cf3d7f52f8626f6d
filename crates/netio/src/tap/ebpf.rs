//! eBPF tap: `bpf/tap.c` copies into a ring buffer, which is read here without a system call.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use aya::maps::{Array, HashMap, MapData, PerCpuArray, RingBuf};
use aya::programs::{SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfLoader, Pod};

use super::captured::{Captured, Direction, Drained, Missed, TapCounts};
use super::config::TapConfig;
use super::moderation::{Change, Moderation, now_ns};
use crate::bpf::{self, Attached, Attachment, Place, Programs, insert_networks, map, raise_locked_memory};
use crate::error::step;
use crate::identification::Identifications;
use crate::interface::{Interface, LinkKind};
use crate::offload::{Gso, Offload};
use crate::segment::kind_of;

/// `bpf/tap.c`, compiled.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../bpf/tap.bpf.o");

/// The ingress program runs early, the egress program late; priorities that others hardly use.
const PROGRAMS: Programs = Programs {
    lock: "undrop-tap",
    places: &[
        Place { program: "undrop_egress", hook: TcAttachType::Egress, priority: 60_047 },
        Place { program: "undrop_ingress", hook: TcAttachType::Ingress, priority: 47 },
    ],
};

/// `struct record` without its packet.
const HEADER_LEN: usize = 24;
const FLAG_TAGGED: u8 = 1;

/// `enum count`
#[derive(Clone, Copy)]
enum Count {
    Captured,
    Full,
    Unreadable,
    Oversize,
    Foreign,
    Shed,
}

const COUNTS: u32 = 6;

pub(super) struct EbpfTap {
    ring: RingBuf<MapData>,
    counters: PerCpuArray<MapData, u64>,
    /// Set while the program must not wake the reader.
    polling: Array<MapData, u32>,
    /// For each direction, the hash from which flows are not copied, or 0.
    shares: Array<MapData, u32>,
    moderation: Moderation,
    ids: Identifications,
    interface: Interface,
    /// The programs and their links; dropped before the filters.
    object: Ebpf,
    attached: Attached,
}

impl EbpfTap {
    pub(super) fn open(config: &TapConfig) -> io::Result<Self> {
        if !config.incoming_to.is_empty() || config.all_groups {
            let text = "expected a packet socket for packets to networks at an interface, saw an eBPF tap";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let interface = Interface::open(&config.interface)
            .map_err(|error| step(&format!("find interface {}", config.interface), &error))?;
        let link_header: u32 = match interface.link_kind()? {
            LinkKind::Ethernet => 14,
            LinkKind::None => 0,
            other @ LinkKind::Other(_) => {
                let text = format!("expected an interface with Ethernet or no header, saw {other:?}");
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
        };
        raise_locked_memory();
        let mut object = load(config, link_header)?;
        // loaded before maps are taken out and closed: the programs keep them
        bpf::load(&mut object, &PROGRAMS)?;
        insert_networks(&mut object, ["outgoing4", "outgoing6"], &config.outgoing_to)?;
        insert_networks(&mut object, ["incoming4", "incoming6"], &config.incoming_from)?;
        insert_excluded(&mut object, &config.exclude)?;
        let ring = map(&mut object, "ring", RingBuf::try_from)?;
        let counters = map(&mut object, "counters", PerCpuArray::try_from)?;
        let polling = map(&mut object, "polling", Array::try_from)?;
        let shares = map(&mut object, "shares", Array::try_from)?;
        let attached = bpf::attach(&mut object, &PROGRAMS, &interface, config.attach, None)?;
        let moderation = Moderation::new(ring.as_fd(), config.wake_us)?;
        let ids = Identifications::new();
        Ok(Self { ring, counters, polling, shares, moderation, ids, interface, object, attached })
    }

    pub(super) fn drain(&mut self, budget: usize, handle: impl FnMut(Captured<'_>)) -> io::Result<Drained> {
        let drained = self.take(budget, handle);
        let change = self.moderation.on_drained(drained.packets, drained.more, now_ns())?;
        self.apply(change)?;
        Ok(drained)
    }

    pub(super) fn set_unwatched(&mut self, is_unwatched: bool) -> io::Result<()> {
        let change = self.moderation.set_unwatched(is_unwatched)?;
        self.apply(change)
    }

    fn apply(&mut self, change: Change) -> io::Result<()> {
        let set = |polling: &mut Array<MapData, u32>, value| {
            polling.set(0, value, 0).map_err(|error| step("set the waking of the eBPF tap", &error))
        };
        match change {
            Change::None => {}
            Change::Silence => {
                set(&mut self.polling, 1)?;
                self.moderation.ignore(self.ring.as_fd())?;
            }
            Change::Waken => {
                // in this order: packets captured after the last look see the request to wake
                set(&mut self.polling, 0)?;
                self.moderation.listen(self.ring.as_fd())?;
            }
        }
        Ok(())
    }

    fn take(&mut self, budget: usize, mut handle: impl FnMut(Captured<'_>)) -> Drained {
        let mut packets = 0;
        while packets < budget {
            let Some(item) = self.ring.next() else { return Drained { packets, more: false } };
            packets += 1;
            // the program writes only valid records
            let Some(mut captured) = parse(&item) else { continue };
            self.ids.note(captured.packet, &mut captured.offload);
            handle(captured);
        }
        Drained { packets, more: true }
    }

    pub(super) fn counts(&self) -> TapCounts {
        let both = |which| self.count(which, Direction::Outgoing) + self.count(which, Direction::Incoming);
        TapCounts {
            captured: both(Count::Captured),
            full: both(Count::Full),
            unreadable: both(Count::Unreadable),
            oversize: both(Count::Oversize),
            foreign: both(Count::Foreign),
        }
    }

    pub(super) fn missed(&self) -> Missed {
        let missed = |direction| {
            let reasons = [Count::Full, Count::Unreadable, Count::Oversize];
            reasons.into_iter().map(|which| self.count(which, direction)).sum()
        };
        Missed { outgoing: missed(Direction::Outgoing), incoming: missed(Direction::Incoming) }
    }

    pub(super) fn moderation(&mut self) -> &mut Moderation {
        &mut self.moderation
    }

    pub(super) fn set_shares(&mut self, outgoing: u16, incoming: u16) -> io::Result<()> {
        for (direction, last) in [(0, outgoing), (1, incoming)] {
            let end = if last == u16::MAX { 0 } else { u32::from(last) + 1 };
            self.shares
                .set(direction, end, 0)
                .map_err(|error| step("set the shares of the eBPF tap", &error))?;
        }
        Ok(())
    }

    pub(super) fn shed(&self) -> [u64; 2] {
        [Direction::Outgoing, Direction::Incoming].map(|direction| self.count(Count::Shed, direction))
    }

    pub(super) fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Whether the programs are still attached.
    pub(super) fn attachment(&self) -> &Attachment {
        self.attached.attachment()
    }

    /// The program at the ingress of the interface.
    pub(super) fn ingress(&self) -> Option<&SchedClassifier> {
        self.object.program("undrop_ingress")?.try_into().ok()
    }

    fn count(&self, which: Count, direction: Direction) -> u64 {
        let of_direction = match direction {
            Direction::Outgoing => 0,
            Direction::Incoming => COUNTS,
        };
        let per_cpu = self.counters.get(&(of_direction + which as u32), 0);
        // an unreadable counter is not fatal
        per_cpu.map_or(0, |per_cpu| per_cpu.iter().sum())
    }
}

impl AsFd for EbpfTap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.moderation.as_fd()
    }
}

/// Reads a `struct record`.
fn parse(record: &[u8]) -> Option<Captured<'_>> {
    let (header, rest) = record.split_first_chunk::<HEADER_LEN>()?;
    let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let time_ns = u64::from_ne_bytes(*header.first_chunk()?);
    let length = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
    let packet = rest.get(..length as usize)?;
    let segment_size = half(12);
    let gso = if segment_size == 0 { Gso::None } else { kind_of(packet) };
    let offload = match gso {
        // no flag shows whether the checksum of a single packet is finished; cutting examines the field
        Gso::None => Offload::default(),
        gso => Offload { segment_count: half(14), ..Offload::segments(gso, segment_size) },
    };
    Some(Captured {
        direction: if header[16] == 0 { Direction::Outgoing } else { Direction::Incoming },
        offload,
        packet,
        vlan: (header[17] & FLAG_TAGGED != 0).then(|| half(18)),
        time_ns: Some(time_ns),
    })
}

fn load(config: &TapConfig, link_header: u32) -> io::Result<Ebpf> {
    // in range: checked when the tap was opened
    let ring_bytes = config.buffer_bytes.next_power_of_two() as u32;
    let entries = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).max(1);
    let excluding = u32::from(!config.exclude.is_empty());
    let passed_over = config.pass_over.unwrap_or(0);
    let mut loader = EbpfLoader::new();
    // the program does not use the kernel's types
    loader
        .btf(None)
        .override_global("link_header", &link_header, true)
        .override_global("excluding", &excluding, true)
        .override_global("passed_over", &passed_over, true)
        .map_max_entries("ring", ring_bytes)
        .map_max_entries("excluded", entries(config.exclude.len()));
    for name in ["outgoing4", "outgoing6"] {
        loader.map_max_entries(name, entries(config.outgoing_to.len()));
    }
    for name in ["incoming4", "incoming6"] {
        loader.map_max_entries(name, entries(config.incoming_from.len()));
    }
    loader.load(OBJECT).map_err(|error| step("load the eBPF tap", &error))
}

/// `struct endpoint`
#[repr(C)]
#[derive(Clone, Copy)]
struct Endpoint {
    address: [u8; 16],
    port: [u8; 2],
    version: u16,
}

// SAFETY: plain bytes and a number without padding between them.
unsafe impl Pod for Endpoint {}

fn insert_excluded(object: &mut Ebpf, excluded: &[SocketAddr]) -> io::Result<()> {
    let mut map: HashMap<MapData, Endpoint, u8> = map(object, "excluded", HashMap::try_from)?;
    for end in excluded {
        let mut address = [0; 16];
        let version = match end.ip() {
            IpAddr::V4(ip) => {
                address[..4].copy_from_slice(&ip.octets());
                4
            }
            IpAddr::V6(ip) => {
                address = ip.octets();
                6
            }
        };
        let key = Endpoint { address, port: end.port().to_be_bytes(), version };
        map.insert(key, 1, 0).map_err(|error| step("set the exclusions of the eBPF tap", &error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_parsed_as_the_program_writes_them() {
        let mut record = vec![0; HEADER_LEN];
        record[..8].copy_from_slice(&77_u64.to_ne_bytes());
        record[8..12].copy_from_slice(&3_u32.to_ne_bytes());
        record[16..20].copy_from_slice(&[1, 1, 0, 0]);
        record[18..20].copy_from_slice(&100_u16.to_ne_bytes());
        record.extend_from_slice(&[0x45, 1, 2, 9, 9]);
        let captured = parse(&record).unwrap();
        assert_eq!(captured.direction, Direction::Incoming);
        assert_eq!((captured.vlan, captured.time_ns), (Some(100), Some(77)));
        assert_eq!(captured.packet, [0x45, 1, 2]);
        assert_eq!(captured.offload, Offload::default());
        // longer than the record; shorter than its header
        record[8] = 6;
        assert!(parse(&record).is_none());
        assert!(parse(&record[..HEADER_LEN - 1]).is_none());
    }
}
