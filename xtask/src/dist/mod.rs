//! `cargo xtask dist`: what a release consists of, in `target/dist`.
//!
//! | file | content |
//! |---|---|
//! | `release.rs` | version, commit and time of the release, the same in all its files |
//! | `target.rs` | the processors for which it is built, and static programs for them |
//! | `tree.rs` | the files of a package, as a tree below a directory |
//! | `deb.rs`, `rpm.rs` | packages, by the tools of Debian and of RPM |
//! | `wheels.rs` | wheels of the Python module |
//! | `image.rs` | an image for containers, in the layout of OCI |
//! | `parts.rs` | the libraries in the program: a bill of materials, and their licences |
//! | `archive.rs` | archives and checksums that depend on nothing but their contents |
//! | `again.rs` | a second build at another place, compared bit for bit |
//!
//! The sources of these files are in the commit or pinned by it: the lock file, the compiler, the time of the
//! commit. Two builds of a commit are therefore equal.

mod again;
mod archive;
mod deb;
mod image;
mod parts;
mod release;
mod rpm;
mod target;
mod tree;
#[cfg(test)]
mod units;
mod wheels;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};

use self::release::Release;
use self::target::{TARGETS, Target};
use crate::WrongUsage;
use crate::process::{cargo, succeeds};
use crate::tally::Tally;

/// Options of the task.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    /// Targets to build for; all if there are none.
    targets: Vec<String>,
    /// Whether to build a second time and compare.
    twice: bool,
    /// Whether to install the packages in fresh systems.
    test: bool,
}

impl Options {
    fn parse(args: &[String]) -> anyhow::Result<Self> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--twice" => options.twice = true,
                "--test" => options.test = true,
                "--target" => {
                    let name = args.next().map_or("", String::as_str);
                    if !TARGETS.iter().any(|target| target.triple == name) {
                        let known = TARGETS.map(|target| target.triple).join(" or ");
                        bail!(WrongUsage(format!("expected --target {known}, saw {name:?}")));
                    }
                    options.targets.push(name.to_owned());
                }
                other => {
                    bail!(WrongUsage(format!("expected --target TRIPLE, --twice or --test, saw {other:?}")))
                }
            }
        }
        Ok(options)
    }

    fn is_wanted(&self, target: &Target) -> bool {
        self.targets.is_empty() || self.targets.iter().any(|name| name == target.triple)
    }
}

/// Builds the release, and checks it as the options say; returns whether all of it could be built.
pub(crate) fn run(args: &[String]) -> anyhow::Result<bool> {
    let options = Options::parse(args)?;
    let release = Release::of_this_tree()?;
    println!("undrop {} of commit {}", release.version, release.commit);
    let mut tally = Tally::default();
    let made = build(&release, &options, &mut tally)?;
    if options.twice {
        again::compare(&release, args)?;
    }
    if options.test {
        try_packages(&release)?;
    }
    for reason in &tally.skipped {
        println!("SKIPPED: {reason}");
    }
    Ok(made && tally.skipped.is_empty())
}

fn build(release: &Release, options: &Options, tally: &mut Tally) -> anyhow::Result<bool> {
    let out = &release.out;
    if out.exists() {
        fs::remove_dir_all(out).with_context(|| out.display().to_string())?;
    }
    fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    let work = release.work()?;
    let manual = manual(&work)?;
    let mut layers = Vec::new();
    for target in TARGETS.iter().filter(|target| options.is_wanted(target)) {
        if !target.is_installed()? {
            let name = target.triple;
            tally.skipped.push(format!("{name}: no such target (rustup target add {name})"));
            continue;
        }
        let program = target.program(release)?;
        let parts = parts::of(release, target, &work)?;
        let tree = tree::build(release, target, &work, &tree::Sources { program, manual: &manual, parts })?;
        println!("{}: {} files", target.triple, tree.files.len());
        deb::build(release, target, &tree, tally)?;
        rpm::build(release, target, &tree, tally)?;
        wheels::build(release, target, tally)?;
        tree.pack(release, target)?;
        layers.push((target, tree));
    }
    ensure!(!layers.is_empty(), "expected a target that is installed, saw none; rustup target add TRIPLE");
    image::build(release, &layers, &work)?;
    archive::write_sums(out)?;
    report(out)?;
    Ok(true)
}

/// Writes man pages and completions; returns their directory.
fn manual(work: &Path) -> anyhow::Result<PathBuf> {
    let directory = work.join("manual");
    let mut write = cargo(&["run", "--quiet", "--locked", "--package", "manual", "--"]);
    ensure!(succeeds(write.arg(&directory))?, "the man pages cannot be written");
    Ok(directory)
}

/// Prints the files of the release with their sizes.
fn report(out: &Path) -> anyhow::Result<()> {
    println!("\n{:<48} {:>12}", "file", "bytes");
    for path in archive::files_below(out)? {
        let length = fs::metadata(&path).with_context(|| path.display().to_string())?.len();
        println!("{:<48} {length:>12}", path.strip_prefix(out).unwrap_or(&path).display());
    }
    Ok(())
}

/// Installs the package of this machine in fresh systems, and protects traffic between them.
fn try_packages(release: &Release) -> anyhow::Result<()> {
    let target = TARGETS.iter().find(|target| target.is_of_this_machine());
    let target = target.context("there is no package for this machine's processor")?;
    wheels::try_it(release, target)?;
    let package = release.out.join(deb::name(release, target));
    ensure!(package.exists(), "expected {}, saw no such file", package.display());
    let mut try_it = cargo(&["run", "--locked", "--package", "stage", "--example", "install", "--"]);
    ensure!(succeeds(try_it.arg(&package))?, "the package does not do what it should");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(args: &[&str]) -> anyhow::Result<Options> {
        Options::parse(&args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn targets_are_those_that_can_be_built() {
        assert!(TARGETS.iter().all(|target| options(&[]).unwrap().is_wanted(target)));
        let one = options(&["--twice", "--target", TARGETS[1].triple]).unwrap();
        assert!(one.twice && !one.test && !one.is_wanted(&TARGETS[0]) && one.is_wanted(&TARGETS[1]));
        for wrong in [&["--target"][..], &["--target", "sparc64-unknown-linux-gnu"], &["--fast"]] {
            let error = options(wrong).unwrap_err();
            assert!(
                error.is::<WrongUsage>() && error.to_string().starts_with("expected --target"),
                "{error}"
            );
        }
    }
}
