//! Repairs that arrive in two halves.

use super::{Ingress, IngressCx, RECIPE_MAX};
use crate::counters::{Rejected, Unused};
use crate::ecn::Ecn;
use crate::wire::{BodyKind, Half};

/// Maximum number of halves that wait for their other half.
pub(super) const HALVES: usize = 16;
#[derive(Default)]
pub(super) struct HalfSlot {
    pub(super) serial: Option<u32>,
    pub(super) second: bool,
    pub(super) ecn: Ecn,
    pub(super) bytes: Vec<u8>,
}

impl Ingress {
    /// Takes one half of an authentic repair.
    pub(crate) fn handle_half(&mut self, cx: &mut IngressCx<'_>, body: &[u8]) -> Result<(), Rejected> {
        let half = Half::read(body)?;
        if half.bytes.len() > self.symbol_max + RECIPE_MAX {
            return Err(Rejected::Malformed);
        }
        let Some(slot) = self.halves.iter_mut().find(|slot| slot.serial == Some(half.serial)) else {
            self.keep_half(&half, cx.ecn);
            return Ok(());
        };
        if slot.second == half.second {
            return Err(Rejected::Malformed);
        }
        slot.serial = None;
        cx.ecn = cx.ecn.join(slot.ecn);
        let mut joined = std::mem::take(&mut self.joined);
        joined.clear();
        let (first, second) =
            if half.second { (&slot.bytes[..], half.bytes) } else { (half.bytes, &slot.bytes[..]) };
        joined.extend_from_slice(first);
        joined.extend_from_slice(second);
        let result = match BodyKind::read(&joined) {
            Ok(BodyKind::Packets | BodyKind::Aside) if self.is_tunnel() => self.handle_packets(cx, &joined),
            _ => self.handle_repair(cx, &joined),
        };
        self.joined = joined;
        result
    }

    fn keep_half(&mut self, half: &Half<'_>, ecn: Ecn) {
        let slot = &mut self.halves[self.next_half];
        self.next_half = (self.next_half + 1) % HALVES;
        if slot.serial.replace(half.serial).is_some() {
            self.counts.unused.add(Unused::HalfLost);
        }
        (slot.second, slot.ecn) = (half.second, ecn);
        slot.bytes.clear();
        slot.bytes.extend_from_slice(half.bytes);
    }
}
