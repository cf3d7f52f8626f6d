//! Packages for systems with RPM, written by its own tool.

use std::fs;
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
    let own = ["/etc/undrop", "/usr/share/undrop", "/usr/share/doc/undrop"];
    let directories = own.map(|path| format!("%dir %attr(0755,root,root) \"{path}\"\n")).concat();
    directories + &files.iter().map(line).collect::<String>()
}

#[cfg(test)]
mod tests {
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
}
