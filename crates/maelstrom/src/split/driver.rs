//! The loop of split mode, on a thread of its own.
//!
//! Each turn has a fixed order: wait; take new carriers and connections; read carriers; give flows their
//! turns; fill and send carriers; do what is due. Sockets of carriers and hosts report changes only
//! (edge-triggered), so each keeps what the kernel said last. No step blocks, and each has a budget.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use maelstrom_core::split::{CarrierKey, Mux, Pool, Role, SILENCE_US};
use netio::divert::Divert;
use netio::route::Routes;
use netio::transparent::{self, CarrierOptions};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use tracing::{info, warn};

use super::carrier::{Broken, Carrier};
use super::carriers::CARRIERS;
use super::flow::Flow;
use super::late::Late;
use super::plan::{FarSite, Plan};
use super::pressure::Pressure;
use super::report::Counts;
use super::rests::Rest;
use super::site::{Site, Unsplit};
use super::slots::Slots;
use super::spool::Spool;
use crate::passive::clock_us;

/// Interval between attempts to dial.
pub(super) const DIAL_US: u64 = 1_000_000;
/// Time without a frame after which a carrier gets no new connections.
const DOUBT_US: u64 = 3_000_000;
/// Interval between looks at what is due.
pub(super) const TICK_US: u64 = 100_000;
/// Time for which no connection is taken after a flood of first packets was seen.
const FLOOD_US: u64 = 5_000_000;
/// Maximum number of turns of flows in one turn of the loop.
pub(super) const SERVED_MAX: usize = 1_024;
/// Maximum number of events of one wait.
const EVENTS_MAX: usize = 256;

/// Changes that sockets of carriers and hosts report.
const CHANGES: EpollFlags =
    EpollFlags::EPOLLIN.union(EpollFlags::EPOLLOUT).union(EpollFlags::EPOLLRDHUP).union(EpollFlags::EPOLLET);

const WAKE: u64 = 1 << 32;
const DOOR: u64 = 2 << 32;
const LISTENER: u64 = 3 << 32;
pub(super) const CARRIER: u64 = 4 << 32;
pub(super) const FLOW: u64 = 5 << 32;
const QUEUE: u64 = 6 << 32;
pub(super) const REST: u64 = 7 << 32;

/// All state of split mode.
pub(super) struct Driver {
    pub(super) plan: Plan,
    pub(super) keys: Vec<Vec<CarrierKey>>,
    pub(super) options: CarrierOptions,
    epoll: Epoll,
    /// Where far gateways dial.
    pub(super) door: TcpListener,
    pub(super) sites: Vec<Site>,
    pub(super) carriers: Slots<Carrier>,
    pub(super) flows: Slots<Flow>,
    /// Flows by carrier and stream.
    pub(super) by_stream: HashMap<(usize, u32), usize>,
    /// Flows that wait for their turn.
    pub(super) queue: VecDeque<usize>,
    pub(super) routes: Routes,
    pub(super) pool: Pool,
    /// Bytes of hosts that wait on disk, if they may.
    pub(super) spool: Option<Spool>,
    pub(super) counts: Counts,
    next_tick_us: u64,
    pressure: Pressure,
    /// Time until which no connection is taken, and why.
    paused: (u64, Unsplit),
    /// Sockets of connections that have ended, since when; the kernel still has bytes of them for a host.
    pub(super) parting: VecDeque<(u64, TcpStream)>,
    /// Last bytes of connections whose carrier has gone.
    pub(super) rests: Slots<Rest>,
    /// Number of the next look at connections.
    pub(super) look: usize,
    /// Time until which the last connections may end, once the gateway stops.
    pub(super) drained_by_us: Option<u64>,
    /// Connections that have no socket yet, if clients are answered late.
    pub(super) late: Option<Late>,
    // Dropped after the listeners.
    _divert: Option<Divert>,
}

impl Driver {
    /// Opens everything that the plan names. `wake` ends a wait.
    pub(super) fn new(plan: Plan, wake: &impl AsFd) -> io::Result<Self> {
        let step = |what: String| {
            move |error: io::Error| io::Error::new(error.kind(), format!("cannot {what}: {error}"))
        };
        let congestion = usable_congestion(&plan.congestion);
        let options = CarrierOptions { congestion, patience: Duration::from_micros(SILENCE_US) };
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE))?;
        let door = transparent::listen_for_carriers(plan.listen, &options)
            .map_err(step(format!("listen for carriers on {}", plan.listen)))?;
        epoll.add(&door, EpollEvent::new(EpollFlags::EPOLLIN, DOOR))?;
        let sites = plan.sites.iter().map(|site| Site::new([false, true].map(|v6| site.has_version(v6))));
        let sites: Vec<Site> = sites
            .collect::<io::Result<_>>()
            .map_err(step("listen for connections of other machines".to_owned()))?;
        let late = plan.queue().map(|number| Late::open(number, plan.mark())).transpose();
        let late = late
            .map_err(step("take a queue of first packets".to_owned()))
            .map_err(|error| without_late(&error))?;
        if let Some(late) = &late {
            epoll.add(&late.queue, EpollEvent::new(EpollFlags::EPOLLIN, QUEUE))?;
        }
        let spool = plan.spool.as_ref().and_then(|(directory, bytes_max)| open_spool(directory, *bytes_max));
        let divert = if plan.ports.is_empty() {
            None
        } else {
            let ports: Vec<[u16; 2]> = sites.iter().map(|site| site.ports).collect();
            let installed = Divert::install(&plan.table(), &plan.diversion(&ports));
            let what = format!("install the table {} of nftables", plan.table());
            let installed = installed.map_err(step(what));
            let is_late = plan.queue().is_some();
            Some(installed.map_err(|error| if is_late { without_late(&error) } else { error })?)
        };
        Ok(Self {
            keys: keys_of(&plan),
            routes: Routes::open()?,
            pool: Pool::new(plan.buffer, (plan.sites.len() * CARRIERS) as u64),
            spool,
            options,
            epoll,
            door,
            sites,
            carriers: Slots::default(),
            flows: Slots::default(),
            by_stream: HashMap::new(),
            queue: VecDeque::new(),
            counts: Counts::default(),
            next_tick_us: 0,
            pressure: Pressure::default(),
            paused: (0, Unsplit::Flood),
            parting: VecDeque::new(),
            rests: Slots::default(),
            look: 0,
            drained_by_us: None,
            late,
            _divert: divert,
            plan,
        })
    }

    /// Takes a plan with which connections may go on.
    pub(super) fn change(&mut self, plan: Plan) {
        self.keys = keys_of(&plan);
        self.plan = plan;
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Runs one turn.
    pub(super) fn turn(&mut self) -> io::Result<()> {
        self.wait()?;
        let now_us = clock_us();
        self.read_carriers(now_us);
        self.serve_flows();
        self.fill_carriers();
        if now_us >= self.next_tick_us {
            self.next_tick_us = now_us + TICK_US;
            self.handle_timeout(now_us);
        }
        Ok(())
    }

    fn wait(&mut self) -> io::Result<()> {
        let is_busy = !self.queue.is_empty() || self.carriers.iter().any(|(_, carrier)| carrier.has_work());
        let millis = if is_busy { 0 } else { self.next_tick_us.saturating_sub(clock_us()).div_ceil(1_000) };
        let timeout = EpollTimeout::from(millis.min(TICK_US / 1_000) as u16);
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        let count = match self.epoll.wait(&mut events, timeout) {
            Ok(count) => count,
            Err(nix::errno::Errno::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        for event in &events[..count] {
            self.note(event.data(), event.events());
        }
        Ok(())
    }

    /// Takes what the kernel says about one socket.
    fn note(&mut self, token: u64, flags: EpollFlags) {
        let index = (token & 0xffff_ffff) as usize;
        let has_failed = flags.contains(EpollFlags::EPOLLERR);
        let is_readable = has_failed
            || flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLHUP);
        let is_writable = has_failed || flags.intersects(EpollFlags::EPOLLOUT | EpollFlags::EPOLLHUP);
        match token - index as u64 {
            DOOR => self.accept_carriers(),
            QUEUE => self.ask_for_connections(clock_us()),
            LISTENER => self.accept_connections(index / 2, index % 2),
            CARRIER => {
                if let Some(carrier) = self.carriers.get_mut(index) {
                    carrier.is_readable |= is_readable;
                    carrier.is_writable |= is_writable;
                }
            }
            FLOW => {
                if let Some(flow) = self.flows.get_mut(index) {
                    flow.is_readable |= is_readable;
                    flow.is_writable |= is_writable;
                    flow.has_failed |= has_failed;
                    self.enqueue(index);
                }
            }
            REST => self.serve_rest(index),
            _ => {}
        }
    }

    /// Watches a socket for changes.
    pub(super) fn watch(&self, socket: &TcpStream, token: u64) -> io::Result<()> {
        Ok(self.epoll.add(socket, EpollEvent::new(CHANGES, token))?)
    }

    /// Watches a socket that is watched already under another token.
    pub(super) fn watch_again(&self, socket: &TcpStream, token: u64) -> io::Result<()> {
        Ok(self.epoll.modify(socket, &mut EpollEvent::new(CHANGES, token))?)
    }

    /// Watches a socket no longer.
    pub(super) fn ignore(&self, socket: &TcpStream) -> io::Result<()> {
        Ok(self.epoll.delete(socket)?)
    }

    fn handle_timeout(&mut self, now_us: u64) {
        for index in self.carriers.indices() {
            let Some(carrier) = self.carriers.get_mut(index) else { continue };
            let due = carrier.handle_timeout(now_us, &mut self.pool);
            let is_worn = |mux: &Mux| mux.is_worn() && mux.streams() == 0;
            let worn = carrier.mux().is_some_and(is_worn).then_some(Broken::Worn);
            if let Some(reason) = due.err().or(worn) {
                self.end_carrier(index, &reason);
            }
        }
        self.look(now_us);
        self.expire_asked(now_us, false);
        self.evade_floods();
        for site in 0..self.sites.len() {
            self.dial(site, now_us);
            self.follow_site(site, now_us);
        }
    }

    /// Takes no connections for a while if first packets come too fast.
    fn evade_floods(&mut self) {
        if self.pressure.has_risen() && self.sites.iter().any(Site::is_listening) {
            warn!(
                "first packets of connections come too fast: new TCP connections go unsplit for some seconds"
            );
            self.counts.floods += 1;
            self.pause(FLOOD_US, Unsplit::Flood);
        }
    }

    /// Takes no connections for some time.
    pub(super) fn pause(&mut self, us: u64, reason: Unsplit) {
        self.paused = (clock_us() + us, reason);
    }

    /// Takes connections to a site as long as a carrier works and there is room.
    pub(super) fn follow_site(&mut self, site: usize, now_us: u64) {
        let unsplit = self.unsplit(site, now_us);
        let is_up = match unsplit {
            Some(Unsplit::Unwanted | Unsplit::Carrier | Unsplit::FarStops) => false,
            Some(Unsplit::Stops) => self.sites[site].is_told_up,
            _ => true,
        };
        self.tell_state(site, is_up, unsplit);
        self.sites[site].unsplit = unsplit;
        if unsplit.is_some() {
            // Servers have been reached for some clients, whose first packets are taken all the same.
            if !self.late.as_ref().is_some_and(|late| late.awaits(site)) {
                self.sites[site].fall_silent();
            }
            return;
        }
        if self.sites[site].is_listening() {
            return;
        }
        let listening = self.sites[site].listen().and_then(|()| {
            for (v6, listener) in self.sites[site].listeners.iter().enumerate() {
                if let Some(listener) = listener {
                    let token = LISTENER | (2 * site + v6) as u64;
                    self.epoll.add(listener, EpollEvent::new(EpollFlags::EPOLLIN, token))?;
                }
            }
            Ok(())
        });
        if let Err(error) = listening {
            self.sites[site].fall_silent();
            self.sites[site].unsplit = Some(Unsplit::Listener);
            self.tell(site, &format!("cannot listen for connections: {error}"));
        }
    }

    /// Why new connections to a site go unsplit.
    fn unsplit(&self, site: usize, now_us: u64) -> Option<Unsplit> {
        let muxes = self.carriers.iter().filter_map(|(_, carrier)| {
            carrier.mux().filter(|_| carrier.site == site && carrier.role == Role::Dialer)
        });
        let (mut is_sound_one, mut is_far_leaving) = (false, false);
        for mux in muxes {
            is_sound_one |= is_sound(mux, now_us);
            is_far_leaving |= mux.is_far_leaving();
        }
        if self.plan.ports.is_empty() {
            Some(Unsplit::Unwanted)
        } else if self.is_draining() {
            Some(Unsplit::Stops)
        } else if !is_sound_one {
            Some(if is_far_leaving { Unsplit::FarStops } else { Unsplit::Carrier })
        } else if self.is_full() {
            Some(Unsplit::Full)
        } else if now_us < self.sites[site].far_full_until_us {
            Some(Unsplit::FarFull)
        } else {
            Some(self.paused.1).filter(|_| now_us < self.paused.0)
        }
    }

    fn tell_state(&mut self, site: usize, is_up: bool, unsplit: Option<Unsplit>) {
        let state = &mut self.sites[site];
        if std::mem::replace(&mut state.is_told_up, is_up) == is_up {
            return;
        }
        let peer = &self.plan.sites[site].label;
        if is_up {
            state.told = None;
            info!(peer, "TCP connections are split: what this gateway has acknowledged is lost if it dies");
        } else if let Some(reason) = unsplit {
            warn!(peer, "new TCP connections go unsplit: {reason}");
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.pool.is_full()
    }
}

fn keys_of(plan: &Plan) -> Vec<Vec<CarrierKey>> {
    plan.sites.iter().map(FarSite::carrier_keys).collect()
}

/// Whether a carrier may get new connections.
pub(super) fn is_sound(mux: &Mux, now_us: u64) -> bool {
    mux.is_heard() && !mux.is_far_leaving() && now_us < mux.heard_us() + DOUBT_US
}

/// Opens the room on disk. Connections can be split without it.
fn open_spool(directory: &Path, bytes_max: u64) -> Option<Spool> {
    let spool = Spool::open(directory, bytes_max);
    if let Err(error) = &spool {
        let directory = directory.display();
        warn!(
            "no bytes of split connections are kept in {directory}, so that hosts wait for the link: {error}"
        );
    }
    spool.ok()
}

/// An error of a machine that may be unable to answer clients late, with the remedy.
fn without_late(error: &io::Error) -> io::Error {
    let remedy = "load nfnetlink_queue and nft_queue, or set `accept = \"early\"` in `[split]`";
    io::Error::new(error.kind(), format!("{error}; {remedy}"))
}

/// The congestion control of carriers: the wanted one, or `cubic`, which each kernel has.
fn usable_congestion(wanted: &str) -> String {
    match transparent::check_congestion(wanted) {
        Ok(()) => wanted.to_owned(),
        Err(error) => {
            warn!("the kernel has no congestion control {wanted}, so that carriers use cubic: {error}");
            "cubic".to_owned()
        }
    }
}
