//! Programs of the tests: cargo builds all of them, and this task runs them, so that they can run side by
//! side.

use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use serde_json::Value;

use crate::process::cargo;

/// Names of test programs that use the real kernel: sockets, devices, namespaces.
const ON_THE_KERNEL: [&str; 5] = ["kernel", "noise_with_key", "noise_without_key", "cost", "user_namespace"];

/// A program that contains tests.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// Package and target, for example `netio kernel`.
    pub(crate) name: String,
    /// Whether its tests use the real kernel, and so mostly wait.
    pub(crate) uses_kernel: bool,
    path: PathBuf,
    /// Directory of the package, in which cargo runs its tests.
    directory: PathBuf,
}

impl Program {
    /// Returns the command that runs all tests of the program.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.arg("--show-output").current_dir(&self.directory);
        command.env("CARGO_MANIFEST_DIR", &self.directory);
        command
    }

    /// Reads a message of cargo. `None` if it is not about a program with tests.
    fn parse(line: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(line).ok()?;
        if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
            return None;
        }
        let path = message["executable"].as_str()?.into();
        let directory = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
        let package = directory.file_name()?.to_str()?;
        let (target, kind) = (message["target"]["name"].as_str()?, message["target"]["kind"][0].as_str()?);
        let is_of_tests = kind == "test";
        let name = if is_of_tests { format!("{package} {target}") } else { format!("{package} {kind}") };
        Some(Self { name, uses_kernel: is_of_tests && ON_THE_KERNEL.contains(&target), path, directory })
    }
}

/// Builds the targets that `which` selects in all packages; returns the programs with tests, or `None` if the
/// build fails.
pub(crate) fn build(which: &[&str]) -> anyhow::Result<Option<Vec<Program>>> {
    let args = [&["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"], which];
    let mut child = cargo(&args.concat()).stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
    let messages = BufReader::new(child.stdout.take().context("expected a pipe from cargo, saw none")?);
    let mut programs = Vec::new();
    for line in std::io::BufRead::lines(messages) {
        programs.extend(Program::parse(&line.context("cannot read cargo's messages")?));
    }
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(child.wait()?.success().then_some(programs))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: &str, target: &str, is_test: bool) -> String {
        serde_json::json!({
            "reason": "compiler-artifact",
            "manifest_path": "/u/crates/netio/Cargo.toml",
            "target": { "kind": [kind], "name": target },
            "profile": { "test": is_test },
            "executable": "/t/debug/deps/x-1",
        })
        .to_string()
    }

    #[test]
    fn programs_with_tests_are_found_and_those_on_the_kernel_are_known() {
        let name = |line: &str| Program::parse(line).map(|program| (program.name, program.uses_kernel));
        assert_eq!(name(&message("test", "kernel", true)), Some(("netio kernel".into(), true)));
        assert_eq!(name(&message("test", "it", true)), Some(("netio it".into(), false)));
        assert_eq!(name(&message("lib", "kernel", true)), Some(("netio lib".into(), false)));
        assert_eq!(name(&message("bin", "netio", false)), None, "a program of the product has no tests");
        assert_eq!(name(r#"{"reason":"build-finished","success":true}"#), None);
    }
}
