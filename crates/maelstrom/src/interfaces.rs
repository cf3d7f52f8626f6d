//! Interfaces that are deleted while the gateway runs, and come back: its WAN interface and its TUN device.
//!
//! A tap on a deleted interface shows no packets and no error, and it does not see a new interface of the
//! same name. Packets that arrive unseen would count as lost and be delivered a second time. Therefore each
//! interface is checked regularly. While one is missing, recovery pauses and the gateway tries to open it
//! again.

use netio::poll::Interest;
use tracing::{debug, info, warn};

use crate::error::StartError;
use crate::passive::{Passive, TAP};
use crate::ports::{core_config, open_tap, open_tun};

/// Interval between checks of the interfaces: the longest time that a tap can be blind unnoticed.
const CHECK_US: u64 = 100_000;
/// Interval between attempts to open a missing interface.
const REOPEN_US: u64 = 1_000_000;

impl Passive {
    /// Checks that the interfaces exist, and opens a missing one again.
    pub(crate) fn watch_interfaces(&mut self) {
        let now_us = self.engine.now_us;
        if now_us < self.next_interface_check_us {
            return;
        }
        self.next_interface_check_us = now_us + CHECK_US;
        if self.ports.tap.as_ref().is_some_and(|tap| !tap.is_alive()) {
            self.lose_tap("the interface was deleted, renamed or created again");
            self.next_reopening_us = now_us;
        }
        let tun = &mut self.ports.outlets.tun;
        if let Some(lost) = tun.take_if(|tun| !tun.is_alive()) {
            warn!("lost TUN device {}: no packet is recovered until it can be created again", lost.name());
            self.next_reopening_us = now_us;
        }
        if !self.ports.is_complete() && now_us >= self.next_reopening_us {
            self.next_reopening_us = now_us + REOPEN_US;
            if let Err(error) = self.reopen() {
                debug!(%error, "cannot open the interface yet");
            }
        }
    }

    /// Continues without a tap.
    pub(crate) fn lose_tap(&mut self, why: &str) {
        let wan = &self.config.gateway.wan;
        warn!(
            "lost the tap on {wan}: {why}; no packet is protected or recovered until it can be opened again"
        );
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
                warn!("cannot adopt the MTU of {}: {error}", self.config.gateway.wan);
            }
        }
        if self.ports.outlets.tun.is_none() {
            let tun = open_tun(&self.config, self.engine.gateway.config().wan_mtu)?;
            info!(tun = tun.name(), "the TUN device was created again");
            self.ports.outlets.tun = Some(tun);
        }
        Ok(())
    }

    /// Adopts the MTU of an interface that was created again, which may differ.
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
