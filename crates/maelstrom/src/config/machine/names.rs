//! Names of peers: the addresses that this machine finds for them at present.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use diagnostics::{Diagnostic, Findings, Span};

use super::super::draft::{Draft, PeerDraft};
use super::super::types::{Host, PeerAddress};
use crate::names::{look_up_within, of_family};

/// Time that a lookup may take. A gateway does not wait longer for it at its start.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time that each further lookup may take once a name server has not answered in time.
const LITTLE: Duration = Duration::from_millis(100);

/// Returns the draft with the first address of each name in its place, for further checks, and adds a finding
/// about each name.
pub(super) fn looked_up(draft: Draft, findings: &mut Findings) -> Draft {
    looked_up_by(draft, findings, look_up_within)
}

/// Like [`looked_up`]; `look_up` finds the addresses of a name within a time.
fn looked_up_by(
    mut draft: Draft,
    findings: &mut Findings,
    look_up: impl Fn(&Host, Duration) -> io::Result<Vec<SocketAddr>>,
) -> Draft {
    let v6 = draft.gateway.listen.as_ref().is_some_and(|listen| listen.value.is_ipv6());
    let mut patience = PATIENCE;
    for (address, span) in draft.peers.iter_mut().flat_map(addresses_of) {
        let PeerAddress::Name(host) = &*address else { continue };
        let found = look_up(host, patience);
        if found.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            patience = LITTLE;
        }
        let found = found.map(|found| of_family(found, v6));
        findings.add(finding(host, v6, &found).at(span));
        if let Some(&first) = found.iter().flatten().next() {
            *address = PeerAddress::Ip(first);
        }
    }
    draft
}

/// The addresses of a peer on all paths, with their places in the file.
fn addresses_of(peer: &mut PeerDraft) -> impl Iterator<Item = (&mut PeerAddress, Option<Span>)> {
    let first = peer.address.iter_mut().map(|first| (&mut first.value, first.span.clone()));
    let further = peer.paths.iter_mut().filter_map(|paths| paths.value.as_mut()).flatten();
    first.chain(further.map(|path| (&mut path.value.address, path.span.clone())))
}

fn finding(host: &Host, v6: bool, found: &io::Result<Vec<SocketAddr>>) -> Diagnostic {
    let name = &host.name;
    let reason = match found {
        Ok(found) if found.is_empty() => {
            format!("it has no IPv{} address, the version of `listen`", if v6 { 6 } else { 4 })
        }
        Ok(found) => {
            let all: Vec<String> = found.iter().map(|address| address.ip().to_string()).collect();
            return Diagnostic::remark("name-found", format!("`{name}` is {}", all.join(" or ")));
        }
        Err(error) => error.to_string(),
    };
    Diagnostic::warning("unknown-name", format!("`{name}` is not found: {reason}"))
        .note("the gateway starts all the same, and looks again; the peer is not reached there until then")
        .help(format!("correct the name, or check the name servers of this machine: getent hosts {name}"))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::super::super::tests::examined;
    use super::*;

    /// Looks up the names of a file with one peer for each, and returns the codes of the findings, the
    /// addresses, and the times that the lookups had.
    fn run(
        names: &[&str],
        look_up: impl Fn(&str) -> io::Result<Vec<SocketAddr>>,
    ) -> (Vec<&'static str>, Vec<String>, Vec<Duration>) {
        let mut text = "[gateway]\nwan = \"wan0\"\nlisten = \"10.81.9.1:4700\"\n".to_owned();
        for (n, name) in names.iter().enumerate() {
            let networks = format!("networks = [\"10.82.{n}.0/24\"]\nkey_file = \"{}\"\n", "k".repeat(n + 1));
            text += &format!("[[peer]]\naddress = \"{name}:4700\"\n{networks}");
        }
        let (draft, report) = examined(&text);
        assert_eq!(report.errors(), 0, "{report}");
        let (mut findings, times) = (Findings::default(), RefCell::new(Vec::new()));
        let draft = looked_up_by(draft.unwrap(), &mut findings, |host, patience| {
            times.borrow_mut().push(patience);
            look_up(&host.name)
        });
        let report =
            findings.into_report(diagnostics::Source::new(std::path::Path::new("gateway.toml"), &text));
        let codes = report.diagnostics().iter().map(|finding| finding.code).collect();
        let addresses = draft.peers.iter().map(|peer| peer.address.as_ref().unwrap().value.to_string());
        (codes, addresses.collect(), times.into_inner())
    }

    #[test]
    fn a_name_is_replaced_by_an_address_of_the_version_of_listen() {
        let v4: SocketAddr = "203.0.113.7:4700".parse().unwrap();
        let v6: SocketAddr = "[2001:db8::7]:4700".parse().unwrap();
        let (codes, addresses, _) = run(&["both.test", "six.test", "203.0.113.9"], |name| {
            Ok(if name == "both.test" { vec![v6, v4] } else { vec![v6] })
        });
        assert_eq!(codes, ["name-found", "unknown-name"]);
        assert_eq!(addresses, ["203.0.113.7:4700", "six.test:4700", "203.0.113.9:4700"]);
    }

    #[test]
    fn names_of_further_paths_are_looked_up_too() {
        let text = "[gateway]\nmode = \"tunnel\"\nwan = \"wan0\"\nlisten = \"10.81.9.1:4700\"\n\
            [[peer]]\naddress = \"one.test:4700\"\nnetworks = [\"10.82.0.0/16\"]\nkey_file = \"k\"\n\
            [[peer.paths]]\naddress = \"two.test:4701\"\n[[peer.paths]]\naddress = \"gone.test:4702\"\n";
        let (draft, report) = examined(text);
        assert!(report.diagnostics().is_empty(), "{report}");
        let mut findings = Findings::default();
        let draft = looked_up_by(draft.unwrap(), &mut findings, |host, _| {
            let address = SocketAddr::new("203.0.113.7".parse().unwrap(), host.port);
            if host.name == "gone.test" { Err(io::Error::other("no such name")) } else { Ok(vec![address]) }
        });
        let report =
            findings.into_report(diagnostics::Source::new(std::path::Path::new("gateway.toml"), text));
        let codes: Vec<_> = report.diagnostics().iter().map(|finding| finding.code).collect();
        assert_eq!(codes, ["name-found", "name-found", "unknown-name"]);
        let paths = super::super::super::paths::stated(&draft.peers[0]);
        let found: Vec<_> = paths.iter().map(|path| path.value.address.to_string()).collect();
        assert_eq!(found, ["203.0.113.7:4701", "gone.test:4702"]);
    }

    #[test]
    fn a_dead_name_server_delays_the_start_once() {
        let names = ["one.test", "two.test", "three.test"];
        let late = |_: &str| Err(io::Error::from(io::ErrorKind::TimedOut));
        let (codes, _, times) = run(&names, late);
        assert_eq!((codes, times), (vec!["unknown-name"; 3], vec![PATIENCE, LITTLE, LITTLE]));
        let absent = |_: &str| Err(io::Error::other("no such name"));
        assert_eq!(run(&names, absent).2, [PATIENCE; 3], "an answer is no delay");
    }
}
