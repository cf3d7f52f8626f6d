//! Models that decide which packets a link loses.
//!
//! | text | model |
//! |---|---|
//! | `none` | no loss |
//! | `uniform:P` | independent loss of each packet with probability P |
//! | `bursty:P:LENGTH` | bursts of exactly LENGTH consecutive packets at overall rate P, with random gaps |
//! | `markov:P:MEAN` | two states, one of which loses every packet; mean burst length MEAN, overall rate P |
//! | `gemodel:P:R:1-H:1-K` | Gilbert and Elliott's two states, as `tc qdisc add … netem loss gemodel` has them |
//! | `trace:FILE` | recorded losses, replayed in a loop (`trace.rs`) |
//!
//! A rate is a share (`0.01`) or a percentage (`1%`).
//!
//! `gemodel` has the probabilities of netem, in its order: P to go from the good state to the bad one after a
//! packet, R to go back, 1-H to lose a packet in the bad state, 1-K to lose one in the good state. As there,
//! those at the end may be left out: R is then 1 - P, 1-H is 1 (Gilbert's model), and 1-K is 0. The state at
//! a packet decides its fate, and changes afterwards; the first packet finds the good state.

use std::fmt;
use std::str::FromStr;

use crate::chance::{Dice, Probability};
use crate::error::LossError;
use crate::trace::{Replay, Trace};

/// A model of packet loss; [`LossModel::seeded`] makes a generator from it.
///
/// ```
/// use loss::LossModel;
/// let model: LossModel = "bursty:1%:20".parse().unwrap();
/// assert_eq!(model, LossModel::Bursty { rate: 0.01, burst: 20 });
/// assert_eq!(model.to_string(), "bursty:0.01:20");
/// let mut loss = model.seeded(7);
/// let lost = (0..1_000_000).filter(|_| loss.lose()).count();
/// assert!((9_000..11_000).contains(&lost));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub enum LossModel {
    /// No loss.
    #[default]
    None,
    /// Independent loss of each packet with this probability.
    Uniform(f64),
    /// Bursts of exactly `burst` packets; at least one packet passes between two bursts.
    Bursty {
        /// Share of all packets that are lost.
        rate: f64,
        /// Number of consecutive packets lost.
        burst: u32,
    },
    /// A two-state Markov chain (Gilbert's) whose bad state loses every packet.
    Markov {
        /// Share of all packets that are lost.
        rate: f64,
        /// Mean number of consecutive packets lost.
        mean_burst: f64,
    },
    /// Two states with a loss rate each (Gilbert and Elliott's), as netem has them.
    GilbertElliott {
        /// Probability P with which the good state ends after a packet.
        worsen: f64,
        /// Probability R with which the bad state ends after a packet.
        improve: f64,
        /// Share 1-H of the packets that the bad state loses.
        lost_bad: f64,
        /// Share 1-K of the packets that the good state loses.
        lost_good: f64,
    },
    /// A recording, replayed in a loop.
    Trace(Trace),
}

impl LossModel {
    /// Makes a model with bursts of exactly `burst` packets at overall loss rate `rate`.
    ///
    /// # Errors
    /// If the rate is not in 0..=1, the burst is 0, or such bursts cannot reach the rate.
    pub fn bursty(rate: f64, burst: u32) -> Result<Self, LossError> {
        check_rate(rate)?;
        if burst == 0 {
            return Err(LossError::Burst(burst.to_string()));
        }
        check_density(rate, f64::from(burst))?;
        Ok(Self::Bursty { rate, burst })
    }

    /// Makes a two-state chain with bursts of mean length `mean_burst` at overall loss rate `rate`.
    ///
    /// # Errors
    /// If the rate is not in 0..=1, the mean is below 1, or such bursts cannot reach the rate.
    pub fn markov(rate: f64, mean_burst: f64) -> Result<Self, LossError> {
        check_rate(rate)?;
        if !(1.0..=f64::MAX).contains(&mean_burst) {
            return Err(LossError::Burst(mean_burst.to_string()));
        }
        check_density(rate, mean_burst)?;
        Ok(Self::Markov { rate, mean_burst })
    }

    /// Makes a generator of losses; the same seed gives the same losses.
    pub fn seeded(&self, seed: u64) -> Loss {
        let mode = match self {
            Self::None => Mode::Chain(Chain::independent(0.0)),
            Self::Uniform(rate) => Mode::Chain(Chain::independent(*rate)),
            Self::Bursty { rate, burst } => Mode::Bursts {
                start: Probability::new(start_share(*rate, f64::from(*burst))),
                burst: *burst,
                left: 0,
                passed: true,
            },
            Self::Markov { rate, mean_burst } => Mode::Chain(Chain {
                lost: Probability::new(start_share(*rate, *mean_burst)),
                lost_again: Probability::new(1.0 - 1.0 / mean_burst),
                losing: false,
            }),
            Self::GilbertElliott { worsen, improve, lost_bad, lost_good } => Mode::States {
                change: [Probability::new(*worsen), Probability::new(*improve)],
                lost: [Probability::new(*lost_good), Probability::new(*lost_bad)],
                bad: false,
            },
            Self::Trace(trace) => Mode::Trace(trace.replay()),
        };
        Loss { mode, dice: Dice::new(seed) }
    }

    /// Returns the share of packets lost in the long run.
    pub fn rate(&self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Uniform(rate) | Self::Bursty { rate, .. } | Self::Markov { rate, .. } => *rate,
            Self::GilbertElliott { worsen, improve, lost_bad, lost_good } => {
                // With P = 0 the good state never ends.
                let bad = if *worsen == 0.0 { 0.0 } else { worsen / (worsen + improve) };
                bad * lost_bad + (1.0 - bad) * lost_good
            }
            Self::Trace(trace) => trace.rate(),
        }
    }
}

/// Returns the probability with which each packet after the first ends a gap between bursts. A gap has at
/// least one packet, so its mean is `burst * (1 - rate) / rate` packets, and the share of lost packets is
/// `rate`.
pub fn start_share(rate: f64, burst: f64) -> f64 {
    rate / (burst * (1.0 - rate))
}

fn check_rate(rate: f64) -> Result<(), LossError> {
    if (0.0..=1.0).contains(&rate) { Ok(()) } else { Err(LossError::Rate(rate.to_string())) }
}

fn check_density(rate: f64, burst: f64) -> Result<(), LossError> {
    let limit = burst / (burst + 1.0);
    if rate <= limit {
        return Ok(());
    }
    Err(LossError::TooDense { burst: burst.to_string(), rate: rate.to_string(), limit })
}

/// Generator of losses; call it once for each packet, in order.
#[derive(Clone, Debug)]
pub struct Loss {
    mode: Mode,
    dice: Dice,
}

#[derive(Clone, Debug)]
enum Mode {
    Chain(Chain),
    /// `left` more packets of this burst will be lost. `passed` means that a packet has passed since the last
    /// burst.
    Bursts {
        start: Probability,
        burst: u32,
        left: u32,
        passed: bool,
    },
    /// The good state has index 0, the bad one index 1.
    States {
        change: [Probability; 2],
        lost: [Probability; 2],
        bad: bool,
    },
    Trace(Replay),
}

/// A chain in which the probability of loss depends on the fate of the packet before.
#[derive(Clone, Debug)]
struct Chain {
    lost: Probability,
    lost_again: Probability,
    losing: bool,
}

impl Chain {
    fn independent(rate: f64) -> Self {
        let lost = Probability::new(rate);
        Self { lost, lost_again: lost, losing: false }
    }
}

impl Loss {
    /// Decides the fate of the next packet; returns whether it is lost.
    pub fn lose(&mut self) -> bool {
        match &mut self.mode {
            Mode::Chain(chain) => {
                chain.losing = self.dice.happens(if chain.losing { chain.lost_again } else { chain.lost });
                chain.losing
            }
            Mode::Bursts { start, burst, left, passed } => {
                if *left == 0 {
                    if !*passed || !self.dice.happens(*start) {
                        *passed = true;
                        return false;
                    }
                    (*left, *passed) = (*burst, false);
                }
                *left -= 1;
                true
            }
            Mode::States { change, lost, bad } => {
                let state = usize::from(*bad);
                *bad ^= self.dice.happens(change[state]);
                self.dice.happens(lost[state])
            }
            Mode::Trace(replay) => replay.lose(),
        }
    }
}

impl FromStr for LossModel {
    type Err = LossError;

    fn from_str(text: &str) -> Result<Self, LossError> {
        let unknown = || LossError::UnknownModel(text.to_owned());
        if text == "none" {
            return Ok(Self::None);
        }
        let (name, arguments) = text.split_once(':').ok_or_else(unknown)?;
        match name {
            "uniform" => Ok(Self::Uniform(parse_rate(arguments)?)),
            "bursty" => {
                let (rate, burst) = split_burst(arguments)?;
                Self::bursty(rate, burst.parse().map_err(|_| LossError::Burst(burst.to_owned()))?)
            }
            "markov" => {
                let (rate, burst) = split_burst(arguments)?;
                Self::markov(rate, burst.parse().map_err(|_| LossError::Burst(burst.to_owned()))?)
            }
            "gemodel" => parse_states(arguments),
            "trace" => Ok(Self::Trace(Trace::read(arguments)?)),
            _ => Err(unknown()),
        }
    }
}

fn split_burst(arguments: &str) -> Result<(f64, &str), LossError> {
    let (rate, burst) = arguments.split_once(':').ok_or_else(|| LossError::Burst(String::new()))?;
    Ok((parse_rate(rate)?, burst))
}

/// Parses the probabilities of the model of Gilbert and Elliott.
fn parse_states(arguments: &str) -> Result<LossModel, LossError> {
    let given = arguments.split(':').map(parse_rate).collect::<Result<Vec<_>, _>>()?;
    let &[worsen, ref others @ ..] = &given[..] else {
        return Err(LossError::Probabilities(arguments.to_owned()));
    };
    if others.len() > 3 {
        return Err(LossError::Probabilities(arguments.to_owned()));
    }
    let other = |at: usize, usual: f64| others.get(at).copied().unwrap_or(usual);
    Ok(LossModel::GilbertElliott {
        worsen,
        improve: other(0, 1.0 - worsen),
        lost_bad: other(1, 1.0),
        lost_good: other(2, 0.0),
    })
}

/// Parses a share of packets: `0.01` or `1%`, from 0 to 1.
///
/// # Errors
/// [`LossError::Rate`] for anything else.
pub fn parse_rate(text: &str) -> Result<f64, LossError> {
    let wrong = || LossError::Rate(text.to_owned());
    let rate = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().map_err(|_| wrong())? / 100.0,
        None => text.parse().map_err(|_| wrong())?,
    };
    check_rate(rate).map_err(|_| wrong())?;
    Ok(rate)
}

impl fmt::Display for LossModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => write!(f, "none"),
            Self::Uniform(rate) => write!(f, "uniform:{rate}"),
            Self::Bursty { rate, burst } => write!(f, "bursty:{rate}:{burst}"),
            Self::Markov { rate, mean_burst } => write!(f, "markov:{rate}:{mean_burst}"),
            Self::GilbertElliott { worsen, improve, lost_bad, lost_good } => {
                write!(f, "gemodel:{worsen}:{improve}:{lost_bad}:{lost_good}")
            }
            Self::Trace(trace) => write!(f, "trace:{}", trace.path().display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lengths of the runs of lost packets, and the number of lost packets.
    fn runs(model: &LossModel, seed: u64, packets: usize) -> (Vec<usize>, usize) {
        let mut loss = model.seeded(seed);
        let fates: Vec<bool> = (0..packets).map(|_| loss.lose()).collect();
        let lost = fates.iter().filter(|&&lost| lost).count();
        (fates.split(|&lost| !lost).map(<[bool]>::len).filter(|&n| n > 0).collect(), lost)
    }

    fn share(part: usize, whole: usize) -> f64 {
        f64::from(u32::try_from(part).unwrap()) / f64::from(u32::try_from(whole).unwrap())
    }

    #[test]
    fn uniform_loss_has_its_rate_and_geometric_runs() {
        const N: usize = 2_000_000;
        for (seed, rate) in [(1, 0.001), (2, 0.01), (3, 0.05), (4, 0.3)] {
            let (runs, lost) = runs(&LossModel::Uniform(rate), seed, N);
            // Five standard deviations of a binomial.
            let tolerance = 5.0 * (rate * (1.0 - rate) / 2e6).sqrt();
            assert!((share(lost, N) - rate).abs() < tolerance, "{rate}: {}", share(lost, N));
            let mean_run = share(lost, runs.len());
            assert!((mean_run * (1.0 - rate) - 1.0).abs() < 0.05, "{rate}: {mean_run}");
        }
    }

    #[test]
    fn bursty_loss_has_its_rate_and_a_single_burst_length() {
        const N: usize = 4_000_000;
        for (rate, burst) in [(0.01, 1), (0.01, 10), (0.01, 40), (0.05, 20), (0.5, 3), (0.75, 3)] {
            let (mut runs, lost) = runs(&LossModel::bursty(rate, burst).unwrap(), 5, N);
            runs.pop(); // the last burst may be cut short
            assert!(runs.iter().all(|&n| n == usize::try_from(burst).unwrap()), "{rate}:{burst}");
            assert!((share(lost, N) / rate - 1.0).abs() < 0.1, "{rate}:{burst}: {}", share(lost, N));
        }
    }

    #[test]
    fn markov_loss_has_its_mean_burst_and_rate() {
        const N: usize = 4_000_000;
        for (rate, mean) in [(0.01, 1.5), (0.01, 10.0), (0.02, 40.0), (0.3, 5.0)] {
            let (runs, lost) = runs(&LossModel::markov(rate, mean).unwrap(), 6, N);
            assert!((share(lost, N) / rate - 1.0).abs() < 0.1, "{rate}:{mean}: {}", share(lost, N));
            let measured = share(lost, runs.len());
            assert!((measured / mean - 1.0).abs() < 0.1, "{rate}:{mean}: {measured}");
            let longer = share(runs.iter().filter(|&&n| n > 1).count(), runs.len());
            assert!((longer - (1.0 - 1.0 / mean)).abs() < 0.05, "burst lengths are not geometric: {longer}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(32))]

        #[test]
        fn a_link_of_two_states_has_its_rate_and_its_text(
            worsen in 0.005..0.5_f64, improve in 0.05..1.0_f64, lost_bad in 0.0..=1.0_f64, lost_good in 0.0..=1.0_f64,
            seed: u64,
        ) {
            const N: usize = 400_000;
            let model = LossModel::GilbertElliott { worsen, improve, lost_bad, lost_good };
            proptest::prop_assert_eq!(model.to_string().parse::<LossModel>(), Ok(model.clone()));
            let (_, lost) = runs(&model, seed, N);
            let rate = model.rate();
            // States last: neighbours have the same fate more often, so that fewer packets count.
            let memory = (2.0 - worsen - improve) / (worsen + improve) + 1.0;
            let tolerance = 6.0 * (rate * (1.0 - rate) * memory / 4e5).sqrt() + 1e-4;
            proptest::prop_assert!((share(lost, N) - rate).abs() < tolerance, "{} of {rate}", share(lost, N));
        }

        #[test]
        fn without_a_share_of_its_own_the_bad_state_loses_all(worsen in 0.005..0.3_f64, improve in 0.05..0.9_f64, seed: u64) {
            const N: usize = 400_000;
            let model: LossModel = format!("gemodel:{worsen}:{improve}").parse().unwrap();
            let (runs, lost) = runs(&model, seed, N);
            let mean = share(lost, runs.len());
            proptest::prop_assert!((mean * improve - 1.0).abs() < 0.15, "{mean} for {improve}");
        }
    }

    #[test]
    fn two_states_are_written_as_in_netem() {
        for (text, [worsen, improve, lost_bad, lost_good]) in [
            ("gemodel:1%:10%:70%:0.1%", [0.01, 0.1, 0.7, 0.001]),
            ("gemodel:1%:10%:70%", [0.01, 0.1, 0.7, 0.0]),
            ("gemodel:0.01:0.1", [0.01, 0.1, 1.0, 0.0]),
            ("gemodel:0.25", [0.25, 0.75, 1.0, 0.0]),
        ] {
            let expected = LossModel::GilbertElliott { worsen, improve, lost_bad, lost_good };
            assert_eq!(text.parse::<LossModel>().unwrap(), expected, "{text}");
        }
        // A good state that never ends, and states that take turns.
        assert_eq!(runs(&"gemodel:0:0:1:0".parse().unwrap(), 1, 10_000).1, 0);
        assert_eq!(runs(&"gemodel:1:1:1:0".parse().unwrap(), 1, 10_000), (vec![1; 5_000], 5_000));
    }

    #[test]
    fn rates_of_zero_and_one_are_exact() {
        assert_eq!(runs(&LossModel::None, 1, 10_000).1, 0);
        assert_eq!(runs(&LossModel::Uniform(0.0), 1, 10_000).1, 0);
        assert_eq!(runs(&LossModel::Uniform(1.0), 1, 10_000).1, 10_000);
        assert_eq!(runs(&LossModel::bursty(0.0, 5).unwrap(), 1, 10_000).1, 0);
    }

    #[test]
    fn losses_depend_on_the_seed_alone() {
        let fates = |seed| {
            let mut loss = LossModel::markov(0.1, 3.0).unwrap().seeded(seed);
            (0..1000).map(|_| loss.lose()).collect::<Vec<_>>()
        };
        assert_eq!(fates(1), fates(1));
        assert_ne!(fates(1), fates(2));
    }

    #[test]
    fn a_displayed_model_parses_to_itself() {
        for text in ["none", "uniform:0.01", "uniform:1", "bursty:0.001:25", "markov:0.02:7.5"] {
            let model: LossModel = text.parse().unwrap();
            assert_eq!(model.to_string(), text);
        }
        assert_eq!("uniform:0.1%".parse::<LossModel>().unwrap(), LossModel::Uniform(0.001));
    }

    #[test]
    fn a_wrong_text_is_refused_with_expected_and_seen() {
        for (text, needle) in [
            ("", "uniform:P"),
            ("gauss:1", "\"gauss:1\""),
            ("uniform", "\"uniform\""),
            ("uniform:", "0 to 1"),
            ("uniform:1.5", "\"1.5\""),
            ("uniform:-0.1", "\"-0.1\""),
            ("uniform:NaN", "\"NaN\""),
            ("uniform:101%", "\"101%\""),
            ("bursty:0.01", "burst length"),
            ("bursty:0.01:0", "\"0\""),
            ("bursty:0.01:2.5", "\"2.5\""),
            ("bursty:0.9:2", "0.6667"),
            ("markov:0.01:0.5", "\"0.5\""),
            ("markov:0.01:inf", "\"inf\""),
            ("markov:0.9:1", "0.5000"),
            ("gemodel:", "0 to 1"),
            ("gemodel:1.1", "\"1.1\""),
            ("gemodel:0.1:0.1:1:0:0", "1 to 4 probabilities"),
            ("trace:/no/such/file", "/no/such/file"),
        ] {
            let error = text.parse::<LossModel>().unwrap_err().to_string();
            assert!(error.contains(needle), "{text:?}: {error}");
        }
    }
}
