//! Answers to the requests of the far ingress, and the caps on those of our own.

use fec::Scheme;
use foundation::Seq;

use super::Egress;
use crate::caps::Cap;
use crate::coder::CodedRepair;
use crate::counters::{Refused, Unanswered};
use crate::kept::{FlowEnds, Kept};
use crate::sender::Outlet;
use crate::wire::{Half, Lag, Recipe, Request, SEALED_HEADER, TAG};

/// Number of bytes by which the UDP payload of a copy is longer than its symbol, also if it is cut in two.
const COPY_OVERHEAD: usize = 2 * (SEALED_HEADER + TAG + Half::HEADER) + 17;

impl Egress {
    /// The packets that are kept to answer requests, by flow, if that `is_wanted`.
    pub(crate) fn kept(&self, now_us: u64, is_wanted: impl Fn(&FlowEnds) -> bool) -> Kept {
        self.answers.kept(now_us, is_wanted)
    }

    /// Sends the packets that the peer asks for, as far as they are kept and the budget allows.
    pub(crate) fn handle_request(&mut self, request: &Request, outlet: &mut Outlet<'_>) {
        self.sender.counts.requests += 1;
        // Answers that wait behind the packets of a tunnel would not be charged before they leave.
        self.sender.flush_packets(outlet);
        let mut left = request.deficit;
        // Any of the places named helps. Only those that the peer then lacks count as not answered.
        let mut spare = request.places().count().saturating_sub(left.into());
        for seq in request.places() {
            if left == 0 {
                break;
            }
            match self.answer(seq, outlet) {
                Ok(()) => left -= 1,
                Err(Unanswered::Capped) => {
                    // One packet that is not answered, though more places are named. The others would not
                    // be either.
                    self.sender.counts.unanswered.add(Unanswered::Capped);
                    break;
                }
                Err(_) if spare > 0 => spare -= 1,
                Err(reason) => self.sender.counts.unanswered.add(reason),
            }
        }
    }

    /// Decides whether a request of ours leaves, in a datagram of this length.
    pub(crate) fn admit_request(&mut self, now_us: u64, len: usize) -> bool {
        let is_admitted = self.sender.admit(now_us, Refused::Request).is_ok();
        if is_admitted {
            self.sender.caps.on_datagram(len + self.sender.outer);
        }
        is_admitted
    }

    fn answer(&mut self, seq: Seq, outlet: &mut Outlet<'_>) -> Result<(), Unanswered> {
        let overhead = COPY_OVERHEAD + self.sender.outer;
        // The caps let nothing pass that is not sent anyway.
        self.answers.check(seq, overhead)?;
        self.sender.admit(outlet.now_us, Refused::Answer).map_err(|_: Cap| Unanswered::Capped)?;
        let (entry, symbol) = self.answers.answer(seq, overhead)?;
        let entries = &[entry];
        let recipe = Recipe::Named { scheme: Scheme::Layered, row: 0, stride: 1, entries };
        let before = self.sender.counts.repair_bytes;
        // It says nothing about the newest packets.
        self.sender.transmit(&CodedRepair { recipe, symbol }, Lag::UNKNOWN, outlet);
        self.sender.counts.answers += 1;
        self.sender.counts.answer_bytes += self.sender.counts.repair_bytes - before;
        Ok(())
    }
}
