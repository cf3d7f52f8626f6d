//! A node, and sending.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use ricochet::{
    Builder, ClusterKey, Config, JoinOptions, Order, Policy, RepairMode, RequestError, SendError,
    SendOptions, Start,
};

use crate::buffer::Buffer;
use crate::error;
use crate::message::Message;
use crate::subscription::{SIGNAL_CHECK, Subscription, now, seconds};

/// A node of a cluster: joins groups, and sends to any group. Use it in a `with` statement, or close it.
#[pyclass(module = "undrop.multicast", frozen)]
pub(crate) struct Node {
    inner: Mutex<Option<Arc<ricochet::Node>>>,
}

impl Node {
    fn slot(&self) -> MutexGuard<'_, Option<Arc<ricochet::Node>>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> PyResult<Arc<ricochet::Node>> {
        self.slot().clone().ok_or_else(error::closed)
    }

    /// Returns the node, unless it has failed, so that what it knows is of no use.
    fn working(&self) -> PyResult<Arc<ricochet::Node>> {
        let node = self.open()?;
        match node.ended() {
            Some(failed @ SendError::Failed(_)) => Err(error::send(&failed)),
            _ => Ok(node),
        }
    }

    /// Sends a request and returns the replies. Checks for signals meanwhile.
    fn ask(
        &self,
        py: Python<'_>,
        group: &str,
        payload: &[u8],
        count: usize,
        timeout: Duration,
    ) -> PyResult<Vec<ricochet::Message>> {
        let (node, mut signal) = (self.open()?, Ok(()));
        let replies = py.detach(|| {
            node.request_all_while(group, payload, count, timeout, || is_undisturbed(&mut signal))
        });
        signal?;
        replies.map_err(error::request)
    }
}

impl Drop for Node {
    /// Ends a node that was not closed. Other threads of Python run during its last waits.
    fn drop(&mut self) {
        let mut node = self.slot().take();
        if node.is_some() {
            // An interpreter that ends runs no other threads.
            Python::try_attach(|py| py.detach(|| drop(node.take())));
        }
    }
}

#[pymethods]
impl Node {
    /// Starts a node on an interface. Arguments override the settings in the file `config`.
    #[new]
    #[pyo3(signature = (
        interface=None, *, seeds=Vec::new(), config=None, member_file=None, address=None, port=None, group_port=None,
        ipv6=false, unicast=false, key=None, key_file=None, repair=None, control=None,
    ))]
    #[expect(
        clippy::too_many_arguments,
        clippy::needless_pass_by_value,
        reason = "Python passes them so, by name"
    )]
    fn new(
        py: Python<'_>,
        interface: Option<String>,
        seeds: Vec<String>,
        config: Option<PathBuf>,
        member_file: Option<PathBuf>,
        address: Option<String>,
        port: Option<u16>,
        group_port: Option<u16>,
        ipv6: bool,
        unicast: bool,
        key: Option<&str>,
        key_file: Option<PathBuf>,
        repair: Option<&str>,
        control: Option<PathBuf>,
    ) -> PyResult<Self> {
        let mut settings = match &config {
            Some(file) => Config::load(file).map_err(error::value)?,
            None => Config::default(),
        };
        let node = &mut settings.node;
        node.interface = interface.unwrap_or(std::mem::take(&mut node.interface));
        if let Some(address) = address {
            let wrong = |_| error::value(format!("address: expected an IP address, saw {address:?}"));
            node.address = Some(address.parse::<IpAddr>().map_err(wrong)?);
        }
        node.port = port.or(node.port);
        node.group_port = group_port.unwrap_or(node.group_port);
        node.ipv6 |= ipv6;
        node.unicast |= unicast;
        node.control = control.or(node.control.take());
        if !seeds.is_empty() {
            settings.membership.seeds = seeds;
        }
        settings.membership.file = member_file.or(settings.membership.file.take());
        settings.key.file = key_file.or(settings.key.file.take());
        if let Some(repair) = repair {
            settings.repair.mode = one_of(
                "repair",
                repair,
                &[("xor", RepairMode::Xor), ("digest", RepairMode::Digest), ("auto", RepairMode::Auto)],
            )?;
        }
        let mut builder = Builder::from(settings);
        if let Some(key) = key {
            let keys = ClusterKey::parse_all(key).map_err(error::value)?;
            builder = keys.into_iter().fold(builder, Builder::key);
        }
        let started = py.detach(|| builder.start());
        let started = started.map_err(|error| match error {
            ricochet::StartError::Config(_) | ricochet::StartError::Seed { .. } => error::value(error),
            _ => error::other(error),
        })?;
        Ok(Self { inner: Mutex::new(Some(Arc::new(started))) })
    }

    /// Joins groups, with one queue for all. The subscription receives all messages sent
    /// to them from this moment on, and before them the `last` messages of each group, or those of the time
    /// `since`, in seconds, or, with `last_per_key`, the last value of each key, as far as members keep them.
    /// With `loopback`, it receives the node's own messages
    /// too; with `members`, events about the members of the groups. `order` is "unordered", "fifo", "total"
    /// or "total-safe".
    #[pyo3(signature = (
        *groups, fifo=false, queue=None, policy=None, fragments=false, c=None, lifetime=None, held=None,
        last=None, since=None, loopback=false, members=false, order=None, last_per_key=false,
    ))]
    #[expect(
        clippy::too_many_arguments,
        clippy::needless_pass_by_value,
        reason = "Python passes them so, by name"
    )]
    fn join(
        &self,
        py: Python<'_>,
        groups: Vec<String>,
        fifo: bool,
        queue: Option<usize>,
        policy: Option<&str>,
        fragments: bool,
        c: Option<u8>,
        lifetime: Option<f64>,
        held: Option<usize>,
        last: Option<u64>,
        since: Option<f64>,
        loopback: bool,
        members: bool,
        order: Option<&str>,
        last_per_key: bool,
    ) -> PyResult<Subscription> {
        let orders = [
            ("unordered", Order::Unordered),
            ("fifo", Order::Fifo),
            ("total", Order::Total),
            ("total-safe", Order::TotalSafe),
        ];
        let order = order.map(|order| one_of("order", order, &orders)).transpose()?;
        if fifo && order.is_some_and(|order| order != Order::Fifo) {
            return Err(error::value("expected either fifo=True or another order, saw both"));
        }
        let policies = [
            ("block", Policy::Block),
            ("drop-oldest", Policy::DropOldest),
            ("drop-newest", Policy::DropNewest),
        ];
        let from = match (last, seconds("since", since)?) {
            (None, None) if last_per_key => Start::LastPerKey,
            (None, None) => Start::Live,
            (Some(count), None) if !last_per_key => Start::Last(count),
            (None, Some(age)) if !last_per_key => Start::Since(age),
            _ => return Err(error::value("expected one of last, since and last_per_key, saw several")),
        };
        let options = JoinOptions {
            order: order.unwrap_or(if fifo { Order::Fifo } else { Order::Unordered }),
            queue,
            policy: policy.map(|policy| one_of("policy", policy, &policies)).transpose()?,
            fragments,
            c,
            lifetime: seconds("lifetime", lifetime)?,
            held,
            from,
            loopback,
            members,
            ..JoinOptions::default()
        };
        let node = self.open()?;
        let joined = py.detach(|| node.join_many_with(&groups, &options));
        joined.map(Subscription::new).map_err(|error| error::join(&error))
    }

    /// Sends a message to a group and returns its sequence number. The node need
    /// not be a member of the group.
    #[expect(clippy::needless_pass_by_value, reason = "Python passes it so")]
    fn send(&self, py: Python<'_>, group: &str, payload: Buffer<'_>) -> PyResult<u32> {
        let sender = self.open()?.sender(group).map_err(|error| error::send(&error))?;
        send(py, &sender, &payload, &SendOptions::default())
    }

    /// Sends a request to a group and returns the first reply. Raises TimeoutError after `timeout` seconds.
    #[pyo3(signature = (group, payload, timeout=1.0))]
    #[expect(clippy::needless_pass_by_value, reason = "Python passes it so")]
    fn request(&self, py: Python<'_>, group: &str, payload: Buffer<'_>, timeout: f64) -> PyResult<Message> {
        let timeout = seconds("timeout", Some(timeout))?.unwrap_or_default();
        if let Some(reply) = self.ask(py, group, &payload, 1, timeout)?.pop() {
            return Ok(reply.into());
        }
        let members = self.members(py, group)?;
        Err(error::request(RequestError::NoReply { seconds: timeout.as_secs_f64(), members }))
    }

    /// Sends a request to a group and returns all replies that come in `timeout` seconds, at most `count`.
    /// Raises TimeoutError if there was no room for the request in that time.
    #[pyo3(signature = (group, payload, timeout=1.0, count=None))]
    #[expect(clippy::needless_pass_by_value, reason = "Python passes it so")]
    fn request_all(
        &self,
        py: Python<'_>,
        group: &str,
        payload: Buffer<'_>,
        timeout: f64,
        count: Option<usize>,
    ) -> PyResult<Vec<Message>> {
        let timeout = seconds("timeout", Some(timeout))?.unwrap_or_default();
        let replies = self.ask(py, group, &payload, count.unwrap_or(usize::MAX), timeout)?;
        Ok(replies.into_iter().map(Message::from).collect())
    }

    /// Replies to a request.
    #[expect(clippy::needless_pass_by_value, reason = "Python passes it so")]
    fn reply(&self, py: Python<'_>, request: &Message, payload: Buffer<'_>) -> PyResult<u32> {
        let (node, payload) = (self.open()?, &*payload);
        when_there_is_room(py, || node.reply_timeout(request.inner(), payload, SIGNAL_CHECK))
    }

    /// Returns a handle that sends to one group and does not check the name each time.
    #[pyo3(signature = (group, *, expiring=false, fragments=false, deadline=None, content_type=None))]
    fn sender(
        &self,
        group: &str,
        expiring: bool,
        fragments: bool,
        deadline: Option<f64>,
        content_type: Option<&str>,
    ) -> PyResult<Sender> {
        let sender = self.open()?.sender(group).map_err(|error| error::send(&error))?;
        let sender = sender.expiring(expiring).fragments(fragments);
        Ok(Sender(sender.deadline(seconds("deadline", deadline)?).content_type(content_type)))
    }

    /// Waits until at least `count` other nodes are known to be in a group, at most for `timeout` seconds and
    /// until the node is closed. Returns whether there are that many.
    #[pyo3(signature = (group, count=1, timeout=10.0))]
    fn wait_for_members(&self, py: Python<'_>, group: &str, count: usize, timeout: f64) -> PyResult<bool> {
        let node = self.open()?;
        let timeout = seconds("timeout", Some(timeout))?.unwrap_or_default();
        let start = now();
        loop {
            let left = timeout.saturating_sub(start.elapsed());
            if py.detach(|| node.wait_for_members(group, count, left.min(SIGNAL_CHECK))) {
                return Ok(true);
            }
            match node.ended() {
                None if left > SIGNAL_CHECK && self.slot().is_some() => {}
                None | Some(SendError::Closed) => return Ok(false),
                Some(failed) => return Err(error::send(&failed)),
            }
            py.check_signals()?;
        }
    }

    /// Returns the number of other nodes known to be in a group.
    fn members(&self, py: Python<'_>, group: &str) -> PyResult<usize> {
        let node = self.working()?;
        Ok(py.detach(|| node.members(group)))
    }

    /// Returns the other nodes known to be in a group: the identifier and the address of each.
    fn member_list(&self, py: Python<'_>, group: &str) -> PyResult<Vec<(u32, String)>> {
        let node = self.working()?;
        let members = py.detach(|| node.member_list(group));
        Ok(members.iter().map(|member| (member.id.0, member.address.to_string())).collect())
    }

    /// Continues with other cluster keys, one in each string. The node signs with the first and accepts all.
    #[expect(clippy::needless_pass_by_value, reason = "Python passes it so")]
    fn set_keys(&self, keys: Vec<String>) -> PyResult<()> {
        let parsed: Result<Vec<_>, _> = keys.iter().map(|key| ClusterKey::parse(key)).collect();
        self.open()?.set_keys(&parsed.map_err(error::value)?).map_err(error::other)
    }

    /// Reads the cluster keys from the configured file again. Returns their number.
    fn reload_keys(&self, py: Python<'_>) -> PyResult<usize> {
        let node = self.open()?;
        py.detach(|| node.reload_keys()).map_err(error::other)
    }

    /// Identifier of this life of the node.
    #[getter]
    fn id(&self) -> PyResult<u32> {
        Ok(self.open()?.id().0)
    }

    /// Address at which others reach this node, and which serves them as a seed address.
    #[getter]
    fn address(&self) -> PyResult<String> {
        Ok(self.open()?.address().to_string())
    }

    /// Maximum payload in bytes of a message that is sent in one packet.
    #[getter]
    fn payload_max(&self) -> PyResult<usize> {
        Ok(self.open()?.payload_max())
    }

    /// Returns the counters of the node, and the nodes that it knows.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let node = self.open()?;
        let value = py.detach(|| serde_json::to_value(node.status())).map_err(error::other)?;
        to_python(py, &value)
    }

    /// Announces to the others that this node leaves, and ends it. Queued messages can still be received.
    fn close(&self, py: Python<'_>) {
        let node = self.slot().take();
        // Other threads may be using it.
        py.detach(|| node.iter().for_each(|node| node.close()));
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __exit__(&self, py: Python<'_>, _kind: Py<PyAny>, _value: Py<PyAny>, _traceback: Py<PyAny>) {
        self.close(py);
    }
}

/// A handle that sends to one group.
#[pyclass(module = "undrop.multicast", frozen)]
pub(crate) struct Sender(ricochet::Sender);

#[pymethods]
impl Sender {
    /// Sends a message and returns its sequence number. `headers` are bytes that receivers get beside the
    /// payload; `deadline` is the age in seconds at which the message is worthless.
    #[pyo3(signature = (payload, *, headers=None, deadline=None, content_type=None, key=None))]
    #[expect(clippy::needless_pass_by_value, reason = "Python passes it so")]
    fn send(
        &self,
        py: Python<'_>,
        payload: Buffer<'_>,
        headers: Option<Buffer<'_>>,
        deadline: Option<f64>,
        content_type: Option<&str>,
        key: Option<Buffer<'_>>,
    ) -> PyResult<u32> {
        let (headers, deadline) = (headers.as_deref().unwrap_or_default(), seconds("deadline", deadline)?);
        let key = key.as_deref();
        send(py, &self.0, &payload, &SendOptions { deadline, content_type, headers, key })
    }

    /// Sends a message, waits until `members` members of the group hold it, and returns its sequence number.
    /// Raises TimeoutError after `timeout` seconds; the text says whether the message was sent.
    #[pyo3(signature = (payload, members=1, timeout=10.0))]
    #[expect(clippy::needless_pass_by_value, reason = "Python passes it so")]
    fn send_held(&self, py: Python<'_>, payload: Buffer<'_>, members: usize, timeout: f64) -> PyResult<u32> {
        let payload = &*payload;
        let timeout = seconds("timeout", Some(timeout))?.unwrap_or_default();
        let (options, mut signal) = (SendOptions::default(), Ok(()));
        let sent = py.detach(|| {
            self.0.send_held_while(payload, &options, members, timeout, || is_undisturbed(&mut signal))
        });
        signal?;
        sent.map_err(|error| error::send(&error))
    }

    /// Sends a message if it need not wait for its readers, and returns its sequence number; otherwise None.
    #[expect(clippy::needless_pass_by_value, reason = "Python passes it so")]
    fn try_send(&self, py: Python<'_>, payload: Buffer<'_>) -> PyResult<Option<u32>> {
        let payload = &*payload;
        match py.detach(|| self.0.try_send(payload)) {
            Err(SendError::WouldBlock) => Ok(None),
            sent => sent.map(Some).map_err(|error| error::send(&error)),
        }
    }
}

/// Sends a message once its readers have room. Checks for signals meanwhile.
fn send(
    py: Python<'_>,
    sender: &ricochet::Sender,
    payload: &[u8],
    options: &SendOptions<'_>,
) -> PyResult<u32> {
    when_there_is_room(py, || sender.send_timeout_with(payload, options, SIGNAL_CHECK))
}

/// Tries to send until there is room. Checks for signals after each attempt.
fn when_there_is_room(
    py: Python<'_>,
    attempt: impl Fn() -> Result<u32, SendError> + Send + Sync,
) -> PyResult<u32> {
    loop {
        match py.detach(&attempt) {
            Err(SendError::WouldBlock) => py.check_signals()?,
            sent => return sent.map_err(|error| error::send(&error)),
        }
    }
}

/// Returns whether a wait may go on. A signal handler that raises an exception ends it.
fn is_undisturbed(signal: &mut PyResult<()>) -> bool {
    Python::attach(|py| *signal = py.check_signals());
    signal.is_ok()
}

/// Generates a cluster key and returns it as text.
#[pyfunction]
pub(crate) fn generate_key() -> PyResult<String> {
    Ok(ClusterKey::generate()?.to_text().as_str().to_owned())
}

fn one_of<T: Copy>(what: &str, given: &str, all: &[(&str, T)]) -> PyResult<T> {
    all.iter().find(|(name, _)| *name == given).map(|&(_, value)| value).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|&(name, _)| name).collect();
        error::value(format!("{what}: expected one of {}, saw {given:?}", names.join(", ")))
    })
}

/// Converts JSON to Python's own types.
fn to_python<'py>(py: Python<'py>, value: &serde_json::Value) -> PyResult<Bound<'py, PyAny>> {
    use serde_json::Value;
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
        Value::Number(number) => match number.as_i64() {
            Some(number) => number.into_pyobject(py)?.into_any(),
            None => number.as_f64().unwrap_or(f64::NAN).into_pyobject(py)?.into_any(),
        },
        Value::String(text) => text.into_pyobject(py)?.into_any(),
        Value::Array(values) => {
            let list = PyList::empty(py);
            for value in values {
                list.append(to_python(py, value)?)?;
            }
            list.into_any()
        }
        Value::Object(entries) => {
            let dict = PyDict::new(py);
            for (key, value) in entries {
                dict.set_item(key, to_python(py, value)?)?;
            }
            dict.into_any()
        }
    })
}
