//! Processors for which releases are built, and the programs for them.
//!
//! The programs are linked statically with musl, which the compiler brings along, and by the compiler's own
//! linker. The only other tool is a C compiler for the processor, for the cryptography of `ring`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::release::{Release, output};
use crate::process::{cargo, is_there, root, succeeds, target};

/// A processor, by its names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    /// Of the compiler.
    pub(super) triple: &'static str,
    /// Of Debian and of container images.
    pub(super) debian: &'static str,
    /// Of RPM, Python and the kernel.
    pub(super) rpm: &'static str,
    /// C compilers, best first.
    compilers: &'static [&'static str],
}

/// All processors.
pub(super) const TARGETS: [Target; 2] = [
    Target {
        triple: "x86_64-unknown-linux-musl",
        debian: "amd64",
        rpm: "x86_64",
        compilers: &["musl-gcc", "cc"],
    },
    Target {
        triple: "aarch64-unknown-linux-musl",
        debian: "arm64",
        rpm: "aarch64",
        compilers: &["clang", "aarch64-linux-musl-gcc", "aarch64-linux-gnu-gcc"],
    },
];

impl Target {
    /// Returns whether the compiler has the libraries of this target.
    pub(super) fn is_installed(&self) -> anyhow::Result<bool> {
        is_installed(self.triple)
    }

    pub(super) fn is_of_this_machine(&self) -> bool {
        self.rpm == env::consts::ARCH
    }

    /// Builds the program; returns its path.
    pub(super) fn program(&self, release: &Release) -> anyhow::Result<PathBuf> {
        let mut build =
            cargo(&["build", "--release", "--locked", "--package", "undrop", "--target", self.triple]);
        self.prepare(release, &mut build)?;
        ensure!(succeeds(&mut build)?, "the program for {} cannot be built", self.triple);
        Ok(directory().join(self.triple).join("release/undrop"))
    }

    /// Names the linker, which is part of the compiler, and the C compiler.
    fn prepare(&self, release: &Release, build: &mut Command) -> anyhow::Result<()> {
        let [lower, upper] = [self.triple.replace('-', "_"), self.triple.replace('-', "_").to_uppercase()];
        let compiler = self.compilers.iter().find(|name| is_there(Command::new(name).arg("--version")));
        let compiler = compiler.with_context(|| {
            format!("expected a C compiler for {}, one of {:?}, saw none", self.triple, self.compilers)
        })?;
        build.env(format!("CARGO_TARGET_{upper}_LINKER"), "rust-lld").env(format!("CC_{lower}"), compiler);
        set_build_variables(release, build)
    }
}

/// Sets the variables with which the same sources give the same bytes: no path of this machine, and no debug
/// information.
pub(super) fn set_build_variables(release: &Release, build: &mut Command) -> anyhow::Result<()> {
    let names = renamed()?;
    let rust = names.iter().map(|(path, name)| format!("--remap-path-prefix={}={name}", path.display()));
    // A profile of the environment does not reach packages that have settings of their own.
    let rust = rust.chain(["-Cstrip=symbols".to_owned()]);
    let c = names.iter().map(|(path, name)| format!("-ffile-prefix-map={}={name}", path.display()));
    build
        .env_remove("RUSTFLAGS")
        .env("CARGO_ENCODED_RUSTFLAGS", rust.collect::<Vec<_>>().join("\u{1f}"))
        .env("CARGO_TARGET_DIR", directory())
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "none")
        .env("CFLAGS", c.collect::<Vec<_>>().join(" "))
        .env("SOURCE_DATE_EPOCH", release.epoch.to_string())
        .env("UNDROP_COMMIT", &release.commit);
    Ok(())
}

/// Returns whether the compiler has the libraries of a target.
pub(super) fn is_installed(triple: &str) -> anyhow::Result<bool> {
    let mut ask = Command::new("rustc");
    ask.args(["--print", "target-libdir", "--target", triple]).current_dir(root());
    Ok(Path::new(&output(&mut ask)?).is_dir())
}

/// Directory of the compiler's output.
pub(super) fn directory() -> PathBuf {
    target().join("dist-build")
}

/// Returns the directories whose paths may get into a program, with the names that they have there. A later
/// one may lie inside an earlier one.
fn renamed() -> anyhow::Result<Vec<(PathBuf, &'static str)>> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]).current_dir(root()))?;
    Ok(vec![
        (PathBuf::from(sysroot), "/rust"),
        (home.context("expected CARGO_HOME or HOME, saw neither")?, "/cargo"),
        (root(), "/undrop"),
        (directory(), "/build"),
    ])
}
