//! Divides packets among paths by what each of them has carried of late.
//!
//! Paths are filled in the order of the file. A path that has a long queue, or loses a large share, shows
//! how much it carries: it gets a little less than that from then on, and the next path gets the rest. Its
//! room then grows by and by while it is used, until it is full again. If all paths are full, they share in
//! proportion to their rooms. Repairs take a path as far as it has room for them.

use super::set::{PATHS_MAX, PathSet};

/// Shortest and longest delay of its queue from which on a path is full, in microseconds. Between them, it is
/// a quarter of the shortest round trip: packets on an empty path overtake those in the queue by as much, and
/// TCP waits for a quarter of its round trip (RFC 8985 §6.2) before it takes a packet for lost.
const FULL_US: [u64; 2] = [10_000, 25_000];
/// Share of losses from which on a path is full, whatever its queue. A link that loses as much by itself is
/// of little use for packets.
const FULL_LOSS: f64 = 0.1;
/// Number of intervals in a row with such losses from which on it is full. A single one may be a moment in
/// which the line was down.
const LOSSY: u32 = 2;
/// Number of standard deviations of a count of losses that may be chance.
const CHANCE: f64 = 3.0;
/// Share of what a full path delivers that it gets from then on, so that its queue drains.
const PART: f64 = 15.0 / 16.0;
/// Smallest such share: from nothing, room could not grow.
const PART_MIN: f64 = 1.0 / 8.0;
/// Growth of its room in an interval in which it is not full.
const GROWTH: f64 = 1.0 / 32.0;
/// Number of intervals from a measurement to the next: its effect takes a round trip.
const PAUSE: u32 = 4;
/// Factor beyond what a path carries up to which its room grows, and beyond the most that all packets took of
/// late from which on the room counts as unlimited.
const AMPLE: f64 = 2.0;
/// Time for which the most that packets took counts, at least; at most twice as long.
const MOST_US: u64 = 60_000_000;
/// Largest debt of a path in bytes, of what it has carried beyond its share.
const DEBT_MAX: f64 = 65_536.0;

/// Traffic on a path in one interval.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Carried {
    /// Bytes of packets sent.
    pub(super) packets: f64,
    /// Bytes of other datagrams sent.
    pub(super) others: f64,
    /// Datagrams whose fate became known, and the share of them that did not arrive, from 0 to 1.
    pub(super) expected: f64,
    pub(super) loss: f64,
    /// Delay of the queue.
    pub(super) queue_us: u64,
    /// Round trip without queues.
    pub(super) rtt_us: u64,
}

impl Carried {
    /// Whether the queue is long.
    fn is_queued(&self) -> bool {
        self.queue_us >= (self.rtt_us / 4).clamp(FULL_US[0], FULL_US[1])
    }

    /// Whether the path loses a large share, beyond chance.
    fn is_lossy(&self) -> bool {
        self.loss * self.expected > FULL_LOSS * self.expected + CHANCE * (FULL_LOSS * self.expected).sqrt()
    }
}

/// The knowledge of one path.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// Bytes that it carries in an interval, as far as it is known.
    bytes: f64,
    /// Its share of the packets.
    share: f64,
    /// Bytes that it is short of its share.
    credit: f64,
    queue_us: u64,
    pause: u32,
    /// Number of the latest intervals in which it lost much.
    lossy: u32,
    /// Share of the repairs that it carries, where they take this path first, and the bytes that it is short
    /// of that.
    repairs: f64,
    repair_credit: f64,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            bytes: f64::INFINITY,
            share: 0.0,
            credit: 0.0,
            queue_us: 0,
            pause: 0,
            lossy: 0,
            repairs: 1.0,
            repair_credit: 0.0,
        }
    }
}

/// Divides packets among up to [`PATHS_MAX`] paths.
#[derive(Clone, Debug, Default)]
pub(super) struct Divider {
    rooms: [Room; PATHS_MAX],
    /// Most bytes of packets in an interval, of this period and of the one before it.
    most: [f64; 2],
    /// Time since this period began.
    period_us: u64,
}

impl Divider {
    /// Returns the path of a datagram of `bytes` bytes, of those in the set.
    pub(super) fn take(&mut self, set: PathSet, bytes: usize) -> usize {
        self.owe(set, bytes);
        let credit = |path: usize| self.rooms[path].credit;
        let most = |best: usize, path: usize| if credit(path) > credit(best) { path } else { best };
        let chosen = set.iter().filter(|&path| self.rooms[path].share > 0.0).reduce(most);
        let Some(path) = chosen else { return set.iter().next().unwrap_or(0) };
        self.spend(path, bytes);
        path
    }

    /// Takes a datagram of `bytes` bytes that must follow another one on its path.
    pub(super) fn take_by(&mut self, set: PathSet, path: usize, bytes: usize) {
        self.owe(set, bytes);
        self.spend(path, bytes);
    }

    /// Whether a path has room for a repair of `bytes` bytes.
    pub(super) fn takes_repair(&mut self, path: usize, bytes: usize) -> bool {
        let room = &mut self.rooms[path];
        let bytes = bytes as f64;
        room.repair_credit = (room.repair_credit + room.repairs * bytes).min(2.0 * bytes);
        let takes = room.repair_credit >= bytes;
        room.repair_credit -= if takes { bytes } else { 0.0 };
        takes
    }

    /// Gives each path of the set its share of a datagram.
    fn owe(&mut self, set: PathSet, bytes: usize) {
        for path in set.iter() {
            let room = &mut self.rooms[path];
            room.credit = (room.credit + room.share * bytes as f64).min(DEBT_MAX);
        }
    }

    fn spend(&mut self, path: usize, bytes: usize) {
        self.rooms[path].credit = (self.rooms[path].credit - bytes as f64).max(-DEBT_MAX);
    }

    /// Forgets what a path carries, because it has been dead.
    pub(super) fn forget(&mut self, path: usize) {
        self.rooms[path] = Room { share: self.rooms[path].share, ..Room::default() };
    }

    /// The paths of a set that have a share.
    pub(super) fn carrying(&self, set: PathSet) -> PathSet {
        let with_share = set.iter().filter(|&path| self.rooms[path].share > 0.0);
        let carrying = with_share.fold(PathSet::NONE, PathSet::with);
        if carrying.is_empty() { set.single(0) } else { carrying }
    }

    /// Takes the traffic of the last interval on each path, and divides the packets of the next one among the
    /// paths of a set.
    pub(super) fn adapt(&mut self, interval_us: u64, set: PathSet, carried: &[Carried]) {
        let offered: f64 = carried.iter().map(|carried| carried.packets).sum();
        let others: f64 = carried.iter().map(|carried| carried.others).sum();
        self.period_us += interval_us;
        if self.period_us >= MOST_US {
            (self.most, self.period_us) = ([0.0, self.most[0]], 0);
        }
        self.most[0] = self.most[0].max(offered);
        let most = self.most[0].max(self.most[1]);
        for (room, carried) in self.rooms.iter_mut().zip(carried) {
            room.measure(interval_us, carried, most);
            room.repairs = if others > 0.0 { (room.bytes / others).min(1.0) } else { 1.0 };
        }
        if offered <= 0.0 {
            return;
        }
        // Repairs on a path take no room from packets: packets that find room need hardly any repairs.
        let room = |path: usize| self.rooms[path].bytes;
        let mut shares = [0.0; PATHS_MAX];
        let mut left = offered;
        for path in set.iter() {
            shares[path] = room(path).min(left);
            left -= shares[path];
        }
        // All are full.
        let all: f64 = set.iter().map(room).sum();
        if left > 0.0 && all > 0.0 {
            set.iter().for_each(|path| shares[path] += left * room(path) / all);
        }
        for (room, share) in self.rooms.iter_mut().zip(shares) {
            room.share = share / offered;
            if share <= 0.0 {
                room.credit = 0.0;
            }
        }
    }
}

impl Room {
    /// `most`: bytes of packets in an interval on all paths together, at most of late.
    fn measure(&mut self, interval_us: u64, carried: &Carried, most: f64) {
        let before_us = std::mem::replace(&mut self.queue_us, carried.queue_us);
        if carried.expected > 0.0 {
            self.lossy = if carried.is_lossy() { self.lossy + 1 } else { 0 };
        }
        self.pause = self.pause.saturating_sub(1);
        if self.pause > 0 {
            return;
        }
        let sent = carried.packets + carried.others;
        let is_full = carried.is_queued() || carried.is_lossy() && self.lossy >= LOSSY;
        if !is_full {
            // A path with little traffic does not show that it carries more.
            if self.bytes <= AMPLE * sent {
                self.bytes *= 1.0 + GROWTH;
            }
            if self.bytes > AMPLE * (most + carried.others) {
                self.bytes = f64::INFINITY;
            }
        } else if sent > 0.0 {
            // A queue that grows by the length of the interval takes twice what leaves it.
            let growth = carried.queue_us.saturating_sub(before_us) as f64 / interval_us as f64;
            let part = (1.0 - carried.loss) / (1.0 + growth) * PART;
            self.bytes = sent * part.max(PART_MIN);
            self.pause = PAUSE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL_US: u64 = 200_000;

    /// A path with a queue in front of it.
    #[derive(Clone, Copy)]
    struct Link {
        mbit_per_s: f64,
        /// Length of its queue in milliseconds.
        buffer_ms: f64,
        loss: f64,
        queue: f64,
        packets: f64,
        delivered: f64,
    }

    fn link(mbit_per_s: f64, buffer_ms: f64, loss: f64) -> Link {
        Link { mbit_per_s, buffer_ms, loss, queue: 0.0, packets: 0.0, delivered: 0.0 }
    }

    impl Link {
        /// Bytes that leave the queue in an interval.
        fn bytes(&self) -> f64 {
            self.mbit_per_s * 1e6 / 8.0 * INTERVAL_US as f64 / 1e6
        }

        /// Lets an interval pass in which this many bytes of packets were sent.
        fn pass(&mut self, packets: f64) -> Carried {
            let buffer = self.bytes() * self.buffer_ms * 1_000.0 / INTERVAL_US as f64;
            let waits = self.queue + packets;
            let leaves = waits.min(self.bytes());
            let dropped = (waits - leaves - buffer).max(0.0);
            self.queue = waits - leaves - dropped;
            self.packets += packets;
            self.delivered += leaves * (1.0 - self.loss);
            let share = if packets > 0.0 { dropped / packets } else { 0.0 };
            let queue_us = (self.queue / self.bytes() * INTERVAL_US as f64) as u64;
            let loss = share + (1.0 - share) * self.loss;
            Carried { packets, others: 0.0, expected: packets / 1_250.0, loss, queue_us, rtt_us: 0 }
        }
    }

    /// Sends packets of 1,250 bytes for a time over both links; returns the rate that arrives, in Mbit/s, and
    /// the share of the packets on the second link, both of the second half.
    fn run(divider: &mut Divider, links: &mut [Link; 2], mbit_per_s: f64, seconds: u32) -> (f64, f64) {
        let per_interval = (mbit_per_s * 1e6 / 8.0 / 1_250.0 * INTERVAL_US as f64 / 1e6) as u32;
        let intervals = seconds * 1_000_000 / INTERVAL_US as u32;
        for interval in 0..intervals {
            if interval == intervals / 2 {
                links.iter_mut().for_each(|link| (link.packets, link.delivered) = (0.0, 0.0));
            }
            let mut sent = [0.0; 2];
            for _ in 0..per_interval {
                sent[divider.take(PathSet::all(2), 1_250)] += 1_250.0;
            }
            let [first, second] = links;
            let carried = [first.pass(sent[0]), second.pass(sent[1])];
            divider.adapt(INTERVAL_US, PathSet::all(2), &carried);
        }
        let span_s = f64::from(intervals - intervals / 2) * INTERVAL_US as f64 / 1e6;
        let delivered: f64 = links.iter().map(|link| link.delivered).sum();
        let packets: f64 = links.iter().map(|link| link.packets).sum();
        (delivered * 8.0 / 1e6 / span_s, links[1].packets / packets)
    }

    #[test]
    fn two_paths_together_carry_what_neither_does_alone() {
        for buffer_ms in [40.0, 200.0, 0.0] {
            let mut links = [link(100.0, buffer_ms, 0.0), link(25.0, buffer_ms, 0.0)];
            let (arrives, share) = run(&mut Divider::default(), &mut links, 115.0, 30);
            assert!(arrives > 0.95 * 115.0, "{buffer_ms} ms: {arrives} Mbit/s");
            assert!((0.1..0.25).contains(&share), "{buffer_ms} ms: {share}");
        }
    }

    #[test]
    fn paths_that_are_full_share_in_proportion_to_what_they_carry() {
        let mut links = [link(100.0, 50.0, 0.0), link(25.0, 50.0, 0.0)];
        let (arrives, share) = run(&mut Divider::default(), &mut links, 180.0, 30);
        assert!(arrives > 120.0 && (0.15..0.25).contains(&share), "{arrives} Mbit/s, {share}");
    }

    #[test]
    fn the_first_path_takes_all_that_it_carries_also_if_it_loses_some() {
        for (mbit_per_s, loss) in [(60.0, 0.0), (90.0, 0.0), (60.0, 0.05)] {
            let mut links = [link(100.0, 50.0, loss), link(25.0, 50.0, 0.0)];
            let (_, share) = run(&mut Divider::default(), &mut links, mbit_per_s, 10);
            assert!(share == 0.0, "{mbit_per_s} Mbit/s at {loss}: {share}");
        }
    }

    #[test]
    fn a_path_that_becomes_slower_or_faster_gets_less_or_more() {
        let mut divider = Divider::default();
        let mut links = [link(100.0, 50.0, 0.0), link(25.0, 50.0, 0.0)];
        assert_eq!(run(&mut divider, &mut links, 60.0, 5).1, 0.0);
        links[0].mbit_per_s = 40.0;
        let (arrives, share) = run(&mut divider, &mut links, 60.0, 20);
        assert!(arrives > 0.95 * 60.0 && (0.25..0.45).contains(&share), "{arrives} Mbit/s, {share}");
        links[0].mbit_per_s = 100.0;
        run(&mut divider, &mut links, 60.0, 10);
        let (arrives, share) = run(&mut divider, &mut links, 60.0, 10);
        assert!(arrives > 59.0 && share == 0.0, "{arrives} Mbit/s, {share}");
    }

    #[test]
    fn repairs_count_for_the_room_of_a_path_and_take_none_of_it() {
        let mut divider = Divider::default();
        let both = PathSet::all(2);
        let second = Carried { packets: 80.0, others: 20.0, expected: 1e6, loss: 0.2, ..Carried::default() };
        let first = Carried { others: 0.0, ..second };
        (0..2).for_each(|_| divider.adapt(INTERVAL_US, both, &[first, second]));
        // Of 160 bytes, there is room for 60 and for 75.
        let shares = [0, 1].map(|path| divider.rooms[path].share);
        assert!((shares[0] - 60.0 / 135.0).abs() < 1e-9 && (shares[0] + shares[1] - 1.0).abs() < 1e-9);
        assert_eq!(divider.carrying(both), both);
        assert_eq!(divider.carrying(PathSet::one(1)), PathSet::one(1));
    }

    #[test]
    fn a_path_that_carried_nothing_is_used_again() {
        let (mut divider, both) = (Divider::default(), PathSet::all(2));
        let nothing = Carried { packets: 100.0, expected: 1e6, loss: 1.0, ..Carried::default() };
        let all = Carried { loss: 0.0, ..nothing };
        let share = |divider: &Divider| divider.rooms[0].share;
        divider.adapt(INTERVAL_US, both, &[nothing, Carried::default()]);
        assert!(share(&divider) == 1.0, "a moment");
        divider.adapt(INTERVAL_US, both, &[nothing, Carried::default()]);
        assert!(share(&divider) < 0.2);
        let mut again = divider.clone();
        again.forget(0);
        again.adapt(INTERVAL_US, both, &[Carried::default(), all]);
        assert!(share(&again) == 1.0, "it has been dead");
        for _ in 0..100 {
            let part = share(&divider);
            let [first, second] = [part, 1.0 - part].map(|part| Carried { packets: 100.0 * part, ..all });
            divider.adapt(INTERVAL_US, both, &[first, second]);
        }
        assert!(share(&divider) == 1.0, "within 20 s");
    }

    #[test]
    fn a_pause_does_not_make_the_gateway_forget_what_a_path_carries() {
        let mut divider = Divider::default();
        let mut links = [link(100.0, 50.0, 0.0), link(25.0, 50.0, 0.0)];
        run(&mut divider, &mut links, 115.0, 10);
        let room = divider.rooms[0].bytes;
        assert!((0.8..1.15).contains(&(room / links[0].bytes())), "{room}");
        for (mbit_per_s, seconds) in [(1.0, 10), (115.0, 1), (0.0, 20)] {
            run(&mut divider, &mut links, mbit_per_s, seconds);
            let room = divider.rooms[0].bytes;
            assert!((0.8..1.15).contains(&(room / links[0].bytes())), "{mbit_per_s} Mbit/s: {room}");
        }
        run(&mut divider, &mut links, 1.0, 130);
        assert!(divider.rooms[0].bytes.is_infinite(), "minutes later");
    }

    #[test]
    fn repairs_take_a_path_as_far_as_it_carries_them() {
        let (mut divider, both) = (Divider::default(), PathSet::all(2));
        let takes = |divider: &mut Divider| (0..800).filter(|_| divider.takes_repair(1, 1_000)).count();
        assert_eq!(takes(&mut divider), 800);
        let first = Carried { packets: 1e6, ..Carried::default() };
        let second = Carried { others: 1e5, expected: 1e4, loss: 0.6, ..Carried::default() };
        (0..2).for_each(|_| divider.adapt(INTERVAL_US, both, &[first, second]));
        // It carries 0.4 of them, and gets 15/16 of that.
        assert!((299..=301).contains(&takes(&mut divider)));
        // It carries more.
        let (first, more) = (Carried { others: 5e4, ..first }, Carried { others: 5e4, loss: 0.0, ..second });
        (0..40).for_each(|_| divider.adapt(INTERVAL_US, both, &[first, more]));
        assert_eq!(takes(&mut divider), 800);
    }

    #[test]
    fn a_path_is_full_with_a_queue_of_a_quarter_of_its_round_trip_within_bounds() {
        for (rtt_ms, full_ms) in [(1, 10), (40, 10), (60, 15), (100, 25), (500, 25)] {
            let queued =
                |queue_us| Carried { queue_us, rtt_us: 1_000 * rtt_ms, ..Carried::default() }.is_queued();
            assert!(queued(1_000 * full_ms) && !queued(1_000 * full_ms - 1), "{rtt_ms} ms");
        }
    }

    #[test]
    fn losses_by_chance_fill_no_path() {
        let lossy = |expected, loss| Carried { expected, loss, ..Carried::default() }.is_lossy();
        assert!(!lossy(0.0, 0.0) && !lossy(10.0, 0.3) && !lossy(100.0, 0.15) && !lossy(10_000.0, 0.1));
        assert!(lossy(100.0, 0.25) && lossy(10_000.0, 0.11));
    }

    #[test]
    fn a_set_without_shares_begins_with_its_first_path() {
        let mut divider = Divider::default();
        assert_eq!((divider.take(PathSet::one(3).with(5), 100), divider.take(PathSet::NONE, 100)), (3, 0));
        assert_eq!(divider.carrying(PathSet::one(3).with(5)), PathSet::one(3));
        assert_eq!(divider.carrying(PathSet::NONE), PathSet::NONE);
    }
}
