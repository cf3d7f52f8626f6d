//! The one wrap-safe type for positions in a stream of packets.

/// Position of a packet in its stream. It has 32 bits on the wire and 64 in memory, so that it never wraps.
///
/// A Maelstrom stream consists of the packets that one gateway protects for one peer in a session, a Ricochet
/// stream of those that one sender sends to one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// Returns the 32 bits on the wire.
    pub fn to_wire(self) -> u32 {
        self.0 as u32
    }

    /// Returns the position nearest to `near` whose low 32 bits are `wire`, but none before the first
    /// position.
    pub fn from_wire(wire: u32, near: Seq) -> Seq {
        let ahead = wire.wrapping_sub(near.0 as u32) as i32;
        Seq(near.0.saturating_add_signed(i64::from(ahead)))
    }

    /// Returns the position of the first packet seen of a stream with unknown history: one lap in, so that
    /// older packets have positions too, even across a wrap.
    pub fn first_seen(wire: u32) -> Seq {
        Seq(1 << 32 | u64::from(wire))
    }

    /// Returns the position `steps` later.
    #[must_use]
    pub fn plus(self, steps: u64) -> Seq {
        Seq(self.0.saturating_add(steps))
    }

    /// Returns the position `steps` earlier, or the first one.
    #[must_use]
    pub fn minus(self, steps: u64) -> Seq {
        Seq(self.0.saturating_sub(steps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_form_is_read_near_the_last_position() {
        let near = Seq(0x1_ffff_fffe);
        assert_eq!(Seq::from_wire(3, near), Seq(0x2_0000_0003));
        assert_eq!(Seq::from_wire(0xffff_fff0, near), Seq(0x1_ffff_fff0));
        assert_eq!(Seq::from_wire(0xffff_ffff, Seq(0)), Seq(0), "no position lies before the first");
    }

    #[test]
    fn packets_before_the_first_one_seen_have_positions() {
        let first = Seq::first_seen(2);
        assert_eq!(Seq::from_wire(0xffff_fffe, first), first.minus(4));
    }

    proptest::proptest! {
        #[test]
        fn any_position_within_reach_survives_the_wire(at in 1u64 << 31..1 << 60, step in -(1i64 << 31) + 1..(1i64 << 31) - 1) {
            let sent = Seq(at.saturating_add_signed(step));
            proptest::prop_assert_eq!(Seq::from_wire(sent.to_wire(), Seq(at)), sent);
        }
    }
}
