//! Wheels of the Python module: for each processor one for systems with glibc, and one for those with musl.
//!
//! The stable ABI of Python serves all versions from 3.11 on. `maturin` packs the wheels. `zig`, which PyPI
//! has as a package, is C compiler and linker: with it a module needs no newer glibc than 2.17, whatever the
//! machine has.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::release::Release;
use super::target::{Target, is_installed, set_build_variables};
use crate::process::{root, succeeds, target};
use crate::python;
use crate::tally::Tally;

/// A library of C, by the names that compiler and wheels have for it.
#[derive(Clone, Copy, Debug)]
struct Libc {
    /// Of the compiler.
    name: &'static str,
    /// Of the oldest systems on which a wheel can be installed, without the processor.
    systems: &'static str,
}

const LIBCS: [Libc; 2] =
    [Libc { name: "gnu", systems: "manylinux2014" }, Libc { name: "musl", systems: "musllinux_1_2" }];

/// Builds the wheels for a processor.
pub(super) fn build(release: &Release, target: &Target, tally: &mut Tally) -> anyhow::Result<()> {
    let Some(environment) = environment(tally)? else { return Ok(()) };
    for libc in LIBCS {
        let triple = format!("{}-unknown-linux-{}", target.rpm, libc.name);
        if !is_installed(&triple)? {
            let missing = format!("wheel for {triple}: no such target (rustup target add {triple})");
            tally.skipped.push(missing);
            continue;
        }
        wheel(release, &triple, libc, &environment)?;
        let name = name(release, target, libc);
        ensure!(release.out.join(&name).exists(), "expected the wheel {name}, saw {:?}", listed(release)?);
    }
    Ok(())
}

/// Returns an environment with the pinned tools. `None` where there is no Python, which is a skipped step.
fn environment(tally: &mut Tally) -> anyhow::Result<Option<PathBuf>> {
    let Some(python) = python::interpreter() else {
        let missing =
            "wheels: no python3 (3.11 or newer) with venv (apt-get install python3-venv)".to_owned();
        if !tally.skipped.contains(&missing) {
            tally.skipped.push(missing);
        }
        return Ok(None);
    };
    let environment = target().join("dist-python");
    python::prepare(python, &environment, &root().join("bindings/python/requirements-dist.txt"))?;
    Ok(Some(environment))
}

fn wheel(release: &Release, triple: &str, libc: Libc, environment: &Path) -> anyhow::Result<()> {
    let mut build = Command::new(environment.join("bin/maturin"));
    build.args(["build", "--release", "--locked", "--zig", "--target", triple]);
    build.args(["--compatibility", libc.systems, "--out"]).arg(&release.out);
    build.current_dir(root().join("bindings/python"));
    set_build_variables(release, &mut build)?;
    // maturin looks for zig in the Python that it finds first.
    let path = env::var_os("PATH").unwrap_or_default();
    let places = [environment.join("bin")].into_iter().chain(env::split_paths(&path));
    build.env("PATH", env::join_paths(places).context("PATH")?);
    ensure!(succeeds(&mut build)?, "maturin cannot build the wheel for {triple}");
    Ok(())
}

/// Returns the name of a wheel's file, from which installers learn where it runs.
fn name(release: &Release, target: &Target, libc: Libc) -> String {
    // PEP 440: what comes before a release has no mark between it and the version.
    let version = release.version.replace("-rc.", "rc").replace("-beta.", "b").replace("-alpha.", "a");
    let systems = match libc.name {
        // The name by year, and that by the oldest glibc (PEP 600) for the same.
        "gnu" => format!("manylinux2014_{0}.manylinux_2_17_{0}", target.rpm),
        _ => format!("{}_{}", libc.systems, target.rpm),
    };
    format!("undrop-{version}-cp311-abi3-{systems}.whl")
}

fn listed(release: &Release) -> anyhow::Result<Vec<String>> {
    let files = super::archive::files_below(&release.out)?;
    let names = files.iter().filter_map(|path| path.file_name());
    Ok(names.map(|name| name.to_string_lossy().into_owned()).collect())
}

/// Installs the wheel for this machine into a new environment, and lets its two nodes of the README talk.
pub(super) fn try_it(release: &Release, target: &Target) -> anyhow::Result<()> {
    let wheel = release.out.join(name(release, target, LIBCS[0]));
    ensure!(wheel.exists(), "expected {}, saw no such file", wheel.display());
    let python = python::interpreter().context("expected python3 with venv, saw none")?;
    let environment = super::target::directory().join("wheel");
    let made = succeeds(Command::new(python).args(["-m", "venv", "--clear"]).arg(&environment))?;
    ensure!(made, "cannot create a Python environment in {}", environment.display());
    let bin = environment.join("bin");
    let mut install = Command::new(bin.join("pip"));
    install
        .args(["install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"])
        .arg(&wheel);
    ensure!(succeeds(&mut install)?, "pip cannot install {}", wheel.display());
    let example = root().join("bindings/python/examples/quickstart.py");
    let mut run = Command::new(bin.join("python"));
    ensure!(succeeds(run.arg(example).current_dir(&environment))?, "the example does not run with the wheel");
    println!("the wheel of this machine works");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::target::TARGETS;
    use super::*;

    #[test]
    fn wheels_have_the_names_that_installers_understand() {
        let release =
            Release { version: "1.2.0-rc.1".into(), commit: "c".into(), epoch: 0, out: PathBuf::new() };
        let names = TARGETS.map(|target| LIBCS.map(|libc| name(&release, &target, libc)));
        assert_eq!(
            names.concat(),
            [
                "undrop-1.2.0rc1-cp311-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
                "undrop-1.2.0rc1-cp311-abi3-musllinux_1_2_x86_64.whl",
                "undrop-1.2.0rc1-cp311-abi3-manylinux2014_aarch64.manylinux_2_17_aarch64.whl",
                "undrop-1.2.0rc1-cp311-abi3-musllinux_1_2_aarch64.whl",
            ]
        );
    }
}
