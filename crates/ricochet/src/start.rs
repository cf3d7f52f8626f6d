//! Starts a node from its settings: opens the sockets, creates membership and core, starts the threads.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use membership::Me;
use netio::interface::Interface;
use netio::multicast::{
    GroupSocket, InterfaceFacts, IpVersion, Joiner, OpenError, Outbox, OwnConfig, OwnSocket, RECEIVED_MAX,
};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use ricochet_core::{
    FlowConfig, Groups, Node as CoreNode, NodeConfig, NodeId, Outgoing as CoreOutgoing, View,
};
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::addresses::{GroupAddresses, NodeAddresses};
use crate::clock;
use crate::config::{BuffersSection, Config, NodeSection, PORT};
use crate::control::StatusServer;
use crate::course::Course;
use crate::drain::{Drain, DrainState};
use crate::driver::{Batches, Driver, GreetingsDriver, MembershipDriver, MembershipOutput, NamesDriver};
use crate::error::StartError;
use crate::filter::{DroppedCounts, Filter, Injection};
use crate::greetings::Greetings;
use crate::ip_groups::IpGroups;
use crate::key::{ClusterKey, KeyRing, Seal};
use crate::marks::Marks;
use crate::news_log::LossLog;
use crate::node::{Limits, Node};
use crate::outgoing::Outgoing;
use crate::outward::Outward;
use crate::pool::Pool;
use crate::rekey::KeyFile;
use crate::ring::Ring;
use crate::shared::{Changes, Core, Parts, Shared};
use crate::sightings::Sample;
use crate::slow_readers::SlowReaders;
use crate::sources::Source;
use crate::transmitter::Transmitter;
use crate::view::MakeView;
use crate::wake::Waker;
use crate::watch::Watch;

/// Capacity of the ring of the membership's datagrams.
const MEMBERSHIP_RING: usize = 512;

/// Capacity of the rings of repairs and of requests, which a node can do without.
const REPAIRS_RING: usize = 1_024;

/// Settings of a node to be started.
pub(crate) struct Settings {
    pub(crate) config: Config,
    /// Cluster keys, instead of those in the configured file.
    pub(crate) keys: Vec<ClusterKey>,
    pub(crate) injection: Option<Injection>,
    /// Configuration of the core, instead of the one that follows from `config`.
    pub(crate) core: Option<NodeConfig>,
    /// The application's provider of membership.
    pub(crate) view: Option<MakeView>,
}

/// Starts a node.
pub(crate) fn start(settings: Settings) -> Result<Node, StartError> {
    let (driver, limits) = prepare(settings)?;
    let shared = Arc::clone(&driver.shared);
    let (stop, threads) = spawn(driver)?;
    Ok(Node::new(shared, limits, stop, threads))
}

/// Returns the driver of a node whose threads are not started, and the node's limits.
pub(crate) fn prepare(settings: Settings) -> Result<(Driver, Limits), StartError> {
    let Settings { config, keys: given, injection, core, view } = settings;
    config.check()?;
    let forks = netio::fork::watch().map_err(StartError::system("notice forks of this process"))?;
    let (keys, key_file) = read_keys(&config, &given)?;
    let life = clock::since_1970_us();
    let mut rng = new_rng(config.node.randomness)?;
    let id = NodeId((rng.next_u64() >> 32) as u32);
    let sockets = Sockets::open(&config)?;
    let address = sockets.own.local_address();
    let seal = keys.as_ref().map(|keys| Seal::new(Arc::clone(keys), id, life, address));
    let waker = Waker::new().map_err(StartError::system("create an event descriptor"))?;
    let source = Source::open(&config, Me { id, address, life }, view, &waker, rng.next_u64())?;
    let control = config.node.control.as_deref().map(StatusServer::bind).transpose()?;

    let window = sockets.window(&config.buffers);
    let node = new_core(&config, config.core(id, keys.is_some()), core, window, rng.next_u64())?;
    // Times count from the node's start, so that a wall clock that is set later changes none of them.
    let epoch_us = clock::since_1970_us().wrapping_sub(clock::now_us());
    let outgoing = config.flow.outgoing(&config.buffers, epoch_us, node.outgoing_config());
    let limits = Limits { payload_max: outgoing.single_max(), message_max: node.message_max() };
    let outgoing = Outgoing::new(CoreOutgoing::new(outgoing));
    let sending = sockets.own.sending();
    let watch = Watch::new(&config.node.interface, sockets.interface, sending.clone());
    let pool = Pool::new(config.buffers.payloads, node.payload_max());
    let addresses = NodeAddresses::new(config.node.unicast);
    let marks = Marks::new(&config.node.group_dscp);
    let out = Outward::new((id, address), group_addresses(&config.node), addresses, marks, pool);
    let transmitter = Transmitter::new(sending.clone(), seal.clone());
    let slot = config.buffers.datagram_max;
    let membership_slot = slot.max(membership::wire::DATAGRAM_MAX);
    let output = MembershipOutput { outbox: Outbox::new(sending.clone()), seal: seal.clone() };
    let membership = MembershipDriver::new(source.provider, output);
    let shared = Shared::new(Parts {
        id,
        address,
        interface: watch.index(),
        forks,
        core: Core { node, out, changes: Changes::default() },
        outgoing,
        transmitter,
        ip_groups: IpGroups::new(sockets.joiner),
        // The reserve takes one read of each socket.
        ring: Ring::new(config.buffers.ring, slot, rng.next_u64()).with_reserve(2 * RECEIVED_MAX),
        repairs: Ring::new(REPAIRS_RING, slot, rng.next_u64()),
        requests: Ring::new(REPAIRS_RING, slot, rng.next_u64()),
        membership_ring: Ring::new(MEMBERSHIP_RING, membership_slot, rng.next_u64()),
        keys,
        waker,
        first_request: rng.next_u64(),
        registry: source.registry,
        config,
    });
    let filter = Filter { id, own: address, seal, injection };
    let drain = new_drain(sockets.own, sockets.group, filter, (slot, membership_slot), &mut rng);
    let group_addresses = group_addresses(&shared.config.node);
    let greetings = Greetings::new(id, group_addresses.settings(&shared.config));
    let greetings = GreetingsDriver::new(greetings, group_addresses);
    let driver = Driver {
        shared,
        drain: Some(drain),
        membership,
        batches: Batches::default(),
        greetings,
        names: NamesDriver::default(),
        watch,
        key_file,
        member_file: source.file,
        slow_readers: SlowReaders::default(),
        loss_log: LossLog::default(),
        course: Course::default(),
        control,
    };
    Ok((driver, limits))
}

/// Creates the receiving side, whose slots have `slot` bytes, and those of the membership `membership_slot`.
fn new_drain(
    own: OwnSocket,
    group: Option<GroupSocket>,
    filter: Filter,
    (slot, membership_slot): (usize, usize),
    rng: &mut ChaCha8Rng,
) -> Drain {
    let mut new_ring = |capacity, slot| Ring::new(capacity, slot, rng.next_u64());
    Drain {
        group,
        own,
        filter,
        fresh: new_ring(RECEIVED_MAX, slot),
        deferred: new_ring(RECEIVED_MAX, slot),
        repairs: new_ring(RECEIVED_MAX, slot),
        requests: new_ring(RECEIVED_MAX, slot),
        membership: new_ring(MEMBERSHIP_RING, membership_slot),
        state: DrainState::default(),
        dropped: DroppedCounts::default(),
        sample: Sample::default(),
    }
}

/// Creates the core from the settings, or a measured one. `window` is the number of packets for which the
/// node has room.
fn new_core(
    config: &Config,
    configured: NodeConfig,
    measured: Option<NodeConfig>,
    window: u32,
    random_seed: u64,
) -> Result<CoreNode, StartError> {
    let NodeConfig { id, trailer, .. } = configured;
    // A measured node does what the same one does in virtual time, without flow control.
    let flow = if measured.is_some() { FlowConfig::default() } else { config.flow.core(window) };
    let core = measured.map_or(configured, |core| NodeConfig { id, trailer, ..core });
    let view = View::default();
    let mut node = CoreNode::new(core, Groups::default(), &view, random_seed)
        .map_err(crate::config::ConfigError::from)?;
    node.set_flow(flow, &view).expect("the settings were checked");
    Ok(node)
}

fn group_addresses(node: &NodeSection) -> GroupAddresses {
    GroupAddresses::new(node.groups_base, node.is_ipv6(), node.group_addresses, node.group_port)
}

/// Returns the given cluster keys, or those in the configured file, which is watched then.
fn read_keys(config: &Config, given: &[ClusterKey]) -> Result<(Option<Arc<KeyRing>>, KeyFile), StartError> {
    if !given.is_empty() {
        return Ok((Some(KeyRing::new(given)), KeyFile::default()));
    }
    let Some(file) = &config.key.file else { return Ok((None, KeyFile::default())) };
    // Noted before the file is read, so that no change is overlooked.
    let watched = KeyFile::new(file);
    let keys = ClusterKey::read_all(file).map_err(|error| StartError::Key { file: file.clone(), error })?;
    Ok((Some(KeyRing::new(&keys)), watched))
}

/// Starts the node's thread and, if configured, the draining thread.
fn spawn(mut driver: Driver) -> Result<(Option<Waker>, Vec<JoinHandle<()>>), StartError> {
    let shared = &Arc::clone(&driver.shared);
    let (mut threads, mut stop) = (Vec::new(), None);
    if shared.config.node.drain_thread
        && let Some(drain) = driver.drain.take()
    {
        let waker = Waker::new().map_err(StartError::system("create an event descriptor"))?;
        let (of_thread, stopping) = (Arc::clone(shared), waker.clone());
        threads.push(spawn_thread(shared, "ricochet-drain", move || drain.run(&of_thread, &stopping))?);
        stop = Some(waker);
    }
    match spawn_thread(shared, "ricochet", move || driver.run()) {
        Ok(thread) => threads.push(thread),
        Err(error) => {
            shared.end(None);
            stop.iter().for_each(Waker::wake);
            return Err(error);
        }
    }
    Ok((stop, threads))
}

/// Starts a thread whose end, be it a return, an error or a panic, ends the node.
fn spawn_thread(
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
            Err(panic) => Some(format!("panic: {}", panic_message(&*panic))),
        };
        if let Some(why) = &failed {
            tracing::error!(why, "the node has failed");
        }
        shared.end(failed);
        shared.sleep.waker().wake();
    };
    thread::Builder::new().name(name.to_owned()).spawn(body).map_err(StartError::system("start a thread"))
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".to_owned())
}

struct Sockets {
    interface: Interface,
    own: OwnSocket,
    group: Option<GroupSocket>,
    joiner: Option<Joiner>,
}

impl Sockets {
    /// Returns the number of packets for which the kernel's buffer has room, at most half of those that the
    /// node keeps.
    fn window(&self, buffers: &BuffersSection) -> u32 {
        /// Bytes of the kernel's buffer that a datagram takes beside its own and their rounding.
        const OVERHEAD: usize = 256;
        let granted = match &self.group {
            Some(group) => group.receive_buffer_bytes().min(self.own.receive_buffer_bytes()),
            None => self.own.receive_buffer_bytes(),
        };
        let datagram = (buffers.datagram_max + 384).next_power_of_two() + OVERHEAD;
        let packets = (granted / datagram).min(buffers.packets / 2).max(1);
        u32::try_from(packets).unwrap_or(u32::MAX).min(1 << 20)
    }

    fn open(config: &Config) -> Result<Self, StartError> {
        let (node, bytes) = (&config.node, config.buffers.socket_bytes);
        // First, so that a mistyped interface name is reported as such, and not as a missing address.
        let facts = InterfaceFacts::read(&node.interface)?;
        let ip = node.address.map_or_else(|| first_address(node), Ok)?;
        let interface = Interface::open(&node.interface)
            .map_err(StartError::system(format!("watch {}", node.interface)))?;
        let version = IpVersion::of(ip);
        check_mtu(config, &facts, version)?;
        let open = |port| {
            OwnSocket::bind(&OwnConfig {
                ttl: node.hops,
                tos: node.dscp << 2,
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

/// Checks that the longest datagram fits the MTU: the sockets forbid fragmentation, so
/// the kernel refuses longer ones.
fn check_mtu(config: &Config, facts: &InterfaceFacts, version: IpVersion) -> Result<(), StartError> {
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

/// Returns the interface's first address of the configured IP version, IPv6 link-local addresses excepted.
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

/// Returns a generator with the given random seed, or one from the operating system.
fn new_rng(given: Option<u64>) -> Result<ChaCha8Rng, StartError> {
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
