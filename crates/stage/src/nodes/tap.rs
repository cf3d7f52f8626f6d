//! Injects loss between a node's sockets and its core, so that each lost packet and its time are known.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ricochet_core::StreamKey;
use ricochet_core::wire::{Kind, Peek};
use sim::Setting;
use sim::cluster::{HEADERS, Wire};

use super::clock::Clock;

/// A dropped data packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Missed {
    pub(crate) now_us: u64,
    pub(crate) key: StreamKey,
    pub(crate) seq: u32,
}

/// Datagrams that reached one node.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// Counters by the low half of the first byte, without those of sending: `copies`, `arrived`, and `bytes`
    /// of the copies.
    pub(crate) wires: [Wire; 16],
    pub(crate) missed: Vec<Missed>,
}

/// Shared by the node's thread, which fills it, and the bench, which reads it at the end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tap(Arc<Mutex<Arrivals>>);

impl Tap {
    pub(crate) fn arrivals(&self) -> MutexGuard<'_, Arrivals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops a node's datagrams by the setting's models, independently at each node. Membership datagrams are
    /// never lost, because nodes know each other in virtual time.
    pub(crate) fn lose(
        &self,
        setting: &Setting,
        at: usize,
        clock: Clock,
    ) -> impl FnMut(&[u8]) -> bool + Send + use<> {
        let seed = setting.seed.wrapping_mul(1_000_003).wrapping_add(at as u64);
        let mut data = setting.loss.seeded(seed);
        let mut other = setting.loss_other.seeded(seed ^ 0x6f74_6865_7200);
        let tap = self.clone();
        move |datagram| {
            let Ok(peek) = Peek::read(datagram) else { return false };
            let lost = if peek.kind == Kind::Data { data.lose() } else { other.lose() };
            tap.arrivals().note(&peek, datagram.len(), lost.then(|| clock.now_us()));
            lost
        }
    }
}

impl Arrivals {
    fn note(&mut self, peek: &Peek, length: usize, lost_us: Option<u64>) {
        let wire = &mut self.wires[peek.kind as usize];
        wire.copies += 1;
        wire.bytes += (HEADERS + length) as u64;
        let Some(now_us) = lost_us else {
            wire.arrived += 1;
            return;
        };
        if let (Kind::Data, Some((group, seq))) = (peek.kind, peek.packet) {
            self.missed.push(Missed { now_us, key: StreamKey { sender: peek.sender, group }, seq });
        }
    }
}

#[cfg(test)]
mod tests {
    use loss::LossModel;
    use ricochet_core::wire::{Data, Extras, Heartbeat, Latest};
    use ricochet_core::{GroupId, NodeId};

    use super::*;

    fn data(seq: u32) -> Vec<u8> {
        let (sender, group) = (NodeId(3), GroupId(9));
        let mut bytes = vec![0; 100];
        let data = Data {
            sender,
            group,
            seq,
            sender_seq: seq,
            expires: false,
            fragment: false,
            joint: false,
            extras: Extras::NONE,
            payload: b"x",
        };
        let length = data.write(&mut bytes);
        bytes.truncate(length);
        bytes
    }

    #[test]
    fn a_loss_is_identified_and_all_arrivals_are_counted() {
        let setting = Setting {
            loss: LossModel::Uniform(0.5),
            loss_other: LossModel::Uniform(1.0),
            ..Setting::default()
        };
        let tap = Tap::default();
        let mut lose = tap.lose(&setting, 2, Clock::start());
        let lost: Vec<u32> = (0..1_000).filter(|&seq| lose(&data(seq))).collect();
        let mut heartbeat = [0; 100];
        let length =
            Heartbeat { sender: NodeId(3), sender_seq: 1, latest: &[Latest { group: GroupId(9), seq: 1 }] }
                .write(&mut heartbeat);
        assert!(lose(&heartbeat[..length]));
        assert!(!lose(&[membership::wire::FIRST_BYTE, 1]) && !lose(&[]));
        let arrivals = tap.arrivals();
        assert!((400..600).contains(&lost.len()));
        assert!(arrivals.missed.iter().map(|missed| missed.seq).eq(lost.iter().copied()));
        let wire = arrivals.wires[1];
        assert_eq!((wire.copies, wire.arrived), (1_000, 1_000 - lost.len() as u64));
        assert_eq!(wire.bytes, 1_000 * (HEADERS + data(0).len()) as u64);
        assert_eq!(
            (arrivals.wires[5].copies, arrivals.wires[5].arrived, arrivals.wires[6].copies),
            (1, 0, 0)
        );
    }

    #[test]
    fn each_node_loses_independently_and_reproducibly() {
        let setting = Setting { loss: LossModel::Uniform(0.1), ..Setting::default() };
        let losses = |at| {
            let mut lose = Tap::default().lose(&setting, at, Clock::start());
            (0..500).map(|seq| lose(&data(seq))).collect::<Vec<_>>()
        };
        assert_eq!(losses(1), losses(1));
        assert_ne!(losses(1), losses(2));
    }
}
