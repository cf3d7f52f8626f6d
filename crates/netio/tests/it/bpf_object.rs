//! The checked-in objects match the sources beside them.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The objects: crate, file, and sections that reach the kernel.
const OBJECTS: [(&str, &str, &[&str]); 4] = [
    ("netio", "tap.bpf.o", &["classifier/undrop_egress", "classifier/undrop_ingress", ".maps", ".BTF"]),
    ("netio", "inject.bpf.o", &["classifier/undrop_inject", "classifier/undrop_arrive", ".maps", ".BTF"]),
    ("netlab", "drop.bpf.o", &["classifier/undrop_drop", ".maps", ".BTF"]),
    ("netlab", "pass.bpf.o", &["xdp", ".BTF"]),
];
/// Compiler of the checked-in objects; other versions may choose other instructions.
const MADE_BY: &str = "version 14.";

#[test]
fn the_objects_are_built_from_their_sources() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let Some(version) = version("clang").filter(|_| version("llvm-strip").is_some()) else {
        return skip("expected clang and llvm-strip to build them, saw none");
    };
    let fresh_directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let built = Command::new(crates.join("netio/bpf/build.sh")).arg(&fresh_directory).status().unwrap();
    assert!(built.success(), "a source does not compile");
    for (place, name, sections) in OBJECTS {
        let read = |path: &Path| std::fs::read(path.join(name)).unwrap();
        let (kept, fresh) = (read(&crates.join(place).join("bpf")), read(&fresh_directory));
        if kept == fresh {
            continue;
        }
        let line = version.lines().next().unwrap_or_default();
        if !line.contains(MADE_BY) {
            return skip(&format!(
                "expected clang {MADE_BY}x, which made the objects, saw {line}; the sources compile"
            ));
        }
        for section in sections {
            assert!(content(&kept, section).is_some(), "{name} has no {section}");
            assert_eq!(
                content(&kept, section),
                content(&fresh, section),
                "run crates/netio/bpf/build.sh: {section} of {name} differs"
            );
        }
    }
}

fn version(tool: &str) -> Option<String> {
    let output = Command::new(tool).arg("--version").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The bytes of a section of a little-endian ELF64 file.
fn content<'f>(file: &'f [u8], name: &str) -> Option<&'f [u8]> {
    let number = |at: usize, len: usize| -> Option<usize> {
        let bytes = file.get(at..at + len)?;
        Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte)))
    };
    let (table, size, count, names) = (number(40, 8)?, number(58, 2)?, number(60, 2)?, number(62, 2)?);
    let names = number(table + names * size + 24, 8)?;
    for header in (0..count).map(|section| table + section * size) {
        let text = file.get(names + number(header, 4)?..)?;
        if text.starts_with(name.as_bytes()) && text.get(name.len()) == Some(&0) {
            let start = number(header + 24, 8)?;
            return file.get(start..start + number(header + 32, 8)?);
        }
    }
    None
}

fn skip(reason: &str) {
    // bypasses the harness' capture, so that the line is visible and can be counted
    let _ = writeln!(std::io::stderr(), "SKIPPED: comparing the eBPF objects with their sources: {reason}");
}
