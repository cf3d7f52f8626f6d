//! The counters of split mode, and its state for operators.

use std::collections::BTreeMap;

use maelstrom_core::split::Role;

use super::driver::{Driver, is_sound};
use super::flow::Moved;
use super::spool::Spool;
use crate::passive::clock_us;
use crate::status::{FarSiteStatus, SplitStatus};

/// Connections and carriers so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Connections of hosts of this site that were taken.
    pub(super) taken: u64,
    /// Connections to hosts of this site that were opened for far gateways.
    pub(super) opened: u64,
    /// Connections that have ended in both directions.
    pub(super) finished: u64,
    /// Connections that the far gateway could not open.
    pub(super) refused: u64,
    /// Connections that this gateway could not open.
    pub(super) refused_here: u64,
    /// Connections that hosts of this site have reset.
    pub(super) reset_here: u64,
    /// Connections that hosts of the far site have reset.
    pub(super) reset_there: u64,
    /// Connections that were reset because their carrier ended.
    pub(super) reset_with_carrier: u64,
    /// Connections that were accepted and could not be carried.
    pub(super) failed: u64,
    /// Floods of first packets, because of which connections went unsplit for some seconds.
    pub(super) floods: u64,
    /// Carriers that have ended.
    pub(super) carriers_ended: u64,
    /// Sockets at the port of carriers that were closed at once.
    pub(super) strangers: u64,
}

impl Counts {
    pub(super) fn by_name(self) -> BTreeMap<String, u64> {
        let Self { taken, opened, finished, refused, refused_here, .. } = self;
        let Self {
            reset_here,
            reset_there,
            reset_with_carrier,
            failed,
            floods,
            carriers_ended,
            strangers,
            ..
        } = self;
        let all = [
            ("taken", taken),
            ("opened", opened),
            ("finished", finished),
            ("refused", refused),
            ("refused_here", refused_here),
            ("reset_here", reset_here),
            ("reset_there", reset_there),
            ("reset_with_carrier", reset_with_carrier),
            ("failed", failed),
            ("floods", floods),
            ("carriers_ended", carriers_ended),
            ("strangers", strangers),
        ];
        all.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
    }
}

impl Driver {
    fn counters(&self) -> BTreeMap<String, u64> {
        let mut counters = self.counts.by_name();
        let of_spool = |count: fn(&Spool) -> u64| self.spool.as_ref().map_or(0, count);
        counters.insert("bytes_spooled".to_owned(), of_spool(|spool| spool.written));
        counters.insert("spool_failures".to_owned(), of_spool(|spool| spool.failures));
        counters
    }

    /// The state for operators.
    pub(super) fn status(&self) -> SplitStatus {
        let now_us = clock_us();
        let sites = self.plan.sites.iter().enumerate().map(|(site, far)| {
            let muxes = self.carriers.iter().filter(|(_, carrier)| carrier.site == site);
            let muxes: Vec<_> =
                muxes.filter_map(|(_, carrier)| Some((carrier.role, carrier.mux()?))).collect();
            let up =
                |role| muxes.iter().filter(|(of, mux)| *of == role && is_sound(mux, now_us)).count() as u64;
            let state = &self.sites[site];
            FarSiteStatus {
                peer: far.label.clone(),
                carrier: far.carrier,
                is_splitting: state.is_listening(),
                reason: state.unsplit.map(|reason| reason.to_string()),
                carriers_out: up(Role::Dialer),
                carriers_in: up(Role::Acceptor),
                connections: muxes.iter().map(|(_, mux)| mux.streams() as u64).sum(),
                bytes_from_hosts: state.moved.from_hosts,
                bytes_to_hosts: state.moved.to_hosts,
                rtt_us: muxes.iter().filter_map(|(_, mux)| mux.rtt_us()).min(),
                rtt_min_us: state.rtt_min_us,
                retransmits_wan: state.retransmits_wan,
                retransmits_lan: state.retransmits_lan,
            }
        });
        let waiting = self.carriers.iter().filter_map(|(_, carrier)| Some(carrier.mux()?.waiting())).sum();
        let sum = |bytes: fn(&Moved) -> u64| self.sites.iter().map(|site| bytes(&site.moved)).sum();
        SplitStatus {
            verdict: String::new(),
            fault: None,
            drain_ms: self.drained_by_us.map(|by_us| by_us.saturating_sub(now_us) / 1_000),
            congestion: self.options.congestion.clone(),
            connections: self.by_stream.len() as u64,
            connections_max: self.pool.streams_max(),
            buffer_bytes: self.plan.buffer,
            promised_bytes: self.pool.promised(),
            advanced_bytes: self.pool.advanced(),
            waiting_bytes: waiting,
            spool_bytes: self.spool.as_ref().map(Spool::bytes_max),
            spooled_bytes: self.spool.as_ref().map_or(0, Spool::used),
            bytes_from_hosts: sum(|moved| moved.from_hosts),
            bytes_to_hosts: sum(|moved| moved.to_hosts),
            counters: self.counters(),
            sites: sites.collect(),
        }
    }
}
