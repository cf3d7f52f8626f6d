//! The traffic of a cell.

use std::thread;
use std::time::Duration;

use anyhow::ensure;
use netlab::topology::TwoSites;
use netlab::traffic::{
    Between, MessageStream, Pace, TcpReport, TcpTransfer, UdpReport, UdpStream, Watcher, message_stream,
    tcp_transfer, udp_stream, unwatched,
};
use serde::Deserialize;

use super::figure::{Figure, Figures};

/// Bytes of a packet around the payload of a UDP datagram over IPv4.
const HEADERS: f64 = 28.0;
/// Latency in microseconds up to which conversation works.
const IN_TIME_US: u64 = 150_000;

/// The traffic of a cell, from site A to site B.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Workload {
    /// Bulk TCP.
    Tcp {
        congestion: String,
        #[serde(default = "one")]
        flows: usize,
        /// Flows between other hosts, which no gateway protects.
        #[serde(default)]
        beside: usize,
    },
    /// UDP datagrams at a steady rate.
    Datagrams {
        /// Datagrams per second …
        per_second: Option<f64>,
        /// … or the share of the link that they take.
        link_share: Option<f64>,
        payload: usize,
    },
    /// Messages at a steady rate over one TCP connection.
    Messages { congestion: String, per_second: f64, bytes: usize },
}

fn one() -> usize {
    1
}

/// Observations of the hosts in a run.
pub(super) struct Seen {
    pub(super) figures: Figures,
    /// Sending times, in microseconds, of datagrams that never arrived; `None` if hosts cannot know.
    pub(super) missing_us: Option<Vec<u64>>,
    /// Number of datagrams sent.
    pub(super) sent: u64,
}

impl Workload {
    /// # Errors
    /// If a value is missing or out of range.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        match self {
            Self::Tcp { flows, beside, .. } => {
                ensure!((1..=64).contains(flows) && *beside <= 64, "expected 1 to 64 flows, saw {flows}");
            }
            Self::Datagrams { per_second, link_share, .. } => {
                let value = per_second.xor(*link_share).unwrap_or(0.0);
                ensure!(value > 0.0, "expected either `per_second` or `link_share`, above 0");
            }
            Self::Messages { per_second, .. } => ensure!(*per_second > 0.0, "expected messages per second"),
        }
        Ok(())
    }

    /// Returns whether the goodput is compared with that of the same flows on the link without loss.
    ///
    /// Beside bare flows the share is one of what they left there. They leave more where the link loses
    /// packets, so that protected flows may have more than 100 %.
    pub(super) fn has_share(&self) -> bool {
        matches!(self, Self::Tcp { .. })
    }

    /// Returns whether runs with this traffic can have a figure; `is_protected`: whether they have gateways.
    pub(super) fn can_have(&self, figure: Figure, is_protected: bool) -> bool {
        match figure {
            Figure::Goodput => !matches!(self, Self::Messages { .. }),
            Figure::Beside => self.beside() > 0,
            Figure::Share => self.has_share(),
            Figure::LatencyHalf
            | Figure::LatencyMost
            | Figure::Within150
            | Figure::Missing
            | Figure::Pace => !matches!(self, Self::Tcp { .. }),
            Figure::Overhead
            | Figure::OverheadLate
            | Figure::EgressCost
            | Figure::IngressCost
            | Figure::Cores => is_protected,
            Figure::Lost
            | Figure::StayedLost
            | Figure::Residual
            | Figure::ResidualBeyondQueue
            | Figure::QueueDrops
            | Figure::WorstPhase
            | Figure::React
            | Figure::Steal
            | Figure::Foreign
            | Figure::Stopped
            | Figure::Late => true,
        }
    }

    /// Returns the number of hosts in each site.
    pub(super) fn hosts(&self) -> u8 {
        if self.beside() > 0 { 2 } else { 1 }
    }

    /// Returns the number of flows that gateways must not protect.
    pub(super) fn beside(&self) -> usize {
        if let Self::Tcp { beside, .. } = self { *beside } else { 0 }
    }

    /// Sends the traffic for a time.
    ///
    /// # Errors
    /// If a connection breaks, or content arrives that was not sent.
    pub(super) fn carry(
        &self,
        sites: &TwoSites,
        rate_bps: Option<u64>,
        time: Duration,
        watch: Watcher<'_>,
    ) -> anyhow::Result<Seen> {
        let hosts = between(sites, 0);
        match self {
            Self::Tcp { congestion, flows, beside } => {
                let transfer = |flows| TcpTransfer {
                    congestion: Some(congestion.clone()),
                    duration: time,
                    flows,
                    ..TcpTransfer::default()
                };
                if *beside == 0 {
                    return seen_of_tcp(&tcp_transfer(hosts, &transfer(*flows), watch)?, None);
                }
                thread::scope(|scope| {
                    let others =
                        scope.spawn(|| tcp_transfer(between(sites, 1), &transfer(*beside), &mut unwatched));
                    let own = tcp_transfer(hosts, &transfer(*flows), watch);
                    let others = others.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                    seen_of_tcp(&own?, Some(&others?))
                })
            }
            Self::Datagrams { per_second, link_share, payload } => {
                let rate = rate_bps.unwrap_or(0) as f64;
                let of_link = link_share.map(|share| share * rate / ((*payload as f64 + HEADERS) * 8.0));
                let stream = UdpStream {
                    pace: Pace::Packets(per_second.or(of_link).unwrap_or(0.0)),
                    payload_bytes: *payload,
                    duration: time,
                    patience: Duration::from_secs(2),
                    ..UdpStream::default()
                };
                seen_of_udp(&udp_stream(hosts, &stream, watch)?, *payload)
            }
            Self::Messages { congestion, per_second, bytes } => {
                let stream = MessageStream {
                    congestion: Some(congestion.clone()),
                    rate_hz: *per_second,
                    message_bytes: *bytes,
                    duration: time,
                    ..MessageStream::default()
                };
                let report = message_stream(hosts, &stream, watch)?;
                let latencies: Vec<_> = report.messages.iter().map(|message| message.latency_us).collect();
                let mut figures = latencies_of(&latencies);
                let span_s = report.messages.last().map_or(0, |last| last.sent_us) as f64 / 1e6;
                figures.insert(Figure::Pace, report.messages.len() as f64 / span_s.max(1e-3));
                Ok(Seen { figures, missing_us: None, sent: report.messages.len() as u64 })
            }
        }
    }
}

fn between(sites: &TwoSites, host: usize) -> Between<'_> {
    Between { from: &sites.a.hosts[host], to: &sites.b.hosts[host], address: sites.b.host_v4(host) }
}

fn seen_of_tcp(own: &TcpReport, others: Option<&TcpReport>) -> anyhow::Result<Seen> {
    for report in [Some(own), others].into_iter().flatten() {
        ensure!(report.mismatch.is_none(), "TCP delivered a byte that was not sent at {:?}", report.mismatch);
    }
    let mut figures = Figures::from([(Figure::Goodput, own.forward.second_half_bps() / 1e6)]);
    if let Some(others) = others {
        figures.insert(Figure::Beside, others.forward.second_half_bps() / 1e6);
    }
    Ok(Seen { figures, missing_us: None, sent: 0 })
}

fn seen_of_udp(report: &UdpReport, payload: usize) -> anyhow::Result<Seen> {
    ensure!(report.altered == 0, "expected only packets that were sent, saw {} others", report.altered);
    let mut figures = latencies_of(&report.latencies_us);
    let sent = report.sent_us.len() as u64;
    let span_s = (report.sent_us.last().copied().unwrap_or(0) as f64 / 1e6).max(1e-3);
    let arrived = sent - report.missing() as u64;
    figures.insert(Figure::Goodput, arrived as f64 * payload as f64 * 8e-6 / span_s);
    figures.insert(Figure::Pace, sent as f64 / span_s);
    let missing = report.sent_us.iter().zip(&report.latencies_us).filter(|(_, latency)| latency.is_none());
    let missing_us: Vec<u64> = missing.map(|(&sent_us, _)| sent_us).collect();
    Ok(Seen { figures, missing_us: Some(missing_us), sent })
}

/// Returns the figures of latencies, where `None` stands for one that did not arrive: it is later than all
/// others.
fn latencies_of(latencies_us: &[Option<u64>]) -> Figures {
    let mut sorted: Vec<u64> = latencies_us.iter().map(|latency| latency.unwrap_or(u64::MAX)).collect();
    sorted.sort_unstable();
    let count = sorted.len().max(1) as f64;
    let quantile = |share: f64| {
        let rank = (sorted.len() as f64 * share).ceil() as usize;
        let us = sorted.get(rank.max(1) - 1).copied().unwrap_or(u64::MAX);
        if us == u64::MAX { f64::INFINITY } else { us as f64 / 1e3 }
    };
    let in_time = sorted.partition_point(|&latency| latency <= IN_TIME_US) as f64;
    let arrived = sorted.partition_point(|&latency| latency < u64::MAX) as f64;
    Figures::from([
        (Figure::LatencyHalf, quantile(0.5)),
        (Figure::LatencyMost, quantile(0.99)),
        (Figure::Within150, in_time * 100.0 / count),
        (Figure::Missing, (sorted.len() as f64 - arrived) * 100.0 / count),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_that_never_arrives_is_later_than_all_others() {
        let mut latencies = vec![Some(50_000); 97];
        latencies.extend([Some(150_001), None, None]);
        let figures = latencies_of(&latencies);
        assert_eq!(figures[&Figure::LatencyHalf], 50.0);
        assert_eq!(figures[&Figure::LatencyMost], f64::INFINITY);
        assert_eq!((figures[&Figure::Within150], figures[&Figure::Missing]), (97.0, 2.0));
        assert_eq!(latencies_of(&[])[&Figure::LatencyHalf], f64::INFINITY);
    }

    #[test]
    fn losses_of_datagrams_have_the_times_of_their_sending() {
        let report = UdpReport {
            sent_us: vec![0, 500_000, 1_000_000],
            latencies_us: vec![Some(50_000), None, Some(60_000)],
            arrived_us: vec![50_000, 1_060_000],
            ..UdpReport::default()
        };
        let seen = seen_of_udp(&report, 1_000).unwrap();
        assert_eq!((seen.missing_us, seen.sent), (Some(vec![500_000]), 3));
        assert!((seen.figures[&Figure::Goodput] - 0.016).abs() < 1e-9);
        assert!((seen.figures[&Figure::Pace] - 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_workload_has_the_figures_that_its_runs_count() {
        let tcp = |beside| Workload::Tcp { congestion: "cubic".to_owned(), flows: 2, beside };
        let voice = Workload::Datagrams { per_second: Some(50.0), link_share: None, payload: 200 };
        let messages = Workload::Messages { congestion: "cubic".to_owned(), per_second: 12.0, bytes: 1_024 };
        let of = |figure| [&tcp(0), &tcp(2), &voice, &messages].map(|one| one.can_have(figure, true));
        assert_eq!(of(Figure::Goodput), [true, true, true, false]);
        assert_eq!(of(Figure::Beside), [false, true, false, false]);
        assert_eq!(of(Figure::Share), [true, true, false, false]);
        assert_eq!(of(Figure::LatencyMost), [false, false, true, true]);
        assert!(!tcp(0).can_have(Figure::Overhead, false), "nothing adds bytes without gateways");
        // All that the hosts count is among them.
        let report = UdpReport { sent_us: vec![0], latencies_us: vec![None], ..UdpReport::default() };
        let seen = seen_of_udp(&report, 200).unwrap();
        assert!(seen.figures.keys().all(|figure| voice.can_have(*figure, false)));
        let seen = seen_of_tcp(&TcpReport::default(), Some(&TcpReport::default())).unwrap();
        assert!(seen.figures.keys().all(|figure| tcp(2).can_have(*figure, false)));
    }

    #[test]
    fn a_rate_of_datagrams_is_given_in_one_way() {
        let of =
            |per_second, link_share| Workload::Datagrams { per_second, link_share, payload: 100 }.check();
        assert!(of(Some(50.0), None).is_ok() && of(None, Some(0.9)).is_ok());
        assert!(of(None, None).is_err() && of(Some(1.0), Some(1.0)).is_err() && of(Some(0.0), None).is_err());
    }
}
