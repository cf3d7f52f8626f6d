//! Coming back: this node, when others took it for dead, and others, when a cluster that fell apart is whole again.

use std::net::SocketAddr;

use super::Gossip;
use crate::Output;
use crate::wire::swim::{Identity, LIFE_MAX};

/// Time between two attempts to come back.
const REJOIN_PERIOD_US: u64 = 100_000;
/// An attempt that is followed by no other for this long has succeeded.
const SETTLED_US: u64 = 5_000_000;
/// Members that are told at once that this node lives.
const GREETED: usize = 2;

/// This node's attempts to come back.
///
/// Nobody can refute its own death: the dead must become another identity, of a later life at the same address. The id
/// stays, since it names the streams. A life is a time of start in microseconds; one more is enough where a living
/// node was taken for dead, and cannot be confused with a true restart.
///
/// If the clock was set back before a restart, others know a life here that is later than this one. As long as they take
/// it for alive they send to it, and so it is known. Else each attempt adds 256 times as much as the last.
#[derive(Debug, Default)]
pub(super) struct Rejoin {
    due_us: Option<u64>,
    last_us: Option<u64>,
    attempts: u32,
    /// A life that others know here.
    rival: u64,
}

/// The last attempts add 2^48 microseconds each, nine years.
const ATTEMPTS_MAX: u32 = 6;

impl Rejoin {
    pub(super) fn want(&mut self, now_us: u64) {
        let earliest_us = self.last_us.map_or(0, |last_us| last_us + REJOIN_PERIOD_US);
        self.due_us = Some(earliest_us.max(now_us));
    }

    /// Others take `life` for the one that lives here.
    pub(super) fn outlive(&mut self, now_us: u64, life: u64) {
        self.rival = self.rival.max(life);
        self.want(now_us);
    }

    pub(super) fn due_us(&self) -> Option<u64> {
        self.due_us
    }

    /// The life to go on with.
    fn take(&mut self, now_us: u64, life: u64) -> Option<u64> {
        self.due_us.take_if(|due_us| *due_us <= now_us)?;
        if self.last_us.is_some_and(|last_us| now_us >= last_us + SETTLED_US) {
            self.attempts = 0;
        }
        self.last_us = Some(now_us);
        if self.rival >= life {
            return Some((self.rival + 1).min(LIFE_MAX));
        }
        let step = 1 << (8 * self.attempts);
        self.attempts = (self.attempts + 1).min(ATTEMPTS_MAX);
        Some((life + step).min(LIFE_MAX))
    }
}

/// Once one node is back from the dead, the others of its part of the cluster are probably alive too: they are asked in
/// quick succession.
#[derive(Debug, Default)]
pub(super) struct Reviving {
    due_us: Option<u64>,
    rounds: u8,
}

impl Reviving {
    const PERIOD_US: u64 = 100_000;
    const ROUNDS: u8 = 10;
    /// Nodes that are asked in a round.
    const ASKED: usize = 4;

    pub(super) fn begin(&mut self, now_us: u64) {
        self.rounds = Self::ROUNDS;
        self.due_us.get_or_insert(now_us);
    }

    pub(super) fn due_us(&self) -> Option<u64> {
        self.due_us
    }
}

impl Gossip {
    pub(super) fn rejoin_if_due(&mut self, now_us: u64, out: &mut impl Output) {
        let me = *self.foca.identity();
        let Some(life) = self.rejoin.take(now_us, me.life) else { return };
        let again = Identity { life, ..me };
        self.exchange.counts.rejoined += 1;
        self.connected = false;
        if again == me {
            // No life is later. The others will have forgotten the death some day.
            self.drive(now_us, out, |foca, _| foca.reuse_down_identity());
        } else {
            self.drive(now_us, out, |foca, events| foca.change_identity(again, events));
        }
        for _ in 0..GREETED.min(self.exchange.directory.len()) {
            let place = self.exchange.draw(self.exchange.directory.len() as u64) as usize;
            self.announce(now_us, self.exchange.directory.at(place).peer.address, out);
        }
    }

    pub(super) fn revive_if_due(&mut self, now_us: u64, out: &mut impl Output) {
        if self.reviving.due_us.is_none_or(|due_us| due_us > now_us) {
            return;
        }
        let dead: Vec<SocketAddr> = self.dead.keys().copied().collect();
        self.reviving.rounds -= 1;
        let over = self.reviving.rounds == 0 || dead.is_empty();
        self.reviving.due_us = (!over).then_some(now_us + Reviving::PERIOD_US);
        for _ in 0..Reviving::ASKED.min(dead.len()) {
            let place = self.exchange.draw(dead.len() as u64) as usize;
            self.announce(now_us, dead[place], out);
        }
    }
}
