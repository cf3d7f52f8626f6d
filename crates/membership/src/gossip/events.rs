//! The failure detector's output: datagrams, timers and notifications.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use foca::{Notification, Runtime, Timer};

use super::timers::Timers;
use crate::counters::{Counts, Dropped};
use crate::output::Output;
use crate::wire::HEADER;
use crate::wire::swim::Identity;

/// Nodes declared down, by address, with the time until which they are remembered.
pub(super) type Down = BTreeMap<SocketAddr, (u64, Identity)>;

/// Notifications of one call to the library.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Notifications {
    pub(super) members_changed: bool,
    /// Whether another node knows this node in its present life, if that has changed.
    pub(super) connected: Option<bool>,
    /// Whether a node that was declared down is back.
    pub(super) revived: bool,
    /// Whether others have declared this node down.
    pub(super) declared_down: bool,
}

/// Receiver of the library's output.
pub(super) struct Events<'a, O> {
    pub(super) now_us: u64,
    pub(super) own: SocketAddr,
    pub(super) timers: &'a mut Timers,
    pub(super) down: &'a mut Down,
    pub(super) counts: &'a mut Counts,
    /// Begins with the header of all datagrams of this kind.
    pub(super) scratch: &'a mut Vec<u8>,
    pub(super) out: &'a mut O,
    pub(super) notifications: Notifications,
}

impl<O: Output> Runtime<Identity> for Events<'_, O> {
    fn notify(&mut self, notification: Notification<'_, Identity>) {
        let noted = &mut self.notifications;
        match notification {
            Notification::MemberUp(_) | Notification::MemberDown(_) => noted.members_changed = true,
            Notification::Rename(_, new) => {
                noted.members_changed = true;
                noted.revived |= self.down.remove(&new.address).is_some();
            }
            Notification::Active => noted.connected = Some(true),
            Notification::Idle => noted.connected = Some(false),
            Notification::Defunct => {
                noted.declared_down = true;
                noted.connected = Some(false);
            }
            Notification::Rejoin(_) => {}
        }
    }

    fn send_to(&mut self, to: Identity, data: &[u8]) {
        if to.address == self.own {
            // An earlier life of this node, which the library considers a node.
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
            // Keyed by address, so that there cannot be more of them than members.
            self.down.insert(identity.address, (due_us, identity));
        } else if self.timers.set(due_us, event) {
            self.counts.dropped.add(Dropped::TimersFull);
        }
    }
}
