//! The example files of the packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use keyfile::KeyText;

/// A directory with an example, whose key file is there. It is removed when the test ends.
struct Room(PathBuf);

impl Room {
    fn with_example(name: &str) -> Self {
        let room = std::env::temp_dir().join(format!("undrop-example-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&room);
        fs::create_dir(&room).unwrap();
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/etc");
        let text = fs::read_to_string(place.join(format!("{name}.toml.example"))).unwrap();
        let filled = text.replace("\"/etc/undrop/", &format!("\"{}/", room.display()));
        assert_ne!(filled, text, "the example names a key in /etc/undrop");
        fs::write(room.join(format!("{name}.toml")), filled).unwrap();
        for key in ["peer.key", "cluster.key"] {
            KeyText::generate().unwrap().write_new(&room.join(key)).unwrap();
        }
        Self(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_examples_of_the_packages_have_no_mistakes() {
    let room = Room::with_example("gateway");
    let reading = maelstrom::config::read(&room.0.join("gateway.toml"));
    assert!(reading.config().is_ok(), "{}", reading.report());
    let room = Room::with_example("node");
    ricochet::Config::load(&room.0.join("node.toml")).unwrap();
}

#[test]
fn the_version_names_the_target_and_a_short_one_does_not() {
    let version = |option| {
        let output = Command::new(env!("CARGO_BIN_EXE_undrop")).arg(option).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let start = concat!("undrop ", env!("CARGO_PKG_VERSION"));
    assert_eq!(version("-V"), format!("{start}\n"));
    let long = version("--version");
    assert!(long.starts_with(&format!("{start} (")) && long.contains("target "), "{long}");
    assert!(long.contains(&format!("{}-", std::env::consts::ARCH)), "{long}");
}
