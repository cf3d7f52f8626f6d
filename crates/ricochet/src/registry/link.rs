//! The state that the node and the threads of its registry share: the entry to register, the end of the
//! node, and the state of the registry for the status.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ricochet_core::NodeId;

use super::failure::Failure;
use super::http::Endpoint;
use crate::clock;
use crate::message::RegistryNews;
use crate::status::RegistryStatus;

/// The shared state. Its lock is held for moments only.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// Name of the service.
    kind: &'static str,
    state: Mutex<State>,
    /// Notified when one of the threads has something to do.
    changed: Condvar,
    /// Number of times that the registry was lost or reached.
    changes: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    phase: Phase,
    /// The entry that the node wants to have, and its number.
    entry: Option<(u64, String)>,
    /// Whether the registry lacks the entry that was stored.
    is_missing: bool,
    /// Whether another node has registered this node's address.
    is_taken: bool,
    status: RegistryStatus,
    /// Time of the last answer to this node's requests, and of the last one that came late.
    answered_us: u64,
    late_us: Option<u64>,
    /// Why the changes of entries do not arrive, and why this node's entry is not stored.
    watch_error: Option<String>,
    entry_error: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    #[default]
    Running,
    /// The node leaves, and its entry must go.
    Leaving,
    /// The threads end.
    Closing,
}

/// The next task of the thread that registers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Stores the entry with this number.
    Put(u64, String),
    /// Prolongs the lease.
    KeepAlive,
    /// Removes the entry.
    Remove,
    /// Ends.
    End,
}

impl Link {
    pub(super) fn new(kind: &'static str) -> Self {
        let link = Self { kind, ..Self::default() };
        link.lock().status.kind = kind.to_owned();
        link
    }

    /// Returns a number that rises whenever the registry is lost or reached.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Returns whether the registry is reached, and if not, why; `None` as long as that is not known.
    pub(crate) fn news(&self) -> Option<RegistryNews> {
        let state = self.lock();
        let error = state.watch_error.as_deref().map(Arc::from);
        (state.status.reached || error.is_some()).then_some(RegistryNews { kind: self.kind, error })
    }

    /// Returns the state of the registry.
    pub(crate) fn status(&self) -> RegistryStatus {
        let state = self.lock();
        let error = state.watch_error.as_ref().or(state.entry_error.as_ref()).cloned();
        RegistryStatus { error, ..state.status.clone() }
    }

    /// Sets the entry to register.
    pub(super) fn set_entry(&self, entry: String) {
        let mut state = self.lock();
        let number = state.entry.as_ref().map_or(1, |(number, _)| number + 1);
        state.entry = Some((number, entry));
        self.changed.notify_all();
    }

    /// Notes that the registry has this node's entry. If it had that of another node, this node is registered
    /// again.
    pub(super) fn on_stored(&self) {
        let was_taken = std::mem::take(&mut self.lock().is_taken);
        if was_taken {
            self.on_registered(self.kind);
        }
    }

    /// Notes that the registry lacks this node's entry.
    pub(super) fn on_missing(&self) {
        let mut state = self.lock();
        (state.is_missing, state.is_taken) = (true, false);
        self.changed.notify_all();
    }

    /// Notes that another node has registered this node's address.
    pub(super) fn on_taken(&self, by: NodeId) {
        let mut state = self.lock();
        (state.status.registered, state.is_taken) = (false, true);
        let error = format!(
            "expected the entry of this node, saw that of {by} with the same address; give each cluster its own \
             prefix"
        );
        tracing::warn!(error, "this node is not registered");
        state.entry_error = Some(error);
    }

    /// Lets the entry be removed, and waits for that, but at most for `patience`. Returns whether it was.
    pub(super) fn leave(&self, patience: Duration) -> bool {
        let mut state = self.lock();
        if state.phase > Phase::Running {
            return true;
        }
        state.phase = Phase::Leaving;
        self.changed.notify_all();
        let is_leaving = |state: &mut State| state.phase == Phase::Leaving;
        let waited = self.changed.wait_timeout_while(state, patience, is_leaving);
        let (mut state, result) = waited.unwrap_or_else(PoisonError::into_inner);
        state.phase = Phase::Closing;
        drop(state);
        self.changed.notify_all();
        !result.timed_out()
    }

    /// Ends the threads, without a word to the registry.
    pub(super) fn close(&self) {
        self.lock().phase = Phase::Closing;
        self.changed.notify_all();
    }

    pub(super) fn is_closing(&self) -> bool {
        self.lock().phase != Phase::Running
    }

    /// Waits, at most until the node is closed. Returns whether it was.
    pub(super) fn pause(&self, span: Duration) -> bool {
        let state = self.lock();
        let waited =
            self.changed.wait_timeout_while(state, span, |state: &mut State| state.phase == Phase::Running);
        waited.unwrap_or_else(PoisonError::into_inner).0.phase != Phase::Running
    }

    /// Waits until there is something to do: the entry differs from the one with the number `stored`, or the
    /// time to prolong the lease has come.
    pub(super) fn next_task(&self, stored: Option<u64>, keep_alive_us: u64) -> Task {
        let mut state = self.lock();
        loop {
            match state.phase {
                Phase::Running => {}
                Phase::Leaving => return Task::Remove,
                Phase::Closing => return Task::End,
            }
            let is_missing = std::mem::take(&mut state.is_missing);
            if let Some((number, entry)) = &state.entry
                && (is_missing || stored != Some(*number))
            {
                return Task::Put(*number, entry.clone());
            }
            let now_us = clock::now_us();
            if stored.is_some() && now_us >= keep_alive_us {
                return Task::KeepAlive;
            }
            let span = if stored.is_some() { keep_alive_us - now_us } else { 1_000_000 };
            let waited = self.changed.wait_timeout(state, Duration::from_micros(span));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Notes that the entry was removed, or cannot be.
    pub(super) fn on_removed(&self) {
        self.close();
    }

    /// Notes that the entry is stored, or its lease prolonged.
    pub(super) fn on_registered(&self, name: &str) {
        let mut state = self.lock();
        if state.is_taken {
            return;
        }
        state.entry_error = None;
        if !std::mem::replace(&mut state.status.registered, true) {
            state.status.registrations += 1;
            tracing::info!("this node is registered in {name}");
        }
    }

    /// Notes an answer to this node's requests, which come at least once in `period_us`.
    pub(super) fn on_answer(&self, now_us: u64, period_us: u64) {
        let mut state = self.lock();
        if state.answered_us > 0 && now_us > state.answered_us + period_us {
            state.late_us = Some(now_us);
        }
        state.answered_us = now_us;
    }

    /// Returns whether an answer is overdue, or came late within the last `memory_us`.
    pub(super) fn is_stalled(&self, now_us: u64, period_us: u64, memory_us: u64) -> bool {
        let state = self.lock();
        let is_overdue = state.answered_us > 0 && now_us > state.answered_us + period_us;
        is_overdue || state.late_us.is_some_and(|late_us| now_us < late_us + memory_us)
    }

    /// Notes that the entry is not stored.
    pub(super) fn on_unregistered(&self, name: &str, failure: &Failure) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.status.registered, false) {
            tracing::warn!(error = %failure, "this node may be removed from {name}; it tries to register again");
        }
        state.entry_error = Some(failure.to_string());
    }

    /// Notes that all entries were read.
    pub(super) fn on_listed(&self) {
        self.lock().status.lists += 1;
    }

    /// Notes that changes of entries arrive.
    pub(super) fn on_reached(&self, name: &str, endpoint: &Endpoint) {
        let mut state = self.lock();
        state.watch_error = None;
        let status = &mut state.status;
        status.endpoint = Some(endpoint.to_string());
        if !std::mem::replace(&mut status.reached, true) {
            self.changes.fetch_add(1, Ordering::SeqCst);
            tracing::info!(%endpoint, "{name} is reached, and its changes are followed");
        }
    }

    /// Notes that changes of entries do not arrive.
    pub(super) fn on_away(&self, name: &str, failure: &Failure) {
        let mut state = self.lock();
        state.status.reached = false;
        if state.watch_error.replace(failure.to_string()).is_none() {
            state.status.lost += 1;
            self.changes.fetch_add(1, Ordering::SeqCst);
            tracing::warn!(error = %failure, "{name} cannot be reached; the members stay as they are known");
        }
    }

    /// Notes an entry that cannot be read.
    pub(super) fn on_unreadable(&self, key: &str, why: &str) {
        let mut state = self.lock();
        state.status.unreadable += 1;
        tracing::warn!(key = %format_args!("{key:.200}"), error = why, "an entry of the registry is ignored");
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR_US: u64 = 1 << 60;

    #[test]
    fn the_newest_entry_is_stored_once_and_again_if_the_registry_lacks_it() {
        let link = Link::new("etcd");
        link.set_entry("one".to_owned());
        link.set_entry("two".to_owned());
        assert_eq!(link.next_task(None, FAR_US), Task::Put(2, "two".to_owned()));
        assert_eq!(link.next_task(Some(2), 0), Task::KeepAlive);
        link.on_missing();
        assert_eq!(link.next_task(Some(2), 0), Task::Put(2, "two".to_owned()));
        assert_eq!(link.next_task(Some(2), 0), Task::KeepAlive);
        assert!(!link.leave(Duration::ZERO), "no thread has removed the entry");
        assert_eq!((link.next_task(Some(2), 0), link.pause(Duration::from_secs(60))), (Task::End, true));
    }

    #[test]
    fn a_node_that_leaves_waits_until_its_entry_is_removed() {
        let link = Link::new("etcd");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(link.next_task(None, FAR_US), Task::Remove);
                link.on_removed();
            });
            assert!(link.leave(Duration::from_secs(60)));
        });
        assert!(link.leave(Duration::ZERO), "it has left already");
    }

    #[test]
    fn a_registry_that_answers_late_is_doubted_for_a_while() {
        let link = Link::new("etcd");
        let is_stalled = |now_us| link.is_stalled(now_us, 100, 1_000);
        assert!(!is_stalled(5_000), "it was never asked");
        link.on_answer(5_000, 100);
        link.on_answer(5_100, 100);
        assert!(!is_stalled(5_200));
        assert!(is_stalled(5_201), "the next answer is overdue");
        link.on_answer(5_300, 100);
        assert!(is_stalled(5_301), "it came late");
        (6..).map(|step| step * 1_000 / 10 + 4_800).take(9).for_each(|now_us| link.on_answer(now_us, 100));
        assert_eq!((is_stalled(6_299), is_stalled(6_300)), (true, false));
    }

    #[test]
    fn a_node_whose_address_another_one_registered_says_so_until_that_one_is_gone() {
        let link = Link::new("etcd");
        link.set_entry("one".to_owned());
        link.on_registered("etcd");
        assert_eq!((link.status().registered, link.status().registrations), (true, 1));
        link.on_taken(NodeId(7));
        // The lease is prolonged, but the entry is that of the other node.
        link.on_registered("etcd");
        let status = link.status();
        assert!(!status.registered);
        let error = status.error.unwrap();
        assert!(error.contains("saw that of 00000007") && error.contains("its own prefix"), "{error}");
        link.on_missing();
        assert_eq!(link.next_task(Some(1), FAR_US), Task::Put(1, "one".to_owned()));
        link.on_registered("etcd");
        let status = link.status();
        assert_eq!((status.registered, status.registrations, status.error), (true, 2, None));
        // Both have stored their entries at once, and this node's was the later one.
        link.on_taken(NodeId(7));
        link.on_stored();
        let status = link.status();
        assert_eq!((status.registered, status.registrations, status.error), (true, 3, None));
    }

    #[test]
    fn an_outage_is_counted_once_and_its_cause_told_until_it_ends() {
        let link = Link::new("etcd");
        let endpoint = Endpoint::parse("http://10.0.0.1:2379").unwrap();
        let away = || link.on_away("etcd", &Failure::Ended);
        assert_eq!(link.news(), None, "nothing is known yet");
        away();
        away();
        let status = link.status();
        assert_eq!((status.lost, status.reached, status.error.is_some()), (1, false, true));
        let error = |link: &Link| link.news().map(|news| news.error().is_some());
        assert_eq!((link.changes(), error(&link)), (1, Some(true)));
        link.on_reached("etcd", &endpoint);
        let status = link.status();
        assert_eq!((status.reached, status.error), (true, None));
        assert_eq!((link.changes(), error(&link)), (2, Some(false)));
        assert_eq!(status.endpoint.as_deref(), Some("http://10.0.0.1:2379"));
        away();
        assert_eq!(link.status().lost, 2);
    }
}
