//! The route of packets with a mark to this machine itself, whatever their destination: a rule that leads to
//! a table of its own, with one route.

use std::io;

use crate::netlink::Requests;

/// Priority of the rule, far before that of the main table.
const PRIORITY: u32 = 4_700;
/// Index of the loopback interface in each network namespace.
const LOOPBACK: u32 = 1;
// linux/fib_rules.h
const TO_TABLE: u8 = 1;
const RULE_PRIORITY: u16 = 6;
const RULE_MARK: u16 = 10;
const RULE_TABLE: u16 = 15;
const RULE_MASK: u16 = 16;
// linux/rtnetlink.h
const ROUTE_INTERFACE: u16 = 4;
const ROUTE_TABLE: u16 = 15;

/// Rules and routes of one mark, in the network namespace of the thread that installed them. Dropping this
/// removes them. Those that a killed process has left lead nowhere, because nothing gives packets their mark.
#[derive(Debug)]
pub(super) struct LocalRoute {
    requests: Requests,
    mark: u32,
}

impl LocalRoute {
    /// Installs rules and routes, also where some are left. `mark` is the number of the table too.
    pub(super) fn install(mark: u32) -> io::Result<Self> {
        let installed = Self { requests: Requests::open()?, mark };
        installed.add(libc::AF_INET)?;
        match installed.add(libc::AF_INET6) {
            // A kernel without IPv6 has no connections over it.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP)) => {}
            other => other?,
        }
        Ok(installed)
    }

    fn add(&self, family: libc::c_int) -> io::Result<()> {
        let Self { requests, mark } = self;
        let family = family as u8; // a small number
        let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        requests.command(libc::RTM_NEWROUTE, flags, &route_body(family, *mark))?;
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        match requests.command(libc::RTM_NEWRULE, flags, &rule_body(family, *mark)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }
}

impl Drop for LocalRoute {
    fn drop(&mut self) {
        for family in [libc::AF_INET, libc::AF_INET6] {
            let family = family as u8; // a small number
            // Somebody may have removed them already.
            let _ = self.requests.command(libc::RTM_DELRULE, 0, &rule_body(family, self.mark));
            let _ = self.requests.command(libc::RTM_DELROUTE, 0, &route_body(family, self.mark));
        }
    }
}

/// `fib_rule_hdr` and attributes.
fn rule_body(family: u8, mark: u32) -> Vec<u8> {
    let mut body = vec![family, 0, 0, 0, 0, 0, 0, TO_TABLE, 0, 0, 0, 0];
    for (kind, value) in
        [(RULE_PRIORITY, PRIORITY), (RULE_MARK, mark), (RULE_MASK, u32::MAX), (RULE_TABLE, mark)]
    {
        put(&mut body, kind, value);
    }
    body
}

/// `rtmsg` and attributes of a route to everywhere.
fn route_body(family: u8, table: u32) -> Vec<u8> {
    let (protocol, scope, kind) = (libc::RTPROT_STATIC, libc::RT_SCOPE_HOST, libc::RTN_LOCAL);
    let mut body = vec![family, 0, 0, 0, 0, protocol, scope, kind, 0, 0, 0, 0];
    put(&mut body, ROUTE_TABLE, table);
    put(&mut body, ROUTE_INTERFACE, LOOPBACK);
    body
}

fn put(body: &mut Vec<u8>, kind: u16, value: u32) {
    body.extend(8_u16.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value.to_ne_bytes());
}
