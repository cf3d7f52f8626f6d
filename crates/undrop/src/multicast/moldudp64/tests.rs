//! Tests of the bridges without sockets.

use super::feed::Feed;
use super::frame::Frame;
use super::packet::{
    Content, Malformed, Packet, Request, SessionId, write_end, write_heartbeat, write_messages,
};
use super::reader::Reader;
use super::sequence::{Origin, Step, Times};
use super::session_id;

mod any;

const A: SessionId = SessionId(*b"SESSION001");
const B: SessionId = SessionId(*b"SESSION002");

const TIMES: Times = Times {
    reorder_us: Some(500),
    retry_us: 10_000,
    give_up_us: 1_000_000,
    reported_us: 200_000,
    silence_us: 3_000_000,
};

/// A reader with its clock.
struct Bench {
    reader: Reader,
    now_us: u64,
    steps: Vec<Step>,
}

impl Bench {
    fn new() -> Self {
        Self { reader: Reader::new(TIMES, None, false), now_us: 1, steps: Vec::new() }
    }

    /// Takes messages `numbers` of a session, each with its number as payload, in one packet.
    fn take(&mut self, session: SessionId, numbers: std::ops::RangeInclusive<u64>, origin: Origin) {
        let payloads: Vec<Vec<u8>> = numbers.clone().map(payload).collect();
        let messages = payloads.iter().map(Vec::as_slice);
        let Self { reader, now_us, steps } = self;
        reader.handle_messages(*now_us, session, *numbers.start(), messages, origin, steps);
    }

    fn wait(&mut self, us: u64) {
        self.now_us += us;
        self.reader.handle_timeout(self.now_us, &mut self.steps);
    }

    /// Returns what was handed on since the last call: `a1` is message 1 of session A, `-b1..2` a loss.
    fn said(&mut self) -> String {
        let name = |session: SessionId| if session == A { 'a' } else { 'b' };
        let shown = self.steps.drain(..).map(|step| match step {
            Step::Begin { session, next } => format!("[{}{next}", name(session)),
            Step::Message { session, number, payload: bytes } => {
                assert_eq!(bytes, payload(number));
                format!("{}{number}", name(session))
            }
            Step::Lost { session, first, last } => format!("-{}{first}..{last}", name(session)),
            Step::End { session, next } => format!("{}{next}]", name(session)),
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    fn requests(&mut self) -> Vec<(u64, u16)> {
        let requests = std::iter::from_fn(|| self.reader.poll_request(self.now_us));
        requests.map(|request| (request.number, request.count)).collect()
    }
}

fn payload(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

#[test]
fn bytes_of_the_specification_are_read_and_written() {
    let bytes = [b"SESSION001\0\0\0\0\0\0\0\x07\0\x02".as_slice(), b"\0\x03abc\0\0"].concat();
    let packet = Packet::read(&bytes).unwrap();
    assert_eq!((packet.session, packet.number), (A, 7));
    let Content::Messages(messages) = packet.content else { panic!("{packet:?}") };
    assert_eq!(messages.collect::<Vec<_>>(), [&b"abc"[..], b""]);
    let heartbeat = b"SESSION001\0\0\0\0\0\0\0\x07\0\0";
    assert_eq!(Packet::read(heartbeat).unwrap().content, Content::Heartbeat);
    let end = b"SESSION001\0\0\0\0\0\0\0\x07\xff\xff";
    assert_eq!(Packet::read(end).unwrap().content, Content::End);
    let mut written = Vec::new();
    write_end(&mut written, A, 7);
    assert_eq!(written, end);
    let request = b"SESSION001\0\0\0\0\0\0\x01\x00\x00\x09";
    assert_eq!(Request::read(request), Ok(Request { session: A, number: 256, count: 9 }));
}

#[test]
fn what_is_no_packet_is_refused() {
    let bytes = [b"SESSION001\0\0\0\0\0\0\0\x07\0\x02".as_slice(), b"\0\x03abc\0\x01d"].concat();
    for end in 0..bytes.len() {
        assert_eq!(Packet::read(&bytes[..end]), Err(Malformed::TooShort), "{end}");
    }
    assert_eq!(Packet::read(&[&bytes[..], b"x"].concat()), Err(Malformed::TooLong));
    let heartbeat = b"SESSION001\0\0\0\0\0\0\0\x07\0\0";
    assert_eq!(Packet::read(&[&heartbeat[..], b"x"].concat()), Err(Malformed::TooLong));
    assert_eq!(Packet::read(b"SESSION001\0\0\0\0\0\0\0\0\0\0"), Err(Malformed::Number));
    assert_eq!(Request::read(&heartbeat[..19]), Err(Malformed::TooShort));
    assert_eq!(Request::read(&[&heartbeat[..], b"x"].concat()), Err(Malformed::TooLong));
}

#[test]
fn names_of_sessions_are_filled_up_with_spaces() {
    assert_eq!(session_id("AB1"), Ok(SessionId(*b"AB1       ")));
    assert_eq!(session_id("AB1").unwrap().to_string(), "AB1");
    for wrong in ["", "   ", "elevenbytes", "a\n"] {
        assert!(session_id(wrong).unwrap_err().contains("1 to 10 letters and digits"), "{wrong:?}");
    }
}

#[test]
fn headers_of_messages_read_back_and_others_are_left_alone() {
    let frames = [
        Frame::Message { session: A, number: 7 },
        Frame::Lost { session: A, first: 7, last: 9 },
        Frame::End { session: A, next: 10 },
    ];
    let mut bytes = Vec::new();
    for frame in frames {
        frame.write(&mut bytes);
        assert_eq!(Frame::read(&bytes), Some(frame));
        for end in 0..bytes.len() {
            assert_eq!(Frame::read(&bytes[..end]), None, "{frame:?} {end}");
        }
        bytes.push(0);
        assert_eq!(Frame::read(&bytes), None);
    }
    assert_eq!(Frame::read(b"trace=7"), None);
    Frame::Lost { session: A, first: 9, last: 7 }.write(&mut bytes);
    assert_eq!(Frame::read(&bytes), None, "a range ends after it begins");
    assert_eq!(frames.map(|frame| frame.after().1), [8, 10, 10]);
}

#[test]
fn a_gap_is_requested_piece_by_piece_until_it_is_full() {
    let mut bench = Bench::new();
    bench.take(A, 5..=6, Origin::Feed);
    bench.take(A, 10..=10, Origin::Feed);
    assert_eq!(bench.said(), "[a5 a5 a6");
    assert_eq!(bench.requests(), [], "the packet may be merely out of order");
    bench.wait(500);
    assert_eq!(bench.requests(), [(7, 3)]);
    assert_eq!(bench.requests(), [], "the answer may be on its way");
    bench.take(A, 7..=8, Origin::Answer);
    assert_eq!(bench.requests(), [(9, 1)], "an answer that is not all is followed by the next request");
    bench.wait(10_000);
    assert_eq!(bench.requests(), [(9, 1)]);
    bench.wait(10_000);
    assert_eq!(bench.requests(), [], "the interval grows");
    bench.wait(10_000);
    assert_eq!(bench.requests(), [(9, 1)]);
    bench.take(A, 9..=9, Origin::Answer);
    bench.take(A, 9..=9, Origin::Answer);
    assert_eq!(bench.said(), "a7 a8 a9 a10");
    let counts = bench.reader.counts();
    assert_eq!((counts.answered, counts.duplicates, counts.requests), (3, 1, 4));
}

#[test]
fn a_heartbeat_and_the_end_of_a_session_show_what_is_missing_at_the_tail() {
    let mut bench = Bench::new();
    bench.take(A, 1..=1, Origin::Feed);
    let Bench { reader, now_us, steps } = &mut bench;
    reader.handle_messages(*now_us, A, 3, std::iter::empty(), Origin::Feed, steps);
    bench.wait(500);
    assert_eq!(bench.requests(), [(2, 1)]);
    let Bench { reader, now_us, steps } = &mut bench;
    reader.handle_end(*now_us, A, 4, steps);
    assert_eq!(bench.said(), "[a1 a1", "the session has not ended for who lacks messages");
    bench.wait(500);
    assert_eq!(bench.requests(), [(3, 1)]);
    bench.take(A, 2..=3, Origin::Answer);
    assert_eq!(bench.said(), "a2 a3 a4]");
}

#[test]
fn gaps_that_nobody_fills_are_told_and_do_not_hold_up_later_ones() {
    let mut bench = Bench::new();
    for number in [1, 3, 5, 7] {
        bench.take(A, number..=number, Origin::Feed);
    }
    bench.wait(500);
    assert_eq!(bench.requests(), [(2, 1), (4, 1), (6, 1)], "all gaps at once");
    bench.take(A, 4..=4, Origin::Answer);
    bench.wait(999_000);
    assert_eq!(bench.said(), "[a1 a1");
    bench.wait(500);
    assert_eq!(bench.said(), "-a2..2 a3 a4 a5 -a6..6 a7");
    bench.take(A, 2..=2, Origin::Feed);
    assert_eq!(bench.said(), "", "what was told as lost does not come later");
}

#[test]
fn a_report_of_a_loss_shortens_the_wait_for_another_bridge() {
    let mut bench = Bench::new();
    bench.take(A, 1..=1, Origin::Feed);
    for (first, last) in [(2, 3), (5, 5)] {
        let Bench { reader, now_us, steps } = &mut bench;
        reader.handle_lost(*now_us, A, first, last, steps);
        bench.take(A, last + 1..=last + 1, Origin::Feed);
    }
    bench.take(A, 2..=3, Origin::Feed);
    assert_eq!(bench.said(), "[a1 a1 a2 a3 a4", "another bridge has them");
    bench.wait(199_000);
    assert_eq!(bench.said(), "");
    bench.wait(1_000);
    assert_eq!(bench.said(), "-a5..5 a6");
}

#[test]
fn sessions_do_not_mix_when_a_feed_starts_again() {
    let mut bench = Bench::new();
    bench.take(A, 1..=2, Origin::Feed);
    bench.take(B, 2..=2, Origin::Feed);
    bench.take(A, 3..=3, Origin::Feed);
    bench.take(B, 3..=3, Origin::Feed);
    assert_eq!(bench.said(), "[a1 a1 a2 a3", "the other session waits");
    bench.wait(500);
    assert_eq!(bench.requests(), [(1, 1)], "and its first message is requested");
    bench.take(B, 1..=1, Origin::Answer);
    bench.wait(2_999_000);
    assert_eq!(bench.said(), "");
    bench.wait(500);
    assert_eq!(bench.said(), "a4] [b1 b1 b2 b3");
    bench.take(A, 4..=4, Origin::Feed);
    assert_eq!(bench.said(), "", "a late packet of the session that is over");
    assert_eq!(bench.reader.counts().of_past_sessions, 1);
}

#[test]
fn a_session_that_has_ended_makes_room_at_once_and_a_stray_packet_does_not() {
    let mut bench = Bench::new();
    bench.take(A, 1..=1, Origin::Feed);
    bench.take(B, 1..=1, Origin::Feed);
    for _ in 0..10 {
        bench.wait(1_000_000);
        let Bench { reader, now_us, steps } = &mut bench;
        reader.handle_messages(*now_us, A, 2, std::iter::empty(), Origin::Feed, steps);
    }
    assert_eq!(bench.said(), "[a1 a1", "session A goes on");
    let Bench { reader, now_us, steps } = &mut bench;
    reader.handle_end(*now_us, A, 2, steps);
    assert_eq!(bench.said(), "a2] [b1 b1");
}

#[test]
fn a_false_end_and_a_false_number_do_not_stop_a_feed() {
    let mut bench = Bench::new();
    bench.take(A, 1..=1, Origin::Feed);
    let Bench { reader, now_us, steps } = &mut bench;
    reader.handle_end(*now_us, A, 2, steps);
    bench.take(A, 1 << 50..=1 << 50, Origin::Feed);
    bench.take(A, 2..=2, Origin::Feed);
    assert_eq!(bench.said(), "[a1 a1 a2] [a2 a2");
    assert_eq!(bench.reader.counts().implausible, 1);
    // Two packets confirm each other: what lies between is told as lost, and not requested.
    bench.take(A, 1 << 50..=1 << 50, Origin::Feed);
    bench.take(A, (1 << 50) + 1..=(1 << 50) + 1, Origin::Feed);
    bench.wait(500);
    assert_eq!(bench.requests(), []);
    let (last, next) = (1_u64 << 50, (1_u64 << 50) + 1);
    assert_eq!(bench.said(), format!("-a3..{last} a{next}"));
}

#[test]
fn the_largest_numbers_do_no_harm() {
    for number in [u64::MAX, u64::MAX - 1, 1 << 63, (1 << 62) + 1] {
        let mut bytes = Vec::new();
        write_heartbeat(&mut bytes, A, number);
        assert_eq!(Packet::read(&bytes), Err(Malformed::Number));
        assert_eq!(Request::read(&bytes), Err(Malformed::Number));
        Frame::Lost { session: A, first: 1, last: number }.write(&mut bytes);
        assert_eq!(Frame::read(&bytes), None);
        let mut feed = Feed::new(A, 100, 4_000);
        feed.push(b"1");
        assert_eq!(feed.answer(&mut bytes, &Request { session: A, number, count: 9 }), 0);
        let mut bench = Bench::new();
        for _ in 0..3 {
            let Bench { reader, now_us, steps } = &mut bench;
            reader.handle_messages(*now_us, A, number, std::iter::empty(), Origin::Feed, steps);
            reader.handle_end(*now_us, A, number, steps);
            reader.handle_lost(*now_us, A, 1, number, steps);
        }
        bench.take(A, 1..=2, Origin::Feed);
        assert_eq!(bench.said(), "[a1 a1 a2", "a session begins with a number that can be");
    }
}

#[test]
fn a_bridge_that_starts_again_continues_where_it_was() {
    let mut bench = Bench::new();
    bench.reader.resume(1, A, 5);
    bench.take(A, 4..=4, Origin::Feed);
    bench.take(A, 8..=8, Origin::Feed);
    bench.wait(500);
    assert_eq!(bench.requests(), [(5, 3)]);
    bench.take(A, 5..=7, Origin::Answer);
    assert_eq!(bench.said(), "[a5 a5 a6 a7 a8");
}

#[test]
fn memory_for_messages_that_wait_is_bounded_and_what_is_dropped_comes_back() {
    let mut bench = Bench::new();
    bench.take(A, 1..=1, Origin::Feed);
    let long = vec![b'x'; 60_000];
    let count = 2_000;
    for number in 3..3 + count {
        let Bench { reader, now_us, steps } = &mut bench;
        reader.handle_messages(*now_us, A, number, std::iter::once(&long[..]), Origin::Feed, steps);
    }
    let no_room = bench.reader.counts().no_room;
    assert!(no_room > 0 && no_room < count, "{no_room}");
    bench.steps.clear();
    let mut answers = 0;
    while bench.reader.position().unwrap().1 < 3 + count {
        bench.wait(500);
        bench.steps.clear();
        while let Some(request) = bench.reader.poll_request(bench.now_us) {
            let Bench { reader, now_us, steps } = &mut bench;
            let one = std::iter::once(&long[..]);
            reader.handle_messages(*now_us, A, request.number, one, Origin::Answer, steps);
            answers += 1;
        }
        // A heartbeat shows that the feed has more.
        let Bench { reader, now_us, steps } = &mut bench;
        reader.handle_messages(*now_us, A, 3 + count, std::iter::empty(), Origin::Feed, steps);
        assert!(answers < 5 * count, "it makes no progress");
    }
    assert_eq!(bench.reader.counts().lost, 0);
}

#[test]
fn a_feed_keeps_what_its_bound_allows_and_the_session_before() {
    let mut feed = Feed::new(A, 100, 2_000);
    let mut packet = Vec::new();
    for number in 1..=100 {
        feed.push(&payload(number));
    }
    assert_eq!(feed.oldest(), 1, "what was not sent is kept");
    let mut packed = 0;
    loop {
        let count = feed.pack(&mut packet);
        packed += u64::from(count);
        assert!(packet.len() <= 100);
        if count == 0 {
            break;
        }
    }
    assert_eq!(packed, 100);
    feed.push(b"101");
    feed.pack(&mut packet);
    let oldest = feed.oldest();
    assert!(oldest > 1 && oldest < 50, "{oldest}");
    let ask = |feed: &Feed, session, number, count| {
        let mut answer = Vec::new();
        let messages = feed.answer(&mut answer, &Request { session, number, count });
        (messages, answer)
    };
    assert_eq!(ask(&feed, A, oldest - 1, 1).0, 0, "it is not kept");
    assert_eq!(ask(&feed, A, oldest, 2).0, 2);
    assert_eq!(ask(&feed, A, 101, 9).0, 1);
    assert_eq!(ask(&feed, A, 102, 1).0, 0);
    assert_eq!(ask(&feed, B, 101, 1).0, 0);
    let (messages, answer) = ask(&feed, A, oldest, 60_000);
    assert!(messages > 2 && answer.len() <= 100, "as many as fit a packet");
    feed.begin(B, 1);
    feed.push(b"1");
    feed.pack(&mut packet);
    assert_eq!((ask(&feed, A, 101, 1).0, ask(&feed, B, 1, 1).0), (1, 1), "both sessions");
    for _ in 0..200 {
        feed.push(b"more");
        feed.pack(&mut packet);
    }
    assert_eq!(ask(&feed, A, 101, 1).0, 0, "the session before goes first");
    assert_eq!(feed.session(), B);
}

#[test]
fn a_message_longer_than_a_packet_travels_alone() {
    let mut feed = Feed::new(A, 100, 1 << 20);
    let mut packet = Vec::new();
    for length in [10, 5_000, 10] {
        feed.push(&vec![b'x'; length]);
    }
    let counts: Vec<u16> = (0..4).map(|_| feed.pack(&mut packet)).collect();
    assert_eq!(counts, [1, 1, 1, 0]);
}
