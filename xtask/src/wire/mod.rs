//! The tables of `docs/wire.md` and the layouts in `ops/undrop.lua`, the dissector for Wireshark, both from
//! `docs/wire.toml`. A test compares the two files with the source.

mod layouts;
mod lua;
mod page;

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;

use crate::process::root;
use layouts::Wire;

/// Writes both files, or complains of those that differ from the source.
///
/// # Errors
/// A mistake in the source, or a file that cannot be read or written.
pub(crate) fn run(writes: bool) -> anyhow::Result<bool> {
    let mut is_right = true;
    for (path, kept, made) in files()? {
        if kept == made {
            continue;
        } else if writes {
            fs::write(&path, made).with_context(|| format!("cannot write {}", path.display()))?;
        } else {
            is_right = false;
            println!("{} differs from docs/wire.toml: `cargo xtask wire --write`", path.display());
        }
    }
    Ok(is_right)
}

/// The path of each file, its text, and the text that the source gives it.
fn files() -> anyhow::Result<[(PathBuf, String, String); 2]> {
    let read = |name: &str| {
        let path = root().join(name);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        anyhow::Ok((path, text))
    };
    let wire = Wire::read(&read("docs/wire.toml")?.1).context("docs/wire.toml")?;
    let (page, tables) = read("docs/wire.md")?;
    let (dissector, script) = read("ops/undrop.lua")?;
    let made = page::fill(&wire, &tables).context("docs/wire.md")?;
    let written = lua::fill(&wire, &script).context("ops/undrop.lua")?;
    Ok([(page, tables, made), (dissector, script, written)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_and_the_dissector_are_those_of_the_source() {
        for (path, kept, made) in files().unwrap() {
            assert!(kept == made, "{}: run `cargo xtask wire --write`", path.display());
        }
    }

    #[test]
    fn the_source_names_the_versions_of_the_code() {
        let text = fs::read_to_string(root().join("docs/wire.toml")).unwrap();
        let wire = Wire::read(&text).unwrap();
        for (protocol, file) in [
            ("maelstrom", "maelstrom-core/src/wire/header.rs"),
            ("ricochet", "ricochet-core/src/wire/kind.rs"),
        ] {
            let code = fs::read_to_string(root().join("crates").join(file)).unwrap();
            let version = format!("pub const VERSION: u8 = {};", wire.versions[protocol]);
            assert!(code.contains(&version), "{file}: expected {version:?}, as docs/wire.toml has it");
        }
    }
}
