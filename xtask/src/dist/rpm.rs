//! Packages for systems with RPM, written by its own tool.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::archive::files_below;
use super::release::Release;
use super::target::Target;
use super::tree::Tree;
use crate::process::{is_there, root, succeeds};
use crate::tally::Tally;

/// Writes the package.
pub(super) fn build(
    release: &Release,
    target: &Target,
    tree: &Tree,
    tally: &mut Tally,
) -> anyhow::Result<()> {
    if !is_there(Command::new("rpmbuild").arg("--version")) {
        tally.skipped.push("RPM package: no rpmbuild (apt-get install rpm)".to_owned());
        return Ok(());
    }
    let top = tree.root.with_file_name(format!("rpm-{}", target.rpm));
    fs::create_dir_all(&top).with_context(|| top.display().to_string())?;
    let list = top.join("files");
    fs::write(&list, files(&tree.files)).with_context(|| list.display().to_string())?;
    let mut pack = Command::new("rpmbuild");
    let define = |name: &str, value: String| ["--define".to_owned(), format!("{name} {value}")];
    pack.args(["-bb", "--quiet", "--nodeps", "--target"]).arg(format!("{}-linux", target.rpm));
    pack.args(define("_topdir", top.display().to_string()));
    pack.args(define("undrop_version", release.package_version()));
    pack.args(define("undrop_tree", tree.root.display().to_string()));
    pack.args(define("undrop_files", list.display().to_string()));
    pack.arg(root().join("packaging/rpm/undrop.spec"));
    ensure!(
        succeeds(pack.env("SOURCE_DATE_EPOCH", release.epoch.to_string()))?,
        "rpmbuild has failed for {}",
        target.rpm
    );
    for package in files_below(&top.join("RPMS"))? {
        let name = package.file_name().context("expected a package, saw no name")?;
        fs::copy(&package, release.out.join(name)).with_context(|| package.display().to_string())?;
    }
    Ok(())
}

/// Returns the list of files for rpmbuild: files that an operator may change are kept by an upgrade.
fn files(files: &[String]) -> String {
    let line = |file: &String| {
        let kind = match file.split('/').next() {
            Some("etc") => "%config(noreplace) ",
            _ if file.starts_with("usr/share/doc/") => "%doc ",
            _ => "",
        };
        let mode = if file.starts_with("usr/bin/") { "0755" } else { "0644" };
        format!("%attr({mode},root,root) {kind}\"/{file}\"\n")
    };
    let directory = |path: &String| format!("%dir %attr(0755,root,root) \"/{path}\"\n");
    let directories: String = directories(files).iter().map(directory).collect();
    directories + &files.iter().map(line).collect::<String>()
}

/// Returns the directories that belong to the package alone: those called `undrop`, and all below them. An
/// erased package leaves directories that it does not name.
fn directories(files: &[String]) -> BTreeSet<String> {
    let parents = files.iter().flat_map(|file| Path::new(file).ancestors().skip(1));
    let own = parents.filter(|path| path.iter().any(|part| part == "undrop"));
    own.map(|path| path.display().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::super::target::TARGETS;
    use super::*;

    #[test]
    fn files_of_the_operator_are_marked() {
        let names = ["etc/undrop/gateway.toml.example", "usr/bin/undrop", "usr/share/doc/undrop/README.md"];
        let list = files(&names.map(str::to_owned));
        for line in [
            "%dir %attr(0755,root,root) \"/etc/undrop\"",
            "%attr(0644,root,root) %config(noreplace) \"/etc/undrop/gateway.toml.example\"",
            "%attr(0755,root,root) \"/usr/bin/undrop\"",
            "%attr(0644,root,root) %doc \"/usr/share/doc/undrop/README.md\"",
        ] {
            assert!(list.lines().any(|seen| seen == line), "{line} is not in\n{list}");
        }
    }

    /// Runs `rpm` on a system of its own below `root`; returns whether it succeeded.
    fn rpm(root: &Path, args: &[&str]) -> bool {
        let mut rpm = Command::new("rpm");
        let quiet = rpm.arg("--root").arg(root).args(args).stderr(Stdio::null());
        succeeds(quiet).unwrap()
    }

    #[test]
    fn a_package_is_installed_whole_and_erased_without_a_rest() {
        let test = "a_package_is_installed_whole_and_erased_without_a_rest";
        // rpm changes its root directory.
        let is_root = is_there(Command::new("sh").args(["-c", "test $(id -u) = 0"]));
        if !is_root || !is_there(Command::new("rpmbuild").arg("--version")) {
            println!("SKIPPED: {test}: needs root, and rpmbuild (apt-get install rpm)");
            return;
        }
        let room = std::env::temp_dir().join(format!("undrop-rpm-{}", std::process::id()));
        let _ = fs::remove_dir_all(&room);
        let files = ["etc/undrop/gateway.toml.example", "usr/bin/undrop", "usr/share/undrop/grafana/a.json"];
        let tree = Tree { root: room.join("tree"), files: files.map(str::to_owned).to_vec() };
        for file in &tree.files {
            fs::create_dir_all(tree.root.join(file).parent().unwrap()).unwrap();
            fs::write(tree.root.join(file), file).unwrap();
        }
        let (out, system) = (room.join("out"), room.join("system"));
        fs::create_dir_all(&out).unwrap();
        fs::create_dir_all(&system).unwrap();
        let release = Release { version: "1.2.0-rc.1".into(), commit: "c".into(), epoch: 1_700_000_000, out };
        build(&release, &TARGETS[0], &tree, &mut Tally::default()).unwrap();
        let package = release.out.join("undrop-1.2.0~rc.1-1.x86_64.rpm");

        assert!(rpm(&system, &["--initdb"]));
        let package = package.to_str().unwrap();
        assert!(rpm(&system, &["--install", "--nodeps", "--noscripts", "--ignorearch", package]));
        assert!(rpm(&system, &["--verify", "--nodeps", "--noscripts", "undrop"]), "all is as it was packed");
        for file in &tree.files {
            assert_eq!(fs::read_to_string(system.join(file)).unwrap(), *file);
        }
        let changed = system.join(files[0]);
        fs::write(&changed, "of the operator").unwrap();
        assert!(rpm(&system, &["--erase", "--noscripts", "undrop"]));
        let left: Vec<_> = files_below(&system).unwrap();
        let left: Vec<_> = left.iter().filter(|path| path.starts_with(system.join("etc"))).collect();
        assert_eq!(left, [&changed.with_extension("example.rpmsave")], "what was changed is kept");
        assert!(!system.join("usr/share/undrop").exists() && !system.join("usr/bin/undrop").exists());
        fs::remove_dir_all(&room).unwrap();
    }
}
