//! Providers of membership that an application brings along ([`Builder::view`](crate::Builder::view)).

use std::error::Error;

pub use membership::{
    Counts, Me, Member, News, Output, OwnNews, Registered, Registration, View, conformance, wire,
};
pub use ricochet_core::{GroupId, NodeId};

use crate::config::MembershipSection;
use crate::error::StartError;

/// Makes the provider of a node from the node's identity.
pub(crate) type MakeView =
    Box<dyn FnOnce(Me) -> Result<Box<dyn View + Send>, Box<dyn Error + Send + Sync>> + Send>;

/// Returns the provider that a node with these settings has, for a program that adds something to it: that of
/// etcd or of Kubernetes. All random decisions follow from `random_seed`. The provider has threads, which end
/// when it is dropped.
///
/// ```no_run
/// use ricochet::view;
/// let node = ricochet::Node::builder("eth0").view(|me| {
///     let settings = ricochet::MembershipSection {
///         etcd: vec!["http://10.0.0.1:2379".to_owned()],
///         ..ricochet::MembershipSection::default()
///     };
///     Ok(view::of_registry(&settings, me, 1)?)
/// });
/// # Ok::<(), ricochet::StartError>(())
/// ```
///
/// # Errors
/// [`StartError`]: the settings name neither etcd nor Kubernetes, or one of them is wrong.
pub fn of_registry(
    settings: &MembershipSection,
    me: Me,
    random_seed: u64,
) -> Result<Box<dyn View + Send>, StartError> {
    let opened = crate::sources::open_registry(settings, me, None, random_seed)?;
    opened.map(|(view, _)| view).ok_or_else(|| {
        StartError::Membership("expected `etcd` or `kubernetes` in the settings, saw neither".to_owned())
    })
}
