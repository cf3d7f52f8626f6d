//! How many bytes a code sends.

use crate::Code;
use crate::names::per_repair;

/// By how many bytes a repair is longer than its longest packet, over IPv4 (docs/wire.md, "Sizes").
///
/// Every repair of a block or a layer names all its packets. One of a window has a longer recipe, and names those that are
/// new, in three copies, whatever tells their places in a simulation.
///
/// ```
/// use fec::{Code, simulate::repair_overhead_bytes};
/// assert_eq!(repair_overhead_bytes(&Code::default()), 113); // r = 8
/// ```
pub fn repair_overhead_bytes(code: &Code) -> usize {
    /// IP, UDP, header and tag, symbol.
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
    use crate::{RepairRate, SlidingConfig};

    #[test]
    fn a_repair_of_a_window_names_what_is_new_three_times_where_there_is_room() {
        let bytes = |repairs, sources| {
            let rate = RepairRate::new(repairs, sources).unwrap();
            repair_overhead_bytes(&SlidingConfig { rate, ..SlidingConfig::default() }.into())
        };
        assert_eq!((bytes(3, 8), bytes(1, 8), bytes(13, 35)), (127, 187, 127));
        // 22 new ones fit twice, 33 once, and of 65 there is room for 64.
        assert_eq!((bytes(1, 22), bytes(1, 33), bytes(1, 65)), (91 + 4 * 44, 91 + 4 * 33, 91 + 4 * 64));
        assert_eq!(bytes(0, 1), 91);
    }
}
