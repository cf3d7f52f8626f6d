//! Errors as the user sees them: the failure, its causes, and the remedy.

use std::fmt;
use std::io;
use std::process::ExitCode;

use crate::{log, output};

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
        self.map_err(|error| Advised { remedy: Some(remedy.into()), ..Advised::of(error.into()) }.into())
    }

    fn wrong_usage(self) -> anyhow::Result<T> {
        self.map_err(|error| Advised { is_usage: true, ..Advised::of(error.into()) }.into())
    }
}

impl Advised {
    /// The error with what is known of it already.
    fn of(error: anyhow::Error) -> Self {
        error.downcast().unwrap_or_else(|error| Self { error, remedy: None, is_usage: false })
    }
}

/// Returns the error of a command line that cannot be what the user means: the program exits with 2.
pub fn usage(text: impl Into<String>) -> anyhow::Error {
    Advised { error: anyhow::Error::msg(text.into()), remedy: None, is_usage: true }.into()
}

/// Prints an error with its causes and its remedy to stderr, and returns the exit code. A closed stdout is no
/// failure.
pub fn report(error: &anyhow::Error) -> ExitCode {
    let broken_pipe = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    if error.downcast_ref::<io::Error>().is_some_and(broken_pipe) {
        return ExitCode::SUCCESS;
    }
    if log::is_for_people() || !tracing::enabled!(tracing::Level::ERROR) {
        output::note(render(error).trim_end());
    } else {
        record(error);
    }
    match error.downcast_ref::<Advised>() {
        Some(Advised { is_usage: true, .. }) => ExitCode::from(USAGE),
        _ => ExitCode::FAILURE,
    }
}

/// Logs an error as one record.
fn record(error: &anyhow::Error) {
    let mut causes = causes(error);
    let message = causes.remove(0);
    let cause = (!causes.is_empty()).then(|| causes.join(": "));
    tracing::error!(cause, help = remedy(error), "{message}");
}

/// The error and its causes. Some errors repeat their cause in their own text, which is left out then.
fn causes(error: &anyhow::Error) -> Vec<String> {
    let mut causes: Vec<String> = Vec::new();
    for cause in error.chain().map(ToString::to_string) {
        if causes.last().is_none_or(|shown| !shown.contains(&cause)) {
            causes.push(cause);
        }
    }
    causes
}

fn remedy(error: &anyhow::Error) -> Option<&str> {
    error.downcast_ref::<Advised>().and_then(|advised| advised.remedy.as_deref())
}

fn render(error: &anyhow::Error) -> String {
    let mut causes = causes(error).into_iter();
    let mut text = format!("error: {}\n", causes.next().unwrap_or_default());
    for cause in causes {
        text += &format!("  caused by: {cause}\n");
    }
    if let Some(remedy) = remedy(error) {
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
    fn wrong_usage_keeps_its_remedy_in_either_order() {
        for error in [
            Err::<(), _>(usage("outer")).advise("do this").unwrap_err(),
            Err::<(), _>(io::Error::other("outer")).advise("do this").wrong_usage().unwrap_err(),
        ] {
            assert_eq!(render(&error), "error: outer\n  help: do this\n");
            assert!(error.downcast_ref::<Advised>().unwrap().is_usage);
        }
    }

    #[test]
    fn a_cause_in_the_text_of_its_error_is_not_repeated() {
        let error = Err::<(), _>(io::Error::other("deep")).context("outer: deep").unwrap_err();
        assert_eq!(render(&error), "error: outer: deep\n");
    }
}
