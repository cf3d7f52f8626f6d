//! Settings that differ between members, and multicast that does not arrive, as far as greetings tell.

use ricochet::Status;

use crate::output;

/// Reports members with other settings, or without multicast. Returns whether messages may not arrive: if
/// `is_without` says that none has, or if a difference cannot be repaired.
pub(super) fn report(status: &Status, is_without: bool) -> bool {
    let mut fails = false;
    for peer in &status.peers {
        let is_hard = peer.settings_differ.iter().any(|difference| difference.starts_with(UNREPAIRED));
        let has_no_path = is_without && (peer.hears_no_multicast || peer.multicast_unheard);
        let is_error = is_hard || has_no_path || (is_without && !peer.settings_differ.is_empty());
        let word = if is_error { "error" } else { "warning" };
        if !peer.settings_differ.is_empty() {
            output::note(format_args!(
                "{word}: expected the settings of {}, saw others: {}\n\
                 help: give these settings the same values on all members",
                peer.address,
                peer.settings_differ.join("; ")
            ));
        }
        if peer.hears_no_multicast || peer.multicast_unheard {
            let (from, to) = if peer.multicast_unheard { ("from", "this node") } else { ("at", "it") };
            output::note(format_args!(
                "{word}: expected multicast {from} {}, saw none; {to} gets copies by unicast\n\
                 help: look for a filter of multicast between the two, or set `node.unicast` on all members",
                peer.address
            ));
        }
        fails |= is_error;
    }
    fails
}

/// The setting whose difference no copy makes up for: a datagram that is longer than the receiver's longest
/// is dropped.
const UNREPAIRED: &str = "buffers.datagram_max";
