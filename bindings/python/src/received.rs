//! Messages and loss reports.

use std::ffi::c_int;
use std::time::UNIX_EPOCH;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;
use ricochet::{GroupChange, HistoryNews, MemberChange, OrderNews};

/// A message of a group.
#[pyclass(module = "undrop.multicast", frozen)]
pub(crate) struct Message(ricochet::Message, PyOnceLock<Py<PyBytes>>);

impl From<ricochet::Message> for Message {
    fn from(message: ricochet::Message) -> Self {
        Self(message, PyOnceLock::new())
    }
}

impl Message {
    pub(crate) fn inner(&self) -> &ricochet::Message {
        &self.0
    }
}

#[pymethods]
impl Message {
    /// Whether the sender waits for replies.
    #[getter]
    fn is_request(&self) -> bool {
        self.0.is_request()
    }

    /// Name of the group that the message was sent to.
    #[getter]
    fn group(&self) -> &str {
        self.0.group()
    }

    /// Identifier of the sender: one life of a node.
    #[getter]
    fn sender(&self) -> u32 {
        self.0.sender().0
    }

    /// Sequence number among this sender's messages to this group, from 0, modulo 2**32.
    #[getter]
    fn sequence(&self) -> u32 {
        self.0.seq()
    }

    /// Number of the message in total order; None in other orders.
    #[getter]
    fn number(&self) -> Option<u64> {
        self.0.number()
    }

    /// Shows the payload where it is, read-only: `memoryview(message)` copies nothing.
    ///
    /// # Safety
    /// Python calls it, with a view to be filled (PEP 3118).
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let payload = slf.get().0.payload();
        let (start, length) = (payload.as_ptr().cast_mut().cast(), payload.len().cast_signed());
        // SAFETY: the view refers to the message, which is frozen: its payload lives as long, and stays where
        // it is. The view is read-only.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, 1, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }

    /// Payload as it was sent. It is copied the first time.
    #[getter]
    fn payload(&self, py: Python<'_>) -> Py<PyBytes> {
        let copy = || PyBytes::new(py, self.0.payload()).unbind();
        self.1.get_or_init(py, copy).clone_ref(py)
    }

    /// Address of the sender, such as `10.0.0.7:7900`; None if it is not known.
    #[getter]
    fn address(&self) -> Option<String> {
        self.0.address().map(|address| address.to_string())
    }

    /// Time at which the message was sent, in seconds since 1970, by the sender's clock; None if the sender
    /// does not tell.
    #[getter]
    fn sent(&self) -> Option<f64> {
        let since_1970 = self.0.sent()?.duration_since(UNIX_EPOCH).ok()?;
        Some(since_1970.as_secs_f64())
    }

    /// Whether this node sent the message itself.
    #[getter]
    fn own(&self) -> bool {
        self.0.is_own()
    }

    /// Type of the payload, if the sender has given one.
    #[getter]
    fn content_type(&self) -> Option<&str> {
        self.0.content_type()
    }

    /// Bytes that the sender has given to the message beside the payload.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.headers())
    }

    /// Key of which the message is the value; None if it has none. An empty payload deletes the key.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.0.key().map(|key| PyBytes::new(py, key))
    }

    /// Whether the message was lost at first, and then recovered or retransmitted.
    #[getter]
    fn recovered(&self) -> bool {
        self.0.recovered()
    }

    /// Whether the message was sent before the subscription, and kept by a member.
    #[getter]
    fn past(&self) -> bool {
        self.0.is_past()
    }

    /// Seconds for which this node knew that the message was missing.
    #[getter]
    fn latency(&self) -> f64 {
        self.0.latency().as_secs_f64()
    }

    fn __repr__(&self) -> String {
        format!(
            "Message(group={:?}, sender={}, sequence={}, {} bytes, recovered={})",
            self.group(),
            self.sender(),
            self.sequence(),
            self.0.payload().len(),
            if self.recovered() { "True" } else { "False" }
        )
    }
}

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
