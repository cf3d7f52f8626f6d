//! The acts whose loss changes: TCP sends through all of it, without gateways and with them.

use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Context as _, bail};
use loss::LossModel;
use netlab::traffic::{Progress, TcpTransfer, tcp_transfer};
use serde::Serialize;
use stage::gateways::between;
use undrop::interrupt::Interrupt;

use super::acts::{self, Plan};
use super::progress::Display;
use super::table::percent_text;
use crate::course::{Conductor, Course};
use crate::timeline::{Moment, Recorder, ratio};

/// Interval of the moments that are recorded, and number of intervals in a point of the picture.
const MOMENTS_US: u64 = 250_000;
const INTERVALS: usize = 2;
/// Factor by which the worst part loses more than the usual loss.
const WORSE: f64 = 5.0;
/// Greatest loss of the worst part.
const WORST: f64 = 0.2;

/// Both acts.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Changes {
    /// The loss, as on the command line.
    pub(super) course: String,
    /// Parts of the course: begin and end in seconds, and the share of packets that it loses at its end.
    pub(super) phases: Vec<Phase>,
    /// Without gateways.
    pub(super) alone: ActOverTime,
    /// With gateways.
    pub(super) masked: ActOverTime,
}

/// A part of the course.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Phase {
    pub(super) from_s: f64,
    pub(super) to_s: f64,
    pub(super) loss_rate: f64,
}

/// One act.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct ActOverTime {
    /// Payload received per second over the whole act.
    pub(super) goodput_mbps: f64,
    /// Bytes of repairs per hundred bytes of data over the whole act.
    pub(super) overhead_percent: f64,
    /// Half a second each.
    pub(super) points: Vec<Point>,
}

/// Half a second of an act.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Point {
    /// Seconds from the beginning to its end.
    pub(super) at_s: f64,
    /// Payload received per second.
    pub(super) goodput_mbps: f64,
    /// Packets that the link lost, per hundred that reached it.
    pub(super) link_loss_percent: f64,
    /// Packets that stayed lost for the hosts, per hundred. Gateways know it up to a second later.
    pub(super) host_loss_percent: f64,
    /// Bytes of repairs per hundred bytes of data.
    pub(super) overhead_percent: f64,
}

/// Returns the course of the acts: as given, or else by the usual loss. `None` if the loss does not change.
pub(super) fn course(given: Option<&Course>, usual: &LossModel, seconds: u64) -> Option<Course> {
    match given {
        Some(course) => (!course.is_constant()).then(|| course.clone()),
        None => {
            let models = [LossModel::None, usual.clone(), worse(usual), LossModel::None];
            Some(Course::of_equal_parts(&models, seconds * 1_000_000 / 2))
        }
    }
}

/// Returns a loss that is some times as great.
fn worse(usual: &LossModel) -> LossModel {
    let rate = (usual.rate() * WORSE).min(WORST);
    let same = match usual {
        LossModel::Bursty { burst, .. } => LossModel::bursty(rate, *burst).ok(),
        LossModel::Markov { mean_burst, .. } => LossModel::markov(rate, *mean_burst).ok(),
        _ => None,
    };
    same.unwrap_or(LossModel::Uniform(rate))
}

/// Returns the length of an act.
pub(super) fn length(plan: &Plan) -> Duration {
    plan.bulk_time * 2
}

/// Performs one act.
///
/// # Errors
/// If the sites cannot be built, a connection breaks, a gateway fails, or the user interrupts.
pub(super) fn perform(
    is_masked: bool,
    course: &Course,
    plan: &Plan,
    display: &mut Display,
    interrupt: &Interrupt,
) -> anyhow::Result<Vec<Moment>> {
    display.stage("building two sites");
    let sites = acts::build(course.first().clone(), plan, None)?;
    let pair = if is_masked {
        display.stage("starting gateways");
        Some(acts::start_gateways(&sites, plan)?)
    } else {
        None
    };
    interrupt.check()?;
    display.stage("bulk TCP");
    let mut conductor = Conductor::new(course, &sites.link);
    let mut recorder = Recorder::new(&sites.link, MOMENTS_US);
    let mut watch = |progress: Progress| {
        conductor.tick(progress.elapsed_us);
        recorder.tick(progress, pair.as_ref());
        display.tick(progress);
        if interrupt.is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let transfer = TcpTransfer {
        congestion: Some(plan.congestion.clone()),
        duration: length(plan),
        ..TcpTransfer::default()
    };
    let report = tcp_transfer(between(&sites), &transfer, &mut watch).context("during the bulk transfer")?;
    interrupt.check()?;
    if let Some(offset) = report.mismatch {
        bail!("expected the bytes that were sent, saw another one at {offset} of the bulk transfer");
    }
    if let Some(pair) = pair {
        display.stage("stopping gateways");
        pair.stop()?;
    }
    Ok(recorder.finish())
}

impl Changes {
    /// Returns both acts from their moments.
    pub(super) fn new(course: &Course, length: Duration, alone: &[Moment], masked: &[Moment]) -> Self {
        let end_us = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
        let begins = course.phases();
        let ends = begins.iter().skip(1).copied().chain([end_us.max(begins[begins.len() - 1])]);
        let phase = |(&from_us, to_us): (&u64, u64)| Phase {
            from_s: from_us as f64 / 1e6,
            to_s: to_us as f64 / 1e6,
            loss_rate: course.at(to_us.saturating_sub(1)).rate(),
        };
        Self {
            course: course.to_string(),
            phases: begins.iter().zip(ends).map(phase).collect(),
            alone: ActOverTime::of(alone, false),
            masked: ActOverTime::of(masked, true),
        }
    }
}

impl Phase {
    /// Returns the label for the picture.
    pub(super) fn label(self) -> String {
        if self.loss_rate == 0.0 {
            "no loss".to_owned()
        } else {
            format!("{} lost", percent_text(self.loss_rate))
        }
    }
}

impl ActOverTime {
    fn of(moments: &[Moment], is_masked: bool) -> Self {
        let (first, last) = (moments.first().copied(), moments.last().copied());
        let whole = last.unwrap_or_default().since(&first.unwrap_or_default());
        let pairs = moments.iter().step_by(INTERVALS).zip(moments.iter().skip(INTERVALS).step_by(INTERVALS));
        Self {
            goodput_mbps: ratio(whole.received_bytes * 8, whole.at_us),
            overhead_percent: whole.overhead() * 100.0,
            points: pairs.map(|(from, to)| Point::between(from, to, is_masked)).collect(),
        }
    }

    /// Returns the least and the greatest overhead of any half second with data.
    pub(super) fn overhead_ends(&self) -> (f64, f64) {
        let values =
            self.points.iter().filter(|point| point.goodput_mbps > 0.0).map(|point| point.overhead_percent);
        let ends = values
            .fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), value| (low.min(value), high.max(value)));
        if ends.0.is_finite() { ends } else { (0.0, 0.0) }
    }
}

impl Point {
    fn between(from: &Moment, to: &Moment, is_masked: bool) -> Self {
        let between = to.since(from);
        let link_loss = ratio(between.link_lost, between.offered);
        let host_loss = if is_masked {
            ratio(between.stayed_lost, between.settled)
        } else {
            ratio(between.dropped(), between.offered)
        };
        Self {
            at_s: to.at_us as f64 / 1e6,
            goodput_mbps: ratio(between.received_bytes * 8, between.at_us),
            link_loss_percent: link_loss * 100.0,
            host_loss_percent: host_loss * 100.0,
            overhead_percent: between.overhead() * 100.0,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An act of points with a time, a goodput and an overhead.
    pub(in super::super) fn course(points: &[(f64, f64, f64)]) -> ActOverTime {
        let count = points.len().max(1) as f64;
        let point = |&(at_s, goodput_mbps, overhead_percent): &(f64, f64, f64)| Point {
            at_s,
            goodput_mbps,
            overhead_percent,
            ..Point::default()
        };
        ActOverTime {
            goodput_mbps: points.iter().map(|point| point.1).sum::<f64>() / count,
            overhead_percent: points.iter().map(|point| point.2).sum::<f64>() / count,
            points: points.iter().map(point).collect(),
        }
    }

    fn moment(at_us: u64, received_bytes: u64, offered: u64, link_lost: u64) -> Moment {
        Moment {
            at_us,
            received_bytes,
            offered,
            link_lost,
            queue_full: link_lost,
            source_bytes: received_bytes,
            repair_bytes: received_bytes / 4,
            settled: offered,
            stayed_lost: link_lost / 10,
            ..Moment::default()
        }
    }

    #[test]
    fn points_are_differences_of_half_a_second() {
        let moments = [
            moment(0, 0, 0, 0),
            moment(250_000, 1_000, 10, 0),
            moment(500_000, 62_500, 100, 20),
            moment(750_000, 62_500, 150, 20),
            moment(1_000_000, 125_000, 200, 20),
        ];
        let masked = ActOverTime::of(&moments, true);
        assert!((masked.goodput_mbps - 1.0).abs() < 1e-9 && (masked.overhead_percent - 25.0).abs() < 1e-9);
        let [first, second] = masked.points[..] else { panic!("{:?}", masked.points) };
        assert!((first.goodput_mbps - 1.0).abs() < 1e-9, "{first:?}");
        assert!(
            (first.link_loss_percent - 20.0).abs() < 1e-9 && (first.host_loss_percent - 2.0).abs() < 1e-9
        );
        assert_eq!((second.link_loss_percent, second.at_s), (0.0, 1.0));
        let alone = ActOverTime::of(&moments, false);
        assert!((alone.points[0].host_loss_percent - 40.0).abs() < 1e-9, "queue drops are lost for hosts");
        assert!(ActOverTime::of(&[], true).points.is_empty());
    }

    #[test]
    fn the_loss_changes_by_default_and_not_at_all_if_asked() {
        let usual = LossModel::Bursty { rate: 0.01, burst: 10 };
        let course = super::course(None, &usual, 12).unwrap();
        assert_eq!(course.phases(), [0, 6_000_000, 12_000_000, 18_000_000]);
        assert_eq!(course.at(12_000_000), &LossModel::Bursty { rate: 0.05, burst: 10 });
        assert_eq!(worse(&LossModel::Uniform(0.1)), LossModel::Uniform(0.2));
        let given = |text: &str| super::course(Some(&text.parse().unwrap()), &usual, 12);
        assert!(given("none").is_none());
        assert_eq!(given("0s none, 1s uniform:5%").unwrap().phases().len(), 2);
    }

    #[test]
    fn phases_end_with_the_next_or_with_the_act() {
        let course: Course = "0s none, 4s uniform:5%".parse().unwrap();
        let changes = Changes::new(&course, Duration::from_secs(10), &[], &[]);
        let phase = |from_s, to_s, loss_rate| Phase { from_s, to_s, loss_rate };
        assert_eq!(changes.phases, [phase(0.0, 4.0, 0.0), phase(4.0, 10.0, 0.05)]);
        let labels: Vec<String> = changes.phases.iter().map(|phase| phase.label()).collect();
        assert_eq!(labels, ["no loss", "5 % lost"]);
    }
}
