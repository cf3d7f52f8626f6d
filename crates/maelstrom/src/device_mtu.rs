//! The MTU of the device of the tunnel, which follows the narrowest path to a peer in tunnel mode.
//!
//! A packet that is too long for a datagram takes two, and one that is too long for two vanishes. Where a
//! path is narrower than the interface, the kernel tells senders so by the MTU of the device.

use maelstrom_core::PeerStatus;
use netio::interface::Interface;
use tracing::{info, warn};

use crate::passive::Passive;
use crate::ports::{LEAST_V6, inner_mtu};
use crate::tunnel;

/// Interval between looks at the paths.
const LOOK_US: u64 = 1_000_000;
/// Time for which all paths must carry longer packets before the MTU rises. A new session knows nothing of
/// its paths for a moment.
const RAISE_US: u64 = 30_000_000;

/// The narrowest path, as far as it limits the device.
#[derive(Debug, Default)]
pub(crate) struct DeviceMtu {
    /// MTU of this path; `None` if each carries what the interfaces do.
    narrowest: Option<usize>,
    /// Time since which it carries more.
    wider_since_us: Option<u64>,
    next_look_us: u64,
}

impl DeviceMtu {
    /// Takes the MTU of the narrowest path at present: a lower one at once, a higher one after a while.
    /// Returns whether another one counts.
    fn update(&mut self, now_us: u64, present: Option<usize>) -> bool {
        let width = |mtu: Option<usize>| mtu.unwrap_or(usize::MAX);
        if width(present) > width(self.narrowest) {
            let since_us = *self.wider_since_us.get_or_insert(now_us);
            if now_us < since_us + RAISE_US {
                return false;
            }
        }
        self.wider_since_us = None;
        std::mem::replace(&mut self.narrowest, present) != present
    }

    /// The MTU of a device that has `most` bytes without narrow paths. `fits`: the longest packet for a path
    /// of an MTU. Everybody may send packets of the least MTU of IPv6.
    fn of(&self, most: usize, fits: impl Fn(usize) -> usize) -> usize {
        let fits = self.narrowest.map_or(most, fits);
        fits.clamp(most.min(LEAST_V6), most)
    }
}

impl Passive {
    /// MTU that the device of the tunnel should have.
    pub(crate) fn wanted_device_mtu(&self) -> usize {
        let core = self.engine.gateway.config();
        let fits = |mtu| tunnel::inner_mtu(&core.schedule, mtu, core.listen.is_ipv6());
        self.device_mtu.of(inner_mtu(&self.config, core.wan_mtu), fits)
    }

    /// Gives the device of the tunnel another MTU if the narrowest path has changed.
    pub(crate) fn follow_narrowest_path(&mut self) {
        let now_us = self.engine.now_us;
        if now_us < self.device_mtu.next_look_us || self.ports.outlets.is_silent {
            return;
        }
        self.device_mtu.next_look_us = now_us + LOOK_US;
        let tunnelled = |peer: &PeerStatus<'_>| peer.config.is_tunnel;
        let peers = self.engine.gateway.peers().filter(tunnelled);
        let present = peers.filter_map(|peer| peer.narrower_mtu).min();
        if !self.device_mtu.update(now_us, present) {
            return;
        }
        let Some(tunnel) = &self.ports.outlets.tunnel else { return };
        let (name, mtu) = (tunnel.tun().name().to_owned(), self.wanted_device_mtu());
        // The kernel changes an MTU under a lock for which this loop does not wait.
        self.errands.run(move || {
            let mtu = u32::try_from(mtu).unwrap_or(u32::MAX);
            let set = |device: Interface| {
                (device.mtu()? != mtu).then(|| device.set_mtu(mtu)).transpose().map(|set| set.is_some())
            };
            match Interface::open(&name).and_then(set) {
                Ok(true) => info!("the MTU of {name} is {mtu}, as the narrowest path of a tunnel allows"),
                Ok(false) => {}
                Err(error) => warn!("cannot set the MTU of {name} to {mtu}: {error}"),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maelstrom_core::Schedule;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn a_narrower_path_counts_at_once_and_a_wider_one_after_30_seconds() {
        let mut device = DeviceMtu::default();
        assert!(!device.update(0, None));
        assert!(device.update(SECOND, Some(1_480)) && device.update(2 * SECOND, Some(1_400)));
        assert!(!device.update(3 * SECOND, None) && !device.update(32 * SECOND, None));
        // A new session finds the same width again.
        assert!(!device.update(32 * SECOND, Some(1_400)) && !device.update(40 * SECOND, None));
        assert!(!device.update(69 * SECOND, Some(1_480)) && device.update(70 * SECOND, Some(1_480)));
        assert!(device.update(71 * SECOND, Some(1_200)));
    }

    #[test]
    fn the_device_is_as_wide_as_the_path_allows_with_repairs_and_never_below_1280() {
        // Repairs of layers and blocks name their packets, also in a tunnel.
        let blocks = Schedule::ReedSolomon { r: 8, c: 3, interleave: 1 };
        for (schedule, expected) in [(Schedule::Auto, 1_409), (Schedule::layered(), 1_375), (blocks, 1_375)] {
            let fits = |mtu| tunnel::inner_mtu(&schedule, mtu, false);
            let mut device = DeviceMtu::default();
            let most = fits(1_500);
            assert_eq!((most, device.of(most, fits)), (expected, expected), "{schedule}");
            device.update(0, Some(1_490));
            assert_eq!(device.of(most, fits), most - 10, "{schedule}");
            device.update(0, Some(576));
            assert_eq!(device.of(most, fits), 1_280, "{schedule}");
            // One whose interface carries less stays as it is.
            let most = fits(1_300);
            assert!(most < 1_280 && device.of(most, fits) == most, "{schedule}");
        }
    }
}
