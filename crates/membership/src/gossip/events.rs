//! What the failure detector sends, sets and tells.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use foca::{Notification, Runtime, Timer};

use super::timers::Timers;
use crate::Output;
use crate::counters::{Counts, Dropped};
use crate::wire::HEADER;
use crate::wire::swim::Identity;

/// Those who are taken for dead, by address, and until when that is remembered.
pub(super) type Dead = BTreeMap<SocketAddr, (u64, Identity)>;

/// What has come of one call to the library.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct News {
    pub(super) members_changed: bool,
    /// Whether somebody knows this node in its present life, if that has changed.
    pub(super) connected: Option<bool>,
    /// One who was taken for dead lives.
    pub(super) back_from_the_dead: bool,
    /// Others take this node for dead.
    pub(super) we_are_dead: bool,
}

/// Takes it all down.
pub(super) struct Events<'a, O> {
    pub(super) now_us: u64,
    pub(super) own: SocketAddr,
    pub(super) timers: &'a mut Timers,
    pub(super) dead: &'a mut Dead,
    pub(super) counts: &'a mut Counts,
    /// Begins with what all datagrams of this kind begin with.
    pub(super) scratch: &'a mut Vec<u8>,
    pub(super) out: &'a mut O,
    pub(super) news: News,
}

impl<O: Output> Runtime<Identity> for Events<'_, O> {
    fn notify(&mut self, notification: Notification<'_, Identity>) {
        match notification {
            Notification::MemberUp(_) | Notification::MemberDown(_) => self.news.members_changed = true,
            Notification::Rename(_, new) => {
                self.news.members_changed = true;
                self.news.back_from_the_dead |= self.dead.remove(&new.address).is_some();
            }
            Notification::Active => self.news.connected = Some(true),
            Notification::Idle => self.news.connected = Some(false),
            Notification::Defunct => {
                self.news.we_are_dead = true;
                self.news.connected = Some(false);
            }
            Notification::Rejoin(_) => {}
        }
    }

    fn send_to(&mut self, to: Identity, data: &[u8]) {
        if to.address == self.own {
            // An earlier life of ours, that the library takes for a node.
            return;
        }
        self.scratch.truncate(HEADER);
        self.scratch.extend_from_slice(data);
        self.counts.sent += 1;
        self.counts.sent_bytes += self.scratch.len() as u64;
        self.out.send(to.address, self.scratch);
    }

    fn submit_after(&mut self, event: Timer<Identity>, after: Duration) {
        let due_us = self.now_us.saturating_add(after.as_micros() as u64);
        if let Timer::RemoveDown(identity) = event {
            // Kept by address, so that they cannot be more than members.
            self.dead.insert(identity.address, (due_us, identity));
        } else if self.timers.set(due_us, event) {
            self.counts.dropped.add(Dropped::TimersFull);
        }
    }
}
