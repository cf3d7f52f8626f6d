//! Packages for Debian, written by its own tool.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::archive;
use super::release::{Release, output};
use super::target::Target;
use super::tree::Tree;
use crate::process::{is_there, root, succeeds};
use crate::tally::Tally;

/// Scripts that run when the package is installed and removed.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Description of the package for its users.
const DESCRIPTION: &str = "\
Description: recovers lost packets before applications notice the loss
 Maelstrom is a pair of gateways at the two ends of a lossy long-haul link.
 Each gateway sends repairs for the packets that leave its site, and recovers
 packets that were lost on the way to it. Hosts need no changes.
 .
 Ricochet is multicast for processes that join many groups. Receivers exchange
 repairs, and recover losses within milliseconds.
";

/// Returns the name of a package's file.
pub(super) fn name(release: &Release, target: &Target) -> String {
    format!("undrop_{}_{}.deb", release.package_version(), target.debian)
}

/// Writes the package.
pub(super) fn build(
    release: &Release,
    target: &Target,
    tree: &Tree,
    tally: &mut Tally,
) -> anyhow::Result<()> {
    if !is_there(Command::new("dpkg-deb").arg("--version")) {
        tally.skipped.push("Debian package: no dpkg-deb (apt-get install dpkg)".to_owned());
        return Ok(());
    }
    let package = tree.root.with_file_name(format!("deb-{}", target.debian));
    ensure!(succeeds(Command::new("cp").arg("-a").arg(&tree.root).arg(&package))?, "cp cannot copy the tree");
    write_control(release, target, tree, &package)?;
    archive::date(release, &package)?;
    let mut pack = Command::new("dpkg-deb");
    // Several threads cut the data into blocks, so that the result would depend on the machine.
    pack.args(["--root-owner-group", "-Zxz", "--threads-max=1", "--build"]);
    pack.arg(&package).arg(release.out.join(name(release, target)));
    ensure!(succeeds(pack.env("SOURCE_DATE_EPOCH", release.epoch.to_string()))?, "dpkg-deb has failed");
    Ok(())
}

fn write_control(release: &Release, target: &Target, tree: &Tree, package: &Path) -> anyhow::Result<()> {
    let place = package.join("DEBIAN");
    fs::create_dir_all(&place).with_context(|| place.display().to_string())?;
    fs::write(place.join("control"), control(release, target, tree.bytes()?))?;
    let configuration: String = tree.configuration().map(|file| format!("/{file}\n")).collect();
    fs::write(place.join("conffiles"), configuration)?;
    let others = tree.files.iter().filter(|file| !file.starts_with("etc/"));
    let sums = output(Command::new("md5sum").args(others).current_dir(&tree.root))? + "\n";
    fs::write(place.join("md5sums"), sums)?;
    for name in ["control", "conffiles", "md5sums"] {
        fs::set_permissions(place.join(name), Permissions::from_mode(0o644))?;
    }
    for name in SCRIPTS {
        fs::copy(root().join("packaging/debian").join(name), place.join(name))?;
        fs::set_permissions(place.join(name), Permissions::from_mode(0o755))?;
    }
    fs::set_permissions(&place, Permissions::from_mode(0o755))?;
    Ok(())
}

/// Returns the description of the package. The program needs no libraries of the system.
fn control(release: &Release, target: &Target, bytes: u64) -> String {
    let (version, architecture, kilobytes) =
        (release.package_version(), target.debian, bytes.div_ceil(1_024));
    format!(
        "Package: undrop\nVersion: {version}\nArchitecture: {architecture}\nSection: net\nPriority: optional\n\
         Maintainer: The Undrop developers <undrop@localhost>\nInstalled-Size: {kilobytes}\nDepends: passwd\n\
         Recommends: systemd\nSuggests: prometheus, bash-completion\n{DESCRIPTION}"
    )
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::target::TARGETS;
    use super::*;

    fn release() -> Release {
        Release { version: "1.2.0-rc.1".into(), commit: "c".into(), epoch: 0, out: PathBuf::new() }
    }

    #[test]
    fn the_control_file_has_what_debian_requires() {
        for target in &TARGETS {
            let text = control(&release(), target, 10_241);
            for line in ["Package: undrop", "Version: 1.2.0~rc.1", "Installed-Size: 11", "Depends: passwd"] {
                assert!(text.lines().any(|seen| seen == line), "{line} is not in\n{text}");
            }
            assert!(text.contains(&format!("\nArchitecture: {}\n", target.debian)));
            assert!(text.lines().all(|line| line.len() <= 80 && !line.trim().is_empty()), "{text}");
            assert_eq!(name(&release(), target), format!("undrop_1.2.0~rc.1_{}.deb", target.debian));
        }
    }

    #[test]
    fn the_scripts_are_correct_shell() {
        for name in SCRIPTS {
            let script = root().join("packaging/debian").join(name);
            assert!(succeeds(Command::new("sh").arg("-n").arg(&script)).unwrap(), "{name}");
            let text = fs::read_to_string(&script).unwrap();
            assert!(text.starts_with("#!/bin/sh\n") && text.contains("\nset -e\n"), "{name}");
        }
    }

    #[test]
    fn the_package_has_its_files_and_two_packages_of_a_tree_are_equal() {
        if !is_there(Command::new("dpkg-deb").arg("--version")) {
            println!("SKIPPED: the_package_has_its_files: no dpkg-deb (apt-get install dpkg)");
            return;
        }
        let room = std::env::temp_dir().join(format!("undrop-deb-{}", std::process::id()));
        let _ = fs::remove_dir_all(&room);
        let mut digests = Vec::new();
        for copy in ["first", "second"] {
            let tree = Tree {
                root: room.join(copy).join("tree"),
                files: vec!["etc/undrop/a".to_owned(), "usr/bin/undrop".to_owned()],
            };
            for file in &tree.files {
                fs::create_dir_all(tree.root.join(file).parent().unwrap()).unwrap();
                fs::write(tree.root.join(file), file).unwrap();
            }
            let release = Release { out: room.join(copy), epoch: 1_700_000_000, ..release() };
            let mut tally = Tally::default();
            build(&release, &TARGETS[0], &tree, &mut tally).unwrap();
            let package = release.out.join(name(&release, &TARGETS[0]));
            digests.push(archive::sha256(&package).unwrap());
            let listed = output(Command::new("dpkg-deb").arg("--contents").arg(&package)).unwrap();
            assert!(listed.contains("root/root") && listed.contains("./usr/bin/undrop"), "{listed}");
            let field =
                |name| output(Command::new("dpkg-deb").arg("--field").arg(&package).arg(name)).unwrap();
            assert_eq!([field("Package"), field("Version")], ["undrop", "1.2.0~rc.1"]);
            let info = output(Command::new("dpkg-deb").arg("--info").arg(&package).arg("conffiles")).unwrap();
            assert_eq!(info, "/etc/undrop/a");
        }
        assert_eq!(digests[0], digests[1]);
        fs::remove_dir_all(&room).unwrap();
    }
}
