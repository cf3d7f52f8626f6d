//! Nodes whose members come from etcd and from Kubernetes.

mod etcd;
mod kubernetes;
mod proxy;
mod server;

use std::net::SocketAddr;

use ricochet::{Event, JoinOptions, MemberChange, Node, Subscription};

/// Options of a subscription that is told about members.
fn with_members() -> JoinOptions {
    JoinOptions { members: true, ..JoinOptions::default() }
}

/// The news of a subscription, without its messages.
#[derive(Debug, Default)]
struct News {
    /// Members that have gone.
    gone: Vec<SocketAddr>,
    /// Whether the registry was away, each time that this has changed.
    away: Vec<bool>,
}

/// Adds the news that have come since the last call.
fn gather(subscription: &Subscription, news: &mut News) {
    while let Ok(event) = subscription.try_recv_event() {
        match event {
            Event::Member(member) if member.change() != MemberChange::Joined => {
                news.gone.push(member.member().address);
            }
            Event::Registry(registry) => news.away.push(registry.error().is_some()),
            _ => {}
        }
    }
}

/// Returns the members that have gone since the last call.
fn gone(subscription: &Subscription) -> Vec<SocketAddr> {
    let mut news = News::default();
    gather(subscription, &mut news);
    news.gone
}

/// Returns whether the registry of a node is reached.
fn is_reached(node: &Node) -> bool {
    node.status().registry.is_some_and(|registry| registry.reached)
}
