//! The command as a user runs it: output and exit codes of the binary.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::schema::faults_by_file;

/// A directory that is removed when the test ends.
pub(super) struct Room(pub(super) PathBuf);

impl Room {
    pub(super) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("undrop-cli-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(super) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(super) fn undrop(args: &[&str], directory: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_undrop"))
        .args(args)
        .current_dir(directory)
        .env_remove("RUST_LOG")
        .env_remove("COLUMNS")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

pub(super) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The names under "Commands:" in a help text.
pub(super) fn subcommands(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = listed.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
    names
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_help_ends_in_examples() {
    let mut waiting = vec![Vec::new()];
    let mut seen = 0;
    while let Some(command) = waiting.pop() {
        let args: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
        let output = undrop(&args, Path::new("."));
        assert_eq!(output.status.code(), Some(0), "{command:?}");
        let help = text(&output.stdout);
        assert!(help.contains("\nExamples:\n  "), "{command:?}:\n{help}");
        assert!(help.contains("Usage: undrop"), "{command:?}:\n{help}");
        waiting.extend(subcommands(help).into_iter().map(|name| [command.clone(), vec![name]].concat()));
        seen += 1;
    }
    assert!(seen >= 6, "only {seen} commands were found");
}

#[test]
fn the_help_of_run_lists_every_key_of_the_configuration() {
    let output = undrop(&["gateway", "run", "--help"], Path::new("."));
    for (_, _, key) in maelstrom::config::layout().keys() {
        assert!(text(&output.stdout).contains(&format!("\n  {}: ", key.name)), "{}", key.name);
    }
}

#[test]
fn wrong_usage_is_exit_code_2() {
    let here = Path::new(".");
    for wrong in [
        &[][..],
        &["gatway"],
        &["gateway", "check", "a", "--config", "b"],
        &["gateway", "run", "a", "b"],
        &["gateway", "status", "--control", "a", "--config", "b"],
        &["gateway", "status", "a", "--control", "b"],
        &["gateway", "advise", "--residual", "1.5"],
        &["multicast", "status", "a", "--config", "b"],
        &["multicast", "metrics", "--listen", "127.0.0.1:0", "--format", "prometheus"],
        &["multicast", "send", "g", "--rate", "0"],
        &["multicast", "send", "g"],
        &["multicast", "doctor"],
        &["multicast", "reply", "g", "--interface", "lo"],
        &["--log", "=[", "gateway", "genkey"],
        &["--log", "verbose", "gateway", "genkey"],
        &["fec", "simulate", "--r", "0"],
        &["fec", "simulate", "--window", "8"],
        &["fec", "simulate", "--scheme", "sliding", "--window", "2", "--rate", "1/8"],
    ] {
        let output = undrop(wrong, here);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(!output.stderr.is_empty());
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn wrong_usage_of_health_is_not_a_gateway_that_is_down() {
    let room = Room::new("health");
    room.file("broken.toml", "[gateway]\ncontrol = 7\n");
    for (args, code) in [
        (&["gateway", "health", "--jsn"][..], 3),
        (&["--log", "info", "gateway", "health", "extra"], 3),
        (&["gateway", "health", "--config", "none.toml"], 3),
        (&["gateway", "health", "--config", "broken.toml"], 3),
        (&["gateway", "health", "--control", "none.sock"], 2),
        (&["gateway", "health", "--help"], 0),
        (&["gateway", "status", "--jsn"], 2),
    ] {
        let output = undrop(args, &room.0);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output.stderr));
    }
    let down = undrop(&["gateway", "health", "--control", "none.sock", "--json"], &room.0);
    let down = serde_json::from_slice(&down.stdout).unwrap();
    assert_eq!(faults_by_file(&down, "undrop.gateway.health.1.json"), [""; 0]);
    let wrong = undrop(&["gateway", "health", "--jsn"], &room.0);
    assert!(wrong.stdout.is_empty() && text(&wrong.stderr).contains("--json"), "{}", text(&wrong.stderr));
}

#[test]
fn a_key_is_printed_or_written_where_nobody_else_can_read_it() {
    let room = Room::new("genkey");
    let printed = undrop(&["gateway", "genkey"], &room.0);
    assert_eq!(printed.status.code(), Some(0));
    keyfile::parse(text(&printed.stdout)).unwrap();

    let written = undrop(&["gateway", "genkey", "--out", "peer.key"], &room.0);
    assert_eq!(written.status.code(), Some(0));
    assert!(written.stdout.is_empty(), "a secret in a file is not shown as well");
    let file = room.0.join("peer.key");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let key = fs::read_to_string(&file).unwrap();
    keyfile::parse(&key).unwrap();
    assert_ne!(key, text(&printed.stdout));

    let again = undrop(&["gateway", "genkey", "--out", "peer.key"], &room.0);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).starts_with("error: cannot write the key to `peer.key`\n  caused by: "));
    assert!(text(&again.stderr).contains("  help: keep the key that is there"));
    assert_eq!(fs::read_to_string(&file).unwrap(), key);
}

#[test]
fn a_bad_file_is_exit_code_1_with_all_its_mistakes() {
    let room = Room::new("check");
    room.file(
        "gateway.toml",
        "[gateway]\nwan = \"no-such-wan\"\nlisen = \"10.81.9.1:4700\"\n[code]\nr = 0\n",
    );
    let output = undrop(&["gateway", "check", "--config", "gateway.toml"], &room.0);
    assert_eq!(output.status.code(), Some(1));
    let report = text(&output.stdout);
    for part in [
        "error[unknown-key]: unknown key `lisen` in [gateway]\n --> gateway.toml:3:1\n",
        "help: did you mean `listen`?",
        "error[out-of-range]: `r` in [code] is out of range\n --> gateway.toml:5:5\n",
        "error[missing-section]: there is no peer",
        // The same pass checks the machine.
        "error[interface-absent]: there is no interface `no-such-wan` on this machine\n --> gateway.toml:2:7\n",
    ] {
        assert!(report.contains(part), "{part} is not in\n{report}");
    }

    let json = undrop(&["gateway", "check", "--config", "gateway.toml", "--json"], &room.0);
    assert_eq!(json.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["diagnostics"][0]["code"], "interface-absent");
    assert_eq!(json["diagnostics"][0]["line"], 2);
    assert!(json["errors"].as_u64().unwrap() >= 4);
    assert_eq!(faults_by_file(&json, "undrop.check.1.json"), [""; 0]);
}

#[test]
fn run_refuses_a_bad_file_and_says_where_to_look() {
    let room = Room::new("run");
    room.file("gateway.toml", "[gateway]\nwan = 7\n");
    let output = undrop(&["gateway", "run", "--config", "gateway.toml"], &room.0);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("error[wrong-type]: `wan` in [gateway] has the wrong type\n --> gateway.toml:2:7"),
        "{said}"
    );
    assert!(said.contains("  help: fix it, then run `undrop gateway check gateway.toml`"), "{said}");
}

/// The report of `undrop multicast check` about a file with this text.
fn checked(room: &Room, text: &str) -> serde_json::Value {
    room.file("node.toml", text);
    let output = undrop(&["multicast", "check", "node.toml", "--json"], &room.0);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(i32::from(report["errors"] != 0)), "{report}");
    assert_eq!(faults_by_file(&report, "undrop.check.1.json"), [""; 0]);
    report
}

#[test]
fn every_kind_of_mistake_in_a_nodes_configuration_has_its_place_and_remedy() {
    let room = Room::new("node-check");
    assert_eq!(checked(&room, "[node]\ninterface = \"eth0\"\n")["errors"], 0);
    for (file, code, line, help) in [
        ("[node]\nintreface = \"eth0\"\n", "unknown-key", 2, "did you mean `interface`?"),
        ("[repair]\n\nr = \"8\"\n", "wrong-type", 3, "leave the quotes out: `8`"),
        ("[repair]\nr = 65\n", "out-of-range", 2, "for instance: `r = 8`"),
        ("[repair]\nmode = \"xnor\"\n", "bad-value", 2, "did you mean `\"xor\"`?"),
        ("[node]\nqueue = 7\n", "unknown-key", 2, "`queue` belongs under [buffers]"),
        ("[nodes]\n", "unknown-key", 1, "did you mean `node`?"),
        ("[node]\ninterface = eth0\n", "syntax", 2, "put text in double quotes: key = \"text\""),
        ("[node]\nport = 7911\n", "same-port", 2, "leave `port` out"),
        (
            "[membership]\netcd = [\"https://10.0.0.1:2379\"]\n",
            "bad-value",
            2,
            "run a proxy on this host and name it, such as `stunnel` or `kubectl proxy`",
        ),
        ("[membership]\netcd_prefix = \"/a\"\n", "unused", 2, "set `etcd`, or leave `etcd_prefix` out"),
        (
            "[key]\nfile = \"absent.key\"\n",
            "key-file",
            2,
            "copy the key file of the cluster from another host to absent.key; for a new cluster, make a key with \
             `undrop multicast genkey --out absent.key`, and copy it to all hosts",
        ),
    ] {
        let report = checked(&room, file);
        assert_eq!(report["errors"], 1, "{report}");
        let found = &report["diagnostics"][0];
        assert_eq!((&found["code"], &found["line"]), (&code.into(), &line.into()), "{report}");
        assert_eq!(found["help"][0], help, "{report}");
    }
    fs::remove_file(room.0.join("node.toml")).unwrap();
    let output = undrop(&["multicast", "check", "node.toml"], &room.0);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stdout).starts_with("error[unreadable-file]: cannot read `node.toml`: No such file")
    );
}

#[test]
fn a_node_refuses_a_bad_file_and_names_the_check() {
    let room = Room::new("node-run");
    room.file("node.toml", "[node]\nhops = 0\n[repair]\nr = 0\n");
    for command in [&["recv", "g"][..], &["doctor"], &["status"]] {
        let args = [&["multicast"], command, &["--config", "node.toml"]].concat();
        let output = undrop(&args, &room.0);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let said = text(&output.stderr);
        for part in [
            "error[out-of-range]: `hops` in [node] is out of range\n --> node.toml:2:8\n",
            "error[out-of-range]: `r` in [repair] is out of range\n --> node.toml:4:5\n",
            "error: the configuration has mistakes\n  help: fix it, then run `undrop multicast check node.toml`",
        ] {
            assert!(said.contains(part), "{part} is not in\n{said}");
        }
    }
}

#[test]
fn a_node_without_its_registry_says_so_and_fails() {
    let room = Room::new("registry");
    // Nobody listens at the port of this listener once it is dropped.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let node = "[node]\ninterface = \"lo\"\naddress = \"127.0.0.1\"\nport = 0\nunicast = true\n";
    room.file("node.toml", &format!("{node}[membership]\netcd = [\"http://{nobody}\"]\n"));
    let args = ["multicast", "recv", "g", "--config", "node.toml", "--seconds", "4"];
    let output = undrop(&args, &room.0);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stderr);
    assert!(
        said.contains(&format!("expected the members from etcd, saw: cannot connect to http://{nobody}")),
        "{said}"
    );
    assert!(said.contains("help: check the addresses in the section [membership]"), "{said}");
}

#[test]
fn an_ipv4_address_with_ipv6_is_refused() {
    let room = Room::new("versions");
    let args = ["multicast", "recv", "g", "--interface", "lo", "--ipv6", "--address", "127.0.0.1"];
    let output = undrop(&args, &room.0);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("expected an IPv6 address with `--ipv6`, saw 127.0.0.1"), "{said}");
    assert!(said.contains("leave out `--ipv6`"), "{said}");
}

#[test]
fn messages_that_nobody_gets_have_an_exit_code_of_their_own() {
    let room = Room::new("nobody");
    let send = |more: &[&str]| {
        let alone = ["--interface", "lo", "--address", "127.0.0.1", "--port", "0", "--unicast"];
        let brief = ["--patience", "0.2", "--linger", "0", "--count", "1"];
        let args = [&["multicast", "send", "g", "--size", "10"], &alone[..], &brief, more].concat();
        let output = undrop(&args, &room.0);
        (output.status.code(), text(&output.stderr).to_owned())
    };
    let (code, said) = send(&[]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("error: expected another member of \"g\", saw none"), "{said}");
    // Whoever waits for nobody does not expect that somebody gets the messages.
    let (code, said) = send(&["--members", "0"]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_file_is_an_argument_or_an_option_and_has_a_usual_place() {
    let room = Room::new("files");
    room.file("gateway.toml", "[gateway]\nwan = 7\ncontrol = \"absent.sock\"\n");
    room.file("node.toml", "[node]\nport = \"x\"\n");
    for (command, file) in [("gateway", "gateway.toml"), ("multicast", "node.toml")] {
        let named = undrop(&[command, "check", file], &room.0);
        let by_option = undrop(&[command, "check", "--config", file], &room.0);
        assert_eq!(named.status.code(), Some(1));
        assert!(text(&named.stdout).contains(file), "{}", text(&named.stdout));
        assert_eq!(named.stdout, by_option.stdout);
        let help = undrop(&[command, "check", "-h"], &room.0);
        assert!(
            text(&help.stdout).contains(&format!("[default: /etc/undrop/{file}]")),
            "{}",
            text(&help.stdout)
        );
    }
    for args in [&["gateway.toml"][..], &["--config", "gateway.toml"]] {
        let status = undrop(&[&["gateway", "status"], args].concat(), &room.0);
        assert!(text(&status.stderr).contains("absent.sock"), "{}", text(&status.stderr));
    }
}

#[test]
fn the_help_of_the_check_lists_every_key_of_a_node() {
    let output = undrop(&["multicast", "check", "--help"], Path::new("."));
    let help = text(&output.stdout);
    for line in [
        "[node]",
        "[buffers]",
        "  interface: the name of",
        "  policy: one of",
        "  packets_per_second: an integer",
    ] {
        assert!(help.lines().any(|shown| shown.starts_with(line)), "{line} is not in\n{help}");
    }
}

/// Runs `gateway run` on a file with mistakes; returns the lines of stderr.
fn refused_start(args: &[&str], environment: &[(&str, &str)]) -> Vec<String> {
    let room = Room::new(&format!("start-{}", args.len() + 2 * environment.len()));
    room.file("gateway.toml", "[gateway]\nwan = 7\nlisen = \"10.81.9.1:4700\"\n");
    let output = Command::new(env!("CARGO_BIN_EXE_undrop"))
        .args(["gateway", "run", "--config", "gateway.toml"])
        .args(args)
        .envs(environment.iter().copied())
        .current_dir(&room.0)
        .env_remove("RUST_LOG")
        .env_remove("COLUMNS")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    text(&output.stderr).lines().map(str::to_owned).collect()
}

#[test]
fn one_record_is_one_line_in_logs_for_programs() {
    let json = refused_start(&["--log-format", "json"], &[]);
    let records = json.iter().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let records: Vec<_> = records.collect();
    let unknown = records.iter().find(|record| record["code"] == "unknown-key").unwrap();
    assert_eq!(unknown["place"], "gateway.toml:3:1");
    assert_eq!((&unknown["level"], &unknown["help"]), (&"error".into(), &"did you mean `listen`?".into()));
    let last = records.last().unwrap();
    assert_eq!(last["message"], "the configuration has mistakes");
    assert!(last["help"].as_str().unwrap().starts_with("fix it, then run `undrop gateway check"));

    let journal = refused_start(&["--log-format", "journald"], &[]);
    assert_eq!(journal.len(), json.len());
    for line in &journal {
        assert!(line.starts_with("<3>") && !line.contains("\\n"), "{line}");
        assert!(!line.contains("T0") && !line.contains("ERROR"), "no time, no level in words: {line}");
    }
    // For people, each mistake is shown in its place, on several lines.
    let text = refused_start(&["--log-format", "text"], &[]);
    assert!(text.iter().any(|line| line.starts_with(" --> gateway.toml:3:1")), "{text:?}");
    // A stream of journald that stderr does not go to.
    let elsewhere = refused_start(&[], &[("JOURNAL_STREAM", "8:1")]);
    assert_eq!(elsewhere, text);
}

#[test]
fn stderr_that_is_the_journal_gets_priorities_and_no_time() {
    use std::os::unix::fs::MetadataExt as _;
    let room = Room::new("journal");
    let journal = fs::File::create(room.0.join("journal")).unwrap();
    let stat = journal.metadata().unwrap();
    let code = Command::new(env!("CARGO_BIN_EXE_undrop"))
        .args(["gateway", "run", "--config", "/nonexistent/gateway.toml"])
        .env("JOURNAL_STREAM", format!("{}:{}", stat.dev(), stat.ino()))
        .env_remove("RUST_LOG")
        .env_remove("COLUMNS")
        .stdin(Stdio::null())
        .stderr(journal)
        .status()
        .unwrap();
    assert_eq!(code.code(), Some(1));
    let said = fs::read_to_string(room.0.join("journal")).unwrap();
    assert!(said.lines().count() > 0 && said.lines().all(|line| line.starts_with("<3>")), "{said}");
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let room = Room::new("pipe");
    room.file("gateway.toml", "");
    let mut child = Command::new(env!("CARGO_BIN_EXE_undrop"))
        .args(["gateway", "genkey"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_simulation_follows_its_schema() {
    let room = Room::new("simulation");
    let output = undrop(&["fec", "simulate", "--packets", "2000", "--seeds", "1", "--json"], &room.0);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["packets"], 2_000);
    assert_eq!(faults_by_file(&document, "undrop.fec.simulation.1.json"), [""; 0]);
}
