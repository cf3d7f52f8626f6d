//! The running gateway: reads copies of the traffic, sends repairs beside it, and injects recovered packets.
//! To peers in tunnel mode it carries the packets themselves (`tunnel.rs`).
//!
//! One thread runs one loop ([`Passive::run`]) in a fixed order:
//! 1. wait for input or a timer, or, at a high rate, for the next tick ([`Passive::wait`]); if the process
//!    stood still, discard what is old (`afresh.rs`),
//! 2. move datagrams from the repair channel to the inbox, without decoding them ([`Passive::collect`]),
//! 3. drain the taps, which hold every packet that arrived before those datagrams ([`Passive::drain_taps`]);
//!    if one has missed packets, or is too far behind, recovery pauses there (`taps.rs`); drain the
//!    device of the tunnel (`tunnel.rs`) and the LANs of IP groups (`groups.rs`),
//! 4. decode the datagrams ([`Passive::decode`]), follow peers that have moved (`names.rs`), and take or
//!    leave parts as a member of a rack (`rack.rs`),
//! 5. adapt the share of flows that is protected (`overload.rs`) and the tick (`tick.rs`), handle timers
//!    ([`Passive::handle_timeout`]), and send all output ([`Engine::flush_due`]),
//! 6. at intervals: check the interfaces (`interfaces.rs`, `doors.rs`), the path's MTU (`path_mtu.rs`) and
//!    packets of other networks (`strangers.rs`), limit TCP segments (`segments.rs`), log changes
//!    (`watch.rs`), compare networks with the peers (`agreement.rs`), and handle signals (`reload.rs`),
//!    status requests (`snapshot.rs`), captures (`capture`) and upgrades (`upgrade`).
//!
//! The order of 2 and 3 matters: if a repair were decoded before the packets that arrived ahead of it, they
//! would count as lost. While a tap is behind, a datagram waits until the tap has shown a packet that was
//! captured after the datagram was read. No step blocks, each has a budget, and none takes a decision on the
//! protocol. Questions that may wait for locks of the kernel are errands of another thread (`errands.rs`).

use std::io;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::time::Duration;

use daemon::signals::{Signal, Signals};
use daemon::supervisor::Supervisor;
use daemon::watchdog::Watchdog;
use netio::poll::{Interest, Poller, lower_priority, precise_timeouts};
use netio::tap::Tap;
use netio::udp::RepairSocket;
use nix::time::{ClockId, clock_gettime};
use tracing::{debug, info};

use crate::agreement::Agreement;
use crate::cached::CacheSocket;
use crate::config::GatewayConfig;
use crate::device_mtu::DeviceMtu;
use crate::doors::{Door, keep};
use crate::engine::Engine;
use crate::errands::Errands;
use crate::error::StartError;
use crate::exporter::Exporter;
use crate::inbox::Inbox;
use crate::lag::Lag;
use crate::losses::LossSocket;
use crate::mtus::Mtus;
use crate::names::Names;
use crate::overload::Overload;
use crate::ports::Ports;
use crate::pulse::boot_us;
use crate::rack::Racked;
use crate::routes::RouteWatch;
use crate::segments::Segments;
use crate::split::Split;
use crate::strangers::Strangers;
use crate::tick::Tick;
use crate::tunnel::Tunnel;
use crate::turns::Turns;
use crate::upgrade::Upgrade;
use crate::watch::Watch;
use daemon::control::Control;

/// Longest wait, so that the loop checks the interfaces also when nothing arrives.
const WAIT_MAX: Duration = Duration::from_millis(200);
/// Time without a turn after which the loop hangs, unless the service manager allows less.
const HUNG: Duration = Duration::from_secs(10);
/// Maximum number of reads of the repair channel in one round.
const READS_MAX: usize = 64;
/// Time for which one round decodes datagrams. Where more is lost than repairs bring back, each of them costs
/// the sum of a window, and the tap must not wait for that.
const DECODING_MAX_US: u64 = 10_000;
/// Number of datagrams between two looks at the clock.
const DECODED_AT_ONCE: u64 = 16;

pub(crate) const TAP: u64 = 1;
pub(crate) const SOCKET: u64 = 2;
pub(crate) const SIGNALS: u64 = 3;
pub(crate) const CONTROL: u64 = 4;
pub(crate) const TUNNEL: u64 = 5;
const RACK: u64 = 7;
pub(crate) const GROUPS: u64 = 8;

/// State of the repair channel in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    /// All datagrams that had arrived are in the inbox, or decoded.
    Drained,
    /// More datagrams wait.
    More,
    /// The socket could not be read.
    Unknown,
}

/// A running gateway.
pub struct Passive {
    pub(crate) path: PathBuf,
    pub(crate) config: GatewayConfig,
    pub(crate) engine: Engine,
    pub(crate) mtus: Mtus,
    pub(crate) device_mtu: DeviceMtu,
    pub(crate) ports: Ports,
    pub(crate) control: Control,
    pub(crate) losses: LossSocket,
    pub(crate) cache: CacheSocket,
    pub(crate) exporter: Exporter,
    pub(crate) signals: Signals,
    pub(crate) poller: Poller,
    /// Datagrams of the repair channel that are not decoded yet.
    pub(crate) inbox: Inbox,
    pub(crate) started_us: u64,
    pub(crate) channel: Channel,
    pub(crate) turns: Turns,
    pub(crate) tick: Tick,
    pub(crate) overload: Overload,
    pub(crate) next_gap_check_us: u64,
    /// Whether the device of the tunnel holds more than one round takes.
    pub(crate) fills_tunnel: bool,
    /// Lag of repairs behind the packets that they name.
    pub(crate) lag: Lag,
    pub(crate) agreement: Agreement,
    pub(crate) names: Names,
    /// Number of times that peers' own datagrams have shown another address, as far as it is known here.
    pub(crate) moves: u64,
    pub(crate) supervisor: Supervisor,
    pub(crate) next_interface_check_us: u64,
    pub(crate) next_reopening_us: u64,
    pub(crate) routes: RouteWatch,
    /// Work that may wait for locks of the kernel.
    pub(crate) errands: Errands,
    pub(crate) next_path_mtu_us: u64,
    pub(crate) next_door_check_us: u64,
    pub(crate) next_group_check_us: u64,
    pub(crate) segments: Segments,
    pub(crate) strangers: Strangers,
    /// Connections that end here, on a thread of their own.
    pub(crate) split: Split,
    /// Membership of a rack, if the configuration names one.
    pub(crate) rack: Option<Racked>,
    /// Observes the peers, and logs what changes.
    pub(crate) watch: Watch,
    pub(crate) upgrade: Upgrade,
    pub(crate) stopping: bool,
    /// Whether another process starts in place of this one.
    pub(crate) restarts: bool,
}

impl Passive {
    /// Runs until a signal requests a stop.
    ///
    /// # Errors
    /// The kernel's reason if waiting for input fails. A deleted interface is no such error.
    pub fn run(&mut self) -> io::Result<()> {
        // Repairs wait for tens of microseconds, and the kernel's default timer slack is as long.
        precise_timeouts()?;
        let limit = self.supervisor.limit().map_or(HUNG, |limit| HUNG.min(limit / 4 * 3));
        let watchdog = Watchdog::start(limit)?;
        self.tell_ready();
        if let Err(error) = lower_priority() {
            debug!(%error, "cannot run below forwarding");
        }
        while !self.stopping {
            self.show_life(&watchdog);
            self.wait()?;
            self.collect();
            // The clock is read after step 2: a packet that arrives later arrived after the datagrams.
            self.engine.now_us = clock_us();
            self.drain_taps();
            self.drain_tunnel();
            self.drain_groups();
            self.check_for_gap();
            self.decode();
            self.follow_moves();
            self.follow_rack();
            self.adapt_share();
            self.adapt_tick();
            self.handle_timeout();
            self.engine.flush_due(clock_us(), &mut self.ports.outlets);
            self.filter_strangers();
            self.watch_interfaces();
            self.watch_routes();
            self.follow_names();
            self.follow_path_mtu();
            self.follow_doors();
            self.follow_groups();
            self.limit_segments();
            self.follow_narrowest_path();
            self.look_at_strangers();
            self.observe();
            self.compare_networks();
            self.handle_signals()?;
            self.answer_status();
            let observer = self.watch.observer();
            self.losses.answer(self.engine.now_us, &self.engine.gateway, &self.config, observer);
            self.cache.answer(self.engine.now_us, &self.engine.gateway, &self.config);
            self.engine.capturing.look(self.engine.now_us, &self.config);
            self.stopping |= self.split.is_drained();
            self.follow_upgrade();
        }
        // After an upgrade, another process has everything.
        if !self.upgrade.is_over() {
            self.stop(&watchdog);
        }
        Ok(())
    }

    /// Takes back what this process has changed on the machine. The kernel may take long for it, which is no
    /// hang.
    fn stop(&mut self, watchdog: &Watchdog) {
        self.fail_upgrade("this process stops");
        info!("stopping");
        self.leave_rack();
        let Self { supervisor, segments, split, .. } = self;
        let mut beat = || show_life(watchdog, supervisor);
        segments.settle(&mut beat);
        split.end(&mut beat);
        if self.restarts {
            self.hand_on_closing(watchdog);
        } else {
            self.open_tunnels(watchdog);
        }
        self.show_life(watchdog);
        // Last, because a disk may hang: nothing else must be left behind then.
        self.losses.close(&self.engine.gateway, &self.config);
    }

    /// Shows the watchdog and the service manager that this thread works.
    pub(crate) fn show_life(&mut self, watchdog: &Watchdog) {
        show_life(watchdog, &mut self.supervisor);
    }

    pub(crate) fn tell_ready(&mut self) {
        self.supervisor.ready(&format!("protecting {}", self.config.wans().join(", ")));
    }

    /// Whether captures or datagrams wait that one round did not take.
    fn is_behind(&self) -> bool {
        self.ports.is_behind() || self.channel == Channel::More || !self.inbox.is_empty()
    }

    fn wait(&mut self) -> io::Result<()> {
        // A silent process is no member any more.
        let beat_us = self.rack.as_ref().filter(|_| !self.ports.outlets.is_silent).map(Racked::due_us);
        let due = [self.engine.gateway.poll_timeout(), self.engine.held_back_until_us(), beat_us];
        let is_behind = self.is_behind();
        let until = match due.into_iter().flatten().min() {
            _ if is_behind || self.fills_tunnel => Duration::ZERO,
            Some(due_us) => Duration::from_micros(due_us.saturating_sub(clock_us())).min(WAIT_MAX),
            None => WAIT_MAX,
        };
        if let Some(stall_us) = self.engine.pulse.beat(boot_us(), until) {
            self.start_afresh(stall_us);
            return Ok(());
        }
        // Every source is read in each round, which costs less than tracking the ready ones.
        if !self.tick.wait(until.is_zero() && is_behind)? {
            self.poller.wait(Some(until))?.for_each(drop);
        }
        if self.channel == Channel::Drained && !until.is_zero() {
            self.lag.on_slept(clock_us());
        }
        if let Some(stall_us) = self.engine.pulse.beat(boot_us(), Duration::ZERO) {
            self.start_afresh(stall_us);
        }
        Ok(())
    }

    /// Step 2: moves the kernel's datagrams to the inbox, without decoding them.
    fn collect(&mut self) {
        self.lag.on_round(self.ports.latest_us());
        if self.ports.outlets.is_silent {
            // Another process reads them.
            self.channel = Channel::Drained;
            return;
        }
        // While this gateway is behind, a round takes long.
        let reads = if self.is_behind() { READS_MAX } else { 1 };
        let before = self.inbox.taken();
        for _ in 0..reads {
            self.channel = self.read_channel();
            if self.channel != Channel::More {
                break;
            }
        }
        self.tick.on_input((self.inbox.taken() - before) as usize);
    }

    fn read_channel(&mut self) -> Channel {
        // A tap that does not tell how far it is shows nothing that they wait for, until it is drained.
        let waits = self.ports.shows_until_us() == 0 && !self.inbox.is_empty();
        if waits || !self.inbox.has_room() {
            // The kernel keeps new ones.
            return Channel::More;
        }
        let (inbox, counts) = (&mut self.inbox, &mut self.engine.counts);
        let received = self.ports.outlets.socket.recv_noted(|received, datagram| {
            if !keep(inbox, 0, received, datagram) {
                counts.inbox_full += 1;
            }
        });
        let more = self.collect_at_doors();
        match received {
            Ok(true) => Channel::More,
            Ok(false) if more => Channel::More,
            Ok(false) => {
                self.lag.on_channel_drained(clock_us(), self.inbox.taken());
                Channel::Drained
            }
            Err(error) => {
                debug!(%error, "cannot receive repairs");
                Channel::Unknown
            }
        }
    }

    /// Step 4: decodes the datagrams, after the packets that arrived before them.
    pub(crate) fn decode(&mut self) {
        self.tell_shown();
        let until_us = self.ports.shows_until_us();
        if until_us == 0 {
            return;
        }
        let paused = self.ports.paused();
        let is_behind = self.channel == Channel::More;
        let senders = self.inbox.sources(until_us).map(|from| from.source.address.ip());
        self.turns.begin(&self.engine.gateway.config().peers, is_behind, senders);
        let (ends_us, mut looks_at) = (clock_us() + DECODING_MAX_US, self.inbox.done() + DECODED_AT_ONCE);
        loop {
            if self.inbox.done() >= looks_at {
                if clock_us() >= ends_us {
                    break;
                }
                looks_at += DECODED_AT_ONCE;
            }
            let next = self.inbox.first().filter(|&(_, read_us, _)| read_us < until_us);
            let Some((from, _, datagram)) = next else { break };
            let Engine { gateway, out, now_us, counts, capturing, .. } = &mut self.engine;
            let address = from.source.address;
            if !self.turns.admits(&gateway.config().peers, address.ip()) {
                counts.beyond_share += 1;
                self.inbox.pop();
                continue;
            }
            let seen = capturing.is_active().then(|| (datagram.to_vec(), *gateway.rejected()));
            gateway.handle_inbound(*now_us, from, datagram, out);
            if let Some((copy, before)) = seen {
                let peers = &gateway.config().peers[..];
                capturing.on_received((address, peers), &copy, &before, gateway.rejected());
            }
            self.inbox.pop();
            if paused != 0 {
                // The datagram may have begun a session, which does not know of the pause.
                let wan_of = &self.ports.outlets.wan_of;
                gateway.handle_gap_of(|peer| paused >> wan_of[peer] & 1 == 1);
            }
            if out.is_nearly_full() {
                self.engine.flush(&mut self.ports.outlets);
            }
        }
        self.lag.on_decoded(self.inbox.done());
        self.end_pauses();
    }

    /// Step 5: handles what is due. Repairs that waited for packets may be due, and these wait for the tap as
    /// well. Work that finds no room in the outbox stays due, and the next round follows at once.
    fn handle_timeout(&mut self) {
        if self.ports.shows_until_us() > 0 {
            let Engine { gateway, out, now_us, .. } = &mut self.engine;
            gateway.handle_timeout(*now_us, out);
        }
    }

    fn handle_signals(&mut self) -> io::Result<()> {
        while let Some(signal) = self.signals.next()? {
            if signal != Signal::HangUp {
                self.restarts = signal == Signal::Restart;
            }
            match signal {
                Signal::HangUp => {
                    self.fail_upgrade("the configuration is reloaded");
                    self.supervisor.reloading(clock_us());
                    self.reload();
                    self.tell_ready();
                }
                // A second one waits for no connection.
                _ if self.split.is_draining() => self.stopping = true,
                _ => {
                    self.supervisor.stopping(self.config.split.drain);
                    self.split.drain();
                }
            }
        }
        Ok(())
    }
}

fn show_life(watchdog: &Watchdog, supervisor: &mut Supervisor) {
    watchdog.turn();
    supervisor.turn(clock_us());
}

/// Creates an epoll set of everything that can wake the loop.
pub(crate) fn watch<'d>(
    taps: impl Iterator<Item = &'d Tap>,
    socket: &RepairSocket,
    doors: impl Iterator<Item = &'d Door>,
    tunnel: Option<&Tunnel>,
    rack: Option<&UdpSocket>,
    signals: &Signals,
    control: &Control,
) -> Result<Poller, StartError> {
    let watch = || {
        let poller = Poller::new()?;
        for tap in taps {
            poller.add(tap, TAP, Interest::Readable)?;
        }
        if let Some(tunnel) = tunnel {
            poller.add(tunnel, TUNNEL, Interest::Readable)?;
        }
        if let Some(rack) = rack {
            poller.add(rack, RACK, Interest::Readable)?;
        }
        poller.add(socket, SOCKET, Interest::Readable)?;
        for socket in doors.filter_map(|door| door.socket.as_ref()) {
            poller.add(socket, SOCKET, Interest::Readable)?;
        }
        poller.add(signals, SIGNALS, Interest::Readable)?;
        poller.add(control, CONTROL, Interest::Readable)?;
        Ok(poller)
    };
    watch().map_err(|error| StartError::new("watch the ports", error))
}

/// Reads the monotonic clock, which also stamps the captures of the tap, in microseconds.
pub(crate) fn clock_us() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has a monotonic clock");
    Duration::from(now).as_micros() as u64
}
