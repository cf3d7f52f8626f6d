//! Replies to requests for lists.

use ricochet_core::NodeId;

use super::allowance::Allowance;
use super::config::ListsConfig;
use super::directory::Directory;
use super::list::List;
use crate::counters::Dropped;
use crate::wire::{
    CHUNK_GROUPS, CHUNK_HEADER, Chunk, DATAGRAM_MAX, ListRequest, REQUEST_CHUNKS, STEPS_HEADER, STEPS_MAX,
    StepParts, StepsView,
};

/// Replies to requests, within a limit for each member and one for all members together.
#[derive(Debug)]
pub(super) struct Replies {
    config: ListsConfig,
    /// Bytes of lists that this node may send to all members together.
    allowance: Allowance,
}

impl Replies {
    pub(super) fn new(config: ListsConfig) -> Self {
        Self { config, allowance: Allowance::new(config.bytes_per_second_all) }
    }

    /// Sends the datagrams by which this node replies to a member's request.
    pub(super) fn reply(
        &mut self,
        now_us: u64,
        directory: &mut Directory,
        requester: NodeId,
        request: ListRequest,
        mut send: impl FnMut(&[u8]),
    ) -> Result<(), Dropped> {
        let list = directory.list(request.id).ok_or(Dropped::Unknown)?;
        let (version, check) = (list.version, list.check);
        // Of its own list a node knows that no newer version exists, whatever the requester was told.
        let is_own = request.id == directory.own_id();
        if version <= request.have || (version < request.version && !is_own) {
            return Err(Dropped::Stale);
        }
        let by_steps = request.have != 0 && request.first == 0;
        if let Some(datagram) = by_steps.then(|| steps_datagram(request.id, list, request.have)).flatten() {
            self.spend(now_us, directory, requester, datagram.len())?;
            send(&datagram);
            return Ok(());
        }
        let groups = list.groups.clone();
        // Another version has other parts, of which the requester has none.
        let same = request.version == version;
        let (first, mask) = if same { (usize::from(request.first), request.mask) } else { (0, u8::MAX) };
        for number in (0..REQUEST_CHUNKS).filter(|bit| mask & (1 << bit) != 0).map(|bit| first + bit) {
            if number >= Chunk::count(groups.len()) {
                break;
            }
            self.spend(now_us, directory, requester, CHUNK_HEADER + CHUNK_GROUPS * 8)?;
            let part = Chunk { id: request.id, version, check, list: &groups, number: number as u16 };
            let mut datagram = [0; DATAGRAM_MAX];
            let length = part.write(&mut datagram);
            send(&datagram[..length]);
        }
        Ok(())
    }

    /// Takes bytes from the member's allowance and from that of all members.
    fn spend(
        &mut self,
        now_us: u64,
        directory: &mut Directory,
        member: NodeId,
        bytes: usize,
    ) -> Result<(), Dropped> {
        let own = &mut directory.get_mut(member).ok_or(Dropped::NotMember)?.allowance;
        own.refill(now_us, self.config.bytes_per_second_member);
        self.allowance.refill(now_us, self.config.bytes_per_second_all);
        if !own.has(bytes) || !self.allowance.has(bytes) {
            return Err(Dropped::RateLimit);
        }
        own.spend(bytes);
        self.allowance.spend(bytes);
        Ok(())
    }
}

/// Returns a datagram with the steps from version `have` to the list's, if they
/// are known and fit one datagram.
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
