//! Writes the man pages and shell completions of `undrop` into a directory, as packages contain them:
//! `manual DIRECTORY`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Command;
use clap_complete::{Generator, Shell, generate};

fn main() -> anyhow::Result<()> {
    let directory = std::env::args_os().nth(1).context("expected a directory: manual DIRECTORY")?;
    write(&PathBuf::from(directory))
}

fn write(directory: &Path) -> anyhow::Result<()> {
    let place = |name: &str| {
        let path = directory.join(name);
        fs::create_dir_all(&path).with_context(|| path.display().to_string()).map(|()| path)
    };
    clap_mangen::generate_to(command(), place("man")?).context("cannot write the man pages")?;
    let completions = place("completions")?;
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        let path = completions.join(shell.file_name("undrop"));
        fs::write(&path, completion(shell)).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Returns the command line. The pages are the same for all targets, and state the version alone.
fn command() -> Command {
    let version = env!("CARGO_PKG_VERSION");
    undrop::command().version(version).long_version(version)
}

fn completion(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    generate(shell, &mut command(), "undrop", &mut text);
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::process;

    use super::*;

    /// Directory for the files of a test, removed at its end.
    struct Room(PathBuf);

    impl Drop for Room {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Returns all visible commands, such as `undrop-gateway-run`, with the long options that their pages
    /// describe.
    fn commands() -> BTreeMap<String, Vec<String>> {
        let mut all = BTreeMap::new();
        let mut root = command();
        root.build();
        let mut open = vec![root];
        while let Some(command) = open.pop() {
            let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
            let shown = command.get_arguments().filter(|option| !option.is_hide_set());
            let options = shown.filter_map(|option| option.get_long()).map(str::to_owned).collect();
            all.insert(name, options);
            let visible = |command: &&Command| !command.is_hide_set() && command.get_name() != "help";
            open.extend(command.get_subcommands().filter(visible).cloned());
        }
        all
    }

    #[test]
    fn each_command_has_a_page_with_all_its_options_and_its_examples() {
        let room = Room(std::env::temp_dir().join(format!("undrop-manual-{}", process::id())));
        write(&room.0).unwrap();
        let commands = commands();
        assert!(commands.contains_key("undrop-gateway-run"), "{:?}", commands.keys());
        for (name, options) in &commands {
            let path = room.0.join("man").join(format!("{name}.1"));
            let page = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
            let page = page.replace('\\', "");
            for option in options {
                assert!(page.contains(&format!("--{option}")), "{name}: no --{option}");
            }
            assert!(page.contains("Examples:"), "{name}");
            assert!(!page.contains("unknown-linux"), "{name}: a page is the same for all targets");
        }
        assert_eq!(fs::read_dir(room.0.join("man")).unwrap().count(), commands.len());
        let mut files: Vec<String> = fs::read_dir(room.0.join("completions"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        assert_eq!(files, ["_undrop", "undrop.bash", "undrop.fish"]);
    }

    #[test]
    fn completions_know_each_option() {
        for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
            let text = String::from_utf8(completion(shell)).unwrap();
            // For fish, `clap_complete` writes the options of two levels of subcommands.
            let is_known = |name: &str| shell != Shell::Fish || name.matches('-').count() <= 2;
            for (name, options) in commands().into_iter().filter(|(name, _)| is_known(name)) {
                for option in options {
                    assert!(text.contains(&option), "{shell}: {name} --{option}");
                }
            }
        }
    }

    fn packaging(name: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Returns the words of the commands that a unit runs as the program, with the variables of the example.
    fn started(unit: &str) -> Vec<Vec<String>> {
        let example = packaging("etc/node.env.example");
        let variables: Vec<(&str, &str)> = example
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.split_once('='))
            .collect();
        let fill = |command: &str| {
            let start = command.replace("%i", "paris");
            variables.iter().fold(start, |text, (name, value)| text.replace(&format!("${name}"), value))
        };
        let run = unit.lines().filter_map(|line| line.strip_prefix("ExecStart=/usr/bin/"));
        run.map(|command| fill(command).split_whitespace().map(str::to_owned).collect()).collect()
    }

    #[test]
    fn units_start_commands_that_exist_and_name_pages_that_exist() {
        let commands = commands();
        for name in ["undrop-gateway@.service", "undrop-node@.service"] {
            let unit = packaging(&format!("systemd/{name}"));
            let started = started(&unit);
            assert_eq!(started.len(), 1, "{name}");
            for words in started {
                assert!(!words.iter().any(|word| word.contains(['$', '%'])), "{words:?}");
                command().try_get_matches_from(&words).unwrap_or_else(|error| panic!("{name}: {error}"));
            }
            let line = unit.lines().find(|line| line.starts_with("Documentation=man:")).unwrap();
            let page = line.strip_prefix("Documentation=man:").unwrap().split("(1)").next().unwrap();
            assert!(commands.contains_key(page), "{name} names {page}");
        }
        let wrong = command().try_get_matches_from(["undrop", "gateway", "run", "--konfig", "x"]);
        assert!(wrong.is_err());
    }
}
