//! Interfaces that are deleted while the gateway runs, and come back: its WAN interfaces and its TUN devices.
//!
//! A tap on a deleted interface shows no packets and no error, and it does not see a new interface of the
//! same name. The same holds for a tap whose programs were detached. Packets that arrive unseen would count
//! as lost and be delivered a second time. Therefore each interface is checked regularly. While one is
//! missing, recovery of its peers pauses and the gateway tries to open it again.

use netio::poll::Interest;
use tracing::{debug, info, warn};

use crate::error::StartError;
use crate::inlet::RUN_PATIENCE;
use crate::mtus::Mtus;
use crate::passive::{Passive, TAP, TUNNEL};
use crate::ports::{core_config, open_inlet, open_tap, open_tunnel};
use crate::tunnel;

/// Interval between checks of the interfaces. A tap can be blind unnoticed for this time, and for as long as
/// the kernel takes to answer.
const CHECK_US: u64 = 100_000;
/// Interval between attempts to open a missing interface.
const REOPEN_US: u64 = 1_000_000;

impl Passive {
    /// Checks that the interfaces exist, and opens a missing one again.
    pub(crate) fn watch_interfaces(&mut self) {
        let now_us = self.engine.now_us;
        for wan in 0..self.ports.wans.len() {
            if self.ports.wans[wan].attached.take() == Some(false) {
                self.lose_tap(wan, "somebody detached its programs from the interface");
                self.next_reopening_us = now_us;
            }
        }
        if now_us < self.next_interface_check_us {
            return;
        }
        self.next_interface_check_us = now_us + CHECK_US;
        (0..self.ports.wans.len()).for_each(|wan| self.watch_wan(wan));
        if let Some(tunnel) = self.ports.outlets.tunnel.as_ref().filter(|tunnel| !tunnel.tun().is_alive()) {
            let name = tunnel.tun().name();
            warn!("lost TUN device {name}: no packet passes the tunnel until it can be created again");
            self.ports.install_tunnel(None);
            self.next_reopening_us = now_us;
        }
        for (wan, inlet) in self.ports.wans.iter().zip(&mut self.ports.outlets.inlets) {
            inlet.iter_mut().for_each(|inlet| inlet.watch(now_us, &self.config, wan.tap.as_ref()));
        }
        let lacks_tunnel = self.ports.outlets.tunnel.is_none() && tunnel::is_wanted(&self.config);
        if (!self.ports.are_complete() || lacks_tunnel) && now_us >= self.next_reopening_us {
            self.next_reopening_us = now_us + REOPEN_US;
            let attempts = (0..self.ports.wans.len()).map(|wan| self.reopen_wan(wan));
            for error in attempts.collect::<Vec<_>>().into_iter().filter_map(Result::err) {
                debug!(%error, "cannot open the interface yet");
            }
            let error = self.reopen_tunnel().err();
            self.routes.note_device(error.as_ref());
        }
    }

    /// Looks at a WAN interface and its TUN device.
    fn watch_wan(&mut self, number: usize) {
        let now_us = self.engine.now_us;
        if self.ports.wans[number].tap.as_ref().is_some_and(|tap| !tap.is_alive()) {
            self.lose_tap(number, "the interface was deleted, renamed or created again");
            self.next_reopening_us = now_us;
        }
        let wan = &mut self.ports.wans[number];
        let attachment = wan.tap.as_ref().and_then(|tap| tap.attachment());
        if let Some(attachment) = attachment.filter(|_| !wan.attached.is_under_way()) {
            let attachment = attachment.clone();
            wan.attached = self.errands.begin(move || attachment.is_whole());
        }
        let inlet = self.ports.outlets.inlets[number].as_ref();
        if let Some(inlet) = inlet.filter(|inlet| !inlet.tun().is_alive()) {
            let name = inlet.tun().name();
            warn!("lost TUN device {name}: no packet is recovered until it can be created again");
            self.ports.install_inlet(number, None);
            self.next_reopening_us = now_us;
        }
    }

    /// Continues without the tap of a WAN interface.
    pub(crate) fn lose_tap(&mut self, number: usize, why: &str) {
        let wan = &self.ports.wans[number];
        let name = &wan.name;
        if wan.is_watched {
            warn!(
                "lost the tap on {name}: {why}; no packet of a peer in passive mode is protected or recovered there until \
                 it can be opened again"
            );
        } else {
            info!("lost the tap on {name}: {why}; tunnels go on without it");
        }
        self.install_tap(number, None);
        self.next_reopening_us = self.engine.now_us + REOPEN_US;
    }

    fn reopen_wan(&mut self, number: usize) -> Result<(), StartError> {
        if self.ports.wans[number].tap.is_none() {
            let tap = open_tap(&self.config, number, self.ports.signs)?;
            self.poller
                .add(&tap, TAP, Interest::Readable)
                .map_err(|error| StartError::new("watch the tap", error))?;
            self.install_tap(number, Some(tap));
            info!(wan = self.ports.wans[number].name, "the tap is open again");
            if let Err(error) = self.follow_mtu() {
                warn!("cannot adopt the MTU of {}: {error}", self.ports.wans[number].name);
            }
            self.connect_inlet(number);
        }
        if self.ports.outlets.inlets[number].is_none() {
            let inlet = open_inlet(&self.config, number, self.ports.signs)?;
            info!(tun = inlet.tun().name(), "the TUN device was created again");
            self.ports.install_inlet(number, Some(inlet));
            self.connect_inlet(number);
        }
        Ok(())
    }

    fn reopen_tunnel(&mut self) -> Result<(), StartError> {
        if self.ports.outlets.tunnel.is_none()
            && let Some(tunnel) = open_tunnel(&self.config)?
        {
            self.poller
                .add(&tunnel, TUNNEL, Interest::Readable)
                .map_err(|error| StartError::new("watch the device of the tunnel", error))?;
            info!(tun = tunnel.tun().name(), "the device of the tunnel was created again");
            self.ports.install_tunnel(Some(tunnel));
            self.follow_file_in_tunnel();
        }
        Ok(())
    }

    /// Opens the way of recovered packets of a WAN interface again, which depends on the TUN device and on
    /// that interface.
    pub(crate) fn connect_inlet(&mut self, number: usize) {
        let Some(inlet) = &mut self.ports.outlets.inlets[number] else { return };
        if let Err(error) = inlet.connect(&self.config, self.ports.wans[number].tap.as_ref(), RUN_PATIENCE) {
            warn!("{error}; no packet is recovered until it is possible");
        }
    }

    /// Adopts the MTU of an interface that was created again, which may differ.
    fn follow_mtu(&mut self) -> Result<(), StartError> {
        let mtus = Mtus::read(&self.config)?.following(&self.mtus);
        let core = core_config(&self.config, mtus.wan_mtu())?;
        self.mtus = mtus;
        if core != *self.engine.gateway.config() {
            self.engine.flush(&mut self.ports.outlets);
            self.engine.gateway.reconfigure(core)?;
            self.engine.out = self.engine.gateway.outbox();
            self.follow_file_in_tunnel();
        }
        Ok(())
    }

    /// Gives the device of the tunnel the MTU and the routes that the file asks for. In this order: a device
    /// that was too narrow for IPv6 takes no routes of it.
    pub(crate) fn follow_file_in_tunnel(&mut self) {
        let mtu = self.wanted_device_mtu();
        if let Some(Err(error)) = self.ports.outlets.tunnel.as_ref().map(|tunnel| tunnel.set_mtu(mtu)) {
            warn!("{error}");
        }
        self.set_routes();
    }
}
