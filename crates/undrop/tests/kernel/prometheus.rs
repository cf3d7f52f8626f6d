//! A real Prometheus that scrapes two gateways: the dashboard's queries, and the alerts with real faults.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, fs, io, process, thread};

use netlab::emulator::{Direction, EmulatorConfig};
use netlab::namespace::Child;
use netlab::topology::{TwoSites, TwoSitesConfig};
use netlab::traffic::{Between, Pace, UdpStream, udp_stream, unwatched};
use netlab::{Namespace, privilege};
use serde_json::Value;
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting};
use testkit::wait_until;

use crate::pair::{PROGRAM, reload};

/// Address of Prometheus, in the namespace of gateway A.
const SERVER: &str = "127.0.0.1:9090";
/// Addresses of the gateways' metrics.
const TARGETS: [&str; 2] = ["10.81.9.1:9469", "10.81.9.2:9469"];
/// Queries of the dashboard that have no answer while nothing is wrong, and without a rack.
const OF_FAULTS: [&str; 7] = [
    "undrop_gateway_rack_",
    "undrop_gateway_drops_total",
    "undrop_gateway_concern",
    "undrop_gateway_unprotected_packets_total",
    "undrop_gateway_withheld_packets_total",
    "undrop_gateway_uninjected_packets_total",
    "undrop_gateway_rejected_datagrams_total",
];

fn ops(file: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../ops").join(file);
    fs::read_to_string(path).unwrap()
}

/// A running Prometheus, and its directory.
struct Server<'a> {
    host: &'a Namespace,
    directory: PathBuf,
    _child: Child,
}

impl<'a> Server<'a> {
    /// Starts Prometheus with the alerts of `ops/`, over seconds in place of minutes. `None` if the program
    /// is not installed, which is reported.
    fn start(test: &str, host: &'a Namespace) -> Option<Self> {
        if let Err(error) = Command::new("prometheus").arg("--version").output() {
            // Past the capture of the harness, so that the line is counted.
            let reason = format!("cannot start prometheus: {error} (apt-get install prometheus)");
            let _ = writeln!(io::stderr(), "SKIPPED: {test}: {reason}");
            return None;
        }
        let directory = env::temp_dir().join(format!("undrop-prometheus-{}", process::id()));
        fs::create_dir_all(&directory).unwrap();
        let rules = ["1m", "2m", "5m"]
            .iter()
            .fold(ops("undrop.rules.yml"), |rules, span| rules.replace(&format!("for: {span}"), "for: 1s"));
        fs::write(directory.join("rules.yml"), rules.replace("[5m]", "[8s]")).unwrap();
        let targets = TARGETS.map(|target| format!("\"{target}\"")).join(", ");
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [rules.yml]\nscrape_configs:\n  \
             - job_name: undrop\n    static_configs: [{{ targets: [{targets}] }}]\n"
        );
        fs::write(directory.join("prometheus.yml"), config).unwrap();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", directory.join("prometheus.yml").display()));
        command.arg(format!("--storage.tsdb.path={}", directory.join("data").display()));
        command.arg(format!("--web.listen-address={SERVER}"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = host.spawn(command).unwrap();
        Some(Self { host, directory, _child: child })
    }

    /// The answer to a query: its samples. `None` while the server is not ready.
    fn ask(&self, query: &str) -> Option<Vec<Value>> {
        let coded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let text = self.host.run(|| -> io::Result<String> {
            let server: SocketAddr = SERVER.parse().expect("an address");
            let mut stream = TcpStream::connect_timeout(&server, Duration::from_secs(5))?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            write!(stream, "GET /api/v1/query?query={coded} HTTP/1.0\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        });
        let text = text.ok()?;
        let (_, body) = text.split_once("\r\n\r\n")?;
        let answer: Value = serde_json::from_str(body).ok()?;
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].as_array().cloned()
    }

    /// Names of the alerts that fire.
    fn firing(&self) -> BTreeSet<String> {
        let alerts = self.ask("ALERTS{alertstate=\"firing\"}").unwrap_or_default();
        alerts.iter().filter_map(|alert| Some(alert["metric"]["alertname"].as_str()?.to_owned())).collect()
    }

    fn wait_for_alert(&self, alert: &str) {
        wait_until(&format!("{alert} fires"), || self.firing().contains(alert));
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Each query of the dashboard, for all gateways and peers.
fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&ops("undrop.dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries = targets.filter_map(|target| target["expr"].as_str());
    let all = |query: &str| {
        query.replace("$__rate_interval", "8s").replace("$instance", ".*").replace("$peer", ".*")
    };
    queries.map(all).collect()
}

/// Adds the metrics' address to the file of one side.
fn export(pair: &GatewayPair, side: usize) {
    let text = fs::read_to_string(pair.config(side)).unwrap();
    let line = format!("[gateway]\nmetrics = \"{}\"", TARGETS[side]);
    fs::write(pair.config(side), text.replace("[gateway]", &line)).unwrap();
}

/// Sends packets from site A to site B until `ends`.
fn traffic(sites: &TwoSites, ends: &AtomicBool) {
    let between = Between { from: &sites.a.hosts[0], to: &sites.b.hosts[0], address: sites.b.host_v4(0) };
    let plan = UdpStream {
        pace: Pace::Packets(500.0),
        payload_bytes: 300,
        duration: Duration::from_secs(1),
        patience: Duration::from_millis(10),
        ..UdpStream::default()
    };
    while !ends.load(Ordering::Relaxed) {
        udp_stream(between, &plan, &mut unwatched).unwrap();
    }
}

#[test]
#[ignore = "needs Prometheus, and reaction within its seconds: cargo xtask assure alerts"]
fn prometheus_answers_the_dashboard_and_each_alert_fires_for_a_real_fault() {
    let test = "prometheus_answers_the_dashboard_and_each_alert_fires_for_a_real_fault";
    if !privilege::available_or_skip(test) {
        return;
    }
    let link = LinkConfig { loss: "uniform:0.02".parse().unwrap(), seed: 8, ..LinkConfig::default() };
    let sites = TwoSites::build(&TwoSitesConfig::default(), &EmulatorConfig::symmetric(link)).unwrap();
    let Some(server) = Server::start(test, &sites.a.gateway) else { return };
    let ends = End::of(&sites);
    let mut pair = GatewayPair::prepare(Path::new(PROGRAM), &ends, &Setting::layered()).unwrap();
    for (side, end) in ends.iter().enumerate() {
        export(&pair, side);
        pair.launch(side, end.namespace).unwrap();
    }
    pair.wait_until_up(Duration::from_secs(20)).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let stream = scope.spawn(|| traffic(&sites, &is_over));
        let shown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            the_dashboard_has_answers(&server);
            alerts_fire(&server, &sites, &mut pair);
        }));
        is_over.store(true, Ordering::Relaxed);
        stream.join().unwrap();
        if let Err(failure) = shown {
            println!("{}", pair.logs());
            std::panic::resume_unwind(failure);
        }
    });
}

fn the_dashboard_has_answers(server: &Server<'_>) {
    let (faults, others): (Vec<String>, Vec<String>) =
        queries().into_iter().partition(|query| OF_FAULTS.iter().any(|name| query.contains(name)));
    assert!(others.len() >= 10 && faults.len() >= OF_FAULTS.len(), "{others:?}");
    for query in &others {
        wait_until(&format!("{query} has an answer"), || {
            server.ask(query).is_some_and(|found| !found.is_empty())
        });
    }
    for query in &faults {
        assert!(server.ask(query).is_some(), "{query}");
    }
    // Each gateway finds the losses of the packets that arrive, and hears of the others.
    let lost = server.ask("undrop_gateway_packets_lost_total > 0").unwrap();
    assert!(lost.len() >= 2, "{lost:?}");
}

fn alerts_fire(server: &Server<'_>, sites: &TwoSites, pair: &mut GatewayPair) {
    let early = server.firing();
    for alert in ["UndropPeerUnprotected", "UndropKeyRefused", "UndropOverheadAtItsCap", "UndropGatewayGone"]
    {
        assert!(!early.contains(alert), "{early:?} without a fault");
    }
    // More losses than repairs, and these are limited too.
    sites.link.set_loss(Direction::AToB, &"uniform:0.3".parse().unwrap());
    reload(pair, 0, |text| {
        let layered = "scheme = \"layered\"\nr = 8\ninterleaves = [1, 11, 19]\ndelayed = true\n";
        assert!(text.contains(layered), "{text}");
        text.replace(layered, "scheme = \"auto\"\nmax_repair_rate = \"100kbit/s\"\n")
    });
    server.wait_for_alert("UndropResidualLoss");
    server.wait_for_alert("UndropOverheadAtItsCap");
    sites.link.set_loss(Direction::AToB, &"none".parse().unwrap());
    // Recovery pauses while the gateway has no TUN device, and cannot create it because the name is taken.
    let gateway = &sites.b.gateway;
    wait_until("the name of the TUN device is taken", || {
        let _ = gateway.delete_interface("undrop0");
        gateway.add_veth("undrop0", gateway, "taken", 1_500).is_ok()
    });
    server.wait_for_alert("UndropGatewayBehind");
    gateway.delete_interface("undrop0").unwrap();
    // The far gateway comes back with another key.
    pair.kill(1).unwrap();
    let config = pair.config(1);
    let other = config.with_file_name("other.key");
    let made = Command::new(PROGRAM).args(["gateway", "genkey", "--out"]).arg(&other).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let text = fs::read_to_string(&config).unwrap().replace("peer.key", "other.key");
    fs::write(&config, text).unwrap();
    pair.launch(1, End::of(sites)[1].namespace).unwrap();
    server.wait_for_alert("UndropPeerUnprotected");
    server.wait_for_alert("UndropKeyRefused");
    pair.kill(1).unwrap();
    server.wait_for_alert("UndropGatewayGone");
}
