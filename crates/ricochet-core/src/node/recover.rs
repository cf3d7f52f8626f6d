//! Received repairs, and the packets recovered from them.

use fec::{Outcome, SymbolId, SymbolStore, Term};

use super::Node;
use crate::buffer::{Buffer, PacketKey};
use crate::counters::UnsoundCounts;
use crate::ids::StreamKey;
use crate::message::{How, Origin, Output};
use crate::tracker::Mention;
use crate::wire::{Data, NAMES_MAX, Name, RepairView, SYMBOL_HEAD};

/// Knowledge about the packets that a repair names.
struct Named {
    missing: usize,
    /// Bit mask of the keys that are worth requesting and not in flight.
    wanted: u64,
    /// Whether the repair's sum cannot be solved, because some of its packets are unknown or out of reach.
    unusable: bool,
}

impl Node {
    /// Handles a lateral repair.
    pub(super) fn handle_repair(&mut self, now_us: u64, repair: &RepairView<'_>, out: &mut impl Output) {
        self.counts.repairs += 1;
        if repair.from == self.config.id {
            return self.counts.own += 1;
        }
        self.tally.on_repair_received(repair.from, repair.wire_len());
        self.requester.on_heard(repair.from);
        let mut keys = std::mem::take(&mut self.named);
        let named = self.look_up(now_us, repair, &mut keys);
        self.use_repair(now_us, repair, &named, &keys, out);
        keys.clear();
        self.named = keys;
    }

    /// Requests the missing packets of a digest, or solves for those of a sum.
    fn use_repair(
        &mut self,
        now_us: u64,
        repair: &RepairView<'_>,
        named: &Named,
        keys: &[PacketKey],
        out: &mut impl Output,
    ) {
        if named.missing == 0 {
            let counter = match named.unusable {
                true => &mut self.counts.repairs_unusable,
                false => &mut self.counts.repairs_redundant,
            };
            return *counter += 1;
        }
        match repair.symbol {
            None => {
                let missing = keys
                    .iter()
                    .enumerate()
                    .filter(|(at, _)| named.wanted >> at & 1 == 1)
                    .map(|(_, &key)| key);
                self.request_from(now_us, repair.from, missing, out);
            }
            Some(_) if named.unusable => self.counts.repairs_unusable += 1,
            Some(symbol) => {
                self.bursts.on_sum(keys.len(), named.missing);
                self.solve(now_us, keys, symbol, out);
            }
        }
    }

    /// Notes each name with the tracker, which may discover losses. Puts the packets that the names stand for
    /// into `keys`, except those of groups that this node is not in.
    fn look_up(&mut self, now_us: u64, repair: &RepairView<'_>, keys: &mut Vec<PacketKey>) -> Named {
        let mut named = Named { missing: 0, wanted: 0, unusable: false };
        for name in repair.names() {
            let Some(group) = self.groups.by_tag(name.group) else {
                // The view is stale, here or at the sender.
                self.counts.foreign += 1;
                named.unusable = true;
                continue;
            };
            let stream = StreamKey { sender: name.sender, group: self.groups.id(group) };
            if self.is_catching_up(stream.group) {
                named.unusable = true;
                continue;
            }
            let key = PacketKey { stream, seq: name.seq };
            keys.push(key);
            if name.sender == self.config.id {
                // Our own packet, which is kept as long as any other.
                named.unusable |= self.buffer.held(key).is_none();
                self.announcer.on_named(stream.group, name.seq);
                continue;
            }
            let mark = self.requester.mark_of_name(now_us, self.requester.expiry.of_stream(now_us, stream));
            let found = self.tracker.on_named(now_us, stream, name.seq, mark);
            match found.what {
                Mention::Missing(mark) => {
                    named.missing += 1;
                    let is_worthless = mark.lapse.is_some_and(|lapse| lapse.forbids_requests(now_us));
                    let wanted = !is_worthless && !self.requester.is_in_flight(now_us, &mark);
                    named.wanted |= u64::from(wanted) << (keys.len() - 1);
                }
                Mention::Held => named.unusable |= self.buffer.held(key).is_none(),
                Mention::TooOld | Mention::NoRoom => named.unusable = true,
                Mention::Doubtful => {
                    self.on_doubtful(stream, found.seq, repair.from);
                    named.unusable = true;
                }
            }
            self.on_discovered(found.discovered, now_us, stream);
        }
        named
    }

    /// Gives a sum to the decoder, and delivers the packets that it solves.
    fn solve(&mut self, now_us: u64, keys: &[PacketKey], symbol: &[u8], out: &mut impl Output) {
        let mut terms = [Term::xor(SymbolId(0)); NAMES_MAX];
        for (key, term) in keys.iter().zip(&mut terms) {
            let Some(id) = self.buffer.want(*key) else { return self.counts.repairs_unusable += 1 };
            *term = Term::xor(SymbolId(id));
        }
        self.forget_old();
        let mut window =
            Solving { buffer: &mut self.buffer, solved: &mut self.solved, unsound: &mut self.counts.unsound };
        match self.decoder.handle_repair(&mut window, &terms[..keys.len()], symbol) {
            Outcome::Solved(_) => self.counts.repairs_useful += 1,
            Outcome::Stored => self.counts.repairs_waiting += 1,
            Outcome::Redundant => self.counts.repairs_redundant += 1,
            _ => self.counts.repairs_unusable += 1,
        }
        self.deliver_solved(now_us, out);
    }

    /// Gives the decoder a packet that equations may wait for.
    pub(super) fn solve_with(&mut self, now_us: u64, id: u64, out: &mut impl Output) {
        let mut window =
            Solving { buffer: &mut self.buffer, solved: &mut self.solved, unsound: &mut self.counts.unsound };
        self.decoder.handle_source(&mut window, SymbolId(id));
        self.deliver_solved(now_us, out);
    }

    fn deliver_solved(&mut self, now_us: u64, out: &mut impl Output) {
        while let Some(id) = self.solved.pop() {
            let Some((key, symbol)) = self.buffer.packet(id) else { continue };
            let length = symbol.len();
            let mut scratch = std::mem::take(&mut self.symbol);
            scratch[..length].copy_from_slice(symbol);
            if let Ok(data) = Data::from_symbol(key.name(), key.stream.group, &scratch[..length]) {
                self.deliver_recovered(now_us, id, &data, out);
            }
            self.symbol = scratch;
        }
    }

    /// Treats a recovered packet like one that arrived.
    fn deliver_recovered(&mut self, now_us: u64, id: u64, data: &Data<'_>, out: &mut impl Output) {
        let Some(group) = self.groups.index(data.group) else { return };
        let Some(fresh) = self.accept(now_us, Origin::Member, group, data, out) else { return };
        self.deliver(now_us, data, &fresh, How::Repaired, out);
        self.log(now_us, data, fresh.seq);
        self.counts.repaired += 1;
        self.add_to_bins(now_us, group, id, out);
    }
}

/// The decoder's view of the data buffer.
struct Solving<'a> {
    buffer: &'a mut Buffer,
    solved: &'a mut Vec<u64>,
    unsound: &'a mut UnsoundCounts,
}

impl SymbolStore for Solving<'_> {
    fn known(&self, id: SymbolId) -> Option<&[u8]> {
        self.buffer.symbol(id.0)
    }

    fn on_recovered(&mut self, id: SymbolId, symbol: &[u8]) -> bool {
        let Some(key) = self.buffer.wanted(id.0) else { return false };
        let name: Name = key.name();
        match Data::from_symbol(name, key.stream.group, symbol) {
            Ok(data) => {
                let length = SYMBOL_HEAD + data.payload.len();
                self.solved.push(id.0);
                self.buffer.put(key, &[&symbol[..length]]).is_some()
            }
            Err(reason) => {
                self.unsound.add(reason);
                false
            }
        }
    }
}
