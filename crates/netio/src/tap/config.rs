//! Configuration of a tap.

use std::fmt;
use std::net::SocketAddr;

use ipnet::IpNet;

use crate::bpf::Attach;

/// Default of [`TapConfig::buffer_bytes`]: what a host sends at once when a whole window is acknowledged, on
/// a link of 1 Gbit/s and a round trip of 500 ms; also 50 ms at 10 Gbit/s.
pub const BUFFER_BYTES: usize = 64 << 20;
/// Default of [`TapConfig::wake_us`].
pub const WAKE_US: u32 = 50;
pub(super) const WAKE_US_MAX: u32 = 10_000;
/// Minimum and maximum size of the buffer.
pub(super) const BUFFER_RANGE: std::ops::RangeInclusive<usize> = (256 << 10)..=(1 << 30);

/// Configuration of a tap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapConfig {
    /// Name of the interface, in the network namespace of the thread that opens the tap.
    pub interface: String,
    /// Networks to which outgoing packets are captured.
    pub outgoing_to: Vec<IpNet>,
    /// Networks from which incoming packets are captured.
    pub incoming_from: Vec<IpNet>,
    /// Networks to which incoming packets are captured, such as IP groups; for a packet socket alone.
    pub incoming_to: Vec<IpNet>,
    /// Whether the interface shall take the packets of all IP groups; for a packet socket alone.
    pub all_groups: bool,
    /// Far ends of UDP that is not captured, whatever its network: the repair channel.
    pub exclude: Vec<SocketAddr>,
    /// Mark of incoming packets that are not captured, because this process injected them; not 0.
    pub pass_over: Option<u32>,
    /// Kind of tap.
    pub kind: TapKind,
    /// How an eBPF tap is attached.
    pub attach: Attach,
    /// Bytes of captured packets that may wait, 256 KiB to 1 GiB; eBPF rounds up to a power of two.
    pub buffer_bytes: usize,
    /// Period in microseconds with which the tap becomes readable at a high rate, from 0 to 10,000. 0 wakes
    /// the reader with every packet, which costs more than all other work.
    pub wake_us: u32,
}

impl Default for TapConfig {
    fn default() -> Self {
        Self {
            interface: String::new(),
            outgoing_to: Vec::new(),
            incoming_from: Vec::new(),
            incoming_to: Vec::new(),
            all_groups: false,
            exclude: Vec::new(),
            pass_over: None,
            kind: TapKind::Auto,
            attach: Attach::Auto,
            buffer_bytes: BUFFER_BYTES,
            wake_us: WAKE_US,
        }
    }
}

/// Kind of a tap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TapKind {
    /// eBPF, or a packet socket if that is impossible. An open tap is never of this kind.
    #[default]
    Auto,
    /// eBPF with a ring buffer (Linux 5.8, `CAP_BPF` and `CAP_NET_ADMIN` outside of user namespaces).
    Ebpf,
    /// A packet socket (`CAP_NET_RAW`).
    Packet,
}

impl TapKind {
    /// Returns the name used in a configuration.
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
