//! `undrop gateway check` on real interfaces, addresses and routes, in namespaces.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use keyfile::KeyText;
use maelstrom::config::{self, Severity};
use netlab::namespace::Route;
use netlab::{Namespace, privilege};
use testkit::wait_for;

use crate::pair::PROGRAM;

const CONFIG: &str = r#"
[gateway]
wan = "wan0"
listen = "10.81.9.1:4700"
control = "gateway.sock"
tap = "packet"
[code]
scheme = "layered"
[[peer]]
address = "10.81.9.2:4700"
networks = ["10.81.2.0/24", "fd81:2::/64"]
key_file = "peer.key"
"#;

/// A site's gateway without a gateway process.
pub(crate) struct Site {
    pub(crate) namespace: Namespace,
    /// Owner of the far ends of its links.
    outside: Namespace,
    directory: PathBuf,
}

impl Site {
    pub(crate) fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("undrop-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("gateway.toml"), CONFIG).unwrap();
        KeyText::generate().unwrap().write_new(&directory.join("peer.key")).unwrap();
        let (namespace, outside) =
            (Namespace::create("site").unwrap(), Namespace::create("outside").unwrap());
        Self { namespace, outside, directory }
    }

    /// Changes the configuration file.
    pub(crate) fn rewrite(&self, from: &str, to: &str) {
        let file = self.directory.join("gateway.toml");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{from} is not in {text}");
        fs::write(file, text.replace(from, to)).unwrap();
    }

    pub(crate) fn connect(&self, lan_mtu: u32, route_mtu: Option<u32>) {
        self.namespace.add_veth("wan0", &self.outside, "wan0", 1500).unwrap();
        self.namespace.add_veth("lan0", &self.outside, "lan0", lan_mtu).unwrap();
        for (interface, address) in
            [("wan0", "10.81.9.1/24"), ("lan0", "10.81.1.1/24"), ("wan0", "fd81:9::1/64")]
        {
            self.namespace.add_address(interface, address.parse().unwrap()).unwrap();
        }
        for (network, gateway) in [("10.81.2.0/24", "10.81.9.2"), ("fd81:2::/64", "fd81:9::2")] {
            let route = Route::to(network.parse().unwrap()).via(gateway.parse().unwrap());
            let route = route_mtu.map_or(route.clone(), |mtu| route.mtu(mtu));
            self.namespace.add_route(&route).unwrap();
        }
        self.namespace.sysctl("net.ipv4.ip_forward", "1").unwrap();
        self.namespace.sysctl("net.ipv6.conf.all.forwarding", "1").unwrap();
    }

    /// The configuration file.
    pub(crate) fn config(&self) -> PathBuf {
        self.directory.join("gateway.toml")
    }

    /// Codes of the errors and warnings.
    pub(crate) fn complaints(&self) -> Vec<&'static str> {
        let report = self.namespace.run(|| config::check(&self.config()));
        let serious = report.diagnostics().iter().filter(|finding| finding.severity != Severity::Note);
        serious.map(|finding| finding.code).collect()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn a_bare_machine_lacks_interface_and_address() {
    if !privilege::available_or_skip("a_bare_machine_lacks_interface_and_address") {
        return;
    }
    let site = Site::new("bare");
    let complaints = site.complaints();
    for code in ["interface-absent", "listen-not-local", "not-forwarding"] {
        assert!(complaints.contains(&code), "{code} is not in {complaints:?}");
    }
}

#[test]
fn a_gateway_with_room_for_repairs_has_no_findings() {
    if !privilege::available_or_skip("a_gateway_with_room_for_repairs_has_no_findings") {
        return;
    }
    let site = Site::new("right");
    site.connect(1300, None);
    assert_eq!(site.complaints(), [""; 0]);
    site.namespace.set_down("wan0").unwrap();
    assert!(site.complaints().contains(&"interface-down"));
}

#[test]
fn the_proposed_route_mtu_fixes_the_budget() {
    if !privilege::available_or_skip("the_proposed_route_mtu_fixes_the_budget") {
        return;
    }
    let site = Site::new("tight");
    site.connect(1500, None);
    assert_eq!(site.complaints(), [""; 0], "the gateway limits TCP by itself");
    let check = |site: &Site| site.rewrite("[gateway]", "[gateway]\nmtu = \"check\"");
    check(&site);
    assert_eq!(site.complaints(), ["mtu-budget"]);
    let report = site.namespace.run(|| config::check(&site.config())).to_string();
    let line = report.lines().find(|line| line.contains("ip route replace 10.81.2.0/24")).unwrap();
    assert!(line.contains("via 10.81.9.2 dev wan0 mtu "), "{line}");
    let mtu: u32 = line.split_whitespace().next_back().unwrap().parse().unwrap();
    let fixed = Site::new("fixed");
    fixed.connect(1500, Some(mtu));
    check(&fixed);
    assert_eq!(fixed.complaints(), [""; 0]);
    let one_more = Site::new("one-more");
    one_more.connect(1500, Some(mtu + 1));
    check(&one_more);
    assert_eq!(one_more.complaints(), ["mtu-budget"]);
}

#[test]
fn a_network_around_this_site_is_refused() {
    if !privilege::available_or_skip("a_network_around_this_site_is_refused") {
        return;
    }
    let site = Site::new("around");
    site.connect(1300, None);
    site.rewrite("10.81.2.0/24", "10.81.0.0/21");
    let complaints = site.complaints();
    assert!(complaints.contains(&"own-network"), "{complaints:?}");
}

/// Runs `undrop gateway run` until it answers or ends. Returns its exit code, `None` if it runs, and the
/// records of its log.
fn run(site: &Site) -> (Option<i32>, Vec<serde_json::Value>) {
    let log = site.config().with_file_name("log");
    let mut command = Command::new(PROGRAM);
    command.args(["gateway", "run", "--log-format", "json", "--config"]).arg(site.config());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap());
    let mut child = site.namespace.spawn(command).unwrap();
    let control = site.config().with_file_name("gateway.sock");
    let code = wait_for(|| match child.try_wait().unwrap() {
        Some(ended) => Some(ended.code()),
        None => maelstrom::status::read(&control).is_ok().then_some(None),
    });
    drop(child);
    let log = fs::read_to_string(log).unwrap();
    let record = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("no record: {line}"));
    (code.expect("the gateway runs, or ends"), log.lines().map(record).collect())
}

#[test]
fn check_and_run_judge_alike() {
    if !privilege::available_or_skip("check_and_run_judge_alike") {
        return;
    }
    type Fault = fn(&Site);
    let faults: [(&str, bool, Fault); 6] = [
        ("mtu-budget", false, |site| {
            site.rewrite("[gateway]", "[gateway]\nmtu = \"check\"\nlan_mtu = 1500");
        }),
        ("wan-mtu", false, |site| site.rewrite("[gateway]", "[gateway]\nwan_mtu = 9000")),
        ("not-forwarding", false, |site| site.namespace.sysctl("net.ipv4.ip_forward", "0").unwrap()),
        ("listen-not-local", true, |site| site.rewrite("10.81.9.1:4700", "10.81.9.7:4700")),
        ("own-network", true, |site| site.rewrite("10.81.2.0/24", "10.81.0.0/21")),
        ("tun-exists", true, |site| site.rewrite("[gateway]", "[gateway]\ntun = \"lan0\"")),
    ];
    for (code, is_error, fault) in faults {
        let site = Site::new(&format!("alike-{code}"));
        site.connect(1300, None);
        fault(&site);
        let report = site.namespace.run(|| config::check(&site.config()));
        assert_eq!(report.errors() > 0, is_error, "{report}");
        let (ended, log) = run(&site);
        assert_eq!(ended, is_error.then_some(1), "{code}: {log:?}");
        let records: Vec<_> = log.iter().filter(|record| record["code"] == code).collect();
        assert_eq!(records.len(), 1, "{code}: {log:?}");
        let level = if is_error { "error" } else { "warn" };
        assert_eq!(records[0]["level"], level, "{log:?}");
        let help = records[0]["help"].as_str().unwrap();
        assert!(!help.contains('\n'), "{help}");
    }
}
