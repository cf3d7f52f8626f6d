//! Classes in the status.

use maelstrom_core::{Class, ClassCounts, Protect};
use serde::{Deserialize, Serialize};

/// A class of packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassStatus {
    /// Its name.
    pub name: String,
    /// `off`, `auto`, or the number of repairs for each packet.
    pub protect: String,
    /// Packets that left for the site of a peer, protected or not.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those that were protected.
    pub protected: u64,
    /// Repairs that left because of a packet of the class: those that it completed, those of the rate of the
    /// class, and those out of turn for its deadline.
    pub repairs: u64,
    /// Packets of the class from the site of a peer that were recovered.
    pub recovered: u64,
}

/// The status of a class.
pub(crate) fn class((class, counts): (&Class, ClassCounts)) -> ClassStatus {
    let protect = match class.protect {
        Protect::Off => "off".to_owned(),
        Protect::Auto => "auto".to_owned(),
        Protect::AtLeast(rate) => rate.to_string(),
    };
    let ClassCounts { packets, bytes, protected, repairs, recovered } = counts;
    ClassStatus { name: class.name.clone(), protect, packets, bytes, protected, repairs, recovered }
}
