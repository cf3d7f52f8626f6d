//! The quick starts of the README are the files that are tested.
#![allow(missing_docs)]

use std::path::Path;

#[test]
fn the_readme_shows_the_tested_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    for (language, file) in [
        ("rust", "crates/ricochet/examples/quickstart.rs"),
        ("python", "bindings/python/examples/quickstart.py"),
    ] {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        assert!(readme.contains(&format!("```{language}\n{text}```")), "README.md shows another {file}");
    }
}

#[test]
fn the_configuration_in_the_readme_says_what_holds_without_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let (_, rest) = readme.split_once("```toml\n# node.toml\n").unwrap();
    let config = ricochet::Config::parse(rest.split_once("```").unwrap().0).unwrap();
    let usual = ricochet::Config::default();
    assert_eq!((config.nak, config.buffers), (usual.nak, usual.buffers));
    let repair = &config.repair;
    assert_eq!((repair.mode, repair.r), (usual.repair.mode, usual.repair.r));
    assert_eq!(repair.repairs_per_packet(), usual.repair.repairs_per_packet());
    assert_eq!(repair.patience(), usual.repair.patience());
}
