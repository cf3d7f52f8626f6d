//! The DSCP of repairs.

use foundation::Seq;

use crate::wire::{Entry, Recipe};

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
    /// Place behind the newest packet in the stream.
    next: Seq,
    /// Number of the newest packets, consecutive in the stream, that have this DSCP.
    run: u64,
}

impl Marking {
    pub(crate) fn new(setting: RepairDscp) -> Self {
        Self { setting, ..Self::default() }
    }

    /// Changes the setting.
    pub(crate) fn reconfigure(&mut self, setting: RepairDscp) {
        self.setting = setting;
    }

    /// Notes the next packet that repairs may contain.
    pub(crate) fn on_packet(&mut self, entry: &Entry) {
        let dscp = dscp_of(entry);
        let continues = dscp == self.newest && entry.seq == self.next;
        self.run = if continues { self.run.saturating_add(1) } else { 1 };
        (self.newest, self.next) = (dscp, entry.seq.plus(1));
    }

    /// The DSCP of a repair that leaves at present.
    pub(crate) fn of(&self, recipe: &Recipe<'_>) -> u8 {
        match (self.setting, recipe) {
            (RepairDscp::Fixed(dscp), _) => dscp,
            // A window may have a thousand packets, most of the time the newest ones of one run.
            (_, Recipe::Window { window: entries, .. }) if self.is_of_run(entries) => self.newest,
            (
                _,
                Recipe::Window { window: entries, .. }
                | Recipe::Named { entries, .. }
                | Recipe::Names { entries },
            ) => {
                let first = entries.first().map_or(0, dscp_of);
                let is_shared = entries.iter().all(|entry| dscp_of(entry) == first);
                if is_shared { first } else { 0 }
            }
        }
    }

    /// Whether all of these packets, which are consecutive in the stream, are among the newest of one DSCP.
    fn is_of_run(&self, entries: &[Entry]) -> bool {
        entries.first().is_some_and(|first| {
            self.next.0.checked_sub(first.seq.0).is_some_and(|packets| packets <= self.run)
        })
    }
}

fn dscp_of(entry: &Entry) -> u8 {
    entry.fields.tos >> 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Name;
    use crate::packet::MutableFields;
    use fec::Draw;

    fn entry(seq: u64, dscp: u8) -> Entry {
        Entry {
            seq: Seq(seq),
            name: Name(0),
            fields: MutableFields { tos: dscp << 2 | 1, ..Default::default() },
        }
    }

    fn window(window: &[Entry]) -> Recipe<'_> {
        let named = std::array::from_fn(|_| Seq(0)..Seq(0));
        Recipe::Window { draw: Draw { seed: 1, density: 15 }, stripes: 1, window, named }
    }

    #[test]
    fn names_and_windows_behind_the_newest_packet_have_the_dscp_of_their_own_packets() {
        let stream: Vec<Entry> = (0..300)
            .map(|seq| {
                entry(
                    seq,
                    if seq < 128 {
                        0
                    } else if seq < 256 {
                        46
                    } else {
                        8
                    },
                )
            })
            .collect();
        let mut marking = Marking::new(RepairDscp::Packets);
        stream.iter().for_each(|entry| marking.on_packet(entry));
        let names = |range: std::ops::Range<usize>| marking.of(&Recipe::Names { entries: &stream[range] });
        assert_eq!((names(20..40), names(150..200), names(256..300)), (0, 46, 8));
        assert_eq!((names(100..150), names(250..260)), (0, 0), "they differ");
        // A window of stripes ends some packets before the newest one.
        let windows = |range: std::ops::Range<usize>| marking.of(&window(&stream[range]));
        assert_eq!((windows(256..297), windows(200..256), windows(250..300)), (8, 46, 0));
    }

    #[test]
    fn packets_that_no_repair_may_contain_end_a_run() {
        let mut marking = Marking::new(RepairDscp::Packets);
        (0..50).for_each(|seq| marking.on_packet(&entry(seq, 46)));
        // Others were named alone between these.
        (90..100).for_each(|seq| marking.on_packet(&entry(seq, 46)));
        let bulk: Vec<Entry> = (60..90).map(|seq| entry(seq, 0)).collect();
        assert_eq!(marking.of(&Recipe::Names { entries: &bulk }), 0);
        let mixed: Vec<Entry> = bulk.iter().copied().chain((90..100).map(|seq| entry(seq, 46))).collect();
        assert_eq!(marking.of(&window(&mixed)), 0);
    }
}
