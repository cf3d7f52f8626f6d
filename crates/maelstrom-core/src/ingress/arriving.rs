//! Packets that arrive from the peer's site, and those that another gateway of its rack recovers.

use std::num::NonZero;

use super::{Ingress, IngressCx};
use crate::arrivals::{Arrived, Trace};
use crate::flow::Traits;
use crate::held::OVERTAKEN_MAX_US;
use crate::identity::Identity;
use crate::packet::{MutableFields, Packet};
use crate::symbol::{SYMBOL_HEADER, Symbol};
use crate::thinning::is_sampled;

impl Ingress {
    /// Takes a packet that arrived from the peer's site. A copy of what another gateway of its rack recovered
    /// is known from here on, and does not show how long packets take.
    pub(crate) fn handle_packet(&mut self, cx: &mut IngressCx<'_>, packet: &Packet<'_>) {
        if !cx.is_copy {
            self.counts.source_packets += 1;
            self.counts.source_bytes += packet.as_slice().len() as u64;
        }
        if packet.as_slice().len() + SYMBOL_HEADER > self.symbol_max {
            self.counts.too_long += 1;
            return;
        }
        self.rung.on_packet(packet, self.ledger.newest());
        let hash = cx.identity.hash(packet);
        let symbol = Symbol::new(packet, hash, MutableFields::default());
        let traits = Traits::of(packet, cx.identity);
        self.held.on_arrival();
        let injected_us = self.path.on_arrival(cx.now_us, &traits, is_sampled(hash), packet, cx.identity);
        let name = cx.identity.name(hash);
        let Traits { flow, opens, is_fragment, timestamp } = traits;
        let (ttl, opens) = (packet.mutable_fields().ttl, opens.is_some());
        let timestamp = timestamp.and_then(NonZero::new);
        let trace = Trace { flow, ttl, opens, is_fragment, timestamp };
        match self.arrivals.insert(cx.now_us, name, trace, &symbol) {
            Arrived::Kept => {
                if let Some(injected_us) = injected_us.filter(|_| !cx.is_copy) {
                    self.on_late_fragment(cx.now_us, injected_us);
                }
            }
            Arrived::LikeRecovered { late_us, is_repeated, counted, is_injected } => {
                if cx.is_copy {
                    return;
                }
                self.counts.on_duplicates(u64::from(is_injected));
                self.counts.after_withholding += u64::from(!is_injected);
                // The arrival of one of many equal packets does not show how late the lost one was.
                let is_slow = !is_repeated && late_us > OVERTAKEN_MAX_US;
                self.arrivals.on_double(name, is_injected, is_slow);
                if !is_repeated {
                    self.held.on_late_packet(late_us);
                }
                if is_slow {
                    self.path.on_slow(trace, counted);
                } else if !is_repeated {
                    self.path.on_overtaken(trace, counted);
                }
            }
            Arrived::Late { seq, late_us, counted, .. } => {
                if !cx.is_copy {
                    self.counts.late += 1;
                    self.held.on_late_packet(late_us);
                }
                self.path.on_late(counted);
                self.path.on_named_arrival(trace, seq);
                self.report_to_decoder(cx, seq);
            }
        }
    }

    /// Takes the first fragment of a packet that the far gateway protects, while it protects no fragments.
    pub(crate) fn handle_first_fragment(&mut self, now_us: u64, packet: &Packet<'_>, identity: &Identity) {
        if let Some(injected_us) = self.path.on_first_fragment(now_us, packet, identity) {
            self.on_late_fragment(now_us, injected_us);
        }
    }

    /// Notes that the first fragment of a packet arrived that had been injected.
    fn on_late_fragment(&mut self, now_us: u64, injected_us: u64) {
        self.counts.on_duplicates(1);
        self.held.on_late_packet(now_us.saturating_sub(injected_us));
        self.path.on_late_fragment(now_us);
    }
}
