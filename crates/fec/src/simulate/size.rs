//! Size of repairs on the wire.

use crate::code::Code;
use crate::names::per_repair;

/// Number of bytes by which a repair is longer than its longest packet, over IPv4 (docs/wire.md, "Sizes").
///
/// Every repair of a block or a layer names all its packets. A window's repair has a longer recipe, and names
/// its new packets in three copies, whatever the naming rule of the simulation.
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
        // 22 new names fit twice and 33 once; of 65, 64 fit.
        assert_eq!((bytes(1, 22), bytes(1, 33), bytes(1, 65)), (91 + 4 * 44, 91 + 4 * 33, 91 + 4 * 64));
        assert_eq!(bytes(0, 1), 91);
    }
}
