//! User-space side of `bpf/drop.c`, which loses packets as they arrive at an interface.
//!
//! The kernel program ends with the [`Program`], and with the process.

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

/// Runs before the tap, which sees only what was not lost.
const DROPPER: Programs = Programs {
    lock: "undrop-drop",
    places: &[Place { program: "undrop_drop", hook: TcAttachType::Ingress, priority: 46 }],
};

/// Bytes of a lost packet that are reported, from its mark on.
pub const REPORT_LEN: usize = 32;
const RECORD_LEN: usize = 8 + REPORT_LEN;
const SOURCES_MAX: usize = 1024;

/// Which of the packets that match the filter are lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum DropModel {
    /// The probability of loss depends on the fate of the packet before.
    Chain {
        /// Probability of loss after a packet that passed.
        lost: f64,
        /// Probability of loss after a packet that was lost.
        lost_again: f64,
    },
    /// Bursts of a fixed length; at least one packet passes between two bursts.
    Bursts {
        /// Probability that a packet begins a burst, from the second packet after a burst on.
        start: f64,
        /// Number of consecutive packets lost, at least 1.
        burst: u32,
    },
}

impl DropModel {
    /// No packet is lost.
    pub(super) const NONE: Self = Self::Chain { lost: 0.0, lost_again: 0.0 };
}

/// Packets that may be lost. All others pass and are not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DropFilter {
    /// Only packets to multicast addresses.
    pub multicast_only: bool,
    /// Only UDP, including fragments. In IPv6 the UDP header must follow the IP header directly.
    pub udp_only: bool,
    /// Only packets of at least this many bytes, counted from their IP header.
    pub length_min: u32,
    /// Only packets from these networks; empty means from anywhere.
    pub sources: Vec<IpNet>,
}

/// Counters of a dropper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCounts {
    /// Packets that match the filter; a super-packet counts as its segments.
    pub seen: u64,
    /// Packets lost, counted in the same way.
    pub lost: u64,
    /// Super-packets lost, each with all its segments.
    pub super_packets: u64,
    /// Lost packets without the mark in the first bytes of their payload.
    pub unmarked: u64,
    /// Lost packets with a mark that could not be reported because some 16,000 reports waited to be read.
    pub unreported: u64,
}

/// A reported lost packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostPacket {
    /// Time of the loss, by `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// Bytes of the packet, from the mark on.
    pub report: [u8; REPORT_LEN],
}

/// A program at an interface that loses packets; it ends when this is dropped.
pub(super) struct Program {
    models: Array<MapData, Model>,
    states: Array<MapData, State>,
    ring: RingBuf<MapData>,
    /// The program and its link to the interface.
    _object: Ebpf,
    _attached: Attached,
}

/// `struct model`: the thresholds `lost` and `lost_again`, and the length of a burst.
type Model = [u64; 3];

/// `struct state`: its lock and the state of the stream (2 words), then the counters that [`Program::counts`]
/// names.
type State = [u64; 7];

impl Program {
    /// Starts to lose packets that arrive at an interface of the calling thread's network namespace.
    ///
    /// With a nonzero `mark`, it reports the lost packets that have this number, in little-endian order, in
    /// the first 160 bytes of their UDP payload: 32 bytes from there.
    ///
    /// # Errors
    /// If there is no such interface, its link header is not Ethernet's, a value is out of range, or the
    /// kernel refuses the program (it needs Linux 5.8, and `CAP_BPF` and `CAP_NET_ADMIN` outside of user
    /// namespaces).
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
        let attached = bpf::attach(&mut object, &DROPPER, &card, how, None)?;
        Ok(Self { models, states, ring, _object: object, _attached: attached })
    }

    /// Sets another model; a burst that has begun runs to its end.
    ///
    /// # Errors
    /// If a value is out of range.
    pub(super) fn set_model(&mut self, model: DropModel) -> io::Result<()> {
        set(&mut self.models, encode(model)?)
    }

    /// Returns the counters.
    ///
    /// # Errors
    /// If the kernel does not return its counters.
    pub(super) fn counts(&self) -> io::Result<DropCounts> {
        let state = self.states.get(&0, 0).map_err(|error| step("read the dropper's counters", &error))?;
        let [_, _, seen, lost, super_packets, unmarked, unreported] = state;
        Ok(DropCounts { seen, lost, super_packets, unmarked, unreported })
    }

    /// Returns the next lost packet that had the mark, in the order of loss.
    pub(super) fn next_lost(&mut self) -> Option<LostPacket> {
        let item = self.ring.next()?;
        let record: [u8; RECORD_LEN] = item.get(..RECORD_LEN)?.try_into().ok()?;
        let (time, report) = record.split_first_chunk::<8>()?;
        Some(LostPacket { time_ns: u64::from_ne_bytes(*time), report: report.try_into().ok()? })
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("counts", &self.counts().ok()).finish_non_exhaustive()
    }
}

/// Returns the model in the layout of the kernel program.
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

/// Returns a probability as a threshold for random 64-bit numbers; the maximum stands for certainty.
fn threshold(probability: f64) -> io::Result<u64> {
    const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;
    if !(0.0..=1.0).contains(&probability) {
        let text = format!("expected a probability from 0 to 1, saw {probability}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    // a cast from float saturates
    Ok((probability * TWO_TO_64) as u64)
}

fn set(models: &mut Array<MapData, Model>, model: Model) -> io::Result<()> {
    models.set(0, model, 0).map_err(|error| step("set the dropper's model", &error))
}

fn load(filter: &DropFilter, mark: Option<[u8; 8]>) -> io::Result<Ebpf> {
    let (multicast_only, udp_only) = (u32::from(filter.multicast_only), u32::from(filter.udp_only));
    let sources_only = u32::from(!filter.sources.is_empty());
    let mark = mark.map_or(0, u64::from_le_bytes);
    let mut loader = EbpfLoader::new();
    // the program does not use the kernel's types
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
    fn probabilities_of_zero_and_one_are_exact_and_others_are_checked() {
        assert_eq!(threshold(0.0).unwrap(), 0);
        assert_eq!(threshold(0.5).unwrap(), 1 << 63);
        assert_eq!(threshold(1.0).unwrap(), u64::MAX);
        for wrong in [-0.1, 1.1, f64::NAN] {
            assert!(threshold(wrong).unwrap_err().to_string().contains("0 to 1"));
        }
        assert!(encode(DropModel::Bursts { start: 0.1, burst: 0 }).is_err());
    }
}
