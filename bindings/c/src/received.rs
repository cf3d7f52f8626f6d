//! Events as C sees them.

use std::ffi::c_char;

use ricochet::{Event, GROUP_NAME_MAX, GivenUp, HistoryNews, KEY_MAX};

/// Length of the buffer for the name of a group: 1,024 bytes and a zero byte.
pub const RICOCHET_GROUP_SIZE: usize = 1025;
const _: () = assert!(RICOCHET_GROUP_SIZE == GROUP_NAME_MAX + 1);

/// Length of the buffer for the reason of a loss, with its zero byte.
pub const RICOCHET_REASON_SIZE: usize = 64;

/// Maximum length of a key in bytes.
pub const RICOCHET_KEY_SIZE: usize = 255;
const _: () = assert!(RICOCHET_KEY_SIZE == KEY_MAX);

/// Kind of an event.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ricochet_event {
    /// A message.
    RICOCHET_MESSAGE = 0,
    /// Messages that will not come.
    RICOCHET_LOST = 1,
    /// Messages that came, but were dropped because the program reads too slowly and the queue was full.
    RICOCHET_SLOW_READER = 2,
    /// Messages from before the subscription follow. `messages` is their number, `complete` says whether
    /// these are all that the subscription asked for.
    RICOCHET_HISTORY_BEGINS = 3,
    /// Messages that follow were sent since the subscription.
    RICOCHET_HISTORY_ENDS = 4,
    /// No member keeps messages from before the subscription. `messages` is the number of members asked.
    /// RICOCHET_HISTORY_ENDS does not follow.
    RICOCHET_NO_HISTORY = 5,
    /// An event that this header has no name for. It may be ignored.
    RICOCHET_OTHER_EVENT = 6,
}

/// A received event. Fields that an event does not have are zero.
#[repr(C)]
pub struct ricochet_received {
    /// Kind of the event.
    pub event: ricochet_event,
    /// Node that sent the message, or the lost messages.
    pub sender: u32,
    /// Sequence number of the message, or of the first lost one, among those of the sender to the group. A
    /// message that was sent in several packets takes as many numbers.
    pub sequence: u32,
    /// Sequence number of the last lost message; otherwise `sequence`.
    pub last: u32,
    /// Length of the message in bytes.
    pub length: usize,
    /// Length of the key of which the message is the value; 0 if it has none. A message of no bytes deletes
    /// its key.
    pub key_length: usize,
    /// Time for which the node knew that the message was missing, in microseconds.
    pub latency_us: u64,
    /// Number of messages from before the subscription, or of members asked for them.
    pub messages: u64,
    /// Whether the message was lost at first, and then recovered or retransmitted.
    pub recovered: bool,
    /// Whether the message was sent before the subscription, and kept by a member.
    pub past: bool,
    /// Whether the messages from before the subscription are all that it asked for.
    pub complete: bool,
    /// Name of the group.
    pub group: [c_char; RICOCHET_GROUP_SIZE],
    /// Reason of the loss.
    pub reason: [c_char; RICOCHET_REASON_SIZE],
    /// The key, without a zero byte.
    pub key: [u8; RICOCHET_KEY_SIZE],
}

/// Facts of an event, without texts.
#[derive(Clone, Copy, Default)]
struct Facts {
    sender: u32,
    sequence: u32,
    last: u32,
    length: usize,
    latency_us: u64,
    messages: u64,
    recovered: bool,
    past: bool,
    complete: bool,
}

/// Stores an event, without its payload.
///
/// # Safety
/// The pointer is to room for a `ricochet_received`.
pub(crate) unsafe fn store(event: &Event, received: *mut ricochet_received) {
    let (kind, group, reason, facts) = facts(event);
    let Facts { sender, sequence, last, length, latency_us, messages, recovered, past, complete } = facts;
    let key = match event {
        Event::Message(message) => message.key().unwrap_or_default(),
        _ => &[],
    };
    // SAFETY: the caller ensures what this function requires. A key is at most as long as its field. Texts
    // and key are the last fields, of which only the used part is written, since this is done for each
    // message.
    unsafe {
        (&raw mut (*received).event).write(kind);
        (&raw mut (*received).sender).write(sender);
        (&raw mut (*received).sequence).write(sequence);
        (&raw mut (*received).last).write(last);
        (&raw mut (*received).length).write(length);
        (&raw mut (*received).key_length).write(key.len());
        (&raw mut (*received).latency_us).write(latency_us);
        (&raw mut (*received).messages).write(messages);
        (&raw mut (*received).recovered).write(recovered);
        (&raw mut (*received).past).write(past);
        (&raw mut (*received).complete).write(complete);
        store_text(group, (&raw mut (*received).group).cast(), RICOCHET_GROUP_SIZE);
        store_text(&reason, (&raw mut (*received).reason).cast(), RICOCHET_REASON_SIZE);
        (&raw mut (*received).key).cast::<u8>().copy_from_nonoverlapping(key.as_ptr(), key.len());
    }
}

fn facts(event: &Event) -> (ricochet_event, &str, String, Facts) {
    use ricochet_event as Kind;
    if let Event::Message(message) = event {
        let facts = Facts {
            sender: message.sender().0,
            sequence: message.seq(),
            last: message.seq(),
            length: message.payload().len(),
            latency_us: u64::try_from(message.latency().as_micros()).unwrap_or(u64::MAX),
            recovered: message.recovered(),
            past: message.is_past(),
            ..Facts::default()
        };
        return (Kind::RICOCHET_MESSAGE, message.group(), String::new(), facts);
    }
    if let Event::Lost(lost) = event {
        let (first, last) = (*lost.range().start(), *lost.range().end());
        let facts = Facts { sender: lost.sender().0, sequence: first, last, ..Facts::default() };
        let kind = match lost.reason() {
            GivenUp::Unread => Kind::RICOCHET_SLOW_READER,
            _ => Kind::RICOCHET_LOST,
        };
        return (kind, lost.group(), lost.reason().to_string(), facts);
    }
    if let Event::History(history) = event {
        let (kind, messages, complete) = match history.news() {
            HistoryNews::Begins { messages, is_complete } => {
                (Kind::RICOCHET_HISTORY_BEGINS, messages, is_complete)
            }
            HistoryNews::Nothing { asked } => (Kind::RICOCHET_NO_HISTORY, asked as u64, false),
            HistoryNews::Ends => (Kind::RICOCHET_HISTORY_ENDS, 0, false),
        };
        return (kind, history.group(), String::new(), Facts { messages, complete, ..Facts::default() });
    }
    (Kind::RICOCHET_OTHER_EVENT, "", String::new(), Facts::default())
}

/// Stores a text and a zero byte; a text that is too long is cut.
///
/// # Safety
/// The pointer is to room for `size` bytes, at least one.
unsafe fn store_text(text: &str, pointer: *mut u8, size: usize) {
    let length = text.floor_char_boundary(size - 1);
    // SAFETY: as this function; `length` is less than `size`.
    unsafe {
        pointer.copy_from_nonoverlapping(text.as_ptr(), length);
        pointer.add(length).write(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_reasons_of_losses_fit() {
        for reason in GivenUp::ALL {
            assert!(reason.to_string().len() < RICOCHET_REASON_SIZE, "{reason}");
        }
    }

    #[test]
    fn a_text_that_is_too_long_is_cut_between_characters() {
        let mut room = [0xff_u8; 8];
        // SAFETY: the room has the size given.
        unsafe { store_text("caf\u{e9}s", room.as_mut_ptr(), 5) };
        assert_eq!(&room[..5], b"caf\0\xff");
        // SAFETY: as above.
        unsafe { store_text("cafe", room.as_mut_ptr(), 5) };
        assert_eq!(&room, b"cafe\0\xff\xff\xff");
    }
}
