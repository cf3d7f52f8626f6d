//! Repairs that come, and what they bring back.

use fec::{Outcome, SymbolId, Term, Window};

use super::{How, Node, Output};
use crate::buffer::{Buffer, PacketKey};
use crate::counters::UnsoundCounts;
use crate::ids::StreamKey;
use crate::tracker::Mention;
use crate::wire::{Data, NAMES_MAX, Name, RepairView, SYMBOL_HEAD};

/// What is known of the packets that a repair names.
struct Named {
    missing: usize,
    /// Which of the keys are worth asking for and not under way, bit by bit.
    wanted: u64,
    /// Its packets cannot all be told apart, or not all be had: no sum can be solved with it.
    unusable: bool,
}

impl Node {
    /// A lateral repair came.
    pub(super) fn mend(&mut self, now_us: u64, repair: &RepairView<'_>, out: &mut impl Output) {
        self.counts.repairs += 1;
        if repair.from == self.config.id {
            return self.counts.own += 1;
        }
        self.tally.repair_came(repair.from, repair.wire_len());
        self.asking.heard(repair.from);
        let mut keys = std::mem::take(&mut self.named);
        let named = self.look_up(now_us, repair, &mut keys);
        self.follow(now_us, repair, &named, &keys, out);
        keys.clear();
        self.named = keys;
    }

    /// What a repair is good for.
    fn follow(
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
                self.ask_holder(now_us, repair.from, missing, out);
            }
            Some(_) if named.unusable => self.counts.repairs_unusable += 1,
            Some(symbol) => self.solve(now_us, keys, symbol, out),
        }
    }

    /// Notes each name with the tracker: so losses are discovered. Puts into `keys` what the names stand for; those of
    /// groups that this node is not in stand for nothing.
    fn look_up(&mut self, now_us: u64, repair: &RepairView<'_>, keys: &mut Vec<PacketKey>) -> Named {
        let mut named = Named { missing: 0, wanted: 0, unusable: false };
        for name in repair.names() {
            let Some(group) = self.groups.by_tag(name.group) else {
                // A stale view, here or there.
                self.counts.foreign += 1;
                named.unusable = true;
                continue;
            };
            let stream = StreamKey { sender: name.sender, group: self.groups.id(group) };
            let key = PacketKey { stream, seq: name.seq };
            keys.push(key);
            if name.sender == self.config.id {
                // Our own packet, which we hold as long as any other.
                named.unusable |= self.buffer.held(key).is_none();
                self.announcer.named(stream.group, name.seq);
                continue;
            }
            let mark = self.asking.mark_of_name(now_us, self.asking.expiry.of_stream(now_us, stream));
            let found = self.tracker.named(now_us, stream, name.seq, mark);
            match found.what {
                Mention::Missing(mark) => {
                    named.missing += 1;
                    let wanted = mark.expires_us.is_none() && !self.asking.awaits(now_us, &mark);
                    named.wanted |= u64::from(wanted) << (keys.len() - 1);
                }
                Mention::Held => named.unusable |= self.buffer.held(key).is_none(),
                Mention::TooOld | Mention::NoRoom => named.unusable = true,
                Mention::Doubtful => {
                    self.counts.doubtful += 1;
                    named.unusable = true;
                }
            }
            self.discovered(found.discovered, now_us, stream);
        }
        named
    }

    fn solve(&mut self, now_us: u64, keys: &[PacketKey], symbol: &[u8], out: &mut impl Output) {
        let mut terms = [Term::xor(SymbolId(0)); NAMES_MAX];
        for (key, term) in keys.iter().zip(&mut terms) {
            let Some(id) = self.buffer.want(*key) else { return self.counts.repairs_unusable += 1 };
            *term = Term::xor(SymbolId(id));
        }
        self.forget_old();
        let mut window =
            Solving { buffer: &mut self.buffer, solved: &mut self.solved, unsound: &mut self.counts.unsound };
        match self.decoder.repair(&mut window, &terms[..keys.len()], symbol) {
            Outcome::Solved(_) => self.counts.repairs_useful += 1,
            Outcome::Stored => self.counts.repairs_waiting += 1,
            Outcome::Redundant => self.counts.repairs_redundant += 1,
            _ => self.counts.repairs_unusable += 1,
        }
        self.deliver_solved(now_us, out);
    }

    /// A packet that equations wait for has come.
    pub(super) fn solve_with(&mut self, now_us: u64, id: u64, out: &mut impl Output) {
        let mut window =
            Solving { buffer: &mut self.buffer, solved: &mut self.solved, unsound: &mut self.counts.unsound };
        self.decoder.source(&mut window, SymbolId(id));
        self.deliver_solved(now_us, out);
    }

    /// What the decoder has solved goes the way of packets that came.
    fn deliver_solved(&mut self, now_us: u64, out: &mut impl Output) {
        while let Some(id) = self.solved.pop() {
            let Some((key, symbol)) = self.buffer.packet(id) else { continue };
            let length = symbol.len();
            let mut scratch = std::mem::take(&mut self.symbol);
            scratch[..length].copy_from_slice(symbol);
            self.deliver_repaired(now_us, id, key, &scratch[..length], out);
            self.symbol = scratch;
        }
    }

    fn deliver_repaired(
        &mut self,
        now_us: u64,
        id: u64,
        key: PacketKey,
        symbol: &[u8],
        out: &mut impl Output,
    ) {
        let Some(group) = self.groups.index(key.stream.group) else { return };
        let Ok(data) = Data::from_symbol(key.name(), key.stream.group, symbol) else { return };
        let Some(fresh) = self.accept(now_us, group, &data, out) else { return };
        self.deliver(now_us, &data, &fresh, How::Repaired, out);
        self.counts.repaired += 1;
        self.spread(now_us, group, id, out);
    }
}

/// The decoder's view of the data buffer.
struct Solving<'a> {
    buffer: &'a mut Buffer,
    solved: &'a mut Vec<u64>,
    unsound: &'a mut UnsoundCounts,
}

impl Window for Solving<'_> {
    fn known(&self, id: SymbolId) -> Option<&[u8]> {
        self.buffer.symbol(id.0)
    }

    fn recovered(&mut self, id: SymbolId, symbol: &[u8]) -> bool {
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
