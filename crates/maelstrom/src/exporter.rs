//! The metrics over TCP, if the configuration asks for them.
//!
//! The server is a client of the gateway's control socket: a scrape costs the main loop one status, and a
//! slow scraper costs it nothing.

use std::io;
use std::net::SocketAddr;

use daemon::http::Server;
use daemon::openmetrics::CONTENT_TYPE;
use tracing::{info, warn};

use crate::config::GatewayConfig;
use crate::{metrics, status};

/// The server, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Exporter(Option<(SocketAddr, Server)>);

impl Exporter {
    /// Starts the server if the configuration asks for it.
    pub(crate) fn start(config: &GatewayConfig) -> Self {
        let mut exporter = Self::default();
        exporter.configure(config);
        exporter
    }

    /// Starts, stops or moves the server as the configuration asks. A gateway without metrics works all the
    /// same.
    pub(crate) fn configure(&mut self, config: &GatewayConfig) {
        let wanted = config.gateway.metrics;
        if wanted == self.0.as_ref().map(|(address, _)| *address) {
            return;
        }
        self.0 = None;
        let Some(address) = wanted else { return };
        let control = config.gateway.control.clone();
        let document = move || {
            let status = status::read(&control).map_err(|error| io::Error::other(error.to_string()))?;
            Ok((metrics::render(&status), CONTENT_TYPE))
        };
        match Server::start(address, document) {
            Ok(server) => {
                info!("metrics at http://{address}/metrics");
                self.0 = Some((address, server));
            }
            Err(error) => {
                let help = "choose an address of this machine and an unused port, and reload";
                warn!(help, "cannot answer scrapes of metrics at {address}: {error}");
            }
        }
    }

    /// Stops the server, because the control socket moves.
    pub(crate) fn stop(&mut self) {
        self.0 = None;
    }
}
