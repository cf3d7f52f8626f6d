//! Targets of the fuzzer, shared with the tests that replay their corpora.

use super::packet::{
    Content, DATAGRAM_MAX, Malformed, Packet, Request, SessionId, write_end, write_heartbeat, write_messages,
};
use super::reader::Reader;
use super::sequence::{Origin, Step, Times};

/// Whatever is read as a packet or as a request is written as the same bytes again.
pub(super) fn wire(data: &[u8]) {
    let mut written = Vec::new();
    match Packet::read(data) {
        Ok(Packet { session, number, content }) => {
            match content {
                Content::Messages(messages) => {
                    let count = messages.count();
                    let length_max = data.len().max(DATAGRAM_MAX);
                    let packed = write_messages(&mut written, session, number, length_max, messages);
                    assert_eq!(count, usize::from(packed));
                }
                Content::Heartbeat => write_heartbeat(&mut written, session, number),
                Content::End => write_end(&mut written, session, number),
            }
            assert!(written == data && number > 0);
        }
        Err(Malformed::TooShort | Malformed::TooLong | Malformed::Number) => {}
    }
    if let Ok(request) = Request::read(data) {
        request.write(&mut written);
        assert!(written == data && request.number > 0);
    }
}

/// Bytes of one event of [`reader`].
const EVENT: usize = 6;

/// Packets of several feeds in any order: what a reader hands on has no doubles, hides no gap, and mixes no
/// sessions. Returns the number of messages and of reported losses.
pub(super) fn reader(data: &[u8]) -> (u64, u64) {
    let Some((&first, events)) = data.split_first() else { return (0, 0) };
    let times = Times {
        reorder_us: (first & 1 == 0).then_some(500),
        retry_us: 1_000,
        give_up_us: 20_000,
        reported_us: 1_000,
        silence_us: 50_000,
    };
    let mut reader = Reader::new(times, None, first & 2 != 0);
    let (mut now_us, mut out, mut order) = (0, Vec::new(), Order::default());
    for event in events.chunks_exact(EVENT) {
        let &[kind, name, high, low, count, wait] = event else { return (0, 0) };
        now_us += u64::from(wait) * 100;
        let session = SessionId([b'A' + name % 4; 10]);
        // Some numbers are far from the others.
        let shift = match kind >> 4 {
            15 => 24,
            14 => 48,
            _ => 0,
        };
        let number = (u64::from(u16::from_be_bytes([high, low])) << shift).wrapping_add(1);
        let messages = std::iter::repeat_n(&b"message"[..], usize::from(count % 8));
        match kind % 6 {
            0 | 1 => reader.handle_messages(now_us, session, number, messages, Origin::Feed, &mut out),
            2 => reader.handle_messages(now_us, session, number, messages, Origin::Answer, &mut out),
            3 => reader.handle_end(now_us, session, number, &mut out),
            4 => reader.handle_lost(now_us, session, number, number.saturating_add(count.into()), &mut out),
            _ => reader.handle_timeout(now_us, &mut out),
        }
        while let Some(request) = reader.poll_request(now_us) {
            assert!(request.count > 0 && request.count < u16::MAX);
        }
        out.drain(..).for_each(|step| order.check(&step));
    }
    assert_eq!((order.messages, order.lost), (reader.counts().messages, reader.counts().lost));
    (order.messages, order.lost)
}

/// Checks what a reader hands on.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// The last session, the number of its next message, and whether it has not ended.
    present: Option<(SessionId, u64, bool)>,
    past: Vec<SessionId>,
    pub(super) messages: u64,
    pub(super) lost: u64,
}

impl Order {
    pub(super) fn check(&mut self, step: &Step) {
        let (of, first, count) = match *step {
            Step::Begin { session, next } => {
                if let Some((of, expected, is_open)) = self.present {
                    assert!(!is_open, "{of} has not ended when {session} begins");
                    if of == session {
                        assert_eq!(expected, next, "{session} continues");
                    } else {
                        self.past.push(of);
                    }
                }
                assert!(!self.past.contains(&session), "{session} begins again");
                self.present = Some((session, next, true));
                return;
            }
            Step::Message { session, number, .. } => {
                self.messages += 1;
                (session, number, 1)
            }
            Step::Lost { session, first, last } => {
                assert!(first <= last);
                self.lost += last + 1 - first;
                (session, first, last + 1 - first)
            }
            Step::End { session, next } => (session, next, 0),
        };
        let (session, next, is_open) = self.present.as_mut().expect("a session has begun");
        assert!(*is_open && *session == of && *next == first, "{step:?} comes after {next} of {session}");
        *next += count;
        *is_open = count > 0;
    }
}
