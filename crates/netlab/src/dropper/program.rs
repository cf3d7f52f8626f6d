//! Loses packets as they arrive at an interface, on purpose: what `bpf/drop.c` does, from user space.
//!
//! For tests and measurements. The program is gone with the [`Program`], and with the process.

use std::fmt;
use std::io;

use aya::maps::{Array, MapData, RingBuf};
use aya::programs::TcAttachType;
use aya::{Ebpf, EbpfLoader};
use ipnet::IpNet;

use netio::bpf::{self, Attach, Attached, Place, Programs, insert_networks, map, raise_locked_memory};
use netio::error::step;
use netio::interface::{Interface, LinkKind};

/// `bpf/drop.c`, compiled.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../bpf/drop.bpf.o");

/// Before the tap, which sees what was not lost.
const DROPPER: Programs = Programs {
    lock: "undrop-drop",
    places: &[Place { program: "undrop_drop", hook: TcAttachType::Ingress, priority: 46 }],
};

/// Bytes of a lost packet that are told, from its mark on.
pub const TOLD_LEN: usize = 32;
const RECORD_LEN: usize = 8 + TOLD_LEN;
const SOURCES_MAX: usize = 1024;

/// Which packets are lost, of those that the filter names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum DropModel {
    /// The chance of a packet depends on the fate of the one before.
    Chain {
        /// Probability of loss after a packet that passed.
        lost: f64,
        /// Probability of loss after a packet that was lost.
        lost_again: f64,
    },
    /// So many packets in a row, and at least one passes before the next.
    Bursts {
        /// Probability that a packet begins a burst, from the second after a burst on.
        start: f64,
        /// Packets lost in a row, 1 or more.
        burst: u32,
    },
}

impl DropModel {
    /// No packet is lost.
    pub(super) const NONE: Self = Self::Chain { lost: 0.0, lost_again: 0.0 };
}

/// What may be lost; all else passes, and is not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DropFilter {
    /// Only packets to multicast addresses.
    pub multicast_only: bool,
    /// Only UDP (in IPv6: right behind the IP header), fragments of it included.
    pub udp_only: bool,
    /// Only packets of this many bytes or more, counted from their IP header.
    pub length_min: u32,
    /// Only packets from these networks; empty: from anywhere.
    pub sources: Vec<IpNet>,
}

/// What a dropper has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCounts {
    /// Packets of the filter; a super-packet is as many as it has segments.
    pub seen: u64,
    /// Packets lost, counted likewise.
    pub lost: u64,
    /// Super-packets lost, each with all its segments by one verdict.
    pub super_packets: u64,
    /// Of the lost, those without the mark in the first bytes of their payload.
    pub unmarked: u64,
    /// Of the lost, those with a mark that could not be told because 16,000 or so waited to be read.
    pub unreported: u64,
}

/// A lost packet, as told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostPacket {
    /// When, by `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// What stands in the packet, beginning with the mark.
    pub told: [u8; TOLD_LEN],
}

/// A program at an interface that loses packets; it goes when this is dropped.
pub(super) struct Program {
    models: Array<MapData, Model>,
    states: Array<MapData, State>,
    ring: RingBuf<MapData>,
    /// The program, and the link by which it is attached.
    _object: Ebpf,
    _attached: Attached,
}

/// `struct model`: the thresholds `lost` and `lost_again`, and the length of a burst.
type Model = [u64; 3];

/// `struct state`: its lock and what it remembers of the stream (2 words), then its counters, which [`Program::counts`] names.
type State = [u64; 7];

impl Program {
    /// Begins to lose packets that arrive at an interface of the calling thread's network namespace.
    ///
    /// With a `mark` (not 0), lost packets are told of that have it in the first 160 bytes behind their UDP header, as the
    /// number in little-endian order: 32 bytes from there.
    ///
    /// # Errors
    /// When there is no such interface, its link header is not Ethernet's, a value is out of range, or the kernel refuses
    /// the program (Linux 5.8, `CAP_BPF` and `CAP_NET_ADMIN` outside of user namespaces).
    pub(super) fn attach(
        interface: &str,
        model: DropModel,
        filter: &DropFilter,
        mark: Option<[u8; 8]>,
        how: Attach,
    ) -> io::Result<Self> {
        let model = encode(model)?;
        if filter.sources.len() > SOURCES_MAX {
            let text =
                format!("expected at most {SOURCES_MAX} source networks, saw {}", filter.sources.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let card = Interface::open(interface)
            .map_err(|error| step(&format!("find interface {interface}"), &error))?;
        let kind = card.link_kind()?;
        if kind != LinkKind::Ethernet {
            let text = format!("expected an interface with Ethernet header, saw {kind:?}");
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        raise_locked_memory();
        let mut object = load(filter, mark)?;
        bpf::load(&mut object, &DROPPER)?;
        insert_networks(&mut object, ["sources4", "sources6"], &filter.sources)?;
        let mut models: Array<MapData, Model> = map(&mut object, "models", Array::try_from)?;
        let states = map(&mut object, "states", Array::try_from)?;
        let ring = map(&mut object, "ring", RingBuf::try_from)?;
        set(&mut models, model)?;
        let attached = bpf::attach(&mut object, &DROPPER, interface, card.index(), how)?;
        Ok(Self { models, states, ring, _object: object, _attached: attached })
    }

    /// Goes on with another model; a burst that has begun ends by its own.
    ///
    /// # Errors
    /// When a value is out of range.
    pub(super) fn set_model(&mut self, model: DropModel) -> io::Result<()> {
        set(&mut self.models, encode(model)?)
    }

    /// What was seen and lost so far.
    ///
    /// # Errors
    /// When the kernel does not give its counters.
    pub(super) fn counts(&self) -> io::Result<DropCounts> {
        let state = self.states.get(&0, 0).map_err(|error| step("read the dropper's counters", &error))?;
        let [_, _, seen, lost, super_packets, unmarked, unreported] = state;
        Ok(DropCounts { seen, lost, super_packets, unmarked, unreported })
    }

    /// The next lost packet that has the mark, in the order of loss.
    pub(super) fn next_lost(&mut self) -> Option<LostPacket> {
        let item = self.ring.next()?;
        let record: [u8; RECORD_LEN] = item.get(..RECORD_LEN)?.try_into().ok()?;
        let (time, told) = record.split_first_chunk::<8>()?;
        Some(LostPacket { time_ns: u64::from_ne_bytes(*time), told: told.try_into().ok()? })
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("counts", &self.counts().ok()).finish_non_exhaustive()
    }
}

/// Returns the model as the kernel part reads it.
fn encode(model: DropModel) -> io::Result<Model> {
    Ok(match model {
        DropModel::Chain { lost, lost_again } => [threshold(lost)?, threshold(lost_again)?, 0],
        DropModel::Bursts { burst: 0, .. } => {
            let text = "expected a burst of at least 1 packet, saw 0";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        DropModel::Bursts { start, burst } => [threshold(start)?, 0, burst.into()],
    })
}

/// A probability as the number below which a random one of 64 bits must be; the greatest is certainty.
fn threshold(probability: f64) -> io::Result<u64> {
    const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;
    if !(0.0..=1.0).contains(&probability) {
        let text = format!("expected a probability from 0 to 1, saw {probability}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    // A cast from float saturates.
    Ok((probability * TWO_TO_64) as u64)
}

fn set(models: &mut Array<MapData, Model>, model: Model) -> io::Result<()> {
    models.set(0, model, 0).map_err(|error| step("tell the dropper its model", &error))
}

fn load(filter: &DropFilter, mark: Option<[u8; 8]>) -> io::Result<Ebpf> {
    let (multicast_only, udp_only) = (u32::from(filter.multicast_only), u32::from(filter.udp_only));
    let sources_only = u32::from(!filter.sources.is_empty());
    let mark = mark.map_or(0, u64::from_le_bytes);
    let mut loader = EbpfLoader::new();
    // no kernel types are looked at
    loader
        .btf(None)
        .override_global("multicast_only", &multicast_only, true)
        .override_global("udp_only", &udp_only, true)
        .override_global("length_min", &filter.length_min, true)
        .override_global("sources_only", &sources_only, true)
        .override_global("wanted_mark", &mark, true);
    loader.load(OBJECT).map_err(|error| step("load the dropper", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_probability_are_exact_and_what_is_none_is_refused() {
        assert_eq!(threshold(0.0).unwrap(), 0);
        assert_eq!(threshold(0.5).unwrap(), 1 << 63);
        assert_eq!(threshold(1.0).unwrap(), u64::MAX);
        for wrong in [-0.1, 1.1, f64::NAN] {
            assert!(threshold(wrong).unwrap_err().to_string().contains("0 to 1"));
        }
        assert!(encode(DropModel::Bursts { start: 0.1, burst: 0 }).is_err());
    }
}
