//! `cargo xtask assure`: searches for faults that ordinary tests miss. The whole takes hours, so it is a job
//! of its own.
//!
//! | step | what it does |
//! |---|---|
//! | interleavings | runs the threads of Ricochet that wake one another in many orders (Shuttle) |
//! | memory | runs the tests of the crates that contain `unsafe` under AddressSanitizer |
//! | fuzzing | runs each fuzz target for a minute, from the committed corpus |
//! | coverage | prints the share of lines that the tests without the kernel execute, by crate |
//! | alerts | lets a real Prometheus answer the dashboard, and fires each alert by a real fault |
//! | advisories | looks for known vulnerabilities of dependencies in a copy of the RustSec database |
//! | mutants | changes both cores in thousands of places, and lists the changes that no test notices |
//!
//! A step whose tool is missing is skipped, and the verdict says so. Arguments behind `--` go to
//! cargo-mutants, for instance to choose the files to change: `cargo xtask assure mutants -- --file
//! account.rs -- --lib account`.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use anyhow::{Context as _, bail};

use crate::WrongUsage;
use crate::process::{cargo, is_there, root, succeeds, target};
use crate::tally::{self, Tally};
use crate::verdict::Verdict;

type Step = fn(&mut Tally, &[String]) -> anyhow::Result<bool>;

const STEPS: [(&str, Step); 7] = [
    ("interleavings", |tally, _| interleavings(tally)),
    ("memory", |tally, _| memory(tally)),
    ("fuzzing", |tally, _| fuzzing(tally)),
    ("coverage", |tally, _| coverage(tally)),
    ("alerts", |tally, _| alerts(tally)),
    ("advisories", |tally, _| advisories(tally)),
    ("mutants", mutants),
];

/// The compiler's unstable options are needed for sanitizers; this permits them in the pinned compiler.
const UNSTABLE: (&str, &str) = ("RUSTC_BOOTSTRAP", "1");

/// Seconds that each fuzz target runs.
const FUZZING_S: u32 = 60;

/// Runs the named steps, or all; returns whether all succeeded. The words behind `--` are arguments for the
/// mutants' tool.
pub(crate) fn run(words: &[String]) -> anyhow::Result<bool> {
    let known = STEPS.map(|(name, _)| name);
    let (names, more) = match words.iter().position(|word| word == "--") {
        Some(at) if words[..at] == ["mutants"] => (&words[..at], &words[at + 1..]),
        Some(_) => bail!(WrongUsage("expected only the step mutants before `--`".to_owned())),
        None => (words, &[][..]),
    };
    if let Some(other) = names.iter().find(|name| !known.contains(&name.as_str())) {
        bail!(WrongUsage(format!("expected steps of {}, saw {other:?}", known.join(", "))));
    }
    let mut verdict = Verdict::default();
    for (name, step) in STEPS {
        if names.is_empty() || names.iter().any(|wanted| wanted == name) {
            verdict.step(name, |tally| step(tally, more))?;
        }
    }
    verdict.print();
    Ok(verdict.is_ok())
}

/// Returns a target directory of its own, because other flags would invalidate the results of ordinary
/// builds.
fn target_of(step: &str) -> PathBuf {
    target().join("assure").join(step)
}

fn tested(command: &mut Command, tally: &mut Tally) -> anyhow::Result<bool> {
    let (success, counted) = tally::run(command)?;
    let passed = counted.passed;
    tally.add(counted);
    // A filter that no test matches any more would succeed.
    Ok(success && passed > 0)
}

fn interleavings(tally: &mut Tally) -> anyhow::Result<bool> {
    let mut test = cargo(&["test", "--package", "ricochet", "--lib", "interleavings"]);
    test.env("RUSTFLAGS", "--cfg shuttle").env("CARGO_TARGET_DIR", target_of("interleavings"));
    tested(&mut test, tally)
}

fn memory(tally: &mut Tally) -> anyhow::Result<bool> {
    // With a target named, build scripts and macros are built without the sanitizer.
    let host = host()?;
    let packages = ["fec", "netio", "netlab"].map(|package| ["--package", package]).concat();
    let args =
        [&["test", "--target", &host, "--tests"], packages.as_slice(), &["--", "--show-output"]].concat();
    let mut test = cargo(&args);
    test.env("RUSTFLAGS", "-Zsanitizer=address")
        .env(UNSTABLE.0, UNSTABLE.1)
        .env("CARGO_TARGET_DIR", target_of("memory"));
    tested(&mut test, tally)
}

/// Returns the target for which the compiler builds by default.
fn host() -> anyhow::Result<String> {
    let version =
        Command::new("rustc").arg("-vV").current_dir(root()).output().context("cannot start rustc")?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

fn fuzzing(tally: &mut Tally) -> anyhow::Result<bool> {
    if !is_there(&mut cargo(&["fuzz", "--version"])) {
        tally.skipped.push("fuzzing: cargo-fuzz is not installed (cargo install cargo-fuzz)".to_owned());
        return Ok(true);
    }
    let mut targets: Vec<String> = fs::read_dir(root().join("fuzz/targets"))?
        .map(|entry| Ok(entry?.path().file_stem().unwrap_or_default().to_string_lossy().into_owned()))
        .collect::<std::io::Result<_>>()?;
    targets.sort();
    let seconds = format!("-max_total_time={FUZZING_S}");
    let mut all_succeeded = true;
    for name in &targets {
        println!("fuzzing {name} for {FUZZING_S} s");
        // New inputs go to a directory of their own; the committed ones are only read.
        let found = target_of("fuzzing").join("found").join(name);
        fs::create_dir_all(&found)?;
        let (found, committed) = (found.display().to_string(), format!("fuzz/corpus/{name}"));
        let artifacts = format!("-artifact_prefix={found}/fault-");
        let mut fuzz = cargo(&["fuzz", "run", name, &found, &committed, "--", &seconds, &artifacts]);
        fuzz.env(UNSTABLE.0, UNSTABLE.1).env("CARGO_TARGET_DIR", target_of("fuzzing"));
        if !succeeds(&mut fuzz)? {
            println!("fault in {name}: the input is in {found}");
            all_succeeded = false;
        }
    }
    Ok(all_succeeded)
}

fn coverage(tally: &mut Tally) -> anyhow::Result<bool> {
    if !is_there(&mut cargo(&["tarpaulin", "--version"])) {
        let reason = "coverage: cargo-tarpaulin is not installed (cargo install cargo-tarpaulin)";
        tally.skipped.push(reason.to_owned());
        return Ok(true);
    }
    let mut tarpaulin =
        cargo(&["tarpaulin", "--engine", "llvm", "--skip-clean", "--lib", "--tests", "--out", "Stdout"]);
    for package in ["fec", "maelstrom-core", "ricochet-core", "membership"] {
        tarpaulin.args(["--packages", package]);
    }
    // Simulated clusters run for minutes with the instruments.
    tarpaulin.args(["--timeout", "3600"]).arg("--target-dir").arg(target_of("coverage"));
    let success = succeeds(&mut tarpaulin);
    // Build scripts leave their profile in the working directory.
    let _ = fs::remove_file(root().join("build_rs_cov.profraw"));
    success
}

fn alerts(tally: &mut Tally) -> anyhow::Result<bool> {
    let test = ["test", "--package", "undrop", "--test", "kernel", "prometheus::"];
    tested(&mut cargo(&[test.as_slice(), &["--", "--ignored", "--show-output"]].concat()), tally)
}

fn advisories(tally: &mut Tally) -> anyhow::Result<bool> {
    if !is_there(&mut cargo(&["deny", "--version"])) {
        tally.skipped.push("advisories: cargo-deny is not installed (cargo install cargo-deny)".to_owned());
        return Ok(true);
    }
    if succeeds(&mut cargo(&["deny", "fetch", "db"]))? {
        return succeeds(&mut cargo(&["deny", "--workspace", "check", "advisories"]));
    }
    println!("the database could not be fetched; an earlier copy is tried");
    if !has_databases() {
        tally
            .skipped
            .push("advisories: no copy of the RustSec database, and none could be fetched".to_owned());
        return Ok(true);
    }
    succeeds(&mut cargo(&["deny", "--offline", "--workspace", "check", "advisories"]))
}

/// Whether cargo-deny has a copy of a database in its usual place. A fetch that failed may leave an empty
/// directory.
fn has_databases() -> bool {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let Some(home) = home.or_else(|| Some(env::home_dir()?.join(".cargo"))) else { return false };
    let Ok(copies) = fs::read_dir(home.join("advisory-dbs")) else { return false };
    copies.flatten().any(|copy| copy.path().join(".git/FETCH_HEAD").is_file())
}

fn mutants(tally: &mut Tally, more: &[String]) -> anyhow::Result<bool> {
    if !is_there(&mut cargo(&["mutants", "--version"])) {
        tally
            .skipped
            .push("mutants: cargo-mutants is not installed (cargo install cargo-mutants)".to_owned());
        return Ok(true);
    }
    let directory = target_of("mutants");
    fs::create_dir_all(&directory)?;
    let mut mutants =
        cargo(&["mutants", "--package", "maelstrom-core", "--package", "ricochet-core", "--output"]);
    mutants.arg(&directory).args(more);
    // The tool builds a copy of the repository, whose results are of no use to ordinary builds.
    mutants.env("CARGO_TARGET_DIR", directory.join("target"));
    let success = succeeds(&mut mutants)?;
    let lists = directory.join("mutants.out");
    println!("lists of mutants: {}", lists.display());
    let chosen = fs::read_to_string(lists.join("mutants.json")).unwrap_or_default();
    if chosen.trim() == "[]" {
        println!("expected at least one place to change, found none: see the arguments behind `--`");
        return Ok(false);
    }
    Ok(success)
}
