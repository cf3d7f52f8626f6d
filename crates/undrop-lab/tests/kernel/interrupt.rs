//! Measurements that a signal ends leave no files.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, fs, process, thread};

use netlab::privilege;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Interval between looks whether gateways have started, and the number of them, after which none will.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS_MAX: u32 = 6_000;

/// The directory of a measurement, with one for its temporary files.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("undrop-interrupt-{}-{name}", process::id()));
        fs::create_dir_all(path.join("tmp")).unwrap();
        fs::write(path.join("page.md"), "`undrop-lab bench soak --seconds 600`\n").unwrap();
        Self(path)
    }

    fn temporary(&self) -> Vec<PathBuf> {
        fs::read_dir(self.0.join("tmp")).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Kills the measurement when a test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_signal_ends_a_measurement_and_leaves_no_key() {
    if !privilege::available_or_skip("a_signal_ends_a_measurement_and_leaves_no_key") {
        return;
    }
    for (name, arguments, signal) in [
        ("tcp", "--only-with --loss uniform:1% --seconds 2 --runs 100", Signal::SIGINT),
        ("soak", "--seconds 600", Signal::SIGTERM),
        ("all", "--page page.md --out out", Signal::SIGTERM),
    ] {
        let directory = Directory::new(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_undrop-lab"));
        command.args(["bench", name]).args(arguments.split(' ')).current_dir(&directory.0);
        command.env("TMPDIR", directory.0.join("tmp")).stdout(Stdio::null()).stderr(Stdio::null());
        let mut running = Running(command.spawn().unwrap());
        let mut looks = 0;
        let has_started =
            |path: &PathBuf| path.join("peer.key").exists() && path.join("gateway-1.log").exists();
        while !directory.temporary().iter().any(has_started) {
            assert!(running.0.try_wait().unwrap().is_none(), "{name} ends before its gateways start");
            assert!(looks < LOOKS_MAX, "{name} starts no gateways");
            looks += 1;
            thread::sleep(LOOK);
        }
        kill(Pid::from_raw(running.0.id().cast_signed()), signal).unwrap();
        assert_eq!(running.0.wait().unwrap().code(), Some(130), "{name}");
        let left = directory.temporary();
        assert!(left.is_empty(), "{name}: {left:?}");
    }
}
