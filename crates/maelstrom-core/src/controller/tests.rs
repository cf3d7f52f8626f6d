mod amid;
mod memory;
mod slow;
mod useless;

use super::*;
use crate::findings::{Finding, Findings};
use crate::forecast::{RUNS, Runs, Windows};

const SECOND: u64 = 1_000_000;
const PACE: u64 = 10_000;

/// A link whose packets are counted as an ingress would, at [`PACE`] packets per second.
struct Link {
    windows: Windows,
    runs: Runs,
    loss: LossReport,
    now_us: u64,
    controller: Controller,
    situation: Situation,
    is_congested: bool,
    /// Whether losses are left to the senders.
    is_left: bool,
    is_standing: bool,
    /// Whether the far gateway injects what it recovers.
    is_recovering: bool,
    /// Whether it solves the other losses, and withholds them.
    is_withholding: bool,
    findings: Findings,
}

impl Link {
    fn new(targets: Targets) -> Self {
        let situation = Situation {
            rtt_us: Some(240_000),
            per_second: PACE,
            repair_bytes: 1_400,
            ..Situation::default()
        };
        let controller = Controller::new(targets);
        Self {
            windows: Windows::new(),
            runs: Runs::default(),
            loss: LossReport::NONE,
            now_us: 0,
            controller,
            situation,
            is_congested: false,
            is_left: false,
            is_standing: false,
            is_recovering: true,
            is_withholding: false,
            findings: Findings::default(),
        }
    }

    /// Sends a tenth of a second of packets, of which one in `every` starts a burst of `burst`; reports.
    /// `recovered` of ten losses come back.
    fn tenth(&mut self, every: u64, burst: u64, recovered: u64) -> Decision {
        for packet in 0..PACE / 10 {
            if every > 0 && packet % every < burst {
                if self.is_left {
                    self.windows.on_arrived(1);
                    self.runs.on_arrived(1);
                    self.loss.left += 1;
                } else {
                    self.windows.on_lost();
                    self.runs.on_lost();
                }
                self.loss.lost += 1;
                self.loss.bursts[LossReport::burst_bucket(burst)] += u64::from(packet % every == 0);
            } else {
                self.windows.on_arrived(1);
                self.runs.on_arrived(1);
            }
            self.loss.named += 1;
        }
        let lost = self.loss.lost - self.loss.left;
        self.loss.recovered = self.loss.recovered.max(lost * recovered / 10);
        if self.is_withholding {
            self.loss.withheld = lost - self.loss.recovered;
        }
        self.now_us += SECOND / 10;
        let report = self.report();
        self.controller.on_report(self.now_us, &report, self.situation);
        let plan = self.controller.plan();
        self.windows.set_stripes(plan.stripes());
        self.windows.set_spans(plan.spans(self.situation.per_second));
        *self.controller.decision()
    }

    fn report(&self) -> Report {
        let (packets, lost) = self.runs.totals();
        let forecast = Forecast {
            packets: packets as u32,
            lost: lost as u32,
            fit: self.runs.fit(),
            burst: self.runs.longest() as u16,
            tails: self.windows.tails(),
        };
        Report {
            loss: self.loss,
            forecast,
            is_congested: self.is_congested,
            is_standing: self.is_standing,
            is_recovering: self.is_recovering,
            findings: self.findings,
            ..Report::default()
        }
    }

    /// Another process takes the controller's place.
    fn hand_over(&mut self) {
        let mut next = Controller::new(self.controller.targets);
        assert!(next.recall(self.now_us, &self.controller.memory(), &self.report()));
        self.controller = next;
    }

    fn seconds(&mut self, seconds: u64, every: u64, burst: u64, recovered: u64) -> Decision {
        (0..10 * seconds).map(|_| self.tenth(every, burst, recovered)).last().unwrap()
    }
}

fn rate(text: &str) -> RepairRate {
    text.parse().unwrap()
}

#[test]
fn a_clean_link_gets_the_lowest_rate_once_enough_packets_have_shown_it() {
    let mut link = Link::new(Targets::default());
    assert_eq!((link.controller.decision().rate, link.controller.decision().limit), (START, Limit::Unknown));
    let decision = link.tenth(0, 0, 0);
    assert_eq!((decision.rate, decision.limit, decision.lower), (LADDER[0], Limit::Lowest, None));
    link.situation.floor = Some(rate("1/8"));
    let decision = link.tenth(0, 0, 0);
    assert_eq!((decision.rate, decision.limit), (rate("1/8"), Limit::Mtu));
}

#[test]
fn few_packets_are_no_reason_to_go_down() {
    let mut controller = Controller::new(Targets::default());
    let mut forecast = Forecast::default();
    for second in 0..70 {
        forecast.packets += 5;
        let report = Report { forecast, ..Report::default() };
        controller.on_report(second * SECOND, &report, Situation::default());
        let expected = if second < 60 { START } else { LADDER[0] };
        assert_eq!(controller.decision().rate, expected, "{second}");
    }
    // Without packets, nothing changes.
    let mut link = Link::new(Targets::default());
    let busy = link.seconds(2, 100, 10, 10);
    for second in 3..300 {
        link.controller.decide(second * SECOND, link.situation);
        if second > 70 {
            assert_eq!(link.controller.decision().rate, busy.rate);
        }
    }
}

/// A connection that follows a pause begins with a few packets, of which none may be lost.
#[test]
fn what_was_known_before_a_pause_holds_until_enough_packets_disprove_it() {
    let mut link = Link::new(Targets::default());
    let busy = link.seconds(70, 20, 1, 10);
    assert!(busy.rate > LADDER[0] && (busy.loss - 0.05).abs() < 1e-3, "{busy}");
    for packets in [50, 100, 200, 400] {
        link.now_us += 100 * SECOND;
        link.windows.on_arrived(packets);
        link.runs.on_arrived(packets);
        let report = link.report();
        link.controller.on_report(link.now_us, &report, link.situation);
        let decision = link.controller.decision();
        assert_eq!((decision.rate, decision.loss), (busy.rate, busy.loss), "after {packets} packets");
    }
    // A packet a second says enough in time.
    for second in 1..=61 {
        link.now_us += SECOND;
        link.windows.on_arrived(1);
        link.runs.on_arrived(1);
        let report = link.report();
        link.controller.on_report(link.now_us, &report, link.situation);
        let decision = link.controller.decision();
        let expected = if second < 60 { (busy.rate, busy.loss) } else { (LADDER[0], 0.0) };
        assert_eq!((decision.rate, decision.loss), expected, "after {second} seconds");
    }
}

#[test]
fn the_rate_rises_at_once_and_falls_after_a_minute() {
    let mut link = Link::new(Targets::default());
    link.seconds(5, 0, 0, 0);
    let worse = link.tenth(20, 1, 10);
    assert!(worse.rate >= rate("1/12") && worse.limit == Limit::Needed, "{worse}");
    let (lower, residual) = worse.lower.unwrap();
    assert!(lower < worse.rate && residual > 1e-5, "{worse}");
    let worse = link.seconds(10, 20, 1, 10);
    assert_eq!(link.seconds(50, 0, 0, 0).rate, worse.rate);
    assert_eq!(link.seconds(12, 0, 0, 0).rate, LADDER[0]);
}

#[test]
fn the_operator_bounds_the_rate() {
    let rate_max = rate("1/8");
    let mut link = Link::new(Targets { rate_max, ..Targets::default() });
    let decision = link.seconds(5, 1_000, 62, 10);
    assert_eq!((decision.rate, decision.limit), (rate_max, Limit::Highest));
    assert!(decision.residual > 1e-5);
    // 10,000 packets a second at 1/12 are 833 repairs of 1,400 bytes, or 9.3 Mbit/s.
    let targets = Targets { repair_bps_max: Some(10_000_000), ..Targets::default() };
    let decision = Link::new(targets).seconds(5, 1_000, 40, 10);
    assert_eq!((decision.rate, decision.limit), (rate("1/12"), Limit::Bandwidth));
    // A cap below the floor holds: such repairs are cut in two.
    let mut link = Link::new(Targets { rate_max: rate("1/24"), ..Targets::default() });
    link.situation.floor = Some(rate("1/8"));
    assert_eq!(link.tenth(0, 0, 0).rate, rate("1/24"));
}

#[test]
fn an_egress_with_another_code_before_begins_within_the_bounds() {
    for (floor, rate_max, expected) in
        [("1/40", "3/8", "1/8"), ("1/4", "3/8", "1/4"), ("1/4", "3/16", "3/16"), ("1/40", "1/16", "1/16")]
    {
        let mut controller = Controller::new(Targets { rate_max: rate(rate_max), ..Targets::default() });
        controller.begin_within(Situation { floor: Some(rate(floor)), ..Situation::default() });
        let &Decision { rate: begun, limit, window, .. } = controller.decision();
        assert_eq!((begun, limit, window), (rate(expected), Limit::Unknown, WINDOW), "{floor} to {rate_max}");
    }
}

#[test]
fn the_longest_burst_is_that_of_the_highest_rate_and_of_the_longest_window_so_far() {
    let targets = Targets { late_us: Some(200_000), ..Targets::default() };
    let mut link = Link::new(Targets::default());
    let decision = link.seconds(2, 0, 0, 0);
    assert_eq!((decision.rate, decision.longest_burst), (LADDER[0], 139));
    link.controller.set_targets(targets);
    assert_eq!(link.tenth(0, 0, 0).longest_burst, 279);
    // At night, few packets come in time.
    link.situation.per_second = 10;
    let decision = link.tenth(0, 0, 0);
    assert_eq!((decision.window, decision.longest_burst), (WINDOW, 279));
    link.controller.set_targets(Targets { rate_max: rate("1/8"), ..targets });
    assert_eq!(link.tenth(0, 0, 0).longest_burst, 56);
}

#[test]
fn the_longest_burst_is_that_of_the_rate_that_the_bit_rate_of_the_operator_pays_for() {
    let targets = Targets { repair_bps_max: Some(10_000_000), ..Targets::default() };
    let mut link = Link::new(targets);
    let quiet = Situation { per_second: 0, ..link.situation };
    link.controller.decide(0, quiet);
    assert_eq!(link.controller.decision().longest_burst, 0, "nothing is known before the first traffic");
    // 1/12, of windows of 512 packets.
    assert_eq!(link.seconds(2, 0, 0, 0).longest_burst, 39);
    link.controller.decide(link.now_us, quiet);
    assert_eq!(link.controller.decision().longest_burst, 39, "an hour without traffic");
    // Slower traffic may have more repairs for each packet.
    link.situation.per_second = PACE / 2;
    assert_eq!(link.tenth(0, 0, 0).longest_burst, 73);
    link.situation.per_second = PACE;
    assert_eq!(link.tenth(0, 0, 0).longest_burst, 39);
}

#[test]
fn bursts_that_no_rate_recovers_do_not_raise_it() {
    let mut link = Link::new(Targets::default());
    // Bursts of 400 defeat any window of 512 at 3/8. They are no full queue.
    let decision = link.seconds(3, 1_000, 400, 0);
    assert_eq!((decision.rate, decision.limit), (LADDER[0], Limit::Hopeless), "{decision}");
    let mut link = Link::new(Targets::default());
    let decision = link.tenth(1_000, 400, 10);
    assert_eq!((decision.rate, decision.limit), (LADDER[0], Limit::Hopeless), "{decision}");
}

#[test]
fn an_outage_neither_hides_scattered_losses_nor_makes_bursts_of_them() {
    // One packet in 20, and ten packets a second.
    for every in [20, 1_000] {
        let mut link = Link::new(Targets::default());
        let before = link.seconds(70, every, 1, 10);
        // All packets of three tenths of a second.
        (0..3).for_each(|_| _ = link.tenth(PACE, PACE, 0));
        let mut high = 0;
        for tenth in 0..300 {
            let after = link.tenth(every, 1, 10);
            assert!(after.rate >= before.rate, "tenth {tenth}: {after}");
            high += usize::from(index_of(after.rate) > index_of(before.rate) + 2);
        }
        // Losses are counted sooner than it is known which of them repairs would leave.
        assert!(high <= 3, "{high} tenths");
    }
}

#[test]
fn losses_that_are_left_at_the_lowest_rate_do_not_keep_it_from_rising() {
    let mut link = Link::new(Targets::default());
    link.seconds(2, 0, 0, 0);
    (link.is_left, link.is_congested) = (true, true);
    let decision = link.seconds(10, 20, 1, 0);
    assert_eq!((decision.rate, decision.limit), (LADDER[0], Limit::Lowest), "{decision}");
    // The queue has ebbed, and the link loses as many packets itself.
    (link.is_left, link.is_congested) = (false, false);
    let decision = (0..2).map(|_| link.tenth(20, 1, 10)).last().unwrap();
    assert!(decision.rate >= rate("1/12"), "{decision}");
}

#[test]
fn a_peer_that_states_any_counts_gets_a_rate_within_the_limits() {
    let mut random = testkit::Random(5);
    for residual in [1e-9, 1e-5, 0.1] {
        for (rate_max, repair_bps_max) in [("1/64", None), ("8/1", None), ("3/8", Some(1_000))] {
            let targets =
                Targets { residual, rate_max: rate(rate_max), repair_bps_max, ..Targets::default() };
            let (mut controller, mut now_us) = (Controller::new(targets), 0);
            controller.decide(now_us, Situation::default());
            for _ in 0..3_000 {
                let mut number = || random.draw() >> random.below(64);
                now_us += number() >> 30;
                let lost = number() >> 1;
                let left = number().min(lost);
                let mut forecast = Forecast {
                    packets: number() as u32,
                    lost: number() as u32,
                    burst: number() as u16,
                    ..Forecast::default()
                };
                (forecast.fit.packets, forecast.fit.lost) = (number() as u32, number() as u32);
                for tail in &mut forecast.tails {
                    (tail.half, tail.most, tail.failed) = (number() as u32, number() as u32, number() as u32);
                }
                let bursts = std::array::from_fn(|_| number());
                let loss = LossReport { named: lost + number() / 2, lost, left, bursts, ..LossReport::NONE };
                let (is_congested, is_standing) = (number() % 2 > 0, number() % 2 > 0);
                let report = Report { loss, forecast, is_congested, is_standing, ..Report::default() };
                let situation = Situation {
                    floor: [None, Some(rate("1/6"))][number() as usize % 2],
                    rtt_us: [None, Some(number() % 10_000_000)][number() as usize % 2],
                    per_second: number() >> 40,
                    repair_bytes: number() % 2_000,
                    repair_loss: (number() % 101) as f64 / 100.0,
                    ..Situation::default()
                };
                controller.on_report(now_us, &report, situation);
                let decision = *controller.decision();
                let most = targets.rate_max.max(LADDER[0]);
                assert!(decision.rate >= LADDER[0] && decision.rate <= most, "{decision}");
                assert!(decision.residual.is_finite() && decision.loss.is_finite(), "{decision:?}");
                let _ = controller.plan().spans(situation.per_second);
            }
        }
    }
}

#[test]
fn losses_that_counted_before_a_queue_was_known_are_forgotten() {
    for is_congested in [false, true] {
        let mut link = Link::new(Targets::default());
        assert!(link.seconds(1, 20, 4, 10).rate > rate("1/8"));
        link.is_congested = is_congested;
        if is_congested {
            link.runs.forget();
        }
        let decision = link.seconds(2, 0, 0, 10);
        assert_eq!(decision.rate == LADDER[0], is_congested, "{decision}");
    }
}

#[test]
fn a_few_losses_are_no_reason_to_go_down() {
    let mut link = Link::new(Targets::default());
    // 2,000 packets with 20 losses at regular intervals: no rate would have left any.
    for _ in 0..2 {
        let decision = link.tenth(100, 1, 10);
        assert_eq!((decision.rate, decision.limit), (START, Limit::Unknown), "{decision}");
    }
    // From 32 runs on, Gilbert's model tells what losses at random intervals would do.
    let decision = link.seconds(2, 100, 1, 10);
    assert_eq!((decision.rate, decision.limit), (rate("1/20"), Limit::Needed), "{decision}");
    // In 100,000 packets the rare batches would have come.
    let decision = link.seconds(8, 100, 1, 10);
    assert_eq!((decision.rate, decision.limit), (LADDER[0], Limit::Lowest), "{decision}");
}

#[test]
fn losses_of_slower_traffic_do_not_keep_the_rate_high() {
    let mut link = Link::new(Targets::default());
    link.situation.per_second = 500;
    // 30 packets pass until it is too late.
    let slow = link.seconds(10, 100, 1, 10);
    assert!(slow.rate >= rate("1/20"), "{slow}");
    link.situation.per_second = PACE;
    let fast = link.seconds(12, 100, 1, 10);
    assert_eq!(fast.rate, LADDER[0], "{fast}");
}

#[test]
fn a_quarter_of_the_round_trip_is_the_deadline_unless_it_is_stated() {
    let mut link = Link::new(Targets::default());
    link.tenth(0, 0, 0);
    assert_eq!(link.controller.plan().late_us, 60_000);
    link.controller.set_targets(Targets { late_us: Some(200_000), ..Targets::default() });
    assert_eq!(link.controller.plan().late_us, 200_000);
    assert_eq!(Controller::new(Targets::default()).plan().late_us, 0);
}

#[test]
fn reports_in_disorder_change_nothing_and_counts_that_begin_again_are_accepted() {
    let mut controller = Controller::new(Targets::default());
    let mut tell = |at: u64, packets: u32, lost: u32| {
        let forecast = Forecast { packets, lost, ..Forecast::default() };
        controller.on_report(at * SECOND, &Report { forecast, ..Report::default() }, Situation::default());
        controller.decision().loss
    };
    tell(1, 10_000, 100);
    tell(2, 5_000, 50);
    assert_eq!(tell(3, 20_000, 200), 0.01);
    for number in 1..=8 {
        assert_eq!(tell(3, number, number), 0.01);
    }
    tell(4, 9, 9);
    assert_eq!(tell(4, 10_009, 9), 200.0 / 30_000.0);
    controller.restart();
    assert_eq!(RUNS, 32);
}

/// The packets of a slow start that follows fast traffic have no time for the long windows that it had.
#[test]
fn traffic_too_slow_for_stripes_gets_the_rate_that_shorter_windows_need() {
    let mut link = Link::new(Targets::default());
    // A quarter of the round trip is 60 ms: time for 1,200 packets.
    link.situation.per_second = 20_000;
    let fast = link.seconds(30, 2_500, 40, 10);
    assert_eq!((fast.window, fast.stripes), (1_024, 2), "{fast}");
    assert!(fast.rate <= rate("1/16"), "{fast}");
    link.situation.per_second = 10_000;
    link.controller.decide(link.now_us, link.situation);
    let slow = *link.controller.decision();
    assert_eq!((slow.window, slow.stripes), (512, 1), "{slow}");
    assert!(slow.rate >= rate("1/8"), "{slow}");
}

#[test]
fn traffic_that_becomes_far_slower_gets_the_rate_that_its_few_packets_need() {
    let mut link = Link::new(Targets::default());
    let fast = link.seconds(20, 1_000, 10, 10);
    assert!(fast.rate < rate("1/4"), "{fast}");
    // A quarter of the round trip holds 30 packets: a burst of 10 needs as many repairs among them.
    link.situation.per_second = 500;
    link.controller.decide(link.now_us, link.situation);
    let slow = *link.controller.decision();
    assert!(slow.rate >= rate("3/8"), "{slow}");
    link.situation.per_second = PACE;
    link.controller.decide(link.now_us, link.situation);
    assert_eq!(link.controller.decision().rate, fast.rate);
}
