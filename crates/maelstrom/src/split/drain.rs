//! The end of split mode as the gateway stops: new connections flow unsplit at once, and those that there are
//! get some time to end.

use netio::transparent;
use tracing::{info, warn};

use super::carrier::Carrier;
use super::driver::Driver;
use crate::passive::clock_us;

impl Driver {
    /// Takes no more connections, and asks far gateways for the same.
    pub(super) fn drain(&mut self) {
        let now_us = clock_us();
        let time = self.plan.drain;
        self.drained_by_us = Some(now_us + time.as_micros() as u64);
        self.expire_asked(now_us, true);
        for site in 0..self.sites.len() {
            self.follow_site(site, now_us);
        }
        for index in self.carriers.indices() {
            match self.carriers.get_mut(index).map(Carrier::mux_mut) {
                Some(Some(mux)) => mux.leave(),
                // The far gateway would use it without having heard of the end.
                Some(None) => drop(self.carriers.remove(index)),
                None => {}
            }
        }
        let connections = self.by_stream.len();
        if connections > 0 && !time.is_zero() {
            info!("{connections} split connections have up to {time:?} to end");
        }
    }

    pub(super) fn is_draining(&self) -> bool {
        self.drained_by_us.is_some()
    }

    /// Whether the time is over, or nothing is left that this process must do for its connections.
    pub(super) fn is_drained(&self) -> bool {
        let Some(by_us) = self.drained_by_us else { return false };
        let connections = self.by_stream.len();
        if clock_us() >= by_us {
            if connections > 0 {
                warn!(
                    "{connections} split connections have not ended and are reset, because the gateway stops"
                );
            }
            return true;
        }
        connections == 0
            && self.rests.iter().next().is_none()
            && self.parting.is_empty()
            && self.carriers.iter().all(|(_, carrier)| is_sent(carrier))
    }
}

/// Whether the far gateway has everything that was sent on a carrier. One that does not work counts as sent.
fn is_sent(carrier: &Carrier) -> bool {
    let Some(mux) = carrier.mux() else { return true };
    mux.output().is_empty() && transparent::state(&carrier.socket).is_ok_and(|state| state.is_acknowledged)
}
