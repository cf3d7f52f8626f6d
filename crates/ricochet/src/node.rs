//! A running node, as the application holds it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ricochet_core::{GroupId, NodeId};

use crate::builder::Builder;
use crate::error::{JoinError, SendError};
use crate::joining::{JoinOptions, is_name};
use crate::sender::Sender;
use crate::shared::Shared;
use crate::status::Status;
use crate::subscription::Subscription;
use crate::wake::Waker;

/// A node of a cluster: joins groups, and sends to any. When it is dropped it says farewell to the others.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let quiet = || ricochet::Node::builder("lo").address([127, 0, 0, 1]).unicast(true).port(0);
/// let receiver = quiet().start()?;
/// let prices = receiver.join("prices/AAPL")?;
///
/// let sender = quiet().seed(receiver.address().to_string()).start()?;
/// # assert!(sender.wait_for_members("prices/AAPL", 1, std::time::Duration::from_secs(20)));
/// sender.send("prices/AAPL", b"187.21")?;
///
/// let message = prices.recv()?;
/// assert_eq!(message.payload(), b"187.21");
/// # Ok(()) }
/// ```
pub struct Node {
    shared: Arc<Shared>,
    payload_max: usize,
    message_max: usize,
    /// Wakes the draining thread when the node ends.
    stop: Option<Waker>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Node {
    /// A node that is to send and receive by an interface.
    pub fn builder(interface: impl Into<String>) -> Builder {
        Builder::new(interface.into())
    }

    pub(crate) fn new(
        shared: Arc<Shared>,
        lengths: [usize; 2],
        stop: Option<Waker>,
        threads: Vec<JoinHandle<()>>,
    ) -> Self {
        let [payload_max, message_max] = lengths;
        Self { shared, payload_max, message_max, stop, threads: Mutex::new(threads) }
    }

    /// Joins a group: all that is sent to it from now on is received.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join(&self, group: &str) -> Result<Subscription, JoinError> {
        self.join_with(group, &JoinOptions::default())
    }

    /// Joins a group with options.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join_with(&self, group: &str, options: &JoinOptions) -> Result<Subscription, JoinError> {
        self.join_many_with([group], options)
    }

    /// Joins many groups, all or none, with one queue for all.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join_many<G: AsRef<str>>(
        &self,
        groups: impl IntoIterator<Item = G>,
    ) -> Result<Subscription, JoinError> {
        self.join_many_with(groups, &JoinOptions::default())
    }

    /// Joins many groups with options, all or none, with one queue for all.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join_many_with<G: AsRef<str>>(
        &self,
        groups: impl IntoIterator<Item = G>,
        options: &JoinOptions,
    ) -> Result<Subscription, JoinError> {
        let groups: Vec<G> = groups.into_iter().collect();
        let names: Vec<&str> = groups.iter().map(AsRef::as_ref).collect();
        let ticket = self.shared.join(&names, options)?;
        Ok(Subscription::new(Arc::clone(&self.shared), ticket))
    }

    /// Sends a message to a group, of which this node need not be a member; returns its sequence number in what this node
    /// sends to the group.
    ///
    /// # Errors
    /// [`SendError`]: the payload is too long, the name is none, or the node is gone. That the network loses the message is
    /// no error.
    pub fn send(&self, group: &str, payload: &[u8]) -> Result<u32, SendError> {
        self.sender(group)?.send(payload)
    }

    /// What sends to one group, without looking at its name each time.
    ///
    /// # Errors
    /// [`SendError::Name`].
    pub fn sender(&self, group: &str) -> Result<Sender, SendError> {
        if !is_name(group) {
            return Err(SendError::Name { length: group.len() });
        }
        Ok(Sender::new(Arc::clone(&self.shared), GroupId::of_name(group)))
    }

    /// This life of this node, drawn at random at its start.
    pub fn id(&self) -> NodeId {
        self.shared.id
    }

    /// Where others reach this node: a seed for them.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Longest payload of a message that is sent in one packet, in bytes.
    pub fn payload_max(&self) -> usize {
        self.payload_max
    }

    /// Longest message in bytes to groups that are opened for fragments.
    pub fn message_max(&self) -> usize {
        self.message_max
    }

    /// How many other nodes are known to be in a group.
    pub fn members(&self, group: &str) -> usize {
        self.shared.members(GroupId::of_name(group))
    }

    /// Waits until so many other nodes are known to be in a group, but no longer than `timeout`; returns whether they are.
    pub fn wait_for_members(&self, group: &str, count: usize, timeout: Duration) -> bool {
        self.shared.wait_for_members(GroupId::of_name(group), count, timeout)
    }

    /// Ends the node, as dropping does, for those who share it: says farewell to the others, and gives port and groups back.
    /// What waits in subscriptions can still be received; whoever waits for more, or for members, is told.
    pub fn close(&self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        self.shared.waker.wake();
        if let Some(stop) = &self.stop {
            stop.wake();
        }
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            // A thread that panicked has said so to all who asked.
            let _ = thread.join();
        }
        self.shared.close_sockets();
    }

    /// Everything that is counted, and whom this node knows.
    pub fn status(&self) -> Status {
        self.shared.status()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("id", &self.id())
            .field("address", &self.address())
            .finish_non_exhaustive()
    }
}
