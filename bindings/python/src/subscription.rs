//! Receiving.

use std::ffi::CString;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use pyo3::exceptions::PyTimeoutError;
use pyo3::prelude::*;
use ricochet::{Event, OrderNews, RecvTimeoutError, TryRecvError};

use crate::error;
use crate::message::Message;
use crate::received::{GroupNews, History, Lost, MemberNews, OrderChange, RegistryNews};

/// Interval at which a wait is interrupted to check for signals.
pub(crate) const SIGNAL_CHECK: Duration = Duration::from_millis(100);

/// A bounded queue of the messages of one or more groups.
///
/// Iteration yields messages until the node is closed. `async for` does the same in an event loop.
#[pyclass(module = "undrop.multicast", frozen)]
pub(crate) struct Subscription(ricochet::Subscription);

impl Subscription {
    pub(crate) fn new(subscription: ricochet::Subscription) -> Self {
        Self(subscription)
    }

    /// Waits for the next event. Returns `None` if the timeout is over.
    fn wait_for_event(&self, py: Python<'_>, timeout: Option<Duration>) -> PyResult<Option<Event>> {
        let deadline = timeout.and_then(|timeout| now().checked_add(timeout));
        loop {
            let left = |deadline: Instant| deadline.saturating_duration_since(now()).min(SIGNAL_CHECK);
            let wait = deadline.map_or(SIGNAL_CHECK, left);
            let received = py.detach(|| self.0.recv_event_timeout(wait));
            match received {
                Ok(event) => return Ok(Some(event)),
                Err(RecvTimeoutError::Timeout) if deadline.is_some_and(|deadline| deadline <= now()) => {
                    return Ok(None);
                }
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
                Err(RecvTimeoutError::Closed) => return Err(error::closed()),
                Err(other) => return Err(error::other(other)),
            }
        }
    }
}

#[pymethods]
impl Subscription {
    /// Waits for the next message and returns it. Raises TimeoutError after `timeout` seconds, if given.
    /// Warns with LossWarning of messages that are lost before it, or were received before it and are not
    /// what the members in total order agreed.
    #[pyo3(signature = (timeout=None))]
    fn recv(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Message> {
        let timeout = seconds("timeout", timeout)?;
        let start = now();
        loop {
            let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
            match self.wait_for_event(py, left)? {
                Some(event) => {
                    if let Some(message) = message(py, event)? {
                        return Ok(message);
                    }
                }
                None => return Err(PyTimeoutError::new_err("no message came in time")),
            }
        }
    }

    /// Waits for the next message or loss report, in order. Raises TimeoutError after
    /// `timeout` seconds, if given.
    #[pyo3(signature = (timeout=None))]
    fn recv_event(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        match self.wait_for_event(py, seconds("timeout", timeout)?)? {
            Some(event) => to_python(py, event),
            None => Err(PyTimeoutError::new_err("no message or loss report came in time")),
        }
    }

    /// Returns the next message if one waits, otherwise None. Warns as `recv` does.
    fn try_recv(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        loop {
            match self.0.try_recv_event() {
                Ok(event) => {
                    if let Some(message) = message(py, event)? {
                        return Ok(Some(message));
                    }
                }
                Err(TryRecvError::Empty) => return Ok(None),
                Err(TryRecvError::Closed) => return Err(error::closed()),
                Err(other) => return Err(error::other(other)),
            }
        }
    }

    /// Returns the next message or loss report if one waits, otherwise None.
    fn try_recv_event(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match self.0.try_recv_event() {
            Ok(event) => to_python(py, event).map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Closed) => Err(error::closed()),
            Err(other) => Err(error::other(other)),
        }
    }

    /// Returns a descriptor that becomes readable when a message comes after `try_recv` returned None. The
    /// subscription owns it: do not close it.
    fn fileno(&self) -> PyResult<i32> {
        Ok(self.0.ready_fd()?.as_raw_fd())
    }

    /// Leaves the groups. Waits for a message end with Closed.
    fn leave(&self, py: Python<'_>) {
        py.detach(|| self.0.leave());
    }

    /// Names of the groups.
    #[getter]
    fn groups(&self) -> Vec<String> {
        self.0.groups().map(str::to_owned).collect()
    }

    /// Number of messages dropped because the queue was full.
    #[getter]
    fn dropped(&self) -> u64 {
        self.0.counts().dropped
    }

    /// Number of packets whose deadline passed before they came, or before they were read.
    #[getter]
    fn expired(&self) -> u64 {
        self.0.counts().expired
    }

    /// Number of packets reported lost.
    #[getter]
    fn lost(&self) -> u64 {
        self.0.counts().lost
    }

    /// Number of messages that wait.
    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// Always true, also for an empty queue.
    fn __bool__(&self) -> bool {
        true
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        match self.recv(py, None) {
            Ok(message) => Ok(Some(message)),
            Err(closed) if closed.is_instance_of::<error::Closed>(py) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// Waits for the next message in an event loop.
    fn recv_async<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        events_module(slf.py())?.call_method1("recv", (slf,))
    }

    /// Waits for the next message or loss report in an event loop.
    fn recv_event_async<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        events_module(slf.py())?.call_method1("recv_event", (slf,))
    }

    fn __aiter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        events_module(slf.py())?.call_method1("messages", (slf,))
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __exit__(&self, py: Python<'_>, _kind: Py<PyAny>, _value: Py<PyAny>, _traceback: Py<PyAny>) {
        self.leave(py);
    }
}

/// Returns the message of an event. Warns of losses, and passes over other news.
fn message(py: Python<'_>, event: Event) -> PyResult<Option<Message>> {
    match event {
        Event::Message(message) => return Ok(Some(message.into())),
        Event::Lost(lost) => warn(py, &of_lost(&lost))?,
        Event::Order(change) => {
            if let Some(text) = of_order(&change) {
                warn(py, &text)?;
            }
        }
        Event::History(_) | Event::Member(_) | Event::Group(_) | Event::Registry(_) => {}
    }
    Ok(None)
}

/// Warns of what a program is not told otherwise, because it receives messages alone.
fn warn(py: Python<'_>, text: &str) -> PyResult<()> {
    let text = CString::new(format!("{text}; recv_event() returns such reports"))?;
    PyErr::warn(py, &py.get_type::<error::LossWarning>(), &text, 1)
}

/// Says which messages the program does not get.
fn of_lost(lost: &ricochet::Lost) -> String {
    let (first, last) = (*lost.range().start(), *lost.range().end());
    let (sender, group, reason) = (lost.sender(), lost.group(), lost.reason());
    format!("messages {first} to {last} from {sender} to {group:?} are lost: {reason}")
}

/// Says which numbers of a total order the program does not get, or must discard.
fn of_order(change: &ricochet::OrderChange) -> Option<String> {
    let group = change.group();
    match change.news() {
        OrderNews::Missed { from, continues } => Some(format!(
            "numbers {from} to {} of {group:?} are lost: no member keeps them any more",
            continues.saturating_sub(1)
        )),
        OrderNews::Broken { from, delivered, continues } => Some(format!(
            "numbers {from} to {} of {group:?} were received otherwise than the other members agreed, and must be \
             discarded: the agreed messages follow from number {continues} on",
            delivered.saturating_sub(1)
        )),
        OrderNews::Begins { .. } | OrderNews::Stalled | OrderNews::Resumed => None,
    }
}

/// Imports the part that is written in Python.
fn events_module(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import("undrop.multicast._events")
}

fn to_python(py: Python<'_>, event: Event) -> PyResult<Py<PyAny>> {
    match event {
        Event::Message(message) => Ok(Py::new(py, Message::from(message))?.into_any()),
        Event::Lost(lost) => Ok(Py::new(py, Lost::from(lost))?.into_any()),
        Event::History(history) => Ok(Py::new(py, History::from(history))?.into_any()),
        Event::Member(news) => Ok(Py::new(py, MemberNews::from(news))?.into_any()),
        Event::Group(news) => Ok(Py::new(py, GroupNews::from(news))?.into_any()),
        Event::Order(change) => Ok(Py::new(py, OrderChange::from(change))?.into_any()),
        Event::Registry(news) => Ok(Py::new(py, RegistryNews::from(news))?.into_any()),
    }
}

pub(crate) fn seconds(what: &str, given: Option<f64>) -> PyResult<Option<Duration>> {
    let seconds = |given: f64| {
        Duration::try_from_secs_f64(given)
            .map_err(|_| error::value(format!("{what}: expected 0 seconds or more, saw {given}")))
    };
    given.map(seconds).transpose()
}

#[expect(clippy::disallowed_methods, reason = "not a core: Python's timeouts are in real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
