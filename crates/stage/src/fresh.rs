//! Names of temporary files and directories that nothing has yet.

use std::path::{Path, PathBuf};
use std::{io, process};

use anyhow::{Context as _, bail};

/// Maximum number of names that are tried.
const NAMES_MAX: u32 = 10_000;

/// Makes a file or a directory by a name that nothing has yet; returns its path and what `make` returned.
///
/// The name is the prefix, the id of this process, a number and the ending. A process that was killed leaves
/// its files behind, and in a container the next one often has the same id.
///
/// # Errors
/// Those of `make`, except that the name exists; or if all names exist.
pub fn make_new<T>(
    directory: &Path,
    prefix: &str,
    ending: &str,
    make: impl Fn(&Path) -> io::Result<T>,
) -> anyhow::Result<(PathBuf, T)> {
    let stem = format!("{prefix}-{}", process::id());
    for number in 0..NAMES_MAX {
        let path = directory.join(format!("{stem}-{number}{ending}"));
        match make(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => {
                let made = made.with_context(|| format!("making {}", path.display()))?;
                return Ok((path, made));
            }
        }
    }
    let place = directory.display();
    bail!("expected a free name in {place}, saw {NAMES_MAX} that begin with {stem}; remove them")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn names_that_a_killed_process_left_are_passed_over_and_its_files_stay() {
        let (room, ()) =
            make_new(&std::env::temp_dir(), "undrop-fresh", "", |path| fs::create_dir(path)).unwrap();
        let name = |number: u32| room.join(format!("x-{}-{number}.txt", process::id()));
        fs::write(name(0), "old").unwrap();
        fs::create_dir(name(1)).unwrap();
        let make = || make_new(&room, "x", ".txt", |path| fs::File::create_new(path)).unwrap().0;
        assert_eq!([make(), make()], [name(2), name(3)]);
        assert_eq!(fs::read_to_string(name(0)).unwrap(), "old");
        let error = make_new(&room.join("none"), "x", "", |path| fs::create_dir(path)).unwrap_err();
        assert!(format!("{error:#}").contains("making"), "{error:#}");
        fs::remove_dir_all(&room).unwrap();
    }

    #[test]
    fn the_search_for_a_name_ends() {
        let taken = |_: &Path| -> io::Result<()> { Err(io::ErrorKind::AlreadyExists.into()) };
        let error = make_new(Path::new("/nowhere"), "x", "", taken).unwrap_err().to_string();
        assert!(error.contains("/nowhere") && error.contains("remove them"), "{error}");
    }
}
