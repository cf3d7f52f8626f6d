//! Other protocols: Thesis Figure 4.2, Slingshot Figure 3.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::setting::{base, job};
use crate::fingerprint;
use crate::outcome::Panel;
use crate::plan::{Figure, Job, PanelPlan, Plan, Sample, Scale, Verdict};
use loss::LossModel;
use sim::Setting;
use sim::baseline::bimodal::Bimodal;
use sim::baseline::fec::{FecConfig, SenderFec};
use sim::baseline::srm::{Srm, SrmConfig, session_bytes};
use sim::baseline::world::{Fate, GROUP, HEAD, Run, WorldConfig, run};
use sim::cluster::HEADERS;

/// Labels. As in both papers, SRM has no session messages unless it is said: the next packet of its sender
/// reveals a loss.
const RECOVERED: [&str; 6] = [
    "SRM, discovery",
    "SRM, recovery",
    "SRM with session messages",
    "Bimodal Multicast",
    "sender's FEC",
    "Ricochet",
];
const SRM_FOUND: usize = 0;
const SRM_BACK: usize = 1;
const SRM_SESSION: usize = 2;
const BIMODAL: usize = 3;
const SENDER_FEC: usize = 4;
const RICOCHET: usize = 5;

/// Share of SRM's session messages in the bytes of data (Floyd et al. §II.A).
const SESSION_SHARE: f64 = 0.05;
/// Payload bytes of a packet, also where quick runs carry fewer.
const PAYLOAD: usize = 1_024;
/// Interval between rounds of Bimodal Multicast's gossip.
const GOSSIP_US: u64 = 100_000;
/// Rate of the sender's FEC: the r of Ricochet, and 2 repairs in 10 to a group where LEC sends 5 in 13, each
/// to one node.
const FEC: FecConfig = FecConfig { r: 8, c: 2 };

pub(super) fn figures() -> Vec<Figure> {
    vec![Figure::new("4.2", groups, judge_groups), Figure::new("slingshot-3", one_group, judge_one_group)]
}

/// One of the other protocols.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rival {
    Srm,
    SrmSession,
    Bimodal,
    SenderFec,
}

/// Returns the world of a setting, in which traffic goes on for `after_us` after the measured time.
fn world(setting: &Setting, after_us: u64) -> WorldConfig {
    let grouping = setting.grouping();
    let mut ids: Vec<_> = grouping.iter().flatten().copied().collect();
    ids.sort_unstable();
    ids.dedup();
    let number = |id| ids.binary_search(id).unwrap_or(0);
    WorldConfig {
        grouping: grouping.iter().map(|groups| groups.iter().map(number).collect()).collect(),
        packets_per_second: setting.rate * setting.nodes as f64 / (setting.group_size as f64 - 1.0),
        // In many groups nodes send at random, as in Ricochet's lab; in one group every 64 ms (Slingshot
        // §4.2).
        in_turn: setting.groups_per_node == 1,
        loss: LossModel::Uniform(0.01),
        delay_us: setting.delay_us,
        measured_us: (setting.seconds * 1e6) as u64,
        after_us,
        seed: setting.seed,
    }
}

/// Returns the interval between session messages of a member in microseconds, such that those of all members
/// have [`SESSION_SHARE`] of the bytes of their group's data. Each message lists all members.
fn session_us(members: u32, group_per_second: f64) -> u64 {
    let framed = |bytes: usize| (HEADERS + GROUP + bytes) as f64;
    let messages_each_packet =
        SESSION_SHARE * framed(HEAD + PAYLOAD) / framed(session_bytes(members as usize));
    (1e6 * f64::from(members) / (messages_each_packet * group_per_second)) as u64
}

fn run_rival(rival: Rival, world: &WorldConfig) -> Run {
    let groups = world.grouping.iter().flatten().max().map_or(1, |group| group + 1);
    let session_us = |members| session_us(members, world.packets_per_second / groups as f64);
    let srm = |session_us| SrmConfig::new(world.delay_us, session_us);
    match rival {
        Rival::Srm => run(world, |seat| Srm::new(srm(None), seat)),
        Rival::SrmSession => run(world, |seat| Srm::new(srm(Some(session_us(seat.members))), seat)),
        Rival::Bimodal => run(world, |seat| Bimodal::new(GOSSIP_US, seat)),
        Rival::SenderFec => run(world, |seat| SenderFec::new(FEC, seat)),
    }
}

pub(super) fn rival_job(
    rival: Rival,
    setting: &Setting,
    after_us: u64,
    read: impl Fn(&Run) -> Vec<Sample> + Send + Sync + 'static,
) -> Job {
    let setting = setting.clone();
    let behaviour = behaviour(setting.groups_per_node == 1);
    let setup = format!("{rival:?} {setting:?} {after_us} {behaviour:x}");
    Job::simulated(setup, move |seed| {
        Ok(read(&run_of(rival, &Setting { seed, ..setting.clone() }, after_us)))
    })
}

/// Returns the run of a setting. Some settings occur in several figures, and run once.
fn run_of(rival: Rival, setting: &Setting, after_us: u64) -> Arc<Run> {
    static KNOWN: Mutex<BTreeMap<String, Arc<Run>>> = Mutex::new(BTreeMap::new());
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let key = format!("{rival:?} {setting:?} {after_us}");
    if let Some(run) = known().get(&key) {
        return Arc::clone(run);
    }
    let run = Arc::new(run_rival(rival, &world(setting, after_us)));
    known().insert(key, Arc::clone(&run));
    run
}

/// Returns a number for what the protocols do in small runs, in one group in turn or in many at random.
fn behaviour(is_one_group: bool) -> u64 {
    static BEHAVIOUR: [OnceLock<u64>; 2] = [const { OnceLock::new() }; 2];
    let run = || {
        let (groups_per_node, group_size) = if is_one_group { (1, 8) } else { (4, 4) };
        let setting = Setting { nodes: 8, groups_per_node, group_size, seconds: 0.2, ..Setting::default() };
        let world = WorldConfig { loss: LossModel::Uniform(0.1), ..world(&setting, 1_000_000) };
        let rivals = [Rival::Srm, Rival::SrmSession, Rival::Bimodal, Rival::SenderFec];
        fingerprint::number(&format!("{:?}", rivals.map(|rival| run_rival(rival, &world))))
    };
    *BEHAVIOUR[usize::from(is_one_group)].get_or_init(run)
}

/// Returns the times from loss to `end` in milliseconds.
pub(super) fn waits(run: &Run, end: fn(&Fate) -> Option<u64>) -> Vec<f64> {
    run.fates.iter().filter_map(|fate| Some((end(fate)? - fate.missed_us) as f64 / 1e3)).collect()
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Returns how long a run goes on: a sender's packets to one group are 9 ms apart for each group of a node.
pub(super) fn after_us(scale: Scale, groups_per_node: usize) -> u64 {
    (groups_per_node as u64 * 9_000 * scale.pick(5, 10)).max(2_000_000)
}

fn groups(scale: Scale) -> Plan {
    let counts: &[usize] = scale.pick(&[2, 16, 128], &[2, 4, 8, 16, 32, 64, 128, 256]);
    let x = "groups that each node is in";
    let panels = vec![
        PanelPlan::new(x, "mean latency (ms)", RECOVERED).log_x().log_y(),
        PanelPlan::new(x, "recovered within the run (%)", RECOVERED).log_x(),
    ];
    let jobs = counts.iter().flat_map(|&d| {
        let setting = Setting { groups_per_node: d, ..base(scale) };
        let x = d as f64;
        let after_us = after_us(scale, d);
        let latency = move |series: usize, of: fn(&Fate) -> Option<u64>| {
            move |run: &Run| {
                let waits = waits(run, of);
                let share = 100.0 * waits.len() as f64 / run.fates.len().max(1) as f64;
                let mut samples = vec![Sample { panel: 1, series, x, y: share }];
                // Without recoveries there is no latency.
                if !waits.is_empty() {
                    samples.push(Sample { panel: 0, series, x, y: mean(&waits) });
                }
                samples
            }
        };
        let (found, back) =
            (latency(SRM_FOUND, |fate| fate.found_us), latency(SRM_BACK, |fate| fate.back_us));
        let srm = move |run: &Run| [found(run), back(run)].concat();
        vec![
            rival_job(Rival::Srm, &setting, after_us, srm),
            rival_job(Rival::SrmSession, &setting, after_us, latency(SRM_SESSION, |fate| fate.back_us)),
            rival_job(Rival::Bimodal, &setting, 2_000_000, latency(BIMODAL, |fate| fate.back_us)),
            rival_job(Rival::SenderFec, &setting, 2 * after_us, latency(SENDER_FEC, |fate| fate.back_us)),
            job(setting, move |figures| {
                let sample = |panel, y| Sample { panel, series: RICOCHET, x, y };
                vec![sample(0, figures.latency_ms.mean), sample(1, figures.recovered_percent)]
            }),
        ]
    });
    Plan { panels, jobs: jobs.collect() }
}

fn judge_groups(panels: &[Panel]) -> Verdict {
    let [latency, recovered] = panels else { unreachable!("two panels are planned") };
    let (latency, recovered) = (&latency.series, &recovered.series);
    let (found, ricochet) = (&latency[SRM_FOUND], &latency[RICOCHET]);
    let at_128 = |series: usize| latency[series].at(128.0);
    let times = found.at(128.0) / ricochet.at(128.0);
    // In proportion to the groups: eight times the groups are six to eleven times the wait.
    let linear = (6.0..11.0).contains(&(found.at(128.0) / found.at(16.0)))
        && (6.0..11.0).contains(&(found.at(16.0) / found.at(2.0)));
    let rivals = [SRM_BACK, SRM_SESSION, BIMODAL, SENDER_FEC];
    let first = rivals.iter().all(|&series| at_128(series) > 5.0 * ricochet.at(128.0));
    let by_session = at_128(SRM_SESSION) < at_128(SRM_BACK);
    Verdict::new(linear && times > 100.0 && first && by_session && recovered[RICOCHET].least() > 95.0)
        .number("times", times, 0)
        .number("srm_more", at_128(SRM_BACK) - found.at(128.0), 1)
        .number("session_times", at_128(SRM_SESSION) / ricochet.at(128.0), 0)
}

/// Shares of the losses in percent: one half, and that of Slingshot's own run (§4.2).
const HALF: f64 = 50.0;
const MOST: f64 = 97.5;
/// Ratio from which on two orders of magnitude are nearer than one.
const TWO_ORDERS: f64 = 32.0;
/// Least ratio that is more than chance.
const SEVERAL: f64 = 4.0;

/// Returns the places of the curves in milliseconds, eight for each doubling.
fn places() -> impl Iterator<Item = f64> {
    (-16..=96).map(|step| 2.0_f64.powf(f64::from(step) / 8.0))
}

fn curve(series: usize, waits: &[f64], lost: usize) -> Vec<Sample> {
    let share =
        |at: f64| 100.0 * waits.iter().filter(|&&wait| wait <= at).count() as f64 / lost.max(1) as f64;
    places().map(|x| Sample { panel: 0, series, x, y: share(x) }).collect()
}

/// Returns the places for set-ups, rounded because the last bit of a power depends on the system.
fn places_text() -> Vec<String> {
    places().map(|x| format!("{x:.3}")).collect()
}

fn one_group(scale: Scale) -> Plan {
    let setting =
        Setting { groups_per_node: 1, group_size: 64, seconds: scale.pick(2.0, 10.0), ..base(scale) };
    let panel =
        PanelPlan::new("time since the packet would have arrived (ms)", "share of losses (%)", RECOVERED)
            .log_x();
    let of = |series: usize, end: fn(&Fate) -> Option<u64>| {
        move |run: &Run| curve(series, &waits(run, end), run.fates.len())
    };
    let (found, back) = (of(SRM_FOUND, |fate| fate.found_us), of(SRM_BACK, |fate| fate.back_us));
    let jobs = vec![
        rival_job(Rival::Srm, &setting, 2_000_000, move |run| [found(run), back(run)].concat()),
        rival_job(Rival::SrmSession, &setting, 2_000_000, of(SRM_SESSION, |fate| fate.back_us)),
        rival_job(Rival::Bimodal, &setting, 2_000_000, of(BIMODAL, |fate| fate.back_us)),
        rival_job(Rival::SenderFec, &setting, 5_000_000, of(SENDER_FEC, |fate| fate.back_us)),
        job(setting, |figures| {
            let waits: Vec<f64> = figures.latencies_us.iter().map(|&us| us as f64 / 1e3).collect();
            curve(RICOCHET, &waits, figures.lost as usize)
        }),
    ];
    Plan { panels: vec![panel], jobs: jobs.into_iter().map(|job| job.decided_by(places_text())).collect() }
}

/// When each protocol has recovered a share of the losses.
struct Curves<'a>(&'a Panel);

impl Curves<'_> {
    /// Returns when this share is recovered, in milliseconds; infinite if it never is.
    fn ms(&self, series: usize, percent: f64) -> f64 {
        let reached = self.0.series[series].points.iter().find(|point| point.median >= percent);
        reached.map_or(f64::INFINITY, |point| point.x)
    }

    /// Returns the same in words.
    fn when(&self, series: usize, percent: f64) -> String {
        let ms = self.ms(series, percent);
        if ms.is_infinite() {
            return "never".to_owned();
        }
        if ms < 20.0 { format!("after {ms:.1} ms") } else { format!("after {ms:.0} ms") }
    }

    /// Returns how many times sooner than SRM Slingshot has this share; none where one of them never has it.
    fn times_sooner(&self, percent: f64) -> Option<f64> {
        let times = self.ms(SRM_BACK, percent) / self.ms(RICOCHET, percent);
        (times.is_finite() && times > 0.0).then_some(times)
    }

    /// Whether Slingshot has half of the losses sooner than any other protocol and two orders of magnitude
    /// sooner than SRM, which discovers them by their sender's next packet after 64 ms, and nearly all of
    /// them in the end.
    fn is_first(&self) -> bool {
        let half = |series: usize| self.ms(series, HALF);
        let rivals = [SRM_BACK, SRM_SESSION, BIMODAL, SENDER_FEC];
        rivals.iter().all(|&rival| half(rival) > 2.0 * half(RICOCHET))
            && self.times_sooner(HALF).is_some_and(|times| times > TWO_ORDERS)
            && (55.0..75.0).contains(&half(SRM_FOUND))
            && self.0.series[RICOCHET].last() > 97.0
    }
}

fn judge_one_group(panels: &[Panel]) -> Verdict {
    let curves = Curves(&panels[0]);
    let by_two_orders = curves.times_sooner(MOST).is_some_and(|times| times > TWO_ORDERS);
    let mut verdict = Verdict::new(curves.is_first() && by_two_orders)
        .with("half_found", curves.when(SRM_FOUND, HALF))
        .with("half_bimodal", curves.when(BIMODAL, HALF))
        .with("half_fec", curves.when(SENDER_FEC, HALF));
    for (name, percent) in [("half", HALF), ("most", MOST)] {
        let when = |series| curves.when(series, percent);
        verdict = verdict
            .with(format!("{name}_srm"), when(SRM_BACK))
            .with(format!("{name}_session"), when(SRM_SESSION))
            .with(format!("{name}_slingshot"), when(RICOCHET));
        if let Some(times) = curves.times_sooner(percent) {
            verdict = verdict.number(format!("{name}_times"), times, 0);
        }
    }
    verdict
}

/// The shape of Slingshot 3 here: half of the losses are recovered two orders of magnitude sooner than with
/// SRM, the source's share of them several times sooner.
pub(crate) fn half_is_far_sooner_and_the_rest_is_not(panels: &[Panel]) -> bool {
    let curves = Curves(&panels[0]);
    curves.is_first() && curves.times_sooner(MOST).is_some_and(|times| times > SEVERAL && times <= TWO_ORDERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_messages_have_a_twentieth_of_the_bytes_of_data() {
        // A message of ten members has 135 bytes and a packet 1,079: four messages for ten packets.
        let us = session_us(10, 10.0);
        assert!((2_490_000..2_510_000).contains(&us), "{us}");
        // With 64 members: one message for ten packets.
        let us = session_us(64, 1_000.0);
        assert!((660_000..680_000).contains(&us), "{us}");
    }

    #[test]
    fn protocols_do_otherwise_in_turn_than_at_random() {
        assert_ne!(behaviour(true), behaviour(false));
    }

    /// Panels as of 4.2, from each protocol's latency with 2, 16 and 128 groups.
    fn of_groups(latency: [[f64; 3]; 6]) -> bool {
        let points = latency.map(|[two, more, most]| [(2.0, two), (16.0, more), (128.0, most)]);
        let whole = [(2.0, 99.0), (16.0, 99.0), (128.0, 99.0)];
        let drawn: Vec<(&str, &[_])> = points.iter().map(|points| ("", &points[..])).collect();
        let recovered: Vec<(&str, &[_])> = points.iter().map(|_| ("", &whole[..])).collect();
        judge_groups(&[Panel::drawn(&drawn), Panel::drawn(&recovered)]).holds
    }

    #[test]
    fn a_verdict_fails_where_a_protocol_is_too_fast_or_does_not_grow_with_groups() {
        let usual = [
            [20.0, 160.0, 1_262.0],
            [20.3, 160.3, 1_262.3],
            [5.0, 40.0, 200.0],
            [90.0, 95.0, 97.0],
            [70.0, 560.0, 4_400.0],
            [2.0, 6.0, 7.5],
        ];
        let with = |series: usize, latency: [f64; 3]| {
            let mut all = usual;
            all[series] = latency;
            of_groups(all)
        };
        assert!(of_groups(usual));
        assert!(!with(SRM_FOUND, [20.0, 600.0, 1_262.0]), "not in proportion");
        assert!(!with(SRM_SESSION, [5.0, 10.0, 20.0]), "session messages almost as soon as Ricochet");
        assert!(!with(SRM_SESSION, [20.3, 160.3, 1_300.0]), "session messages that do not help");
        assert!(!with(BIMODAL, [5.0, 10.0, 20.0]), "gossip almost as soon");
        assert!(!with(RICOCHET, [2.0, 6.0, 15.0]), "Ricochet less than a hundred times sooner");
    }

    /// A panel as of Slingshot 3, from when each protocol has half of the lost and when it has nearly all,
    /// and how much it has in the end.
    fn in_one_group(times: [[f64; 2]; 6], end: f64) -> [Panel; 1] {
        let points = times.map(|[half, most]| [(half, 50.0), (most, MOST.min(end)), (5_000.0, end)]);
        let drawn: Vec<(&str, &[_])> = points.iter().map(|points| ("", &points[..])).collect();
        [Panel::drawn(&drawn)]
    }

    #[test]
    fn a_verdict_fails_where_slingshot_is_not_first() {
        let usual = [[64.0, 83.0], [64.0, 83.0], [15.0, 40.0], [76.0, 300.0], [256.0, 512.0], [1.1, 9.0]];
        // Whether it is as theirs, and whether it is as ours.
        let with = |series: usize, times: [f64; 2]| {
            let mut all = usual;
            all[series] = times;
            let panels = in_one_group(all, 98.5);
            (judge_one_group(&panels).holds, half_is_far_sooner_and_the_rest_is_not(&panels))
        };
        assert_eq!(with(RICOCHET, usual[RICOCHET]), (false, true), "ours");
        assert_eq!(with(RICOCHET, [1.1, 2.0]), (true, false), "two orders of magnitude");
        assert_eq!(with(RICOCHET, [3.0, 9.0]), (false, false), "half of it one order of magnitude sooner");
        assert_eq!(with(RICOCHET, [1.1, 30.0]), (false, false), "most of it hardly sooner than SRM");
        assert_eq!(with(SRM_SESSION, [2.0, 40.0]), (false, false), "session messages nearly as soon");
        assert_eq!(with(SRM_FOUND, [30.0, 70.0]), (false, false), "found before the sender's next turn");
    }

    #[test]
    fn a_share_that_is_never_reached_has_no_time() {
        let times = [[64.0, 83.0], [64.0, 83.0], [15.0, 40.0], [76.0, 300.0], [256.0, 512.0], [1.1, 9.0]];
        let panels = in_one_group(times, 97.2);
        let verdict = judge_one_group(&panels);
        assert!(!verdict.holds && !half_is_far_sooner_and_the_rest_is_not(&panels));
        assert_eq!(["most_srm", "most_slingshot"].map(|name| verdict.value(name)), [Some("never"); 2]);
        assert_eq!(verdict.value("most_times"), None);
        let verdict = judge_one_group(&in_one_group(times, 98.5));
        assert_eq!(verdict.value("half_slingshot"), Some("after 1.1 ms"));
        assert_eq!((verdict.value("half_times"), verdict.value("most_times")), (Some("58"), Some("9")));
    }
}
