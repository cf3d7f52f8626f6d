//! `undrop gateway check` on real interfaces, addresses and routes, in namespaces.

use std::fs;
use std::path::PathBuf;

use keyfile::KeyText;
use maelstrom::config::{self, Severity};
use netlab::namespace::Route;
use netlab::{Namespace, privilege};

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

    /// Codes of the errors and warnings.
    pub(crate) fn complaints(&self) -> Vec<&'static str> {
        let report = self.namespace.run(|| config::check(&self.directory.join("gateway.toml")));
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
    assert_eq!(site.complaints(), ["mtu-budget"]);
    let report = site.namespace.run(|| config::check(&site.directory.join("gateway.toml"))).to_string();
    let line = report.lines().find(|line| line.contains("ip route replace 10.81.2.0/24")).unwrap();
    assert!(line.contains("via 10.81.9.2 dev wan0 mtu "), "{line}");
    let mtu: u32 = line.split_whitespace().next_back().unwrap().parse().unwrap();
    let fixed = Site::new("fixed");
    fixed.connect(1500, Some(mtu));
    assert_eq!(fixed.complaints(), [""; 0]);
    let one_more = Site::new("one-more");
    one_more.connect(1500, Some(mtu + 1));
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
