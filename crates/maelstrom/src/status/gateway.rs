//! The gateway itself in its status: the process, its interfaces, and the pauses of recovery.

use serde::{Deserialize, Serialize};

use super::Counts;

/// The process, its interfaces and its taps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GatewayStatus {
    /// Version of the program.
    pub version: String,
    /// Seconds since its start.
    pub uptime_s: u64,
    /// `passive` or `tunnel`, or both, as in `passive+tunnel`, where peers differ.
    pub mode: String,
    /// Interface toward the long-haul link: that of `[gateway]`.
    pub wan: String,
    /// The tap there: `ebpf` or `packet`; `none` while the WAN interface is gone.
    pub tap: String,
    /// Interface by which packets that are recovered there arrive: `wan`, or `tun` where that is impossible
    /// or not wanted; `none` while no packet can be injected.
    #[serde(default)]
    pub injection: String,
    /// Reason why recovered packets do not arrive by the WAN interface.
    #[serde(default)]
    pub injection_reason: Option<String>,
    /// All interfaces toward long-haul links: that of `[gateway]`, and those of peers.
    #[serde(default)]
    pub interfaces: Vec<InterfaceStatus>,
    /// Whether TCP segments are limited so that repairs fit into the path: `managed`, `failed`, or
    /// `checked` if the configuration wants no limits.
    #[serde(default)]
    pub mtu: String,
    /// Reason why segments cannot be limited; null if they are, or need not be.
    #[serde(default)]
    pub mtu_reason: Option<String>,
    /// Interval at which packets are handled together, in microseconds; null while each wakes the gateway.
    #[serde(default)]
    pub tick_us: Option<u64>,
    /// Number of times that the gateway began to handle packets together.
    #[serde(default)]
    pub tick_starts: u64,
    /// Process id.
    pub pid: u32,
}

impl GatewayStatus {
    /// The names of all interfaces, for a heading.
    pub fn wans(&self) -> String {
        let names: Vec<&str> = self.interfaces.iter().map(|one| one.name.as_str()).collect();
        // An older gateway tells of one alone.
        if names.is_empty() { self.wan.clone() } else { names.join(", ") }
    }
}

/// An interface toward a long-haul link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceStatus {
    /// Its name.
    pub name: String,
    /// The tap: `ebpf` or `packet`; `none` while the interface is gone.
    pub tap: String,
    /// Interface by which recovered packets arrive: `wan` for this one, or `tun`; `none` while no packet can
    /// be injected.
    pub injection: String,
    /// Reason why recovered packets do not arrive by this interface.
    pub injection_reason: Option<String>,
    /// Id of the reason why recovery pauses here, as in `pauses.by_reason`; null if it does not.
    pub paused: Option<String>,
}

/// Pauses of recovery at all interfaces: times in which packets may have arrived unseen, so that nothing is
/// recovered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PauseStatus {
    /// Reason of the present pause; null if there is none.
    pub reason: Option<String>,
    /// Its id, as in `by_reason`.
    #[serde(default)]
    pub reason_id: Option<String>,
    /// Number of pauses.
    pub count: u64,
    /// Their length in milliseconds, all together.
    pub total_ms: u64,
    /// Milliseconds since the last one ended; null if none has.
    pub last_end_ms: Option<u64>,
    /// Number of pauses by reason.
    pub by_reason: Counts,
}
