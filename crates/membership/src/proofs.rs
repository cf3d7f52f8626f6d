//! Proofs of which node lives at which address.
//!
//! Without a cluster key, any datagram may be forged: its source address, the identity that it states, and
//! what it tells of others. So a node takes nothing from an address before the node there has answered a
//! question, and believes no news of another node's death or new life before that node was asked itself. An
//! answer repeats a random token, which is sent to no other address.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use hashbrown::HashMap;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng as _;
use ricochet_core::NodeId;

use crate::counters::Dropped;

/// Intervals between questions to one address, in microseconds. Three questions cost an address that has sent
/// one datagram no more than three times its bytes.
const WAITS_US: [u64; 3] = [40_000, 80_000, 120_000];
/// Time for which an address that has not answered is not asked again, in microseconds.
const REST_US: u64 = 200_000;
/// Maximum number of addresses asked at a time.
const ASKED_MAX: usize = 4_096;
/// Maximum number of datagrams held until their senders have answered.
const HELD_MAX: usize = 256;
/// News of a life that begins later than this after the present time are refused: a day, in microseconds.
pub(crate) const TOMORROW_US: u64 = 86_400_000_000;

/// A node that has answered from its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proven {
    pub(crate) id: NodeId,
    pub(crate) life: u64,
}

#[derive(Debug)]
struct Asked {
    token: u64,
    due_us: u64,
    /// Number of questions sent.
    tries: usize,
    /// A datagram that waits for the answer.
    held: Option<Box<[u8]>>,
    /// News that the node there is gone: its incarnation. True if no answer comes.
    gone: Option<u16>,
}

/// Work that is due.
#[derive(Debug, Default)]
pub(crate) struct Due {
    /// Addresses to question, with the tokens of the questions.
    pub(crate) questions: Vec<(SocketAddr, u64)>,
    /// Addresses of nodes that are said to be gone and have not answered, with their incarnations.
    pub(crate) gone: Vec<(SocketAddr, u16)>,
}

/// The proofs of one node.
#[derive(Debug)]
pub(crate) struct Proofs {
    proven: HashMap<SocketAddr, Proven>,
    asked: BTreeMap<SocketAddr, Asked>,
    held: usize,
    /// The life of this node at its start, and the time of its first event: the only clock that it has.
    born: u64,
    started_us: Option<u64>,
    rng: ChaCha8Rng,
}

impl Proofs {
    pub(crate) fn new(born: u64, rng: ChaCha8Rng) -> Self {
        Self { proven: HashMap::new(), asked: BTreeMap::new(), held: 0, born, started_us: None, rng }
    }

    /// Notes the time of an event.
    pub(crate) fn on_time(&mut self, now_us: u64) {
        self.started_us.get_or_insert(now_us);
    }

    /// Returns the latest life that is believed of others' news: a time that is a day ahead.
    pub(crate) fn latest_life(&self, now_us: u64) -> u64 {
        let since_us = now_us.saturating_sub(self.started_us.unwrap_or(now_us));
        self.born.saturating_add(since_us).saturating_add(TOMORROW_US)
    }

    /// Returns the node that has proven that it lives at an address.
    pub(crate) fn at(&self, address: SocketAddr) -> Option<Proven> {
        self.proven.get(&address).copied()
    }

    pub(crate) fn is_proven(&self, address: SocketAddr, id: NodeId, life: u64) -> bool {
        self.at(address) == Some(Proven { id, life })
    }

    /// Asks which node lives at an address, unless it is being asked.
    pub(crate) fn ask(&mut self, now_us: u64, address: SocketAddr) {
        if self.asked.contains_key(&address) || self.asked.len() >= ASKED_MAX {
            return;
        }
        let asked = Asked { token: self.rng.next_u64(), due_us: now_us, tries: 0, held: None, gone: None };
        self.asked.insert(address, asked);
    }

    /// Asks once, which an address costs no more than the few bytes that named it.
    pub(crate) fn ask_once(&mut self, now_us: u64, address: SocketAddr) {
        if !self.asked.contains_key(&address) && self.asked.len() < ASKED_MAX / 2 {
            self.ask(now_us, address);
            if let Some(asked) = self.asked.get_mut(&address) {
                asked.tries = WAITS_US.len() - 1;
            }
        }
    }

    /// Asks at an address that others have named, unless many are being asked.
    pub(crate) fn ask_named(&mut self, now_us: u64, address: SocketAddr) {
        if self.asked.len() < ASKED_MAX / 2 {
            self.ask(now_us, address);
        }
    }

    /// Asks, and holds a datagram from the address until the answer comes.
    pub(crate) fn ask_and_hold(&mut self, now_us: u64, address: SocketAddr, datagram: &[u8]) {
        self.ask(now_us, address);
        let room = self.held < HELD_MAX;
        let Some(asked) = self.asked.get_mut(&address) else { return };
        if asked.held.is_none() && room && asked.tries <= WAITS_US.len() {
            asked.held = Some(datagram.into());
            self.held += 1;
        }
    }

    /// Asks whether the node at an address still lives there, because another says that it does not.
    pub(crate) fn ask_whether_gone(&mut self, now_us: u64, address: SocketAddr, incarnation: u16) {
        self.ask(now_us, address);
        if let Some(asked) = self.asked.get_mut(&address)
            && asked.tries <= WAITS_US.len()
        {
            // The last question may have been lost.
            asked.tries = asked.tries.min(1);
            asked.gone = Some(incarnation.max(asked.gone.unwrap_or(0)));
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.asked.values().map(|asked| asked.due_us).min()
    }

    /// Returns what is due.
    pub(crate) fn poll(&mut self, now_us: u64) -> Due {
        let Due { mut questions, mut gone } = Due::default();
        let Self { asked, held, .. } = self;
        asked.retain(|&address, asked| {
            if asked.due_us > now_us {
                return true;
            }
            let Some(wait_us) = WAITS_US.get(asked.tries) else {
                if asked.tries > WAITS_US.len() {
                    return false;
                }
                asked.tries += 1;
                asked.due_us = now_us + REST_US;
                *held -= usize::from(asked.held.take().is_some());
                gone.extend(asked.gone.take().map(|incarnation| (address, incarnation)));
                return true;
            };
            asked.tries += 1;
            asked.due_us = now_us + wait_us;
            questions.push((address, asked.token));
            true
        });
        Due { questions, gone }
    }

    /// Takes an answer, and returns the datagram that waited for it. Returns an error if the answer lacks the
    /// token of a question to this address.
    pub(crate) fn on_answer(
        &mut self,
        address: SocketAddr,
        token: u64,
        node: Proven,
    ) -> Result<Option<Box<[u8]>>, Dropped> {
        if self.asked.get(&address).is_none_or(|asked| asked.token != token) {
            return Err(Dropped::Unrequested);
        }
        let held = self.asked.remove(&address).and_then(|asked| asked.held);
        self.held -= usize::from(held.is_some());
        self.proven.insert(address, node);
        Ok(held)
    }

    /// Forgets the node at an address.
    pub(crate) fn forget(&mut self, address: SocketAddr) {
        self.proven.remove(&address);
    }

    /// Forgets the nodes at addresses for which `keep` returns false, if there are more than `most`.
    pub(crate) fn sweep(&mut self, most: usize, keep: impl Fn(&SocketAddr) -> bool) {
        if self.proven.len() > most {
            self.proven.retain(|address, _| keep(address));
        }
    }

    /// Returns roughly the bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.proven.len() * 64 + self.asked.len() * 128 + self.held * 1_400
    }
}
