//! Injection: packets written to a TUN device arrive by another interface, as if from the wire.
//!
//! A program at the TUN device's ingress marks each packet and redirects it to the ingress of the other
//! interface (`bpf/inject.c`). There a second program removes the mark, after all taps. Firewall, connection
//! tracking, source checks and queueing disciplines do not see the TUN device at all.

use std::fmt;
use std::io;

use aya::maps::{MapData, PerCpuArray};
use aya::programs::TcAttachType;
use aya::{Ebpf, EbpfLoader};

use crate::bpf::{self, Attach, Attached, Place, Programs, map, raise_locked_memory};
use crate::error::step;
use crate::interface::{Interface, LinkKind};
use crate::tap::Tap;
use crate::tun::Tun;

/// `bpf/inject.c`, compiled.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/inject.bpf.o");

/// The only program of the TUN device.
const AT_TUN: Programs = Programs {
    lock: "undrop-inject",
    places: &[Place { program: "undrop_inject", hook: TcAttachType::Ingress, priority: 47 }],
};

/// Runs after the taps, and before the programs of others.
const AT_WAN: Programs = Programs {
    lock: "undrop-arrive",
    places: &[Place { program: "undrop_arrive", hook: TcAttachType::Ingress, priority: 48 }],
};

/// `enum count`
#[derive(Clone, Copy)]
enum Count {
    Refused,
    Arrived,
    Probes,
}

/// Signs by which the programs know the packets of this process. Nobody else knows or sets them, because
/// they are random and are removed before other programs see the packet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signs {
    mark: u32,
    probe_mark: u32,
    probe_token: u64,
}

impl Signs {
    /// Makes the signs of a process from random bytes.
    pub fn new(random: [u8; 16]) -> Self {
        let number = u128::from_ne_bytes(random);
        // 0 is the mark of unmarked packets, and the two marks differ in their last bit.
        let mark = (number as u32).max(2) & !1;
        Self { mark, probe_mark: mark | 1, probe_token: (number >> 64) as u64 }
    }

    /// Returns the mark of injected packets, which a tap on the interface must pass over.
    pub fn mark(&self) -> u32 {
        self.mark
    }

    /// Returns the probe: an IPv4 packet from this machine to itself with the token as its content. Its
    /// protocol is one for experiments (RFC 3692 §2.1), and its address the one of RFC 7600 §4.8.
    fn probe(&self) -> [u8; 28] {
        const ADDRESS: [u8; 4] = [192, 0, 0, 8];
        let mut probe = [0; 28];
        probe[..12].copy_from_slice(&[0x45, 0, 0, 28, 0, 0, 0x40, 0, 1, 253, 0, 0]);
        probe[12..16].copy_from_slice(&ADDRESS);
        probe[16..20].copy_from_slice(&ADDRESS);
        let words = probe[..20].as_chunks::<2>().0.iter();
        let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes(*word))).sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        probe[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
        probe[20..].copy_from_slice(&self.probe_token.to_ne_bytes());
        probe
    }
}

impl fmt::Debug for Signs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signs").finish_non_exhaustive()
    }
}

/// Redirects what is written to a TUN device to the ingress of another interface, until it is dropped.
pub struct Injector {
    counters: PerCpuArray<MapData, u64>,
    signs: Signs,
    wan: Interface,
    /// The programs and their links; dropped before the filters.
    _object: Ebpf,
    _attached: [Attached; 2],
}

impl Injector {
    /// Attaches the programs to `tun` and to the interface `wan`, in the network namespace of the calling
    /// thread. `tap` is the open tap on `wan`, if any. It must pass over [`Signs::mark`], like every tap that
    /// is opened later.
    ///
    /// That the kernel takes the programs does not prove that packets arrive: see [`Injector::send_probe`].
    ///
    /// # Errors
    /// `Unsupported` for an interface with another link header than Ethernet's or none, `PermissionDenied`
    /// without CAP_BPF and CAP_NET_ADMIN, otherwise the kernel's error with the failed step.
    pub fn open(tun: &Tun, wan: &str, signs: Signs, tap: Option<&Tap>, how: Attach) -> io::Result<Self> {
        let wan = Interface::open(wan).map_err(|error| step(&format!("find interface {wan}"), &error))?;
        let mut object = load(&wan, signs)?;
        bpf::load(&mut object, &AT_TUN)?;
        bpf::load(&mut object, &AT_WAN)?;
        let counters = map(&mut object, "counters", PerCpuArray::try_from)?;
        // In this order: a mark is removed before the first packet can have one.
        let at_wan = bpf::attach(&mut object, &AT_WAN, &wan, how, tap.and_then(Tap::ingress))?;
        let at_tun = bpf::attach(&mut object, &AT_TUN, tun.interface(), how, None)?;
        Ok(Self { counters, signs, wan, _object: object, _attached: [at_tun, at_wan] })
    }

    /// Sends a packet the way of injected packets, which ends after the taps of the interface and reaches
    /// nobody. [`Injector::probes`] then rises, usually at once.
    ///
    /// # Errors
    /// The kernel's error, as of [`Tun::send`].
    pub fn send_probe(&self, tun: &Tun) -> io::Result<bool> {
        tun.send(&self.signs.probe())
    }

    /// Returns the number of probes that arrived.
    pub fn probes(&self) -> u64 {
        self.count(Count::Probes)
    }

    /// Returns the number of packets, except probes, that arrived at the interface's ingress.
    pub fn arrived(&self) -> u64 {
        self.count(Count::Arrived)
    }

    /// Returns the number of packets to which the kernel could not add a link header.
    pub fn refused(&self) -> u64 {
        self.count(Count::Refused)
    }

    /// Returns whether the interface still exists; see [`Interface::is_alive`].
    pub fn is_alive(&self) -> bool {
        self.wan.is_alive()
    }

    fn count(&self, which: Count) -> u64 {
        // an unreadable counter is not fatal
        self.counters.get(&(which as u32), 0).map_or(0, |per_cpu| per_cpu.iter().sum())
    }
}

impl fmt::Debug for Injector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Injector").field("wan", &self.wan.name()).finish_non_exhaustive()
    }
}

fn load(wan: &Interface, signs: Signs) -> io::Result<Ebpf> {
    let (has_link_header, address) = match wan.link_kind()? {
        LinkKind::Ethernet => (1_u32, wan.hardware_address()?),
        kind if kind.is_without_header() => (0, [0; 6]),
        other => {
            let text = format!("expected an interface with Ethernet or no header, saw {other:?}");
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
    };
    raise_locked_memory();
    let mut wan_address = [0_u8; 8];
    wan_address[..6].copy_from_slice(&address);
    let index = wan.index();
    EbpfLoader::new()
        .btf(None)
        .override_global("wan", &index, true)
        .override_global("has_link_header", &has_link_header, true)
        .override_global("mark", &signs.mark, true)
        .override_global("probe_mark", &signs.probe_mark, true)
        .override_global("probe_token", &signs.probe_token, true)
        .override_global("wan_address", &wan_address, true)
        .load(OBJECT)
        .map_err(|error| step("load the injection programs", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_differ_from_each_other_and_from_none() {
        for random in [[0; 16], [1; 16], [0xff; 16]] {
            let signs = Signs::new(random);
            assert!(signs.mark != 0 && signs.probe_mark != 0 && signs.mark != signs.probe_mark, "{random:?}");
        }
    }

    #[test]
    fn a_probe_is_a_sound_packet() {
        let probe = Signs::new([7; 16]).probe();
        let layout = crate::header::Layout::of(&probe).unwrap();
        assert_eq!((layout.total, layout.transport, layout.protocol), (28, 20, 253));
        let words = probe[..20].as_chunks::<2>().0.iter();
        let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes(*word))).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "the checksum of the header");
    }
}
