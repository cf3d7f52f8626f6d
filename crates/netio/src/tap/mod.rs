//! A tap: copies of the packets that leave and enter an interface, as far as they belong to chosen networks.
//!
//! The traffic itself goes its way untouched. Two kinds do the same (`docs/adr/0002-tap.md` says when to take
//! which):
//!
//! - [`TapKind::Ebpf`] (`ebpf.rs`, `bpf/tap.c`): a program at the interface's egress and ingress copies into
//!   a ring buffer;
//! - [`TapKind::Packet`] (`packet.rs`, `filter.rs`): a packet socket, for kernels and users that may not load
//!   programs.
//!
//! What is captured is what the kernel handles there: super-packets and unfinished checksums.
//! [`crate::segment::cut`] makes wire packets of it.

pub(crate) mod ebpf;
mod filter;
mod identification;
mod moderation;
mod packet;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use ipnet::IpNet;

pub use crate::bpf::Attach;
use crate::offload::Offload;
use ebpf::EbpfTap;
use packet::PacketTap;

/// Bytes of captured packets that may wait to be drained, unless [`TapConfig::buffer_bytes`] says otherwise:
/// 13 ms of 10 Gbit/s, longer than a busy machine keeps a process waiting as a rule.
pub const BUFFER_BYTES: usize = 16 << 20;
/// A tap in heavy use is readable every so many microseconds, unless [`TapConfig::wake_us`] says otherwise.
pub const WAKE_US: u32 = 50;
const WAKE_US_MAX: u32 = 10_000;
/// Smallest and largest buffer.
const BUFFER_RANGE: std::ops::RangeInclusive<usize> = (256 << 10)..=(1 << 30);

/// What to capture, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapConfig {
    /// The interface's name, in the network namespace of the thread that opens the tap.
    pub interface: String,
    /// Packets that leave to these networks are captured.
    pub outgoing_to: Vec<IpNet>,
    /// Packets that arrive from these networks are captured.
    pub incoming_from: Vec<IpNet>,
    /// UDP packets to and from these far ends are not captured, whatever network they are of: our own repair
    /// channel.
    pub exclude: Vec<SocketAddr>,
    /// Which kind.
    pub kind: TapKind,
    /// How an eBPF tap is attached.
    pub attach: Attach,
    /// Bytes of captured packets that may wait, 256 KiB to 1 GiB; eBPF rounds up to a power of two.
    pub buffer_bytes: usize,
    /// At a high rate of captures the tap becomes readable once in so many microseconds and not with every
    /// packet, which costs more than all else; 0 to 10,000, 0 = with every packet.
    pub wake_us: u32,
}

impl Default for TapConfig {
    fn default() -> Self {
        Self {
            interface: String::new(),
            outgoing_to: Vec::new(),
            incoming_from: Vec::new(),
            exclude: Vec::new(),
            kind: TapKind::Auto,
            attach: Attach::Auto,
            buffer_bytes: BUFFER_BYTES,
            wake_us: WAKE_US,
        }
    }
}

/// The kind of a tap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TapKind {
    /// eBPF, and where that cannot be, a packet socket. An open tap is never of this kind.
    #[default]
    Auto,
    /// eBPF with a ring buffer (Linux 5.8, `CAP_BPF` and `CAP_NET_ADMIN` outside of user namespaces).
    Ebpf,
    /// A packet socket (`CAP_NET_RAW`).
    Packet,
}

impl TapKind {
    /// Its name as in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Ebpf => "ebpf",
            Self::Packet => "packet",
        }
    }
}

impl fmt::Display for TapKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Which way a captured packet went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// It left by the interface.
    Outgoing,
    /// It arrived by the interface.
    Incoming,
}

/// A captured packet or super-packet.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Captured<'p> {
    /// Which way it went.
    pub direction: Direction,
    /// What is undone on it.
    pub offload: Offload,
    /// From the IP header on.
    pub packet: &'p [u8],
    /// The tag, if it is of a VLAN on top of the interface.
    pub vlan: Option<u16>,
    /// When it was captured, on the monotonic clock; an eBPF tap tells.
    pub time_ns: Option<u64>,
}

/// What a [`Tap::drain`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Captured packets handed over.
    pub packets: usize,
    /// The budget was used up: more may wait.
    pub more: bool,
}

/// What was captured and what was not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TapCounts {
    /// Packets of the networks that were captured.
    pub captured: u64,
    /// Packets of the networks lost because the buffer was full.
    pub full: u64,
    /// Packets of the networks that the kernel could not hand over.
    pub unreadable: u64,
    /// Super-packets of the networks longer than 64 KiB ("BIG TCP" on the interface).
    pub oversize: u64,
    /// Packets not captured that do not matter: their headers cannot be read, or they claim to be longer than they
    /// are, so that no IP stack takes them. Counted by an eBPF tap only; a packet socket does not see the former
    /// and hands over the latter.
    pub foreign: u64,
}

/// Packets that should have been captured and were not, since the tap was opened.
///
/// These are packets of the configured networks, not excluded, that met a full buffer, could not be read by the
/// kernel, or were super-packets of more than 64 KiB. Packets of other networks are never among them, nor what
/// no IP stack would take ([`TapCounts::foreign`]). Each super-packet counts once, however many segments it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// Packets that left.
    pub outgoing: u64,
    /// Packets that arrived: they must not be taken for lost on the way.
    pub incoming: u64,
}

/// An open tap. Nothing of it stays when it is dropped.
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
/// Its descriptor becomes readable when captured packets wait, at a high rate some microseconds later, and
/// stays so until [`Tap::drain`] has been called. There may be none, then.
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
    /// `PermissionDenied` where a capability is missing, `InvalidInput` for a configuration that cannot be, and what else
    /// the kernel says, with the step that failed.
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

    /// Which kind it is: [`TapKind::Ebpf`] or [`TapKind::Packet`].
    pub fn kind(&self) -> TapKind {
        match self.tap {
            Open::Ebpf(_) => TapKind::Ebpf,
            Open::Packet(_) => TapKind::Packet,
        }
    }

    /// Why [`TapKind::Auto`] did not become an eBPF tap.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    /// Hands over captured packets of both directions in the order in which the kernel saw them, at most
    /// `budget` of them.
    ///
    /// # Errors
    /// What the kernel says; a tap does not recover from it.
    pub fn drain(&mut self, budget: usize, handle: impl FnMut(Captured<'_>)) -> io::Result<Drained> {
        match &mut self.tap {
            Open::Ebpf(tap) => tap.drain(budget, handle),
            Open::Packet(tap) => tap.drain(budget, handle),
        }
    }

    /// Packets of the networks that were not captured, for whatever reason, each counted once.
    pub fn dropped(&self) -> u64 {
        let counts = self.counts();
        counts.full + counts.unreadable + counts.oversize
    }

    /// Packets of the networks that were not captured, by direction. It asks the kernel: not for every packet.
    ///
    /// A packet socket does not tell the direction of what met a full buffer or came without a description: there
    /// such a packet counts as both, so that the two may add up to more than [`Tap::dropped`]. Neither number ever
    /// goes down. A packet is counted when it is missed, which is before those captured after it can be drained;
    /// by a packet socket, what is unreadable or oversize is counted when it is drained.
    pub fn missed(&self) -> Missed {
        match &self.tap {
            Open::Ebpf(tap) => tap.missed(),
            Open::Packet(tap) => tap.missed(),
        }
    }

    /// Whether the interface that the tap was opened on is still there: the same one (by its number) under the same
    /// name in the same network namespace. One system call; to be asked now and then, once a second, say.
    ///
    /// A tap whose interface is gone stays silent for ever, also when another one of that name comes: open a new
    /// one. An interface that is switched off is alive.
    pub fn is_alive(&self) -> bool {
        match &self.tap {
            Open::Ebpf(tap) => tap.interface().is_alive(),
            Open::Packet(tap) => tap.interface().is_alive(),
        }
    }

    /// What was captured and what was not. It asks the kernel: not for every packet.
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
