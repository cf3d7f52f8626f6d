//! Captures that could not be cut into wire packets: their lines in the log.

use std::net::IpAddr;

use maelstrom_core::packet::Packet;
use netio::segment::Refusal;
use netio::tap::{Captured, Direction};
use tracing::warn;

/// Minimum interval between lines in the log; the captures between are counted.
const LOG_US: u64 = 10_000_000;

/// Limits the lines about captures that could not be cut.
#[derive(Debug, Default)]
pub(crate) struct UncutLog {
    next_log_us: u64,
    unlogged: u64,
}

impl UncutLog {
    /// Logs a super-packet that could not be cut, unless one was logged lately.
    pub(crate) fn note(&mut self, now_us: u64, captured: &Captured<'_>, refusal: &Refusal) {
        if now_us < self.next_log_us {
            self.unlogged += 1;
            return;
        }
        self.next_log_us = now_us + LOG_US;
        let (from, to) = ends(captured.packet).map_or_else(
            || ("an unknown source".to_owned(), "an unknown destination".to_owned()),
            |(from, to)| (from.to_string(), to.to_string()),
        );
        let effect = match captured.direction {
            Direction::Outgoing => "it is not protected",
            Direction::Incoming => "the recovery of its flow pauses",
        };
        let others = match std::mem::take(&mut self.unlogged) {
            0 => String::new(),
            count => format!("; {count} others since the last such line"),
        };
        warn!("cannot cut a super-packet from {from} to {to}, {effect}: {refusal}{others}");
    }
}

fn ends(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let packet = Packet::new_checked(packet).ok()?;
    Some((packet.source(), packet.destination()))
}
