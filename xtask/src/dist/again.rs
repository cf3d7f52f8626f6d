//! A second build of the same commit at another place, which must give the same bytes.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use super::release::Release;
use crate::process::{root, succeeds, target};

/// Builds the release in a copy of the repository, and compares all checksums.
pub(super) fn compare(release: &Release, args: &[String]) -> anyhow::Result<()> {
    ensure!(
        !release.commit.ends_with("+changes"),
        "expected a working tree without changes, because the second build is that of the commit; commit them"
    );
    let place = target().join("dist-again");
    if place.exists() {
        fs::remove_dir_all(&place).with_context(|| place.display().to_string())?;
    }
    let mut copy = Command::new("git");
    copy.args(["clone", "--quiet", "--no-hardlinks"]).arg(root()).arg(&place);
    ensure!(succeeds(&mut copy)?, "git cannot copy the repository");
    let mut build = Command::new("cargo");
    build
        .args(["xtask", "dist"])
        .args(args.iter().filter(|arg| !["--twice", "--test"].contains(&arg.as_str())));
    build.current_dir(&place).env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    // The variables of this build name the places of this copy.
    for variable in ["CARGO", "CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH"] {
        build.env_remove(variable);
    }
    build.env("CARGO_TARGET_DIR", place.join("target"));
    ensure!(succeeds(&mut build)?, "the second build has failed");
    let sums = |path: std::path::PathBuf| {
        let path = path.join("SHA256SUMS");
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    let (first, second) = (sums(release.out.clone())?, sums(place.join("target/dist"))?);
    let different = differing(&first, &second);
    if !different.is_empty() {
        bail!("expected two builds with equal bytes, saw different {}", different.join(", "));
    }
    println!("two builds gave the same bytes in {} files", first.lines().count());
    fs::remove_dir_all(&place).with_context(|| place.display().to_string())
}

/// Returns the names of the files whose checksums differ, or that only one build has.
fn differing<'a>(first: &'a str, second: &'a str) -> Vec<&'a str> {
    let missing_in = |from: &'a str, other: &'a str| {
        from.lines().filter(|line| !other.lines().any(|seen| seen == *line)).collect::<Vec<_>>()
    };
    let lines = [missing_in(first, second), missing_in(second, first)].concat();
    let mut names: Vec<&str> = lines.iter().filter_map(|line| line.split("  ").nth(1)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_differ_if_their_checksums_do_or_one_build_lacks_them() {
        let first = "aa  undrop.deb\nbb  undrop.rpm\n";
        assert!(differing(first, first).is_empty());
        assert_eq!(differing(first, "aa  undrop.deb\ncc  undrop.rpm\n"), ["undrop.rpm"]);
        assert_eq!(differing(first, "aa  undrop.deb\n"), ["undrop.rpm"]);
        assert_eq!(differing("aa  undrop.deb\n", first), ["undrop.rpm"]);
    }
}
