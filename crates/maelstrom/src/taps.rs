//! The WAN interfaces with their taps: each shows the packets of its peers, and pauses their recovery if it
//! may have missed some.

use netio::tap::Tap;
use tracing::debug;

use crate::config::GatewayConfig;
use crate::errands::Errand;
use crate::passive::{Channel, Passive, clock_us};
use crate::pause::{Pauses, Reason};
use crate::ports::Ports;

/// Interval between checks whether the taps missed packets.
const GAP_CHECK_US: u64 = 2_000;

/// Packets that taps have not shown. A tap that is closed leaves its counts to the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unshown {
    /// Those that they missed.
    pub(crate) missed: u64,
    /// Those that left, and belong to flows that there is no time to protect.
    pub(crate) shed: u64,
}

impl Unshown {
    pub(crate) fn of(tap: &Tap) -> Self {
        Self { missed: tap.dropped(), shed: tap.shed()[0] }
    }

    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { missed: self.missed + other.missed, shed: self.shed + other.shed }
    }
}

/// One WAN interface.
pub(crate) struct Wan {
    pub(crate) name: String,
    /// Whether packets of peers in passive mode pass it.
    pub(crate) is_watched: bool,
    /// `None` while the interface is missing.
    pub(crate) tap: Option<Tap>,
    /// Number of packets that arrived without being captured, at the last check.
    pub(crate) missed: u64,
    /// Whether the tap holds more than one round takes.
    pub(crate) behind: bool,
    /// Time of the latest capture that the tap has shown, if it tells it.
    pub(crate) latest_us: Option<u64>,
    /// Recovery pauses until tap and repair channel are drained.
    pub(crate) pauses: Pauses,
    /// Whether the programs of the tap are still attached.
    pub(crate) attached: Errand<bool>,
}

impl Wan {
    /// Interface `number` of a configuration, without a tap.
    pub(crate) fn of(config: &GatewayConfig, number: usize) -> Self {
        Self {
            name: config.wans()[number].to_owned(),
            is_watched: config.is_watched(number),
            tap: None,
            missed: 0,
            behind: false,
            latest_us: None,
            pauses: Pauses::default(),
            attached: Errand::default(),
        }
    }

    /// Takes the present count of missed packets as known.
    pub(crate) fn excuse_missed(&mut self) {
        self.missed = self.tap.as_ref().map_or(0, |tap| tap.missed().incoming);
    }

    /// Whether repairs wait for the tap, because it may still hold packets that they name, which would count
    /// as lost. They do not wait while recovery pauses: then no packet counts as lost, and Hellos and reports
    /// must be read.
    fn holds_repairs(&self) -> bool {
        self.behind && !self.pauses.is_active()
    }

    /// Datagrams that were read before this time came after packets that the tap has shown.
    fn shows_until_us(&self) -> u64 {
        if self.holds_repairs() { self.latest_us.unwrap_or(0) } else { u64::MAX }
    }
}

impl Ports {
    /// Whether a tap holds more than one round takes.
    pub(crate) fn is_behind(&self) -> bool {
        self.wans.iter().any(|wan| wan.behind)
    }

    /// Datagrams that were read before this time may be decoded: the taps have shown the packets that arrived
    /// before them. It is 0 if a tap is behind and does not tell how far.
    pub(crate) fn shows_until_us(&self) -> u64 {
        self.wans.iter().map(Wan::shows_until_us).min().unwrap_or(u64::MAX)
    }

    /// Time of the latest capture that any tap has shown, if all tell it.
    pub(crate) fn latest_us(&self) -> Option<u64> {
        let watched = self.wans.iter().filter(|wan| wan.is_watched);
        watched
            .map(|wan| wan.latest_us)
            .reduce(|one, other| one.zip(other).map(|(one, other)| one.max(other)))?
    }

    /// The WAN interfaces at which recovery pauses, a bit for each.
    pub(crate) fn paused(&self) -> u64 {
        let paused = self.wans.iter().enumerate().filter(|(_, wan)| wan.pauses.is_active());
        paused.fold(0, |set, (number, _)| set | 1 << number)
    }
}

impl Passive {
    /// Step 3: reads the taps.
    pub(crate) fn drain_taps(&mut self) {
        (0..self.ports.wans.len()).for_each(|wan| self.drain_tap(wan));
    }

    fn drain_tap(&mut self, wan: usize) {
        let Ports { wans, outlets, .. } = &mut self.ports;
        let Wan { tap: Some(tap), behind, .. } = &mut wans[wan] else { return };
        let round = match self.engine.drain(tap, outlets) {
            Ok(round) => round,
            Err(error) => return self.lose_tap(wan, &error.to_string()),
        };
        self.tick.on_input(round.captures);
        self.lag.on_shown(round.packets);
        if round.more || *behind {
            // A tap that is behind, or was, may have missed packets.
            self.next_gap_check_us = 0;
        }
        *behind = round.more;
        let wan = &mut self.ports.wans[wan];
        if round.captures > 0 {
            // A time of the future is that of another clock.
            let latest_us = round.latest_us.filter(|&latest_us| latest_us <= clock_us());
            wan.latest_us = latest_us.map(|latest_us| latest_us.max(wan.latest_us.unwrap_or(0)));
        }
    }

    /// Tells the core until when it knows what has arrived, if a tap is behind.
    pub(crate) fn tell_shown(&mut self) {
        // The packets of any peer may come by any interface.
        let shown_us = Some(self.ports.shows_until_us()).filter(|&until_us| until_us < u64::MAX);
        if shown_us.is_some() || self.ports.shown_us.is_some() {
            self.engine.gateway.handle_shown(shown_us);
        }
        self.ports.shown_us = shown_us;
    }

    /// Pauses recovery if packets may have arrived that the core does not know: packets that a tap missed
    /// (checked every [`GAP_CHECK_US`]), packets that the core may have forgotten when a repair names them,
    /// or all packets while there is no tap.
    pub(crate) fn check_for_gap(&mut self) {
        let now_us = self.engine.now_us;
        let lags = self.lag.packets() > self.engine.gateway.lag_max() || self.lag.is_old(now_us);
        let looks = now_us >= self.next_gap_check_us;
        if looks {
            self.next_gap_check_us = now_us + GAP_CHECK_US;
        }
        let mut has_missed = false;
        for number in 0..self.ports.wans.len() {
            if !self.ports.is_complete(number) {
                self.pause(number, Reason::Interface);
            } else if lags {
                self.pause(number, Reason::Lag);
            }
            let wan = &mut self.ports.wans[number];
            let missed = wan.tap.as_ref().filter(|_| looks).map(|tap| tap.missed().incoming);
            if let Some(missed) = missed.filter(|&missed| missed != wan.missed) {
                wan.missed = missed;
                has_missed = true;
            }
        }
        if has_missed {
            // They may have been those of any peer.
            (0..self.ports.wans.len()).for_each(|number| self.pause(number, Reason::Missed));
        }
    }

    /// Stops recovery at a WAN interface until its tap and the repair channel have been drained.
    pub(crate) fn pause(&mut self, wan: usize, reason: Reason) {
        if !self.ports.wans[wan].is_watched {
            // Of a tunnel, datagrams tell what has arrived.
            return;
        }
        if let Some(event) = self.ports.wans[wan].pauses.begin(self.engine.now_us, reason) {
            self.watch.note(self.engine.now_us, event, &self.config);
        }
        let wan_of = &self.ports.outlets.wan_of;
        self.engine.gateway.handle_gap_of(|peer| wan_of[peer] == wan);
    }

    /// Notes that recovery does not pause any more.
    pub(crate) fn end_pause(&mut self, wan: usize) {
        if let Some(event) = self.ports.wans[wan].pauses.end(self.engine.now_us) {
            self.watch.note(self.engine.now_us, event, &self.config);
        }
    }

    /// Ends the pauses at the WAN interfaces whose taps are drained, if the repair channel is.
    pub(crate) fn end_pauses(&mut self) {
        if self.channel != Channel::Drained || !self.inbox.is_empty() {
            return;
        }
        let mut drained = 0_u64;
        for number in 0..self.ports.wans.len() {
            // After a reload that leaves tunnels alone, nothing waits for a tap.
            let is_complete = self.ports.is_complete(number) || !self.ports.wans[number].is_watched;
            if is_complete && !self.ports.wans[number].behind {
                self.end_pause(number);
                drained |= 1 << number;
            }
        }
        let wan_of = &self.ports.outlets.wan_of;
        let is_drained = |peer: usize| drained >> wan_of[peer] & 1 == 1;
        self.engine.gateway.handle_caught_up_of(self.engine.now_us, is_drained);
    }

    /// Replaces the tap of a WAN interface by another, or by none. Packets that neither has shown are a gap.
    pub(crate) fn install_tap(&mut self, number: usize, tap: Option<Tap>) {
        let wan = &mut self.ports.wans[number];
        if let Some(old) = std::mem::replace(&mut wan.tap, tap) {
            let before = &mut self.engine.counts.unshown_before;
            *before = before.plus(Unshown::of(&old));
        }
        wan.excuse_missed();
        // An answer that is under way concerns the old tap.
        wan.attached = Errand::default();
        (wan.behind, wan.latest_us) = (false, None);
        let is_open = wan.tap.is_some();
        // The new tap wakes the loop.
        if let Err(error) = self.set_ticking(false) {
            debug!(%error, "cannot end the tick");
        }
        self.forget_settings_of_taps();
        self.pause(number, if is_open { Reason::Replaced } else { Reason::Interface });
    }
}
