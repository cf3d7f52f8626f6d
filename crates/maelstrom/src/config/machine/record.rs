//! The place of the record of losses.

use std::fs;
use std::path::{Path, PathBuf};

use diagnostics::{Diagnostic, Findings};
use nix::fcntl::AtFlags;
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, faccessat};

use super::super::draft::Draft;
use super::facts::Facts;

/// Upper bound of the record of one peer in bytes.
pub(crate) const PEER_BYTES: u64 = 450_000;

/// State of the place of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RecordPlace {
    /// The record can be replaced there, and this number of bytes is free.
    Writable { free: Option<u64> },
    /// The directory does not exist.
    Absent(PathBuf),
    /// The parent of the path is not a directory.
    Blocked(PathBuf),
    /// This user may not write to the directory, or its file system is read-only.
    Denied(PathBuf),
    /// The path is not a regular file.
    Occupied,
}

impl RecordPlace {
    pub(super) fn of(path: &Path) -> Self {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let directory = absolute.parent().unwrap_or(Path::new("/"));
        let access = AccessFlags::W_OK | AccessFlags::X_OK;
        if !directory.exists() {
            Self::Absent(directory.to_owned())
        } else if !directory.is_dir() {
            Self::Blocked(directory.to_owned())
        } else if faccessat(nix::fcntl::AT_FDCWD, directory, access, AtFlags::AT_EACCESS).is_err() {
            Self::Denied(directory.to_owned())
        } else if fs::metadata(&absolute).is_ok_and(|found| !found.is_file()) {
            Self::Occupied
        } else {
            let free = statvfs(directory).ok();
            Self::Writable { free: free.map(|disk| disk.blocks_available() * disk.fragment_size()) }
        }
    }
}

/// Adds what prevents the record from being written.
pub(super) fn check(draft: &Draft, facts: &Facts, findings: &mut Findings) {
    let Some(setting) = &draft.gateway.loss_record else { return };
    let (Some(path), Some(place)) = (&setting.value, &facts.record) else { return };
    // The last record stays until the new one is whole.
    let needed = 2 * PEER_BYTES * draft.peers.len().max(1) as u64;
    let directory_of = |problem: &str, directory: &Path| {
        let what = format!("the record of losses cannot be written: `{}` {problem}", directory.display());
        Diagnostic::warning("loss-record", what)
    };
    let diagnostic = match place {
        RecordPlace::Writable { free } if free.is_none_or(|free| free >= needed) => return,
        RecordPlace::Writable { free } => Diagnostic::warning(
            "loss-record-room",
            format!("only {} KB are free for the record of losses", free.unwrap_or(0) / 1_000),
        )
        .expected(format!("{} KB: the present record, and the one that replaces it", needed / 1_000))
        .help("free space on this disk, or set `loss_record` to a file on another one"),
        RecordPlace::Absent(directory) => directory_of("does not exist", directory)
            .help(format!("install -d -o USER -m 0755 {}, or StateDirectory= in a systemd unit", directory.display())),
        RecordPlace::Blocked(file) => directory_of("is not a directory", file)
            .help("move it away, or set `loss_record` to a file in another directory"),
        RecordPlace::Denied(directory) => directory_of("is not writable for this user", directory)
            .expected("a directory that this user may write")
            .help("give the directory to the user of the gateway, or set `loss_record` to a file in another one"),
        RecordPlace::Occupied => Diagnostic::warning(
            "loss-record",
            format!("`{}` exists and is not a file", path.display()),
        )
        .expected("a free path, or the record of an earlier run")
        .help("move it away, or set another `loss_record`"),
    };
    findings.add(
        diagnostic
            .at(setting.span.clone())
            .note("the gateway runs all the same, and the record then begins with each start"),
    );
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn each_state_of_the_place_is_told_apart() {
        let base = std::env::temp_dir().join(format!("undrop-place-{}", std::process::id()));
        fs::create_dir_all(base.join("directory")).unwrap();
        fs::write(base.join("file"), "").unwrap();
        let of = |path: &str| RecordPlace::of(&base.join(path));
        let writable = |place| matches!(place, RecordPlace::Writable { free: Some(free) } if free > 0);
        assert!(writable(of("losses.json")) && writable(of("file")));
        assert_eq!(of("none/losses.json"), RecordPlace::Absent(base.join("none")));
        assert_eq!(of("file/losses.json"), RecordPlace::Blocked(base.join("file")));
        assert_eq!(of("directory"), RecordPlace::Occupied);
        let closed = fs::Permissions::from_mode(0o500);
        fs::set_permissions(base.join("directory"), closed).unwrap();
        // The superuser may write anywhere.
        if !nix::unistd::geteuid().is_root() {
            assert_eq!(of("directory/losses.json"), RecordPlace::Denied(base.join("directory")));
        }
        fs::remove_dir_all(&base).unwrap();
    }
}
