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
    /// same. The main loop calls this, so that the end of a server waits for no other machine.
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

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;
    use crate::config::tests::configuration;

    fn config(metrics: SocketAddr) -> GatewayConfig {
        configuration(&format!(
            "[gateway]\nwan = 'w'\nlisten = '10.0.0.1:1'\ncontrol = '/nowhere/x.sock'\nmetrics = '{metrics}'\n\
             [[peer]]\naddress = '10.0.0.2:1'\nnetworks = ['10.2.0.0/16']\nkey_file = 'peer.key'\n"
        ))
    }

    /// Whether somebody answers a scrape, be it with an error because there is no gateway.
    fn answers(port: u16) -> bool {
        let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return false };
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.starts_with("HTTP/1.1 503 ")
    }

    #[test]
    fn metrics_are_there_after_a_reload_that_moves_the_control_socket_or_widens_the_address() {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let mut exporter = Exporter::start(&config(free));
        assert!(answers(free.port()));
        exporter.stop();
        exporter.configure(&config(free));
        assert!(answers(free.port()), "after a move of the control socket");
        exporter.configure(&config((Ipv4Addr::UNSPECIFIED, free.port()).into()));
        assert!(answers(free.port()), "at a wider address");
        exporter.stop();
        assert!(!answers(free.port()));
    }
}
