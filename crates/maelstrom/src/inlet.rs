//! The way of recovered packets into the kernel.
//!
//! They are written to a TUN device. From there programs in the kernel move them to the ingress of the WAN
//! interface ([`netio::inject`]), so that they pass the rules that the lost packets would have passed. Where
//! the kernel cannot load or attach these programs, it receives packets from the TUN device itself, and rules
//! that name the WAN interface do not apply to them: the operator is told so.
//!
//! Nothing else opens the way by the TUN device, because it leads past the firewall. While the WAN interface
//! is missing or down, or a probe is late, the way is closed and tried again each second. Once packets have
//! arrived by the WAN interface, they never enter by the TUN device in this process.

use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use maelstrom_core::counters::Uninjected;
use netio::inject::{Injector, Signs};
use netio::interface::Interface;
use netio::tap::{Attach, Tap};
use netio::tun::{Tun, TunOptions};
use tracing::{debug, info, warn};

use crate::arrivals::Arrivals;
use crate::bounds::Bounds;
use crate::config::{GatewayConfig, InjectionChoice};
use crate::error::StartError;
use crate::status::Injection;
use std::net::Ipv4Addr;

/// Longest wait for a probe at the start. It usually arrives before the call that sends it returns.
pub(crate) const START_PATIENCE: Duration = Duration::from_secs(2);
/// Longest wait for a probe while the gateway runs.
pub(crate) const RUN_PATIENCE: Duration = Duration::from_millis(20);
/// Interval between checks whether injected packets arrive.
const CHECK_US: u64 = 1_000_000;
/// Interval between attempts to return from the TUN device to the WAN interface. Each stops the gateway for
/// some milliseconds.
const RETURN_US: u64 = 60_000_000;
/// Interval between attempts to load programs that the kernel has refused.
const RELOAD_US: u64 = 5_000_000;

/// Address of the TUN device while the kernel receives packets from it. The kernel's source check drops
/// packets that enter by an interface without an IPv4 address. RFC 7600 §4.8 reserves this one for machines
/// that need an address and have none; no other host uses it.
const DUMMY: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// Settings with which the TUN device accepts packets. They disappear with the device.
const OPEN: [(&str, &str); 4] = [
    // The route back to a recovered packet's source is by the WAN, not by this device, so that only a loose
    // check passes.
    ("ipv4/conf/{}/rp_filter", "2"),
    ("ipv6/conf/{}/disable_ipv6", "0"),
    ("ipv6/conf/{}/accept_ra", "0"),
    // The device needs no link-local address, because it has no neighbours.
    ("ipv6/conf/{}/addr_gen_mode", "1"),
];

/// Settings with which the kernel drops a packet that has not been moved to the WAN interface.
const CLOSED: [(&str, &str); 4] = [
    ("ipv4/conf/{}/forwarding", "0"),
    ("ipv4/conf/{}/rp_filter", "1"),
    ("ipv6/conf/{}/addr_gen_mode", "1"),
    ("ipv6/conf/{}/disable_ipv6", "1"),
];

/// Settings of the TUN device that follow those of the WAN interface.
const FOLLOWED: [&str; 2] = ["ipv4/conf/{}/forwarding", "ipv6/conf/{}/forwarding"];

/// The interface by which recovered packets arrive.
enum Way {
    /// The WAN interface, and a probe has shown it.
    Wan(Box<Injector>),
    /// The TUN device, for this reason.
    Tun(String),
    /// None at present, for this reason.
    Closed(String),
}

/// Reason why packets do not arrive by the WAN interface.
enum Obstacle {
    /// It may pass within a second: the interface is down, or a probe is late.
    Passing(String),
    /// The kernel does not load the programs, or does not attach them to this interface.
    Impossible(io::Error),
}

/// The TUN device, and the way of packets from there.
pub(crate) struct Inlet {
    tun: Tun,
    signs: Signs,
    /// Whether a packet has arrived by the WAN interface in this process.
    is_proven: bool,
    choice: InjectionChoice,
    /// Number and name of the WAN interface.
    number: usize,
    wan: String,
    way: Way,
    /// Number of packets that the kernel took on the present way.
    written: u64,
    /// The same on all ways to the WAN interface, and the arrivals there.
    arrivals: Arrivals,
    /// `written` and arrivals at the last check.
    checked: (u64, u64),
    /// Number of probes that had arrived when the last one was sent, if its arrival is still to be checked.
    awaited_probe: Option<u64>,
    next_check_us: u64,
    next_retry_us: u64,
    /// Whether the kernel refused the programs, so that the way is tried less often.
    is_refused: bool,
    /// The reason of the last closure that the operator was told.
    told: Option<String>,
    bounds: Bounds,
}

impl Inlet {
    /// Creates the TUN device `name` for packets of up to `mtu` bytes that arrive by WAN interface `number`,
    /// and no way from it yet.
    pub(crate) fn open(
        config: &GatewayConfig,
        number: usize,
        name: &str,
        mtu: usize,
        signs: Signs,
    ) -> Result<Self, StartError> {
        let options =
            TunOptions { mtu: Some(mtu as u32), transmit_queue: Some(16), up: false, offload: false };
        let step = |what: &str| format!("{what} TUN device {name}");
        let tun = Tun::open(name, &options).map_err(|error| StartError::new(step("create"), error))?;
        set_all(&tun, &CLOSED);
        tun.interface().set_up(true).map_err(|error| StartError::new(step("bring up"), error))?;
        Ok(Self {
            tun,
            signs,
            is_proven: false,
            choice: config.gateway.injection,
            number,
            wan: config.wans()[number].to_owned(),
            way: Way::Closed("it is not open yet".to_owned()),
            written: 0,
            arrivals: Arrivals::default(),
            checked: (0, 0),
            awaited_probe: None,
            next_check_us: 0,
            next_retry_us: 0,
            is_refused: false,
            told: None,
            bounds: Bounds::default(),
        })
    }

    /// Notes whether an inlet of this process has let packets arrive by the WAN interface.
    #[must_use]
    pub(crate) fn with_proof(self, is_proven: bool) -> Self {
        Self { is_proven, ..self }
    }

    /// Name of the WAN interface of the present way.
    pub(crate) fn wan(&self) -> &str {
        &self.wan
    }

    /// Whether packets have arrived by the WAN interface in this process.
    pub(crate) fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// Opens the way that `config` demands, if that is possible at present; [`Inlet::watch`] tries again.
    /// `tap` is the open tap on the WAN interface, if any.
    ///
    /// # Errors
    /// If the configuration demands the WAN interface, and the kernel does not take the programs. The way is
    /// closed then.
    pub(crate) fn connect(
        &mut self,
        config: &GatewayConfig,
        tap: Option<&Tap>,
        patience: Duration,
    ) -> Result<(), StartError> {
        self.disconnect();
        self.choice = config.gateway.injection;
        config.wans()[self.number].clone_into(&mut self.wan);
        self.bounds.open(config, &self.wan);
        self.raise_tun();
        if self.choice == InjectionChoice::Tun {
            return self.fall_back("the configuration demands it".to_owned());
        }
        // Nothing enters by the TUN device unless it is moved to the WAN interface.
        set_all(&self.tun, &CLOSED);
        match self.open_injector(tap, patience) {
            Ok(injector) => {
                info!(wan = self.wan, "recovered packets arrive as if from the wire");
                self.is_proven = true;
                self.told = None;
                self.way = Way::Wan(Box::new(injector));
                Ok(())
            }
            Err(Obstacle::Passing(reason)) => {
                self.close(reason);
                Ok(())
            }
            Err(Obstacle::Impossible(error)) if self.choice == InjectionChoice::Wan => {
                self.refuse(error.to_string());
                Err(StartError::new(format!("inject packets at {}", self.wan), error))
            }
            Err(Obstacle::Impossible(error)) if self.is_proven => {
                warn!("no packet is recovered, because none may pass by the firewall: {error}");
                self.refuse(error.to_string());
                Ok(())
            }
            Err(Obstacle::Impossible(error)) => {
                let never =
                    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported);
                self.next_retry_us = if never { u64::MAX } else { 0 };
                self.fall_back(error.to_string())
            }
        }
    }

    /// Closes the way until [`Inlet::watch`] opens it. The operator is told each reason once.
    fn close(&mut self, reason: String) {
        if self.told.as_ref() != Some(&reason) {
            warn!("no packet is recovered: {reason}; the gateway tries again each second");
            self.told = Some(reason.clone());
        }
        self.way = Way::Closed(reason);
    }

    /// Closes the way until the kernel takes the programs.
    fn refuse(&mut self, reason: String) {
        self.next_retry_us = 0;
        self.is_refused = true;
        self.way = Way::Closed(reason);
    }

    /// Brings the TUN device up if somebody has set it down.
    fn raise_tun(&self) {
        if self.is_tun_up() {
            return;
        }
        let name = self.tun.name();
        match self.tun.interface().set_up(true) {
            Ok(()) => warn!("TUN device {name} was down, so that no packet was recovered; it is up again"),
            Err(error) => warn!("TUN device {name} is down and cannot be brought up: {error}"),
        }
    }

    fn is_tun_up(&self) -> bool {
        // A failed query proves nothing.
        self.tun.interface().is_up().unwrap_or(true)
    }

    #[expect(clippy::disallowed_methods, reason = "not a core: bounds the wait for a probe")]
    fn open_injector(&self, tap: Option<&Tap>, patience: Duration) -> Result<Injector, Obstacle> {
        let is_up = || match Interface::open(&self.wan).and_then(|interface| interface.is_up()) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Obstacle::Passing(format!("{} is down", self.wan))),
            Err(error) => Err(Obstacle::Passing(format!("cannot find {}: {error}", self.wan))),
        };
        is_up()?;
        let opened = Injector::open(&self.tun, &self.wan, self.signs, tap, Attach::Auto);
        // If the interface disappears meanwhile, the error says nothing about the kernel.
        let injector = opened.map_err(|error| is_up().err().unwrap_or(Obstacle::Impossible(error)))?;
        let passing = |text: String| Obstacle::Passing(text);
        let deadline = Instant::now() + patience;
        loop {
            let sent = injector.send_probe(&self.tun);
            sent.map_err(|error| passing(format!("cannot write to {}: {error}", self.tun.name())))?;
            if injector.probes() > 0 {
                return Ok(injector);
            }
            is_up()?;
            if Instant::now() >= deadline {
                return Err(passing(format!("a probe did not arrive at {}", self.wan)));
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets the kernel receive packets from the TUN device.
    fn fall_back(&mut self, reason: String) -> Result<(), StartError> {
        let (tun, wan) = (self.tun.name(), &self.wan);
        if self.choice != InjectionChoice::Tun {
            warn!(
                "recovered packets enter by {tun} and not by {wan}: {reason}; firewall rules that name {wan} do not apply to \
                 them"
            );
        }
        set_all(&self.tun, &OPEN);
        self.follow_wan();
        let addressed = self.tun.interface().set_ipv4_address(DUMMY);
        addressed.map_err(|error| StartError::new(format!("set the address of TUN device {tun}"), error))?;
        self.way = Way::Tun(reason);
        Ok(())
    }

    /// Copies the settings of the WAN interface that decide what it forwards.
    fn follow_wan(&self) {
        for setting in FOLLOWED {
            let Ok(value) = fs::read_to_string(path(setting, &self.wan)) else { continue };
            let of_tun = path(setting, self.tun.name());
            if fs::read_to_string(&of_tun).is_ok_and(|present| present != value) {
                set(&of_tun, value.trim());
            }
        }
    }

    fn disconnect(&mut self) {
        self.arrivals.on_way_over(self.arrived_now());
        self.written = 0;
        self.checked = (0, 0);
        self.awaited_probe = None;
        self.is_refused = false;
        self.way = Way::Closed("it is not open yet".to_owned());
    }

    /// Hands a recovered packet to the kernel.
    ///
    /// A device that takes no packets at all closes the way, so that recovery pauses and the peer is told.
    ///
    /// # Errors
    /// The reason why the kernel does not get the packet.
    pub(crate) fn send(&mut self, packet: &[u8]) -> Result<(), Uninjected> {
        if !self.bounds.admits(packet) {
            return Err(Uninjected::Returning);
        }
        if matches!(self.way, Way::Closed(_)) {
            return Err(Uninjected::Untaken);
        }
        match self.tun.send(packet) {
            Ok(true) => {
                self.written += 1;
                if matches!(self.way, Way::Wan(_)) {
                    self.arrivals.on_written();
                }
                Ok(())
            }
            Ok(false) => Err(Uninjected::Untaken),
            Err(error) => {
                if !self.is_tun_up() {
                    self.lose_tun(&error);
                }
                Err(Uninjected::Untaken)
            }
        }
    }

    fn lose_tun(&mut self, error: &io::Error) {
        self.disconnect();
        self.close(format!("TUN device {} is down: {error}", self.tun.name()));
        self.next_check_us = 0;
    }

    /// Checks about once a second that injected packets arrive. Opens the way again if none does, and tries
    /// to open a closed one.
    pub(crate) fn watch(&mut self, now_us: u64, config: &GatewayConfig, tap: Option<&Tap>) {
        if now_us < self.next_check_us {
            return;
        }
        self.next_check_us = now_us + CHECK_US;
        self.arrivals.check(self.arrived_now());
        self.bounds.on_tick(now_us);
        self.raise_tun();
        match &self.way {
            Way::Wan(_) => {
                if self.is_passable() {
                    return;
                }
                warn!("recovered packets do not arrive at {}; opening their way again", self.wan);
            }
            Way::Tun(_) => {
                self.follow_wan();
                if self.choice == InjectionChoice::Tun || !self.is_retry_due(now_us, RETURN_US) {
                    return;
                }
            }
            Way::Closed(_) => {
                if self.is_refused && !self.is_retry_due(now_us, RELOAD_US) {
                    return;
                }
            }
        }
        if tap.is_none() {
            return;
        }
        if let Err(error) = self.connect(config, tap, RUN_PATIENCE) {
            debug!(%error, "cannot inject yet");
        }
    }

    /// Whether the way to the WAN interface lets packets pass. If none of the packets since the last check
    /// has arrived, a probe is sent. A program at the interface may drop packets that it would have dropped
    /// from the wire as well, but no probe.
    fn is_passable(&mut self) -> bool {
        let Way::Wan(injector) = &self.way else { return false };
        let is_lost = self.awaited_probe.take().is_some_and(|before| injector.probes() == before);
        let present = (self.written, injector.arrived());
        if present.0 > self.checked.0 && present.1 == self.checked.1 {
            self.awaited_probe = Some(injector.probes());
            if let Err(error) = injector.send_probe(&self.tun) {
                debug!(%error, "cannot send a probe");
            }
        }
        self.checked = present;
        !is_lost
    }

    fn is_retry_due(&mut self, now_us: u64, interval_us: u64) -> bool {
        if self.next_retry_us == 0 {
            self.next_retry_us = now_us + interval_us;
        }
        let is_due = now_us >= self.next_retry_us;
        if is_due {
            self.next_retry_us = now_us + interval_us;
        }
        is_due
    }

    /// Number of packets that were not sent, because their route leads back to the WAN.
    pub(crate) fn refused(&self) -> u64 {
        self.bounds.refused()
    }

    /// Whether packets can be sent.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.way, Way::Closed(_))
    }

    /// Gives the TUN device another name.
    pub(crate) fn rename(&mut self, name: &str) -> io::Result<()> {
        self.tun.rename(name)
    }

    pub(crate) fn tun(&self) -> &Tun {
        &self.tun
    }

    /// Returns the way's name in the status.
    pub(crate) fn way(&self) -> &'static str {
        match self.way {
            Way::Wan(_) => "wan",
            Way::Tun(_) => "tun",
            Way::Closed(_) => "none",
        }
    }

    /// Returns the reason why packets do not arrive by the WAN interface.
    pub(crate) fn reason(&self) -> Option<&str> {
        match &self.way {
            Way::Wan(_) => None,
            Way::Tun(reason) | Way::Closed(reason) => Some(reason),
        }
    }

    /// Returns what the verdict about the gateway says about the way.
    pub(crate) fn injection(&self) -> Injection<'_> {
        match &self.way {
            Way::Tun(reason) if self.choice != InjectionChoice::Tun => Injection::ByTun(reason),
            Way::Wan(_) | Way::Tun(_) => Injection::AsWanted,
            Way::Closed(reason) => Injection::Impossible(reason),
        }
    }

    /// Number of packets that were sent to the WAN interface and had not arrived there a second later.
    pub(crate) fn not_at_wan(&self) -> u64 {
        self.arrivals.missing()
    }

    /// The same at the end of the device.
    pub(crate) fn not_at_wan_at_end(&self) -> u64 {
        self.arrivals.missing_at_end(self.arrived_now())
    }

    fn arrived_now(&self) -> u64 {
        match &self.way {
            Way::Wan(injector) => injector.arrived(),
            Way::Tun(_) | Way::Closed(_) => 0,
        }
    }
}

fn path(setting: &str, interface: &str) -> String {
    format!("/proc/sys/net/{}", setting.replace("{}", interface))
}

fn set_all(tun: &Tun, settings: &[(&str, &str)]) {
    for (setting, value) in settings {
        set(&path(setting, tun.name()), value);
    }
}

fn set(path: &str, value: &str) {
    // A kernel without IPv6 has no settings for it.
    if Path::new(path).exists()
        && let Err(error) = fs::write(path, value)
    {
        warn!("cannot write {value} to {path}: {error}");
    }
}
