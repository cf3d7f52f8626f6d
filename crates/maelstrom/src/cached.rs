//! The packets that a running gateway keeps to answer requests, by flow: one JSON document over a socket
//! beside the control socket.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use daemon::control::Control;
use maelstrom_core::{FlowEnds, Gateway, Kept, KeptFlow};
use serde::{Deserialize, Serialize};
use tracing::{debug, warn};

use crate::config::GatewayConfig;
use crate::status::{StatusError, document};

/// Schema of the document, with its version: it rises when a field is removed or gets another meaning.
pub const SCHEMA: &str = "undrop.gateway.cache/1";
/// Largest document that is read, in bytes.
const DOCUMENT_BYTES_MAX: u64 = 1 << 26;
/// Interval between looks for clients. A document takes a look at each packet that is kept.
const LOOK_US: u64 = 500_000;

/// The packets that are kept, by peer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cache {
    /// Name and version of this schema.
    #[serde(default)]
    pub schema: String,
    /// The far gateways, in the order of the configuration.
    pub peers: Vec<PeerCache>,
}

/// The packets for one peer's site that left lately.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerCache {
    /// The operator's name for the peer.
    pub name: Option<String>,
    /// Address of its end of the repair channel.
    pub address: SocketAddr,
    /// Number of packets that are kept.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Maximum number of bytes.
    pub bytes_max: u64,
    /// Time in milliseconds for which packets are kept at most: that of two requests.
    pub keep_ms: u64,
    /// The flows, at most 1,000.
    pub flows: Vec<FlowCache>,
    /// Packets of further flows.
    pub other_packets: u64,
}

/// The packets of a flow that are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowCache {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// IP protocol number; null for later fragments.
    pub protocol: Option<u8>,
    /// Source port; null if the protocol has none.
    pub source_port: Option<u16>,
    /// Destination port; null if the protocol has none.
    pub destination_port: Option<u16>,
    /// Number of packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Number of times that they were sent again.
    pub answers: u64,
    /// Milliseconds since the oldest left.
    pub oldest_ms: u64,
    /// Milliseconds since the newest left.
    pub newest_ms: u64,
}

impl Cache {
    fn of(now_us: u64, gateway: &Gateway, config: &GatewayConfig) -> Self {
        let peers = config.peers.iter().zip(gateway.peers()).enumerate();
        let peers = peers.map(|(at, (file, peer))| {
            PeerCache::of(now_us, file.name.clone(), peer.config.address, gateway.kept(at))
        });
        Self { schema: SCHEMA.to_owned(), peers: peers.collect() }
    }
}

impl PeerCache {
    fn of(now_us: u64, name: Option<String>, address: SocketAddr, kept: Kept) -> Self {
        let Kept { flows, others, packets, bytes, bytes_max, keep_us } = kept;
        let flows = flows.into_iter().map(|(ends, flow)| FlowCache::of(now_us, ends, flow)).collect();
        let keep_ms = keep_us / 1_000;
        Self { name, address, packets, bytes, bytes_max, keep_ms, flows, other_packets: others }
    }

    /// The peer in tables: its name, or else its address.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.address.to_string())
    }
}

impl FlowCache {
    fn of(now_us: u64, ends: FlowEnds, flow: KeptFlow) -> Self {
        let FlowEnds { source, destination, protocol, ports } = ends;
        let KeptFlow { packets, bytes, answers, oldest_us, newest_us } = flow;
        let age_ms = |at_us: u64| now_us.saturating_sub(at_us) / 1_000;
        Self {
            source,
            destination,
            protocol,
            source_port: ports.map(|(port, _)| port),
            destination_port: ports.map(|(_, port)| port),
            packets,
            bytes,
            answers,
            oldest_ms: age_ms(oldest_us),
            newest_ms: age_ms(newest_us),
        }
    }

    /// Whether an address is one of its ends, with this port if one is given.
    pub fn has_end(&self, address: IpAddr, port: Option<u16>) -> bool {
        let is = |own: IpAddr, own_port: Option<u16>| own == address && (port.is_none() || own_port == port);
        is(self.source, self.source_port) || is(self.destination, self.destination_port)
    }
}

/// The socket beside a control socket.
fn socket(control: &Path) -> PathBuf {
    let mut path = control.as_os_str().to_owned();
    path.push(".cache");
    path.into()
}

/// The end of the socket in the gateway.
#[derive(Debug, Default)]
pub(crate) struct CacheSocket {
    control: Option<Control>,
    next_us: u64,
}

impl CacheSocket {
    /// Leaves the place to another process.
    pub(crate) fn abandon(&mut self) {
        if let Some(mut control) = self.control.take() {
            control.abandon();
        }
    }

    /// Listens beside the control socket. Without a socket, the gateway works all the same.
    pub(crate) fn listen(&mut self, control: &Path) {
        let opened = Control::bind(&socket(control));
        self.control =
            opened.inspect_err(|error| warn!("`undrop gateway cache` will not work: {error}")).ok();
    }

    /// Answers a client that waits.
    pub(crate) fn answer(&mut self, now_us: u64, gateway: &Gateway, config: &GatewayConfig) {
        let Some(control) = self.control.as_ref().filter(|_| now_us >= self.next_us) else { return };
        self.next_us = now_us + LOOK_US;
        let document = || {
            let mut document = serde_json::to_vec(&Cache::of(now_us, gateway, config))?;
            document.push(b'\n');
            Ok(document)
        };
        if let Err(error) = control.answer_at_leisure(document) {
            debug!(%error, "cannot answer a request for the cache");
        }
    }
}

/// Reads what the gateway at a control socket keeps.
///
/// # Errors
/// [`StatusError`].
pub fn read(control: &Path) -> Result<Cache, StatusError> {
    document(&socket(control), DOCUMENT_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_found_by_either_of_its_ends() {
        let flow = FlowCache {
            source: "10.1.0.1".parse().unwrap(),
            destination: "10.2.0.1".parse().unwrap(),
            protocol: Some(17),
            source_port: Some(4_000),
            destination_port: Some(53),
            packets: 1,
            bytes: 60,
            answers: 0,
            oldest_ms: 9,
            newest_ms: 9,
        };
        let has = |address: &str, port| flow.has_end(address.parse().unwrap(), port);
        assert!(has("10.1.0.1", None) && has("10.2.0.1", None) && has("10.2.0.1", Some(53)));
        assert!(!has("10.1.0.1", Some(53)) && !has("10.3.0.1", None));
    }

    #[test]
    fn the_cache_has_a_socket_beside_the_control_socket() {
        assert_eq!(socket(Path::new("/run/gateway.sock")), Path::new("/run/gateway.sock.cache"));
        assert!(matches!(read(Path::new("/nowhere/x.sock")), Err(StatusError::Absent { .. })));
    }
}
