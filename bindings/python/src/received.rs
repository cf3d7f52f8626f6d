//! Loss reports and other news.

use pyo3::prelude::*;
use ricochet::{GroupChange, HistoryNews, MemberChange, OrderNews};

/// A report of messages that will not arrive.
#[pyclass(module = "undrop.multicast", frozen)]
pub(crate) struct Lost(ricochet::Lost);

impl From<ricochet::Lost> for Lost {
    fn from(lost: ricochet::Lost) -> Self {
        Self(lost)
    }
}

#[pymethods]
impl Lost {
    /// Name of the group.
    #[getter]
    fn group(&self) -> &str {
        self.0.group()
    }

    /// Identifier of the sender.
    #[getter]
    fn sender(&self) -> u32 {
        self.0.sender().0
    }

    /// Sequence number of the first of them among this sender's messages to this group.
    #[getter]
    fn first(&self) -> u32 {
        *self.0.range().start()
    }

    /// Sequence number of the last of them.
    #[getter]
    fn last(&self) -> u32 {
        *self.0.range().end()
    }

    /// Reason why they were given up.
    #[getter]
    fn reason(&self) -> String {
        self.0.reason().to_string()
    }

    fn __repr__(&self) -> String {
        format!(
            "Lost(group={:?}, sender={}, first={}, last={}, reason={:?})",
            self.group(),
            self.sender(),
            self.first(),
            self.last(),
            self.reason()
        )
    }
}

/// News about a member of a group: it joined, left or failed.
#[pyclass(module = "undrop.multicast", frozen)]
pub(crate) struct MemberNews(ricochet::MemberNews);

impl From<ricochet::MemberNews> for MemberNews {
    fn from(news: ricochet::MemberNews) -> Self {
        Self(news)
    }
}

#[pymethods]
impl MemberNews {
    /// Name of the group.
    #[getter]
    fn group(&self) -> &str {
        self.0.group()
    }

    /// Identifier of the member: one life of a node.
    #[getter]
    fn member(&self) -> u32 {
        self.0.member().id.0
    }

    /// Address of the member.
    #[getter]
    fn address(&self) -> String {
        self.0.member().address.to_string()
    }

    /// Change: `joined`, `left` or `failed`.
    #[getter]
    fn change(&self) -> &'static str {
        match self.0.change() {
            MemberChange::Joined => "joined",
            MemberChange::Left => "left",
            MemberChange::Failed => "failed",
        }
    }

    fn __repr__(&self) -> String {
        format!(
            "MemberNews(group={:?}, member={}, address={:?}, change={:?})",
            self.group(),
            self.member(),
            self.address(),
            self.change()
        )
    }
}

/// News about a group whose name matches a pattern of a subscription.
#[pyclass(module = "undrop.multicast", frozen)]
pub(crate) struct GroupNews(ricochet::GroupNews);

impl From<ricochet::GroupNews> for GroupNews {
    fn from(news: ricochet::GroupNews) -> Self {
        Self(news)
    }
}

#[pymethods]
impl GroupNews {
    /// Name of the group.
    #[getter]
    fn group(&self) -> &str {
        self.0.group()
    }

    /// Pattern that it matches.
    #[getter]
    fn pattern(&self) -> &str {
        self.0.pattern()
    }

    /// Why the subscription has not joined it; None if it has.
    #[getter]
    fn refused(&self) -> Option<&str> {
        match self.0.change() {
            GroupChange::Found => None,
            GroupChange::Refused(why) => Some(why),
        }
    }

    fn __repr__(&self) -> String {
        format!("GroupNews(group={:?}, pattern={:?})", self.group(), self.pattern())
    }
}

/// News about the messages from before a subscription: they begin, or end.
#[pyclass(module = "undrop.multicast", frozen)]
pub(crate) struct History(ricochet::History);

impl From<ricochet::History> for History {
    fn from(history: ricochet::History) -> Self {
        Self(history)
    }
}

#[pymethods]
impl History {
    /// Name of the group.
    #[getter]
    fn group(&self) -> &str {
        self.0.group()
    }

    /// Whether the messages that follow are those sent since the subscription.
    #[getter]
    fn ended(&self) -> bool {
        matches!(self.0.news(), HistoryNews::Ends | HistoryNews::Nothing { .. })
    }

    /// Number of messages that a member keeps; None at the end.
    #[getter]
    fn messages(&self) -> Option<u64> {
        match self.0.news() {
            HistoryNews::Begins { messages, .. } => Some(messages),
            HistoryNews::Nothing { .. } => Some(0),
            HistoryNews::Ends => None,
        }
    }

    /// Whether these are all that were asked for; None at the end.
    #[getter]
    fn complete(&self) -> Option<bool> {
        match self.0.news() {
            HistoryNews::Begins { is_complete, .. } => Some(is_complete),
            HistoryNews::Nothing { .. } => Some(false),
            HistoryNews::Ends => None,
        }
    }

    fn __repr__(&self) -> String {
        match (self.messages(), self.complete()) {
            (Some(messages), Some(complete)) => format!(
                "History(group={:?}, messages={messages}, complete={})",
                self.group(),
                if complete { "True" } else { "False" }
            ),
            _ => format!("History(group={:?}, ended=True)", self.group()),
        }
    }
}

/// News about the total order of a group.
#[pyclass(module = "undrop.multicast", frozen)]
pub(crate) struct OrderChange(ricochet::OrderChange);

impl From<ricochet::OrderChange> for OrderChange {
    fn from(change: ricochet::OrderChange) -> Self {
        Self(change)
    }
}

#[pymethods]
impl OrderChange {
    /// Name of the group.
    #[getter]
    fn group(&self) -> &str {
        self.0.group()
    }

    /// "begins", "missed", "broken", "stalled" or "resumed".
    #[getter]
    fn kind(&self) -> &'static str {
        match self.0.news() {
            OrderNews::Begins { .. } => "begins",
            OrderNews::Missed { .. } => "missed",
            OrderNews::Broken { .. } => "broken",
            OrderNews::Stalled => "stalled",
            OrderNews::Resumed => "resumed",
        }
    }

    /// First number that was missed, or that this node delivered otherwise than the others agreed.
    #[getter]
    fn first(&self) -> Option<u64> {
        match self.0.news() {
            OrderNews::Missed { from, .. } | OrderNews::Broken { from, .. } => Some(from),
            _ => None,
        }
    }

    /// Number with which the agreed messages continue.
    #[getter]
    fn continues(&self) -> Option<u64> {
        match self.0.news() {
            OrderNews::Begins { number } => Some(number),
            OrderNews::Missed { continues, .. } | OrderNews::Broken { continues, .. } => Some(continues),
            OrderNews::Stalled | OrderNews::Resumed => None,
        }
    }

    fn __repr__(&self) -> String {
        format!("OrderChange(group={:?}, kind={:?})", self.group(), self.kind())
    }
}

/// News about the registry that the members come from, for subscriptions that want to know the members.
#[pyclass(module = "undrop.multicast", frozen)]
pub(crate) struct RegistryNews(ricochet::RegistryNews);

impl From<ricochet::RegistryNews> for RegistryNews {
    fn from(news: ricochet::RegistryNews) -> Self {
        Self(news)
    }
}

#[pymethods]
impl RegistryNews {
    /// "etcd" or "Kubernetes".
    #[getter]
    fn kind(&self) -> &str {
        self.0.kind()
    }

    /// Why the registry cannot be reached; None if it is reached again.
    #[getter]
    fn error(&self) -> Option<&str> {
        self.0.error()
    }

    fn __repr__(&self) -> String {
        format!("RegistryNews(kind={:?}, error={:?})", self.kind(), self.error())
    }
}
