//! From settings to a running node: sockets, core, membership, threads, in this order.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use membership::{Gossip, GossipConfig, Me, MemberFile, Membership, Static, StaticConfig};
use netio::interface::Interface;
use netio::multicast::{
    GroupSocket, InterfaceFacts, IpVersion, Joiner, OpenError, Outbox, OwnConfig, OwnSocket, RECEIVED_MAX,
};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use ricochet_core::{Groups, Node as CoreNode, NodeConfig, NodeId, View};
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::book::{Book, Spread};
use crate::builder::Builder;
use crate::clock;
use crate::config::{Config, NodeSection, PORT};
use crate::control::Serving;
use crate::drain::Drain;
use crate::driver::{Behind, Driver, Members, Post};
use crate::error::StartError;
use crate::filter::{DroppedCounts, Filter};
use crate::ip_groups::IpGroups;
use crate::key::ClusterKey;
use crate::node::Node;
use crate::outward::Outward;
use crate::pool::Pool;
use crate::ring::Ring;
use crate::shared::{Batch, Changes, Core, Parts, Shared};
use crate::wake::Waker;
use crate::watch::Watch;

/// Datagrams of the membership that may wait.
const LETTERS: usize = 512;

pub(crate) fn start(builder: Builder) -> Result<Node, StartError> {
    let (driver, lengths) = prepare(builder)?;
    let shared = Arc::clone(&driver.shared);
    let (stop, threads) = spawn(driver)?;
    Ok(Node::new(shared, lengths, stop, threads))
}

/// A node whose thread is still to be started, and the lengths of its longest payload and message.
pub(crate) fn prepare(builder: Builder) -> Result<(Driver, [usize; 2]), StartError> {
    let Builder { config, key, injection, core } = builder;
    config.check()?;
    let key = match (&key, &config.key.file) {
        (None, Some(file)) => {
            let wrong = |error| StartError::Key { file: file.clone(), error };
            Some(ClusterKey::read(file).map_err(wrong)?)
        }
        _ => key,
    };
    let seal = key.as_ref().map(ClusterKey::seal);
    let mut rng = randomness(config.node.randomness)?;
    let id = NodeId((rng.next_u64() >> 32) as u32);
    let sockets = Sockets::open(&config)?;
    let address = sockets.own.local_address();
    let membership =
        open_membership(&config, Me { id, address, life: clock::since_1970_us() }, rng.next_u64())?;
    let control = config.node.control.as_deref().map(Serving::bind).transpose()?;

    let section = &config.node;
    let spread =
        Spread::new(section.groups_base, section.is_ipv6(), section.group_addresses, section.group_port);
    let of_settings = config.core(id, key.is_some());
    let core = core.map_or(of_settings, |core| NodeConfig { id, trailer: of_settings.trailer, ..core });
    let node = CoreNode::new(core, Groups::default(), &View::default(), rng.next_u64())
        .map_err(crate::config::ConfigError::from)?;
    let lengths = [node.payload_max(), node.message_max()];
    let sending = sockets.own.sending();
    let watch = Watch::new(&section.interface, sockets.interface, sending.clone());
    let pool = Pool::new(config.buffers.payloads, node.payload_max());
    let out = Outward::new(sending.clone(), spread, Book::new(section.unicast), seal.clone(), pool);
    let slot = config.buffers.datagram_max;
    let letter = slot.max(membership::wire::DATAGRAM_MAX);
    let waker = Waker::new().map_err(StartError::system("make an event descriptor"))?;
    let members = Members {
        membership,
        post: Post { outbox: Outbox::new(sending.clone()), seal: seal.clone() },
        version: u64::MAX,
        changed_us: None,
        batch: Batch::default(),
    };
    let shared = Shared::new(Parts {
        id,
        address,
        interface: watch.index(),
        core: Core { node, out, changes: Changes::default() },
        ip_groups: IpGroups::new(sockets.joiner),
        ring: Ring::new(config.buffers.ring, slot, rng.next_u64()),
        letters: Ring::new(LETTERS, letter, rng.next_u64()),
        waker,
        config,
    });
    let filter = Filter { id, own: address, seal, injection };
    let drain = Drain {
        group: sockets.group,
        own: sockets.own,
        filter,
        fresh: Ring::new(RECEIVED_MAX, slot, rng.next_u64()),
        late: Ring::new(RECEIVED_MAX, slot, rng.next_u64()),
        letters: Ring::new(LETTERS, letter, rng.next_u64()),
        turns_late: 0,
        dropped: DroppedCounts::default(),
    };
    let (batch, behind) = (Batch::default(), Behind::default());
    Ok((Driver { shared, drain: Some(drain), members, batch, watch, behind, control }, lengths))
}

/// Starts the node's thread, and one that drains if that is wanted.
fn spawn(mut driver: Driver) -> Result<(Option<Waker>, Vec<JoinHandle<()>>), StartError> {
    let shared = &Arc::clone(&driver.shared);
    let (mut threads, mut stop) = (Vec::new(), None);
    if shared.config.node.drain_thread
        && let Some(drain) = driver.drain.take()
    {
        let waker = Waker::new().map_err(StartError::system("make an event descriptor"))?;
        let (of_thread, stopping) = (Arc::clone(shared), waker.clone());
        threads.push(thread(shared, "ricochet-drain", move || drain.run(&of_thread, &stopping))?);
        stop = Some(waker);
    }
    match thread(shared, "ricochet", move || driver.run()) {
        Ok(thread) => threads.push(thread),
        Err(error) => {
            shared.end(None);
            stop.iter().for_each(Waker::wake);
            return Err(error);
        }
    }
    Ok((stop, threads))
}

/// A thread whose end, however it comes, is told to all who use the node.
fn thread(
    shared: &Arc<Shared>,
    name: &str,
    work: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> Result<JoinHandle<()>, StartError> {
    let shared = Arc::clone(shared);
    let body = move || {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        let failed = match result {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(panic) => Some(format!("panic: {}", said(&*panic))),
        };
        if let Some(why) = &failed {
            tracing::error!(why, "a node has failed");
        }
        shared.end(failed);
        shared.waker.wake();
    };
    thread::Builder::new().name(name.to_owned()).spawn(body).map_err(StartError::system("start a thread"))
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without words".to_owned())
}

struct Sockets {
    interface: Interface,
    own: OwnSocket,
    group: Option<GroupSocket>,
    joiner: Option<Joiner>,
}

impl Sockets {
    fn open(config: &Config) -> Result<Self, StartError> {
        let (node, bytes) = (&config.node, config.buffers.socket_bytes);
        // First of all: a mistyped name has neither addresses nor anything else.
        let facts = InterfaceFacts::read(&node.interface)?;
        let ip = node.address.map_or_else(|| first_address(node), Ok)?;
        let interface = Interface::open(&node.interface)
            .map_err(StartError::system(format!("watch {}", node.interface)))?;
        let version = IpVersion::of(ip);
        fits_mtu(config, &facts, version)?;
        let open = |port| {
            OwnSocket::bind(&OwnConfig {
                ttl: node.hops,
                receive_buffer_bytes: bytes,
                send_buffer_bytes: bytes,
                ..OwnConfig::new(SocketAddr::new(ip, port), &node.interface)
            })
        };
        let own = match node.port {
            Some(port) => open(port)?,
            None => match open(PORT) {
                Err(OpenError::PortTaken(_)) => open(0)?,
                opened => opened?,
            },
        };
        if node.unicast {
            return Ok(Self { interface, own, group: None, joiner: None });
        }
        let joiner = Joiner::new(&node.interface, version, node.group_addresses.into())?;
        let group = GroupSocket::bind(node.group_port, version, &node.interface, bytes)?;
        Ok(Self { interface, own, group: Some(group), joiner: Some(joiner) })
    }
}

/// The kernel is told not to fragment: what is longer than the MTU would never leave.
fn fits_mtu(config: &Config, facts: &InterfaceFacts, version: IpVersion) -> Result<(), StartError> {
    let (mtu, datagram_max) = (facts.mtu_bytes as usize, config.buffers.datagram_max);
    let headers = match version {
        IpVersion::V4 => 28,
        IpVersion::V6 => 48,
    };
    if mtu >= datagram_max + headers {
        return Ok(());
    }
    Err(StartError::Mtu {
        interface: facts.name.clone(),
        mtu,
        datagram_max,
        fitting: mtu.saturating_sub(headers),
    })
}

/// The interface's first address of the version that is wanted; of IPv6 none that needs the interface's name with it.
fn first_address(node: &NodeSection) -> Result<IpAddr, StartError> {
    let interface = &node.interface;
    let all = nix::ifaddrs::getifaddrs()
        .map_err(|error| StartError::system("list the addresses of this host")(error.into()))?;
    let mut seen = Vec::new();
    for address in all.filter(|address| address.interface_name == *interface) {
        let Some(storage) = address.address else { continue };
        if let Some(ip) = storage.as_sockaddr_in().map(nix::sys::socket::SockaddrIn::ip) {
            seen.push(IpAddr::V4(ip));
        } else if let Some(ip) = storage.as_sockaddr_in6().map(nix::sys::socket::SockaddrIn6::ip) {
            seen.push(IpAddr::V6(ip));
        }
    }
    let ipv6 = node.is_ipv6();
    let fits = |ip: &&IpAddr| match ip {
        IpAddr::V4(_) => !ipv6,
        IpAddr::V6(ip) => ipv6 && !ip.is_unicast_link_local(),
    };
    seen.iter().find(fits).copied().ok_or_else(|| StartError::NoAddress {
        interface: interface.clone(),
        version: if ipv6 { 6 } else { 4 },
        seen: match seen.as_slice() {
            [] => "none".to_owned(),
            seen => seen.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", "),
        },
    })
}

fn open_membership(config: &Config, me: Me, chance: u64) -> Result<Membership, StartError> {
    let wrong = |error: &dyn std::fmt::Display| StartError::Membership(error.to_string());
    if let Some(path) = &config.membership.file {
        let text =
            fs::read_to_string(path).map_err(StartError::system(format!("read {}", path.display())))?;
        let file = MemberFile::parse(&text).map_err(|error| wrong(&error))?;
        return Static::new(StaticConfig::default(), me, &file, chance)
            .map(Membership::Static)
            .map_err(|error| wrong(&error));
    }
    let mut seeds = Vec::new();
    for seed in &config.membership.seeds {
        let resolved =
            seed.to_socket_addrs().map_err(|error| StartError::Seed { seed: seed.clone(), error })?;
        // A name may have addresses of both versions; the socket has one.
        seeds.extend(resolved.filter(|address| address.is_ipv4() == me.address.is_ipv4()));
    }
    Gossip::new(GossipConfig::lan(), me, &seeds, chance)
        .map(Membership::Gossip)
        .map_err(|error| wrong(&error))
}

fn randomness(given: Option<u64>) -> Result<ChaCha8Rng, StartError> {
    if let Some(seed) = given {
        return Ok(ChaCha8Rng::seed_from_u64(seed));
    }
    let mut seed = [0; 32];
    SystemRandom::new().fill(&mut seed).map_err(|_| {
        StartError::system("draw random numbers")(io::Error::other(
            "the operating system's random source failed",
        ))
    })?;
    Ok(ChaCha8Rng::from_seed(seed))
}
