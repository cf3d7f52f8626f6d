//! The packets that a running gateway keeps to answer requests, by flow: one JSON document over a socket
//! beside the control socket.
//!
//! A client may first write one line with the ends of the flows that it asks for. The document then has these
//! flows alone, however many others there are.

use std::fmt;
use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use daemon::control::Control;
use maelstrom_core::{FlowEnds, Gateway, Kept, KeptFlow};
use serde::{Deserialize, Serialize};
use tracing::{debug, warn};

use crate::config::GatewayConfig;
use crate::status::{StatusError, ask};

/// Schema of the document, with its version: it rises when a field is removed or gets another meaning.
pub const SCHEMA: &str = "undrop.gateway.cache/1";
/// Largest document that is read, in bytes.
const DOCUMENT_BYTES_MAX: u64 = 1 << 26;
/// Interval between looks for clients. A document takes a look at each packet that is kept.
const LOOK_US: u64 = 500_000;
/// Time for which a client that has just connected may write its request.
const REQUEST_US: u64 = 100_000;
/// Longest request that is read, in bytes.
const REQUEST_MAX: usize = 1_024;
/// Maximum number of ends in a request. A flow has two, each of which can be stated with its port or not.
const ENDS_MAX: usize = 16;

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
    /// Its address as the file states it, if that is a host name or `any`.
    #[serde(default)]
    pub host: Option<String>,
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
    /// The flows that were asked for; of more than 1,000, those with the most bytes.
    pub flows: Vec<FlowCache>,
    /// Packets of further flows that were asked for.
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

/// An end of flows: an address, with a port or any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The address.
    pub address: IpAddr,
    /// The port, if only flows with that one are meant.
    pub port: Option<u16>,
}

impl FromStr for End {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse() {
            return Ok(Self { address, port: None });
        }
        let end: Result<SocketAddr, _> = text.parse();
        end.map(|end| Self { address: end.ip(), port: Some(end.port()) }).map_err(|_| {
            format!("expected an address, or one with a port, such as 10.81.2.9:5060 or [fd00::9]:5060, saw {text:?}")
        })
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}", SocketAddr::new(self.address, port)),
            None => write!(f, "{}", self.address),
        }
    }
}

impl End {
    /// Whether it is one of the ends of a flow.
    fn is_of(self, ends: &FlowEnds) -> bool {
        let ports =
            ends.ports.map_or((None, None), |(source, destination)| (Some(source), Some(destination)));
        [(ends.source, ports.0), (ends.destination, ports.1)]
            .iter()
            .any(|&(address, port)| address == self.address && (self.port.is_none() || port == self.port))
    }
}

impl Cache {
    fn of(now_us: u64, gateway: &Gateway, config: &GatewayConfig, ends: &[End]) -> Self {
        let is_wanted = |flow: &FlowEnds| ends.iter().all(|end| end.is_of(flow));
        let peers = config.peers.iter().zip(gateway.peers()).enumerate();
        let peers = peers.map(|(at, (file, peer))| {
            let names = (file.name.clone(), file.moving());
            PeerCache::of(now_us, names, peer.config.address, gateway.kept(now_us, at, is_wanted))
        });
        Self { schema: SCHEMA.to_owned(), peers: peers.collect() }
    }
}

impl PeerCache {
    fn of(
        now_us: u64,
        (name, host): (Option<String>, Option<String>),
        address: SocketAddr,
        kept: Kept,
    ) -> Self {
        let Kept { flows, others, packets, bytes, bytes_max, keep_us } = kept;
        let flows = flows.into_iter().map(|(ends, flow)| FlowCache::of(now_us, ends, flow)).collect();
        let keep_ms = keep_us / 1_000;
        Self { name, host, address, packets, bytes, bytes_max, keep_ms, flows, other_packets: others }
    }

    /// The peer in tables: its name, or else its address as the file states it.
    pub fn label(&self) -> String {
        let stated = || self.host.clone().unwrap_or_else(|| self.address.to_string());
        self.name.clone().unwrap_or_else(stated)
    }

    /// Whether an operator may mean it: by its name or its address, that of the file or the present one.
    pub fn is_called(&self, text: &str) -> bool {
        let address = self.address.to_string();
        [Some(&address), self.name.as_ref(), self.host.as_ref()].into_iter().flatten().any(|one| one == text)
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
    client: Option<Client>,
    next_us: u64,
}

/// A client that has not written its whole request at the first look.
#[derive(Debug)]
struct Client {
    stream: UnixStream,
    request: Vec<u8>,
}

impl Client {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, request: Vec::new() })
    }

    /// Reads what is there of the request; returns whether it is whole.
    fn read(&mut self) -> bool {
        let mut bytes = [0; REQUEST_MAX];
        // A client that ends its side, or breaks off, asks for nothing more.
        while self.request.len() < REQUEST_MAX && !self.request.ends_with(b"\n") {
            let room = REQUEST_MAX - self.request.len();
            match self.stream.read(&mut bytes[..room]) {
                Ok(0) => return true,
                Ok(len) => self.request.extend_from_slice(&bytes[..len]),
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    /// The ends that the flows must have. A request that cannot be read asks for all flows.
    fn ends(&self) -> Vec<End> {
        let text = String::from_utf8_lossy(&self.request);
        text.split_ascii_whitespace().map(End::from_str).collect::<Result<_, _>>().unwrap_or_default()
    }
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
        if control.is_busy() {
            return;
        }
        let is_new = self.client.is_none();
        let accept = || control.accept().and_then(|stream| Client::new(stream).ok());
        let Some(mut client) = self.client.take().or_else(accept) else { return };
        if !client.read() && is_new {
            self.next_us = now_us + REQUEST_US;
            self.client = Some(client);
            return;
        }
        let cache = Cache::of(now_us, gateway, config, &client.ends());
        let document = move || {
            let mut document = serde_json::to_vec(&cache)?;
            document.push(b'\n');
            Ok(document)
        };
        if let Err(error) = control.hand_out(client.stream, document) {
            debug!(%error, "cannot answer a request for the cache");
        }
    }
}

/// Reads what the gateway at a control socket keeps, of the flows with all of these ends.
///
/// # Errors
/// [`StatusError`].
pub fn read(control: &Path, ends: &[End]) -> Result<Cache, StatusError> {
    let ends: Vec<String> = ends.iter().take(ENDS_MAX).map(End::to_string).collect();
    ask(&socket(control), &(ends.join(" ") + "\n"), DOCUMENT_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_found_by_either_of_its_ends() {
        let flow = FlowEnds {
            source: "10.1.0.1".parse().unwrap(),
            destination: "fd00::2".parse().unwrap(),
            protocol: Some(17),
            ports: Some((4_000, 53)),
        };
        let is = |text: &str| text.parse::<End>().unwrap().is_of(&flow);
        assert!(is("10.1.0.1") && is("fd00::2") && is("[fd00::2]:53") && is("10.1.0.1:4000"));
        assert!(!is("10.1.0.1:53") && !is("10.3.0.1") && !is("[fd00::2]:4000"));
        let bare = FlowEnds { ports: None, ..flow };
        assert!("10.1.0.1".parse::<End>().unwrap().is_of(&bare));
        assert!(!"10.1.0.1:4000".parse::<End>().unwrap().is_of(&bare));
    }

    #[test]
    fn an_end_is_an_address_with_or_without_a_port() {
        let end = |text: &str| text.parse::<End>();
        assert_eq!(end("10.0.0.1").unwrap().port, None);
        assert_eq!(end("[fd00::9]:53").unwrap(), End { address: "fd00::9".parse().unwrap(), port: Some(53) });
        assert!(end("fd00::9").is_ok() && end("here").unwrap_err().contains("saw \"here\""));
        for text in ["10.0.0.1", "10.0.0.1:9", "fd00::9", "[fd00::9]:53"] {
            assert_eq!(end(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_client_may_write_its_request_in_parts_or_not_at_all() {
        use std::io::Write as _;
        let pair = || {
            let (near, far) = UnixStream::pair().unwrap();
            (near, Client::new(far).unwrap())
        };
        let (mut near, mut client) = pair();
        assert!(!client.read() && client.ends().is_empty());
        near.write_all(b"10.0.0.1 [fd00::9").unwrap();
        assert!(!client.read());
        near.write_all(b"]:53\n").unwrap();
        assert!(client.read());
        assert_eq!(client.ends(), ["10.0.0.1", "[fd00::9]:53"].map(|end| end.parse::<End>().unwrap()));
        let (near, mut client) = pair();
        drop(near);
        assert!(client.read() && client.ends().is_empty());
        // Noise without an end.
        let (mut near, mut client) = pair();
        near.write_all(&[0xff; 4 * REQUEST_MAX]).unwrap();
        assert!(client.read() && client.ends().is_empty() && client.request.len() == REQUEST_MAX);
    }

    #[test]
    fn a_peer_is_called_by_its_name_its_host_or_its_address() {
        let names = (Some("osaka".to_owned()), Some("osaka.example:4700".to_owned()));
        let peer = PeerCache::of(0, names, "10.1.0.1:4700".parse().unwrap(), Kept::default());
        assert!(["osaka", "osaka.example:4700", "10.1.0.1:4700"].iter().all(|text| peer.is_called(text)));
        assert!(!peer.is_called("kobe") && peer.label() == "osaka");
        assert_eq!(PeerCache { name: None, ..peer }.label(), "osaka.example:4700");
    }

    #[test]
    fn the_cache_has_a_socket_beside_the_control_socket() {
        assert_eq!(socket(Path::new("/run/gateway.sock")), Path::new("/run/gateway.sock.cache"));
        assert!(matches!(read(Path::new("/nowhere/x.sock"), &[]), Err(StatusError::Absent { .. })));
    }
}
