//! Watches the interface, which may be deleted and created again under a running node.
//!
//! Deletion ends the multicast memberships of all sockets. The sockets know the interface by its index, which
//! a new one does not have, and nothing tells them. So the node checks every second. When the name belongs to
//! another interface, or to one again after it belonged to none, the node joins its groups again. An
//! interface created again within a second with the same index is not noticed; the kernel assigns new
//! indices, so this takes an explicit request.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use netio::interface::Interface;
use netio::multicast::Sending;

use crate::shared::Shared;
use crate::status::InterfaceStatus;

/// Interval between checks.
const CHECK_PERIOD_US: u64 = 1_000_000;

/// Checks the interface, on the node's thread.
#[derive(Debug)]
pub(crate) struct Watch {
    interface: Interface,
    sending: Sending,
    /// Index of the interface in use.
    index: u32,
    next_check_us: u64,
    status: InterfaceStatus,
}

impl Watch {
    pub(crate) fn new(name: &str, interface: Interface, sending: Sending) -> Self {
        let status = InterfaceStatus { name: name.to_owned(), present: true, ..InterfaceStatus::default() };
        Self { index: interface.index(), interface, sending, next_check_us: 0, status }
    }

    /// Returns the index of the interface in use.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    pub(crate) fn poll_timeout(&self) -> u64 {
        self.next_check_us
    }

    /// Checks the interface, if it is time.
    pub(crate) fn handle_timeout(&mut self, now_us: u64, shared: &Shared) {
        if now_us < self.next_check_us {
            return;
        }
        self.next_check_us = now_us + CHECK_PERIOD_US;
        match self.interface.index_now() {
            Ok(Some(index)) if index != self.index || !self.status.present => self.switch_to(index, shared),
            Ok(None) if self.status.present => {
                self.status.present = false;
                tracing::warn!(
                    name = self.status.name,
                    "the interface is gone: no multicast datagrams are received"
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

    /// Rejoins all groups on the interface with another index.
    fn switch_to(&mut self, index: u32, shared: &Shared) {
        let name = &self.status.name;
        self.status.present = false;
        let mut ip_groups = shared.ip_groups.lock().unwrap_or_else(PoisonError::into_inner);
        let joined = ip_groups.set_interface(index).map_err(|error| error.to_string());
        drop(ip_groups);
        if let Err(why) = joined.and(self.sending.set_interface(index).map_err(|error| error.to_string())) {
            self.status.failed += 1;
            return tracing::warn!(name, why, "the interface was created again, but cannot be used");
        }
        tracing::info!(name, index, "the interface was created again");
        shared.interface.store(index, Ordering::Relaxed);
        (self.index, self.status.present) = (index, true);
        self.status.made_again += 1;
    }
}
