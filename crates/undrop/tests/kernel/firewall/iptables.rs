//! Rules of iptables, with both of its back ends.

use std::process::{Command, Stdio};

use netlab::topology::LAN;
use stage::gateways::Setting;
use testkit::wait_until;

use super::assert_injects_at_wan;
use super::lab::{Lab, Wan, possible, skipped};

/// Returns whether the test can run here: with a back end of `iptables` that the kernel supports.
fn supported(test: &str, lab: &Lab, program: &str) -> bool {
    let mut command = Command::new(program);
    command.args(["-P", "FORWARD", "ACCEPT"]).stdin(Stdio::null()).stdout(Stdio::null());
    match lab.gateway().run(|| command.output()) {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            skipped(&format!("{test}: {program} does not work here: {}", why.trim()));
            false
        }
        Err(error) => {
            skipped(&format!("{test}: no program `{program}` ({error}; apt-get install iptables)"));
            false
        }
    }
}

/// Appends a rule to the chain of forwarded packets.
fn append(lab: &Lab, program: &str, rule: &str) {
    let rule: Vec<&str> = ["-A", "FORWARD"].into_iter().chain(rule.split(' ')).collect();
    lab.command(program, &rule);
}

/// As Docker and most scripts leave a router: what no rule accepts by interface is dropped. A rule that shuts
/// out the stream then lets no packet pass, and the status counts what the gateway injected, not what passed.
fn rules_of_iptables_apply(test: &str, program: &str, tap: &'static str) {
    if !possible(test) {
        return;
    }
    let lab = Lab::build(Wan::Plain, 4.0).unwrap();
    if !supported(test, &lab, program) {
        return;
    }
    let (wan, local) = (lab.wan(), lab.address(false));
    lab.command(program, &["-P", "FORWARD", "DROP"]);
    append(&lab, program, &format!("-i {wan} -o {LAN} -j ACCEPT"));
    append(&lab, program, &format!("-i {LAN} -o {wan} -j ACCEPT"));
    let pair = lab.start(&Setting { tap, ..Setting::layered() });
    lab.assert_recovered(&pair, false);
    assert_injects_at_wan(&pair);

    lab.command(program, &["-I", "FORWARD", "-i", wan, "-p", "udp", "-d", &local.to_string(), "-j", "DROP"]);
    let ingress = || pair.status(1).unwrap().peers.remove(0).ingress;
    let recovered = || ingress().loss.recovered;
    let (before, counted, mut streams) = (ingress().injected_packets, recovered(), 0);
    while ingress().injected_packets < before + 10 {
        let arrived = lab.stream(false).arrived_us.len();
        assert_eq!(arrived, 0, "of {} recovered ones\n{}", ingress().injected_packets - before, pair.logs());
        streams += 1;
        assert!(streams < 10, "expected 10 recovered packets, saw {}", ingress().injected_packets - before);
    }
    wait_until("what the firewall drops counts as recovered", || recovered() >= counted + 10);
    lab.command(program, &["-D", "FORWARD", "1"]);
    lab.assert_recovered(&pair, false);
    pair.stop().unwrap();
}

testkit::cases! { rules_of_iptables_apply:
    rules_of_legacy_iptables_apply_to_recovered_packets("iptables-legacy", "auto");
    rules_of_iptables_on_nftables_apply_to_recovered_packets("iptables-nft", "packet");
}
