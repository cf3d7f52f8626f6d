//! Split mode in the status.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::Counts;

/// Split mode: TCP connections that end at this gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SplitStatus {
    /// State of split mode as a sentence.
    #[serde(default)]
    pub verdict: String,
    /// Reason why split mode does not work; null if it does.
    pub fault: Option<String>,
    /// Milliseconds that connections still have to end; null unless the gateway stops.
    #[serde(default)]
    pub drain_ms: Option<u64>,
    /// Congestion control of the carriers.
    pub congestion: String,
    /// Connections with hosts of this site at present.
    pub connections: u64,
    /// Connections for which the buffer has room; new ones go unsplit when fewer than 33 places are left.
    pub connections_max: u64,
    /// The buffer for all connections.
    pub buffer_bytes: u64,
    /// Bytes of the buffer that far gateways may fill for these connections at present.
    pub promised_bytes: u64,
    /// Bytes of the buffer that are kept for the first bytes of connections that far gateways open.
    #[serde(default)]
    pub advanced_bytes: u64,
    /// Bytes that wait for hosts of this site.
    pub waiting_bytes: u64,
    /// Bytes of hosts of this site that may wait on disk; null if none may.
    #[serde(default)]
    pub spool_bytes: Option<u64>,
    /// Bytes of hosts of this site on disk, where they wait for the link.
    #[serde(default)]
    pub spooled_bytes: u64,
    /// Bytes that came from hosts of this site.
    pub bytes_from_hosts: u64,
    /// Bytes that hosts of this site took.
    pub bytes_to_hosts: u64,
    /// Connections and carriers so far, by what became of them.
    pub counters: Counts,
    /// The far sites.
    pub sites: Vec<FarSiteStatus>,
}

/// Split connections with one far site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FarSiteStatus {
    /// The peer, as in the log.
    pub peer: String,
    /// Where it takes carriers.
    pub carrier: SocketAddr,
    /// Whether new connections to the site are split.
    pub is_splitting: bool,
    /// Why they are not; null if they are.
    #[serde(default)]
    pub reason: Option<String>,
    /// Working carriers that this gateway dialed.
    pub carriers_out: u64,
    /// Working carriers that the far gateway dialed.
    pub carriers_in: u64,
    /// Connections at present.
    pub connections: u64,
    /// Bytes for the site that came from hosts of this one.
    #[serde(default)]
    pub bytes_from_hosts: u64,
    /// Bytes from the site that hosts of this one took.
    #[serde(default)]
    pub bytes_to_hosts: u64,
    /// Shortest of the carriers' latest round-trip times in microseconds, queues included.
    pub rtt_us: Option<u64>,
    /// Shortest round-trip time of the carriers of late in microseconds, as their TCP has measured it.
    #[serde(default)]
    pub rtt_min_us: Option<u64>,
    /// Segments that this gateway has sent again on carriers.
    #[serde(default)]
    pub retransmits_wan: u64,
    /// Segments of split connections that this gateway has sent again to hosts of this site.
    #[serde(default)]
    pub retransmits_lan: u64,
}

impl SplitStatus {
    /// Adds the verdict.
    pub(crate) fn judged(mut self) -> Self {
        self.verdict = self.verdict();
        self
    }

    fn verdict(&self) -> String {
        if let Some(fault) = &self.fault {
            return format!("new connections go unsplit, because split mode does not work: {fault}");
        }
        if let Some(ms) = self.drain_ms {
            let count = self.connections;
            return format!("the gateway stops: {count} connections have {:.1} s to end", ms as f64 / 1e3);
        }
        let (split, unsplit): (Vec<_>, Vec<_>) = self.sites.iter().partition(|site| site.is_splitting);
        let names = |sites: &[&FarSiteStatus]| {
            sites.iter().map(|site| site.peer.as_str()).collect::<Vec<_>>().join(", ")
        };
        let mut parts = Vec::new();
        if !split.is_empty() {
            parts.push(format!("new connections to {} are split", names(&split)));
        }
        for site in unsplit {
            let reason = site.reason.as_deref().unwrap_or("split mode begins");
            parts.push(format!("those to {} go unsplit: {reason}", site.peer));
        }
        if parts.is_empty() { "split mode begins".to_owned() } else { parts.join("; ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(peer: &str, reason: Option<&str>) -> FarSiteStatus {
        FarSiteStatus {
            peer: peer.to_owned(),
            carrier: SocketAddr::from(([10, 81, 2, 1], 4_701)),
            is_splitting: reason.is_none(),
            reason: reason.map(str::to_owned),
            carriers_out: 0,
            carriers_in: 0,
            connections: 0,
            bytes_from_hosts: 0,
            bytes_to_hosts: 0,
            rtt_us: None,
            rtt_min_us: None,
            retransmits_wan: 0,
            retransmits_lan: 0,
        }
    }

    #[test]
    fn the_verdict_names_each_site_and_why_nothing_is_split() {
        let of = |status: SplitStatus| status.judged().verdict;
        let sites = vec![site("tokyo", None), site("osaka", None), site("kobe", Some("no carrier works"))];
        assert_eq!(
            of(SplitStatus { sites, ..SplitStatus::default() }),
            "new connections to tokyo, osaka are split; those to kobe go unsplit: no carrier works"
        );
        assert_eq!(of(SplitStatus::default()), "split mode begins");
        let fault = Some("no TPROXY".to_owned());
        assert!(of(SplitStatus { fault, ..SplitStatus::default() }).ends_with("does not work: no TPROXY"));
        let stops = SplitStatus { drain_ms: Some(3_210), connections: 7, ..SplitStatus::default() };
        assert_eq!(of(stops), "the gateway stops: 7 connections have 3.2 s to end");
    }
}
