//! A look at all packets that arrive over the WAN, while packets of a peer do not arrive under their names.
//!
//! The tap captures packets from the networks of the peers only. A NAT on the way gives packets other
//! addresses, and the core recognises them by their content. The look is short and rare, because it captures
//! all traffic. Its tap is opened and closed on the thread of errands, because the kernel then waits until no
//! processor uses the socket any more.

use std::io;

use ipnet::IpNet;
use netio::segment;
use netio::tap::{Direction, Tap, TapConfig, TapKind};
use tracing::debug;

use crate::config::GatewayConfig;
use crate::errands::Errand;
use crate::passive::Passive;
use crate::ports::fixed_addresses;

/// Length of a look.
const LOOK_US: u64 = 1_000_000;
/// Interval between the starts of two looks.
const INTERVAL_US: u64 = 5_000_000;
/// Bytes of captures that may wait.
const BUFFER_BYTES: usize = 1 << 20;
/// Maximum number of captures in one round of the loop.
const CAPTURES_MAX: usize = 64;

/// The tap of a look, and when looks begin and end.
#[derive(Default)]
pub(crate) struct Strangers {
    tap: Option<Tap>,
    opening: Errand<io::Result<Tap>>,
    until_us: u64,
    next_us: u64,
    /// Number of the WAN interface of the next look: one after the other.
    next_wan: usize,
    /// One wire packet, cut from a captured super-packet.
    scratch: Vec<u8>,
}

impl Passive {
    /// Looks at all packets for a moment, if the core wants to see them.
    pub(crate) fn look_at_strangers(&mut self) {
        let (now_us, looks) = (self.engine.now_us, &mut self.strangers);
        match looks.opening.take() {
            Some(Ok(tap)) => {
                looks.tap = Some(tap);
                looks.until_us = now_us + LOOK_US;
                looks.scratch.resize(1 << 16, 0);
            }
            Some(Err(error)) => debug!(%error, "cannot look at all packets"),
            None => {}
        }
        let is_idle = looks.tap.is_none() && !looks.opening.is_under_way();
        if is_idle && now_us >= looks.next_us && self.engine.gateway.wants_strangers() {
            looks.next_us = now_us + INTERVAL_US;
            let wans = self.config.wans();
            let config = all_arriving(&self.config, wans[looks.next_wan % wans.len()]);
            looks.next_wan = looks.next_wan.wrapping_add(1);
            looks.opening = self.errands.begin(move || Tap::open(&config));
        }
        let Strangers { tap: Some(tap), scratch, .. } = looks else { return };
        let gateway = &mut self.engine.gateway;
        let drained = tap.drain(CAPTURES_MAX, |captured| {
            if captured.direction == Direction::Incoming && !captured.is_of_vlan() {
                // A capture that cannot be cut shows nothing.
                let _ = segment::cut(captured.packet, &captured.offload, scratch, |packet| {
                    gateway.handle_stranger(now_us, packet);
                });
            }
        });
        if drained.is_err() || now_us >= looks.until_us {
            let tap = looks.tap.take();
            self.errands.run(move || drop(tap));
            looks.scratch = Vec::new();
        }
    }
}

/// All packets that arrive over a WAN interface, but those of the repair channel.
fn all_arriving(config: &GatewayConfig, wan: &str) -> TapConfig {
    TapConfig {
        interface: wan.to_owned(),
        incoming_from: ["0.0.0.0/0", "::/0"].iter().filter_map(|all| all.parse::<IpNet>().ok()).collect(),
        exclude: fixed_addresses(config),
        kind: TapKind::Packet,
        buffer_bytes: BUFFER_BYTES,
        ..TapConfig::default()
    }
}
