//! The difference between a packet as it left the far gateway and as it would have arrived.

use crate::counters::Withheld;
use crate::hops::Hops;
use crate::packet::{MutableFields, restore};

/// Changes a packet from what left the far gateway to what would have arrived, if it would have arrived and,
/// unless `is_doubtful`, has surely not done so.
pub(super) fn bring_here(
    packet: &mut [u8],
    sent: MutableFields,
    hops: &Hops,
    is_doubtful: bool,
) -> Result<(), Withheld> {
    let ttl = hops.arriving(sent.ttl).ok_or(Withheld::Expired)?;
    if is_doubtful {
        return Err(Withheld::Doubtful);
    }
    if ttl != sent.ttl {
        restore(packet, MutableFields { ttl, ..sent });
    }
    Ok(())
}
