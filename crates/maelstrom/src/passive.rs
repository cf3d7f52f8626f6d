//! The passive gateway: reads copies of the traffic, sends repairs beside it, injects what comes back.
//!
//! One thread, one loop ([`Passive::run`]), in fixed order:
//! 1. wait until something can be read or a timer is due,
//! 2. take datagrams off the repair channel, unread ([`Passive::collect`]),
//! 3. drain the tap: every packet that arrived before those datagrams is in it ([`Passive::drain_tap`]); where it cannot
//!    be drained, or has missed something, recovery pauses ([`Passive::look_for_gap`]),
//! 4. decode the datagrams ([`Passive::decode`]),
//! 5. timers ([`Passive::timers`]), then all output ([`flush`]), then signals and status requests.
//!
//! The order of 2 and 3 matters: a repair must not be looked at before the packets that came ahead of it, or they
//! would be taken for lost. No step blocks, each has a budget, and no decision on the protocol is taken here.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use maelstrom_core::outbox::Queue;
use maelstrom_core::{Gateway, Outbox};
use netio::poll::{Interest, Poller};
use netio::segment;
use netio::signals::{Signal, Signals};
use netio::tap::{Captured, Direction};
use netio::tun::Tun;
use netio::udp::{self, RepairSocket};
use nix::time::{ClockId, clock_gettime};
use tracing::{debug, info, warn};

use crate::config::{self, GatewayConfig};
use crate::control::Control;
use crate::error::StartError;
use crate::ports::{Ports, core_config};
use crate::status::{self, GatewayStatus, PeerStatus, Status};

/// Captured packets, each up to a whole super-packet, taken off the tap at a time.
const CAPTURES_MAX: usize = 16;
/// Wire packets taken off the tap in one round.
const PACKETS_MAX: usize = 2048;
/// Rounds that repairs wait for a tap that is behind; then they are read all the same, for Hellos and reports among them,
/// and recovery pauses.
const BEHIND_MAX: u32 = 8;
/// How often the tap is asked whether it lost captures.
const GAP_LOOK_US: u64 = 2_000;
/// The longest wait, so that the loop looks around now and then whatever happens.
const WAIT_MAX: Duration = Duration::from_millis(200);

const TAP: u64 = 1;
const SOCKET: u64 = 2;
const SIGNALS: u64 = 3;
const CONTROL: u64 = 4;

/// Counts of the driver: what the core cannot see.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DriverCounts {
    /// Captured packets that left and could not be cut into what is on the wire: they are not protected.
    pub(crate) uncut_outgoing: u64,
    /// The same of those that arrived: what came in them is not known.
    pub(crate) uncut_incoming: u64,
    /// Times that recovery paused because the tap was not to be relied on.
    pub(crate) pauses: u64,
    /// Datagrams on the repair channel that came while the inbox was full.
    pub(crate) inbox_full: u64,
    /// Repairs that the socket did not take.
    pub(crate) unsent: u64,
    /// Recovered packets that the kernel did not take.
    pub(crate) uninjected: u64,
    /// Files with mistakes that a reload refused.
    pub(crate) reloads_refused: u64,
}

impl DriverCounts {
    /// Counts a capture that could not be cut. True if packets were in it that may be named by repairs: a single packet
    /// that makes no sense is none of them, for the kernel takes it no more than we do.
    fn uncut(&mut self, captured: &Captured<'_>) -> bool {
        match captured.direction {
            Direction::Outgoing => self.uncut_outgoing += 1,
            Direction::Incoming => self.uncut_incoming += 1,
        }
        captured.direction == Direction::Incoming && captured.offload.is_super()
    }
}

/// What the kernel still holds of the repair channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    /// All that had come when we looked is in the inbox, or decoded.
    Drained,
    /// More waits.
    More,
    /// We could not look.
    Unknown,
}

/// A running passive gateway.
pub struct Passive {
    path: PathBuf,
    config: GatewayConfig,
    gateway: Gateway,
    ports: Ports,
    control: Control,
    signals: Signals,
    poller: Poller,
    out: Outbox,
    /// Datagrams taken off the repair channel, not decoded yet.
    inbox: Queue<SocketAddr>,
    /// One wire packet, cut from a captured super-packet.
    scratch: Box<[u8]>,
    counts: DriverCounts,
    started_us: u64,
    now_us: u64,
    channel: Channel,
    /// Captures that the tap had lost at the last look.
    dropped: u64,
    next_gap_look_us: u64,
    /// For how many rounds the tap had more than its budget.
    behind: u32,
    /// Recovery pauses until tap and repair channel are drained.
    paused: bool,
    stopping: bool,
}

impl Passive {
    /// Opens everything that the configuration at `path` names; nothing of the machine is changed but for a TUN
    /// device that goes away with the process.
    ///
    /// # Errors
    /// What could not be opened, and what to do about it.
    pub fn start(path: &Path, config: GatewayConfig) -> Result<Self, StartError> {
        let signals = Signals::new().map_err(|error| StartError::new("watch for signals", error))?;
        let ports = Ports::open(&config)?;
        let core = core_config(&config)?;
        let gateway = Gateway::new(core, seed()?).map_err(StartError::Core)?;
        let control = Control::bind(&config.gateway.control)?;
        let poller = Poller::new().map_err(|error| StartError::new("make an epoll set", error))?;
        let out = gateway.outbox();
        let passive = Self {
            path: path.to_owned(),
            inbox: Queue::new(udp::RECEIVED_MAX, udp::RECEIVED_BYTES_MAX),
            scratch: vec![0; 1 << 16].into_boxed_slice(),
            counts: DriverCounts::default(),
            started_us: clock_us(),
            now_us: clock_us(),
            channel: Channel::Unknown,
            dropped: 0,
            next_gap_look_us: 0,
            behind: 0,
            paused: false,
            stopping: false,
            config,
            gateway,
            ports,
            control,
            signals,
            poller,
            out,
        };
        passive.watch_all().map_err(|error| StartError::new("watch the ports", error))?;
        info!(wan = passive.config.gateway.wan, tap = passive.ports.tap.kind().as_str(), "protecting");
        Ok(passive)
    }

    fn watch_all(&self) -> io::Result<()> {
        self.poller.add(&self.ports.tap, TAP, Interest::Readable)?;
        self.poller.add(&self.ports.socket, SOCKET, Interest::Readable)?;
        self.poller.add(&self.signals, SIGNALS, Interest::Readable)?;
        self.poller.add(&self.control, CONTROL, Interest::Readable)
    }

    /// Runs until a signal asks to stop.
    ///
    /// # Errors
    /// When the WAN interface or a descriptor is gone for good.
    pub fn run(&mut self) -> io::Result<()> {
        while !self.stopping {
            self.wait()?;
            self.collect();
            // Not before: a packet that comes after this moment came behind the datagrams.
            self.now_us = clock_us();
            self.drain_tap()?;
            self.look_for_gap();
            self.decode();
            self.timers();
            let Ports { socket, tun, .. } = &mut self.ports;
            flush(&mut self.out, &self.gateway, socket, tun, &mut self.counts);
            self.handle_signals()?;
            self.answer_status();
        }
        info!("stopping");
        Ok(())
    }

    fn wait(&mut self) -> io::Result<()> {
        let until = match self.gateway.poll_timeout() {
            _ if self.behind > 0 || self.channel == Channel::More => Duration::ZERO,
            Some(due_us) => Duration::from_micros(due_us.saturating_sub(clock_us())).min(WAIT_MAX),
            None => WAIT_MAX,
        };
        // Which of them is ready does not matter: looking at each costs less than keeping book.
        self.poller.wait(Some(until))?.for_each(drop);
        Ok(())
    }

    /// Step 2: the kernel's datagrams into the inbox, unread.
    fn collect(&mut self) {
        // Those of the last round still wait for the tap; the kernel keeps what comes.
        if !self.inbox.is_empty() {
            self.channel = Channel::More;
            return;
        }
        let (inbox, counts) = (&mut self.inbox, &mut self.counts);
        let received = self.ports.socket.recv(|from, datagram| match inbox.reserve(datagram.len()) {
            Some(room) => {
                room.copy_from_slice(datagram);
                inbox.commit(from, datagram.len());
            }
            None => counts.inbox_full += 1,
        });
        self.channel = match received {
            Ok(true) => Channel::More,
            Ok(false) => Channel::Drained,
            Err(error) => {
                debug!(%error, "receiving repairs");
                Channel::Unknown
            }
        };
    }

    /// Step 3: all that the tap has captured so far, cut into what is on the wire.
    fn drain_tap(&mut self) -> io::Result<()> {
        let Self { gateway, ports, out, scratch, counts, now_us, .. } = self;
        let Ports { tap, socket, tun, .. } = ports;
        let (mut packets, mut more, mut unseen) = (0, true, false);
        while more && packets < PACKETS_MAX {
            let drained = tap.drain(CAPTURES_MAX, |captured| {
                let cut = segment::cut(captured.packet, &captured.offload, scratch, |packet| match captured
                    .direction
                {
                    Direction::Outgoing => gateway.handle_outgoing(*now_us, packet, out),
                    Direction::Incoming => gateway.handle_incoming(*now_us, packet, out),
                });
                // Every capture counts, so that the round ends whatever they are.
                packets += cut.unwrap_or(0).max(1);
                if cut.is_err() {
                    unseen |= counts.uncut(&captured);
                }
                if out.datagrams.is_nearly_full() || out.recovered.is_nearly_full() {
                    flush(out, gateway, socket, tun, counts);
                }
            })?;
            flush(out, gateway, socket, tun, counts);
            more = drained.more;
        }
        if more || self.behind > 0 {
            // A tap that is behind, or was, is the one that loses captures.
            self.next_gap_look_us = 0;
        }
        self.behind = if more { self.behind + 1 } else { 0 };
        if unseen {
            self.pause();
        }
        Ok(())
    }

    /// Whether packets may be here that the tap has not shown: those that it lost, asked for at most every
    /// [`GAP_LOOK_US`], and those that are still in it when repairs can wait no longer.
    fn look_for_gap(&mut self) {
        if self.behind >= BEHIND_MAX {
            self.pause();
        }
        if self.now_us < self.next_gap_look_us {
            return;
        }
        self.next_gap_look_us = self.now_us + GAP_LOOK_US;
        let dropped = self.ports.tap.dropped();
        if dropped != self.dropped {
            self.dropped = dropped;
            self.pause();
        }
    }

    /// From now on repairs bring nothing back, until tap and repair channel have been drained.
    fn pause(&mut self) {
        self.counts.pauses += u64::from(!self.paused);
        self.paused = true;
        self.gateway.handle_gap();
    }

    /// Step 4: the datagrams, now that what came before them is known.
    fn decode(&mut self) {
        // Packets that these repairs name may still lie in the tap, and would be taken for lost.
        if (1..BEHIND_MAX).contains(&self.behind) {
            return;
        }
        let Self { gateway, ports, out, counts, now_us, inbox, .. } = self;
        let Ports { socket, tun, .. } = ports;
        for (from, datagram) in inbox.iter_mut() {
            gateway.handle_datagram(*now_us, from, datagram, out);
            if self.paused {
                // It may have begun a session, which knows nothing of the pause.
                gateway.handle_gap();
            }
            if out.datagrams.is_nearly_full() || out.recovered.is_nearly_full() {
                flush(out, gateway, socket, tun, counts);
            }
        }
        inbox.clear();
        if self.behind == 0 && self.channel == Channel::Drained {
            self.paused = false;
            gateway.handle_caught_up();
        }
    }

    /// Step 5: whatever is due. Repairs that waited for packets are, and what [`Passive::decode`] says of a tap that is
    /// behind holds for them too. What is due and finds no room in the outbox stays due: the next round comes at once.
    fn timers(&mut self) {
        if !(1..BEHIND_MAX).contains(&self.behind) {
            self.gateway.handle_timeout(self.now_us, &mut self.out);
        }
    }

    fn handle_signals(&mut self) -> io::Result<()> {
        while let Some(signal) = self.signals.next()? {
            match signal {
                Signal::HangUp => self.reload(),
                _ => self.stopping = true,
            }
        }
        Ok(())
    }

    /// Reads the configuration again; a file with mistakes changes nothing.
    fn reload(&mut self) {
        if let Err(reason) = self.try_reload() {
            self.counts.reloads_refused += 1;
            warn!("reload refused, running on with what stands: {reason}");
        } else {
            info!("reloaded");
        }
    }

    fn try_reload(&mut self) -> Result<(), String> {
        let loaded = config::load(&self.path).map_err(|report| report.to_string())?;
        let config = loaded.config;
        // New ports are opened before anything old is given up.
        let replaced = self.ports.reopen(&self.config, &config).map_err(|error| error.to_string())?;
        let control = match config.gateway.control == self.config.gateway.control {
            true => None,
            false => Some(Control::bind(&config.gateway.control).map_err(|error| error.to_string())?),
        };
        let core = core_config(&config).map_err(|error| error.to_string())?;
        self.gateway.reconfigure(core).map_err(|error| error.to_string())?;
        self.ports.take(replaced);
        self.dropped = self.ports.tap.dropped();
        if let Some(control) = control {
            self.control = control;
        }
        self.out = self.gateway.outbox();
        self.config = config;
        self.watch_again().map_err(|error| error.to_string())
    }

    /// A new epoll set for what may be new ports.
    fn watch_again(&mut self) -> io::Result<()> {
        self.poller = Poller::new()?;
        self.watch_all()
    }

    fn answer_status(&mut self) {
        let Self { control, gateway, ports, config, counts, started_us, now_us, .. } = self;
        control.answer(|| snapshot(gateway, ports, config, counts, (*started_us, *now_us)));
    }
}

/// All that the core wants sent.
fn flush(
    out: &mut Outbox,
    gateway: &Gateway,
    socket: &mut RepairSocket,
    tun: &Tun,
    counts: &mut DriverCounts,
) {
    for ((), packet) in out.recovered.iter() {
        if !tun.send(packet).unwrap_or(false) {
            counts.uninjected += 1;
        }
    }
    out.recovered.clear();
    let peers = &gateway.config().peers;
    counts.unsent +=
        socket.send(out.datagrams.iter().map(|(peer, datagram)| (peers[peer].address, datagram)));
    out.datagrams.clear();
}

fn snapshot(
    gateway: &Gateway,
    ports: &Ports,
    config: &GatewayConfig,
    driver: &DriverCounts,
    (started_us, now_us): (u64, u64),
) -> Status {
    let names = config.peers.iter().map(|peer| peer.name.clone());
    let counters = [
        ("outgoing captures not cut", driver.uncut_outgoing),
        ("incoming captures not cut", driver.uncut_incoming),
        ("pauses of recovery", driver.pauses),
        ("captures dropped by the tap", ports.tap.dropped()),
        ("datagrams received while the inbox was full", driver.inbox_full),
        ("datagrams the socket did not take", driver.unsent),
        ("recovered packets the kernel did not take", driver.uninjected),
        ("reloads refused", driver.reloads_refused),
    ];
    Status {
        gateway: GatewayStatus {
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_s: now_us.saturating_sub(started_us) / 1_000_000,
            mode: "passive".into(),
            wan: config.gateway.wan.clone(),
            tap: ports.tap.kind().to_string(),
            pid: std::process::id(),
        },
        peers: gateway.peers().zip(names).map(|(peer, name)| PeerStatus::of(name, &peer, now_us)).collect(),
        not_protected: status::counts(gateway.unprotected().iter()),
        rejected: status::counts(gateway.rejected().iter()),
        counters: counters.map(|(reason, count)| (reason.to_owned(), count)).into(),
        memory_bytes: gateway.memory_bytes() as u64,
    }
}

/// The monotonic clock, the same that the tap stamps captures with, in microseconds.
fn clock_us() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has a monotonic clock");
    Duration::from(now).as_micros() as u64
}

/// 32 bytes from the kernel's random source.
fn seed() -> Result<[u8; 32], StartError> {
    use ring::rand::{SecureRandom, SystemRandom};
    let mut seed = [0; 32];
    let filled = SystemRandom::new().fill(&mut seed);
    filled.map_err(|_| StartError::new("read random bytes", io::Error::other("the kernel gave none")))?;
    Ok(seed)
}
