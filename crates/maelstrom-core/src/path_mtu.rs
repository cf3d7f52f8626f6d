//! The longest datagram that crosses the path to a peer (RFC 8899).
//!
//! A datagram that is too long for the path disappears, sometimes without a message. So its length is tried:
//! a *probe* is a report padded with zeros, and the peer's reports state the longest datagram that arrived.
//! At first the path is taken to carry what the configuration says. A probe of that length is sent at once,
//! and again every few seconds. If it does not arrive, although shorter datagrams do, repairs are limited to
//! a length that every path carries, and the longest length is found by bisection.
//!
//! The kernel's path MTU, which routers report, limits repairs at once while nothing is known of the path.
//! Anyone could have forged these messages, so a probe tests them: if it arrives, the kernel is wrong, and is
//! not believed for a minute. While longer datagrams have arrived within seconds, the kernel's value has no
//! effect until a probe has failed.

/// Length in bytes of IP packets that practically every path carries (RFC 8899 §5.1.2).
const BASE_MTU: usize = 1_200;
/// Smallest length that is tried: that of the smallest IPv4 path.
const LEAST_MTU: usize = 552;
/// Difference in bytes at which the bisection ends.
const PRECISION: usize = 2;
/// Interval between probes of one length, in microseconds.
const AGAIN_US: u64 = 200_000;
/// Time after which a probe without an answer has failed, in microseconds.
const FAILED_US: u64 = 2_000_000;
/// Number of probes and reports after which that can be so.
const TRIES: u32 = 5;
/// Interval between probes of a length that is known to pass.
const VERIFY_US: u64 = 5_000_000;
/// Interval between attempts to send longer datagrams again.
const RAISE_US: u64 = 60_000_000;

/// Time for which a length that has arrived refutes the kernel until a probe fails.
const RECENT_US: u64 = 2 * VERIFY_US;
/// Time for which the kernel is not believed after a probe has refuted it.
const REFUTED_US: u64 = 60_000_000;

/// A length that is being tried.
#[derive(Clone, Copy, Debug)]
struct Probe {
    len: usize,
    since_us: u64,
    next_us: u64,
    sent: u32,
    /// Reports of the peer, which hears us, since then.
    reports: u32,
}

/// Knowledge of one path. All lengths are those of UDP payloads in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathMtu {
    /// Longest payload by the configuration.
    ceiling: usize,
    /// Length of IP and UDP headers.
    outer: usize,
    /// Longest payload by the kernel's path MTU, unless a probe proved it wrong.
    hint: Option<usize>,
    /// Last value of the kernel.
    hinted: usize,
    /// Payload by the kernel's path MTU that the present probe confirms if it fails.
    doubted: Option<usize>,
    /// Time until which the kernel is not believed.
    deaf_until_us: u64,
    /// Longest payload that arrived.
    good: usize,
    /// Time at which it arrived last.
    good_us: u64,
    /// Shortest payload that did not.
    bad: Option<usize>,
    probe: Option<Probe>,
    next_verify_us: u64,
    next_raise_us: u64,
}

impl PathMtu {
    /// Starts with the MTU of the configuration; datagrams have `outer` bytes of IP and UDP headers.
    pub(crate) fn new(wan_mtu: usize, outer: usize) -> Self {
        let ceiling = wan_mtu - outer;
        Self {
            ceiling,
            outer,
            hint: None,
            hinted: ceiling,
            doubted: None,
            deaf_until_us: 0,
            good: 0,
            good_us: 0,
            bad: None,
            probe: None,
            next_verify_us: 0,
            next_raise_us: 0,
        }
    }

    /// Starts again for a new session.
    pub(crate) fn restart(&mut self) {
        *self = Self {
            hint: self.hint,
            hinted: self.hinted,
            deaf_until_us: self.deaf_until_us,
            ..Self::new(self.ceiling + self.outer, self.outer)
        };
    }

    /// Returns the longest payload that arrived, and the shortest one that did not.
    pub(crate) fn lengths(&self) -> (usize, Option<usize>) {
        (self.good, self.bad)
    }

    /// Takes the lengths that another process knew. They are tried again soon.
    pub(crate) fn resume(&mut self, now_us: u64, (good, bad): (usize, Option<usize>)) {
        self.restart();
        self.good = good.min(self.ceiling);
        self.good_us = now_us;
        self.bad = bad.filter(|&bad| bad > self.good && bad <= self.ceiling + 1);
        self.next_raise_us = now_us + RAISE_US;
    }

    fn base(&self) -> usize {
        (BASE_MTU - self.outer).min(self.ceiling)
    }

    /// Longest payload to send.
    pub(crate) fn limit(&self) -> usize {
        let limit = match self.bad {
            None => self.ceiling,
            // Not even the least length has come: probes are not answered, and say nothing of the path.
            Some(bad) if self.good == 0 && bad <= LEAST_MTU - self.outer => self.base(),
            Some(bad) if self.good == 0 => self.base().min(bad - 1),
            Some(_) => self.good,
        };
        self.hint.map_or(limit, |hint| limit.min(hint))
    }

    /// Longest IP packet of a repair.
    pub(crate) fn mtu(&self) -> usize {
        self.limit() + self.outer
    }

    /// Longest IP packet that may arrive unfragmented; `None` if longer ones than configured.
    pub(crate) fn packet_max(&self) -> Option<usize> {
        self.bad.map(|bad| bad - 1 + self.outer)
    }

    /// The MTU of the path, if it is known to be smaller than the configured one.
    pub(crate) fn narrower(&self) -> Option<usize> {
        let is_known = self.bad.is_some_and(|bad| self.good > 0 && bad - self.good <= PRECISION);
        is_known.then_some(self.good + self.outer)
    }

    /// Takes the kernel's path MTU.
    pub(crate) fn on_hint(&mut self, now_us: u64, mtu: usize) {
        let payload = mtu.saturating_sub(self.outer).min(self.ceiling);
        if payload == self.hinted || now_us < self.deaf_until_us {
            return;
        }
        let is_narrower = payload < self.limit() && payload + self.outer >= LEAST_MTU;
        if is_narrower && self.good > payload && now_us < self.good_us + RECENT_US {
            // The probe that is under way may be of a length that no path carries. The kernel is asked again.
            if self.probe.is_none() {
                self.hinted = payload;
                self.doubted = Some(payload);
                self.start(now_us, self.good);
            }
            return;
        }
        self.hinted = payload;
        if is_narrower {
            // A probe of the longest payload tells whether the kernel is right.
            self.hint = Some(payload);
            self.good = self.good.min(payload);
            self.start(now_us, self.ceiling);
        } else if payload > self.limit() {
            // The kernel has forgotten what routers told, or the path is wider.
            self.hint = None;
            self.start(now_us, payload);
        }
    }

    fn start(&mut self, now_us: u64, len: usize) {
        self.probe = Some(Probe { len, since_us: now_us, next_us: now_us, sent: 0, reports: 0 });
    }

    /// Gives up the present probe, because a full queue has no room for long datagrams. It says nothing about
    /// the path.
    pub(crate) fn on_full_queue(&mut self, now_us: u64) {
        self.probe = None;
        self.next_verify_us = self.next_verify_us.max(now_us + AGAIN_US);
    }

    /// Returns the length of a probe that is due. Must be called regularly while the peer hears us.
    pub(crate) fn poll_probe(&mut self, now_us: u64) -> Option<usize> {
        if self.probe.is_none() {
            let len = self.next_length(now_us)?;
            self.start(now_us, len);
        }
        let probe = self.probe.as_mut().filter(|probe| now_us >= probe.next_us)?;
        if probe.sent >= TRIES && probe.reports >= TRIES && now_us >= probe.since_us + FAILED_US {
            let len = probe.len;
            self.on_failed(len);
            return None;
        }
        probe.next_us = now_us + AGAIN_US;
        probe.sent += 1;
        Some(probe.len)
    }

    fn next_length(&mut self, now_us: u64) -> Option<usize> {
        let Some(bad) = self.bad else {
            // No length has failed.
            let is_due = now_us >= self.next_verify_us;
            self.next_verify_us = if is_due { now_us + VERIFY_US } else { self.next_verify_us };
            return is_due.then_some(self.ceiling);
        };
        if self.good == 0 {
            let base = self.base();
            let least = LEAST_MTU - self.outer;
            return (bad > least).then(|| if bad > base { base } else { least.max(bad / 2) });
        }
        if bad - self.good > PRECISION {
            let hint = self.hint.filter(|&hint| hint > self.good && hint < bad);
            return Some(hint.unwrap_or(usize::midpoint(self.good, bad)));
        }
        if now_us >= self.next_raise_us {
            self.next_raise_us = now_us + RAISE_US;
            self.next_verify_us = now_us + VERIFY_US;
            return Some(self.ceiling);
        }
        let is_due = now_us >= self.next_verify_us;
        self.next_verify_us = if is_due { now_us + VERIFY_US } else { self.next_verify_us };
        is_due.then_some(self.good)
    }

    /// Takes the peer's report of the longest payload that arrived lately. `is_heard` if it hears us at
    /// present. `sent` is the longest repair that was sent lately.
    pub(crate) fn on_report(&mut self, now_us: u64, longest: usize, is_heard: bool, sent: usize) {
        if let Some(probe) = &mut self.probe {
            probe.reports += u32::from(is_heard);
            if longest >= probe.len {
                self.probe = None;
                if self.doubted.take().is_some() {
                    self.deaf_until_us = now_us + REFUTED_US;
                }
            }
        } else if is_heard && longest < sent.min(self.limit()) {
            // Repairs may be too long. A probe shows it soon.
            self.start(now_us, self.limit());
        }
        if longest.min(self.ceiling) >= self.good {
            (self.good, self.good_us) = (longest.min(self.ceiling), now_us);
        }
        if self.bad.is_some_and(|bad| self.good >= bad) {
            self.bad = if self.good >= self.ceiling { None } else { Some(self.ceiling + 1) };
        }
        if self.hint.is_some_and(|hint| self.good > hint) {
            self.hint = None;
            self.deaf_until_us = now_us + REFUTED_US;
        }
    }

    fn on_failed(&mut self, len: usize) {
        self.probe = None;
        self.bad = Some(self.bad.map_or(len, |bad| bad.min(len)));
        if let Some(payload) = self.doubted.take() {
            self.hint = Some(payload);
            self.good = self.good.min(payload);
        }
        if self.good >= len {
            self.good = 0;
        }
        if let Some(hint) = self.hint.filter(|&hint| self.good == hint) {
            // The kernel's value was confirmed from both sides.
            self.bad = Some(hint + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a path that carries payloads of up to `width` bytes for some seconds; reports arrive after
    /// `delay_us`.
    fn run(path: &mut PathMtu, now_us: &mut u64, seconds: u64, width: usize, delay_us: u64) {
        let end_us = *now_us + seconds * 1_000_000;
        let (mut longest, mut tick) = (180, 0);
        let mut reports = std::collections::VecDeque::new();
        while *now_us < end_us {
            if let Some(len) = path.poll_probe(*now_us).filter(|&len| len <= width) {
                longest = longest.max(len);
            }
            tick += 1;
            if tick % 5 == 0 {
                reports.push_back((*now_us + delay_us, longest));
                longest = 180;
            }
            while reports.front().is_some_and(|&(due_us, _)| due_us <= *now_us) {
                let (_, longest) = reports.pop_front().unwrap();
                path.on_report(*now_us, longest, true, 0);
            }
            *now_us += 50_000;
        }
    }

    #[test]
    fn a_path_as_wide_as_configured_stays_so() {
        for delay_us in [1_000, 50_000, 600_000] {
            let (mut path, mut now_us) = (PathMtu::new(1_500, 28), 0);
            run(&mut path, &mut now_us, 100, 1_472, delay_us);
            assert_eq!((path.limit(), path.narrower(), path.packet_max()), (1_472, None, None));
        }
    }

    #[test]
    fn a_narrow_path_is_found_without_a_message_and_a_wide_one_again() {
        for width in [1_472 - 8, 1_372, 1_252, 1_000, 548] {
            for delay_us in [1_000, 300_000] {
                let (mut path, mut now_us) = (PathMtu::new(1_500, 28), 0);
                run(&mut path, &mut now_us, 4, width, delay_us);
                assert!(path.limit() <= width.max(1_172), "{width}: {}", path.limit());
                run(&mut path, &mut now_us, 40, width, delay_us);
                let found = path.limit();
                assert!(found <= width && width - found <= PRECISION, "{width}: {found}");
                assert_eq!(path.narrower(), Some(found + 28));
                run(&mut path, &mut now_us, 80, 1_472, delay_us);
                assert_eq!((path.limit(), path.narrower()), (1_472, None), "{width}");
            }
        }
    }

    #[test]
    fn a_peer_that_answers_no_probe_is_sent_lengths_that_practically_every_path_carries() {
        let (mut path, mut now_us) = (PathMtu::new(1_500, 28), 0);
        while now_us < 60_000_000 {
            now_us += 50_000;
            let _ = path.poll_probe(now_us);
            path.on_report(now_us, 0, true, 0);
        }
        assert_eq!(path.limit(), BASE_MTU - 28);
    }

    #[test]
    fn the_next_process_knows_the_path_from_the_beginning_and_finds_a_wider_one() {
        for width in [1_464, 1_300, 1_000] {
            let (mut first, mut now_us) = (PathMtu::new(1_500, 28), 0);
            run(&mut first, &mut now_us, 40, width, 1_000);
            let mut next = PathMtu::new(1_500, 28);
            next.resume(now_us, first.lengths());
            let known = |path: &PathMtu| (path.limit(), path.narrower(), path.packet_max());
            assert_eq!(known(&next), known(&first), "{width}");
            // While the path stays so, no longer datagram is sent than probes.
            run(&mut next, &mut now_us, 40, width, 1_000);
            assert_eq!(known(&next), known(&first), "{width}");
            run(&mut next, &mut now_us, 80, 1_472, 1_000);
            assert_eq!(next.limit(), 1_472, "{width}");
        }
        // Another configuration, and nonsense.
        let mut next = PathMtu::new(1_300, 28);
        next.resume(0, (1_372, Some(1_380)));
        assert_eq!((next.limit(), next.packet_max()), (1_272, None));
        next.resume(0, (0, Some(usize::MAX)));
        assert_eq!(next.limit(), 1_272);
    }

    /// With and without messages of routers, over IPv4 and IPv6.
    #[test]
    fn every_width_is_found_and_told() {
        for (outer, is_hinted) in [(28, false), (28, true), (48, false), (48, true)] {
            for width in LEAST_MTU - outer..=1_490 - outer {
                let (mut path, mut now_us) = (PathMtu::new(1_500, outer), 0);
                run(&mut path, &mut now_us, 2, 1_500 - outer, 1_000);
                if is_hinted {
                    path.on_hint(now_us, width + outer);
                }
                run(&mut path, &mut now_us, 60, width, 1_000);
                let told = path.narrower().map_or(0, |mtu| mtu - outer);
                assert!(told <= width && width - told <= PRECISION, "{width}, {is_hinted}: {path:?}");
            }
        }
    }

    #[test]
    fn a_router_message_limits_repairs_at_once() {
        let (mut path, mut now_us) = (PathMtu::new(1_500, 28), 0);
        path.on_hint(now_us, 1_400);
        assert_eq!(path.limit(), 1_372);
        run(&mut path, &mut now_us, 20, 1_372, 1_000);
        assert_eq!((path.limit(), path.narrower()), (1_372, Some(1_400)));
        path.on_hint(now_us, 1_500);
        run(&mut path, &mut now_us, 20, 1_472, 1_000);
        assert_eq!((path.limit(), path.narrower()), (1_472, None));
    }

    #[test]
    fn a_forged_message_is_refuted() {
        let (mut path, mut now_us) = (PathMtu::new(1_500, 28), 0);
        path.on_hint(now_us, 600);
        assert_eq!(path.limit(), 572, "nothing is known of the path");
        run(&mut path, &mut now_us, 3, 1_472, 1_000);
        assert_eq!((path.limit(), path.packet_max()), (1_472, None));
        // The next ones are not even tested, nor believed at the start of a session.
        path.on_hint(now_us, 601);
        assert_eq!(path.poll_probe(now_us), None);
        path.restart();
        path.on_hint(now_us, 602);
        assert_eq!(path.limit(), 1_472);
    }

    #[test]
    fn forged_messages_change_nothing_while_longer_datagrams_arrive() {
        let (mut path, mut now_us) = (PathMtu::new(1_500, 28), 0);
        run(&mut path, &mut now_us, 20, 1_472, 1_000);
        let mut probes = 0;
        for n in 0..600 {
            // Three a second, and each tells another length.
            path.on_hint(now_us, 600 - n % 30);
            assert_eq!((path.limit(), path.packet_max()), (1_472, None), "message {n}");
            probes += u32::from(path.poll_probe(now_us).is_some());
            path.on_report(now_us, 1_472, true, 1_472);
            now_us += 333_333;
        }
        assert!(probes < 60, "{probes} probes in 200 s");
    }

    #[test]
    fn a_path_that_becomes_narrow_is_believed_after_a_probe() {
        let (mut path, mut now_us) = (PathMtu::new(1_500, 28), 0);
        run(&mut path, &mut now_us, 20, 1_472, 1_000);
        path.on_hint(now_us, 1_400);
        assert_eq!(path.limit(), 1_472);
        run(&mut path, &mut now_us, 4, 1_372, 1_000);
        assert_eq!(path.limit(), 1_372);
        run(&mut path, &mut now_us, 10, 1_372, 1_000);
        assert_eq!((path.limit(), path.narrower()), (1_372, Some(1_400)));
    }

    #[test]
    fn a_message_that_confirms_the_limit_starts_no_probe() {
        let (mut path, mut now_us) = (PathMtu::new(1_500, 28), 0);
        run(&mut path, &mut now_us, 20, 1_372, 1_000);
        let found = path.limit();
        assert_eq!(path.poll_probe(now_us), None);
        path.on_hint(now_us, found + 28);
        assert_eq!((path.poll_probe(now_us), path.limit()), (None, found));
    }

    #[test]
    fn repairs_that_do_not_arrive_start_a_probe() {
        let (mut path, mut now_us) = (PathMtu::new(1_500, 28), 0);
        run(&mut path, &mut now_us, 6, 1_472, 1_000);
        assert_eq!(path.poll_probe(now_us), None);
        path.on_report(now_us, 180, true, 1_440);
        assert_eq!(path.poll_probe(now_us), Some(1_472));
    }

    #[test]
    fn a_message_outlasts_a_session_and_a_silence_and_an_impossible_one_is_ignored() {
        let mut path = PathMtu::new(1_500, 28);
        path.on_hint(0, LEAST_MTU - 1);
        assert_eq!(path.limit(), 1_472);
        path.on_hint(0, 1_400);
        path.restart();
        assert_eq!(path.limit(), 1_372);
        // A long datagram that arrived before a silence says nothing about the path after it.
        let (mut path, mut now_us) = (PathMtu::new(1_500, 28), 0);
        run(&mut path, &mut now_us, 20, 1_472, 1_000);
        now_us += RECENT_US + VERIFY_US;
        path.on_hint(now_us, 1_400);
        path.on_report(now_us, 180, true, 0);
        assert_eq!(path.limit(), 1_372);
    }

    #[test]
    fn the_length_that_a_router_told_is_tried_first() {
        let (mut path, mut now_us) = (PathMtu::new(1_500, 28), 0);
        path.on_hint(now_us, 1_400);
        while path.bad.is_none() {
            path.poll_probe(now_us);
            path.on_report(now_us, 180, true, 0);
            now_us += 50_000;
        }
        assert_eq!(path.poll_probe(now_us), Some(1_372));
    }

    #[test]
    fn messages_that_differ_do_not_keep_a_probe_from_failing() {
        let (mut path, mut now_us) = (PathMtu::new(1_500, 28), 0);
        run(&mut path, &mut now_us, 20, 1_472, 1_000);
        for n in 0..8 {
            path.on_hint(now_us, 1_400 - n % 2);
            let end_us = now_us + 500_000;
            while now_us < end_us {
                path.poll_probe(now_us);
                path.on_report(now_us, 180, true, 0);
                now_us += 50_000;
            }
        }
        assert!(path.limit() <= 1_372, "{}", path.limit());
    }

    /// Polls a path from which nothing long arrives, with a report after each poll if `is_heard` is some, and
    /// tells whether its first probe failed.
    fn fails(polls: impl Iterator<Item = u64>, is_heard: Option<bool>) -> bool {
        let mut path = PathMtu::new(1_500, 28);
        for now_us in polls {
            path.poll_probe(now_us);
            if let Some(is_heard) = is_heard {
                (0..TRIES).for_each(|_| path.on_report(now_us, 0, is_heard, 0));
            }
        }
        // Nothing is known to arrive, so that repairs have a length that practically every path carries.
        assert_eq!(path.limit(), if path.bad.is_some() { BASE_MTU - 28 } else { 1_472 });
        path.bad.is_some()
    }

    #[test]
    fn a_probe_fails_after_enough_tries_reports_and_time() {
        let each = |pause_us: u64, end_us: u64| (0..=end_us / pause_us).map(move |n| n * pause_us);
        assert!(fails(each(50_000, FAILED_US), Some(true)));
        assert!(!fails(each(50_000, FAILED_US - 1), Some(true)), "it may still arrive");
        assert!(!fails(each(50_000, 4 * FAILED_US), None), "the peer says nothing");
        assert!(!fails(each(50_000, 4 * FAILED_US), Some(false)), "the peer does not hear us");
        assert!(!fails(each(FAILED_US, FAILED_US), Some(true)), "one probe may be lost");
    }
}
