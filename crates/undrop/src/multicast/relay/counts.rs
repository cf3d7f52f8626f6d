//! Counters of a relay and the sources of datagrams, as text and as JSON.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use ricochet::Node;
use serde::Serialize;

/// Maximum number of sources that are listed of one group.
const SOURCES_MAX: usize = 64;

/// Counters of one group. Several threads add to them.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) heard: AtomicU64,
    pub(super) carried: AtomicU64,
    pub(super) handed_out: AtomicU64,
    pub(super) duplicates: AtomicU64,
    pub(super) from_relays: AtomicU64,
    pub(super) from_other_hosts: AtomicU64,
    pub(super) over_rate: AtomicU64,
    pub(super) too_long: AtomicU64,
    pub(super) overflowed: AtomicU64,
    pub(super) not_handed_out: AtomicU64,
    pub(super) malformed: AtomicU64,
    sources: Mutex<BTreeMap<SocketAddr, Source>>,
    unlisted: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct Source {
    ttl: u8,
    datagrams: u64,
    is_here: bool,
}

impl Counts {
    /// Notes a datagram of a program of this host, or of another.
    pub(super) fn note_source(&self, address: SocketAddr, ttl: u8, is_here: bool) {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        if sources.len() >= SOURCES_MAX && !sources.contains_key(&address) {
            drop(sources);
            add(&self.unlisted);
            return;
        }
        let source = sources.entry(address).or_insert(Source { ttl, datagrams: 0, is_here });
        source.ttl = ttl;
        source.datagrams += 1;
    }
}

/// Counts one datagram.
pub(super) fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Schema of the document.
const SCHEMA: &str = "undrop.multicast.relay/1";

/// State of a relay of plain UDP multicast. Counts begin at its start.
#[derive(Debug, Serialize)]
pub(super) struct RelayStatus {
    /// Name and version of this schema.
    schema: &'static str,
    /// Identifier of the node.
    node: String,
    /// Unicast address of the node.
    address: String,
    /// The groups, in the order of the command line.
    groups: Vec<GroupStatus>,
    /// Packets that never came from other relays.
    lost: u64,
    /// Messages dropped because this process read them too slowly.
    dropped: u64,
}

/// State of a group.
#[derive(Debug, Default, Serialize)]
struct GroupStatus {
    /// IP address and port of the group.
    group: String,
    /// Number of other relays.
    relays: usize,
    /// Datagrams of programs heard on this host.
    heard: u64,
    /// Those sent to the other relays.
    carried: u64,
    /// Datagrams of other relays handed out on this host.
    handed_out: u64,
    /// Further copies of a datagram, which were dropped.
    duplicates: u64,
    /// Datagrams heard that a relay handed out, and dropped.
    from_relays: u64,
    /// Datagrams heard from other hosts, and not carried.
    from_other_hosts: u64,
    /// Datagrams dropped because of `--rate`.
    over_rate: u64,
    /// Datagrams longer than a message.
    too_long: u64,
    /// Datagrams that the kernel dropped before the relay read them.
    overflowed: u64,
    /// Datagrams that the kernel did not take.
    not_handed_out: u64,
    /// Messages of the group that are not of a relay.
    malformed: u64,
    /// Programs that send to the group.
    sources: Vec<SourceStatus>,
    /// Datagrams of further sources.
    of_unlisted_sources: u64,
}

/// A program that sends to a group.
#[derive(Debug, Serialize)]
struct SourceStatus {
    /// Address and port from which it sends.
    address: String,
    /// Whether it is on this host.
    here: bool,
    /// Time to live of its last datagram.
    ttl: u8,
    /// Datagrams heard from it.
    datagrams: u64,
}

impl RelayStatus {
    pub(super) fn of<'a>(
        node: &Node,
        queue: ricochet::QueueCounts,
        groups: impl Iterator<Item = (&'a SocketAddr, &'a str, &'a Counts)>,
    ) -> Self {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let status = |(group, name, counts): (&SocketAddr, &str, &Counts)| {
            let sources = counts.sources.lock().unwrap_or_else(PoisonError::into_inner);
            let sources = sources.iter().map(|(address, source)| SourceStatus {
                address: address.to_string(),
                here: source.is_here,
                ttl: source.ttl,
                datagrams: source.datagrams,
            });
            GroupStatus {
                group: group.to_string(),
                relays: node.members(name),
                heard: read(&counts.heard),
                carried: read(&counts.carried),
                handed_out: read(&counts.handed_out),
                duplicates: read(&counts.duplicates),
                from_relays: read(&counts.from_relays),
                from_other_hosts: read(&counts.from_other_hosts),
                over_rate: read(&counts.over_rate),
                too_long: read(&counts.too_long),
                overflowed: read(&counts.overflowed),
                not_handed_out: read(&counts.not_handed_out),
                malformed: read(&counts.malformed),
                sources: sources.collect(),
                of_unlisted_sources: read(&counts.unlisted),
            }
        };
        Self {
            schema: SCHEMA,
            node: node.id().to_string(),
            address: node.address().to_string(),
            groups: groups.map(status).collect(),
            lost: queue.lost,
            dropped: queue.dropped,
        }
    }

    /// Returns whether datagrams of other relays were lost for good.
    pub(super) fn has_losses(&self) -> bool {
        self.lost + self.dropped > 0 || self.groups.iter().any(|group| group.not_handed_out > 0)
    }

    /// Returns the text for people.
    pub(super) fn text(&self) -> String {
        let mut lines = Vec::new();
        for group in &self.groups {
            lines.push(format!(
                "{}: {} other relays, {} heard, {} carried, {} handed out",
                group.group, group.relays, group.heard, group.carried, group.handed_out
            ));
            for (count, what) in [
                (group.duplicates, "further copies dropped"),
                (group.from_relays, "heard from relays and not carried"),
                (group.from_other_hosts, "heard from other hosts and not carried"),
                (group.over_rate, "dropped because of `--rate`"),
                (group.too_long, "too long for a message"),
                (group.overflowed, "dropped by the kernel before they were read"),
                (group.not_handed_out, "not taken by the kernel"),
                (group.malformed, "messages of something other than a relay"),
            ] {
                if count > 0 {
                    lines.push(format!("  {count} {what}"));
                }
            }
            for source in &group.sources {
                let place = if source.here { "here" } else { "another host" };
                lines.push(format!(
                    "  source {} ({place}): {} datagrams, time to live {}",
                    source.address, source.datagrams, source.ttl
                ));
            }
        }
        if self.lost + self.dropped > 0 {
            lines.push(format!("{} packets lost, {} messages dropped", self.lost, self.dropped));
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> RelayStatus {
        let (node, address) = (String::new(), String::new());
        let groups = vec![GroupStatus::default(), GroupStatus::default()];
        RelayStatus { schema: SCHEMA, node, address, groups, lost: 0, dropped: 0 }
    }

    #[test]
    fn datagrams_that_the_kernel_did_not_take_are_lost_too() {
        assert!(!status().has_losses());
        assert!(RelayStatus { lost: 1, ..status() }.has_losses());
        assert!(RelayStatus { dropped: 1, ..status() }.has_losses());
        let mut refused = status();
        refused.groups[1].not_handed_out = 1;
        assert!(refused.has_losses());
        assert!(refused.text().contains("1 not taken by the kernel"), "{}", refused.text());
    }
}
