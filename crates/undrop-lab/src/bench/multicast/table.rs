//! The figures of each run: a row of a table, a line of JSON, and a line of CSV.

use std::fs::File;
use std::io::Write as _;

use anyhow::Context as _;

use super::Plan;
use super::judge::Figures;
use super::participant::System;
use super::run::Cell;
use crate::bench::csv;

/// Names of the fields of a line of CSV.
const FIELDS: &str = "system,settings,lose,loss,receivers,senders,groups,seed,rate,size,sent,lost,delivered_percent,undelivered,\
                      duplicates,messages_per_s,megabytes_per_s,p50_ms,p99_ms,p999_ms,max_ms,recovered_p50_ms,recovered_p99_ms,\
                      recovered_max_ms,pause_ms,reordered,cpu_us_per_message,packets_per_message,bytes_per_message";

/// Where the figures go.
pub(super) struct Table {
    json: bool,
    csv: Option<File>,
}

impl Table {
    /// Prints the head of the table, and begins the file of CSV.
    pub(super) fn start(plan: &Plan) -> anyhow::Result<Self> {
        let create = |path: &std::path::PathBuf| -> anyhow::Result<File> {
            let mut file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
            writeln!(file, "{FIELDS}").context("cannot write the file of CSV")?;
            Ok(file)
        };
        let csv = plan.csv.as_ref().map(create).transpose()?;
        if !plan.json {
            print_head(plan);
        }
        Ok(Self { json: plan.json, csv })
    }

    pub(super) fn add(&mut self, cell: &Cell, system: &System, figures: &Figures) -> anyhow::Result<()> {
        if let Some(file) = &mut self.csv {
            writeln!(file, "{}", csv_line(cell, system, figures)).context("cannot write the file of CSV")?;
        }
        print(self.json, cell, system, figures);
        Ok(())
    }
}

fn print_head(plan: &Plan) {
    println!(
        "{} messages/s of {} bytes for {} s; {} at each receiver\n",
        plan.rate, plan.size, plan.seconds, plan.loss
    );
    println!(
        "| system | lost are | receivers | senders | groups | lost | messages/s | MB/s | all p50 / p99 / p99.9 ms | recovered p50 / p99 / max ms \
         | last of a group p50 / p99 / max ms | never lost p50 / p99 / p99.9 ms | delivered % | never delivered | duplicates \
         | CPU µs per message | packets | bytes on all wires per message |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
}

fn print(json: bool, cell: &Cell, system: &System, figures: &Figures) {
    if json {
        let line = serde_json::json!({
            "system": system.name, "settings": system.settings, "lose": cell.lose, "loss": cell.loss.to_string(),
            "receivers": cell.receivers, "senders": cell.senders, "groups": cell.groups, "seed": cell.seed,
            "rate": cell.rate * cell.senders as f64, "size": cell.size, "figures": figures,
        });
        println!("{line}");
        return;
    }
    let three = |[a, b, c]: [f64; 3]| format!("{a:.2} / {b:.2} / {c:.2}");
    println!(
        "| {} | {:?} | {} | {} | {} | {} | {:.0} | {:.2} | {} | {} | {} | {} | {:.3} | {} | {} | {:.1} | {:.2} | {:.0} |",
        system.name,
        cell.lose,
        cell.receivers,
        cell.senders,
        cell.groups,
        figures.lost,
        figures.messages_per_s,
        figures.megabytes_per_s,
        three(figures.all_ms.p50_p99_p999()),
        three(figures.recovered_ms.p50_p99_max()),
        three(figures.last_ms.p50_p99_max()),
        three(figures.straight_ms.p50_p99_p999()),
        figures.delivered_percent,
        figures.undelivered,
        figures.duplicates,
        figures.cpu_us_per_message,
        figures.packets_per_message,
        figures.bytes_per_message,
    );
    eprintln!(
        "  {}: {} in another order than at the first; longest pause {:.2} ms; lost packets without a message {}; foreign \
         messages {}; senders late p99 / max {:.2} / {:.2} ms; recovery of a group's last message {:?}; {:?}",
        system.name,
        figures.reordered,
        figures.pause_ms,
        figures.lost_untold,
        figures.foreign,
        figures.lateness_ms.p99,
        figures.lateness_ms.max,
        figures.last_recovered_ms,
        figures.stats
    );
}

/// Returns the fields of a run in the order of [`FIELDS`].
fn csv_line(cell: &Cell, system: &System, figures: &Figures) -> String {
    let (all, recovered) = (&figures.all_ms, &figures.recovered_ms);
    let mut fields = vec![
        csv::quote(&system.name),
        csv::quote(&system.settings),
        format!("{:?}", cell.lose).to_lowercase(),
        csv::quote(&cell.loss.to_string()),
    ];
    let counts = [cell.receivers as u64, cell.senders as u64, u64::from(cell.groups), cell.seed];
    fields.extend(counts.map(|count| count.to_string()));
    fields.push((cell.rate * cell.senders as f64).to_string());
    fields.extend([cell.size as u64, figures.sent, figures.lost].map(|count| count.to_string()));
    fields.push(format!("{:.4}", figures.delivered_percent));
    fields.extend([figures.undelivered, figures.duplicates].map(|count| count.to_string()));
    let measured = [
        figures.messages_per_s,
        figures.megabytes_per_s,
        all.p50,
        all.p99,
        all.p999,
        all.max,
        recovered.p50,
        recovered.p99,
        recovered.max,
        figures.pause_ms,
    ];
    fields.extend(measured.map(|value| format!("{value:.3}")));
    fields.push(figures.reordered.to_string());
    let costs = [figures.cpu_us_per_message, figures.packets_per_message, figures.bytes_per_message];
    fields.extend(costs.map(|value| format!("{value:.3}")));
    fields.join(",")
}

#[cfg(test)]
mod tests {
    use super::super::{Lose, judge};
    use super::*;

    #[test]
    fn a_line_of_csv_has_a_field_for_each_name() {
        let cell = Cell {
            lose: Lose::All,
            receivers: 4,
            senders: 2,
            groups: 3,
            loss: loss::LossModel::None,
            rate: 500.0,
            size: 64,
            count: 10,
            tail_s: 0.0,
            seed: 7,
            kill_s: None,
        };
        let system: System = "tuned:profile=tuned,mbit=5=peer".parse().unwrap();
        let figures = Figures {
            sent: 20,
            delivered_percent: 98.75,
            all_ms: judge::Spread { p50: 0.5, p99: 2.0, p999: 3.0, max: 4.0, ..judge::Spread::default() },
            cpu_us_per_message: 1.25,
            ..Figures::default()
        };
        let names = csv::split(FIELDS).unwrap();
        let fields = csv::split(&csv_line(&cell, &system, &figures)).unwrap();
        assert_eq!(names.len(), fields.len());
        let of = |name: &str| fields[names.iter().position(|known| known == name).unwrap()].as_str();
        assert_eq!([of("settings"), of("lose"), of("rate")], ["profile=tuned,mbit=5", "all", "1000"]);
        assert_eq!([of("sent"), of("delivered_percent"), of("p99_ms")], ["20", "98.7500", "2.000"]);
        assert_eq!([of("max_ms"), of("cpu_us_per_message"), of("size")], ["4.000", "1.250", "64"]);
    }
}
