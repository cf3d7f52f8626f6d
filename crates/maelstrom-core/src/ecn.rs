//! Marks of congestion on packets in tunnels (RFC 6040).
//!
//! A datagram leaves with the ECN field of the packets in it (normal mode, RFC 6040 §4.1). A router that
//! marks the datagram thereby marks the packets: [`EcnCounts::leave_tunnel`] combines both fields (§4.2).

/// ECN field of an IP header (RFC 3168 §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// The sender does not understand marks.
    #[default]
    NotEct,
    /// The sender understands marks, and takes one for less than a loss (RFC 9331 §4.1).
    Ect1,
    /// The sender takes a mark for a loss.
    Ect0,
    /// Congestion was experienced.
    Ce,
}

/// Bits of the type of service.
const MASK: u8 = 0b11;

impl Ecn {
    /// All values, in the order of their bits.
    pub const ALL: [Self; 4] = [Self::NotEct, Self::Ect1, Self::Ect0, Self::Ce];

    /// Reads the type of service, or traffic class.
    pub fn of(tos: u8) -> Self {
        Self::ALL[usize::from(tos & MASK)]
    }

    /// Returns the type of service with this field.
    pub fn set(self, tos: u8) -> u8 {
        tos & !MASK | self as u8
    }

    /// The field of a datagram that was cut in two.
    #[must_use]
    pub(crate) fn join(self, other: Self) -> Self {
        if other == Self::Ce { other } else { self }
    }
}

/// Marks of the path to this gateway on datagrams with packets of a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EcnCounts {
    /// Packets that got the mark of their datagram.
    pub marked: u64,
    /// Packets dropped because their datagram was marked and their senders do not understand marks.
    pub dropped: u64,
    /// Packets whose datagram came with a field that no router should give it.
    pub odd: u64,
}

impl EcnCounts {
    /// Returns the field with which a packet leaves the tunnel; `None` if it must be dropped. `inner`: its
    /// own, `outer`: that of its datagram.
    pub(crate) fn leave_tunnel(&mut self, inner: Ecn, outer: Ecn) -> Option<Ecn> {
        use Ecn::{Ce, Ect0, Ect1, NotEct};
        // RFC 6040 §4.2, figure 4.
        match (inner, outer) {
            (NotEct, Ce) => {
                // The datagram of such a packet says that it must not be marked, so that the mark stands for
                // the loss that its sender would notice.
                self.dropped += 1;
                None
            }
            (NotEct, Ect0 | Ect1) | (Ce, Ect1) | (Ect1, Ect0) => {
                self.odd += 1;
                Some(inner)
            }
            (Ect0 | Ect1, Ce) => {
                self.marked += 1;
                Some(Ce)
            }
            (Ect0, Ect1) => Some(Ect1),
            (_, NotEct) | (Ce, Ect0 | Ce) | (Ect0, Ect0) | (Ect1, Ect1) => Some(inner),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_leave_a_tunnel_by_the_table_of_the_rfc() {
        use Ecn::{Ce, Ect0, Ect1, NotEct};
        // Columns: Not-ECT, ECT(0), ECT(1), CE outside.
        let table = [
            (NotEct, [Some(NotEct), Some(NotEct), Some(NotEct), None]),
            (Ect0, [Some(Ect0), Some(Ect0), Some(Ect1), Some(Ce)]),
            (Ect1, [Some(Ect1), Some(Ect1), Some(Ect1), Some(Ce)]),
            (Ce, [Some(Ce), Some(Ce), Some(Ce), Some(Ce)]),
        ];
        let mut counts = EcnCounts::default();
        for (inner, row) in table {
            let left = [NotEct, Ect0, Ect1, Ce].map(|outer| counts.leave_tunnel(inner, outer));
            assert_eq!(left, row, "{inner:?}");
        }
        assert_eq!(counts, EcnCounts { marked: 2, dropped: 1, odd: 4 });
    }

    #[test]
    fn the_field_is_the_low_end_of_the_type_of_service() {
        for (bits, ecn) in (0..).zip(Ecn::ALL) {
            assert_eq!((Ecn::of(0b1011_1000 | bits), ecn.set(0b1011_1011)), (ecn, 0b1011_1000 | bits));
        }
        assert_eq!((Ecn::Ect0.join(Ecn::Ce), Ecn::Ce.join(Ecn::Ect0)), (Ecn::Ce, Ecn::Ce));
        assert_eq!(Ecn::Ect0.join(Ecn::NotEct), Ecn::Ect0);
    }
}
