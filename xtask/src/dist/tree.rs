//! The files of a package, as a tree below a directory. All formats pack the same tree.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use super::archive;
use super::parts::Parts;
use super::release::Release;
use super::target::Target;
use crate::process::root;

/// Files that packages take from the repository as they are: their path there, and in the package.
pub(super) const FROM_REPOSITORY: [(&str, &str); 22] = [
    ("packaging/systemd/undrop-gateway@.service", "usr/lib/systemd/system/undrop-gateway@.service"),
    ("packaging/systemd/undrop-node@.service", "usr/lib/systemd/system/undrop-node@.service"),
    ("packaging/systemd/undrop.sysusers", "usr/lib/sysusers.d/undrop.conf"),
    ("packaging/systemd/undrop.tmpfiles", "usr/lib/tmpfiles.d/undrop.conf"),
    ("packaging/etc/gateway.toml.example", "etc/undrop/gateway.toml.example"),
    ("packaging/etc/node.toml.example", "etc/undrop/node.toml.example"),
    ("packaging/etc/node.env.example", "etc/undrop/node.env.example"),
    ("ops/undrop.rules.yml", "usr/share/undrop/prometheus/undrop.rules.yml"),
    ("ops/undrop.rules.test.yml", "usr/share/undrop/prometheus/undrop.rules.test.yml"),
    ("ops/undrop.dashboard.json", "usr/share/undrop/grafana/undrop.dashboard.json"),
    ("ops/undrop.lua", "usr/share/undrop/wireshark/undrop.lua"),
    ("packaging/copyright", "usr/share/doc/undrop/copyright"),
    ("LICENSE-APACHE", "usr/share/doc/undrop/LICENSE-APACHE"),
    ("LICENSE-MIT", "usr/share/doc/undrop/LICENSE-MIT"),
    ("README.md", "usr/share/doc/undrop/README.md"),
    ("CHANGELOG.md", "usr/share/doc/undrop/CHANGELOG.md"),
    ("SECURITY.md", "usr/share/doc/undrop/SECURITY.md"),
    ("docs/maelstrom.md", "usr/share/doc/undrop/maelstrom.md"),
    ("docs/ricochet.md", "usr/share/doc/undrop/ricochet.md"),
    ("docs/codes.md", "usr/share/doc/undrop/codes.md"),
    ("docs/wire.md", "usr/share/doc/undrop/wire.md"),
    ("docs/glossary.md", "usr/share/doc/undrop/glossary.md"),
];

/// Completions: the name that clap gives the file, and the path in the package.
const COMPLETIONS: [(&str, &str); 3] = [
    ("undrop.bash", "usr/share/bash-completion/completions/undrop"),
    ("_undrop", "usr/share/zsh/vendor-completions/_undrop"),
    ("undrop.fish", "usr/share/fish/vendor_completions.d/undrop.fish"),
];

pub(super) const PROGRAM: &str = "usr/bin/undrop";
const MAN_PAGES: &str = "usr/share/man/man1";
const DOCUMENTS: &str = "usr/share/doc/undrop";

/// Sources of a package beside the repository.
pub(super) struct Sources<'a> {
    pub(super) program: PathBuf,
    /// Directory of the man pages and completions.
    pub(super) manual: &'a Path,
    pub(super) parts: Parts,
}

/// The files of a package.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) root: PathBuf,
    /// Paths below the root, sorted.
    pub(super) files: Vec<String>,
}

/// Copies all files below a new directory.
pub(super) fn build(
    release: &Release,
    target: &Target,
    work: &Path,
    sources: &Sources<'_>,
) -> anyhow::Result<Tree> {
    let mut tree = Tree { root: work.join(format!("tree-{}", target.debian)), files: Vec::new() };
    tree.copy(&sources.program, PROGRAM, 0o755)?;
    for (from, to) in FROM_REPOSITORY {
        tree.copy(&root().join(from), to, 0o644)?;
    }
    for (from, to) in COMPLETIONS {
        tree.copy(&sources.manual.join("completions").join(from), to, 0o644)?;
    }
    for page in archive::files_below(&sources.manual.join("man"))? {
        let name = page.file_name().context("expected a man page, saw no name")?.to_string_lossy();
        tree.copy_compressed(&page, &format!("{MAN_PAGES}/{name}"))?;
    }
    tree.copy(&sources.parts.bill, &format!("{DOCUMENTS}/undrop.cdx.json"), 0o644)?;
    tree.copy_compressed(&sources.parts.licences, &format!("{DOCUMENTS}/THIRD-PARTY"))?;
    tree.files.sort();
    tree.open_directories()?;
    archive::date(release, &tree.root)?;
    Ok(tree)
}

impl Tree {
    fn copy(&mut self, from: &Path, to: &str, mode: u32) -> anyhow::Result<PathBuf> {
        let path = self.root.join(to);
        let parent = path.parent().context("expected a path with a directory")?;
        fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        fs::copy(from, &path).with_context(|| format!("cannot copy {}", from.display()))?;
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
        self.files.push(to.to_owned());
        Ok(path)
    }

    fn copy_compressed(&mut self, from: &Path, to: &str) -> anyhow::Result<()> {
        let path = self.copy(from, to, 0o644)?;
        archive::gzip(&path)?;
        self.files.pop();
        self.files.push(format!("{to}.gz"));
        Ok(())
    }

    /// Sets the mode of all directories, which that of the builder's user may have changed.
    fn open_directories(&self) -> anyhow::Result<()> {
        let mut open = vec![self.root.clone()];
        while let Some(directory) = open.pop() {
            fs::set_permissions(&directory, Permissions::from_mode(0o755))?;
            for entry in fs::read_dir(&directory)? {
                let path = entry?.path();
                if path.is_dir() {
                    open.push(path);
                }
            }
        }
        Ok(())
    }

    /// Returns the files that an operator may change.
    pub(super) fn configuration(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(String::as_str).filter(|file| file.starts_with("etc/"))
    }

    /// Returns the number of bytes of all files.
    pub(super) fn bytes(&self) -> anyhow::Result<u64> {
        let length = |file: &String| Ok(fs::metadata(self.root.join(file))?.len());
        self.files.iter().map(length).sum()
    }

    /// Writes the tree as an archive, for systems with other packages.
    pub(super) fn pack(&self, release: &Release, target: &Target) -> anyhow::Result<()> {
        ensure!(self.root.join(PROGRAM).exists(), "expected the program in the tree, saw none");
        let name = format!("undrop-{}-{}.tar.gz", release.version, target.triple);
        archive::tar(release, &self.root, &release.out.join(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_of_a_package_is_in_the_repository_and_has_its_own_place() {
        let mut places: Vec<&str> = FROM_REPOSITORY.iter().chain(&COMPLETIONS).map(|(_, to)| *to).collect();
        for (from, _) in FROM_REPOSITORY {
            assert!(root().join(from).is_file(), "{from}");
        }
        let count = places.len();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), count);
        let is_known =
            |place: &str| ["etc/undrop/", "usr/lib/", "usr/share/"].iter().any(|at| place.starts_with(at));
        assert!(places.iter().all(|place| is_known(place)), "{places:?}");
    }

    #[test]
    fn a_tree_has_the_modes_and_times_of_the_release_and_its_configuration_apart() {
        let room = std::env::temp_dir().join(format!("undrop-tree-{}", std::process::id()));
        let _ = fs::remove_dir_all(&room);
        let manual = room.join("manual");
        for name in
            ["man/undrop.1", "completions/undrop.bash", "completions/_undrop", "completions/undrop.fish"]
        {
            fs::create_dir_all(manual.join(name).parent().unwrap()).unwrap();
            fs::write(manual.join(name), name).unwrap();
        }
        let program = room.join("program");
        fs::write(&program, "#!/bin/sh\n").unwrap();
        let parts = Parts { bill: program.clone(), licences: program.clone() };
        let release =
            Release { version: "1.0.0".into(), commit: "c".into(), epoch: 1_700_000_000, out: room.clone() };
        let sources = Sources { program, manual: &manual, parts };
        let tree = build(&release, &super::super::TARGETS[0], &room, &sources).unwrap();
        let mode = |name: &str| fs::metadata(tree.root.join(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!(
            [mode(PROGRAM), mode("usr/bin"), mode("etc/undrop/gateway.toml.example")],
            [0o755, 0o755, 0o644]
        );
        assert!(tree.files.contains(&"usr/share/man/man1/undrop.1.gz".to_owned()), "{:?}", tree.files);
        assert!(tree.files.iter().all(|file| tree.root.join(file).is_file()));
        assert_eq!(archive::files_below(&tree.root).unwrap().len(), tree.files.len());
        assert_eq!(tree.configuration().count(), 3);
        assert!(tree.bytes().unwrap() > 10_000);
        let (first, second) = (room.join("first.tar"), room.join("second.tar"));
        archive::tar(&release, &tree.root, &first).unwrap();
        archive::tar(&release, &tree.root, &second).unwrap();
        assert_eq!(archive::sha256(&first).unwrap(), archive::sha256(&second).unwrap());
        fs::remove_dir_all(&room).unwrap();
    }
}
