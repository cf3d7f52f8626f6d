//! Size of repairs on the wire.

use crate::code::Code;
use crate::names::{apart, per_repair};

/// How packets and repairs travel. The default is that of gateways beside the path of the packets, over IPv4.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Carriage {
    /// Whether repairs travel over IPv6.
    pub ipv6: bool,
    /// Whether packets carry numbers, as in a tunnel, so that a window's repairs name none.
    pub is_numbered: bool,
}

impl Carriage {
    /// Number of bytes by which a repair is longer than its longest packet (docs/wire.md, "Sizes").
    ///
    /// Names that travel apart are not in it ([`Carriage::apart_bytes`]). Every repair of a block or a layer
    /// names all its packets. A window's repair has a longer recipe, and names its new packets in three
    /// copies, whatever the naming rule of the simulation.
    ///
    /// ```
    /// use fec::{Code, SlidingConfig, simulate::Carriage};
    /// let tunnel = Carriage { ipv6: true, is_numbered: true };
    /// assert_eq!(tunnel.repair_overhead_bytes(&SlidingConfig::default().into()), 111);
    /// ```
    pub fn repair_overhead_bytes(self, code: &Code) -> usize {
        /// UDP header, our header, tag, symbol header.
        const FIXED: usize = 8 + 12 + 16 + 12;
        const RECIPE: usize = 13;
        const WINDOW_RECIPE: usize = 23;
        const NAME: usize = 4;
        let (recipe, names) = match code {
            Code::Layered(config) => (RECIPE, usize::from(config.r)),
            Code::ReedSolomon(config) => (RECIPE, usize::from(config.r)),
            Code::Sliding(config) if self.is_numbered || config.rate.repairs() == 0 => (WINDOW_RECIPE, 0),
            Code::Sliding(config) => (WINDOW_RECIPE, per_repair(config.rate)),
        };
        self.ip_bytes() + FIXED + recipe + NAME * names
    }

    /// Bytes on the wire of datagrams of names for each source packet.
    pub fn apart_bytes(self, code: &Code) -> f64 {
        /// UDP header, our header, tag, and the head of the names.
        const FIXED: usize = 8 + 12 + 16 + 9;
        let head = (self.ip_bytes() + FIXED) as f64;
        match code {
            Code::Sliding(config) if !self.is_numbered => {
                apart(config.rate).map_or(0.0, |[every, names]| (head + 4.0 * names as f64) / every as f64)
            }
            Code::Sliding(_) | Code::Layered(_) | Code::ReedSolomon(_) => 0.0,
        }
    }

    /// Length of the IP header.
    fn ip_bytes(self) -> usize {
        if self.ipv6 { 40 } else { 20 }
    }
}

/// Number of bytes by which a repair is longer than its longest packet, with the default [`Carriage`].
///
/// ```
/// use fec::{Code, simulate::repair_overhead_bytes};
/// assert_eq!(repair_overhead_bytes(&Code::default()), 113); // r = 8
/// ```
pub fn repair_overhead_bytes(code: &Code) -> usize {
    Carriage::default().repair_overhead_bytes(code)
}

/// Bytes on the wire of datagrams of names for each source packet, with the default [`Carriage`].
pub fn apart_bytes(code: &Code) -> f64 {
    Carriage::default().apart_bytes(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::RepairRate;
    use crate::sliding::SlidingConfig;

    #[test]
    fn a_repair_of_a_window_names_new_packets_three_times_where_there_is_room() {
        let bytes = |repairs, sources| {
            let rate = RepairRate::new(repairs, sources).unwrap();
            repair_overhead_bytes(&SlidingConfig { rate, ..SlidingConfig::default() }.into())
        };
        assert_eq!((bytes(3, 8), bytes(1, 8), bytes(13, 35)), (127, 187, 127));
        // Below 1/8, further copies travel apart, and a repair is no longer than at 1/8.
        assert_eq!((bytes(1, 16), bytes(1, 24), bytes(1, 32)), (91 + 4 * 16, 187, 187));
        assert_eq!(bytes(0, 1), 91);
    }

    #[test]
    fn repairs_are_longer_over_ipv6_and_windows_name_nothing_in_a_tunnel() {
        let rate = RepairRate::new(1, 40).unwrap();
        let window = Code::from(SlidingConfig { rate, ..SlidingConfig::default() });
        let sizes = |ipv6, is_numbered| {
            let carriage = Carriage { ipv6, is_numbered };
            [&window, &Code::default()].map(|code| carriage.repair_overhead_bytes(code))
        };
        assert_eq!((sizes(false, false), sizes(true, false)), ([187, 113], [207, 133]));
        assert_eq!((sizes(false, true), sizes(true, true)), ([91, 113], [111, 133]));
        let apart = |ipv6, is_numbered| Carriage { ipv6, is_numbered }.apart_bytes(&window);
        assert!(apart(true, false) > apart(false, false) && apart(false, false) > 0.0);
        assert_eq!(apart(true, true), 0.0);
    }
}
