//! Answering who asks for lists.

use std::net::SocketAddr;

use ricochet_core::NodeId;

use super::{Exchange, List};
use crate::Output;
use crate::allowance::Allowance;
use crate::counters::Dropped;
use crate::wire::{
    CHUNK_GROUPS, CHUNK_HEADER, Chunk, DATAGRAM_MAX, STEPS_HEADER, STEPS_MAX, StepParts, StepsView,
    WANT_CHUNKS, Want, WantsView,
};

impl Exchange {
    pub(super) fn handle_wants(
        &mut self,
        now_us: u64,
        sender: NodeId,
        from: SocketAddr,
        wants: WantsView<'_>,
        out: &mut impl Output,
    ) {
        for want in wants.wants() {
            if let Err(reason) = self.answer(now_us, sender, from, want, out) {
                self.counts.dropped.add(reason);
            }
        }
    }

    fn answer(
        &mut self,
        now_us: u64,
        sender: NodeId,
        from: SocketAddr,
        want: Want,
        out: &mut impl Output,
    ) -> Result<(), Dropped> {
        let list = match self.directory.get(want.id) {
            Some(entry) => &entry.list,
            None if want.id == self.own_id => &self.own,
            None => return Err(Dropped::Unknown),
        };
        let (version, check) = (list.version, list.check);
        if version <= want.have || version < want.version {
            return Err(Dropped::Stale);
        }
        let by_steps = want.have != 0 && want.first == 0;
        if let Some(datagram) = by_steps.then(|| steps_datagram(want.id, list, want.have)).flatten() {
            self.pay(now_us, sender, datagram.len())?;
            self.send(from, &datagram, out);
            return Ok(());
        }
        let groups = list.groups.clone();
        // Another version has other parts, of which none were asked for yet.
        let same = want.version == version;
        let (first, mask) = if same { (usize::from(want.first), want.mask) } else { (0, u8::MAX) };
        for number in (0..WANT_CHUNKS).filter(|bit| mask & (1 << bit) != 0).map(|bit| first + bit) {
            if number >= Chunk::count(groups.len()) {
                break;
            }
            self.pay(now_us, sender, CHUNK_HEADER + CHUNK_GROUPS * 8)?;
            let part = Chunk { id: want.id, version, check, list: &groups, number: number as u16 };
            let length = part.write(&mut self.scratch[..]);
            self.send_scratch(from, length, out);
        }
        Ok(())
    }

    /// Takes bytes from what a peer may have, and from what all may have.
    fn pay(&mut self, now_us: u64, peer: NodeId, bytes: usize) -> Result<(), Dropped> {
        let (one, all) = (self.config.bytes_per_second_peer, self.config.bytes_per_second_all);
        let account: &mut Allowance = &mut self.directory.get_mut(peer).ok_or(Dropped::Stranger)?.allowance;
        if !account.has(now_us, one, bytes) || !self.allowance.has(now_us, all, bytes) {
            return Err(Dropped::Budget);
        }
        account.spend(bytes);
        self.allowance.spend(bytes);
        Ok(())
    }
}

/// The steps from version `have` to the list's, if these are known and fit one datagram.
fn steps_datagram(id: NodeId, list: &List, have: u32) -> Option<Vec<u8>> {
    let steps: Vec<_> = list.steps_since(id, have)?.collect();
    let length = STEPS_HEADER + steps.iter().map(StepParts::wire_len).sum::<usize>();
    if steps.len() > STEPS_MAX || length > DATAGRAM_MAX {
        return None;
    }
    let mut datagram = vec![0; length];
    datagram[..STEPS_HEADER].copy_from_slice(&StepsView::header(steps.len() as u8));
    let mut at = STEPS_HEADER;
    for step in steps {
        at += step.write(&mut datagram[at..]);
    }
    Some(datagram)
}
