//! Split mode without sockets: two ends of a carrier, and hosts of every pace.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::{env, fs};

use maelstrom_core::split::{
    ADVANCE_MAX, BUFFER_MIN, Body, Ends, Event, Fault, Frame, INITIAL, Mux, Pool, Refusal, Role, SILENCE_US,
};
use testkit::Random;

#[path = "fuzz/split.rs"]
mod fuzz;

use crate::replay::{inputs, replay};

#[test]
fn a_carrier_survives_all_that_fuzzing_found() {
    if env::var_os("UPDATE_SNAPSHOTS").is_some() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/maelstrom_split");
        fs::create_dir_all(&corpus).unwrap();
        for (name, specimen) in fuzz::specimens() {
            fs::write(corpus.join(name), specimen).unwrap();
        }
    }
    let committed = inputs("maelstrom_split");
    assert!(fuzz::specimens().iter().all(|(_, specimen)| committed.contains(specimen)), "UPDATE_SNAPSHOTS=1");
    replay("maelstrom_split", 3, 3_000, fuzz::split);
}

/// Bytes of a stream's direction that its host sends.
#[derive(Clone, Copy, Debug, Default)]
struct Half {
    length: usize,
    sent: usize,
    taken: usize,
    is_finished: bool,
    is_drained: bool,
}

/// One end of a carrier with its hosts.
struct End {
    mux: Mux,
    pool: Pool,
    input: Vec<u8>,
    /// Bytes that each host sends; `taken` counts those that the far host got.
    halves: BTreeMap<u32, Half>,
    refused: Vec<u32>,
}

/// The byte at a place of a direction.
fn byte(side: usize, stream: u32, at: usize) -> u8 {
    (at as u32).wrapping_mul(31).wrapping_add(stream * 7 + side as u32 * 131).to_le_bytes()[1]
}

fn ends() -> Ends {
    Ends {
        client: SocketAddr::from(([10, 81, 1, 2], 40_000)),
        server: SocketAddr::from(([10, 81, 2, 2], 80)),
    }
}

struct Pair {
    ends: [End; 2],
    random: Random,
    now_us: u64,
    buffer: u64,
}

impl Pair {
    fn new(seed: u64, buffer: u64) -> Self {
        let end = |role| End {
            mux: Mux::new(role, 0),
            pool: Pool::new(buffer, 1),
            input: Vec::new(),
            halves: BTreeMap::new(),
            refused: Vec::new(),
        };
        let ends = [end(Role::Dialer), end(Role::Acceptor)];
        Self { ends, random: Random(seed), now_us: 0, buffer }
    }

    fn open(&mut self) -> Option<u32> {
        let near = &mut self.ends[0];
        let stream = near.mux.open(ends(), &mut near.pool)?;
        for side in 0..2 {
            let length = self.random.index(300_000);
            self.ends[side].halves.insert(stream, Half { length, ..Half::default() });
        }
        Some(stream)
    }

    /// Moves up to `bytes` from one end to the other.
    fn deliver(&mut self, from: usize, bytes: usize) {
        let [near, far] = &mut self.ends;
        let (from, to) = if from == 0 { (near, far) } else { (far, near) };
        let moved = bytes.min(from.mux.output().len());
        to.input.extend_from_slice(&from.mux.output()[..moved]);
        from.mux.on_sent(moved);
        let mut events = Vec::new();
        let taken = to.mux.handle_input(self.now_us, &to.input, &mut to.pool, &mut events).unwrap();
        to.input.drain(..taken);
        for event in events {
            match event {
                Event::Open { stream, ends: seen } => {
                    assert_eq!(seen, ends());
                    to.mux.accept(stream, &mut to.pool);
                }
                Event::Refused(stream, reason) => {
                    assert_eq!(reason, Refusal::Full);
                    to.refused.push(stream);
                }
                Event::Reset(stream) => panic!("nobody has reset {stream}"),
                Event::Opened(_) | Event::Arrived(_) | Event::Writable(_) | Event::Leaving => {}
            }
        }
        assert!(to.pool.promised() + to.pool.advanced() <= self.buffer, "{:?}", to.pool);
        assert!(to.mux.waiting() <= to.pool.promised());
    }

    fn handle_timeout(&mut self, side: usize) {
        let End { mux, pool, .. } = &mut self.ends[side];
        mux.handle_timeout(self.now_us, pool);
    }

    /// Lets the end that dialed have its advance.
    fn give_advance(&mut self) {
        self.ends[0].mux.want_advance();
        self.deliver(0, usize::MAX);
        self.deliver(1, usize::MAX);
    }

    /// Lets a host of the near end send as much as it may while nothing comes back.
    fn push(&mut self, stream: u32) -> usize {
        let sent = |pair: &Self| pair.ends[0].halves[&stream].sent;
        loop {
            let before = sent(self);
            self.send(0, stream, usize::MAX);
            self.deliver(0, usize::MAX);
            if sent(self) == before {
                return before;
            }
        }
    }

    /// A host sends up to `bytes`.
    fn send(&mut self, side: usize, stream: u32, bytes: usize) {
        let end = &mut self.ends[side];
        let half = end.halves.get_mut(&stream).unwrap();
        let rest = half.length - half.sent;
        if rest > 0 && end.mux.has_room() {
            let sent = half.sent;
            let fill = |room: &mut [u8]| -> Result<usize, ()> {
                let bytes = bytes.min(rest).min(room.len());
                for (at, place) in room[..bytes].iter_mut().enumerate() {
                    *place = byte(side, stream, sent + at);
                }
                Ok(bytes)
            };
            half.sent += end.mux.send_data(stream, fill).unwrap();
        }
        if half.sent == half.length && !half.is_finished {
            half.is_finished = true;
            end.mux.finish(stream);
        }
    }

    /// A host takes up to `bytes` of what waits for it, and checks them.
    fn take(&mut self, side: usize, stream: u32, bytes: usize) {
        let [near, far] = &mut self.ends;
        let (end, other) = if side == 0 { (near, far) } else { (far, near) };
        let half = other.halves.get_mut(&stream).unwrap();
        let (first, second) = end.mux.inbound(stream);
        let waiting: Vec<u8> = [first, second].concat();
        let taken = bytes.min(waiting.len());
        for (at, &seen) in waiting[..taken].iter().enumerate() {
            assert_eq!(seen, byte(1 - side, stream, half.taken + at), "stream {stream}");
        }
        half.taken += taken;
        end.mux.on_written(stream, taken, &mut end.pool);
        half.is_drained |= end.mux.is_drained(stream);
        if half.is_drained && end.halves[&stream].is_finished {
            end.mux.close(stream, &mut end.pool);
        }
    }

    /// Lets everything that can happen do so until nothing moves.
    fn settle(&mut self, streams: &[u32]) {
        for _ in 0..20_000 {
            let mut is_done = true;
            for side in 0..2 {
                for &stream in streams {
                    self.send(side, stream, usize::MAX);
                    self.take(side, stream, usize::MAX);
                    is_done &= self.ends[side].halves[&stream].is_drained;
                }
                self.deliver(side, usize::MAX);
            }
            if is_done {
                return;
            }
        }
        let halves = [0, 1].map(|side| &self.ends[side].halves);
        panic!("the streams stand still: {halves:?}");
    }
}

#[test]
fn every_byte_arrives_in_order_whatever_the_pace_of_hosts_and_carrier() {
    for seed in 0..40 {
        let mut pair = Pair::new(seed, BUFFER_MIN);
        if seed % 2 == 0 {
            pair.ends[0].mux.want_advance();
        }
        let mut streams = Vec::new();
        for _ in 0..3_000 {
            let side = pair.random.index(2);
            let bytes = 1 + pair.random.index(40_000);
            match pair.random.index(5) {
                0 if streams.len() < 20 => streams.extend(pair.open()),
                1 | 2 if !streams.is_empty() => {
                    let stream = streams[pair.random.index(streams.len())];
                    pair.send(side, stream, bytes);
                }
                3 if !streams.is_empty() => {
                    let stream = streams[pair.random.index(streams.len())];
                    pair.take(side, stream, bytes);
                }
                _ => pair.deliver(side, bytes),
            }
            pair.now_us += pair.random.below(20_000);
            pair.handle_timeout(side);
        }
        pair.settle(&streams);
        for end in &pair.ends {
            assert!(end.pool.advanced() <= BUFFER_MIN / 12, "seed {seed}");
            assert_eq!(
                (end.mux.streams(), end.pool.streams(), end.pool.promised()),
                (0, 0, 0),
                "seed {seed}"
            );
            assert!(end.halves.values().all(|half| half.taken == half.length), "seed {seed}");
        }
    }
}

#[test]
fn a_host_that_takes_nothing_stops_no_other_and_fills_no_more_than_its_share() {
    let mut pair = Pair::new(1, 64 << 20);
    let streams: Vec<u32> = (0..3).map(|_| pair.open().unwrap()).collect();
    for &stream in &streams {
        let half = Half { length: 12_000_000, ..Half::default() };
        pair.ends[0].halves.insert(stream, half);
    }
    let (slow, quick) = streams.split_first().unwrap();
    for _ in 0..1_500 {
        for &stream in &streams {
            pair.send(0, stream, usize::MAX);
            pair.send(1, stream, usize::MAX);
            pair.take(0, stream, usize::MAX);
        }
        pair.deliver(0, usize::MAX);
        pair.deliver(1, usize::MAX);
        quick.iter().for_each(|&stream| pair.take(1, stream, usize::MAX));
    }
    assert!(quick.iter().all(|stream| pair.ends[0].halves[stream].is_drained), "{:?}", pair.ends[0].halves);
    let waiting = pair.ends[1].mux.waiting();
    // It has what it got at its beginning: an eighth of half of the buffer.
    assert_eq!(waiting, u64::from(INITIAL) + (4 << 20));
    assert_eq!(pair.ends[0].halves[slow].sent as u64, waiting);
}

#[test]
fn a_host_sends_a_million_bytes_before_the_far_gateway_has_heard_of_it() {
    let mut pair = Pair::new(1, 64 << 20);
    pair.give_advance();
    let mut push = || {
        let stream = pair.open().unwrap();
        pair.ends[0].halves.insert(stream, Half { length: 2_000_000, ..Half::default() });
        pair.push(stream)
    };
    let first = push();
    assert!((1_000_000..=(INITIAL + ADVANCE_MAX) as usize).contains(&first), "{first}");
    // Those that begin at the same time share what is left.
    let next: Vec<usize> = (0..4).map(|_| push()).collect();
    assert!(next.is_sorted_by(|one, next| one > next) && next[3] > INITIAL as usize, "{next:?}");
    // A round trip later there is an advance again.
    pair.deliver(1, usize::MAX);
    let stream = pair.open().unwrap();
    pair.ends[0].halves.insert(stream, Half { length: 900_000, ..Half::default() });
    assert_eq!(pair.push(stream), 900_000);
}

#[test]
fn an_end_that_wants_no_advance_ties_up_nothing() {
    let mut pair = Pair::new(1, 64 << 20);
    pair.deliver(1, usize::MAX);
    pair.deliver(0, usize::MAX);
    assert_eq!(pair.ends.each_ref().map(|end| end.pool.advanced()), [0, 0]);
    let stream = pair.open().unwrap();
    pair.ends[0].halves.insert(stream, Half { length: 300_000, ..Half::default() });
    assert_eq!(pair.push(stream), INITIAL as usize);
}

/// Hosts that push all they may to hosts that read nothing, many more at once than there is an advance for.
#[test]
fn two_thousand_readers_that_take_nothing_fill_no_more_than_the_buffer() {
    let mut pair = Pair::new(1, 64 << 20);
    pair.give_advance();
    let silent: Vec<u32> = (0..2_000).map(|_| pair.open().unwrap()).collect();
    for &stream in &silent {
        pair.ends[0].halves.insert(stream, Half { length: 4_000_000, ..Half::default() });
        pair.ends[1].halves.insert(stream, Half::default());
    }
    for second in 1..=3 {
        for &stream in &silent {
            // It asserts that no more waits than is promised, and no more is promised than there is.
            pair.push(stream);
            pair.deliver(1, usize::MAX);
        }
        pair.now_us = second * 1_000_000;
        (0..2).for_each(|side| pair.handle_timeout(side));
    }
    let sent = |stream: &u32| pair.ends[0].halves[stream].sent;
    assert!(silent.iter().all(|stream| sent(stream) >= INITIAL as usize), "each has its part");
    let held = pair.ends[1].pool.promised() + pair.ends[1].pool.advanced();
    assert!(held > 48 << 20, "{held}");
    // One that reads is held up by none of them.
    let stream = pair.open().unwrap();
    pair.ends[0].halves.insert(stream, Half { length: 10_000_000, ..Half::default() });
    pair.settle(&[stream]);
}

#[test]
fn a_full_far_gateway_refuses_and_the_others_go_on() {
    let mut pair = Pair::new(1, BUFFER_MIN);
    // The near end has more room than the far one.
    pair.ends[0].pool = Pool::new(4 * BUFFER_MIN, 1);
    pair.buffer = 4 * BUFFER_MIN;
    let streams: Vec<u32> = (0..70).map(|_| pair.open().unwrap()).collect();
    pair.deliver(0, usize::MAX);
    pair.deliver(1, usize::MAX);
    // It keeps half of the smallest buffer for connections that its own kernel has accepted.
    assert_eq!(pair.ends[0].refused, streams[32..]);
    pair.settle(&streams[..32]);
    assert_eq!(pair.ends[0].mux.streams(), 0);
}

#[test]
fn a_reset_ends_a_stream_at_both_ends_and_its_late_frames_do_no_harm() {
    let mut pair = Pair::new(1, BUFFER_MIN);
    let stream = pair.open().unwrap();
    pair.ends[0].halves.get_mut(&stream).unwrap().length = 10_000;
    pair.send(0, stream, usize::MAX);
    pair.deliver(0, usize::MAX);
    pair.deliver(1, usize::MAX);
    let [near, far] = &mut pair.ends;
    let mut events = Vec::new();
    // Both reset it at once, and frames cross.
    near.mux.reset(stream, &mut near.pool);
    far.mux.reset(stream, &mut far.pool);
    let (out, back) = (near.mux.output().to_vec(), far.mux.output().to_vec());
    far.mux.handle_input(0, &out, &mut far.pool, &mut events).unwrap();
    near.mux.handle_input(0, &back, &mut near.pool, &mut events).unwrap();
    assert_eq!(events, []);
    assert_eq!((near.pool.promised(), far.pool.promised()), (0, 0));
}

#[test]
fn an_idle_stream_gives_its_credit_back() {
    let mut pair = Pair::new(1, 64 << 20);
    let stream = pair.open().unwrap();
    pair.deliver(0, usize::MAX);
    pair.deliver(1, usize::MAX);
    let before = pair.ends.each_ref().map(|end| end.pool.promised());
    assert_eq!(before, [u64::from(INITIAL) + (4 << 20); 2]);
    for second in 1..=3 {
        pair.now_us = second * 1_000_000;
        (0..2).for_each(|side| pair.handle_timeout(side));
        pair.deliver(0, usize::MAX);
        pair.deliver(1, usize::MAX);
    }
    assert_eq!(pair.ends.each_ref().map(|end| end.pool.promised()), [u64::from(INITIAL); 2]);
    assert_eq!(pair.ends[0].mux.rtt_us(), Some(0), "its pong came at once");
    pair.settle(&[stream]);
}

#[test]
fn a_far_end_that_is_silent_is_found_out() {
    let mut pair = Pair::new(1, BUFFER_MIN);
    assert!(!pair.ends[0].mux.is_heard());
    pair.deliver(1, usize::MAX);
    assert!(pair.ends[0].mux.is_heard(), "the end that was dialed speaks first");
    assert!(!pair.ends[0].mux.is_silent(SILENCE_US - 1) && pair.ends[0].mux.is_silent(SILENCE_US));
}

#[test]
fn an_end_that_leaves_opens_what_is_under_way_and_nothing_more() {
    let mut pair = Pair::new(1, BUFFER_MIN);
    let before = pair.open().unwrap();
    pair.deliver(0, usize::MAX);
    pair.deliver(1, usize::MAX);
    // Its word and a stream cross.
    pair.ends[1].mux.leave();
    let crossing = pair.open().unwrap();
    pair.deliver(0, usize::MAX);
    pair.deliver(1, usize::MAX);
    assert!(pair.ends[0].mux.is_far_leaving());
    assert_eq!(pair.open(), None);
    pair.settle(&[before, crossing]);
    // The end that dialed has no such word.
    let written = pair.ends[0].mux.output().len();
    pair.ends[0].mux.leave();
    assert_eq!(pair.ends[0].mux.output().len(), written);
    let mut liar = Vec::new();
    Frame { stream: 0, body: Body::Leaving }.write(&mut liar);
    let End { mux, pool, .. } = &mut pair.ends[1];
    assert_eq!(mux.handle_input(0, &liar, pool, &mut Vec::new()), Err(Fault::Role));
}
