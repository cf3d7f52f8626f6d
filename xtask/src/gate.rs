//! `cargo xtask test`: all checks of the repository in sequence, and a verdict that names each failed
//! step and each skipped test.
//!
//! All steps build into one target directory with the same flags, so that each step uses the results of the
//! steps above it.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use crate::lanes::Job;
use crate::process::{cargo, is_there, root, succeeds, target};
use crate::tally::{self, Tally};
use crate::verdict::Verdict;
use crate::{lanes, programs, style};

/// Extent of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All checks.
    Whole,
    /// Checks that are fast enough between two edits: none that needs the kernel, and no figures.
    Quick,
}

impl Extent {
    pub(crate) fn of(is_quick: bool) -> Self {
        if is_quick { Self::Quick } else { Self::Whole }
    }
}

/// Runs all steps, even if one fails; returns whether all succeeded.
pub(crate) fn run(extent: Extent) -> anyhow::Result<bool> {
    let mut verdict = Verdict::default();
    verdict.step("style", |_| style::run(false))?;
    verdict.step("format", |_| succeeds(&mut cargo(&["fmt", "--all", "--check"])))?;
    verdict.step("lints", |_| {
        succeeds(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    })?;
    verdict.step("tests", |tally| tests(extent, tally))?;
    if extent == Extent::Whole {
        verdict.step("ARM kernels", arm_kernels)?;
        verdict.step("documentation", |_| documentation())?;
        verdict.step("book", book)?;
        verdict.step("licences", licences)?;
        verdict.step("fuzz targets", fuzz_targets)?;
    }
    verdict.print();
    Ok(verdict.is_ok())
}

fn tests(extent: Extent, tally: &mut Tally) -> anyhow::Result<bool> {
    // The tests of a crate that do not need the kernel are its unit tests and one program, `it`. The lints
    // have compiled examples and benchmarks.
    let which: &[&str] = match extent {
        Extent::Whole => &["--tests"],
        Extent::Quick => &["--lib", "--bins", "--test", "it"],
    };
    let Some(programs) = programs::build(which)? else { return Ok(false) };
    let others = if extent == Extent::Whole { other_tests()? } else { Vec::new() };
    lanes::run(&programs, others, tally)
}

/// Tests that are no programs of cargo: they run beside the tests on the kernel, which mostly wait.
fn other_tests() -> anyhow::Result<Vec<Job>> {
    let examples = cargo(&["test", "--workspace", "--doc", "--", "--show-output"]);
    let mut jobs = vec![("examples in the documentation".to_owned(), examples)];
    for (name, task) in [("Python module", "python"), ("C library", "c")] {
        let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
        command.arg(task).current_dir(root());
        jobs.push((name.to_owned(), command));
    }
    Ok(jobs)
}

fn documentation() -> anyhow::Result<bool> {
    // The documentation is for people who work on the code, so it contains private items and links to them.
    let mut doc = cargo(&["doc", "--workspace", "--no-deps", "--document-private-items"]);
    succeeds(doc.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links"))
}

/// Builds the book for operators. The style rules check its links.
fn book(tally: &mut Tally) -> anyhow::Result<bool> {
    if !is_there(Command::new("mdbook").arg("--version")) {
        tally.skipped.push("book: mdbook is not installed (cargo install mdbook)".to_owned());
        return Ok(true);
    }
    let mut build = Command::new("mdbook");
    build.args(["build", "docs/book", "--dest-dir"]).arg(target().join("book")).current_dir(root());
    succeeds(&mut build)
}

fn licences(tally: &mut Tally) -> anyhow::Result<bool> {
    if !is_there(&mut cargo(&["deny", "--version"])) {
        tally.skipped.push("licences: cargo-deny is not installed (cargo install cargo-deny)".to_owned());
        return Ok(true);
    }
    succeeds(&mut cargo(&["deny", "--workspace", "check", "bans", "licenses", "sources"]))
}

/// Runs the tests of the NEON kernels in an emulator.
///
/// The compiler's own linker and libc link the tests.
fn arm_kernels(tally: &mut Tally) -> anyhow::Result<bool> {
    const TARGET: &str = "aarch64-unknown-linux-musl";
    const EMULATOR: &str = "qemu-aarch64";
    let libraries = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", TARGET])
        .current_dir(root())
        .output()
        .context("cannot start rustc to find its libraries")?;
    if !Path::new(String::from_utf8_lossy(&libraries.stdout).trim()).is_dir() {
        tally.skipped.push(format!("ARM kernels: no {TARGET} (rustup target add {TARGET})"));
        return Ok(true);
    }
    if !is_there(Command::new(EMULATOR).arg("--version")) {
        tally.skipped.push(format!("ARM kernels: no {EMULATOR} (apt-get install qemu-user)"));
        return Ok(true);
    }
    let mut test = cargo(&["test", "--package", "fec", "--target", TARGET, "--test", "gf256"]);
    test.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER", "rust-lld")
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUNNER", EMULATOR);
    let (success, counted) = tally::run(&mut test)?;
    tally.add(counted);
    Ok(success)
}

/// Checks that the fuzz targets build, which needs a nightly compiler. The tests replay the corpora with any
/// compiler.
fn fuzz_targets(tally: &mut Tally) -> anyhow::Result<bool> {
    if !root().join("fuzz/Cargo.toml").exists() {
        return Ok(true);
    }
    let nightly = |args: &[&str]| {
        let mut command = Command::new("rustup");
        // The environment names the toolchain of this repository, which would override `nightly`.
        command
            .args(["run", "nightly", "cargo"])
            .args(args)
            .env_remove("RUSTUP_TOOLCHAIN")
            .current_dir(root());
        command
    };
    if !is_there(&mut nightly(&["fuzz", "--version"])) {
        let reason = "fuzz targets: no nightly toolchain with cargo-fuzz (cargo install cargo-fuzz)";
        tally.skipped.push(reason.to_owned());
        return Ok(true);
    }
    succeeds(&mut nightly(&["fuzz", "check"]))
}
