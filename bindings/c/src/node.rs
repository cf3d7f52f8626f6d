//! A running node.

use std::ffi::{CString, c_char};

use ricochet::SendError;

use crate::options::ricochet_options;
use crate::outcome::{Failure, guard, guard_or, ricochet_result};
use crate::pointers::{duration, give, handle, put, take_back, text};

/// A node of a cluster.
pub struct ricochet_node {
    pub(crate) inner: ricochet::Node,
    address: CString,
}

impl ricochet_node {
    /// Fails if the node has failed, so that what it knows is of no use.
    fn check(&self) -> Result<(), Failure> {
        match self.inner.ended() {
            Some(failed @ SendError::Failed(_)) => Err(failed.into()),
            _ => Ok(()),
        }
    }

    /// Returns why a wait ended too early: the time is over, or the node has ended.
    fn unfinished(&self) -> Failure {
        self.inner.ended().map_or_else(Failure::timeout, Failure::from)
    }
}

/// Starts a node. The settings may be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_node_start(
    options: *const ricochet_options,
    node: *mut *mut ricochet_node,
) -> ricochet_result {
    guard(|| {
        // SAFETY: the caller ensures what the header says of pointers.
        unsafe {
            let inner = handle("options", options)?.builder().start()?;
            let address = CString::new(inner.address().to_string()).map_err(Failure::invalid)?;
            give("node", node, ricochet_node { inner, address })
        }
    })
}

/// Ends a node, but does not free its handle. Announces to the others that it leaves, and releases its port
/// and groups. Waits of all threads end. Waits for up to two seconds until messages that wait for their
/// readers have been sent, and for up to two seconds until the members that do not hear its multicast have
/// requested what they missed. With etcd it also waits for up to one second until its entry is removed.
/// Messages that were received before can still be taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_node_close(node: *const ricochet_node) -> ricochet_result {
    guard(|| {
        // SAFETY: the caller ensures what the header says of pointers.
        unsafe { handle("node", node) }?.inner.close();
        Ok(())
    })
}

/// Ends a node, if it was not closed, and frees its handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_node_free(node: *mut ricochet_node) {
    guard(|| {
        // SAFETY: the caller ensures what the header says of pointers.
        unsafe { take_back(node) };
        Ok(())
    });
}

/// Returns the identifier of this life of the node, drawn at random at its start; 0 if `node` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_node_id(node: *const ricochet_node) -> u32 {
    // SAFETY: the caller ensures what the header says of pointers.
    guard_or(0, || Ok(unsafe { handle("node", node) }?.inner.id().0))
}

/// Returns the address at which others reach the node, which serves them as a seed address. The text is valid
/// until the handle is freed; it is NULL if `node` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_node_address(node: *const ricochet_node) -> *const c_char {
    // SAFETY: the caller ensures what the header says of pointers.
    guard_or(std::ptr::null(), || Ok(unsafe { handle("node", node) }?.address.as_ptr()))
}

/// Returns the maximum length in bytes of a message that is sent in one packet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_node_payload_max(node: *const ricochet_node) -> usize {
    // SAFETY: the caller ensures what the header says of pointers.
    guard_or(0, || Ok(unsafe { handle("node", node) }?.inner.payload_max()))
}

/// Returns the maximum length in bytes of a message that is sent in several packets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_node_message_max(node: *const ricochet_node) -> usize {
    // SAFETY: the caller ensures what the header says of pointers.
    guard_or(0, || Ok(unsafe { handle("node", node) }?.inner.message_max()))
}

/// Stores the number of other nodes known to be in a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_node_members(
    node: *const ricochet_node,
    group: *const c_char,
    members: *mut usize,
) -> ricochet_result {
    guard(|| {
        // SAFETY: the caller ensures what the header says of pointers.
        unsafe {
            let (node, group) = (handle("node", node)?, text("group", group)?);
            node.check()?;
            put("members", members, node.inner.members(group))
        }
    })
}

/// Waits until at least `count` other nodes are known to be in a group. If the node ends before, returns
/// RICOCHET_CLOSED or RICOCHET_FAILED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_node_wait_for_members(
    node: *const ricochet_node,
    group: *const c_char,
    count: usize,
    timeout_us: i64,
) -> ricochet_result {
    guard(|| {
        // SAFETY: the caller ensures what the header says of pointers.
        let (node, group) = unsafe { (handle("node", node)?, text("group", group)?) };
        let are_there = node.inner.wait_for_members(group, count, duration(timeout_us));
        if are_there { Ok(()) } else { Err(node.unfinished()) }
    })
}

/// Waits until all messages have been sent. If the node ends before, returns RICOCHET_CLOSED or
/// RICOCHET_FAILED, and the messages that wait are not sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_node_flush(node: *const ricochet_node, timeout_us: i64) -> ricochet_result {
    guard(|| {
        // SAFETY: the caller ensures what the header says of pointers.
        let node = unsafe { handle("node", node) }?;
        let are_sent = node.inner.flush(duration(timeout_us));
        if are_sent { Ok(()) } else { Err(node.unfinished()) }
    })
}

/// Stores the state of a node as JSON: its counters, and the nodes that it knows. The fields are those of
/// `undrop multicast status --json`. The text must be freed with ricochet_text_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_node_status(
    node: *const ricochet_node,
    json: *mut *mut c_char,
) -> ricochet_result {
    guard(|| {
        // SAFETY: the caller ensures what the header says of pointers.
        unsafe {
            let status = handle("node", node)?.inner.status();
            let text = serde_json::to_string(&status).map_err(Failure::invalid)?;
            let text = CString::new(text).map_err(Failure::invalid)?;
            if json.is_null() {
                return put("json", json, std::ptr::null_mut());
            }
            put("json", json, text.into_raw())
        }
    })
}

/// Frees a text of ricochet_node_status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_text_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: the text is from `ricochet_node_status`, and was not freed.
        drop(unsafe { CString::from_raw(text) });
    }
}

/// Reads the cluster keys from the configured file again, as the node does by itself within a second after a
/// change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_node_reload_keys(node: *const ricochet_node) -> ricochet_result {
    guard(|| {
        // SAFETY: the caller ensures what the header says of pointers.
        unsafe { handle("node", node) }?.inner.reload_keys()?;
        Ok(())
    })
}
