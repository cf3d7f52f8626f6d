//! Commands that ask a running gateway or node.

use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use crate::cli::{Room, text, undrop};

#[test]
fn status_without_a_gateway_says_how_to_start_one() {
    let room = Room::new("status-none");
    let output = undrop(&["gateway", "status", "--control", "gateway.sock"], &room.0);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.starts_with("error: no gateway answers on `gateway.sock`\n  caused by: No such file"),
        "{said}"
    );
    assert!(said.contains("  help: start a gateway with `undrop gateway run FILE`"), "{said}");
}

#[test]
fn status_shows_the_answer_of_the_gateway_as_text_or_json() {
    let room = Room::new("status");
    room.file("gateway.toml", "[gateway]\ncontrol = \"gateway.sock\"\n");
    let listener = UnixListener::bind(room.0.join("gateway.sock")).unwrap();
    let mut status = maelstrom::status::Status::default();
    status.gateway.version = "9.9.9".to_owned();
    status.memory_bytes = 2_500_000;
    let document = serde_json::to_string(&status).unwrap();
    let gateway = std::thread::spawn(move || {
        for _ in 0..2 {
            listener.accept().unwrap().0.write_all(document.as_bytes()).unwrap();
        }
    });
    let table = undrop(&["gateway", "status", "--config", "gateway.toml"], &room.0);
    assert_eq!(table.status.code(), Some(0), "{}", text(&table.stderr));
    assert!(text(&table.stdout).starts_with("undrop 9.9.9, "));
    assert!(text(&table.stdout).contains("2.5 MB of packets kept"));
    let json = undrop(&["gateway", "status", "--control", "gateway.sock", "--json"], &room.0);
    assert_eq!(serde_json::from_slice::<maelstrom::status::Status>(&json.stdout).unwrap(), status);
    gateway.join().unwrap();
}

#[test]
fn a_file_that_does_not_parse_does_not_hide_the_running_gateway() {
    let room = Room::new("status-broken");
    let listener = UnixListener::bind(room.0.join("my.sock")).unwrap();
    let files: [&[u8]; 4] = [
        b"[gateway]\nwan = \ncontrol = \"my.sock\"  # the socket\n",
        b"[gateway\n  control='my.sock'\n",
        b"[gateway]\ncontrol = \"my.sock\"\nwan = \"\xff\"\n",
        b"[gateway]\nwan = 7\ncontrol = \"my.sock\"\n[[peer]]\nkey = []\n",
    ];
    let document = serde_json::to_string(&maelstrom::status::Status::default()).unwrap();
    let gateway = std::thread::spawn(move || {
        for _ in 0..files.len() {
            listener.accept().unwrap().0.write_all(document.as_bytes()).unwrap();
        }
    });
    for file in files {
        fs::write(room.0.join("gateway.toml"), file).unwrap();
        let table = undrop(&["gateway", "status", "--config", "gateway.toml"], &room.0);
        assert_eq!(table.status.code(), Some(0), "{}", text(&table.stderr));
    }
    gateway.join().unwrap();
    let absent = undrop(&["gateway", "status", "--config", "other.toml"], &room.0);
    assert_eq!(absent.status.code(), Some(1));
    assert!(text(&absent.stderr).contains("other.toml"), "{}", text(&absent.stderr));
}

#[test]
fn a_nodes_file_that_is_being_changed_does_not_hide_the_running_node() {
    let room = Room::new("changed-node");
    let listener = UnixListener::bind(room.0.join("node.sock")).unwrap();
    let files = [
        "[node]\ncontrol = \"node.sock\"\nunicst = true\n",
        "[node]\ncontrol = \"node.sock\"\nunicast = tru\n",
        "[repair]\nr = 4000\n[node]\ncontrol = \"node.sock\"\n",
    ];
    let answers = 3 * files.len();
    let node = std::thread::spawn(move || {
        for _ in 0..answers {
            let status = serde_json::to_string(&ricochet::Status::default()).unwrap();
            listener.accept().unwrap().0.write_all(status.as_bytes()).unwrap();
        }
    });
    for file in files {
        fs::write(room.0.join("node.toml"), file).unwrap();
        let of_node_exporter = "# TYPE undrop_node_info gauge\n";
        for (command, begin) in [
            (&["status"][..], ""),
            (&["metrics"], "# TYPE undrop_node info\n"),
            (&["metrics", "--format", "prometheus"], of_node_exporter),
        ] {
            let args = [&["multicast"][..], command, &["--config", "node.toml"]].concat();
            let shown = undrop(&args, &room.0);
            assert_eq!(shown.status.code(), Some(0), "{file}: {}", text(&shown.stderr));
            assert!(text(&shown.stdout).starts_with(begin), "{}", text(&shown.stdout));
        }
    }
    node.join().unwrap();
    // A file without a socket is a mistake only if it says nothing else about it.
    for (file, said) in [("[node]\n", "expected `node.control`"), ("[node]\nunicst = true\n", "unicst")] {
        fs::write(room.0.join("node.toml"), file).unwrap();
        let refused = undrop(&["multicast", "status", "--config", "node.toml"], &room.0);
        assert_eq!(refused.status.code(), Some(1));
        assert!(text(&refused.stderr).contains(said), "{}", text(&refused.stderr));
    }
}

#[test]
fn the_metrics_of_a_node_are_served_over_tcp() {
    use std::io::{BufRead as _, BufReader, Read as _};
    let room = Room::new("node-metrics");
    let listener = UnixListener::bind(room.0.join("node.sock")).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_undrop"))
        .args(["multicast", "metrics", "--control", "node.sock", "--listen", "127.0.0.1:0"])
        .current_dir(&room.0)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    let address =
        said.trim().strip_prefix("metrics at http://").and_then(|rest| rest.strip_suffix("/metrics"));
    let address = address.unwrap_or_else(|| panic!("{said}")).to_owned();
    let node = std::thread::spawn(move || {
        let status = ricochet::Status { id: "n7".to_owned(), ..ricochet::Status::default() };
        let status = serde_json::to_string(&status).unwrap();
        listener.accept().unwrap().0.write_all(status.as_bytes()).unwrap();
    });
    let scrape = || {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    };
    let response = scrape();
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    assert!(response.contains("undrop_node_info{id=\"n7\"") && response.ends_with("# EOF\n"), "{response}");
    node.join().unwrap();
    let response = scrape();
    assert!(!response.starts_with("HTTP/1.1 200"), "no node answers: {response}");
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn top_prints_one_screen_of_a_gateway_or_a_node_for_scripts() {
    let room = Room::new("top");
    let mut gateway = maelstrom::status::Status::default();
    gateway.gateway.wan = "wan7".to_owned();
    let node = ricochet::Status { address: "10.0.0.7:7900".parse().ok(), ..ricochet::Status::default() };
    // The first question to a node is the one that a gateway answers. A node is looked at twice.
    let documents = [
        ("gateway.sock", serde_json::to_string(&gateway).unwrap(), 1, "gateway on wan7, up 0 s: "),
        ("node.sock", serde_json::to_string(&node).unwrap(), 4, "node at 10.0.0.7:7900 on , up 0 s: "),
    ];
    for (socket, document, questions, expected) in documents {
        let listener = UnixListener::bind(room.0.join(socket)).unwrap();
        let answers = std::thread::spawn(move || {
            for _ in 0..questions {
                listener.accept().unwrap().0.write_all(document.as_bytes()).unwrap();
            }
        });
        let shown = undrop(&["top", "--once", "--control", socket], &room.0);
        answers.join().unwrap();
        assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
        let screen = text(&shown.stdout);
        assert!(screen.starts_with(expected) && !screen.contains('\x1b'), "{screen}");
    }
    let absent = undrop(&["top", "--once", "--control", "none.sock"], &room.0);
    assert_eq!(absent.status.code(), Some(1));
    assert!(text(&absent.stderr).contains("none.sock"), "{}", text(&absent.stderr));
}
