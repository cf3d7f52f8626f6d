//! The provider of membership whose registry is etcd.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use membership::{Counts, Me, Member, News, Output, OwnNews, Registered, View};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use ricochet_core::GroupId;

use super::backoff::Backoff;
use super::etcd::Etcd;
use super::http::Endpoint;
use super::link::Link;
use super::registrar::{Registrar, answer_period_us};
use super::watcher::{self, Inbox, Service as _};
use super::{LEAVE_PATIENCE, entry, spawn};
use crate::clock;
use crate::wake::Waker;

/// Settings of the provider.
#[derive(Clone, Debug)]
pub(crate) struct EtcdSettings {
    /// Addresses of the servers, at least one.
    pub(crate) endpoints: Vec<Endpoint>,
    /// Prefix of all keys of the cluster, without a slash at its end.
    pub(crate) prefix: String,
    /// Time in seconds after which a node that does not prolong its lease is removed.
    pub(crate) ttl_s: u64,
}

/// A node that is registered in etcd.
#[derive(Debug)]
pub(crate) struct EtcdView {
    view: Registered,
    inbox: Inbox<News>,
    link: Arc<Link>,
    ttl_s: u64,
    grace_us: u64,
}

impl EtcdView {
    /// Starts the threads. They wake the node with `waker`.
    pub(crate) fn start(
        settings: &EtcdSettings,
        me: Me,
        waker: Option<Waker>,
        random_seed: u64,
    ) -> io::Result<(Self, Arc<Link>)> {
        // A node registers again within a third of its lease, or after the longest pause.
        let (ttl_s, grace_us) = (settings.ttl_s, settings.ttl_s.max(5) * 1_000_000);
        let view = Registered::new(me, grace_us).map_err(io::Error::other)?;
        let link = Arc::new(Link::new(Etcd::NAME));
        link.set_entry(entry::write(&view.registration()));
        let (sender, inbox) = watcher::way(waker);
        let mut rng = ChaCha8Rng::seed_from_u64(random_seed);
        let (of_watcher, of_registrar) = (Backoff::new(rng.next_u64()), Backoff::new(rng.next_u64()));
        let etcd = Etcd::new(&settings.prefix);
        let watched = (etcd.clone(), settings.endpoints.clone(), Arc::clone(&link));
        spawn("etcd-watch", move || {
            let (etcd, endpoints, link) = watched;
            watcher::run(etcd, &endpoints, &link, &sender, of_watcher);
        })?;
        let registered = (settings.clone(), Arc::clone(&link));
        let address = view.registration().address;
        spawn("etcd-lease", move || {
            let (settings, link) = registered;
            Registrar::new(etcd, &settings.endpoints, address, settings.ttl_s).run(&link, of_registrar);
        })?;
        Ok((Self { view, inbox, link: Arc::clone(&link), ttl_s, grace_us }, link))
    }
}

impl View for EtcdView {
    fn handle_datagram(&mut self, now_us: u64, from: SocketAddr, datagram: &[u8], out: &mut dyn Output) {
        self.view.handle_datagram(now_us, from, datagram, out);
    }

    fn handle_timeout(&mut self, now_us: u64, out: &mut dyn Output) {
        let news = self.inbox.take(now_us);
        if !news.is_empty() {
            // An etcd that stood still removes the entries of nodes that it could not hear.
            if self.link.is_stalled(clock::now_us(), answer_period_us(self.ttl_s), self.grace_us) {
                self.view.on_stall(now_us);
            }
            self.view.handle_news(now_us, news);
            match self.view.take_own_news() {
                Some(OwnNews::Stored) => self.link.on_stored(),
                Some(OwnNews::Missing) => self.link.on_missing(),
                Some(OwnNews::Taken(by)) => self.link.on_taken(by),
                None => {}
            }
        }
        self.view.handle_timeout(now_us, out);
    }

    fn poll_timeout(&self) -> Option<u64> {
        let look = self.inbox.due_us().filter(|_| !self.link.is_closing());
        [look, self.view.poll_timeout()].into_iter().flatten().min()
    }

    fn set_groups(&mut self, now_us: u64, groups: &[GroupId], out: &mut dyn Output) {
        self.view.set_groups(now_us, groups, out);
        self.link.set_entry(entry::write(&self.view.registration()));
    }

    /// Removes the entry, for which it waits a second at most.
    fn leave(&mut self, now_us: u64, out: &mut dyn Output) {
        self.view.leave(now_us, out);
        if !self.link.leave(LEAVE_PATIENCE) {
            tracing::warn!("etcd has not confirmed that this node leaves; its lease expires");
        }
    }

    fn version(&self) -> u64 {
        self.view.version()
    }

    fn members(&self) -> Box<dyn Iterator<Item = &Member> + '_> {
        self.view.members()
    }

    fn counts(&self) -> Counts {
        self.view.counts()
    }

    fn memory_bytes(&self) -> usize {
        self.view.memory_bytes()
    }
}

impl Drop for EtcdView {
    /// Ends the threads as a crash would: the lease expires.
    fn drop(&mut self) {
        self.link.close();
    }
}
