//! Reading the configuration again while traffic flows.
//!
//! Everything that can fail comes first and is made beside what runs. The change itself has an order, so that no packet
//! is handled twice and none is taken for lost that only was not seen:
//! 1. the new tap is open, and captures, but is not read;
//! 2. the old tap is read to its end;
//! 3. the core takes over the new configuration;
//! 4. the old tap is closed, and the new one read to its end. What arrived is handed over, also if the old tap had it: to
//!    have seen it once more does no harm, not to have seen it would. What left is not: a packet coded twice would look to
//!    the far gateway like one sent twice of which one was lost;
//! 5. recovery pauses until tap and repair channel are drained.

use netio::poll::Poller;
use tracing::{info, warn};

use crate::config::{self, GatewayConfig};
use crate::error::StartError;
use crate::findings;
use crate::passive::{Passive, watch};
use crate::ports::{Replacement, core_config};
use daemon::control::Control;

/// Rounds in which a tap is read to its end: more than its buffer holds of full packets. Were it fuller, its rest
/// would be lost to protection, and a gap.
const LAST_ROUNDS_MAX: usize = 64;

/// All that a reload needs, made before anything changes.
struct Prepared {
    config: GatewayConfig,
    core: maelstrom_core::Config,
    replacement: Replacement,
    control: Option<Control>,
    poller: Poller,
}

impl Passive {
    /// Reads the configuration again; a file with mistakes changes nothing.
    pub(crate) fn reload(&mut self) {
        if let Err(reason) = self.try_reload() {
            self.engine.counts.reloads_refused += 1;
            warn!("reload refused, running on with what stands: {reason}");
        } else {
            info!("reloaded");
        }
    }

    fn try_reload(&mut self) -> Result<(), String> {
        let reading = config::read(&self.path);
        let config = reading.config().map_err(|report| report.to_string())?;
        findings::log(&reading.report());
        let prepared = self.prepare(config).map_err(|error| error.to_string())?;
        if prepared.replacement.tap.is_some() {
            self.read_tap_to_its_end();
        }
        // The outbox names peers by their number in the old configuration.
        self.engine.flush(&mut self.ports.outlets);
        self.engine.gateway.reconfigure(prepared.core.clone()).map_err(|error| error.to_string())?;
        self.commit(prepared);
        Ok(())
    }

    fn prepare(&self, config: GatewayConfig) -> Result<Prepared, StartError> {
        let core = core_config(&config)?;
        let control = (config.gateway.control != self.config.gateway.control)
            .then(|| Control::bind(&config.gateway.control))
            .transpose()?;
        let replacement = Replacement::open(&self.config, &config)?;
        let tap = replacement.tap.as_ref().or(self.ports.tap.as_ref());
        let socket = replacement.socket.as_ref().unwrap_or(&self.ports.outlets.socket);
        let poller = watch(tap, socket, &self.signals, control.as_ref().unwrap_or(&self.control))?;
        Ok(Prepared { config, core, replacement, control, poller })
    }

    fn read_tap_to_its_end(&mut self) {
        let Some(tap) = &mut self.ports.tap else { return };
        for _ in 0..LAST_ROUNDS_MAX {
            match self.engine.drain(tap, &mut self.ports.outlets) {
                Ok(round) if round.more => {}
                Ok(_) => return,
                Err(error) => return self.lose_tap(&error.to_string()),
            }
        }
    }

    /// Nothing here can fail, except the new tap: then there is none, which `interfaces.rs` mends.
    fn commit(&mut self, prepared: Prepared) {
        let Prepared { config, replacement, control, poller, .. } = prepared;
        self.engine.out = self.engine.gateway.outbox();
        if let Some(socket) = replacement.socket {
            self.ports.outlets.socket = socket;
        }
        if let Some(tun) = replacement.tun {
            self.ports.outlets.tun = Some(tun);
        }
        if let Some(control) = control {
            self.control = control;
        }
        self.config = config;
        self.poller = poller;
        if let Some(tap) = replacement.tap {
            self.install_tap(Some(tap));
            self.engine.skips_outgoing = true;
            self.read_tap_to_its_end();
            self.engine.skips_outgoing = false;
        }
    }
}
