//! Services to which packets of the far site come: whether the first packet of a flow may be recovered.
//!
//! Nothing of a new flow has arrived. A packet filter between the gateways may have dropped its first packet,
//! and a recovered copy would pass the filter. The copy is therefore injected only if first packets of other
//! flows between the same hosts have arrived at the same service, or as answers of the same service, and if
//! no more of them are missing than the link loses.

use super::account::ONE;
use crate::flow::{Flow, Service};
use crate::identity::Identity;
use crate::packet::Packet;

/// Number of sets; a power of two.
const SETS: usize = 1024;
/// Services in each set. A new service replaces the one that was silent longest.
const WAYS: usize = 4;
/// Time after the newest arrival for which a service is known, in microseconds.
pub(super) const KNOWN_US: u64 = 300_000_000;
/// Largest balance of a service: the first packets of flows that are recovered one after the other.
const BALANCE_MAX: i64 = 3 * ONE;
/// Smallest balance. Where a limiter or a filter drops packets, the balance stays near it.
const BALANCE_MIN: i64 = -4 * ONE;
/// Number of departures remembered; a power of two.
const DEPARTURES: usize = 4096;

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    service: Service,
    /// First packets that may be recovered, in units of [`ONE`].
    balance: i64,
    /// Time of the newest arrival; 0 if there was none.
    at_us: u64,
}

/// The two ends of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) flow: Flow,
    /// The service that the packet is sent to.
    pub(super) asked: Service,
    /// The service that the packet comes from.
    pub(super) answering: Service,
}

impl Ends {
    /// Returns the ends of a packet of `flow`.
    pub(super) fn of(packet: &Packet<'_>, identity: &Identity, flow: Flow) -> Self {
        let (asked, answering) = (Service::asked(packet, identity), Service::answering(packet, identity));
        Self { flow, asked, answering }
    }
}

/// A bounded table of services, and the flows that left this site lately.
pub(super) struct Services {
    known: Box<[[Known; WAYS]]>,
    /// The flows in which an answer to a packet that left arrives, and the time at which it left.
    departures: Box<[(Flow, u64)]>,
}

impl Services {
    pub(super) fn new() -> Self {
        Self {
            known: vec![[Known::default(); WAYS]; SETS].into_boxed_slice(),
            departures: vec![(Flow::default(), 0); DEPARTURES].into_boxed_slice(),
        }
    }

    fn set(service: Service) -> usize {
        service.0 as usize & (SETS - 1)
    }

    fn departure(flow: Flow) -> usize {
        flow.0 as usize & (DEPARTURES - 1)
    }

    /// Notes that a packet left whose answers arrive in this flow.
    pub(super) fn on_departure(&mut self, now_us: u64, answers: Flow) {
        self.departures[Self::departure(answers)] = (answers, now_us);
    }

    /// Whether a packet of this flow answers one that left lately.
    fn is_answer(&self, now_us: u64, flow: Flow) -> bool {
        let (answers, at_us) = self.departures[Self::departure(flow)];
        answers == flow && at_us > 0 && now_us < at_us + KNOWN_US
    }

    /// Notes the first arrival of a flow. The balance of its services rises by `credit`. Returns the service
    /// that later arrivals of the flow keep known.
    pub(super) fn on_first(&mut self, now_us: u64, ends: &Ends, credit: i64) -> Service {
        self.earn(now_us, ends.asked, credit);
        if !self.is_answer(now_us, ends.flow) {
            return ends.asked;
        }
        self.earn(now_us, ends.answering, credit);
        ends.answering
    }

    fn earn(&mut self, now_us: u64, service: Service, credit: i64) {
        let set = &mut self.known[Self::set(service)];
        if let Some(known) = set.iter_mut().find(|known| known.service == service && known.at_us > 0) {
            let is_fresh = now_us < known.at_us + KNOWN_US;
            known.balance = if is_fresh { (known.balance + credit).min(BALANCE_MAX) } else { ONE };
            known.at_us = now_us;
        } else if let Some(oldest) = set.iter_mut().min_by_key(|known| known.at_us) {
            *oldest = Known { service, balance: ONE, at_us: now_us };
        }
    }

    /// Notes a further arrival of a flow of this service.
    pub(super) fn on_arrival(&mut self, now_us: u64, service: Service) {
        let set = &mut self.known[Self::set(service)];
        if let Some(known) = set.iter_mut().find(|known| known.service == service && known.at_us > 0) {
            known.at_us = now_us;
        }
    }

    /// Takes the first packet of a flow, which is missing. Returns whether it may be recovered.
    pub(super) fn on_missing(&mut self, now_us: u64, ends: &Ends) -> bool {
        self.spend(now_us, ends.asked)
            || self.is_answer(now_us, ends.flow) && self.spend(now_us, ends.answering)
    }

    fn spend(&mut self, now_us: u64, service: Service) -> bool {
        let set = &mut self.known[Self::set(service)];
        let is_known = |known: &&mut Known| {
            known.service == service && known.at_us > 0 && now_us < known.at_us + KNOWN_US
        };
        let Some(known) = set.iter_mut().find(is_known) else { return false };
        let suffices = known.balance >= ONE;
        known.balance = (known.balance - ONE).max(BALANCE_MIN);
        suffices
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.known) + size_of_val(&*self.departures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(flow: u32, asked: u32) -> Ends {
        Ends { flow: Flow(flow), asked: Service(asked), answering: Service(asked + 1_000_000) }
    }

    #[test]
    fn a_service_to_which_nothing_came_gets_nothing() {
        let mut services = Services::new();
        assert!(!services.on_missing(10, &ends(1, 5)));
        services.on_first(10, &ends(2, 6), ONE);
        assert!(!services.on_missing(20, &ends(3, 5)));
        assert!(services.on_missing(20, &ends(4, 6)) && !services.on_missing(20, &ends(5, 6)));
        services.on_first(30, &ends(6, 5), 0);
        assert!(!services.on_missing(30 + KNOWN_US, &ends(7, 5)), "that was long ago");
    }

    #[test]
    fn answers_need_a_packet_that_left_and_earlier_answers() {
        let mut services = Services::new();
        // Each answer goes to another port of this site.
        let answer = |flow: u32| Ends { answering: Service(77), ..ends(flow, 100 + flow) };
        services.on_first(10, &answer(1), ONE);
        services.on_departure(10, Flow(2));
        assert!(!services.on_missing(20, &answer(2)), "the first arrival was no answer");
        services.on_departure(20, Flow(3));
        services.on_first(30, &answer(3), ONE);
        assert!(!services.on_missing(40, &answer(4)), "nothing left to this flow");
        assert!(services.on_missing(40, &answer(2)) && !services.on_missing(40, &answer(2)));
    }

    #[test]
    fn more_losses_than_the_link_explains_use_the_balance_up() {
        for (every, expected) in [(100, 95..=100), (10, 0..=3)] {
            let (mut services, mut recovered) = (Services::new(), 0);
            // Each hundredth sealed datagram is lost.
            (0..100 * every).for_each(|n| {
                if n % every == every / 2 {
                    recovered += u32::from(services.on_missing(10, &ends(n, 5)));
                } else {
                    services.on_first(10, &ends(n, 5), 2 * ONE / 99);
                }
            });
            assert!(expected.contains(&recovered), "one in {every}: {recovered}");
        }
    }

    #[test]
    fn a_full_set_forgets_the_service_that_was_silent_longest() {
        let mut services = Services::new();
        let same_set = |n: u32| ends(n, 5 + n * SETS as u32);
        (0..5).for_each(|n| _ = services.on_first(10 + u64::from(n), &same_set(n), 0));
        assert!(!services.on_missing(20, &same_set(0)));
        assert!((1..5).all(|n| services.on_missing(20, &same_set(n))));
    }

    #[test]
    fn a_balance_is_bounded_and_begins_again_after_a_long_silence() {
        let recovered = |services: &mut Services, now_us: u64| {
            (0..9).filter(|&n| services.on_missing(now_us, &ends(n, 5))).count()
        };
        let mut services = Services::new();
        (0..99).for_each(|n| _ = services.on_first(10, &ends(n, 5), ONE));
        assert_eq!(recovered(&mut services, 20), 3);
        (0..99).for_each(|n| _ = services.on_first(30, &ends(n, 5), ONE));
        services.on_first(30 + KNOWN_US, &ends(7, 5), ONE);
        assert_eq!(recovered(&mut services, 40 + KNOWN_US), 1);
        // A packet that left long ago has no answer any more.
        services.on_departure(50 + KNOWN_US, Flow(1));
        services.on_first(60 + KNOWN_US, &Ends { answering: Service(77), ..ends(1, 8) }, ONE);
        services.on_departure(10, Flow(2));
        assert!(!services.on_missing(60 + KNOWN_US, &Ends { answering: Service(77), ..ends(2, 9) }));
    }
}
