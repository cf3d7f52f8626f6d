//! A decision in words: `1/16: 1.2 % lost in bursts of up to 3; 1/24 would leave 40 in a million`.

use std::fmt;

use super::{Decision, Limit};
use crate::caps::Refusal;
use crate::thinning::PART;

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.rate)?;
        if self.limit == Limit::Unknown {
            f.write_str("to begin with, until the peer has reported on more packets")?;
            return self.write_refusal(f);
        }
        self.write_loss(f)?;
        self.write_limit(f)?;
        if self.is_short {
            let terms = self.window.div_ceil(self.stripes.into());
            write!(f, "; repairs of {terms} packets, because the processor has no time for more")?;
        }
        if self.is_thin {
            write!(
                f,
                "; a queue on the way stands full, so that one packet in {PART} is named and none is repaired"
            )?;
        }
        self.write_refusal(f)
    }
}

impl Decision {
    fn write_limit(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((lower, residual)) = self.lower.filter(|_| self.limit == Limit::Needed) {
            return write!(f, "; {lower} would leave {}", PerMillion(residual));
        }
        match self.limit {
            Limit::Unknown | Limit::Needed => Ok(()),
            Limit::Lowest => f.write_str("; this is the lowest rate"),
            Limit::Mtu => f.write_str("; repairs at lower rates do not fit the MTU of the path"),
            Limit::Highest => {
                write!(f, "; leaves {}, and `overhead_max` allows no higher rate", PerMillion(self.residual))
            }
            Limit::Bandwidth => {
                write!(
                    f,
                    "; leaves {}, and `max_repair_rate` allows no higher rate",
                    PerMillion(self.residual)
                )
            }
            Limit::Hopeless => {
                f.write_str("; no rate recovers most of them, and higher ones recover little more")
            }
            Limit::Useless => {
                f.write_str("; repairs recovered less than half of them or did not arrive, so that fewer are sent for a while")
            }
        }
    }

    fn write_refusal(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Refusal { share, cap }) = self.refusal else { return Ok(()) };
        write!(
            f,
            "; {} of the repairs, names and answers are not sent, because `{}` allows no more",
            Percent(share),
            cap.key()
        )
    }

    fn write_loss(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.loss <= 0.0 {
            return f.write_str("nothing lost");
        }
        write!(f, "{} lost", Percent(self.loss))?;
        match self.burst {
            0 => Ok(()),
            1 => f.write_str(", one packet at a time"),
            burst => write!(f, " in bursts of up to {burst}"),
        }
    }
}

/// A share in percent, with two significant digits below 10 %.
pub(crate) struct Percent(pub(crate) f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = 100.0 * self.0;
        let digits = match percent {
            10.0.. => 0,
            1.0.. => 1,
            0.1.. => 2,
            0.01.. => 3,
            0.001.. => 4,
            _ => return f.write_str("less than 0.001 %"),
        };
        write!(f, "{percent:.digits$} %")
    }
}

/// A share of packets as a number in a million, or in percent.
struct PerMillion(f64);

impl fmt::Display for PerMillion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = 1e6 * self.0;
        match count {
            10_000.0.. => Percent(self.0).fmt(f),
            9.5.. => write!(f, "{count:.0} in a million"),
            0.95.. => write!(f, "{count:.1} in a million"),
            _ => f.write_str("less than 1 in a million"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caps::Cap;

    fn decision(rate: &str, limit: Limit) -> Decision {
        let lower = Some(("1/24".parse().unwrap(), 40e-6));
        Decision {
            rate: rate.parse().unwrap(),
            limit,
            loss: 0.0123,
            burst: 3,
            residual: 1.5e-6,
            lower,
            ..Decision::START
        }
    }

    #[test]
    fn a_decision_says_what_was_lost_and_what_a_lower_rate_would_leave() {
        let mut needed = decision("1/16", Limit::Needed);
        assert_eq!(
            needed.to_string(),
            "1/16: 1.2 % lost in bursts of up to 3; 1/24 would leave 40 in a million"
        );
        (needed.burst, needed.loss) = (1, 0.000_45);
        needed.lower = Some(("1/12".parse().unwrap(), 0.025));
        assert_eq!(needed.to_string(), "1/16: 0.045 % lost, one packet at a time; 1/12 would leave 2.5 %");
    }

    #[test]
    fn every_limit_is_a_sentence() {
        let cases = [
            (Limit::Unknown, "to begin with, until the peer has reported on more packets"),
            (Limit::Lowest, "1.2 % lost in bursts of up to 3; this is the lowest rate"),
            (Limit::Mtu, "do not fit the MTU of the path"),
            (Limit::Highest, "; leaves 1.5 in a million, and `overhead_max` allows no higher rate"),
            (Limit::Bandwidth, "`max_repair_rate` allows no higher rate"),
            (Limit::Hopeless, "; no rate recovers most of them"),
            (Limit::Useless, "; repairs recovered less than half of them"),
        ];
        for (limit, expected) in cases {
            let shown = decision("1/8", limit).to_string();
            assert!(shown.starts_with("1/8: ") && shown.contains(expected), "{shown}");
        }
        let short = Decision { is_short: true, window: 300, ..decision("1/8", Limit::Needed) }.to_string();
        assert!(
            short.ends_with("; repairs of 300 packets, because the processor has no time for more"),
            "{short}"
        );
        let thin = Decision { is_thin: true, ..decision("1/32", Limit::Useless) }.to_string();
        assert!(
            thin.ends_with("stands full, so that one packet in 16 is named and none is repaired"),
            "{thin}"
        );
        let refusal = Some(Refusal { share: 0.634, cap: Cap::BitRate });
        for limit in [Limit::Unknown, Limit::Lowest] {
            let capped = Decision { refusal, ..decision("1/32", limit) }.to_string();
            let said = "; 63 % of the repairs, names and answers are not sent, because `max_repair_rate` allows no more";
            assert!(capped.ends_with(said), "{capped}");
        }
        let clean = Decision { loss: 0.0, ..decision("1/32", Limit::Lowest) };
        assert_eq!(clean.to_string(), "1/32: nothing lost; this is the lowest rate");
    }
}
