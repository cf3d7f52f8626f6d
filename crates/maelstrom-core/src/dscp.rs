//! The DSCP of repairs.

use crate::wire::Recipe;

/// Highest DSCP.
pub const DSCP_MAX: u8 = 63;

/// DSCP of the repairs. Datagrams without repairs, such as reports, have 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RepairDscp {
    /// That of the packets in the repair if it is the same for all of them, else 0, which is best effort.
    #[default]
    Packets,
    /// This one, at most [`DSCP_MAX`].
    Fixed(u8),
}

/// Finds the DSCP of the repairs of one egress.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marking {
    setting: RepairDscp,
    /// DSCP of the newest packet.
    newest: u8,
    /// Number of the newest packets that have this DSCP.
    run: usize,
}

impl Marking {
    pub(crate) fn new(setting: RepairDscp) -> Self {
        Self { setting, ..Self::default() }
    }

    /// Changes the setting.
    pub(crate) fn reconfigure(&mut self, setting: RepairDscp) {
        self.setting = setting;
    }

    /// Notes the next packet of the stream.
    pub(crate) fn on_packet(&mut self, tos: u8) {
        let dscp = tos >> 2;
        self.run = if dscp == self.newest { self.run.saturating_add(1) } else { 1 };
        self.newest = dscp;
    }

    /// The DSCP of a repair that leaves at present.
    pub(crate) fn of(&self, recipe: &Recipe<'_>) -> u8 {
        match (self.setting, recipe) {
            (RepairDscp::Fixed(dscp), _) => dscp,
            (_, Recipe::Named { entries, .. }) => {
                let first = entries.first().map_or(0, |entry| entry.fields.tos >> 2);
                let is_shared = entries.iter().all(|entry| entry.fields.tos >> 2 == first);
                if is_shared { first } else { 0 }
            }
            // These are the newest packets of the stream.
            (_, Recipe::Window { window: entries, .. } | Recipe::Names { entries }) => {
                if entries.len() <= self.run { self.newest } else { 0 }
            }
        }
    }
}
