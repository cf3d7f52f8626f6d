//! New keys, on stdout or in a file.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use keyfile::KeyText;

use crate::failure::Advice as _;
use crate::output;

/// Adds a new key at the end of a file that has keys. `next` tells the user what to do with the file.
pub(crate) fn append(path: &Path, next: &str) -> anyhow::Result<ExitCode> {
    let key = KeyText::generate().context("cannot make a key")?;
    let shown = path.display();
    key.append(path).or_else(|error| {
        let remedy = "name a key file that this command has written, in a directory that you may write";
        Err(error).with_context(|| format!("cannot add a key to `{shown}`")).advise(remedy)
    })?;
    eprintln!("added a key to {shown}; {next}");
    Ok(ExitCode::SUCCESS)
}

/// Prints a new key, or writes it to a new file. `next` tells the user what to do with the file.
pub(crate) fn make(out: Option<&Path>, next: &str) -> anyhow::Result<ExitCode> {
    let key = KeyText::generate().context("cannot make a key")?;
    let Some(path) = out else {
        output::line(key.as_str())?;
        return Ok(ExitCode::SUCCESS);
    };
    let shown = path.display();
    let remedy = |error: &io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => "keep the key that is there, or choose another name",
        io::ErrorKind::NotFound => "create the directory first",
        _ => "choose a directory that you may write",
    };
    key.write_new(path).or_else(|error| {
        let remedy = remedy(&error);
        Err(error).with_context(|| format!("cannot write the key to `{shown}`")).advise(remedy)
    })?;
    output::note(format_args!("wrote {shown} (mode 0600); {next}"));
    Ok(ExitCode::SUCCESS)
}
