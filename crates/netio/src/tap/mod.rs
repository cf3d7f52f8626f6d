//! A tap: copies of the packets of chosen networks that leave and enter an interface.
//!
//! The traffic itself is untouched. There are two kinds of tap (`docs/adr/0002-tap.md` says when to use
//! which):
//!
//! - [`TapKind::Ebpf`] (`ebpf.rs`, `bpf/tap.c`): a program at the interface's egress and ingress copies into
//!   a ring buffer;
//! - [`TapKind::Packet`] (`packet.rs`, `filter/`): a packet socket, for kernels and users that cannot load
//!   programs.
//!
//! Captures have the form in which the kernel handles packets at the interface: super-packets and unfinished
//! checksums. [`crate::segment::cut`] turns them into wire packets.

mod captured;
mod config;
mod ebpf;
mod filter;
mod moderation;
mod packet;

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use aya::programs::SchedClassifier;

pub use crate::bpf::{Attach, Attachment};
pub use captured::{Captured, Direction, Drained, Missed, TapCounts};
pub use config::{BUFFER_BYTES, TapConfig, TapKind, WAKE_US};
use config::{BUFFER_RANGE, WAKE_US_MAX};
use ebpf::EbpfTap;
use packet::PacketTap;

/// An open tap. Dropping it removes every trace of it.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// use netio::tap::{Tap, TapConfig};
/// let far = vec!["10.81.2.0/24".parse().unwrap()];
/// let mut tap = Tap::open(&TapConfig {
///     interface: "wan0".to_owned(),
///     outgoing_to: far.clone(),
///     incoming_from: far,
///     ..TapConfig::default()
/// })?;
/// let mut scratch = vec![0; 65_536];
/// let drained = tap.drain(256, |captured| {
///     let cut = netio::segment::cut(captured.packet, &captured.offload, &mut scratch, |packet| {
///         println!("{:?}: {} bytes on the wire", captured.direction, packet.len());
///     });
/// })?;
/// # Ok(()) }
/// ```
///
/// Its descriptor becomes readable when captured packets wait, with a delay of some microseconds at a high
/// rate, and stays readable until [`Tap::drain`] is called, which may find none.
pub struct Tap {
    tap: Open,
    fallback: Option<String>,
}

enum Open {
    Ebpf(Box<EbpfTap>),
    Packet(Box<PacketTap>),
}

impl Tap {
    /// Opens a tap in the network namespace of the calling thread.
    ///
    /// # Errors
    /// `PermissionDenied` if a capability is missing, `InvalidInput` for an impossible configuration,
    /// otherwise the kernel's error with the failed step.
    pub fn open(config: &TapConfig) -> io::Result<Self> {
        if !BUFFER_RANGE.contains(&config.buffer_bytes) {
            let text = format!("expected a buffer of {BUFFER_RANGE:?} bytes, saw {}", config.buffer_bytes);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if config.wake_us > WAKE_US_MAX {
            let text = format!("expected at most {WAKE_US_MAX} us between waking, saw {}", config.wake_us);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let ebpf = || EbpfTap::open(config).map(|tap| Open::Ebpf(Box::new(tap)));
        let packet = || PacketTap::open(config).map(|tap| Open::Packet(Box::new(tap)));
        let (tap, fallback) = match config.kind {
            TapKind::Ebpf => (ebpf()?, None),
            TapKind::Packet => (packet()?, None),
            TapKind::Auto => match ebpf() {
                Ok(tap) => (tap, None),
                Err(reason) => (packet()?, Some(reason.to_string())),
            },
        };
        Ok(Self { tap, fallback })
    }

    /// Returns the kind: [`TapKind::Ebpf`] or [`TapKind::Packet`].
    pub fn kind(&self) -> TapKind {
        match self.tap {
            Open::Ebpf(_) => TapKind::Ebpf,
            Open::Packet(_) => TapKind::Packet,
        }
    }

    /// Returns the reason why [`TapKind::Auto`] did not become an eBPF tap.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    /// Passes captured packets of both directions to `handle` in the kernel's order, at most `budget` of
    /// them.
    ///
    /// # Errors
    /// The kernel's error; a tap does not recover from it.
    pub fn drain(&mut self, budget: usize, handle: impl FnMut(Captured<'_>)) -> io::Result<Drained> {
        match &mut self.tap {
            Open::Ebpf(tap) => tap.drain(budget, handle),
            Open::Packet(tap) => tap.drain(budget, handle),
        }
    }

    /// Returns the number of packets of the networks that were not captured for any reason, each counted
    /// once.
    pub fn dropped(&self) -> u64 {
        let counts = self.counts();
        counts.full + counts.unreadable + counts.oversize
    }

    /// Returns the packets of the networks that were not captured, by direction. It queries the kernel, so do
    /// not call it for every packet.
    ///
    /// A packet socket does not know the direction of packets that met a full buffer or came without a
    /// description. There such a packet counts in both directions, so their sum may exceed [`Tap::dropped`].
    /// Neither number ever decreases. A packet is counted when it is missed, before packets captured after it
    /// can be drained; a packet socket counts unreadable and oversize packets when it is drained.
    pub fn missed(&self) -> Missed {
        match &self.tap {
            Open::Ebpf(tap) => tap.missed(),
            Open::Packet(tap) => tap.missed(),
        }
    }

    /// Returns whether the interface of the tap still exists: the same index under the same name in the same
    /// network namespace. It costs one system call; call it about once a second.
    ///
    /// A tap whose interface is gone stays silent forever, even if another one takes the name: open a new
    /// tap. An interface that is down is alive.
    pub fn is_alive(&self) -> bool {
        match &self.tap {
            Open::Ebpf(tap) => tap.interface().is_alive(),
            Open::Packet(tap) => tap.interface().is_alive(),
        }
    }

    /// Returns the programs of the tap, if it has any, to be asked on another thread whether they are still
    /// attached to the interface. A tap whose programs somebody has detached stays silent forever: open a new
    /// tap. Nobody else can close the socket of a packet tap.
    pub fn attachment(&self) -> Option<&Attachment> {
        match &self.tap {
            Open::Ebpf(tap) => Some(tap.attachment()),
            Open::Packet(_) => None,
        }
    }

    /// Returns the program at the interface's ingress, if the tap is one.
    pub(crate) fn ingress(&self) -> Option<&SchedClassifier> {
        match &self.tap {
            Open::Ebpf(tap) => tap.ingress(),
            Open::Packet(_) => None,
        }
    }

    /// Limits the captures of each direction to flows whose hash is no larger; `u16::MAX` means all flows.
    /// The hash is that of `maelstrom_core::share::flow_hash`. A packet socket captures all flows
    /// nevertheless.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_shares(&mut self, outgoing: u16, incoming: u16) -> io::Result<()> {
        match &mut self.tap {
            Open::Ebpf(tap) => tap.set_shares(outgoing, incoming),
            Open::Packet(_) => Ok(()),
        }
    }

    /// Changes [`TapConfig::wake_us`]. A tap that wakes the reader with every packet goes on doing so.
    pub fn set_wake_us(&mut self, wake_us: u32) {
        let moderation = match &mut self.tap {
            Open::Ebpf(tap) => tap.moderation(),
            Open::Packet(tap) => tap.moderation(),
        };
        if wake_us > 0 && moderation.is_on() {
            moderation.set_period_us(wake_us.min(WAKE_US_MAX));
        }
    }

    /// Changes whether the reader looks for captures by itself, at short intervals. The descriptor then never
    /// becomes readable, and captures cost no wake-up. When the reader waits for the descriptor again, it
    /// becomes readable if captures wait.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_unwatched(&mut self, is_unwatched: bool) -> io::Result<()> {
        match &mut self.tap {
            Open::Ebpf(tap) => tap.set_unwatched(is_unwatched),
            Open::Packet(tap) => tap.set_unwatched(is_unwatched),
        }
    }

    /// Returns the numbers of outgoing and of incoming packets on the wire that were not captured because of
    /// their flow. It queries the kernel.
    pub fn shed(&self) -> [u64; 2] {
        match &self.tap {
            Open::Ebpf(tap) => tap.shed(),
            Open::Packet(_) => [0; 2],
        }
    }

    /// Returns the counters. It queries the kernel, so do not call it for every packet.
    pub fn counts(&self) -> TapCounts {
        match &self.tap {
            Open::Ebpf(tap) => tap.counts(),
            Open::Packet(tap) => tap.counts(),
        }
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.tap {
            Open::Ebpf(tap) => tap.as_fd(),
            Open::Packet(tap) => tap.as_fd(),
        }
    }
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap").field("kind", &self.kind()).finish_non_exhaustive()
    }
}
