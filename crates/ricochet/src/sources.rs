//! Where a node learns of the others: opens the provider of membership that the settings name.

use std::fmt::Display;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;

use membership::{Gossip, GossipConfig, Me, Membership, Proving, Static, StaticConfig, View};

use crate::config::{Config, MembershipSection};
use crate::error::StartError;
use crate::member_file::{self, MemberFileWatch};
use crate::registry::{EtcdView, KubernetesView, Link};
use crate::view::MakeView;
use crate::wake::Waker;

/// The provider, and what watches over it.
pub(crate) struct Source {
    pub(crate) provider: Membership,
    pub(crate) file: MemberFileWatch,
    /// State of etcd or Kubernetes, if the members come from there.
    pub(crate) registry: Option<Arc<Link>>,
}

impl Source {
    /// Opens the provider. Threads of the provider wake the node with `waker`.
    pub(crate) fn open(
        config: &Config,
        me: Me,
        view: Option<MakeView>,
        waker: &Waker,
        random_seed: u64,
    ) -> Result<Self, StartError> {
        let membership = &config.membership;
        if let Some(make) = view {
            if let Some(key) = membership.source() {
                return Err(wrong(format!(
                    "expected one source of members, saw a view of the program and `membership.{key}`; leave one \
                     of them out"
                )));
            }
            return Self::of_view(me, make(me).map_err(wrong)?, None, random_seed);
        }
        if let Some(path) = &membership.file {
            // Noted before the file is read, so that no change is overlooked.
            let watch = MemberFileWatch::new(Some(path));
            let file = member_file::read(path, me.address).map_err(StartError::Membership)?;
            let provider = Static::new(StaticConfig::default(), me, &file, random_seed).map_err(wrong)?;
            return Ok(Self { provider: Membership::Static(provider), file: watch, registry: None });
        }
        if let Some((view, link)) = open_registry(membership, me, Some(waker), random_seed)? {
            return Self::of_view(me, view, Some(link), random_seed);
        }
        let seeds = resolve(&membership.seeds, me.address)?;
        let provider = Gossip::new(GossipConfig::lan(), me, &seeds, random_seed).map_err(wrong)?;
        Ok(Self { provider: Membership::Gossip(provider), file: MemberFileWatch::default(), registry: None })
    }

    fn of_view(
        me: Me,
        view: Box<dyn View + Send>,
        registry: Option<Arc<Link>>,
        random_seed: u64,
    ) -> Result<Self, StartError> {
        let provider = Proving::new(me, view, random_seed).map_err(wrong)?;
        Ok(Self { provider: Membership::Other(provider), file: MemberFileWatch::default(), registry })
    }
}

/// A provider, and the state of its registry.
pub(crate) type OfRegistry = (Box<dyn View + Send>, Arc<Link>);

/// Opens the provider of etcd or Kubernetes, if the members come from there.
pub(crate) fn open_registry(
    membership: &MembershipSection,
    me: Me,
    waker: Option<&Waker>,
    random_seed: u64,
) -> Result<Option<OfRegistry>, StartError> {
    let threads = StartError::system("start a thread of the registry");
    if let Some(settings) = membership.etcd().map_err(wrong)? {
        let (view, link) = EtcdView::start(&settings, me, waker.cloned(), random_seed).map_err(threads)?;
        return Ok(Some((Box::new(view), link)));
    }
    if let Some(settings) = membership.kubernetes().map_err(wrong)? {
        let (view, link) =
            KubernetesView::start(&settings, me, waker.cloned(), random_seed).map_err(threads)?;
        return Ok(Some((Box::new(view), link)));
    }
    Ok(None)
}

fn wrong(error: impl Display) -> StartError {
    StartError::Membership(error.to_string())
}

/// Returns the addresses of the seeds that have the IP version of this node.
fn resolve(seeds: &[String], own: SocketAddr) -> Result<Vec<SocketAddr>, StartError> {
    let mut all = Vec::new();
    for seed in seeds {
        let resolved =
            seed.to_socket_addrs().map_err(|error| StartError::Seed { seed: seed.clone(), error })?;
        // A name may have addresses of both versions; the socket has one.
        let before = all.len();
        all.extend(resolved.filter(|address| address.is_ipv4() == own.is_ipv4()));
        if all.len() == before {
            let version = if own.is_ipv4() { 4 } else { 6 };
            return Err(StartError::SeedVersion { seed: seed.clone(), version });
        }
    }
    Ok(all)
}
