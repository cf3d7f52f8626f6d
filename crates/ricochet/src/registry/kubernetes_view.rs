//! The provider of membership that has the addresses from Kubernetes. The nodes there tell each other that
//! they live, and in which groups they are, as with a file of members.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use membership::{Counts, Me, Member, MemberFile, Output, Static, StaticConfig, View};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use ricochet_core::GroupId;

use super::backoff::Backoff;
use super::http::Endpoint;
use super::kubernetes::{Kubernetes, SliceNews};
use super::link::Link;
use super::spawn;
use super::watcher::{self, Inbox, Service as _};
use crate::wake::Waker;

/// Settings of the provider.
#[derive(Clone, Debug)]
pub(crate) struct KubernetesSettings {
    /// Address of the API.
    pub(crate) endpoint: Endpoint,
    pub(crate) namespace: String,
    pub(crate) service: String,
}

/// A node whose peers are the pods of a service.
#[derive(Debug)]
pub(crate) struct KubernetesView {
    view: Static,
    inbox: Inbox<SliceNews>,
    link: Arc<Link>,
    is_ipv4: bool,
    slices: BTreeMap<String, Vec<SocketAddr>>,
    /// The addresses in all slices.
    addresses: BTreeSet<SocketAddr>,
}

impl KubernetesView {
    /// Starts the thread. It wakes the node with `waker`.
    pub(crate) fn start(
        settings: &KubernetesSettings,
        me: Me,
        waker: Option<Waker>,
        random_seed: u64,
    ) -> io::Result<(Self, Arc<Link>)> {
        let mut rng = ChaCha8Rng::seed_from_u64(random_seed);
        let view = Static::new(StaticConfig::default(), me, &MemberFile::default(), rng.next_u64())
            .map_err(io::Error::other)?;
        let link = Arc::new(Link::new(Kubernetes::NAME));
        let (sender, inbox) = watcher::way(waker);
        let backoff = Backoff::new(rng.next_u64());
        let watched = (settings.clone(), Arc::clone(&link));
        spawn("kubernetes-watch", move || {
            let (KubernetesSettings { endpoint, namespace, service }, link) = watched;
            let kubernetes = Kubernetes::new(&namespace, &service);
            watcher::run(kubernetes, &[endpoint], &link, &sender, backoff);
        })?;
        let is_ipv4 = me.address.is_ipv4();
        let (slices, addresses) = (BTreeMap::new(), BTreeSet::new());
        Ok((Self { view, inbox, link: Arc::clone(&link), is_ipv4, slices, addresses }, link))
    }

    fn handle_news(&mut self, now_us: u64) {
        for news in self.inbox.take(now_us) {
            match news {
                SliceNews::All(all) => self.slices = all.into_iter().collect(),
                SliceNews::Set(name, addresses) => drop(self.slices.insert(name, addresses)),
                SliceNews::Gone(name) => drop(self.slices.remove(&name)),
            }
        }
        let addresses = self.slices.values().flatten().copied();
        let addresses: BTreeSet<_> =
            addresses.filter(|address| address.is_ipv4() == self.is_ipv4 && address.port() != 0).collect();
        // A list without pods changes nothing, as a file without members: the nodes that are known tell
        // for themselves that they live.
        if addresses == self.addresses || addresses.is_empty() {
            return;
        }
        match MemberFile::of(addresses.iter().copied()) {
            Ok(file) => {
                tracing::info!(count = addresses.len(), "the endpoints of the service have changed");
                self.view.change_file(now_us, &file);
                self.addresses = addresses;
            }
            Err(error) => self.link.on_unreadable("endpoints", &error.to_string()),
        }
    }
}

impl View for KubernetesView {
    fn handle_datagram(&mut self, now_us: u64, from: SocketAddr, datagram: &[u8], out: &mut dyn Output) {
        View::handle_datagram(&mut self.view, now_us, from, datagram, out);
    }

    fn handle_timeout(&mut self, now_us: u64, out: &mut dyn Output) {
        self.handle_news(now_us);
        View::handle_timeout(&mut self.view, now_us, out);
    }

    fn poll_timeout(&self) -> Option<u64> {
        let look = self.inbox.due_us().filter(|_| !self.link.is_closing());
        [look, View::poll_timeout(&self.view)].into_iter().flatten().min()
    }

    fn set_groups(&mut self, now_us: u64, groups: &[GroupId], out: &mut dyn Output) {
        View::set_groups(&mut self.view, now_us, groups, out);
    }

    fn leave(&mut self, now_us: u64, out: &mut dyn Output) {
        self.link.close();
        View::leave(&mut self.view, now_us, out);
    }

    fn version(&self) -> u64 {
        View::version(&self.view)
    }

    fn members(&self) -> Box<dyn Iterator<Item = &Member> + '_> {
        View::members(&self.view)
    }

    fn ask(&mut self, now_us: u64, address: SocketAddr) {
        View::ask(&mut self.view, now_us, address);
    }

    fn take_proven(&mut self) -> Option<SocketAddr> {
        View::take_proven(&mut self.view)
    }

    fn proves_lives(&self) -> bool {
        true
    }

    fn counts(&self) -> Counts {
        View::counts(&self.view)
    }

    fn memory_bytes(&self) -> usize {
        View::memory_bytes(&self.view)
    }
}

impl Drop for KubernetesView {
    fn drop(&mut self) {
        self.link.close();
    }
}
