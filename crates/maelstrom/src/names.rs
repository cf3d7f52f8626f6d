//! Peers that the file names by a host name: a thread looks their addresses up.
//!
//! A lookup may take many seconds. The main loop never waits for one: it hands the name to the thread, and
//! takes the answer in a later turn. A name is looked up at the start, after a reload that brings it, and
//! while the peer, or a path to it, is silent, because the far gateway may have moved.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::Duration;

use maelstrom_core::{PeerStatus, Whereabouts};
use tracing::{info, warn};

use crate::config::{GatewayConfig, Host, PEERS_MAX, Peer, PeerAddress};
use crate::passive::Passive;

/// Interval between looks at answers and at names that are due.
const LOOK_US: u64 = 100_000;
/// Silence of a peer after which its name is looked up again.
const SILENCE_US: u64 = 3_000_000;
/// Interval between the first two lookups of a name. It doubles with each further one.
const AGAIN_US: u64 = 2_000_000;
/// Longest interval between lookups of a name.
const AGAIN_MAX_US: u64 = 60_000_000;
/// Interval between lines in the log about a name that is not found, unless the reason changes.
const LOG_US: u64 = 600_000_000;

/// Looks a name up; returns its addresses in a fixed order. This may take many seconds.
///
/// # Errors
/// The reason of the system's resolver.
pub(crate) fn look_up(host: &Host) -> io::Result<Vec<SocketAddr>> {
    let mut addresses: Vec<SocketAddr> = (host.name.as_str(), host.port).to_socket_addrs()?.collect();
    // Name servers change the order of equal answers.
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

/// Looks a name up, and waits for at most `patience`.
///
/// # Errors
/// The reason of the system's resolver, or that the patience is over.
pub(crate) fn look_up_within(host: &Host, patience: Duration) -> io::Result<Vec<SocketAddr>> {
    let (answer, answers) = mpsc::sync_channel(1);
    let host = host.clone();
    thread::Builder::new().name("names".into()).spawn(move || answer.send(look_up(&host)))?;
    let late = || io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {patience:?}"));
    answers.recv_timeout(patience).unwrap_or_else(|_| Err(late()))
}

/// The addresses of the IP version in which repairs travel.
pub(crate) fn of_family(addresses: Vec<SocketAddr>, v6: bool) -> Vec<SocketAddr> {
    addresses.into_iter().filter(|address| address.is_ipv6() == v6).collect()
}

/// One of the paths to a peer: the numbers of both. That of the first path is 0.
type Path = (usize, usize);

/// The name of the peer on a path, if the file has one there.
fn host_on(peer: &Peer, path: usize) -> Option<&Host> {
    let Some(further) = path.checked_sub(1) else { return peer.host.as_ref() };
    match &peer.paths.get(further)?.address {
        PeerAddress::Name(host) => Some(host),
        PeerAddress::Ip(_) | PeerAddress::Any => None,
    }
}

/// The paths on which peers have names.
fn named(config: &GatewayConfig) -> impl Iterator<Item = (Path, &Host)> {
    let paths = |(index, peer): (usize, &'_ Peer)| (0..=peer.paths.len()).map(move |path| (index, path));
    let all = config.peers.iter().enumerate().flat_map(paths);
    all.filter_map(|(index, path)| Some(((index, path), host_on(&config.peers[index], path)?)))
}

/// The paths with a name.
fn paths_of<'c>(config: &'c GatewayConfig, host: &'c Host) -> impl Iterator<Item = Path> + 'c {
    named(config).filter(move |(_, name)| *name == host).map(|(path, _)| path)
}

/// The names of peers, and the thread that looks them up.
#[derive(Debug, Default)]
pub(crate) struct Names {
    lookups: Vec<Lookup>,
    thread: Option<Thread>,
    next_us: u64,
}

/// Both ends of the channels to the thread. It ends when they are dropped.
#[derive(Debug)]
struct Thread {
    hosts: SyncSender<Host>,
    answers: Receiver<(Host, io::Result<Vec<SocketAddr>>)>,
}

/// The lookups of a name, which may be that of several paths.
#[derive(Debug)]
struct Lookup {
    host: Host,
    /// Whether the thread has the name and has not answered.
    is_asked: bool,
    next_us: u64,
    pause_us: u64,
    /// Time since which the peer, or one of these paths, has been down.
    down_since_us: Option<u64>,
    /// The latest reason for which the name was not found, and the time until which it is not logged again.
    failure: Option<(String, u64)>,
}

impl Lookup {
    fn new(host: Host) -> Self {
        Self { host, is_asked: false, next_us: 0, pause_us: AGAIN_US, down_since_us: None, failure: None }
    }

    /// Whether the name must be looked up at present.
    fn is_due(&mut self, now_us: u64, is_known: bool, is_up: bool) -> bool {
        if is_up {
            (self.down_since_us, self.pause_us, self.next_us) = (None, AGAIN_US, 0);
            return false;
        }
        let down_since_us = *self.down_since_us.get_or_insert(now_us);
        let is_silent = now_us >= down_since_us + SILENCE_US;
        !self.is_asked && now_us >= self.next_us && (is_silent || !is_known)
    }

    fn on_asked(&mut self, now_us: u64) {
        (self.is_asked, self.next_us) = (true, now_us + self.pause_us);
        self.pause_us = (2 * self.pause_us).min(AGAIN_MAX_US);
    }

    /// Chooses among the addresses of a peer that is silent at `present`: the next one after it, so that each
    /// gets its turn.
    fn choose(present: SocketAddr, addresses: &[SocketAddr]) -> Option<SocketAddr> {
        let at = addresses.iter().position(|&address| address == present);
        let next = at.map_or(0, |at| (at + 1) % addresses.len());
        addresses.get(next).copied()
    }

    /// Notes a failure; returns whether it must be logged.
    fn on_failure(&mut self, now_us: u64, reason: &str) -> bool {
        if self.failure.as_ref().is_some_and(|(known, until_us)| known == reason && now_us < *until_us) {
            return false;
        }
        self.failure = Some((reason.to_owned(), now_us + LOG_US));
        true
    }
}

impl Names {
    /// Takes the names in a configuration. The state of those that stay is kept.
    pub(crate) fn configure(&mut self, config: &GatewayConfig) {
        let mut old = std::mem::take(&mut self.lookups);
        for (_, host) in named(config) {
            if self.lookups.iter().any(|lookup| lookup.host == *host) {
                continue;
            }
            let known = old.iter().position(|lookup| lookup.host == *host);
            self.lookups.push(known.map_or_else(|| Lookup::new(host.clone()), |at| old.swap_remove(at)));
        }
        self.next_us = 0;
        if self.lookups.is_empty() {
            self.thread = None;
        } else if self.thread.is_none() {
            self.thread =
                start().inspect_err(|error| warn!("names of peers cannot be looked up: {error}")).ok();
        }
    }

    fn lookup(&mut self, host: &Host) -> Option<&mut Lookup> {
        self.lookups.iter_mut().find(|lookup| lookup.host == *host)
    }

    /// Hands a name to the thread if it is due.
    fn ask(&mut self, now_us: u64, host: &Host, is_known: bool, is_up: bool) {
        let Some(thread) = &self.thread else { return };
        let Some(lookup) = self.lookups.iter_mut().find(|lookup| lookup.host == *host) else { return };
        if lookup.is_due(now_us, is_known, is_up) && thread.hosts.try_send(host.clone()).is_ok() {
            lookup.on_asked(now_us);
        }
    }

    fn answers(&self) -> Vec<(Host, io::Result<Vec<SocketAddr>>)> {
        self.thread.iter().flat_map(|thread| thread.answers.try_iter()).collect()
    }
}

fn start() -> io::Result<Thread> {
    let (hosts, asked) = mpsc::sync_channel::<Host>(PEERS_MAX);
    let (answer, answers) = mpsc::sync_channel(PEERS_MAX);
    thread::Builder::new().name("names".into()).spawn(move || {
        for host in asked {
            let found = look_up(&host);
            if answer.send((host, found)).is_err() {
                return;
            }
        }
    })?;
    Ok(Thread { hosts, answers })
}

/// Reason why an address cannot be that of a peer.
#[derive(Debug, PartialEq, Eq)]
enum Unusable {
    /// The name has addresses of the other IP version only, or none.
    None { v6: bool },
    /// It is this gateway's own.
    Own(SocketAddr),
    /// Another peer has it.
    Other(SocketAddr, String),
    /// It lies inside a protected network.
    Inside(IpAddr),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None { v6 } => write!(f, "it has no IPv{} address", if *v6 { 6 } else { 4 }),
            Self::Own(address) => write!(f, "its address {address} is this gateway's own"),
            Self::Other(address, peer) => write!(f, "its address {address} is that of {peer}"),
            Self::Inside(ip) => write!(f, "its address {ip} lies inside a network of a peer"),
        }
    }
}

/// Finds the address of peer number `index` among those of its name. `known`: the addresses of each peer, on
/// all paths. `present`: its own on the path with this name.
fn usable(
    config: &GatewayConfig,
    known: &[Vec<SocketAddr>],
    index: usize,
    present: SocketAddr,
    found: Vec<SocketAddr>,
) -> Result<SocketAddr, Unusable> {
    let v6 = config.gateway.listen.is_ipv6();
    let found = of_family(found, v6);
    let address = Lookup::choose(present, &found).ok_or(Unusable::None { v6 })?;
    if address == config.gateway.listen {
        return Err(Unusable::Own(address));
    }
    let mut others = known.iter().zip(&config.peers).enumerate().filter(|&(at, _)| at != index);
    if let Some((_, (_, other))) = others.find(|(_, (addresses, _))| addresses.contains(&address)) {
        return Err(Unusable::Other(address, other.label()));
    }
    let contains = |peer: &Peer| peer.networks.iter().any(|network| network.contains(&address.ip()));
    if config.peers.iter().any(contains) { Err(Unusable::Inside(address.ip())) } else { Ok(address) }
}

/// Address of a peer on a path; with the unspecified IP address, it is not known yet.
fn address_on(states: &[PeerStatus<'_>], (peer, path): Path) -> SocketAddr {
    let config = states[peer].config;
    config.path(path).map_or(config.address, |(_, address)| address)
}

/// Whether datagrams pass on a path: of one path alone, whether the peer is up.
fn is_up_on(states: &[PeerStatus<'_>], (peer, path): Path) -> bool {
    let state = &states[peer];
    if state.paths.is_empty() {
        return state.is_up;
    }
    state.paths.get(path).is_some_and(|path| path.is_alive)
}

/// Gives peers of `new` the addresses that are known of their names, or of the same sites.
pub(crate) fn keep_addresses(old: &GatewayConfig, new: &mut GatewayConfig) {
    for peer in new.peers.iter_mut().filter(|peer| peer.whereabouts != Whereabouts::Stated) {
        let is_it =
            |known: &&Peer| known.networks == peer.networks || peer.host.is_some() && known.host == peer.host;
        let known = old.peers.iter().find(is_it);
        if let Some(known) = known.filter(|known| known.address.is_ipv6() == peer.address.is_ipv6()) {
            peer.address = known.address;
        }
    }
}

impl Passive {
    /// Takes addresses that were looked up, and asks for those that are due.
    pub(crate) fn follow_names(&mut self) {
        let now_us = self.engine.now_us;
        if self.names.lookups.is_empty() || now_us < self.names.next_us {
            return;
        }
        self.names.next_us = now_us + LOOK_US;
        for (host, found) in self.names.answers() {
            self.on_name(now_us, &host, found);
        }
        let states: Vec<_> = self.engine.gateway.peers().collect();
        let hosts: Vec<Host> = self.names.lookups.iter().map(|lookup| lookup.host.clone()).collect();
        for host in hosts {
            let paths = || paths_of(&self.config, &host);
            let is_known = paths().all(|path| !address_on(&states, path).ip().is_unspecified());
            let is_up = paths().all(|path| is_up_on(&states, path));
            self.names.ask(now_us, &host, is_known, is_up);
        }
    }

    /// Takes the answer about a name, for those of its paths that are silent.
    fn on_name(&mut self, now_us: u64, host: &Host, found: io::Result<Vec<SocketAddr>>) {
        // A reload may have taken the name away.
        let Some(lookup) = self.names.lookup(host) else { return };
        lookup.is_asked = false;
        let states: Vec<_> = self.engine.gateway.peers().collect();
        let silent = paths_of(&self.config, host).filter(|path| !is_up_on(&states, *path));
        let silent: Vec<_> = silent.map(|path| (path, address_on(&states, path))).collect();
        drop(states);
        let core = &self.engine.gateway.config().peers;
        let known: Vec<Vec<_>> = core.iter().map(|peer| peer.addresses().collect()).collect();
        let found = found.map_err(|error| error.to_string());
        let mut failure = None;
        for (path, present) in silent {
            let (config, label) = (&self.config, self.config.peers[path.0].label());
            let address = found.clone().and_then(|found| {
                usable(config, &known, path.0, present, found).map_err(|reason| reason.to_string())
            });
            match address {
                Ok(address) if address == present => {}
                Ok(address) => {
                    info!(peer = label, path = path.1 + 1, "{host} is at {}", address.ip());
                    self.move_peer(path, address);
                }
                Err(reason) => failure = failure.or(Some((label, reason))),
            }
        }
        let Some(lookup) = self.names.lookup(host) else { return };
        let Some((label, reason)) = failure else { return lookup.failure = None };
        if lookup.on_failure(now_us, &reason) {
            let help = "check the name in `address`, and the name servers of this machine; until then, the \
                        peer is not reached there unless its last address is right";
            warn!(peer = label, help, "cannot find {host}: {reason}");
        }
    }

    /// Takes over addresses that peers' own datagrams have shown.
    pub(crate) fn follow_moves(&mut self) {
        let moves = self.engine.gateway.moves();
        if std::mem::replace(&mut self.moves, moves) == moves {
            return;
        }
        for (peer, core) in self.config.peers.iter_mut().zip(&self.engine.gateway.config().peers) {
            peer.address = core.address;
        }
        // The filter against floods passes the old addresses.
        self.drop_filter();
    }

    /// Sends to another address of a peer from here on, on one of the paths to it.
    fn move_peer(&mut self, path: Path, address: SocketAddr) {
        // The outbox has datagrams for the old address.
        self.engine.flush(&mut self.ports.outlets);
        self.engine.gateway.set_address(path, address);
        if path.1 == 0 {
            self.config.peers[path.0].address = address;
        }
        // The filter against floods passes the old address.
        self.drop_filter();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn host(name: &str) -> Host {
        Host { name: name.to_owned(), port: 4700 }
    }

    fn at(last: u8) -> SocketAddr {
        SocketAddr::from(([203, 0, 113, last], 4700))
    }

    #[test]
    fn a_name_is_looked_up_at_once_and_again_while_the_peer_is_silent() {
        let mut lookup = Lookup::new(host("far.test"));
        assert!(lookup.is_due(0, false, false));
        lookup.on_asked(0);
        assert!(!lookup.is_due(5 * SECOND, false, false), "the thread has it");
        lookup.is_asked = false;
        assert!(!lookup.is_due(60 * SECOND, true, true), "the peer is up");
        assert!(!lookup.is_due(61 * SECOND, true, false) && !lookup.is_due(63 * SECOND, true, false));
        assert!(lookup.is_due(64 * SECOND, true, false), "it has been silent for three seconds");
        lookup.on_asked(64 * SECOND);
        lookup.is_asked = false;
        assert!(!lookup.is_due(65 * SECOND, true, false) && lookup.is_due(66 * SECOND, true, false));
    }

    #[test]
    fn lookups_that_bring_nothing_become_rare() {
        let mut lookup = Lookup::new(host("far.test"));
        let mut asked = 0;
        for second in 0..3_600 {
            if lookup.is_due(second * SECOND, false, false) {
                lookup.on_asked(second * SECOND);
                lookup.is_asked = false;
                asked += 1;
            }
        }
        assert!((60..=66).contains(&asked), "{asked} in an hour");
    }

    #[test]
    fn a_failure_is_logged_once_in_ten_minutes_unless_its_reason_changes() {
        let mut lookup = Lookup::new(host("far.test"));
        let logged = |lookup: &mut Lookup, at_s: u64, reason| lookup.on_failure(at_s * SECOND, reason);
        assert!(logged(&mut lookup, 0, "no such name"));
        assert!(!logged(&mut lookup, 2, "no such name") && !logged(&mut lookup, 599, "no such name"));
        assert!(logged(&mut lookup, 600, "no such name") && logged(&mut lookup, 601, "no name server"));
    }

    #[test]
    fn each_address_of_a_silent_peer_gets_its_turn() {
        let unknown = SocketAddr::from(([0, 0, 0, 0], 4700));
        let all = [at(1), at(2), at(3)];
        assert_eq!(Lookup::choose(unknown, &all), Some(at(1)));
        assert_eq!(
            [1, 2, 3].map(|last| Lookup::choose(at(last), &all)),
            [Some(at(2)), Some(at(3)), Some(at(1))]
        );
        assert_eq!(Lookup::choose(at(9), &all), Some(at(1)), "it has moved");
        assert_eq!(Lookup::choose(at(9), &[]), None);
    }

    /// A gateway with a peer that has a name, and one that has an address.
    fn config(test: &str, addresses: [&str; 2]) -> GatewayConfig {
        let directory = std::env::temp_dir().join(format!("undrop-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let mut text = "[gateway]\nwan = \"wan0\"\nlisten = \"203.0.113.1:4700\"\n".to_owned();
        for (n, address) in addresses.iter().enumerate() {
            let key = directory.join(format!("{n}.key"));
            keyfile::KeyText::new(&[n as u8 + 1; 32]).write_new(&key).unwrap();
            let networks = format!("networks = [\"10.82.{n}.0/24\"]\nkey_file = \"{n}.key\"\n");
            text += &format!("[[peer]]\naddress = \"{address}\"\n{networks}");
        }
        let config = crate::config::parse(&directory.join("gateway.toml"), &text).config().unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        config
    }

    #[test]
    fn an_address_that_cannot_be_the_peers_is_refused() {
        let config = config("names-usable", ["far.test:4700", "203.0.113.3:4700"]);
        // The other peer has been found on a further path.
        let known = [vec![config.peers[0].address], vec![config.peers[1].address, at(4)]];
        let of = |found: &[SocketAddr]| usable(&config, &known, 0, known[0][0], found.to_vec());
        let v6: SocketAddr = "[2001:db8::7]:4700".parse().unwrap();
        assert_eq!(of(&[at(2)]), Ok(at(2)));
        assert_eq!(of(&[v6, at(2)]), Ok(at(2)));
        assert_eq!(
            [of(&[]), of(&[v6])],
            [Err(Unusable::None { v6: false }), Err(Unusable::None { v6: false })]
        );
        assert_eq!(of(&[at(1)]), Err(Unusable::Own(at(1))));
        for taken in [at(3), at(4)] {
            assert_eq!(of(&[taken]), Err(Unusable::Other(taken, "203.0.113.3:4700".to_owned())));
        }
        let inside: SocketAddr = "10.82.1.9:4700".parse().unwrap();
        assert_eq!(of(&[inside]), Err(Unusable::Inside(inside.ip())));
    }

    #[test]
    fn a_reload_keeps_the_address_of_a_name_and_of_a_site() {
        let mut old = config("names-old", ["far.test:4700", "203.0.113.3:4700"]);
        old.peers[0].address = at(2);
        let mut new = config("names-new", ["far.test:4700", "other.test:4700"]);
        keep_addresses(&old, &mut new);
        assert_eq!([new.peers[0].address, new.peers[1].address], [at(2), at(3)]);
        let mut fixed = config("names-fixed", ["203.0.113.9:4700", "new.test:4700"]);
        fixed.peers[1].networks = vec!["10.99.0.0/16".parse().unwrap()];
        keep_addresses(&old, &mut fixed);
        assert_eq!(fixed.peers[0].address, at(9), "the file states it");
        assert!(fixed.peers[1].address.ip().is_unspecified(), "another name of another site");
    }

    #[test]
    fn the_system_knows_this_machine_and_no_invalid_name() {
        let found = look_up_within(&host("localhost"), Duration::from_secs(30)).unwrap();
        assert!(
            found.iter().all(|address| address.ip().is_loopback() && address.port() == 4700),
            "{found:?}"
        );
        assert!(look_up_within(&host("no-such-host.invalid"), Duration::from_secs(30)).is_err());
        assert_eq!(of_family(vec![at(1), "[::1]:4700".parse().unwrap()], false), [at(1)]);
    }
}
