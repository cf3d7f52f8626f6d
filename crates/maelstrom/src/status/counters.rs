//! Names and texts of the driver's counts, and of all other reasons in a status.

/// Reasons in the counts of a status, with their texts.
pub mod reasons {
    pub use maelstrom_core::counters::{
        Reason, Refused, Rejected, Unanswered, Unforwarded, Unheeded, Uninjected, Unprotected, Unsent,
        Unused, Withheld,
    };
    pub use maelstrom_core::observe::PauseReason;

    pub use super::Counter;
}

foundation::reasons! {
    /// Drops and events that the driver of a gateway counts.
    Counter, CounterCounts {
        /// A super-packet that left could not be cut.
        OutgoingUncut = "outgoing captures not cut",
        /// A super-packet that arrived could not be cut.
        IncomingUncut = "incoming captures not cut",
        /// A packet belongs to a VLAN on top of the WAN interface.
        OfVlans = "packets of a VLAN on the WAN interface",
        /// The tap had no room for a capture.
        TapDropped = "captures dropped by the tap",
        /// Recovery paused.
        Pauses = "pauses of recovery",
        /// The process stood still.
        Stalls = "stalls of the gateway",
        /// Input or output was old after a stall.
        Discarded = "captures and datagrams discarded after a stall",
        /// A datagram found the buffer of its socket full.
        SocketFull = "datagrams dropped because the buffer of a socket was full",
        /// A datagram found the inbox full.
        InboxFull = "datagrams received while the inbox was full",
        /// The sender of a datagram sent more than its share.
        BeyondShare = "datagrams beyond the share of their sender",
        /// The socket refused a datagram.
        Unsent = "datagrams the socket did not take",
        /// The kernel refused a recovered packet.
        Uninjected = "recovered packets the kernel did not take",
        /// The kernel refused a packet of the tunnel.
        Untaken = "packets of the tunnel the kernel did not take",
        /// A recovered packet was written and was not seen at the WAN interface.
        NotAtWan = "recovered packets that did not arrive at the WAN interface",
        /// The kernel would send a recovered packet back to the WAN.
        Returning = "recovered packets whose route leads back to the WAN",
        /// The file had mistakes.
        ReloadsRefused = "reloads refused",
        /// A record of losses could not be written.
        RecordsUnwritten = "records of losses that were not written",
        /// Stderr took no log line.
        LogLines = "log lines that stderr did not take",
        /// The service manager took no message.
        ManagerMessages = "messages the service manager did not take",
    }
}
