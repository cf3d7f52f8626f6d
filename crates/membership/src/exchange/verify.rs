//! Verification of lists by the nodes that own them.
//!
//! A list and its changes come from any member, and may be forged. Soon after a change, this node asks the
//! owner, whose answer states version and check of its list. A list that the owner contradicts is forgotten,
//! refused if it comes again, and requested of the owner.

use std::net::SocketAddr;
use std::sync::Arc;

use ricochet_core::{GroupId, NodeId};

use super::Exchange;
use super::list::List;
use crate::counters::Dropped;
use crate::wire::IdentityAnswer;

/// Shortest time from a change to the question, in microseconds: further changes are verified with it.
const AFTER_US: u64 = 200_000;
/// Range of random times that are added, so that not all nodes ask the owner at once.
const SPREAD_US: u64 = 600_000;

impl Exchange {
    /// Schedules the question whether the list held of a member is its own.
    pub(super) fn verify_soon(&mut self, now_us: u64, id: NodeId) {
        let due_us = now_us + AFTER_US + self.draw(SPREAD_US);
        let Some(entry) = self.directory.get_mut(id).filter(|entry| entry.verify_us.is_none()) else {
            return;
        };
        entry.verify_us = Some(due_us);
        self.to_verify.insert((due_us, id));
    }

    /// Returns the addresses of members to ask now.
    pub(crate) fn poll_verifications(&mut self, now_us: u64) -> Vec<SocketAddr> {
        let mut addresses = Vec::new();
        while let Some(&(due_us, id)) = self.to_verify.first().filter(|&&(due_us, _)| due_us <= now_us) {
            self.to_verify.remove(&(due_us, id));
            let Some(entry) = self.directory.get_mut(id) else { continue };
            entry.verify_us = None;
            addresses.push(entry.member.address);
        }
        addresses
    }

    /// Compares the list held of a member with what the member has stated itself, and notes a newer version.
    /// `guess` is adopted if the check matches.
    pub(crate) fn on_identity(
        &mut self,
        now_us: u64,
        answer: &IdentityAnswer,
        guess: Option<&Arc<[GroupId]>>,
    ) {
        let IdentityAnswer { id, version, check, .. } = *answer;
        let Some(entry) = self.directory.get_mut(id) else { return };
        let held = entry.list.version;
        // A list that was refuted may become the member's own later.
        for refuted in entry.refuted.iter_mut().filter(|refuted| **refuted == Some((version, check))) {
            *refuted = None;
        }
        if held > version {
            // The member may have changed its list since it answered. The next answer decides.
            if entry.contradicted.replace(held) != Some(held) {
                return self.verify_soon(now_us, id);
            }
            self.forget_list(id);
        } else if held == version && held != 0 && entry.list.check != check {
            self.forget_list(id);
        } else {
            entry.contradicted = None;
        }
        self.on_presence(now_us, id, version, check, guess);
    }

    /// Forgets a list that is not its owner's.
    fn forget_list(&mut self, id: NodeId) {
        self.counts.dropped.add(Dropped::Hearsay);
        self.updates.remove(id);
        let wanted = self.directory.get_mut(id).and_then(|entry| {
            entry.contradicted = None;
            entry.refuted.rotate_right(1);
            entry.refuted[0] = Some((entry.list.version, entry.list.check));
            entry.wanted.take()
        });
        self.requests.on_dismissed(id, wanted.as_ref());
        let forgotten = self.directory.change(id, |list| {
            *list = List::empty(0);
            Ok(())
        });
        debug_assert!(forgotten.is_ok(), "the member is known");
    }
}
