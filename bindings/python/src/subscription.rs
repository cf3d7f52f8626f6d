//! Receiving.

use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use pyo3::exceptions::PyTimeoutError;
use pyo3::prelude::*;
use ricochet::{Event, RecvTimeoutError, TryRecvError};

use crate::error;
use crate::received::{Lost, Message};

/// So often a wait is interrupted to look for signals.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// A bounded queue of the messages of one group or many.
///
/// Iterating gives messages until the node is closed; `async for` does the same in an event loop.
#[pyclass(module = "ricochet", frozen)]
pub(crate) struct Subscription(ricochet::Subscription);

impl Subscription {
    pub(crate) fn new(subscription: ricochet::Subscription) -> Self {
        Self(subscription)
    }

    /// The next event; `None` when the time is over.
    fn event(&self, py: Python<'_>, timeout: Option<Duration>) -> PyResult<Option<Event>> {
        let deadline = timeout.and_then(|timeout| now().checked_add(timeout));
        loop {
            let wait = deadline.map_or(LOOK, |deadline| deadline.saturating_duration_since(now()).min(LOOK));
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
    /// The next message. Waits for it, no longer than `timeout` seconds if given; then raises TimeoutError.
    #[pyo3(signature = (timeout=None))]
    fn recv(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Message> {
        let timeout = seconds("timeout", timeout)?;
        let start = now();
        loop {
            let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
            match self.event(py, left)? {
                Some(Event::Message(message)) => return Ok(message.into()),
                Some(Event::Lost(_)) => {}
                None => return Err(PyTimeoutError::new_err("no message came in time")),
            }
        }
    }

    /// As `recv`, but also the reports of messages that will not come, each in its place.
    #[pyo3(signature = (timeout=None))]
    fn recv_event(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        match self.event(py, seconds("timeout", timeout)?)? {
            Some(event) => any(py, event),
            None => Err(PyTimeoutError::new_err("nothing came in time")),
        }
    }

    /// The next message if one waits, else None.
    fn try_recv(&self) -> PyResult<Option<Message>> {
        loop {
            match self.0.try_recv_event() {
                Ok(Event::Message(message)) => return Ok(Some(message.into())),
                Ok(Event::Lost(_)) => {}
                Err(TryRecvError::Empty) => return Ok(None),
                Err(TryRecvError::Closed) => return Err(error::closed()),
                Err(other) => return Err(error::other(other)),
            }
        }
    }

    /// As `try_recv`, but also the reports of messages that will not come.
    fn try_recv_event(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match self.0.try_recv_event() {
            Ok(event) => any(py, event).map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Closed) => Err(error::closed()),
            Err(other) => Err(error::other(other)),
        }
    }

    /// A descriptor that is readable once something came after `try_recv` gave None. It is the subscription's: do not
    /// close it.
    fn fileno(&self) -> PyResult<i32> {
        Ok(self.0.ready_fd()?.as_raw_fd())
    }

    /// Leaves the groups. Who waits for a message gets Closed.
    fn leave(&self, py: Python<'_>) {
        py.detach(|| self.0.leave());
    }

    /// The names of the groups.
    #[getter]
    fn groups(&self) -> Vec<String> {
        self.0.groups().map(str::to_owned).collect()
    }

    /// Messages dropped since the queue was full.
    #[getter]
    fn dropped(&self) -> u64 {
        self.0.counts().dropped
    }

    /// Packets that were reported lost.
    #[getter]
    fn lost(&self) -> u64 {
        self.0.counts().lost
    }

    /// Messages that wait.
    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// An empty queue is a subscription all the same.
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

    /// The next message, in an event loop.
    fn recv_async<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        events(slf.py())?.call_method1("recv", (slf,))
    }

    /// As `recv_async`, but also the reports of messages that will not come.
    fn recv_event_async<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        events(slf.py())?.call_method1("recv_event", (slf,))
    }

    fn __aiter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        events(slf.py())?.call_method1("messages", (slf,))
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __exit__(&self, py: Python<'_>, _kind: Py<PyAny>, _value: Py<PyAny>, _traceback: Py<PyAny>) {
        self.leave(py);
    }
}

/// The part that is written in Python.
fn events(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import("ricochet._events")
}

fn any(py: Python<'_>, event: Event) -> PyResult<Py<PyAny>> {
    match event {
        Event::Message(message) => Ok(Py::new(py, Message::from(message))?.into_any()),
        Event::Lost(lost) => Ok(Py::new(py, Lost::from(lost))?.into_any()),
    }
}

pub(crate) fn seconds(what: &str, given: Option<f64>) -> PyResult<Option<Duration>> {
    let seconds = |given: f64| {
        Duration::try_from_secs_f64(given)
            .map_err(|_| error::value(format!("{what}: expected 0 seconds or more, saw {given}")))
    };
    given.map(seconds).transpose()
}

#[expect(clippy::disallowed_methods, reason = "no core: somebody waits by the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
