//! The header is the one that the sources describe.
#![allow(missing_docs)]

use std::fs;
use std::path::Path;

/// Sources of the header, in the order in which it has their functions.
const SOURCES: [&str; 6] =
    ["outcome.rs", "options.rs", "node.rs", "sender.rs", "received.rs", "subscription.rs"];

fn generated(crate_root: &Path) -> String {
    let config = cbindgen::Config::from_file(crate_root.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in SOURCES {
        builder = builder.with_src(crate_root.join("src").join(source));
    }
    let mut header = Vec::new();
    builder.generate().unwrap().write(&mut header);
    String::from_utf8(header).unwrap()
}

#[test]
fn the_header_is_generated_from_the_sources() {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = crate_root.join("include/ricochet.h");
    let generated = generated(crate_root);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, &generated).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(kept, generated, "write include/ricochet.h again with UPDATE_SNAPSHOTS=1");
}

/// A function that the header lacks could not be called, and one without a sentence not be used.
#[test]
fn every_exported_function_is_in_the_header_with_its_documentation() {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = fs::read_to_string(crate_root.join("include/ricochet.h")).unwrap();
    let mut functions = 0;
    for file in fs::read_dir(crate_root.join("src")).unwrap() {
        let source = fs::read_to_string(file.unwrap().path()).unwrap();
        for exported in source.split("#[unsafe(no_mangle)]").skip(1) {
            let name = exported.split("fn ").nth(1).unwrap().split('(').next().unwrap();
            let call = format!("{name}(");
            let mut lines =
                header.lines().rev().skip_while(|line| line.starts_with("//") || !line.contains(&call));
            assert!(lines.next().is_some(), "{name} is missing");
            let above = lines.next().unwrap();
            assert!(above.starts_with("// "), "{name} has no documentation: {above:?}");
            functions += 1;
        }
    }
    assert!(functions > 20, "{functions}");
}
