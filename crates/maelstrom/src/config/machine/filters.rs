//! The tc filters of an interface, and where packets meet them.

use std::io;

use netlink_sys::protocols::NETLINK_ROUTE;

use super::bypass::{DUMP, find, query, text};

// linux/rtnetlink.h, linux/pkt_sched.h
const RTM_GETQDISC: u16 = 38;
const RTM_GETTFILTER: u16 = 46;
const INGRESS: u32 = 0xffff_fff2;
const EGRESS: u32 = 0xffff_fff3;
const TCA_KIND: u16 = 1;
/// Length of the header that queueing discipline and filter share (`tcmsg`), in bytes.
const HEADER: usize = 20;

/// Where packets meet a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    Ingress,
    /// Before a packet that leaves is queued.
    Egress,
    /// In a queueing discipline.
    Queue,
}

/// Passes hook, priority and attributes of each filter of an interface to `take`.
pub(super) fn each_filter(interface: &str, mut take: impl FnMut(Hook, u32, &[u8])) -> io::Result<()> {
    let index = nix::net::if_::if_nametoindex(interface)?;
    let mut lists = Vec::new();
    query(NETLINK_ROUTE, RTM_GETQDISC, DUMP, &header(index, 0), |answer| {
        lists.extend(lists_of(index, answer));
    })?;
    for (hook, parent) in lists {
        query(NETLINK_ROUTE, RTM_GETTFILTER, DUMP, &header(index, parent), |answer| {
            if let Some((head, attributes)) = answer.split_first_chunk::<HEADER>() {
                take(hook, word(head, 16) >> 16, attributes);
            }
        })?;
    }
    Ok(())
}

fn header(index: u32, parent: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[12..16].copy_from_slice(&parent.to_ne_bytes());
    header
}

fn word(header: &[u8; HEADER], at: usize) -> u32 {
    u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

/// Returns the lists of filters of a queueing discipline, if it is one of this interface.
fn lists_of(index: u32, answer: &[u8]) -> Vec<(Hook, u32)> {
    let Some((head, attributes)) = answer.split_first_chunk::<HEADER>() else { return Vec::new() };
    if word(head, 4) != index {
        return Vec::new();
    }
    match find(attributes, TCA_KIND).map(text).as_deref() {
        // The kernel answers with the filters of packets that arrive if it is asked for those of packets that
        // leave.
        Some("ingress") => vec![(Hook::Ingress, INGRESS)],
        Some("clsact") => vec![(Hook::Ingress, INGRESS), (Hook::Egress, EGRESS)],
        // A default one without a number has no filters.
        _ => Some(word(head, 8))
            .filter(|&handle| handle != 0)
            .map(|own| (Hook::Queue, own))
            .into_iter()
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::bypass::tests::attributes;
    use super::*;

    #[test]
    fn each_discipline_has_its_own_lists_of_filters() {
        let lists = |kind: &[u8], handle: u32| {
            let mut answer = header(7, 0).to_vec();
            answer[8..12].copy_from_slice(&handle.to_ne_bytes());
            answer.extend(attributes(&[(TCA_KIND, kind)]));
            assert_eq!(lists_of(8, &answer), [], "it belongs to another interface");
            lists_of(7, &answer)
        };
        assert_eq!(lists(b"clsact\0", 0xffff_0000), [(Hook::Ingress, INGRESS), (Hook::Egress, EGRESS)]);
        assert_eq!(lists(b"ingress\0", 0xffff_0000), [(Hook::Ingress, INGRESS)]);
        assert_eq!(lists(b"htb\0", 0x10_0000), [(Hook::Queue, 0x10_0000)]);
        assert_eq!(lists(b"fq_codel\0", 0), []);
        assert_eq!(lists_of(7, &[7; 9]), []);
    }

    #[test]
    fn the_loopback_interface_has_no_filters() {
        each_filter("lo", |hook, _, _| panic!("a filter at {hook:?}")).unwrap();
        assert!(each_filter("undrop-none", |_, _, _| {}).is_err());
    }
}
