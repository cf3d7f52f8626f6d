//! Commands that `undrop-lab` has: demonstrations and measurements, which no gateway needs.

use std::process::ExitCode;

/// A command of `undrop-lab`: run `undrop-lab` with the same arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Rest {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, num_args = 0.., hide = true)]
    arguments: Vec<String>,
}

/// Prints that `command` belongs to `undrop-lab`, with the command line to run there. Returns exit code 2.
pub(crate) fn report(command: &str, rest: &Rest) -> ExitCode {
    crate::output::note(text(command, &rest.arguments).trim_end());
    ExitCode::from(2)
}

fn text(command: &str, arguments: &[String]) -> String {
    let line = arguments.iter().fold(command.to_owned(), |line, argument| line + " " + argument);
    format!("error: `undrop {command}` is a command of undrop-lab\n  help: run `undrop-lab {line}`\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_keeps_the_arguments() {
        let said = text("multicast bench", &["--nodes".to_owned(), "16".to_owned()]);
        assert!(said.ends_with("run `undrop-lab multicast bench --nodes 16`\n"), "{said}");
    }
}
