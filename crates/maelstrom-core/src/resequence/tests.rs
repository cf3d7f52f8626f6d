use proptest::prelude::*;

use super::*;

const LIMIT_US: u64 = 20_000;

/// The packets that a resequencer has handed on, each with the time.
struct Host {
    line: Resequencer,
    queue: Queue<Origin>,
    got: Vec<(u64, u64)>,
}

impl Host {
    fn new(entries: usize) -> Self {
        Self { line: Resequencer::new(LIMIT_US), queue: Queue::new(entries, 64 * entries), got: Vec::new() }
    }

    /// Lets the packets of these places come.
    fn come(&mut self, now_us: u64, places: &[u64]) {
        for &place in places {
            let (seq, packet) = (Seq(place), place.to_be_bytes());
            let origin = Origin {
                peer: 0,
                seq: Some(seq),
                class: None,
                is_recovered: false,
                repair: None,
                late_us: None,
            };
            self.line.push(now_us, seq, (origin, &packet), &mut self.queue, &mut |_, _| {});
        }
        self.turn(now_us);
    }

    /// Does what is due, as a driver does that empties the queue each time.
    fn turn(&mut self, now_us: u64) {
        self.line.expire(now_us);
        loop {
            self.line.drain(&mut self.queue, &mut |_, _| {});
            for (origin, packet) in self.queue.iter() {
                let place = u64::from_be_bytes(packet.try_into().unwrap());
                assert_eq!(origin.seq, Some(Seq(place)));
                self.got.push((place, now_us));
            }
            self.queue.clear();
            if self.line.due_us() != Some(0) {
                return;
            }
        }
    }

    /// Lets time pass, and does what is due at its time.
    fn wait_until(&mut self, now_us: u64) {
        while let Some(due_us) = self.line.due_us().filter(|&due_us| due_us <= now_us) {
            self.turn(due_us);
        }
    }

    fn places(&self) -> Vec<u64> {
        self.got.iter().map(|&(place, _)| place).collect()
    }

    fn counts(&self) -> ResequenceCounts {
        self.line.state().counts
    }
}

#[test]
fn packets_in_order_pass_at_once_and_the_stream_may_begin_anywhere() {
    let mut host = Host::new(64);
    host.come(5, &[1_000, 1_001, 1_002]);
    assert_eq!(host.got, [(1_000, 5), (1_001, 5), (1_002, 5)]);
    assert_eq!((host.counts(), host.line.due_us()), (ResequenceCounts::default(), None));
}

/// A reload may remove another peer while packets wait, so that theirs has another number.
#[test]
fn packets_that_wait_follow_their_peer_to_its_new_number() {
    let mut host = Host::new(64);
    host.come(0, &[0, 2, 3]);
    host.line.renumber(7);
    host.line.expire(LIMIT_US + 1);
    host.line.drain(&mut host.queue, &mut |_, _| {});
    let peers: Vec<usize> = host.queue.iter().map(|(origin, _)| origin.peer).collect();
    assert_eq!(peers, [7, 7]);
}

#[test]
fn a_packet_that_came_early_follows_the_one_that_closes_the_gap() {
    let mut host = Host::new(64);
    host.come(0, &[0, 2, 3, 5]);
    assert_eq!((host.places(), host.line.awaited()), (vec![0], Some(Seq(1))));
    host.come(7, &[1]);
    assert_eq!((host.places(), host.line.awaited()), (vec![0, 1, 2, 3], Some(Seq(4))));
    host.come(9, &[4]);
    assert_eq!(host.places(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(host.counts(), ResequenceCounts { held: 3, ..ResequenceCounts::default() });
}

#[test]
fn each_gap_is_waited_for_from_the_packet_behind_it() {
    let mut host = Host::new(64);
    host.come(0, &[0, 2]);
    host.come(5_000, &[4]);
    host.wait_until(LIMIT_US - 1);
    assert_eq!(host.places(), [0]);
    host.wait_until(LIMIT_US);
    assert_eq!(host.got[1..], [(2, LIMIT_US)]);
    host.wait_until(LIMIT_US + 5_000);
    assert_eq!(host.got[2..], [(4, LIMIT_US + 5_000)]);
    // A packet that comes later than that is handed on out of order, and nothing waits for it.
    host.come(LIMIT_US + 6_000, &[1, 5]);
    assert_eq!(host.places(), [0, 2, 4, 1, 5]);
    let counts = ResequenceCounts { held: 2, by_time: 2, late: 1, ..ResequenceCounts::default() };
    assert_eq!((host.counts(), host.line.due_us()), (counts, None));
}

#[test]
fn a_packet_that_cannot_come_is_not_waited_for() {
    let mut host = Host::new(64);
    host.come(0, &[0, 3, 5]);
    host.line.give_up();
    host.turn(0);
    assert_eq!((host.places(), host.line.awaited()), (vec![0], Some(Seq(2))));
    host.line.give_up();
    host.turn(0);
    assert_eq!((host.places(), host.line.awaited()), (vec![0, 3], Some(Seq(4))));
    host.line.give_up();
    host.turn(0);
    host.line.give_up();
    assert_eq!((host.places(), host.line.awaited(), host.line.due_us()), (vec![0, 3, 5], None, None));
}

#[test]
fn more_packets_than_there_is_room_for_are_handed_on_in_order() {
    let mut host = Host::new(64);
    host.come(0, &[0]);
    host.come(1, &(2..2 + PLACES).collect::<Vec<_>>());
    // The first packet that did not fit ended the wait.
    assert_eq!(host.places(), [0].into_iter().chain(2..2 + PLACES).collect::<Vec<_>>());
    assert!(host.counts().by_room >= PLACES - 2 && host.counts().dropped == 0, "{:?}", host.counts());
    // A place far beyond: what waits is handed on, and the places between are not waited for.
    host.come(2, &[9_000, 500_000, 500_001]);
    assert_eq!(host.places()[host.got.len() - 3..], [9_000, 500_000, 500_001]);
    assert_eq!(host.line.due_us(), None);
}

#[test]
fn long_packets_are_held_as_far_as_there_are_bytes_for_them() {
    let mut line = Resequencer::new(LIMIT_US);
    let mut queue = Queue::new(4_096, 32 << 20);
    let packet = vec![7; 60_000];
    let fit = (RESEQUENCE_BYTES_MAX / packet.len()) as u64;
    let mut push = |line: &mut Resequencer, seq| {
        let origin = Origin {
            peer: 0,
            seq: Some(Seq(seq)),
            class: None,
            is_recovered: false,
            repair: None,
            late_us: None,
        };
        line.push(0, Seq(seq), (origin, &packet), &mut queue, &mut |_, _| {});
        queue.len()
    };
    assert_eq!(push(&mut line, 0), 1);
    for seq in 2..2 + fit {
        assert_eq!(push(&mut line, seq), 1, "{seq}");
    }
    assert!(line.memory_bytes() < RESEQUENCE_BYTES_MAX + (2 << 20), "{}", line.memory_bytes());
    assert!(push(&mut line, 2 + fit) > 1, "the oldest gap makes room");
    assert_eq!(line.state().counts.dropped, 0);
}

#[test]
fn a_queue_without_room_delays_packets_and_keeps_their_order() {
    let mut line = Resequencer::new(LIMIT_US);
    let mut queue = Queue::new(8, 800);
    let origin = |seq| Origin {
        peer: 0,
        seq: Some(seq),
        class: None,
        is_recovered: false,
        repair: None,
        late_us: None,
    };
    let mut got = Vec::new();
    for place in (0..40).map(Seq).filter(|&place| place != Seq(3)) {
        line.push(0, place, (origin(place), b"packet"), &mut queue, &mut |_, _| {});
    }
    line.expire(LIMIT_US);
    while line.due_us() == Some(0) {
        line.drain(&mut queue, &mut |_, _| {});
        assert!(!queue.is_empty(), "each turn makes progress");
        got.extend(queue.iter().map(|(origin, _)| origin.seq.unwrap().0));
        queue.clear();
    }
    assert_eq!(got, (0..40).filter(|&place| place != 3).collect::<Vec<_>>());
    assert_eq!((line.state().counts.dropped, line.state().waiting), (0, 0));
}

#[test]
fn a_stream_that_begins_again_drops_what_waits() {
    let mut host = Host::new(64);
    host.come(0, &[10, 12, 13]);
    host.line.restart();
    assert_eq!((host.line.due_us(), host.counts().dropped), (None, 2));
    host.come(1, &[0, 1]);
    assert_eq!(host.places(), [10, 0, 1]);
    // The first packet of a stream may be late too.
    host.line.begin(Seq(0));
    host.come(2, &[1]);
    assert_eq!((host.places(), host.line.awaited()), (vec![10, 0, 1], Some(Seq(0))));
    host.come(3, &[0]);
    assert_eq!(host.places(), [10, 0, 1, 0, 1]);
}

proptest! {
    #[test]
    fn every_packet_is_handed_on_once_in_order_and_in_time(
        // For each place whether it is lost, and by how many microseconds it is late.
        fates in proptest::collection::vec((0..10_u8, 0..50_000_u64), 1..300),
        step_us in 1..3_000_u64,
        entries in 4..64_usize,
        hopeless in 0..4_u64,
    ) {
        let mut arrivals: Vec<(u64, u64)> = Vec::new();
        for (place, &(fate, late_us)) in (0..).zip(&fates) {
            match fate {
                0 => {}
                1..=3 => arrivals.push((place * step_us + late_us, place)),
                _ => arrivals.push((place * step_us, place)),
            }
        }
        arrivals.sort_unstable();
        let mut host = Host::new(entries);
        for &(now_us, place) in &arrivals {
            host.wait_until(now_us);
            host.come(now_us, &[place]);
            if hopeless == 1 && place % 7 == 0 {
                host.line.give_up();
                host.turn(now_us);
            }
        }
        host.wait_until(u64::MAX / 2);
        prop_assert_eq!(host.line.state().waiting, 0);
        prop_assert_eq!(host.counts().dropped, 0);
        // Nothing is lost, and nothing comes twice.
        let mut places = host.places();
        let late = places.windows(2).filter(|pair| pair[0] > pair[1]).count() as u64;
        places.sort_unstable();
        let mut expected: Vec<u64> = arrivals.iter().map(|&(_, place)| place).collect();
        expected.sort_unstable();
        prop_assert_eq!(places, expected);
        // Only packets that came after their time are out of order.
        prop_assert!(late <= host.counts().late, "{late} of {:?}", host.counts());
        for &(place, at_us) in &host.got {
            let came_us = arrivals.iter().find(|&&(_, other)| other == place).unwrap().0;
            prop_assert!(at_us >= came_us && at_us <= came_us + LIMIT_US, "{place}: {came_us}, {at_us}");
        }
        // Nobody waits if all of them come in order.
        if hopeless != 1 && fates.iter().all(|&(fate, _)| fate > 3) {
            prop_assert_eq!(host.counts().held, 0);
        }
    }
}
