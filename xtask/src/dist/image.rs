//! An image for containers, as an archive in the layout of OCI: one layer with the program and its licences
//! for each processor.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::archive;
use super::release::Release;
use super::target::Target;
use super::tree::{PROGRAM, Tree};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Files of the tree that are in the image as well.
const PLACES: [&str; 2] = [PROGRAM, "usr/share/doc/undrop/"];

/// A directory of blobs that are named by their digests.
struct Layout {
    root: PathBuf,
}

/// Writes the image.
pub(super) fn build(release: &Release, layers: &[(&Target, Tree)], work: &Path) -> anyhow::Result<()> {
    let layout = Layout::create(work.join("image"))?;
    let manifests: Vec<Value> = layers
        .iter()
        .map(|(target, tree)| layout.add_image(release, target, tree, work))
        .collect::<Result<_, _>>()?;
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests });
    let mut all = layout.add(INDEX, &serde_json::to_vec(&index)?, work)?;
    all["annotations"] = json!({ "org.opencontainers.image.ref.name": release.version });
    let top = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [all] });
    fs::write(layout.root.join("index.json"), serde_json::to_vec(&top)?)?;
    fs::write(layout.root.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    archive::date(release, &layout.root)?;
    archive::tar(release, &layout.root, &release.out.join(format!("undrop-{}.oci.tar", release.version)))
}

impl Layout {
    fn create(root: PathBuf) -> anyhow::Result<Self> {
        let blobs = root.join("blobs/sha256");
        fs::create_dir_all(&blobs).with_context(|| blobs.display().to_string())?;
        Ok(Self { root })
    }

    /// Adds the image for a processor; returns its descriptor.
    fn add_image(
        &self,
        release: &Release,
        target: &Target,
        tree: &Tree,
        work: &Path,
    ) -> anyhow::Result<Value> {
        let files = work.join(format!("layer-{}", target.debian));
        for file in tree.files.iter().filter(|file| PLACES.iter().any(|place| file.starts_with(place))) {
            let to = files.join(file);
            fs::create_dir_all(to.parent().context("expected a path with a directory")?)?;
            fs::copy(tree.root.join(file), &to).with_context(|| to.display().to_string())?;
        }
        // Where the program expects its configuration, and creates its socket.
        for directory in ["etc/undrop", "run/undrop"] {
            fs::create_dir_all(files.join(directory))?;
        }
        let plain = files.with_extension("tar");
        archive::tar(release, &files, &plain)?;
        let content = archive::sha256(&plain)?;
        archive::gzip(&plain)?;
        let layer = self.add_file(LAYER, &plain.with_extension("tar.gz"))?;
        let config = config(release, target, &release.time()?, &content);
        let config = self.add(CONFIG, &serde_json::to_vec(&config)?, work)?;
        let manifest =
            json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer] });
        let mut descriptor = self.add(MANIFEST, &serde_json::to_vec(&manifest)?, work)?;
        descriptor["platform"] = json!({ "architecture": target.debian, "os": "linux" });
        Ok(descriptor)
    }

    fn add(&self, kind: &str, bytes: &[u8], work: &Path) -> anyhow::Result<Value> {
        let file = work.join("blob");
        fs::write(&file, bytes).with_context(|| file.display().to_string())?;
        self.add_file(kind, &file)
    }

    fn add_file(&self, kind: &str, file: &Path) -> anyhow::Result<Value> {
        let digest = archive::sha256(file)?;
        let length = fs::copy(file, self.root.join("blobs/sha256").join(&digest))?;
        Ok(json!({ "mediaType": kind, "digest": format!("sha256:{digest}"), "size": length }))
    }
}

fn config(release: &Release, target: &Target, time: &str, content: &str) -> Value {
    json!({
        "created": time,
        "architecture": target.debian,
        "os": "linux",
        "config": {
            "Entrypoint": ["/usr/bin/undrop"],
            "Labels": {
                "org.opencontainers.image.title": "undrop",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.revision": release.commit,
                "org.opencontainers.image.licenses": "Apache-2.0 OR MIT",
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{content}")] },
        "history": [{ "created": time, "created_by": "cargo xtask dist" }],
    })
}

#[cfg(test)]
mod tests {
    use super::super::target::TARGETS;
    use super::*;

    #[test]
    fn each_digest_in_an_image_names_a_blob_with_these_contents() {
        let room = std::env::temp_dir().join(format!("undrop-image-{}", std::process::id()));
        let _ = fs::remove_dir_all(&room);
        let trees: Vec<(&Target, Tree)> = TARGETS
            .iter()
            .map(|target| {
                let root = room.join(target.debian);
                let files = [PROGRAM, "usr/share/doc/undrop/LICENSE-MIT", "etc/undrop/a"].map(str::to_owned);
                for file in &files {
                    fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
                    fs::write(root.join(file), target.debian).unwrap();
                }
                (target, Tree { root, files: files.to_vec() })
            })
            .collect();
        let release =
            Release { version: "1.0.0".into(), commit: "c".into(), epoch: 1_700_000_000, out: room.clone() };
        build(&release, &trees, &room).unwrap();
        let read = |digest: &Value| -> Value {
            let digest = digest.as_str().unwrap().strip_prefix("sha256:").unwrap();
            let path = room.join("image/blobs/sha256").join(digest);
            assert_eq!(archive::sha256(&path).unwrap(), digest);
            serde_json::from_slice(&fs::read(&path).unwrap()).unwrap_or(Value::Null)
        };
        let top: Value = serde_json::from_slice(&fs::read(room.join("image/index.json")).unwrap()).unwrap();
        let index = read(&top["manifests"][0]["digest"]);
        assert_eq!(index["manifests"].as_array().unwrap().len(), 2);
        for image in index["manifests"].as_array().unwrap() {
            let manifest = read(&image["digest"]);
            let config = read(&manifest["config"]["digest"]);
            assert_eq!(config["architecture"], image["platform"]["architecture"]);
            read(&manifest["layers"][0]["digest"]);
            let plain =
                room.join(format!("layer-{}.tar", image["platform"]["architecture"].as_str().unwrap()));
            // gzip has replaced the archive whose digest the configuration states.
            let unpacked = std::process::Command::new("gzip")
                .args(["--decompress", "--keep"])
                .arg(plain.with_extension("tar.gz"))
                .status();
            assert!(unpacked.unwrap().success());
            let content = format!("sha256:{}", archive::sha256(&plain).unwrap());
            assert_eq!(config["rootfs"]["diff_ids"][0], content);
        }
        assert!(room.join("undrop-1.0.0.oci.tar").is_file());
        fs::remove_dir_all(&room).unwrap();
    }
}
