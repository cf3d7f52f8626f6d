//! Archives and checksums that depend on nothing but the names and contents of files.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, ensure};

use super::release::{Release, output};
use crate::process::succeeds;

/// Writes a tar archive of all that is below `tree`, compressed with gzip if the name ends in `.gz`.
pub(super) fn tar(release: &Release, tree: &Path, archive: &Path) -> anyhow::Result<()> {
    let is_compressed = archive.extension().is_some_and(|kind| kind == "gz");
    let plain = if is_compressed { archive.with_extension("") } else { archive.to_owned() };
    let mut pack = Command::new("tar");
    pack.args(["--create", "--format=gnu", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    pack.arg(format!("--mtime=@{}", release.epoch)).arg("--mode=u=rwX,go=rX");
    pack.arg("--file").arg(&plain).arg("--directory").arg(tree).arg(".");
    ensure!(succeeds(&mut pack)?, "tar cannot write {}", plain.display());
    if is_compressed { gzip(&plain) } else { Ok(()) }
}

/// Compresses a file, which gets the further extension `.gz`, without its name and time.
pub(super) fn gzip(file: &Path) -> anyhow::Result<()> {
    let mut gzip = Command::new("gzip");
    gzip.args(["--no-name", "--best", "--force"]).arg(file);
    ensure!(succeeds(&mut gzip)?, "gzip cannot compress {}", file.display());
    Ok(())
}

/// Returns all files below a directory, sorted by path.
pub(super) fn files_below(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() { open.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    Ok(files)
}

/// Gives all files and directories the time of the release.
pub(super) fn date(release: &Release, tree: &Path) -> anyhow::Result<()> {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(release.epoch);
    let mut open = vec![tree.to_owned()];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            for entry in fs::read_dir(&path).with_context(|| path.display().to_string())? {
                open.push(entry?.path());
            }
        }
        File::open(&path)?.set_modified(time).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Returns the SHA-256 digest of a file, in hexadecimal digits.
pub(super) fn sha256(file: &Path) -> anyhow::Result<String> {
    let line = output(Command::new("sha256sum").arg("--").arg(file))?;
    let digest = line.split_whitespace().next().unwrap_or_default();
    ensure!(digest.len() == 64, "expected a digest of 64 digits from sha256sum, saw {line:?}");
    Ok(digest.to_owned())
}

/// Writes `SHA256SUMS`, which `sha256sum --check` reads.
pub(super) fn write_sums(out: &Path) -> anyhow::Result<()> {
    let names = files_below(out)?;
    let names = names.iter().map(|path| path.strip_prefix(out).expect("a file below the directory"));
    let mut sum = Command::new("sha256sum");
    sum.args(names).current_dir(out).stdout(Stdio::piped());
    let lines = output(&mut sum)? + "\n";
    let path = out.join("SHA256SUMS");
    fs::write(&path, lines).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::process;

    use super::*;

    #[test]
    fn archives_of_equal_trees_are_equal_whatever_the_order_and_time_of_their_files() {
        let room = std::env::temp_dir().join(format!("undrop-archive-{}", process::id()));
        let release =
            Release { version: "1.0.0".into(), commit: "c".into(), epoch: 1_700_000_000, out: room.clone() };
        let digest = |name: &str, files: [&str; 2]| {
            let tree = room.join(name);
            fs::create_dir_all(tree.join("usr")).unwrap();
            for file in files {
                fs::write(tree.join("usr").join(file), file).unwrap();
            }
            let archive = room.join(format!("{name}.tar.gz"));
            tar(&release, &tree, &archive).unwrap();
            (sha256(&archive).unwrap(), tree)
        };
        let (first, tree) = digest("first", ["a", "b"]);
        let (second, _) = digest("second", ["b", "a"]);
        assert_eq!(first, second);
        assert_ne!(first, digest("third", ["a", "c"]).0);
        date(&release, &tree).unwrap();
        let modified = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(release.epoch);
        assert_eq!([modified(&tree), modified(&tree.join("usr/a"))], [time, time]);

        write_sums(&room).unwrap();
        let check =
            Command::new("sha256sum").args(["--check", "--quiet", "SHA256SUMS"]).current_dir(&room).status();
        assert!(check.unwrap().success());
        let sums = fs::read_to_string(room.join("SHA256SUMS")).unwrap();
        assert!(sums.contains("  first.tar.gz\n") && sums.contains("  first/usr/a\n"), "{sums}");
        fs::remove_dir_all(&room).unwrap();
    }
}
