//! Keeps this node's entry in etcd, on a thread of its own. The lease is the failure detector: a node that
//! does not prolong it is removed.

use std::net::SocketAddr;
use std::time::Duration;

use super::backoff::Backoff;
use super::etcd::{Etcd, Lease};
use super::failure::Failure;
use super::http::Endpoint;
use super::link::{Link, Task};
use super::watcher::Service as _;
use crate::clock;

/// Shortest time between two changes of the entry. Changes in between are stored together.
const GATHER: Duration = Duration::from_millis(50);

/// Returns the interval at which a lease is prolonged.
fn keep_alive_period_us(ttl_s: u64) -> u64 {
    ttl_s * 1_000_000 / 3
}

/// Returns the longest interval between two answers of an etcd that works.
pub(super) fn answer_period_us(ttl_s: u64) -> u64 {
    keep_alive_period_us(ttl_s) + 1_000_000
}

/// The thread's state.
pub(super) struct Registrar<'a> {
    etcd: Etcd,
    endpoints: &'a [Endpoint],
    /// Number of the endpoint in use.
    at: usize,
    address: SocketAddr,
    ttl_s: u64,
    lease: Option<Lease>,
    /// Number of the entry that is stored.
    stored: Option<u64>,
    keep_alive_us: u64,
}

impl<'a> Registrar<'a> {
    pub(super) fn new(etcd: Etcd, endpoints: &'a [Endpoint], address: SocketAddr, ttl_s: u64) -> Self {
        Self { etcd, endpoints, at: 0, address, ttl_s, lease: None, stored: None, keep_alive_us: 0 }
    }

    /// Registers the node until it is closed.
    pub(super) fn run(mut self, link: &Link, mut backoff: Backoff) {
        loop {
            let worked = match link.next_task(self.stored, self.keep_alive_us) {
                Task::End => return,
                Task::Remove => {
                    self.remove();
                    return link.on_removed();
                }
                Task::Put(number, entry) => self.put(number, &entry),
                Task::KeepAlive => self.keep_alive(),
            };
            match worked {
                Ok(()) => {
                    backoff.reset();
                    link.on_answer(clock::now_us(), answer_period_us(self.ttl_s));
                    link.on_registered(Etcd::NAME);
                    link.pause(GATHER);
                }
                Err(failure) => {
                    link.on_unregistered(Etcd::NAME, &failure);
                    match failure {
                        Failure::NoLease => (self.lease, self.stored) = (None, None),
                        _ => self.at += 1,
                    }
                    link.pause(backoff.next());
                }
            }
        }
    }

    fn endpoint(&self) -> &'a Endpoint {
        &self.endpoints[self.at % self.endpoints.len()]
    }

    fn put(&mut self, number: u64, entry: &str) -> Result<(), Failure> {
        let endpoint = self.endpoint();
        // If etcd lacks the entry and this attempt fails, the next one stores it.
        self.stored = None;
        let lease = match self.lease.take() {
            Some(lease) => lease,
            None => {
                let lease = self.etcd.grant(endpoint, self.ttl_s)?;
                self.on_prolonged();
                lease
            }
        };
        // Kept also if the entry is not stored, so that the next attempt needs no further lease.
        let lease = self.lease.insert(lease);
        self.etcd.put(endpoint, lease, self.address, entry)?;
        self.stored = Some(number);
        Ok(())
    }

    fn keep_alive(&mut self) -> Result<(), Failure> {
        let lease = self.lease.as_ref().ok_or(Failure::NoLease)?;
        self.etcd.keep_alive(self.endpoint(), lease)?;
        self.on_prolonged();
        Ok(())
    }

    /// Sets the time to prolong the lease, which may fail for twice as long.
    fn on_prolonged(&mut self) {
        self.keep_alive_us = clock::now_us() + keep_alive_period_us(self.ttl_s);
    }

    /// Ends the lease. If etcd is not there, the lease expires.
    fn remove(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        if let Err(failure) = self.etcd.revoke(self.endpoint(), &lease) {
            tracing::warn!(error = %failure, "this node could not be removed from etcd; its lease expires");
        }
    }
}
