//! The examples in README.md and docs/ricochet.md are the files that are tested.
#![allow(missing_docs)]

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_documents_show_the_tested_files() {
    for (document, language, file) in [
        ("docs/ricochet.md", "rust", "crates/ricochet/examples/quickstart.rs"),
        ("README.md", "python", "bindings/python/examples/quickstart.py"),
    ] {
        let page = std::fs::read_to_string(root().join(document)).unwrap();
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        assert!(page.contains(&format!("```{language}\n{text}```")), "{document} does not show {file}");
    }
}

#[test]
fn the_documented_configuration_states_the_defaults() {
    let page = std::fs::read_to_string(root().join("docs/ricochet.md")).unwrap();
    let (_, rest) = page.split_once("```toml\n# node.toml\n").unwrap();
    let config = ricochet::Config::parse(rest.split_once("```").unwrap().0).unwrap();
    let usual = ricochet::Config::default();
    assert_eq!((config.nak, config.buffers), (usual.nak, usual.buffers));
    let repair = &config.repair;
    assert_eq!((repair.mode, repair.r), (usual.repair.mode, usual.repair.r));
    assert_eq!(repair.repairs_per_packet(), usual.repair.repairs_per_packet());
    assert_eq!(repair.patience(), usual.repair.patience());
}

#[test]
fn the_manual_lists_every_key() {
    let page = std::fs::read_to_string(root().join("docs/ricochet.md")).unwrap();
    let description = ricochet::Config::describe();
    let keys = description.lines().filter_map(|line| Some(line.strip_prefix("  ")?.split_once(": ")?.0));
    let keys: Vec<&str> = keys.filter(|key| !key.starts_with(' ')).collect();
    assert!(keys.len() > 40, "{keys:?}");
    for key in keys {
        assert!(page.contains(&format!("\n| `{key}` | ")), "docs/ricochet.md lacks `{key}`");
    }
}
