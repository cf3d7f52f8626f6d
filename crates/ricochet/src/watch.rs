//! The interface, which may be deleted and made again under a running node.
//!
//! With it go the memberships of all sockets, and what the sockets know it by is its number, which another does not have.
//! Nobody says so. So each second it is looked at, and when its name stands for another interface, or for one again after
//! there was none, the groups are joined anew. (One that is made again within a second with the number that it had
//! is taken for the same. The kernel counts on, so whoever makes it must have asked for that.)

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use netio::interface::Interface;
use netio::multicast::Sending;

use crate::shared::Shared;
use crate::status::InterfaceStatus;

/// How often it is looked at.
const LOOK_US: u64 = 1_000_000;

/// Looks at the interface, on the node's thread.
#[derive(Debug)]
pub(crate) struct Watch {
    interface: Interface,
    sending: Sending,
    /// The number of the one that is used.
    index: u32,
    next_look_us: u64,
    status: InterfaceStatus,
}

impl Watch {
    pub(crate) fn new(name: &str, interface: Interface, sending: Sending) -> Self {
        let status = InterfaceStatus { name: name.to_owned(), present: true, ..InterfaceStatus::default() };
        Self { index: interface.index(), interface, sending, next_look_us: 0, status }
    }

    /// The number of the interface that is used.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    pub(crate) fn next_look_us(&self) -> u64 {
        self.next_look_us
    }

    /// Looks, if it is time.
    pub(crate) fn look(&mut self, now_us: u64, shared: &Shared) {
        if now_us < self.next_look_us {
            return;
        }
        self.next_look_us = now_us + LOOK_US;
        match self.interface.index_now() {
            Ok(Some(index)) if index != self.index || !self.status.present => self.use_again(index, shared),
            Ok(None) if self.status.present => {
                self.status.present = false;
                tracing::warn!(
                    name = self.status.name,
                    "the interface is gone: nothing multicast is received"
                );
            }
            // An error proves nothing.
            _ => {}
        }
        let mut published = shared.published.lock().unwrap_or_else(PoisonError::into_inner);
        if published.interface != self.status {
            published.interface.clone_from(&self.status);
        }
    }

    fn use_again(&mut self, index: u32, shared: &Shared) {
        let name = &self.status.name;
        self.status.present = false;
        let mut ip_groups = shared.ip_groups.lock().unwrap_or_else(PoisonError::into_inner);
        let joined = ip_groups.set_interface(index).map_err(|error| error.to_string());
        drop(ip_groups);
        if let Err(why) = joined.and(self.sending.set_interface(index).map_err(|error| error.to_string())) {
            self.status.failed += 1;
            return tracing::warn!(name, why, "the interface was made again, but cannot be used");
        }
        tracing::info!(name, index, "the interface was made again");
        shared.interface.store(index, Ordering::Relaxed);
        (self.index, self.status.present) = (index, true);
        self.status.made_again += 1;
    }
}
