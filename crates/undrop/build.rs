//! States in the program from which commit, and for which target, it is built.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=UNDROP_COMMIT");
    let variable = |name| env::var(name).unwrap_or_default();
    let (version, target) = (variable("CARGO_PKG_VERSION"), variable("TARGET"));
    let stated = Some(variable("UNDROP_COMMIT")).filter(|commit| !commit.is_empty());
    // Other builds are for tests, which a commit must not compile again.
    let commit = stated.or_else(|| if variable("PROFILE") == "release" { commit() } else { None });
    let origin = commit.map_or_else(String::new, |commit| format!("commit {commit}, "));
    println!("cargo::rustc-env=UNDROP_VERSION={version} ({origin}target {target})");
}

/// Returns the commit of the working tree, if git knows it.
fn commit() -> Option<String> {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        Some(text.trim().to_owned()).filter(|text| output.status.success() && !text.is_empty())
    };
    // A crate from a registry may lie below a repository of somebody else.
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}
