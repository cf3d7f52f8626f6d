//! The latest events, in a list of bounded length.

use std::collections::VecDeque;

use super::event::{Event, EventKind, Site};

/// Maximum number of events that are kept. Older ones are forgotten.
pub const EVENTS_MAX: usize = 256;

/// The latest events, oldest first.
#[derive(Debug, Default)]
pub struct Journal {
    events: VecDeque<Event>,
    /// Number of events so far.
    count: u64,
}

impl Journal {
    pub(super) fn push(&mut self, at_us: u64, peer: Option<Site>, kind: EventKind) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(Event { number: self.count, at_us, peer, kind });
        self.count += 1;
    }

    /// Number of events so far. The next event gets this number.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the events that are kept from this number on, oldest first.
    pub fn since(&self, number: u64) -> impl DoubleEndedIterator<Item = &Event> {
        self.events.iter().filter(move |event| event.number >= number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_events_are_forgotten_and_numbers_go_on() {
        let mut journal = Journal::default();
        for count in 0..EVENTS_MAX as u64 + 7 {
            journal.push(count, None, EventKind::Renewed { count });
        }
        assert_eq!(journal.count(), EVENTS_MAX as u64 + 7);
        assert_eq!(journal.since(0).map(|event| event.number).min(), Some(7));
        assert_eq!(journal.since(0).count(), EVENTS_MAX);
        assert!(journal.since(journal.count() - 2).map(|event| event.at_us).eq([261, 262]));
    }
}
