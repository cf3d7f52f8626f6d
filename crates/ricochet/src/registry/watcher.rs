//! Follows the entries of a registry, on a thread of its own: reads all of them, then their changes, and
//! everything again whenever a change may have been missed.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use super::backoff::Backoff;
use super::failure::Failure;
use super::http::{Endpoint, Line, Response};
use super::link::Link;
use crate::wake::Waker;

/// Interval between looks whether the node is being closed.
const TICK: Duration = Duration::from_millis(500);
/// Interval between looks for news if nothing wakes the node.
const LOOK_US: u64 = 50_000;
/// Maximum number of news that wait for the node. Then they wait in the connection.
const NEWS_MAX: usize = 1_024;

/// All entries, and the position in the changes at which they were read.
pub(super) struct Found<N> {
    pub(super) all: N,
    pub(super) position: String,
}

/// A service that tells its entries and their changes.
pub(super) trait Service: Send + 'static {
    /// Its news.
    type News: Send + 'static;
    /// Name of the service for people.
    const NAME: &'static str;

    /// Returns all entries.
    fn list(&mut self, endpoint: &Endpoint, link: &Link) -> Result<Found<Self::News>, Failure>;

    /// Opens the stream of changes after a position.
    fn watch(&mut self, endpoint: &Endpoint, position: &str) -> Result<Response, Failure>;

    /// Reads a line of that stream.
    fn read(&mut self, line: &[u8], position: &str, link: &Link) -> Result<Vec<Self::News>, Failure>;

    /// Returns the news that the service cannot be reached, if they matter.
    fn away() -> Option<Self::News>;
}

/// The thread's end of the way to the node.
pub(super) struct Sender<N> {
    news: SyncSender<N>,
    is_fresh: Arc<AtomicBool>,
    waker: Option<Waker>,
}

/// The node's end.
#[derive(Debug)]
pub(super) struct Inbox<N> {
    news: Receiver<N>,
    is_fresh: Arc<AtomicBool>,
    /// Time of the next look, if nothing wakes the node.
    next_look_us: Option<u64>,
}

/// Returns the two ends of a way from a thread to the node, which `waker` wakes. Without one, the node looks
/// from time to time.
pub(super) fn way<N>(waker: Option<Waker>) -> (Sender<N>, Inbox<N>) {
    let (sender, receiver) = sync_channel(NEWS_MAX);
    let is_fresh = Arc::new(AtomicBool::new(false));
    let next_look_us = waker.is_none().then_some(0);
    let inbox = Inbox { news: receiver, is_fresh: Arc::clone(&is_fresh), next_look_us };
    (Sender { news: sender, is_fresh, waker }, inbox)
}

impl<N> Sender<N> {
    /// Sends news, and waits while there is no room.
    fn send(&self, news: N) -> Result<(), Failure> {
        self.news.send(news).map_err(|_| Failure::Closing)?;
        // After the news are there, so that a node which looks because of it finds them.
        self.is_fresh.store(true, Ordering::SeqCst);
        self.wake();
        Ok(())
    }

    /// Lets the node look whether the registry is reached.
    fn wake(&self) {
        self.waker.iter().for_each(Waker::wake);
    }
}

impl<N> Inbox<N> {
    /// Returns the time at which the node looks for news: at once if there may be some.
    pub(super) fn due_us(&self) -> Option<u64> {
        if self.is_fresh.load(Ordering::SeqCst) { Some(0) } else { self.next_look_us }
    }

    /// Returns the news that have come.
    pub(super) fn take(&mut self, now_us: u64) -> Vec<N> {
        self.next_look_us = self.next_look_us.map(|_| now_us + LOOK_US);
        if !self.is_fresh.swap(false, Ordering::SeqCst) {
            return Vec::new();
        }
        self.news.try_iter().collect()
    }
}

/// Follows a service until the node is closed.
pub(super) fn run<S: Service>(
    mut service: S,
    endpoints: &[Endpoint],
    link: &Link,
    news: &Sender<S::News>,
    mut backoff: Backoff,
) {
    // The number of the endpoint in use, and the number of those that have failed since one was reached.
    let (mut at, mut failed) = (0, 0);
    loop {
        let endpoint = &endpoints[at % endpoints.len()];
        let Err(failure) = follow(&mut service, endpoint, link, news, |link| {
            link.on_reached(S::NAME, endpoint);
            news.wake();
            failed = 0;
            backoff.reset();
        });
        match failure {
            Failure::Closing => return,
            // The next list tells whether the service is there.
            Failure::Compacted | Failure::Ended => {}
            failure => {
                failed += 1;
                at += 1;
                if failed >= endpoints.len() {
                    link.on_away(S::NAME, &failure);
                    news.wake();
                    if S::away().is_some_and(|away| news.send(away).is_err()) {
                        return;
                    }
                }
            }
        }
        if link.pause(backoff.next()) {
            return;
        }
    }
}

/// Follows a service until that fails. Calls `on_reached` when the changes begin to arrive.
fn follow<S: Service>(
    service: &mut S,
    endpoint: &Endpoint,
    link: &Link,
    news: &Sender<S::News>,
    mut on_reached: impl FnMut(&Link),
) -> Result<Infallible, Failure> {
    let Found { all, position } = service.list(endpoint, link)?;
    news.send(all)?;
    link.on_listed();
    let mut changes = service.watch(endpoint, &position)?;
    let mut is_reached = false;
    loop {
        let line = changes.next_line(TICK)?;
        if let Line::Text(line) = &line
            && !line.trim_ascii().is_empty()
        {
            for change in service.read(line, &position, link)? {
                news.send(change)?;
            }
        }
        if line == Line::End {
            return Err(Failure::Ended);
        }
        // Neither an error at once nor the end: the stream works.
        if !std::mem::replace(&mut is_reached, true) {
            on_reached(link);
        }
        if link.is_closing() {
            return Err(Failure::Closing);
        }
    }
}
