//! The C library: builds it as users do, compiles the examples in C, C++ and Go with the system's compilers,
//! and runs them.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::process::{cargo, is_there, root, succeeds, target};
use crate::tally::{self, Tally};

/// Maximum duration of a program.
const LIMIT: Duration = Duration::from_secs(120);

/// Number of messages that pass between two programs.
/// The queue of a receiver that starts late, and the pipe of its output, have room for all of them.
const MESSAGES: usize = 500;

/// Flags of both languages.
const FLAGS: [&str; 6] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", "-g"];
const SANITIZED: [&str; 3] =
    ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"];

/// System libraries that the static library needs.
const NEEDED: [&str; 4] = ["-lpthread", "-ldl", "-lm", "-lgcc_s"];

/// Settings of nodes that meet on the loopback interface.
const CONFIG: &str = "[node]\ninterface = \"lo\"\naddress = \"127.0.0.1\"\nport = 0\nunicast = true\n[flow]\nfollow = \"all\"\n";

/// Compilers, and the directories of their input and output.
struct Build {
    sources: PathBuf,
    /// Directory of the library.
    library: PathBuf,
    /// Directory of the programs.
    programs: PathBuf,
    flags: Vec<&'static str>,
}

/// Builds and runs all programs, then those in C and C++ with the sanitizers of the compiler, which also
/// check for leaks at the end. Returns whether all succeeded.
pub(crate) fn test(tally: &mut Tally) -> anyhow::Result<bool> {
    if !is_there(Command::new("cc").arg("--version")) {
        tally.skipped.push("C library: no C compiler `cc` (apt-get install gcc)".to_owned());
        return Ok(true);
    }
    if !succeeds(&mut cargo(&["build", "--package", "ricochet-c", "--locked"]))? {
        return Ok(false);
    }
    let plain = Build::new("native", &[])?;
    let success = plain.c_and_cpp(tally)? & plain.go(tally)?;
    let sanitized = Build::new("native-sanitized", &SANITIZED)?;
    if !sanitized.can_link()? {
        tally.skipped.push("C library with sanitizers: `cc` has none (apt-get install gcc)".to_owned());
        return Ok(success);
    }
    println!("with sanitizers:");
    Ok(sanitized.c_and_cpp(tally)? & success)
}

impl Build {
    fn new(name: &str, more: &[&'static str]) -> anyhow::Result<Self> {
        let programs = target().join(name);
        fs::create_dir_all(&programs).with_context(|| programs.display().to_string())?;
        let (sources, library) = (root().join("bindings/c"), target().join("debug"));
        Ok(Self { sources, library, programs, flags: [&FLAGS, more].concat() })
    }

    /// Whether the compiler has all that the flags need.
    fn can_link(&self) -> anyhow::Result<bool> {
        let source = self.programs.join("nothing.c");
        fs::write(&source, "int main(void) { return 0; }\n").with_context(|| source.display().to_string())?;
        let mut command = Command::new("cc");
        command.args(&self.flags).arg(&source).arg("-o").arg(self.programs.join("nothing"));
        Ok(is_there(&mut command))
    }

    fn c_and_cpp(&self, tally: &mut Tally) -> anyhow::Result<bool> {
        Ok(self.c(tally)? & self.cpp(tally)?)
    }

    /// Compiles a program; returns its path.
    fn compile(&self, source: &str, is_static: bool) -> anyhow::Result<PathBuf> {
        let stem = Path::new(source).file_stem().context("expected the name of a source")?;
        let program = self.programs.join(stem);
        let (compiler, standard) = match source.ends_with(".c") {
            true => ("cc", "-std=c11"),
            false => ("c++", "-std=c++17"),
        };
        let mut command = Command::new(compiler);
        command.arg(standard).arg("-D_POSIX_C_SOURCE=200809L").args(&self.flags);
        command.arg("-I").arg(self.sources.join("include"));
        command.arg(self.sources.join(source)).arg("-o").arg(&program);
        if is_static {
            command.arg(self.library.join("libricochet_c.a")).args(NEEDED);
        } else {
            let mut path = std::ffi::OsString::from("-Wl,-rpath,");
            path.push(&self.library);
            command.arg("-L").arg(&self.library).arg("-lricochet_c").arg(path);
        }
        ensure!(succeeds(&mut command)?, "{compiler} cannot build {source}");
        Ok(program)
    }

    fn c(&self, tally: &mut Tally) -> anyhow::Result<bool> {
        let contract = self.compile("tests/contract.c", true)?;
        let mut success = passes("contract", tally, &mut Command::new(contract), |text| text == "ok\n")?;
        let quickstart = self.compile("examples/quickstart.c", false)?;
        let says = |text: &str| text.starts_with("prices/AAPL 187.21 ");
        success &= passes("quickstart", tally, &mut Command::new(quickstart), says)?;
        success &= self.two_processes(tally)?;
        Ok(success)
    }

    /// A receiver and a sender, each with an event loop.
    fn two_processes(&self, tally: &mut Tally) -> anyhow::Result<bool> {
        let (receive, send) =
            (self.compile("examples/receive.c", false)?, self.compile("examples/send.c", false)?);
        let config = self.config()?;
        // The sender adds two messages at the end.
        let count = (MESSAGES + 2).to_string();
        let mut receiver = Running::start(&receive, |command| {
            command.arg(&config).args(["prices", &count]);
        })?;
        let mut sender = Command::new(send);
        sender.arg(&config).args([&receiver.address, "prices", &MESSAGES.to_string()]);
        let sent = passes("send in C", tally, &mut sender, str::is_empty)?;
        let lines = receiver.rest()?;
        let expected = (0..MESSAGES)
            .map(|at| format!("message {at} from C"))
            .chain(["all sent".to_owned(), "end".to_owned()]);
        let texts = lines.iter().map(|line| line.split_once(": ").map_or("", |(_, text)| text));
        let arrived = texts.eq(expected);
        Ok(count_test("receive in C", tally, arrived && receiver.succeeds()?) && sent)
    }

    /// Two chats in C++, one of which reads lines.
    fn cpp(&self, tally: &mut Tally) -> anyhow::Result<bool> {
        if !is_there(Command::new("c++").arg("--version")) {
            tally.skipped.push("C++ wrapper: no C++ compiler `c++` (apt-get install g++)".to_owned());
            return Ok(true);
        }
        let chat = self.compile("examples/chat.cpp", false)?;
        let config = self.config()?;
        let mut listens = Running::start(&chat, |command| {
            command.arg(&config).arg("chat").stdin(Stdio::piped());
        })?;
        let lines = self.programs.join("lines.txt");
        fs::write(&lines, format!("first\n{}\nlast\n", "long ".repeat(200)))?;
        let mut speaks = Command::new(&chat);
        speaks.arg(&config).args(["chat", &listens.address]).stdin(fs::File::open(&lines)?);
        let said = passes("chat that sends, in C++", tally, &mut speaks, |text| text.lines().count() == 1)?;
        // The end of its input ends the chat. All lines are held by it then.
        listens.close_input();
        let heard = listens.rest()?.join("\n") + "\n" == fs::read_to_string(&lines)?;
        Ok(count_test("chat that receives, in C++", tally, heard && listens.succeeds()?) && said)
    }

    fn go(&self, tally: &mut Tally) -> anyhow::Result<bool> {
        if !is_there(Command::new("go").arg("version")) {
            tally.skipped.push("Go example: no `go` (apt-get install golang)".to_owned());
            return Ok(true);
        }
        let program = self.programs.join("go");
        let library = self.library.display();
        let mut build = Command::new("go");
        build.args(["build", "-o"]).arg(&program).arg(".").current_dir(self.sources.join("examples/go"));
        build.env("CGO_ENABLED", "1");
        build.env("CGO_CFLAGS", format!("-I{}", self.sources.join("include").display()));
        build.env("CGO_LDFLAGS", format!("-L{library} -lricochet_c -Wl,-rpath,{library}"));
        ensure!(succeeds(&mut build)?, "go cannot build bindings/c/examples/go");
        let complete = |text: &str| text.lines().count() == 100;
        passes("messages in Go", tally, &mut Command::new(program), complete)
    }

    fn config(&self) -> anyhow::Result<PathBuf> {
        let path = self.programs.join("node.toml");
        fs::write(&path, CONFIG).with_context(|| path.display().to_string())?;
        Ok(path)
    }
}

/// A program that has printed the address of its node. It is killed when this value is dropped.
struct Running {
    child: std::process::Child,
    address: String,
    output: BufReader<std::process::ChildStdout>,
}

impl Running {
    fn start(program: &Path, set_up: impl FnOnce(&mut Command)) -> anyhow::Result<Self> {
        let mut command = Command::new("timeout");
        command.arg(LIMIT.as_secs().to_string()).arg(program).stdout(Stdio::piped());
        set_up(&mut command);
        let mut child = command.spawn().with_context(|| program.display().to_string())?;
        let output = child.stdout.take().context("expected a pipe, saw none")?;
        let mut running = Self { child, address: String::new(), output: BufReader::new(output) };
        running.output.read_line(&mut running.address)?;
        running.address.truncate(running.address.trim_end().len());
        Ok(running)
    }

    fn close_input(&mut self) {
        self.child.stdin.take();
    }

    /// Returns the other lines of its output.
    fn rest(&mut self) -> anyhow::Result<Vec<String>> {
        Ok(self.output.by_ref().lines().collect::<Result<_, _>>()?)
    }

    fn succeeds(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.wait()?.success())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program, and counts it as a test that checks its success and output.
fn passes(
    name: &str,
    tally: &mut Tally,
    command: &mut Command,
    says: impl FnOnce(&str) -> bool,
) -> anyhow::Result<bool> {
    let collected = tally::collect(command, LIMIT)?;
    let passed = collected.success && says(&collected.output);
    if !passed {
        println!("{name}, success: {}, output:\n{}", collected.success, collected.output);
    }
    Ok(count_test(name, tally, passed))
}

fn count_test(name: &str, tally: &mut Tally, passed: bool) -> bool {
    println!("{name}: {}", if passed { "ok" } else { "FAILED" });
    *if passed { &mut tally.passed } else { &mut tally.failed } += 1;
    passed
}
