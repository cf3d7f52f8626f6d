//! `undrop-lab bench multicast` and `multicast-soak` with few nodes for a short time; asserts no times.

use std::process::{Command, Output};

use netlab::privilege;
use serde_json::Value;

fn bench(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undrop-lab"));
    command.arg("bench").args(arguments.split_whitespace()).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn members_in_total_order_go_on_alike_when_the_bench_kills_their_sequencer() {
    if !privilege::namespaces_or_skip(
        "members_in_total_order_go_on_alike_when_the_bench_kills_their_sequencer",
    ) {
        return;
    }
    let output = bench(
        "multicast --system total:order=total=@ricochet --receivers 4 --senders 2 --groups 1 --lose none \
         --rate 200 --size 200 --seconds 4 --kill 1 --tail 5 --json",
    );
    assert!(output.status.success(), "{}", said(&output));
    let whole: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}; {}", said(&output)));
    let figures = &whole["figures"];
    let count = |key: &str| figures[key].as_f64().unwrap_or_else(|| panic!("{key}: {whole:#}"));
    assert_eq!(figures["stats"]["sequencer"], 1.0, "{whole:#}");
    assert_eq!((count("sent"), count("undelivered"), count("duplicates")), (800.0, 0.0, 0.0), "{whole:#}");
    assert_eq!(count("reordered"), 0.0, "{whole:#}");
    // Messages are 5 ms apart, and the others notice after some time only that nobody numbers them.
    assert!(count("pause_ms") > 20.0, "{whole:#}");
}

#[test]
fn a_soak_counts_each_message_once_and_shows_memory() {
    if !privilege::namespaces_or_skip("a_soak_counts_each_message_once_and_shows_memory") {
        return;
    }
    let output =
        bench("multicast-soak --minutes 0.05 --receivers 2 --groups 4 --rate 300 --loss uniform:5% --rows 2");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", said(&output));
    assert!(text.contains("delivered 1800 of 1800, doubles 0, altered 0, told lost 0;"), "{text}");
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| 0.")).collect();
    assert_eq!(rows.len(), 3, "{text}");
    for row in rows {
        let cells: Vec<f64> = row.split('|').filter_map(|cell| cell.trim().parse().ok()).collect();
        assert!(cells.len() == 5 && cells[1..].iter().all(|&mib| mib > 1.0), "{text}");
    }
}
