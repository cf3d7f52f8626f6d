//! Captures of packets, and how Wireshark shows them with the dissector of this repository.

use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

/// Packets without link header, in the format pcapng.
///
/// ```
/// let mut capture = testkit::wireshark::Capture::new();
/// capture.add(1_700_000_000_000_000, &[0x45; 21]);
/// assert_eq!(capture.bytes().len(), 28 + 20 + 56);
/// ```
#[derive(Clone, Debug)]
pub struct Capture(Vec<u8>);

impl Capture {
    /// Creates a capture without packets: a section, and an interface of raw IP packets with times in
    /// microseconds.
    pub fn new() -> Self {
        let section = [&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
        let mut capture = Self(Vec::new());
        capture.block(0x0a0d_0d0a, &section);
        capture.block(1, &[101, 0, 0, 0, 0, 0, 0, 0]);
        capture
    }

    /// Adds an IP packet that was seen at this time, in microseconds since 1970.
    pub fn add(&mut self, at_us: u64, packet: &[u8]) {
        let length = (packet.len() as u32).to_le_bytes();
        let (high, low) = ((at_us >> 32) as u32, at_us as u32);
        let mut body = [[0; 4], high.to_le_bytes(), low.to_le_bytes(), length, length].concat();
        body.extend_from_slice(packet);
        body.resize(body.len().next_multiple_of(4), 0);
        self.block(6, &body);
    }

    /// Returns the bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn block(&mut self, kind: u32, body: &[u8]) {
        let length = (body.len() as u32 + 12).to_le_bytes();
        for part in [&kind.to_le_bytes()[..], &length, body, &length] {
            self.0.extend_from_slice(part);
        }
    }
}

impl Default for Capture {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the values of fields in each packet of a capture, as [`dissect_file`] does.
///
/// # Panics
/// As [`dissect_file`].
pub fn dissect(test: &str, capture: &Capture, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let directory = Directory::new();
    let file = directory.0.join("capture.pcapng");
    fs::write(&file, capture.bytes()).expect("a temporary file can be written");
    dissect_file(test, &file, fields)
}

/// Returns the values of fields in each packet of a file, as `ops/undrop.lua` shows them. Of a field that a
/// packet has several times, all values are given, with commas between them.
///
/// Returns `None` where `tshark` is not installed, and says that `test` was skipped.
///
/// # Panics
/// If `tshark` fails, or if it complains of the dissector.
pub fn dissect_file(test: &str, file: &Path, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let directory = Directory::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops/undrop.lua");
    let mut command = Command::new("tshark");
    command.args(["-n", "-T", "fields", "-E", "occurrence=a", "-E", "aggregator=,", "-X"]);
    command.arg(format!("lua_script:{}", script.display())).arg("-r").arg(file);
    fields.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    // Settings and plugins of the user are left out.
    command.env("HOME", &directory.0).env("WIRESHARK_CONFIG_DIR", &directory.0).stdin(Stdio::null());
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            // Past the capture of the test harness, so that the line is seen and counted.
            let _ = writeln!(io::stderr(), "SKIPPED: {test}: tshark: {error} (apt-get install tshark)");
            return None;
        }
    };
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !complaints.to_lowercase().contains("lua"), "tshark: {complaints}");
    let rows = String::from_utf8_lossy(&output.stdout);
    Some(rows.lines().map(|row| row.split('\t').map(str::to_owned).collect()).collect())
}

/// A temporary directory that is removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("undrop-wireshark-{}-{number}", process::id()));
        fs::create_dir_all(&path).expect("a temporary directory can be made");
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
