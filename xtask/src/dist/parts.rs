//! The libraries that the program contains: a bill of materials (CycloneDX), and their licences.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::release::Release;
use super::target::Target;
use crate::process::{cargo, root};

/// Beginnings of the names of files with licences or with the notices that they require.
const LICENCES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"];

/// Libraries that no package of cargo is.
const OF_THE_COMPILER: &str = "\
The Rust standard library: Copyright (c) The Rust Project Contributors. Apache-2.0 OR MIT.
musl libc: Copyright (c) 2005-2020 Rich Felker and others. MIT.
";

/// Paths of the two documents.
pub(super) struct Parts {
    pub(super) bill: PathBuf,
    pub(super) licences: PathBuf,
}

/// A package of cargo that is linked into the program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    name: String,
    version: String,
    licence: String,
    /// Digest of the package in the registry; none for the crates of this repository.
    digest: Option<String>,
    directory: PathBuf,
    /// Names that identify the parts that this one needs.
    needs: BTreeSet<String>,
}

impl Part {
    /// Returns the name by which tools know the package.
    fn url(&self) -> String {
        url(&self.name, &self.version)
    }

    fn describe(&self) -> Value {
        let mut part = json!({
            "type": "library",
            "bom-ref": self.url(),
            "name": self.name,
            "version": self.version,
            "licenses": [{ "expression": self.licence }],
            "purl": self.url(),
        });
        if let Some(digest) = &self.digest {
            part["hashes"] = json!([{ "alg": "SHA-256", "content": digest }]);
        }
        part
    }
}

fn url(name: &str, version: &str) -> String {
    format!("pkg:cargo/{name}@{version}")
}

/// Writes both documents for a target.
pub(super) fn of(release: &Release, target: &Target, work: &Path) -> anyhow::Result<Parts> {
    let mut ask = cargo(&["metadata", "--format-version", "1", "--locked", "--filter-platform"]);
    let answer = ask.arg(target.triple).output().context("cannot run `cargo metadata`")?;
    ensure!(answer.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&answer.stderr).trim());
    let lock = fs::read_to_string(root().join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let parts = linked(&serde_json::from_slice(&answer.stdout)?, &digests(&lock), "undrop")?;
    let bill = release.out.join(format!("undrop-{}-{}.cdx.json", release.version, target.triple));
    let text = serde_json::to_string_pretty(&describe(release, target, &parts, &release.time()?))? + "\n";
    fs::write(&bill, text).with_context(|| bill.display().to_string())?;
    let path = work.join(format!("licences-{}", target.debian));
    fs::write(&path, licences(&parts)?).with_context(|| path.display().to_string())?;
    Ok(Parts { bill, licences: path })
}

/// Returns the digests that a lock file states, by name and version.
fn digests(lock: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let field = |key: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
            line.map(|value| value.trim_matches('"'))
        };
        if let (Some(name), Some(version), Some(digest)) =
            (field("name"), field("version"), field("checksum"))
        {
            all.insert(url(name, version), digest.to_owned());
        }
    }
    all
}

/// Returns all packages that the program contains, the program among them: those it needs to run, and neither
/// tests nor programs that run at build time.
fn linked(
    metadata: &Value,
    digests: &BTreeMap<String, String>,
    program: &str,
) -> anyhow::Result<BTreeSet<Part>> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut packages = BTreeMap::new();
    let mut open = Vec::new();
    for package in list(&metadata["packages"]) {
        if package["name"] == program && package["source"].is_null() {
            open.push(text(&package["id"]));
        }
        packages.insert(text(&package["id"]), package);
    }
    ensure!(!open.is_empty(), "expected {program} among the packages, saw no such package");
    let nodes: BTreeMap<String, Value> =
        list(&metadata["resolve"]["nodes"]).into_iter().map(|node| (text(&node["id"]), node)).collect();
    let name_of = |id: &str| {
        let package = &packages[id];
        url(&text(&package["name"]), &text(&package["version"]))
    };
    let is_macro = |id: &str| {
        let kinds = list(&packages[id]["targets"]);
        kinds.iter().any(|target| list(&target["kind"]).iter().any(|kind| kind == "proc-macro"))
    };
    let (mut parts, mut seen) = (BTreeSet::new(), BTreeSet::new());
    while let Some(id) = open.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        let runs =
            |dependency: &Value| list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        let needed: Vec<String> = list(&nodes[&id]["deps"])
            .iter()
            .filter(|dependency| runs(dependency))
            .map(|dependency| text(&dependency["pkg"]))
            .filter(|id| !is_macro(id))
            .collect();
        let (package, needs) = (&packages[&id], needed.iter().map(|id| name_of(id)).collect());
        let manifest = PathBuf::from(text(&package["manifest_path"]));
        parts.insert(Part {
            name: text(&package["name"]),
            version: text(&package["version"]),
            licence: text(&package["license"]).replace('/', " OR "),
            digest: digests.get(&name_of(&id)).cloned(),
            directory: manifest.parent().context("expected the path of a manifest")?.to_owned(),
            needs,
        });
        open.extend(needed);
    }
    Ok(parts)
}

/// Returns the bill of materials.
fn describe(release: &Release, target: &Target, parts: &BTreeSet<Part>, time: &str) -> Value {
    let main = url("undrop", &release.version);
    let others = parts.iter().filter(|part| part.url() != main);
    let needs = parts.iter().map(|part| json!({ "ref": part.url(), "dependsOn": part.needs }));
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": time,
            "component": {
                "type": "application",
                "bom-ref": main,
                "name": "undrop",
                "version": release.version,
                "licenses": [{ "expression": "Apache-2.0 OR MIT" }],
                "purl": main,
                "properties": [
                    { "name": "undrop:commit", "value": release.commit },
                    { "name": "undrop:target", "value": target.triple },
                ],
            },
        },
        "components": others.map(Part::describe).collect::<Vec<_>>(),
        "dependencies": needs.collect::<Vec<_>>(),
    })
}

/// Returns the licences of all libraries, each text once, with the libraries that it is for.
fn licences(parts: &BTreeSet<Part>) -> anyhow::Result<String> {
    let mut list = String::from(OF_THE_COMPILER);
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for part in parts.iter().filter(|part| part.digest.is_some()) {
        let name = format!("{} {}", part.name, part.version);
        writeln!(list, "{name}: {}.", part.licence)?;
        for file in files(&part.directory)? {
            let bytes = fs::read(&file).with_context(|| file.display().to_string())?;
            let text = String::from_utf8_lossy(&bytes).trim().replace("\r\n", "\n");
            texts.entry(text).or_default().push(name.clone());
        }
    }
    let mut by_name: Vec<(Vec<String>, String)> =
        texts.into_iter().map(|(text, names)| (names, text)).collect();
    by_name.sort();
    for (mut names, text) in by_name {
        names.dedup();
        write!(list, "\n{}\n{}\n\n{text}\n", "=".repeat(80), names.join(", "))?;
    }
    Ok(list)
}

/// Returns the files with licences in the directory of a package, sorted.
fn files(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        if path.is_file() && LICENCES.iter().any(|start| name.starts_with(start)) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::super::target::TARGETS;
    use super::*;

    fn release() -> Release {
        Release { version: "0.1.0".into(), commit: "c".into(), epoch: 0, out: PathBuf::new() }
    }

    fn metadata() -> Value {
        let package = |name: &str, kind: &str, source: Value| {
            json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0", "source": source,
                "manifest_path": format!("/{name}/Cargo.toml"), "targets": [{ "kind": [kind] }] })
        };
        let dependency = |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        json!({
            "packages": [
                package("undrop", "bin", Value::Null),
                package("ring", "lib", json!("registry")),
                package("derive", "proc-macro", json!("registry")),
                package("cc", "lib", json!("registry")),
                package("testing", "lib", json!("registry")),
            ],
            "resolve": { "nodes": [
                { "id": "undrop", "deps": [
                    dependency("ring", Value::Null),
                    dependency("derive", Value::Null),
                    dependency("testing", json!("dev")),
                ]},
                { "id": "ring", "deps": [dependency("cc", json!("build"))] },
                { "id": "derive", "deps": [] },
                { "id": "cc", "deps": [] },
                { "id": "testing", "deps": [dependency("undrop", Value::Null)] },
            ]},
        })
    }

    #[test]
    fn the_bill_lists_what_is_in_the_program_and_nothing_else() {
        let lock = "version = 4\n\n[[package]]\nname = \"ring\"\nversion = \"1.0.0\"\nsource = \"registry\"\n\
                    checksum = \"abc\"\n\n[[package]]\nname = \"undrop\"\nversion = \"1.0.0\"\n";
        let parts = linked(&metadata(), &digests(lock), "undrop").unwrap();
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["ring", "undrop"]);
        let release = Release { version: "1.0.0".into(), ..release() };
        let bill = describe(&release, &TARGETS[0], &parts, "2024-02-29T00:00:00Z");
        assert_eq!(bill["components"].as_array().unwrap().len(), 1);
        let ring = &bill["components"][0];
        assert_eq!(ring["purl"], "pkg:cargo/ring@1.0.0");
        assert_eq!(ring["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(ring["hashes"][0]["content"], "abc");
        let needs = json!({ "ref": "pkg:cargo/undrop@1.0.0", "dependsOn": ["pkg:cargo/ring@1.0.0"] });
        assert!(bill["dependencies"].as_array().unwrap().contains(&needs), "{bill}");
        assert!(linked(&metadata(), &BTreeMap::new(), "absent").is_err());
    }

    #[test]
    fn a_licence_is_printed_once_with_all_its_libraries() {
        let room = std::env::temp_dir().join(format!("undrop-parts-{}", std::process::id()));
        let _ = fs::remove_dir_all(&room);
        let part = |name: &str, text: &str| {
            let directory = room.join(name);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("LICENSE-MIT"), text).unwrap();
            fs::write(directory.join("lib.rs"), "no licence").unwrap();
            Part {
                name: name.to_owned(),
                version: "1.0.0".to_owned(),
                licence: "MIT".to_owned(),
                digest: Some(String::new()),
                directory,
                needs: BTreeSet::new(),
            }
        };
        let parts = BTreeSet::from([part("a", "one\r\n"), part("b", "one\n"), part("c", "two")]);
        let text = licences(&parts).unwrap();
        assert_eq!(text.matches("\none\n").count(), 1, "{text}");
        assert!(
            text.contains("\na 1.0.0, b 1.0.0\n\none\n") && text.contains("\nc 1.0.0\n\ntwo\n"),
            "{text}"
        );
        assert!(!text.contains("no licence"));
        fs::remove_dir_all(&room).unwrap();
    }

    #[test]
    fn the_program_has_at_most_ninety_parts_and_a_licence_for_each() {
        // Without a filter by platform, so that no target must be installed.
        let answer = cargo(&["metadata", "--format-version", "1", "--locked", "--filter-platform"])
            .arg("x86_64-unknown-linux-gnu")
            .output()
            .unwrap();
        let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
        let metadata: Value = serde_json::from_slice(&answer.stdout).unwrap();
        let parts = linked(&metadata, &digests(&lock), "undrop").unwrap();
        assert!((30..=90).contains(&parts.len()), "{}", parts.len());
        for part in &parts {
            assert!(!part.licence.is_empty(), "{} states no licence", part.name);
            assert_eq!(part.digest.is_none(), part.directory.starts_with(root()), "{}", part.name);
        }
    }
}
