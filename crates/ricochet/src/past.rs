//! Messages from before a subscription: which part of them it wants, and how it gets them.
//!
//! The first subscription of a node to a group reads them from another member: the core does so, before it
//! takes part in the group. A further subscription gets what this node itself keeps, at once.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use ricochet_core::message::Message as CoreMessage;
use ricochet_core::{GroupId, HistoryNews, Wish};

use crate::message::{Event, History};
use crate::outward::{Joined, Outward};
use crate::shared::Core;

/// The first message that a subscription gets.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ricochet::{JoinOptions, Start};
/// # let quiet = || ricochet::Node::builder("lo").address([127, 0, 0, 1]).unicast(true).port(0);
/// let member = quiet().start()?;
/// let kept = member.join("prices/AAPL")?;
/// let sender = quiet().seed(member.address().to_string()).start()?;
/// # assert!(sender.wait_for_members("prices/AAPL", 1, std::time::Duration::from_secs(20)));
/// for price in ["187.21", "187.22", "187.23"] {
///     sender.send("prices/AAPL", price.as_bytes())?;
/// }
/// # (0..3).for_each(|_| drop(kept.recv()));
/// let late = quiet().seed(member.address().to_string()).start()?;
/// let options = JoinOptions { from: Start::Last(2), ..JoinOptions::default() };
/// let prices = late.join_with("prices/AAPL", &options)?;
/// assert_eq!(prices.recv()?.payload(), b"187.22");
/// assert_eq!(prices.recv()?.payload(), b"187.23");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// The first that is sent after the subscription.
    #[default]
    Live,
    /// The first of the newest messages, as many as given.
    Last(u64),
    /// The first that was sent in this time before the subscription.
    Since(Duration),
    /// The last value of each key, those of one sender in their order
    /// ([`Sender::send_keyed`](crate::Sender::send_keyed)). Then the first message that was sent after the
    /// subscription.
    ///
    /// `Event::History` states that these are the values of all keys only if the member that they come from
    /// has joined in this way too, and has forgotten none.
    LastPerKey,
}

impl Start {
    pub(crate) fn wish(self) -> Option<Wish> {
        match self {
            Self::Live => None,
            Self::Last(count) => Some(Wish::Last(count)),
            Self::Since(age) => Some(Wish::Since(u64::try_from(age.as_micros()).unwrap_or(u64::MAX))),
            Self::LastPerKey => Some(Wish::LastPerKey),
        }
    }
}

/// Returns whether members keep a part of the history that is wanted. Of a group that was silent they keep
/// nothing, and nothing is amiss.
fn is_short(news: HistoryNews) -> bool {
    matches!(news, HistoryNews::Begins { messages: 1.., is_complete: false })
}

/// Messages of the past that a consumer gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All that this node reads.
    All,
    /// Those that came to the member that it reads from since this time.
    Since(u64),
    /// None until this node has read all; then those that it wishes.
    Later(Wish),
}

/// The consumers of a group whose history this node reads.
#[derive(Debug, Default)]
pub(crate) struct Past {
    /// Reading of the history that is to begin.
    pub(crate) wish: Option<Wish>,
    /// The consumers; none if this node takes part in the group.
    pub(crate) parts: HashMap<usize, Part>,
    /// Whether this node has begun with the last values of keys. Later messages with older values are left
    /// out then.
    pub(crate) is_keyed: bool,
}

impl Past {
    /// Returns whether this node does not take part in the group yet.
    pub(crate) fn is_open(&self) -> bool {
        self.wish.is_some() || !self.parts.is_empty()
    }

    /// Returns whether a consumer gets nothing until this node has read the history.
    pub(crate) fn is_later(&self, consumer: usize) -> bool {
        matches!(self.parts.get(&consumer), Some(Part::Later(_)))
    }

    /// Returns whether a consumer gets a message now.
    pub(crate) fn takes(&self, consumer: usize, message: &CoreMessage<'_>) -> bool {
        match self.parts.get(&consumer) {
            None | Some(Part::All) => true,
            Some(Part::Since(since_us)) => message.past_us.is_none_or(|at_us| at_us >= *since_us),
            Some(Part::Later(_)) => false,
        }
    }
}

impl Joined {
    /// Adds a consumer. Returns whether it must get what this node keeps.
    pub(crate) fn add(&mut self, now_us: u64, consumer: usize, wish: Option<Wish>, is_new: bool) -> bool {
        self.consumers.push(consumer);
        if is_new {
            self.past.wish = wish;
            self.past.is_keyed = wish == Some(Wish::LastPerKey);
        }
        let part = match wish {
            _ if !is_new && !self.past.is_open() => return wish.is_some(),
            None if !self.past.is_open() => return false,
            None => Part::Since(now_us),
            Some(_) if is_new => Part::All,
            Some(wish) => Part::Later(wish),
        };
        self.past.parts.insert(consumer, part);
        false
    }
}

impl Outward {
    /// Returns whether the subscriptions that get the history of a group have room.
    pub(crate) fn has_room_for_past(&self, group: GroupId, messages: u32) -> bool {
        let Some(joined) = self.groups.get(&group) else { return true };
        let all = joined.past.parts.iter().filter(|(_, part)| !matches!(part, Part::Later(_)));
        let mut consumers = all.filter_map(|(&at, _)| self.consumers.get(at)?.as_ref());
        consumers.all(|consumer| consumer.queue.has_room_for_past(messages as usize))
    }

    /// Tells the subscriptions that get the history of a group.
    pub(crate) fn tell_history(&self, group: GroupId, news: HistoryNews) {
        let Some(joined) = self.groups.get(&group) else { return };
        match news {
            HistoryNews::Begins { messages, .. } if is_short(news) => {
                tracing::warn!(group = &*joined.name, messages, "no member keeps all of the history wanted");
            }
            HistoryNews::Begins { messages: 0, .. } => {
                tracing::info!(group = &*joined.name, "members keep no messages of the history wanted");
            }
            HistoryNews::Nothing { asked } => {
                tracing::warn!(group = &*joined.name, asked, "no member keeps history of the group");
            }
            HistoryNews::Begins { .. } | HistoryNews::Ends => {}
        }
        for (&at, part) in &joined.past.parts {
            if *part == Part::All
                && let Some(Some(consumer)) = self.consumers.get(at)
            {
                let group = Arc::clone(&joined.name);
                self.tell(&consumer.queue, Event::History(History { group, news }));
            }
        }
    }
}

impl Core {
    /// Begins to read the history of the groups that this node has just joined.
    pub(crate) fn begin_catch_ups(&mut self, now_us: u64) {
        for (&id, joined) in &mut self.out.groups {
            if let Some(wish) = joined.past.wish.take() {
                self.node.catch_up(now_us, id, wish);
            }
        }
    }

    /// Lets the other subscriptions have their part of the histories that were read.
    pub(crate) fn end_catch_ups(&mut self, now_us: u64) {
        for group in std::mem::take(&mut self.out.caught_up) {
            // The others learn of this member.
            self.changes.since_us.get_or_insert(now_us);
            let Some(joined) = self.out.groups.get_mut(&group) else { continue };
            let parts = std::mem::take(&mut joined.past.parts);
            for (consumer, part) in parts {
                if let Part::Later(wish) = part {
                    self.replay(now_us, consumer, group, wish);
                }
            }
        }
    }

    /// Gives a subscription the messages of a group that this node keeps.
    pub(crate) fn replay(&mut self, now_us: u64, consumer: usize, group: GroupId, wish: Wish) {
        let Self { node, out, .. } = self;
        out.now_us = now_us;
        let mut messages = 0;
        let mut is_complete = true;
        let mut past: Vec<(Vec<u8>, CoreMessage<'static>)> = Vec::new();
        node.replay(
            now_us,
            group,
            wish,
            &mut |found| (messages, is_complete) = (found.messages, found.is_complete),
            &mut |message| past.push((message.payload.to_vec(), CoreMessage { payload: &[], ..*message })),
        );
        let Some(name) = out.groups.get(&group).map(|joined| Arc::clone(&joined.name)) else { return };
        let tell = |out: &Outward, news| {
            if let Some(Some(consumer)) = out.consumers.get(consumer) {
                out.tell(&consumer.queue, Event::History(History { group: Arc::clone(&name), news }));
            }
        };
        tell(out, HistoryNews::Begins { messages, is_complete });
        for (payload, message) in &past {
            out.deliver_to(consumer, &CoreMessage { payload, ..*message });
        }
        tell(out, HistoryNews::Ends);
    }

    /// Returns the groups that the others are told of.
    pub(crate) fn announced_groups(&self) -> Vec<GroupId> {
        let joined = self.out.groups.iter().filter(|(_, joined)| joined.past.wish.is_none());
        let ids = joined.map(|(&id, _)| id).filter(|&id| !self.node.is_catching_up(id));
        let mut groups: Vec<GroupId> = ids.collect();
        groups.sort_unstable();
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_was_silent_has_no_history_to_warn_of() {
        let begins = |messages, is_complete| HistoryNews::Begins { messages, is_complete };
        assert_eq!([begins(0, false), begins(0, true), begins(9, true)].map(is_short), [false; 3]);
        assert!(is_short(begins(9, false)));
    }
}
