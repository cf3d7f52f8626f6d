//! Packets that arrive with other addresses than those that repairs name.
//!
//! A NAT that gives packets an address outside of the far site hides them from the tap. While there is doubt,
//! the driver therefore shows all packets that arrive. One that carries the same content as a withheld packet
//! is that packet, rewritten.

use crate::flow::Content;

/// Number of contents remembered; a power of two.
const CONTENTS: usize = 512;
/// Number of equal contents that are evidence.
const ENOUGH: u32 = 4;

/// The contents of withheld packets, and of packets from other networks.
pub(super) struct Translation {
    withheld: Box<[Option<Content>]>,
    strangers: Box<[Option<Content>]>,
    equal: u32,
}

impl Translation {
    pub(super) fn new() -> Self {
        let contents = || vec![None; CONTENTS].into_boxed_slice();
        Self { withheld: contents(), strangers: contents(), equal: 0 }
    }

    /// Notes a withheld packet. Returns whether there is evidence of address translation.
    pub(super) fn on_withheld(&mut self, content: Content) -> bool {
        let slot = content.0 as usize % CONTENTS;
        self.withheld[slot] = Some(content);
        let is_equal = self.strangers[slot].take_if(|stranger| *stranger == content).is_some();
        self.count(is_equal)
    }

    /// Notes a packet from a network that belongs to no peer. Returns the same.
    pub(super) fn on_stranger(&mut self, content: Content) -> bool {
        let slot = content.0 as usize % CONTENTS;
        self.strangers[slot] = Some(content);
        let is_equal = self.withheld[slot].take_if(|withheld| *withheld == content).is_some();
        self.count(is_equal)
    }

    fn count(&mut self, is_equal: bool) -> bool {
        self.equal += u32::from(is_equal);
        is_equal && self.equal >= ENOUGH
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.withheld) + size_of_val(&*self.strangers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_that_match_in_either_order_are_evidence() {
        let mut translation = Translation::new();
        let mut found = 0;
        for n in 0..8 {
            let content = Content(7_919 * n);
            let told = if n % 2 == 0 {
                [translation.on_stranger(content), translation.on_withheld(content)]
            } else {
                [translation.on_withheld(content), translation.on_stranger(content)]
            };
            found += u32::from(told.contains(&true));
            assert!(!translation.on_withheld(Content(1_000_003 + n)), "no stranger has this content");
        }
        assert_eq!(found, 5);
    }
}
