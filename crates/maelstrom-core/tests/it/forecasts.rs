//! The controller against links of many kinds, in virtual time, as a table in git.
//!
//! The link, the window's decoder and the ingress are models; the virtual windows, the reports' times and the
//! controller are those of the gateway. A random code solves a batch of losses once as many repairs have
//! arrived, if no loss has left the window until then, so that the decoder only counts. Each stripe of a
//! window is a code of its own.

use std::collections::VecDeque;
use std::fmt::Write as _;

use loss::{Loss, LossModel};
use maelstrom_core::RepairRate;
use maelstrom_core::auto::LADDER;
use maelstrom_core::controller::{Controller, Shape, Situation, Targets};
use maelstrom_core::forecast::{AUTO_STRIPES_MAX, Forecast, Runs, Windows};
use maelstrom_core::wire::{LossReport, Report};

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots/auto.txt");

const SECOND: u64 = 1_000_000;
/// Packets per second, and the round trip with the time that a change needs at the egress.
const PACE: u64 = 50_000;
const RTT_US: u64 = 100_000;
const CHANGE_US: u64 = RTT_US + 5_000;
/// Bytes of a repair for each byte of a packet of 1,300 bytes.
const BYTES: f64 = 1.085;

/// A loss model from a time in seconds on, and another one whose losses are added.
type Segment = (f64, &'static str, &'static str);

/// A row of the table.
struct Row {
    name: &'static str,
    segments: Vec<Segment>,
    seconds: u64,
}

/// Counts of a run.
#[derive(Clone, Debug, Default)]
struct Outcome {
    packets: u64,
    /// Packets that stayed lost, by second.
    failed: Vec<u64>,
    repairs: u64,
    /// Rate in force at the end.
    rate: Option<RepairRate>,
    /// Time after each segment's begin at which the rate in force first rose.
    answers_us: Vec<Option<u64>>,
}

/// A receiver that counts.
#[derive(Default)]
struct Decoder {
    lost: VecDeque<u64>,
    matched: usize,
    solved: u64,
    failed: u64,
}

impl Decoder {
    fn expire(&mut self, now: u64, window: u64) {
        while self.lost.get(self.matched).is_some_and(|&at| at + window <= now) {
            self.failed += self.matched as u64 + 1;
            self.lost.drain(..=self.matched);
            self.matched = 0;
        }
    }

    fn on_lost(&mut self, now: u64, window: u64) {
        self.expire(now, window);
        self.lost.push_back(now);
    }

    fn on_repair(&mut self, now: u64, window: u64) {
        self.expire(now, window);
        if self.lost.is_empty() {
            return;
        }
        self.matched += 1;
        if self.matched == self.lost.len() {
            self.solved += self.matched as u64;
            self.lost.clear();
            self.matched = 0;
        }
    }
}

/// The decoders of a window's stripes.
#[derive(Default)]
struct Striped {
    decoders: [Decoder; AUTO_STRIPES_MAX as usize],
    /// Logarithm of the number of stripes.
    kind: u32,
    turn: usize,
}

impl Striped {
    fn of(&mut self, turn: usize) -> &mut Decoder {
        &mut self.decoders[turn % (1 << self.kind)]
    }

    /// A change keeps the losses and forgets the repairs that were for them.
    fn set_stripes(&mut self, stripes: u8) {
        if stripes.ilog2() == self.kind {
            return;
        }
        self.kind = stripes.ilog2();
        let mut lost: Vec<u64> = self.decoders.iter_mut().flat_map(|one| one.lost.drain(..)).collect();
        lost.sort_unstable();
        self.decoders.iter_mut().for_each(|one| one.matched = 0);
        lost.into_iter().for_each(|at| self.of(at as usize).lost.push_back(at));
    }

    fn on_lost(&mut self, now: u64, window: u64) {
        self.of(now as usize).on_lost(now, window);
    }

    fn on_repair(&mut self, now: u64, window: u64) {
        let turn = self.turn;
        self.of(turn).on_repair(now, window);
    }

    fn solved(&self) -> u64 {
        self.decoders.iter().map(|one| one.solved).sum()
    }

    fn failed(&self) -> u64 {
        self.decoders.iter().map(|one| one.failed).sum()
    }
}

/// The losses of one link.
struct Link {
    segments: Vec<Segment>,
    at: usize,
    losses: [Loss; 2],
    seed: u64,
}

impl Link {
    fn new(segments: &[Segment], seed: u64) -> Self {
        let none = LossModel::None.seeded(0);
        let mut link = Self { segments: segments.to_vec(), at: 0, losses: [none.clone(), none], seed };
        link.load();
        link
    }

    fn load(&mut self) {
        let (_, first, second) = self.segments[self.at];
        let seed = self.seed * 1_000 + self.at as u64 * 2;
        self.losses = [(first, seed), (second, seed + 1)]
            .map(|(model, seed)| model.parse::<LossModel>().unwrap().seeded(seed));
    }

    /// Number of the segment at this time.
    fn advance(&mut self, now_us: u64) -> usize {
        while self.segments.get(self.at + 1).is_some_and(|next| now_us as f64 >= next.0 * 1e6) {
            self.at += 1;
            self.load();
        }
        self.at
    }

    fn lose(&mut self) -> bool {
        let [first, second] = &mut self.losses;
        let lost = first.lose();
        second.lose() || lost
    }
}

/// One gateway pair.
struct World {
    windows: Windows,
    runs: Runs,
    decoder: Striped,
    controller: Controller,
    /// The rate that the repairs have, and changes that are on the way.
    rate: RepairRate,
    window: u64,
    coming: VecDeque<(u64, RepairRate, Shape)>,
    credit: u64,
    reported_us: u64,
    reported: (u64, u64, u32),
}

impl World {
    fn new(targets: Targets) -> Self {
        let controller = Controller::new(targets);
        Self {
            windows: Windows::new(),
            runs: Runs::default(),
            decoder: Striped::default(),
            rate: controller.decision().rate,
            window: 512,
            controller,
            coming: VecDeque::new(),
            credit: 0,
            reported_us: 0,
            reported: (0, 0, 0),
        }
    }

    /// Sends a packet and the repairs that are due with it; returns their number.
    fn step(&mut self, n: u64, link: &mut Link) -> u64 {
        if link.lose() {
            self.decoder.on_lost(n, self.window);
            self.windows.on_lost();
            self.runs.on_lost();
        } else {
            self.windows.on_arrived(1);
            self.runs.on_arrived(1);
        }
        self.credit += u64::from(self.rate.repairs());
        let (repairs, sources) =
            (self.credit / u64::from(self.rate.sources()), u64::from(self.rate.sources()));
        self.credit %= sources;
        for _ in 0..repairs {
            self.decoder.turn += 1;
            if !link.lose() {
                self.decoder.on_repair(n, self.window);
            }
        }
        repairs
    }

    /// Reports when the gateway would, and applies decisions when they take effect. Returns whether the rate
    /// rises.
    fn talk(&mut self, now_us: u64) -> bool {
        if self.is_report_due(now_us) {
            self.report(now_us);
        }
        let before = self.rate;
        while let Some((_, rate, shape)) = self.coming.pop_front_if(|(at_us, ..)| *at_us <= now_us) {
            // The rate keeps its share of a repair.
            self.credit = self.credit * u64::from(rate.sources()) / u64::from(self.rate.sources());
            (self.rate, self.window) = (rate, u64::from(shape.packets));
            self.decoder.set_stripes(shape.stripes);
        }
        self.rate > before
    }

    fn is_report_due(&self, now_us: u64) -> bool {
        let (packets, lost) = self.runs.totals();
        let since_us = now_us - self.reported_us;
        if lost == self.reported.1 {
            return since_us >= 250_000;
        }
        let plan = self.controller.plan();
        let index = plan.candidate().unwrap();
        let half =
            self.windows.span(index) * u64::from(plan.rate.repairs()) / u64::from(2 * plan.rate.sources());
        let fails =
            self.windows.backlog(index) > 4 + half || self.windows.tails()[index].failed != self.reported.2;
        since_us >= if fails && packets >= self.reported.0 + 32 { 10_000 } else { 100_000 }
    }

    fn report(&mut self, now_us: u64) {
        let (packets, lost) = self.runs.totals();
        let forecast = Forecast {
            packets: packets as u32,
            lost: lost as u32,
            fit: self.runs.fit(),
            burst: self.runs.longest() as u16,
            tails: self.windows.tails(),
        };
        let recovered = self.decoder.solved();
        let settled = recovered + self.decoder.failed();
        let loss = LossReport { named: packets, lost: settled, recovered, ..LossReport::NONE };
        let situation =
            Situation { rtt_us: Some(RTT_US), per_second: PACE, repair_bytes: 1_450, ..Situation::default() };
        let before = self.controller.plan();
        self.controller.on_report(now_us, &Report { loss, forecast, ..Report::default() }, situation);
        let plan = self.controller.plan();
        if plan != before {
            self.coming.push_back((now_us + CHANGE_US, plan.rate, plan.shape(plan.rate)));
        }
        self.windows.set_stripes(plan.stripes());
        self.windows.set_spans(plan.spans(PACE));
        let failed = plan.candidate().map_or(0, |index| self.windows.tails()[index].failed);
        (self.reported_us, self.reported) = (now_us, (packets, lost, failed));
    }
}

fn run(row: &Row, targets: Targets, seed: u64) -> Outcome {
    let (mut world, mut link) = (World::new(targets), Link::new(&row.segments, seed));
    let packets = row.seconds * PACE;
    let mut outcome = Outcome {
        packets,
        failed: vec![0; row.seconds as usize],
        answers_us: vec![None; row.segments.len()],
        ..Outcome::default()
    };
    for n in 0..packets {
        let now_us = n * SECOND / PACE;
        let segment = link.advance(now_us);
        let failed = world.decoder.failed();
        outcome.repairs += world.step(n, &mut link);
        // The timers of a gateway are as fine.
        if n % 8 == 0 && world.talk(now_us) {
            let begun_us = (row.segments[segment].0 * 1e6) as u64;
            outcome.answers_us[segment].get_or_insert(now_us - begun_us);
        }
        outcome.failed[(now_us / SECOND) as usize] += world.decoder.failed() - failed;
        if n % PACE == 0 {
            world.runs.begin_period();
        }
    }
    outcome.rate = Some(world.rate);
    outcome
}

/// Links that stay as they are, for `steady` seconds, and links that change.
fn rows(steady: u64) -> Vec<Row> {
    let models = [
        ("0.001 % uniform", "uniform:0.00001"),
        ("0.01 % uniform", "uniform:0.0001"),
        ("0.1 % uniform", "uniform:0.001"),
        ("1 % uniform", "uniform:0.01"),
        ("2 % uniform", "uniform:0.02"),
        ("5 % uniform", "uniform:0.05"),
        ("10 % uniform", "uniform:0.1"),
        ("0.1 % markov, mean 3", "markov:0.001:3"),
        ("1 % markov, mean 3", "markov:0.01:3"),
        ("1 % markov, mean 8", "markov:0.01:8"),
        ("1 % markov, mean 20", "markov:0.01:20"),
        ("0.1 % bursts of 20", "bursty:0.001:20"),
        ("1 % bursts of 20", "bursty:0.01:20"),
        ("1 % bursts of 40", "bursty:0.01:40"),
    ];
    let mut rows: Vec<Row> = models
        .map(|(name, model)| Row { name, segments: vec![(0.0, model, "none")], seconds: steady })
        .into();
    let mixed = vec![(0.0, "uniform:0.0001", "bursty:0.0002:40")];
    rows.push(Row { name: "0.01 %, and a burst of 40 each 4 s", segments: mixed, seconds: steady });
    let calm = "uniform:0.0001";
    let step = |name, model, seconds| Row {
        name,
        segments: vec![(0.0, calm, "none"), (10.0, model, "none"), (30.0, calm, "none")],
        seconds,
    };
    rows.push(step("step .01 -> 5 -> .01 %", "uniform:0.05", 110));
    rows.push(step("step .01 -> 1 -> .01 %", "uniform:0.01", 40));
    rows.push(step("step .01 -> 2 % mean 8 -> .01 %", "markov:0.02:8", 40));
    let ramp = ["0.0002", "0.0005", "0.001", "0.002", "0.004", "0.008", "0.015", "0.025", "0.035", "0.05"];
    let ramp = ramp.iter().zip(1_u8..).map(|(loss, number)| {
        let model: &'static str = format!("uniform:{loss}").leak();
        (5.0 * f64::from(number), model, "none")
    });
    let segments = [(0.0, calm, "none")].into_iter().chain(ramp).collect();
    rows.push(Row { name: "ramp .01 -> 5 % in 50 s", segments, seconds: 60 });
    let on_off = (0..3_u8).flat_map(|minute| {
        let begin = 30.0 * f64::from(minute);
        [(begin, calm, "none"), (begin + 25.0, "uniform:0.02", "none")]
    });
    rows.push(Row { name: "5 s of 2 % each 30 s", segments: on_off.collect(), seconds: 90 });
    rows
}

fn table(rows: &[Row], targets: Targets, seeds: u64) -> String {
    let mut text = format!(
        "The controller on simulated links: {PACE} packets per second, round trip {} ms, target {:e}, highest rate {}.\n\
         Residual in packets of a million: all, and after the first second. The answer is the time from a change of the\n\
         link until a higher rate is in force, and the packets of the changed link that stayed lost. {seeds} seed(s).\n\
         Made by `cargo test -p maelstrom-core --test it forecasts` with UPDATE_SNAPSHOTS=1.\n\n\
         {:<36} {:>9} {:>9} {:>9} {:>8} {:>6}  answer\n",
        RTT_US / 1_000,
        targets.residual,
        targets.rate_max,
        "link",
        "residual",
        "after 1 s",
        "repairs %",
        "bytes %",
        "rate"
    );
    for row in rows {
        for seed in 1..=seeds {
            let outcome = run(row, targets, seed);
            let million = 1e6 / outcome.packets as f64;
            let all: u64 = outcome.failed.iter().sum();
            let later: u64 = outcome.failed[1..].iter().sum();
            let repairs = 100.0 * outcome.repairs as f64 / outcome.packets as f64;
            let rate = outcome.rate.unwrap().to_string();
            let mut answer = String::new();
            for (number, (begin, ..)) in row.segments.iter().enumerate().skip(1) {
                let end = row.segments.get(number + 1).map_or(row.seconds as f64, |next| next.0);
                let lost: u64 = outcome.failed[*begin as usize..end as usize].iter().sum();
                if let Some(us) = outcome.answers_us[number] {
                    let _ = write!(answer, " {} ms, {lost} lost;", us / 1_000);
                }
            }
            let line = format!(
                "{:<36} {:>9.2} {:>9.2} {repairs:>9.2} {:>8.2} {rate:>6} {answer}",
                row.name,
                all as f64 * million,
                later as f64 * million,
                repairs * BYTES,
            );
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    text
}

#[test]
fn results_are_those_of_the_table() {
    let table = table(&rows(20), Targets::default(), 1);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::create_dir_all(std::path::Path::new(TABLE).parent().unwrap()).unwrap();
        std::fs::write(TABLE, &table).unwrap();
    }
    let expected = std::fs::read_to_string(TABLE).unwrap_or_default();
    assert!(table == expected, "results changed; now:\n{table}\nin {TABLE}:\n{expected}");
}

/// Prints the table of `docs/codes.md`.
#[test]
#[ignore = "takes minutes"]
fn table_of_longer_runs() {
    println!("{}", table(&rows(300), Targets::default(), 1));
}

/// Promises that hold in the table, whatever its numbers.
#[test]
fn steps_are_answered_within_a_round_trip_and_a_tenth_of_a_second() {
    let rows = rows(1);
    for name in ["step .01 -> 5 -> .01 %", "step .01 -> 2 % mean 8 -> .01 %", "5 s of 2 % each 30 s"] {
        let row = rows.iter().find(|row| row.name == name).unwrap();
        let row = Row { name, segments: row.segments.clone(), seconds: 28 };
        let outcome = run(&row, Targets::default(), 7);
        let answer_us = outcome.answers_us[1].unwrap();
        assert!(answer_us <= CHANGE_US + SECOND / 10 + 1_000, "{name}: {answer_us} us");
        let step = row.segments[1].0 as usize;
        assert_eq!(outcome.failed[..step].iter().sum::<u64>(), 0, "{name}: nothing stays lost before");
        assert_eq!(outcome.failed[step + 1..].iter().sum::<u64>(), 0, "{name}: nothing a second later");
    }
}

#[test]
fn the_highest_rate_holds_where_no_rate_suffices() {
    let row = Row { name: "", segments: vec![(0.0, "markov:0.05:20", "none")], seconds: 5 };
    for rate_max in ["1/8", "3/8"] {
        let rate_max: RepairRate = rate_max.parse().unwrap();
        let outcome = run(&row, Targets { rate_max, ..Targets::default() }, 3);
        let repairs = outcome.repairs as f64 / outcome.packets as f64;
        assert!(repairs <= rate_max.as_f64() + 1e-3, "{repairs} at {rate_max}");
        assert!(outcome.rate.unwrap() <= rate_max && outcome.rate.unwrap() >= LADDER[0]);
    }
}
