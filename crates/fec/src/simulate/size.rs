//! Size of repairs on the wire.

use crate::code::Code;
use crate::names::{apart, per_repair};

/// Number of bytes by which a repair is longer than its longest packet, over IPv4 (docs/wire.md, "Sizes").
///
/// Names that travel apart are not in it ([`apart_bytes`]). Every repair of a block or a layer names all its
/// packets. A window's repair has a longer recipe, and names its new packets in three copies, whatever the
/// naming rule of the simulation.
///
/// ```
/// use fec::{Code, simulate::repair_overhead_bytes};
/// assert_eq!(repair_overhead_bytes(&Code::default()), 113); // r = 8
/// ```
pub fn repair_overhead_bytes(code: &Code) -> usize {
    /// IP header, UDP header, our header, tag, symbol header.
    const FIXED: usize = 20 + 8 + 12 + 16 + 12;
    const RECIPE: usize = 13;
    const WINDOW_RECIPE: usize = 23;
    const NAME: usize = 4;
    let (recipe, names) = match code {
        Code::Layered(config) => (RECIPE, usize::from(config.r)),
        Code::ReedSolomon(config) => (RECIPE, usize::from(config.r)),
        Code::Sliding(config) if config.rate.repairs() == 0 => (WINDOW_RECIPE, 0),
        Code::Sliding(config) => (WINDOW_RECIPE, per_repair(config.rate)),
    };
    FIXED + recipe + NAME * names
}

/// Bytes on the wire of datagrams of names for each source packet, over IPv4.
pub fn apart_bytes(code: &Code) -> f64 {
    /// IP header, UDP header, our header, tag, and the head of the names.
    const FIXED: f64 = (20 + 8 + 12 + 16 + 9) as f64;
    match code {
        Code::Sliding(config) => {
            apart(config.rate).map_or(0.0, |[every, names]| (FIXED + 4.0 * names as f64) / every as f64)
        }
        Code::Layered(_) | Code::ReedSolomon(_) => 0.0,
    }
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
}
