//! `undrop-lab multicast bench --real` with few nodes for a short time; asserts no times.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::{env, fs, process};

use netlab::privilege;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undrop-lab"));
    command.args(["multicast", "bench", "--real"]).args(arguments);
    command
}

const SMALL: [&str; 8] = ["--nodes", "4", "--groups-per-node", "8", "--group-size", "3", "--rate", "200"];

#[test]
fn real_nodes_lose_and_recover_like_the_simulation() {
    if !privilege::namespaces_or_skip("real_nodes_lose_and_recover_like_the_simulation") {
        return;
    }
    let picture = env::temp_dir().join(format!("undrop-bench-test-{}.svg", process::id()));
    let mut command = bench(&SMALL);
    command.args(["--size", "200", "--seconds", "2", "--nak", "on", "--loss", "uniform:5%", "--json"]);
    let output = command.arg("--svg").arg(&picture).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let whole: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}; {said}"));
    assert!(output.status.success(), "{said}");
    let drawn = fs::read_to_string(&picture).unwrap();
    fs::remove_file(&picture).unwrap();
    assert!(drawn.contains("real") && drawn.contains("simulated"), "{drawn}");

    let (real, simulated, bridge) = (&whole["real"], &whole["simulated"], &whole["bridge"]);
    let count = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{whole:#}"));
    // 4 nodes receive 200 packets a second for 2 seconds, or fewer on a busy machine.
    let expected = count(&real["expected"]);
    assert!(expected > 0.0 && expected <= count(&simulated["expected"]) * 1.2, "{whole:#}");
    if bridge["rate"] == whole["asked_rate"] {
        assert_eq!(real["messages"], simulated["messages"], "the same packets: {whole:#}");
    }
    let lost = count(&real["lost"]) / expected;
    assert!((0.02..0.09).contains(&lost), "{lost}: {whole:#}");
    assert_eq!((count(&real["undelivered"]), count(&real["recovered_percent"])), (0.0, 100.0), "{whole:#}");
    assert_eq!(count(&real["repaired"]) + count(&real["requested"]), count(&real["lost"]), "{whole:#}");
    assert_eq!(count(&real["duplicates"]), 0.0, "{whole:#}");
    // Packets fill repairs, not time.
    for key in ["overhead_percent", "xors_per_packet"] {
        assert!(count(&whole["difference_percent"][key]).abs() < 20.0, "{key}: {whole:#}");
    }
    // The ports carry more than the traffic for members, since a bridge floods and membership gossips.
    assert!(count(&bridge["port_bytes_per_message"]) > count(&real["wire_bytes_per_message"]), "{whole:#}");
    assert!(count(&bridge["delay_ms"]["p50"]) > 0.0, "{whole:#}");
    for key in ["cpu_us_per_packet", "wire_frames_per_message"] {
        assert!(count(&real[key]) > 0.0, "{key}: {whole:#}");
    }
}

/// Kills the bench when a test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_interrupt_ends_real_nodes_and_their_network() {
    if !privilege::namespaces_or_skip("an_interrupt_ends_real_nodes_and_their_network") {
        return;
    }
    let mut command = bench(&SMALL);
    command.args(["--seconds", "60"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running(command.spawn().unwrap());
    let mut progress = BufReader::new(running.0.stderr.take().unwrap()).lines();
    assert!(progress.any(|line| line.unwrap().contains("real, seed 1/1")), "traffic begins");
    kill(Pid::from_raw(running.0.id().cast_signed()), Signal::SIGINT).unwrap();
    progress.for_each(drop);
    assert_eq!(running.0.wait().unwrap().code(), Some(130));
}

#[test]
fn more_nodes_than_a_bridge_holds_are_refused() {
    let output = bench(&["--nodes", "60", "--outside-senders", "5"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("expected at most 64 nodes, outside senders included, saw 65"), "{said}");
}
