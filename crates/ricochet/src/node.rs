//! A running node as the application holds it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ricochet_core::{GroupId, NodeId};

use crate::error::{JoinError, RekeyError, RequestError, SendError};
use crate::group_name::{NameMistake, check_group_name};
use crate::joining::JoinOptions;
use crate::key::ClusterKey;
use crate::message::{Member, Message};
use crate::sender::Sender;
use crate::shared::Shared;
use crate::status::Status;
use crate::subscription::Subscription;
use crate::wake::Waker;

/// A node of a cluster: joins groups, and sends to any group. Dropping it announces
/// to the others that it leaves.
///
/// A node belongs to the process that started it. After a fork, each call of the child fails with a text that
/// says so, also for senders and subscriptions, or returns that there are no members and messages. Closing
/// and dropping them there does nothing to the node. The child may start another node, with another port if
/// that is set, because the sockets stay open in the child as long as it runs.
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
    pub(crate) shared: Arc<Shared>,
    limits: Limits,
    /// Wakes the draining thread when the node ends.
    stop: Option<Waker>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Time for which a node that is closed waits for its readers.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);
/// Time for which it waits until it is known which members hear its multicast.
const TEST_PATIENCE: Duration = Duration::from_millis(1_500);

/// Maximum lengths of what a node sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum payload of a message in one packet, in bytes.
    pub(crate) payload_max: usize,
    /// Maximum length of a message in several packets, in bytes.
    pub(crate) message_max: usize,
}

impl Node {
    pub(crate) fn new(
        shared: Arc<Shared>,
        limits: Limits,
        stop: Option<Waker>,
        threads: Vec<JoinHandle<()>>,
    ) -> Self {
        Self { shared, limits, stop, threads: Mutex::new(threads) }
    }

    /// Joins a group. The subscription receives all messages sent to it from this moment on. A name with `*`
    /// is a pattern: the subscription joins all groups with matching names that other nodes have joined or
    /// send to, as they appear. `*` stands for any characters but `/`, `**` for any.
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

    /// Joins several groups, all or none, with one queue for all.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join_many<G: AsRef<str>>(
        &self,
        groups: impl IntoIterator<Item = G>,
    ) -> Result<Subscription, JoinError> {
        self.join_many_with(groups, &JoinOptions::default())
    }

    /// Joins several groups with options, all or none, with one queue for all.
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
        let handle = self.shared.join(&names, options)?;
        Ok(Subscription::new(Arc::clone(&self.shared), handle))
    }

    /// Sends a message to a group, and returns its sequence number among this node's messages to the group.
    /// The node need not be a member of the group. Waits as [`Sender::send`] does.
    ///
    /// # Errors
    /// [`SendError`]: the payload is too long, the name is invalid, or the node has ended. A loss in the
    /// network is not an error.
    pub fn send(&self, group: &str, payload: &[u8]) -> Result<u32, SendError> {
        self.sender(group)?.send(payload)
    }

    /// Returns a handle that sends to one group and does not check the name each time.
    ///
    /// # Errors
    /// [`SendError::Name`], [`SendError::Pattern`]; [`SendError::Failed`] in the child of a fork.
    pub fn sender(&self, group: &str) -> Result<Sender, SendError> {
        check_group_name(group).map_err(|mistake| match mistake {
            NameMistake::Length => SendError::Name { length: group.len() },
            NameMistake::Pattern => SendError::Pattern { name: group.to_owned() },
        })?;
        self.shared.check_process()?;
        self.shared.names.lock().unwrap_or_else(PoisonError::into_inner).on_sender(group);
        Ok(Sender::new(Arc::clone(&self.shared), GroupId::of_name(group)))
    }

    /// Sends a request to a group, and returns the first reply of a member.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # let quiet = || ricochet::Node::builder("lo").address([127, 0, 0, 1]).unicast(true).port(0);
    /// let server = quiet().start()?;
    /// let questions = server.join("sums")?;
    /// let client = quiet().seed(server.address().to_string()).start()?;
    /// # assert!(client.wait_for_members("sums", 1, Duration::from_secs(20)));
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| {
    ///         let question = questions.recv().expect("the node runs");
    ///         server.reply(&question, b"4")
    ///     });
    ///     let answer = client.request("sums", b"2 + 2", Duration::from_secs(20))?;
    ///     assert_eq!(answer.payload(), b"4");
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// Replies are messages to a group of this node's own. Members learn of that group with the first
    /// request, which therefore takes longer if `node.unicast` is set.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn request(&self, group: &str, payload: &[u8], timeout: Duration) -> Result<Message, RequestError> {
        let first = self.request_all(group, payload, 1, timeout)?.pop();
        let members = || self.members(group);
        first.ok_or_else(|| RequestError::NoReply { seconds: timeout.as_secs_f64(), members: members() })
    }

    /// Sends a request to a group, and returns all replies that come until the timeout is over, but at most
    /// `replies_max`.
    ///
    /// # Errors
    /// [`RequestError`], but not that there is no reply.
    pub fn request_all(
        &self,
        group: &str,
        payload: &[u8],
        replies_max: usize,
        timeout: Duration,
    ) -> Result<Vec<Message>, RequestError> {
        self.request_all_while(group, payload, replies_max, timeout, || true)
    }

    /// Does the same, and asks `keep_waiting` at least ten times a second. Once that returns false, the wait
    /// ends as if the timeout were over.
    ///
    /// # Errors
    /// [`RequestError`], but not that there is no reply.
    pub fn request_all_while(
        &self,
        group: &str,
        payload: &[u8],
        replies_max: usize,
        timeout: Duration,
        mut keep_waiting: impl FnMut() -> bool,
    ) -> Result<Vec<Message>, RequestError> {
        let mut replies = Vec::new();
        let id = self.sender(group)?.group();
        let take = |reply: Message| {
            replies.push(reply);
            replies.len() < replies_max
        };
        self.shared.request(id, payload, timeout, take, &mut keep_waiting)?;
        Ok(replies)
    }

    /// Replies to a request ([`Message::is_request`]), of any length that the node sends. Returns the
    /// sequence number of the reply among those to the requester.
    ///
    /// # Errors
    /// [`SendError`], for example [`SendError::NotARequest`].
    pub fn reply(&self, request: &Message, payload: &[u8]) -> Result<u32, SendError> {
        self.shared.reply(request, payload, None)
    }

    /// Replies to a request, and waits for room at the requester at most until the timeout is over.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] if there was no room; then nothing was sent. Any other [`SendError`].
    pub fn reply_timeout(
        &self,
        request: &Message,
        payload: &[u8],
        timeout: Duration,
    ) -> Result<u32, SendError> {
        self.shared.reply(request, payload, Some(timeout))
    }

    /// Reads the cluster keys from the configured file again, as the node does by itself within a second
    /// after a change of the file. Returns their number.
    ///
    /// # Errors [`RekeyError`]; then the node continues with the keys that it has.
    pub fn reload_keys(&self) -> Result<usize, RekeyError> {
        self.shared.reload_keys()
    }

    /// Continues with other cluster keys. The node signs with the first and accepts all.
    ///
    /// # Errors
    /// [`RekeyError`]; then the node continues with the keys that it has.
    pub fn set_keys(&self, keys: &[ClusterKey]) -> Result<(), RekeyError> {
        self.shared.set_keys(keys)
    }

    /// Returns the identifier of this life of the node, drawn at random at its start.
    pub fn id(&self) -> NodeId {
        self.shared.id
    }

    /// Returns the address at which others reach this node, and which serves them as a seed address.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Returns the maximum payload in bytes of a message that is sent in one packet.
    pub fn payload_max(&self) -> usize {
        self.limits.payload_max
    }

    /// Returns the maximum length in bytes of a message to a group that allows fragments.
    pub fn message_max(&self) -> usize {
        self.limits.message_max
    }

    /// Returns the number of other nodes known to be in a group.
    pub fn members(&self, group: &str) -> usize {
        self.shared.members(GroupId::of_name(group))
    }

    /// Returns the other nodes known to be in a group.
    pub fn member_list(&self, group: &str) -> Vec<Member> {
        self.shared.member_list(GroupId::of_name(group))
    }

    /// Waits until at least `count` other nodes are known to be in a group, at most until the timeout is over
    /// or the node has [ended](Self::ended). Returns whether there are that many.
    pub fn wait_for_members(&self, group: &str, count: usize, timeout: Duration) -> bool {
        self.shared.wait_for_members(GroupId::of_name(group), count, timeout)
    }

    /// Waits until all messages have been sent, at most until the timeout is over or the node has
    /// [ended](Self::ended). Returns whether they have.
    pub fn flush(&self, timeout: Duration) -> bool {
        !self.shared.is_forked() && self.shared.wait_until_sent(timeout) == 0
    }

    /// Returns why the node has ended, if it has: [`SendError::Closed`] or [`SendError::Failed`]. Messages
    /// that wait then are not sent any more.
    pub fn ended(&self) -> Option<SendError> {
        self.shared.ended().map(SendError::from)
    }

    /// Ends the node, as dropping does, for threads that share it: announces to the others that it leaves,
    /// and releases its port and groups. Queued messages can still be received. Threads that wait for further
    /// messages, for members or for room return.
    /// Waits for at most two seconds until messages that wait for their readers have been sent, and until
    /// it is known whether the members hear this node's multicast.
    pub fn close(&self) {
        if self.shared.is_forked() {
            return;
        }
        if self.shared.ended().is_none() {
            if !self.flush(CLOSE_PATIENCE) {
                let packets = self.shared.outgoing.len();
                tracing::warn!(packets, "the node is closed before its readers had room for all packets");
            }
            self.shared.wait_for_tests(TEST_PATIENCE);
        }
        self.shared.closing.store(true, Ordering::SeqCst);
        self.shared.sleep.waker().wake();
        if let Some(stop) = &self.stop {
            stop.wake();
        }
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            // A panic of the thread has been reported to all subscriptions already.
            let _ = thread.join();
        }
        self.shared.close_sockets();
    }

    /// Returns the counters of the node, and the nodes that it knows.
    pub fn status(&self) -> Status {
        self.shared.status()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.shared.is_forked() {
            // The threads are not in this process, so that nobody may detach or join them, and what they own
            // must not be freed.
            let threads = self.threads.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget((std::mem::take(threads), Arc::clone(&self.shared)));
        }
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
