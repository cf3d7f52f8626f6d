//! The Python module: builds it as users do, installs it into a separate environment, and tests it there.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::process::{is_there, root, succeeds, target};
use crate::tally::Tally;

/// Builds the module, checks its types and runs its tests; returns whether all succeeded. The tests print
/// their counts in the way of cargo's, so that `tally` gets only the reasons for which none of them ran.
pub(crate) fn test(tally: &mut Tally) -> anyhow::Result<bool> {
    let Some(python) = interpreter() else {
        let reason = "Python module: no python3 (3.11 or newer) with venv (apt-get install python3-venv)";
        tally.skipped.push(reason.to_owned());
        return Ok(true);
    };
    let module = root().join("bindings/python");
    let environment = target().join("python");
    prepare(python, &environment, &module.join("requirements-test.txt"))?;
    let program = |name: &str| Command::new(environment.join("bin").join(name));
    install(&environment, &module)?;
    if !succeeds(
        program("mypy").arg("--no-error-summary").args(["python", "tests", "examples"]).current_dir(&module),
    )? {
        return Ok(false);
    }
    let mut tests = program("pytest");
    tests.args(["-q", "-p", "no:cacheprovider"]).current_dir(&module).env("PYTHONDONTWRITEBYTECODE", "1");
    succeeds(&mut tests)
}

/// Returns the Python of this machine, if it can create environments and the module runs with it.
pub(crate) fn interpreter() -> Option<&'static str> {
    let python = "python3";
    let asked = "import venv, ensurepip, sys; sys.exit(sys.version_info < (3, 11))";
    is_there(Command::new(python).args(["-c", asked])).then_some(python)
}

/// Creates an environment with the tools that the file `pins` names, unless there is one with the same pins.
pub(crate) fn prepare(python: &str, environment: &Path, pins: &Path) -> anyhow::Result<()> {
    let wanted = std::fs::read_to_string(pins).with_context(|| pins.display().to_string())?;
    let mark = environment.join("installed.txt");
    if std::fs::read_to_string(&mark).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    let made = succeeds(Command::new(python).args(["-m", "venv", "--clear"]).arg(environment))?;
    ensure!(made, "cannot create a Python environment in {}", environment.display());
    let pip = environment.join("bin/pip");
    let quiet = ["install", "--quiet", "--disable-pip-version-check", "-r"];
    ensure!(succeeds(Command::new(pip).args(quiet).arg(pins))?, "pip cannot install {}", pins.display());
    std::fs::write(&mark, wanted).with_context(|| mark.display().to_string())
}

/// Builds the wheel and installs it.
fn install(environment: &Path, module: &Path) -> anyhow::Result<()> {
    let wheels = target().join("wheels");
    if wheels.exists() {
        std::fs::remove_dir_all(&wheels).with_context(|| wheels.display().to_string())?;
    }
    let mut build = Command::new(environment.join("bin/maturin"));
    // The build shares the target directory of the workspace, and so reuses its results.
    build.args(["build", "--quiet", "--locked", "--profile", "dev", "--out"]).arg(&wheels);
    build.current_dir(module).env("CARGO_TARGET_DIR", target());
    ensure!(succeeds(&mut build)?, "maturin cannot build the wheel of the Python module");
    let wheel = only_file(&wheels)?;
    let mut pip = Command::new(environment.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--force-reinstall"])
        .arg(wheel);
    ensure!(succeeds(&mut pip)?, "pip cannot install the wheel of the Python module");
    Ok(())
}

fn only_file(directory: &Path) -> anyhow::Result<PathBuf> {
    let mut entries = std::fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let first = entries
        .next()
        .with_context(|| format!("expected a wheel in {}, saw no file", directory.display()))?;
    Ok(first?.path())
}
