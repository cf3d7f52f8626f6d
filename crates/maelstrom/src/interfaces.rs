//! Interfaces that go away while the gateway runs, and come back: its WAN interface, its TUN device.
//!
//! A tap on a deleted interface shows nothing, and says nothing either; nor does it see the interface that is made in its
//! place. What arrives unseen would be taken for lost and delivered once more. So each interface is looked at every so
//! often; while one is missing recovery pauses, and to open it again is tried until it succeeds.

use netio::poll::Interest;
use tracing::{debug, info, warn};

use crate::error::StartError;
use crate::passive::{Passive, TAP};
use crate::ports::{core_config, open_tap, open_tun};

/// How often the interfaces are looked at: so long a tap may be blind without our knowing.
const LOOK_US: u64 = 100_000;
/// How often it is tried to open what is missing.
const REOPEN_US: u64 = 1_000_000;

impl Passive {
    /// Whether the interfaces are still there; opens again what was lost.
    pub(crate) fn watch_interfaces(&mut self) {
        let now_us = self.engine.now_us;
        if now_us < self.next_interface_look_us {
            return;
        }
        self.next_interface_look_us = now_us + LOOK_US;
        if self.ports.tap.as_ref().is_some_and(|tap| !tap.is_alive()) {
            self.lose_tap("the interface was deleted, renamed or made again");
            self.next_reopening_us = now_us;
        }
        let tun = &mut self.ports.outlets.tun;
        if let Some(lost) = tun.take_if(|tun| !tun.is_alive()) {
            warn!("lost TUN device {}: nothing is recovered until it can be made again", lost.name());
            self.next_reopening_us = now_us;
        }
        if !self.ports.are_whole() && now_us >= self.next_reopening_us {
            self.next_reopening_us = now_us + REOPEN_US;
            if let Err(error) = self.reopen() {
                debug!("not yet: {error}");
            }
        }
    }

    /// Goes on without a tap.
    pub(crate) fn lose_tap(&mut self, why: &str) {
        let wan = &self.config.gateway.wan;
        warn!("lost the tap on {wan}: {why}; nothing is protected or recovered until it can be opened again");
        self.install_tap(None);
        self.next_reopening_us = self.engine.now_us + REOPEN_US;
    }

    fn reopen(&mut self) -> Result<(), StartError> {
        if self.ports.tap.is_none() {
            let tap = open_tap(&self.config)?;
            self.poller
                .add(&tap, TAP, Interest::Readable)
                .map_err(|error| StartError::new("watch the tap", error))?;
            self.install_tap(Some(tap));
            info!(wan = self.config.gateway.wan, "the tap is open again");
            if let Err(error) = self.follow_mtu() {
                warn!("going on with the MTU that {} had before: {error}", self.config.gateway.wan);
            }
        }
        if self.ports.outlets.tun.is_none() {
            let tun = open_tun(&self.config, self.engine.gateway.config().wan_mtu)?;
            info!(tun = tun.name(), "the TUN device is there again");
            self.ports.outlets.tun = Some(tun);
        }
        Ok(())
    }

    /// An interface that was made again may have another MTU than before.
    fn follow_mtu(&mut self) -> Result<(), StartError> {
        let core = core_config(&self.config)?;
        if core != *self.engine.gateway.config() {
            self.engine.flush(&mut self.ports.outlets);
            self.engine.gateway.reconfigure(core)?;
            self.engine.out = self.engine.gateway.outbox();
        }
        Ok(())
    }
}
