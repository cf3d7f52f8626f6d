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
