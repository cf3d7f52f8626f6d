//! The windows and the share of flows that this machine has time for: measures the load, and tells the core
//! and the tap.
//!
//! Forwarding comes first. While no processor is idle, the gateway takes a small part of the machine's time
//! only; the controller of the core (`maelstrom-core/src/share.rs`) decides what it protects with that.
//! Windows become shorter before flows lose their protection (`maelstrom-core/src/afford.rs`). The
//! tap's program in the kernel does not even copy packets of other flows.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use maelstrom_core::Gateway;
use maelstrom_core::afford::{Affordable, Work, product_ns};
use maelstrom_core::counters::Unprotected;
use maelstrom_core::share::{Controller, Load, Share};
use netio::tap::{Tap, WAKE_US};
use nix::time::{ClockId, clock_gettime};
use tracing::{debug, info, warn};

use crate::passive::Passive;

/// Interval between measurements.
const MEASURE_US: u64 = 250_000;
/// Length of the first line of /proc/stat, at most: a name and ten numbers.
const STAT_MAX: usize = 256;
/// Part of idle time from which the tap wakes the gateway often again.
const IDLE_AGAIN: f64 = 0.2;
/// Part of the machine's time from which the gateway saves time on a busy machine.
const OWN_MUCH: f64 = 0.02;
/// Period of waking at a high rate that saves time.
const RARE_WAKE_US: u32 = 500;
/// Time for which captures may wait.
const BEHIND_US: u64 = 50_000;
/// Minimum interval between lines in the log.
const LOG_US: u64 = 10_000_000;

/// The load of the machine, and the share that follows from it.
pub(crate) struct Overload {
    controller: Controller,
    affordable: Affordable,
    stat: Option<File>,
    processors: f64,
    next_us: u64,
    last: Reading,
    /// Shares that all taps have, outgoing and incoming.
    taps: Option<[Share; 2]>,
    next_log_us: u64,
    logged: Share,
    /// Whether the taps wake the gateway rarely.
    is_saving: bool,
}

/// Counters at one measurement.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    at_us: u64,
    own_us: u64,
    /// Ticks of all processors, and those in which they were idle.
    ticks: [u64; 2],
    /// Packets of all flows of peers in passive mode, in the share or not.
    offered: u64,
    missed: u64,
    /// Packets protected, and products of their repairs.
    coded: [u64; 2],
    /// Longest time for which a capture waited.
    oldest_us: u64,
}

impl Overload {
    pub(crate) fn new() -> Self {
        let stat = File::open("/proc/stat").map_err(|error| debug!(%error, "cannot measure idle time")).ok();
        let processors = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
        Self {
            controller: Controller::default(),
            affordable: Affordable::new(product_ns(clock_ns)),
            stat,
            processors,
            next_us: 0,
            last: Reading::default(),
            taps: None,
            next_log_us: 0,
            logged: Share::ALL,
            is_saving: false,
        }
    }

    /// Forgets the settings of the taps.
    fn on_new_tap(&mut self) {
        (self.taps, self.is_saving) = (None, false);
    }

    /// Decides about windows and share: products for each packet, and the flows that are protected.
    ///
    /// Windows become shorter at once, and the controller waits whether that suffices. Tunnels carry all
    /// flows, so that without a peer in passive mode (`has_passive`) there is nothing to shed.
    fn decide(&mut self, now_us: u64, load: &Load, work: &Work, has_passive: bool) -> (u16, Share) {
        let products = self.affordable.update(now_us, work);
        if !has_passive {
            self.controller = Controller::default();
            return (products, Share::ALL);
        }
        (products, self.controller.update(now_us, load))
    }

    /// Decides whether the tap wakes the gateway rarely, which saves time and delays repairs; returns a
    /// change.
    fn save(&mut self, load: &Load) -> Option<u32> {
        let saves = if self.is_saving {
            load.idle < IDLE_AGAIN || self.controller.share() < Share::ALL
        } else {
            load.idle < IDLE_AGAIN / 4.0 && load.own > OWN_MUCH
        };
        let is_change = saves != std::mem::replace(&mut self.is_saving, saves);
        is_change.then_some(if saves { RARE_WAKE_US } else { WAKE_US })
    }

    /// Returns load and work since the last reading.
    fn load(&mut self, now: Reading) -> (Load, Work) {
        let last = std::mem::replace(&mut self.last, now);
        let us = now.at_us.saturating_sub(last.at_us).max(1) as f64;
        let ticks = [0, 1].map(|at| now.ticks[at].saturating_sub(last.ticks[at]) as f64);
        let [packets_per_s, products_per_s] =
            [0, 1].map(|at| now.coded[at].saturating_sub(last.coded[at]) as f64 * 1e6 / us);
        let load = Load {
            is_behind: now.missed > last.missed || now.oldest_us > BEHIND_US,
            own: now.own_us.saturating_sub(last.own_us) as f64 / us / self.processors,
            // Without a measurement the machine counts as idle.
            idle: if ticks[0] > 0.0 { ticks[1] / ticks[0] } else { 1.0 },
            offered_per_s: now.offered.saturating_sub(last.offered) as f64 * 1e6 / us,
        };
        let Load { is_behind, idle, .. } = load;
        let own = load.own * self.processors;
        (load, Work { own, idle, is_behind, packets_per_s, products_per_s })
    }

    fn ticks(&self) -> [u64; 2] {
        let mut line = [0; STAT_MAX];
        let read = self.stat.as_ref().and_then(|stat| stat.read_at(&mut line, 0).ok());
        read.and_then(|len| ticks(&line[..len])).unwrap_or_default()
    }

    /// Logs a change of the share, now and then.
    fn log(&mut self, now_us: u64, share: Share) {
        let is_change = share.fraction() < self.logged.fraction() / 2.0
            || share.fraction() > self.logged.fraction() * 2.0
            || (share == Share::ALL) != (self.logged == Share::ALL);
        if !is_change || now_us < self.next_log_us {
            return;
        }
        (self.logged, self.next_log_us) = (share, now_us + LOG_US);
        if share == Share::ALL {
            info!("all flows are protected again");
        } else {
            warn!(
                "there is more traffic than this machine has time to code: {:.1} % of the flows are protected",
                share.fraction() * 100.0
            );
        }
    }
}

/// Packets that left for the sites of peers in passive mode, and that came from there. No share bounds those
/// of tunnels.
fn offered(gateway: &Gateway) -> u64 {
    let passive = gateway.peers().filter(|peer| !peer.config.is_tunnel);
    passive.map(|peer| peer.egress.source_packets + peer.ingress.source_packets).sum()
}

/// Reads all ticks and idle ones from the first line of /proc/stat.
fn ticks(text: &[u8]) -> Option<[u64; 2]> {
    let line = std::str::from_utf8(text).ok()?.lines().next()?;
    let numbers: Vec<u64> =
        line.strip_prefix("cpu ")?.split_whitespace().map_while(|number| number.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; those of guests are part of user
    let of_machine = numbers.get(..8)?;
    Some([of_machine.iter().sum(), of_machine[3] + of_machine[4]])
}

/// Reads the monotonic clock in nanoseconds.
fn clock_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| Duration::from(now).as_nanos() as u64)
}

/// Time that this process has used on processors, in microseconds.
fn own_us() -> u64 {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(0, |used| Duration::from(used).as_micros() as u64)
}

impl Passive {
    /// Measures the load now and then, and adapts the share of flows that are protected.
    pub(crate) fn adapt_share(&mut self) {
        let now_us = self.engine.now_us;
        if now_us >= self.overload.next_us {
            self.overload.next_us = now_us + MEASURE_US;
            let reading = self.reading();
            self.engine.counts.oldest_us = 0;
            let (load, work) = self.overload.load(reading);
            if let Some(wake_us) = self.overload.save(&load) {
                self.ports.taps_mut().for_each(|tap| tap.set_wake_us(wake_us));
            }
            let has_passive = self.config.has_passive_peer();
            let (products, share) = self.overload.decide(now_us, &load, &work, has_passive);
            self.engine.gateway.set_products(products);
            self.engine.gateway.set_share(now_us, share);
            self.overload.log(now_us, share);
        }
        if let Err(error) = self.limit_taps() {
            debug!(%error, "cannot limit the taps");
        }
    }

    fn reading(&self) -> Reading {
        let gateway = &self.engine.gateway;
        let taps = || self.ports.taps();
        let egresses = || gateway.peers().map(|peer| peer.egress);
        let coded = [
            egresses().map(|egress| egress.source_packets).sum(),
            egresses().map(|egress| egress.products).sum(),
        ];
        let shed = gateway.unprotected().count(Unprotected::Overload)
            + taps().map(|tap| tap.shed().iter().sum::<u64>()).sum::<u64>();
        Reading {
            at_us: self.engine.now_us,
            own_us: own_us(),
            ticks: self.overload.ticks(),
            offered: offered(gateway) + shed,
            missed: taps().map(|tap| tap.missed().incoming + tap.missed().outgoing).sum(),
            coded,
            oldest_us: self.engine.counts.oldest_us,
        }
    }

    /// Lets the taps copy the flows that the core needs. A larger share comes into force before the peer
    /// learns of it.
    fn limit_taps(&mut self) -> io::Result<()> {
        let gateway = &self.engine.gateway;
        let wanted = [gateway.outgoing_share(), gateway.incoming_share()];
        if self.overload.taps != Some(wanted) {
            let limit = |tap: &mut Tap| tap.set_shares(wanted[0].0, wanted[1].0).err();
            // Each is tried, also if another one refuses.
            let refusals: Vec<_> = self.ports.taps_mut().filter_map(limit).collect();
            refusals.into_iter().next().map_or(Ok(()), Err)?;
            self.overload.taps = Some(wanted);
        }
        Ok(())
    }

    /// Forgets the settings of the taps, one of which is new.
    pub(crate) fn forget_settings_of_taps(&mut self) {
        self.overload.on_new_tap();
        self.ports.taps_mut().for_each(|tap| tap.set_wake_us(WAKE_US));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::memory::tests::config;
    use maelstrom_core::Schedule;
    use maelstrom_core::controller::PRODUCTS;
    use std::net::SocketAddr;

    #[test]
    fn idle_time_is_read_from_the_first_line() {
        let text = "cpu  100 20 30 4000 50 6 7 8 90 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(ticks(text.as_bytes()), Some([100 + 20 + 30 + 4000 + 50 + 6 + 7 + 8, 4050]));
        for other in ["", "cpu", "cpu 1 2 3", "cpu0 1 2 3 4 5 6 7 8 9"] {
            assert_eq!(ticks(other.as_bytes()), None);
        }
        assert!(Overload::new().ticks()[0] > 0);
        assert!(own_us() > 0);
    }

    #[test]
    fn a_busy_machine_is_woken_rarely_until_it_has_time_again() {
        let mut overload = Overload::new();
        let load = |own, idle| Load { own, idle, ..Load::default() };
        assert_eq!(overload.save(&load(0.1, 0.3)), None);
        assert_eq!(overload.save(&load(0.01, 0.0)), None, "the gateway takes little");
        assert_eq!(overload.save(&load(0.1, 0.0)), Some(RARE_WAKE_US));
        assert_eq!(overload.save(&load(0.01, 0.1)), None);
        assert_eq!(overload.save(&load(0.01, 0.3)), Some(WAKE_US));
    }

    #[test]
    fn windows_become_shorter_before_flows_lose_their_protection() {
        let behind = Load { is_behind: true, own: 0.4, idle: 0.0, offered_per_s: 80_000.0 };
        let work = |products_per_s| Work {
            own: 0.8,
            idle: 0.0,
            is_behind: true,
            packets_per_s: 80_000.0,
            products_per_s,
        };
        let mut overload = Overload::new();
        overload.affordable = Affordable::new(25.0);
        // Encoding takes four tenths of a processor, and may take half of that from here on.
        let decisions: Vec<_> = [16e6, 10e6, 8e6, 8e6, 8e6, 8e6, 8e6, 8e6, 8e6]
            .into_iter()
            .zip(1..)
            .map(|(products_per_s, n)| overload.decide(250_000 * n, &behind, &work(products_per_s), true))
            .collect();
        assert!(decisions[0].0 < PRODUCTS && decisions[1].0 < decisions[0].0, "{decisions:?}");
        assert!(decisions[..8].iter().all(|&(_, share)| share == Share::ALL), "{decisions:?}");
        assert!(decisions[8].1 < Share::ALL, "it did not suffice");
        // A reload leaves tunnels alone.
        assert_eq!(overload.decide(2_500_000, &behind, &work(8e6), false).1, Share::ALL);
        assert_eq!(overload.decide(2_750_000, &behind, &work(8e6), true).1, Share::ALL, "it waits again");
    }

    /// A gateway that has sent ten packets to the site of its peer.
    fn after_ten_packets(is_tunnel: bool) -> Gateway {
        let address = |side: usize| SocketAddr::from(([10, 81, 9, 1 + side as u8], 4700));
        let mut gateways = [0, 1].map(|side| {
            let mut config = config(Schedule::Auto, false, 1_500);
            config.listen = address(side);
            config.peers[0].address = address(1 - side);
            config.peers[0].networks = vec![format!("10.81.{}.0/24", 2 - side).parse().unwrap()];
            config.peers[0].is_tunnel = is_tunnel;
            Gateway::new(config, [1 + side as u8; 32]).unwrap()
        });
        let mut outs = gateways.each_ref().map(Gateway::outbox);
        let times = (1..20).map(|round| 200_000 * round);
        for (now_us, side) in times.flat_map(|now_us| [(now_us, 0), (now_us, 1)]) {
            gateways[side].handle_timeout(now_us, &mut outs[side]);
            let datagrams: Vec<_> = outs[side].datagrams.iter().map(|(_, bytes)| bytes.to_vec()).collect();
            outs[side].datagrams.clear();
            for mut bytes in datagrams {
                gateways[1 - side].handle_datagram(now_us, address(side), &mut bytes, &mut outs[1 - side]);
            }
        }
        let [mut gateway, _] = gateways;
        for id in 0..10 {
            let packet = testkit::packet::udp4([10, 81, 1, 9].into(), [10, 81, 2, 9].into(), 0, id, b"ten");
            if is_tunnel {
                gateway.handle_tunnelled(4_000_000, &packet, &mut outs[0]);
            } else {
                gateway.handle_outgoing(4_000_000, &packet, &mut outs[0]);
            }
        }
        gateway
    }

    #[test]
    fn packets_of_tunnels_are_not_offered_for_a_share() {
        for (is_tunnel, expected) in [(false, 10), (true, 0)] {
            let gateway = after_ten_packets(is_tunnel);
            assert_eq!(gateway.peers().next().unwrap().egress.source_packets, 10, "{is_tunnel}");
            assert_eq!(offered(&gateway), expected, "{is_tunnel}");
        }
    }

    #[test]
    fn the_load_is_that_since_the_last_reading() {
        let mut overload = Overload::new();
        overload.processors = 2.0;
        let reading = Reading {
            at_us: 1_000_000,
            own_us: 500,
            ticks: [1_000, 10],
            offered: 7,
            missed: 1,
            coded: [50, 100],
            oldest_us: 0,
        };
        overload.load(reading);
        let (load, work) = overload.load(Reading {
            at_us: 1_500_000,
            own_us: 100_500,
            ticks: [1_100, 60],
            offered: 5_007,
            missed: 1,
            coded: [2_050, 60_100],
            oldest_us: 900,
        });
        assert_eq!(load, Load { is_behind: false, own: 0.1, idle: 0.5, offered_per_s: 10_000.0 });
        let expected =
            Work { own: 0.2, idle: 0.5, is_behind: false, packets_per_s: 4e3, products_per_s: 12e4 };
        assert_eq!(work, expected);
        let blind = Reading { at_us: 1_600_000, missed: 2, ..Reading::default() };
        let (load, _) = overload.load(blind);
        assert_eq!((load.is_behind, load.idle), (true, 1.0), "no measurement means idle");
        let late = Reading { at_us: 1_700_000, missed: 2, oldest_us: 60_000, ..Reading::default() };
        assert!(overload.load(late).0.is_behind);
        assert!(product_ns(clock_ns) >= 1.0);
    }
}
