//! Messages and loss reports.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ricochet::HistoryNews;

/// A message of a group.
#[pyclass(module = "ricochet", frozen)]
pub(crate) struct Message(ricochet::Message);

impl From<ricochet::Message> for Message {
    fn from(message: ricochet::Message) -> Self {
        Self(message)
    }
}

#[pymethods]
impl Message {
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

    /// Payload as it was sent.
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.payload())
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
#[pyclass(module = "ricochet", frozen)]
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

/// News about the messages from before a subscription: they begin, or end.
#[pyclass(module = "ricochet", frozen)]
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
