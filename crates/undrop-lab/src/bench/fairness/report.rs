//! Figures of the runs, and their tables.

use std::fmt;
use std::str::FromStr;

use serde_json::{Value, json};

use crate::bench::rig;

/// Traffic of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mix {
    /// Two protected flows and two bare ones.
    TwoAndTwo,
    /// One protected flow.
    Lone,
    /// Four protected flows.
    Four,
    /// A stream of this part of the rate, in percent.
    Stream(u8),
}

impl Mix {
    const ALL: [(&'static str, Self); 5] = [
        ("2+2", Self::TwoAndTwo),
        ("lone", Self::Lone),
        ("four", Self::Four),
        ("udp90", Self::Stream(90)),
        ("udp110", Self::Stream(110)),
    ];

    /// Number of protected flows, and of bare ones.
    pub(super) fn flows(self) -> [usize; 2] {
        match self {
            Self::TwoAndTwo => [2, 2],
            Self::Lone => [1, 0],
            Self::Four => [4, 0],
            Self::Stream(_) => [0, 0],
        }
    }

    pub(super) fn load(self) -> Option<f64> {
        if let Self::Stream(percent) = self { Some(f64::from(percent) / 100.0) } else { None }
    }

    pub(super) fn is_stream(self) -> bool {
        self.load().is_some()
    }

    /// Whether the link may lose packets at random. Four flows show congestion alone.
    pub(super) fn has_losses(self) -> bool {
        matches!(self, Self::TwoAndTwo | Self::Lone)
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|(name, _)| *name == text);
        let names = Self::ALL.map(|(name, _)| name).join(", ");
        found.map(|(_, mix)| mix).ok_or_else(|| format!("expected one of {names}, saw {text:?}"))
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.into_iter().find(|(_, mix)| mix == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

/// Figures of one run.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) protected_mbps: f64,
    pub(super) bare_mbps: f64,
    /// Packets that the queue dropped.
    pub(super) dropped: u64,
    pub(super) probes_lost_percent: f64,
    /// Packets of a constant stream that were lost.
    pub(super) lost_percent: Option<f64>,
    /// Repairs per hundred packets in the second half of the run; `None` without gateways.
    pub(super) repairs_percent: Option<f64>,
    pub(super) recovered: u64,
    pub(super) left: u64,
    pub(super) marked: u64,
    /// Sentences of the status: about congestion, and about the rate.
    pub(super) verdict: String,
    pub(super) choice: String,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { protected_mbps, bare_mbps, dropped, probes_lost_percent, .. } = self;
        write!(f, "protected {protected_mbps:.2}, bare {bare_mbps:.2} Mbit/s, {dropped} dropped, ")?;
        write!(f, "{probes_lost_percent:.1} % of probes lost")?;
        if let Some(lost) = self.lost_percent {
            write!(f, ", {lost:.2} % lost")?;
        }
        if let Some(repairs) = self.repairs_percent {
            let Self { recovered, left, marked, .. } = self;
            write!(f, ", repairs {repairs:.1} %, {recovered} recovered, {left} left, {marked} marked; ")?;
            write!(f, "{}; {}", self.verdict, self.choice)?;
        }
        Ok(())
    }
}

/// The runs of one cell.
#[derive(Clone, Debug)]
pub(super) struct Row {
    queue: u64,
    mix: Mix,
    congestion: String,
    loss: String,
    /// Runs without gateways, and with them.
    runs: [Vec<Outcome>; 2],
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} KB, loss {}", self.mix, self.congestion, self.queue / 1_000, self.loss)
    }
}

impl Row {
    pub(super) fn new(queue: u64, mix: Mix, congestion: &str, loss: &str) -> Self {
        Self {
            queue,
            mix,
            congestion: congestion.to_owned(),
            loss: loss.to_owned(),
            runs: Default::default(),
        }
    }

    pub(super) fn add(&mut self, with_gateways: bool, outcome: Outcome) {
        self.runs[usize::from(with_gateways)].push(outcome);
    }

    /// Medians without gateways and with them; `None` if a figure is not measured.
    fn medians(&self, read: impl Fn(&Outcome) -> Option<f64>) -> Option<[f64; 2]> {
        let median = |runs: &[Outcome]| {
            let figures = runs.iter().map(&read).collect::<Option<Vec<_>>>()?;
            Some(rig::spread(figures).0)
        };
        Some([median(&self.runs[0])?, median(&self.runs[1])?])
    }

    /// Median of the runs with gateways.
    fn with(&self, read: impl Fn(&Outcome) -> f64) -> f64 {
        rig::spread(self.runs[1].iter().map(read).collect()).0
    }

    fn markdown(&self) -> String {
        let pair = |figures: Option<[f64; 2]>, digits: usize| match figures {
            Some([without, with]) => format!("{without:.digits$} → {with:.digits$}"),
            None => String::new(),
        };
        let share = |figures: Option<[f64; 2]>| match figures {
            Some([without, with]) if without > 0.0 => format!("{:.0} %", with / without * 100.0),
            _ => String::new(),
        };
        let bare = self.medians(|run| Some(run.bare_mbps)).filter(|_| self.mix.flows()[1] > 0);
        let protected = self.medians(|run| Some(run.protected_mbps));
        let dropped = self.medians(|run| Some(run.dropped as f64));
        format!(
            "| {} | {} | {} | {} KB | {} | {} | {} | {} | {} | {} | {} | {} | {:.1} | {:.0} |",
            self.mix,
            self.congestion,
            self.loss,
            self.queue / 1_000,
            pair(protected, 2),
            share(protected),
            pair(bare, 2),
            share(bare),
            pair(dropped, 0),
            share(dropped),
            pair(self.medians(|run| Some(run.probes_lost_percent)), 1),
            pair(self.medians(|run| run.lost_percent), 2),
            self.with(|run| run.repairs_percent.unwrap_or(0.0)),
            self.with(|run| (run.left + run.marked) as f64),
        )
    }

    fn json(&self) -> Value {
        let run = |run: &Outcome| {
            json!({
                "protected_mbps": run.protected_mbps,
                "bare_mbps": run.bare_mbps,
                "queue_drops": run.dropped,
                "probes_lost_percent": run.probes_lost_percent,
                "lost_percent": run.lost_percent,
                "repairs_percent": run.repairs_percent,
                "recovered": run.recovered,
                "left": run.left,
                "marked": run.marked,
                "congestion": run.verdict,
                "choice": run.choice,
            })
        };
        json!({
            "mix": self.mix.to_string(),
            "congestion_control": self.congestion,
            "loss": self.loss,
            "queue_bytes": self.queue,
            "without": self.runs[0].iter().map(run).collect::<Vec<_>>(),
            "with": self.runs[1].iter().map(run).collect::<Vec<_>>(),
        })
    }
}

/// Prints a table of the rows.
pub(super) fn print(rows: &[Row]) {
    println!(
        "| traffic | control | loss | queue | protected, Mbit/s | share | bare, Mbit/s | share | queue drops | share | \
         probes lost, % | stream lost, % | repairs, % | left or marked |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    rows.iter().for_each(|row| println!("{}", row.markdown()));
}

/// Returns the rows with all runs.
pub(super) fn document(rows: &[Row]) -> Value {
    json!({ "rows": rows.iter().map(Row::json).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_medians_without_and_with_gateways_and_their_ratio() {
        let mut row = Row::new(256_000, Mix::TwoAndTwo, "reno", "none");
        for (with, bare, dropped) in [
            (false, 9.0, 50),
            (false, 10.0, 40),
            (false, 8.0, 60),
            (true, 8.1, 55),
            (true, 2.0, 900),
            (true, 9.9, 10),
        ] {
            row.add(
                with,
                Outcome {
                    protected_mbps: 18.0 - bare,
                    bare_mbps: bare,
                    dropped,
                    repairs_percent: with.then_some(3.1),
                    left: 7,
                    ..Outcome::default()
                },
            );
        }
        assert_eq!(
            row.markdown(),
            "| 2+2 | reno | none | 256 KB | 9.00 → 9.90 | 110 % | 9.00 → 8.10 | 90 % | 50 → 55 | 110 % | 0.0 → 0.0 |  | 3.1 | 7 |"
        );
        let json = document(&[row]);
        assert_eq!(json["rows"][0]["with"].as_array().map(Vec::len), Some(3));
        assert_eq!(json["rows"][0]["without"][0]["queue_drops"], 50);
    }

    #[test]
    fn mixes_are_read_by_their_names() {
        for (name, mix) in Mix::ALL {
            assert_eq!((name.parse(), mix.to_string()), (Ok(mix), name.to_owned()));
        }
        assert!("3+1".parse::<Mix>().unwrap_err().contains("expected one of 2+2, lone"));
        assert_eq!("udp110".parse::<Mix>().unwrap().load(), Some(1.1));
    }
}
