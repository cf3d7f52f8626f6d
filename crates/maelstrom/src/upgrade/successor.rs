//! The process that takes over: what it does beside the other one, and after it.

use std::fs::File;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use maelstrom_core::rack::RackHandover;
use maelstrom_core::{Gateway, PeerHandover};
use netio::poll::{Interest, Poller};
use netio::tap::{Tap, TapKind};
use netio::udp::RepairSocket;
use tracing::{info, warn};

use super::link::Link;
use super::message::{Message, RecordHandover, Session, VERSION};
use crate::config::GatewayConfig;
use crate::engine::{ALL_OUTGOING, Engine};
use crate::error::StartError;
use crate::losses::LossSocket;
use crate::passive::{Passive, clock_us};
use crate::store::Store;
use crate::taps::Wan;
use crate::tunnel;

/// Longest wait for the other process, which kills this one if it waits longer for an answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest time between two looks at the tap.
const LOOK: Duration = Duration::from_millis(5);
/// Time around the hand-over in which both processes may have captured a packet. A packet that is coded twice
/// looks like two of which one was lost; one that nobody codes is only not protected.
const MARGIN_US: u64 = 200;

/// Parts that a process has taken over: the repair socket, the rack with its socket, the time of the
/// hand-over, and the number of sessions.
pub(crate) struct Inheritance {
    pub(crate) socket: RepairSocket,
    pub(crate) rack: Option<(UdpSocket, RackHandover)>,
    /// The device of the tunnel.
    pub(crate) tunnel: Option<OwnedFd>,
    pub(crate) losses: LossSocket,
    pub(crate) former: Former,
}

/// The last message of the other process.
struct Left {
    cut_us: u64,
    peers: Vec<PeerHandover>,
    rack: Option<RackHandover>,
    /// Whether the device of the tunnel came with it.
    tunnel: bool,
}

/// The process that this one has taken over from.
#[derive(Debug)]
pub(crate) struct Former {
    link: Link,
    sessions: usize,
    cut_us: u64,
    /// Whether it knows that this one works.
    is_told: bool,
    /// Whether this one is known to clients and the service manager.
    is_main: bool,
}

impl Inheritance {
    /// Takes over by `link` from the process at its other end. The taps of `wans` have been open for a while,
    /// and `engine` has done nothing yet.
    ///
    /// # Errors
    /// The step that failed.
    pub(crate) fn take(
        mut link: Link,
        config: &GatewayConfig,
        wans: &mut [Wan],
        engine: &mut Engine,
    ) -> Result<Self, StartError> {
        let failed = |error| StartError::new("take over from the present process", error);
        let (listen, wan) = (config.gateway.listen, config.wans().join(", "));
        let rack = config.rack.as_ref().map(|rack| rack.core().mark());
        let tunnel = tunnel::device(config);
        link.send(&Message::Ready { version: VERSION, listen, wan, rack, tunnel }, &[]).map_err(failed)?;
        engine.skips_outgoing_until_us = ALL_OUTGOING;
        let Message::Sessions { peers, held, record } = link.wait(PATIENCE).map_err(failed)? else {
            return Err(failed(io::ErrorKind::InvalidData.into()));
        };
        let losses = continue_losses(&mut link, record, config, &mut engine.gateway);
        if held.is_some() {
            engine.gateway.hold(clock_us(), held);
        }
        engine.gateway.watch_for(clock_us(), &read(peers).map_err(failed)?);
        link.send(&Message::Watching, &[]).map_err(failed)?;
        let Left { cut_us, peers, rack, tunnel } = watch(&mut link, wans, engine).map_err(failed)?;
        // In the reverse order of that in which they were passed.
        let mut passed = || link.take_passed().ok_or_else(|| failed(io::ErrorKind::InvalidData.into()));
        let tunnel = tunnel.then(&mut passed).transpose()?;
        let rack = rack.map(|rack| passed().map(|socket| (UdpSocket::from(socket), rack))).transpose()?;
        let socket = RepairSocket::adopt(passed()?).map_err(failed)?;
        let sessions = engine.gateway.resume(clock_us(), &peers);
        for tap in taps(wans).filter(|tap| tap.kind() != TapKind::Ebpf) {
            // Its captures have no times. All of them are older than this.
            engine.watch_arrivals(tap).map_err(failed)?;
        }
        engine.skips_outgoing_until_us = cut_us + MARGIN_US;
        engine.begin();
        Ok(Self {
            socket,
            rack,
            tunnel,
            losses,
            former: Former { link, sessions, cut_us, is_told: false, is_main: false },
        })
    }
}

/// Continues the record of losses that the other process passes, or that in the file.
fn continue_losses(
    link: &mut Link,
    record: Option<RecordHandover>,
    config: &GatewayConfig,
    gateway: &mut Gateway,
) -> LossSocket {
    let passed = record.and_then(|record| Some((File::from(link.take_passed()?), record.file)));
    LossSocket::of(match passed {
        Some((record, file)) => Store::take_over(record, file.as_deref(), config, gateway, clock_us()),
        // As late as a disk that hangs does no harm: the other process has written it when this one started.
        None => Store::open(config, gateway, clock_us()),
    })
}

/// Watches the packets that arrive, until the other process stops; returns what that one leaves.
#[expect(clippy::disallowed_methods, reason = "not a core: bounds the wait for another process")]
fn watch(link: &mut Link, wans: &mut [Wan], engine: &mut Engine) -> io::Result<Left> {
    let mut poller = Poller::new()?;
    taps(wans).try_for_each(|tap| poller.add(tap, 0, Interest::Readable))?;
    poller.add(&link.as_fd(), 1, Interest::Readable)?;
    let end = std::time::Instant::now() + PATIENCE;
    while std::time::Instant::now() < end {
        match link.poll()? {
            Some(Message::Over { cut_us, peers, rack, tunnel }) => {
                let rack = rack.map(|rack| rack.read().ok_or_else(unreadable)).transpose()?;
                return Ok(Left { cut_us, peers: read(peers)?, rack, tunnel });
            }
            Some(_) => return Err(io::ErrorKind::InvalidData.into()),
            None => {}
        }
        let mut more = false;
        for tap in taps(wans) {
            more |= engine.watch_arrivals(tap)?;
        }
        if !more {
            poller.wait(Some(LOOK))?.for_each(drop);
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

fn taps(wans: &mut [Wan]) -> impl Iterator<Item = &mut Tap> {
    wans.iter_mut().filter_map(|wan| wan.tap.as_mut())
}

fn read(peers: Vec<Session>) -> io::Result<Vec<PeerHandover>> {
    let peers: Option<Vec<_>> = peers.into_iter().map(Session::read).collect();
    peers.ok_or_else(unreadable)
}

fn unreadable() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "expected sessions, saw something else")
}

impl Passive {
    /// Tells the process that this one has taken over from that it works, and takes its place for good when
    /// that one allows it, or has ended.
    pub(super) fn follow_former(&mut self) {
        let Some(former) = &mut self.upgrade.former else { return };
        if !former.is_told {
            former.is_told = true;
            let after_us = clock_us().saturating_sub(former.cut_us);
            let taken = Message::Taken { after_us, sessions: former.sessions };
            info!(
                "took over {} sessions, {after_us} us after the other process had stopped",
                former.sessions
            );
            if let Err(error) = former.link.send(&taken, &[]) {
                warn!("cannot tell the other process that this one works: {error}");
            }
        }
        let has_ended = match former.link.poll() {
            Ok(None) => return,
            Ok(Some(_)) => false,
            Err(_) => true,
        };
        if !std::mem::replace(&mut former.is_main, true) {
            self.become_main();
        }
        if has_ended {
            self.upgrade.former = None;
            self.on_alone();
        }
    }

    /// Takes the sockets of clients, and speaks to the service manager.
    fn become_main(&mut self) {
        let path = &self.config.gateway.control;
        if let Err(error) = self.control.take_place(path) {
            warn!("status requests will not work: cannot take the place of {}: {error}", path.display());
        }
        self.losses.listen(path);
        self.cache.listen(path);
        self.engine.capturing.listen(path);
        self.upgrade.door.listen(path);
        self.supervisor.speak();
        self.tell_ready();
    }

    /// Takes what only one process can have.
    fn on_alone(&mut self) {
        self.exporter.configure(&self.config);
        self.segments.expire();
        for (number, inlet) in self.ports.outlets.inlets.iter_mut().enumerate() {
            let (Some(inlet), wanted) = (inlet, self.config.tun_of(number)) else { continue };
            let present = inlet.tun().name().to_owned();
            if present != wanted
                && let Err(error) = inlet.rename(&wanted)
            {
                warn!("TUN device {present} keeps its name, because it cannot be named {wanted}: {error}");
            }
        }
    }
}
