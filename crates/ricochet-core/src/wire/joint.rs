//! Several messages in one packet.

/// Length of a message's head in a packet with several: its length (2).
pub const MESSAGE_HEAD: usize = 2;

/// Maximum number of messages in one packet.
pub const JOINT_MAX: usize = 32;

/// Returns the messages in the payload of a packet with several. Ends before one that is longer than the
/// payload.
pub fn messages_of(payload: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = payload;
    std::iter::from_fn(move || {
        let (head, after) = rest.split_first_chunk::<MESSAGE_HEAD>()?;
        let (message, after) = after.split_at_checked(usize::from(u16::from_be_bytes(*head)))?;
        rest = after;
        Some(message)
    })
}

/// Returns whether a payload consists of whole messages, at most [`JOINT_MAX`].
pub fn is_joint(payload: &[u8]) -> bool {
    let all = messages_of(payload).take(JOINT_MAX);
    let length: usize = all.map(|message| MESSAGE_HEAD + message.len()).sum();
    length == payload.len() && length > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_end_where_the_payload_does() {
        let payload = [&[0, 2][..], b"ab", &[0, 0], &[0, 1], b"c"].concat();
        assert!(messages_of(&payload).eq([&b"ab"[..], b"", b"c"]));
        assert!(is_joint(&payload));
        assert!(is_joint(&[0; 2 * JOINT_MAX]) && !is_joint(&[0; 2 * JOINT_MAX + 2]));
        for cut in [&payload[..payload.len() - 1], &payload[..5], &[0, 9], &[]] {
            assert!(!is_joint(cut), "{cut:?}");
            messages_of(cut).for_each(drop);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic_a_reader(bytes: Vec<u8>) {
            let length: usize = messages_of(&bytes).map(|message| MESSAGE_HEAD + message.len()).sum();
            proptest::prop_assert!(length <= bytes.len());
        }
    }
}
