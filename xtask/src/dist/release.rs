//! Version, commit and time of a release.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::process::{root, target};

/// A release, and where its files are written.
#[derive(Clone, Debug)]
pub(super) struct Release {
    pub(super) version: String,
    /// The first twelve digits, with a mark if the working tree differs from it.
    pub(super) commit: String,
    /// Time of all files, in seconds since 1970: that of the commit, unless `SOURCE_DATE_EPOCH` states one.
    pub(super) epoch: u64,
    /// Directory of the files.
    pub(super) out: PathBuf,
}

impl Release {
    /// Returns the release of the working tree.
    pub(super) fn of_this_tree() -> anyhow::Result<Self> {
        let is_changed = !git(&["status", "--porcelain"])?.is_empty();
        let commit = git(&["rev-parse", "--short=12", "HEAD"])? + if is_changed { "+changes" } else { "" };
        let epoch = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(stated) => stated,
            Err(_) => git(&["log", "-1", "--format=%ct"])?,
        };
        let epoch = epoch.parse().with_context(|| format!("expected seconds since 1970, saw {epoch:?}"))?;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Self { version, commit, epoch, out: target().join("dist") })
    }

    /// Creates an empty directory for files that are no part of the release; returns its path.
    pub(super) fn work(&self) -> anyhow::Result<PathBuf> {
        let work = target().join("dist-work");
        if work.exists() {
            fs::remove_dir_all(&work).with_context(|| work.display().to_string())?;
        }
        fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
        Ok(work)
    }

    /// The version as Debian and RPM compare it: what comes before a release sorts before it.
    pub(super) fn package_version(&self) -> String {
        self.version.replace('-', "~")
    }

    /// The time as text, such as `2026-11-23T07:41:00Z`.
    pub(super) fn time(&self) -> anyhow::Result<String> {
        let epoch = format!("@{}", self.epoch);
        output(Command::new("date").args(["--utc", "--date", &epoch, "+%Y-%m-%dT%H:%M:%SZ"]))
    }
}

fn git(args: &[&str]) -> anyhow::Result<String> {
    output(Command::new("git").args(args).current_dir(root()))
}

/// Runs a command that must succeed; returns what it prints, without blanks around it.
pub(super) fn output(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().display().to_string();
    let output = command.output().with_context(|| format!("cannot start {name}"))?;
    ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar_and_previews_sort_before_a_release() {
        let release = Release {
            version: "1.2.0-rc.1".to_owned(),
            commit: String::new(),
            epoch: 1_709_164_800,
            out: PathBuf::new(),
        };
        assert_eq!(release.time().unwrap(), "2024-02-29T00:00:00Z");
        assert_eq!(release.package_version(), "1.2.0~rc.1");
    }
}
