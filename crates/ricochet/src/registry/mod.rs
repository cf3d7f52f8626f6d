//! Membership from a service that the cluster runs anyway: etcd, or Kubernetes.
//!
//! Threads talk with the service, so that the node's thread never waits for it. `watcher.rs` follows the
//! entries of any [`Service`](watcher::Service) and passes the news on to the node; `etcd.rs` and
//! `kubernetes.rs` are the two services. `registrar.rs` keeps this node's entry in etcd. On the node's
//! thread, `EtcdView` and `KubernetesView` are the providers of membership.

mod backoff;
mod body;
mod entry;
mod etcd;
mod etcd_view;
mod failure;
pub(crate) mod http;
mod kubernetes;
mod kubernetes_view;
mod link;
mod registrar;
mod watcher;

#[cfg(test)]
mod tests;

use std::io;
use std::thread;
use std::time::Duration;

pub(crate) use etcd_view::{EtcdSettings, EtcdView};
pub(crate) use kubernetes_view::{KubernetesSettings, KubernetesView};
pub(crate) use link::Link;

/// Longest time for which a node that leaves waits until its entry is removed.
const LEAVE_PATIENCE: Duration = Duration::from_secs(1);

/// Starts a thread that ends by itself when the node is closed.
fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}
