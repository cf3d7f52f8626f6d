//! Errors as the user sees them: the failure, its causes, and the remedy.

use std::fmt;
use std::io;
use std::process::ExitCode;

/// Exit code of wrong usage, as of clap.
const USAGE: u8 = 2;

/// An error with a remedy, or one that the command line itself causes.
#[derive(Debug)]
struct Advised {
    error: anyhow::Error,
    remedy: Option<String>,
    is_usage: bool,
}

impl fmt::Display for Advised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Advised {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// Adds a remedy to an error.
pub trait Advice<T> {
    /// Adds a remedy: one imperative sentence, or a command line.
    fn advise(self, remedy: impl Into<String>) -> anyhow::Result<T>;

    /// Marks an error as wrong usage: the program exits with 2.
    fn wrong_usage(self) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> Advice<T> for Result<T, E> {
    fn advise(self, remedy: impl Into<String>) -> anyhow::Result<T> {
        self.map_err(|error| {
            Advised { error: error.into(), remedy: Some(remedy.into()), is_usage: false }.into()
        })
    }

    fn wrong_usage(self) -> anyhow::Result<T> {
        self.map_err(|error| Advised { error: error.into(), remedy: None, is_usage: true }.into())
    }
}

/// Prints an error with its causes and its remedy to stderr, and returns the exit code. A closed stdout is no
/// failure.
pub fn report(error: &anyhow::Error) -> ExitCode {
    let broken_pipe = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    if error.downcast_ref::<io::Error>().is_some_and(broken_pipe) {
        return ExitCode::SUCCESS;
    }
    crate::output::note(render(error).trim_end());
    match error.downcast_ref::<Advised>() {
        Some(Advised { is_usage: true, .. }) => ExitCode::from(USAGE),
        _ => ExitCode::FAILURE,
    }
}

fn render(error: &anyhow::Error) -> String {
    let mut text = format!("error: {error}\n");
    let mut shown = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        // Some errors repeat their cause in their own text.
        if !shown.contains(&cause) {
            text += &format!("  caused by: {cause}\n");
            shown = cause;
        }
    }
    if let Some(remedy) = error.downcast_ref::<Advised>().and_then(|advised| advised.remedy.as_deref()) {
        text += &format!("  help: {remedy}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn causes_come_below_and_the_remedy_last() {
        let error = Err::<(), _>(io::Error::other("deep")).context("outer").advise("do this").unwrap_err();
        assert_eq!(render(&error), "error: outer\n  caused by: deep\n  help: do this\n");
    }

    #[test]
    fn a_cause_in_the_text_of_its_error_is_not_repeated() {
        let error = Err::<(), _>(io::Error::other("deep")).context("outer: deep").unwrap_err();
        assert_eq!(render(&error), "error: outer: deep\n");
    }
}
