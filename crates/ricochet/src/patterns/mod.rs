//! Subscriptions to patterns: the groups of a cluster whose names match, as they appear.
//!
//! The membership tells which groups members are in, but not their names. A node with patterns therefore asks
//! the other nodes for the names of groups that they have joined or send to ([`wire`]), and joins those that
//! match. `driver/names.rs` sends the questions and the answers.

pub(crate) mod wire;

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use hashbrown::HashSet;

use crate::error::JoinError;
use crate::group_name::GROUP_NAME_MAX;
use crate::joining::{Entrant, JoinOptions, SubscriptionHandle};
use crate::message::{Event, GroupChange, GroupNews};
use crate::queue::Queue;
use crate::shared::Shared;

/// Maximum number of patterns of a node.
const PATTERNS_MAX: usize = 64;
/// Maximum number of groups that a pattern finds.
const FOUND_MAX: usize = 1_000;

/// The longest name fits a datagram.
const _: () = assert!(wire::NAMES_MAX == GROUP_NAME_MAX + 2);
/// Maximum number of names of groups that a node sends to.
const SENT_MAX: usize = 1 << 16;

/// Names of the groups that this node has joined or sends to.
#[derive(Debug, Default)]
pub(crate) struct Names {
    joined: BTreeSet<Arc<str>>,
    sent: BTreeSet<Arc<str>>,
    /// Number of changes, from 1 on after the first.
    version: u64,
}

impl Names {
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Notes groups that this node has joined.
    pub(crate) fn on_joined(&mut self, names: impl Iterator<Item = Arc<str>>) {
        let before = self.joined.len();
        self.joined.extend(names);
        self.version += u64::from(self.joined.len() > before);
    }

    /// Notes a group that this node has left.
    pub(crate) fn on_left(&mut self, name: &str) {
        self.joined.remove(name);
    }

    /// Notes a group that this node may send to.
    pub(crate) fn on_sender(&mut self, name: &str) {
        if self.sent.len() < SENT_MAX && !self.sent.contains(name) {
            self.sent.insert(name.into());
            self.version += 1;
        }
    }

    /// Returns the names that match a pattern, each once, in order.
    pub(crate) fn matching(&self, pattern: &str) -> Vec<Arc<str>> {
        let all = self.joined.union(&self.sent);
        all.filter(|name| matches(pattern, name)).map(Arc::clone).collect()
    }
}

/// The patterns of a node.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    patterns: Vec<Pattern>,
    next_id: u32,
}

/// A pattern of a subscription.
#[derive(Debug)]
struct Pattern {
    id: u32,
    text: Arc<str>,
    consumer: usize,
    queue: Arc<Queue>,
    options: JoinOptions,
    found: HashSet<Arc<str>>,
    /// Whether the subscription knows that it has found as many groups as it may.
    is_full: bool,
}

impl Patterns {
    /// Returns the patterns and their numbers.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (u32, Arc<str>)> + '_ {
        self.patterns.iter().map(|pattern| (pattern.id, Arc::clone(&pattern.text)))
    }

    /// Ends the patterns of a subscription.
    pub(crate) fn remove(&mut self, handle: &SubscriptionHandle) {
        self.patterns.retain(|pattern| !Arc::ptr_eq(&pattern.queue, &handle.queue));
    }
}

impl Shared {
    /// Adds patterns to a subscription.
    pub(crate) fn add_patterns(
        &self,
        handle: &SubscriptionHandle,
        texts: &[Arc<str>],
        options: &JoinOptions,
    ) -> Result<(), JoinError> {
        let mut patterns = self.patterns.lock().unwrap_or_else(PoisonError::into_inner);
        if patterns.patterns.len() + texts.len() > PATTERNS_MAX {
            return Err(JoinError::TooManyPatterns { max: PATTERNS_MAX });
        }
        for text in texts {
            let id = patterns.next_id;
            patterns.next_id += 1;
            patterns.patterns.push(Pattern {
                id,
                text: Arc::clone(text),
                consumer: handle.consumer,
                queue: Arc::clone(&handle.queue),
                options: *options,
                found: HashSet::new(),
                is_full: false,
            });
        }
        drop(patterns);
        self.sleep.wake_before(1);
        Ok(())
    }

    /// Lets a subscription join a group whose name matches one of its patterns, unless it has.
    pub(crate) fn on_found(&self, id: u32, name: &Arc<str>) {
        let mut patterns = self.patterns.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(pattern) = patterns.patterns.iter_mut().find(|pattern| pattern.id == id) else { return };
        if pattern.found.contains(name) {
            return;
        }
        let (queue, options, consumer) = (Arc::clone(&pattern.queue), pattern.options, pattern.consumer);
        let text = Arc::clone(&pattern.text);
        let tell = |change| {
            let (group, pattern) = (Arc::clone(name), Arc::clone(&text));
            queue.push_news(Event::Group(GroupNews { group, pattern, change }))
        };
        if pattern.found.len() >= FOUND_MAX {
            if !std::mem::replace(&mut pattern.is_full, true) {
                drop(patterns);
                tracing::warn!(pattern = &*text, FOUND_MAX, "a pattern has found as many groups as it may");
                tell(GroupChange::Refused(format!(
                    "expected at most {FOUND_MAX} groups that match a pattern, saw one more; use a pattern that \
                     matches fewer, or several"
                )))
                .wake();
            }
            return;
        }
        pattern.found.insert(Arc::clone(name));
        drop(patterns);
        let group = (ricochet_core::GroupId::of_name(name), Arc::clone(name));
        match self.enter(Entrant::Known(consumer, &queue), &[group], &options) {
            Ok(_) => tell(GroupChange::Found).wake(),
            Err(JoinError::Closed) => {}
            Err(error) => {
                tracing::warn!(pattern = &*text, group = &**name, %error, "a group that matches is not joined");
                tell(GroupChange::Refused(error.to_string())).wake();
            }
        }
    }
}

/// Returns whether a name matches a pattern: `*` stands for any characters but `/`, `**` for any. Names that
/// begin with `_` are not meant for applications, and match only patterns that begin so.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    if name.first() == Some(&b'_') && pattern.first() != Some(&b'_') {
        return false;
    }
    // Which beginnings of the name the pattern matches so far.
    let mut matched = vec![false; name.len() + 1];
    matched[0] = true;
    let mut rest = pattern;
    while let Some((&byte, after)) = rest.split_first() {
        let is_deep = after.first() == Some(&b'*');
        if byte == b'*' {
            for at in 0..name.len() {
                matched[at + 1] |= matched[at] && (is_deep || name[at] != b'/');
            }
            rest = if is_deep { &after[1..] } else { after };
            continue;
        }
        for at in (0..name.len()).rev() {
            matched[at + 1] = matched[at] && name[at] == byte;
        }
        matched[0] = false;
        if !matched.contains(&true) {
            return false;
        }
        rest = after;
    }
    matched[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stays_within_a_part_of_the_name_and_two_do_not() {
        for (pattern, name, expected) in [
            ("prices/*", "prices/AAPL", true),
            ("prices/*", "prices/", true),
            ("prices/*", "prices", false),
            ("prices/*", "prices/us/AAPL", false),
            ("prices/**", "prices/us/AAPL", true),
            ("**/AAPL", "prices/us/AAPL", true),
            ("*/AAPL", "prices/us/AAPL", false),
            ("*/*/A*L", "prices/us/AAPL", true),
            ("*/*/A*L", "prices/us/AAP", false),
            ("*", "prices", true),
            ("*", "", true),
            ("**", "a/b/c", true),
            ("a*b*c", "abbbc", true),
            ("a*b*c", "acb", false),
            ("**", "_inbox/0000002a", false),
            ("_inbox/*", "_inbox/0000002a", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
        assert!(!matches(&"*a".repeat(128), &"ab".repeat(512)), "in bounded time");
    }

    #[test]
    fn names_are_told_once_and_changes_have_numbers() {
        let mut names = Names::default();
        names.on_joined(["a/1", "b/1"].map(Arc::from).into_iter());
        names.on_sender("a/1");
        names.on_sender("a/2");
        let version = names.version();
        names.on_sender("a/2");
        names.on_joined(["a/1"].map(Arc::from).into_iter());
        assert_eq!(names.version(), version, "nothing new");
        assert_eq!(names.matching("a/*"), ["a/1", "a/2"].map(Arc::from));
        names.on_left("a/1");
        assert_eq!(names.matching("a/*").len(), 2, "this node still sends to it");
    }
}
