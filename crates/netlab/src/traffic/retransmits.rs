//! The kernel's counter of TCP retransmissions.

use std::io;

use crate::error::LabError;
use crate::namespace::Namespace;

/// Returns the segments retransmitted by all TCP connections of a namespace since its creation (`RetransSegs`
/// of RFC 2012).
///
/// # Errors
/// If the kernel does not show its counters.
pub fn tcp_retransmits(namespace: &Namespace) -> Result<u64, LabError> {
    // The kernel resolves /proc/net by the namespace of the process' first thread; this path is the calling
    // thread's.
    const FILE: &str = "/proc/thread-self/net/snmp";
    let what = || format!("cannot read {FILE} in {:?}", namespace.label());
    let text = namespace.run(|| std::fs::read_to_string(FILE)).map_err(|e| LabError::system(what(), e))?;
    column_of_snmp(&text, "RetransSegs")
        .ok_or_else(|| LabError::system(what(), io::Error::other("no Tcp RetransSegs in it")))
}

/// Returns a value from the `Tcp:` pair of lines: names in the first, values in the second.
fn column_of_snmp(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let column = names.split_whitespace().position(|word| word == name)?;
    values.split_whitespace().nth(column)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_found_by_its_name() {
        let text =
            "Ip: Forwarding\nIp: 1\nTcp: RtoMin OutSegs RetransSegs InErrs\nTcp: -1 9 42 0\nUdp: A\nUdp: 7\n";
        assert_eq!(column_of_snmp(text, "RetransSegs"), Some(42));
        assert_eq!(column_of_snmp(text, "RtoMin"), None);
        assert_eq!(column_of_snmp(text, "A"), None);
        assert_eq!(column_of_snmp("Tcp: RetransSegs\n", "RetransSegs"), None);
    }
}
