//! Reload of the configuration while traffic flows.
//!
//! Every step that can fail comes first, beside the running gateway. The change itself has an order in which
//! no packet is handled twice, and no packet counts as lost because it was not seen:
//! 1. the new tap is open and captures, but is not read;
//! 2. the old tap is read to its end;
//! 3. the core takes over the new configuration;
//! 4. the old tap is closed, and the new one is read to its end. Packets that arrived go to the core even if
//!    the old tap had shown them, because an unseen packet would count as lost while one seen twice does no
//!    harm. Packets that left do not: the far gateway would take a packet coded twice for two equal packets
//!    of which one was lost;
//! 5. recovery pauses until tap and repair channel are drained.

use std::net::UdpSocket;

use maelstrom_core::record::Record;
use netio::poll::Poller;
use tracing::{info, warn};

use crate::config::{self, GatewayConfig, Rack};
use crate::doors;
use crate::engine::{ALL_OUTGOING, Engine};
use crate::error::StartError;
use crate::findings;
use crate::groups;
use crate::inlet::Inlet;
use crate::mtus::Mtus;
use crate::names::keep_addresses;
use crate::passive::{Passive, watch};
use crate::ports::{Replacement, core_config};
use crate::rack::open_socket;
use daemon::control::Control;

/// Maximum number of rounds in which a tap is read to its end: more than its buffer holds in full packets.
/// Packets beyond it would not be protected, and would be a gap.
pub(crate) const LAST_ROUNDS_MAX: usize = 64;

/// Everything that a reload needs, made before any change.
struct Prepared {
    config: GatewayConfig,
    core: maelstrom_core::Config,
    replacement: Replacement,
    control: Option<Control>,
    /// Socket for heartbeats, if their address is another.
    heartbeats: Option<UdpSocket>,
    poller: Poller,
}

impl Prepared {
    /// Whether a WAN interface, given by its present number, gets another tap, or none.
    fn replaces_tap(&self, wan: usize) -> bool {
        self.replacement.taps.get(wan).is_none_or(Option::is_some)
    }
}

impl Passive {
    /// Reloads the configuration. A file with mistakes changes nothing.
    pub(crate) fn reload(&mut self) {
        if let Err(reason) = self.try_reload() {
            self.engine.counts.reloads_refused += 1;
            warn!("reload refused, the running configuration stays: {reason}");
        } else {
            self.agreement.expire();
            self.segments.expire();
            info!("reloaded");
        }
    }

    fn try_reload(&mut self) -> Result<(), String> {
        let reading = config::read(&self.path);
        let mut config = reading.config().map_err(|report| {
            findings::log_refusal(&report);
            let file = self.path.display();
            match report.errors() {
                1 => format!("{file} has an error"),
                errors => format!("{file} has {errors} errors"),
            }
        })?;
        findings::log(&reading.report());
        keep_addresses(&self.config, &mut config);
        let mtus = Mtus::read(&config).map_err(|error| error.to_string())?.following(&self.mtus);
        let core = core_config(&config, mtus.wan_mtu()).map_err(|error| error.to_string())?;
        self.engine.gateway.check_change(&core).map_err(|error| error.to_string())?;
        let prepared = self.prepare(config, core).map_err(|error| error.to_string())?;
        for wan in 0..self.ports.wans.len() {
            if prepared.replaces_tap(wan) {
                self.read_tap_to_its_end(wan);
            }
        }
        if prepared.core.code() != self.engine.gateway.config().code() {
            // Another code does not know the packets that wait for a repair of this one.
            self.engine.finish_codes(&mut self.ports.outlets);
        }
        // The outbox refers to peers by their index in the old configuration.
        self.engine.flush(&mut self.ports.outlets);
        let left =
            self.engine.gateway.reconfigure(prepared.core.clone()).map_err(|error| error.to_string())?;
        self.mtus = mtus;
        self.commit(prepared, &left);
        Ok(())
    }

    fn prepare(&self, config: GatewayConfig, core: maelstrom_core::Config) -> Result<Prepared, StartError> {
        let control = (config.gateway.control != self.config.gateway.control)
            .then(|| Control::bind(&config.gateway.control))
            .transpose()?;
        let replacement = Replacement::open(&self.config, &config, &self.ports)?;
        let present = |wan: usize| self.ports.wans.get(wan).and_then(|wan| wan.tap.as_ref());
        let taps = replacement.taps.iter().enumerate().filter_map(|(wan, tap)| tap.as_ref().or(present(wan)));
        let socket = replacement.socket.as_ref().unwrap_or(&self.ports.outlets.socket);
        let ends = doors::ends(&config);
        let present = self.ports.outlets.doors.iter().filter(|door| ends.contains(&door.at));
        let doors = replacement.doors.iter().chain(present);
        let present = self.ports.outlets.tunnel.as_ref().filter(|_| !replacement.ends_tunnel);
        let tunnel = replacement.tunnel.as_ref().or(present);
        let control_socket = control.as_ref().unwrap_or(&self.control);
        let present = self.rack.as_ref().map(|racked| &racked.socket);
        let stays = present.filter(|_| {
            config.rack.as_ref().map(Rack::address) == self.config.rack.as_ref().map(Rack::address)
        });
        let wanted = config.rack.as_ref().filter(|_| stays.is_none());
        let heartbeats = wanted.map(open_socket).transpose()?;
        let rack = heartbeats.as_ref().or(stays);
        let poller = watch(taps, socket, doors, tunnel, rack, &self.signals, control_socket)?;
        Ok(Prepared { config, core, replacement, control, heartbeats, poller })
    }

    pub(crate) fn read_tap_to_its_end(&mut self, wan: usize) {
        let Some(tap) = &mut self.ports.wans[wan].tap else { return };
        for _ in 0..LAST_ROUNDS_MAX {
            match self.engine.drain(tap, &mut self.ports.outlets) {
                Ok(round) if round.more => {}
                Ok(_) => return,
                Err(error) => return self.lose_tap(wan, &error.to_string()),
            }
        }
    }

    /// Makes the change. Only the new tap can fail; then there is no tap until `interfaces.rs` opens one.
    /// `left`: the records of losses that no peer continues.
    fn commit(&mut self, prepared: Prepared, left: &[(usize, Record)]) {
        let Prepared { config, replacement, control, heartbeats, poller, .. } = prepared;
        self.engine.out = self.engine.gateway.outbox();
        if let Some(socket) = replacement.socket {
            self.ports.outlets.replace_listen(socket);
        }
        let by = config.gateway.listen_interface.as_deref();
        if let Err(error) = self.ports.outlets.bind_listen(by) {
            warn!("the socket of `listen` keeps its interface: {error}");
        }
        if self.ports.outlets.replace_doors(&config, replacement.doors) {
            // Its room follows the number of sockets.
            self.inbox.reopen(self.ports.outlets.doors.len());
        }
        let reconnected = self.follow_wans(&config, replacement.inlets);
        if replacement.tunnel.is_some() || replacement.ends_tunnel {
            self.ports.install_tunnel(replacement.tunnel);
        }
        if let Some(control) = control {
            self.control = control;
            self.losses.listen(&config.gateway.control);
            self.cache.listen(&config.gateway.control);
            self.engine.capturing.listen(&config.gateway.control);
            self.upgrade.listen(&config.gateway.control);
            self.exporter.stop();
        }
        self.exporter.configure(&config);
        self.engine.capturing.end();
        self.drop_filter();
        if config.rack != self.config.rack {
            self.join_rack(config.rack.as_ref(), heartbeats);
        }
        let former = std::mem::replace(&mut self.config, config);
        let Engine { gateway, now_us, .. } = &mut self.engine;
        self.losses.follow(*now_us, gateway, (&former, &self.config), left);
        self.follow_file_in_tunnel();
        self.retire_device(&former);
        self.names.configure(&self.config);
        self.split.configure(&self.config);
        self.poller = poller;
        let present = std::mem::take(&mut self.ports.outlets.groups);
        self.ports.outlets.groups = groups::ports(present, &self.config);
        groups::watch(&self.ports.outlets.groups, &self.poller);
        self.next_group_check_us = 0;
        // The set of the tick has the old control socket.
        if let Err(error) = self.set_ticking(false) {
            warn!(%error, "cannot end the tick");
        }
        for (wan, tap) in replacement.taps.into_iter().enumerate() {
            if tap.is_some() {
                self.install_tap(wan, tap);
                self.engine.skips_outgoing_until_us = ALL_OUTGOING;
                self.read_tap_to_its_end(wan);
                self.engine.skips_outgoing_until_us = 0;
            }
        }
        reconnected.into_iter().for_each(|wan| self.connect_inlet(wan));
    }

    /// Begins or ends the use of WAN interfaces and their TUN devices; returns those whose way of recovered
    /// packets must be opened again.
    fn follow_wans(&mut self, config: &GatewayConfig, inlets: Vec<Option<Inlet>>) -> Vec<usize> {
        let (former, wans) = (&self.config, config.wans());
        let is_other = config.gateway.injection != former.gateway.injection
            || config.gateway.local_networks() != former.gateway.local_networks();
        let names = former.wans();
        let differs = |wan: &usize| is_other || inlets[*wan].is_some() || names.get(*wan) != wans.get(*wan);
        let reconnected = (0..wans.len()).filter(differs).collect();
        let (before, after) = (names.len(), wans.len());
        (after..before).for_each(|wan| self.end_pause(wan));
        let unshown = self.ports.follow_wans(config);
        self.engine.counts.unshown_before = self.engine.counts.unshown_before.plus(unshown);
        for (number, inlet) in inlets.into_iter().enumerate() {
            if inlet.is_some() {
                self.ports.install_inlet(number, inlet);
            }
        }
        reconnected
    }
}
