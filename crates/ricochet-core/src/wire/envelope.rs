//! Envelopes: content of a message beside its payload. An envelope precedes the payload of its message, in
//! a packet whose flags say so. Of a message in several packets, it lies at the beginning of the first.

use foundation::bytes::Reader;

use crate::counters::Malformed;

/// Maximum length of content type and headers together in bytes.
pub const HEADERS_MAX: usize = 256;
/// Maximum length of a content type in bytes.
pub const CONTENT_TYPE_MAX: usize = 128;
/// Maximum length of a key in bytes.
pub const KEY_MAX: usize = 255;
/// Longest deadline in microseconds: an hour.
pub const DEADLINE_US_MAX: u32 = 3_600_000_000;
/// Length before the items: their length (2).
const HEAD: usize = 2;
/// Length of an item before its value: kind, length of the value (2).
const ITEM: usize = 3;
/// Maximum length of an envelope in bytes.
pub const ENVELOPE_MAX: usize =
    HEAD + (ITEM + 4) + (ITEM + ITEM + HEADERS_MAX) + 2 * (ITEM + 8) + (ITEM + KEY_MAX);

const DEADLINE: u8 = 1;
const CONTENT_TYPE: u8 = 2;
const HEADERS: u8 = 3;
const REQUEST: u8 = 4;
const REPLY: u8 = 5;
const KEY: u8 = 6;

/// Content of a message beside its payload, borrowed.
///
/// ```
/// use ricochet_core::wire::Envelope;
/// let envelope = Envelope { content_type: Some("text/plain"), ..Envelope::default() };
/// let mut message = Vec::new();
/// envelope.write(&mut message);
/// message.extend_from_slice(b"187.21");
/// assert_eq!(Envelope::read(&message), Ok((envelope, &b"187.21"[..])));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// Age at which the message is worthless, in microseconds after the time of its packet.
    pub deadline_us: Option<u32>,
    /// Type of the payload, such as `application/json`.
    pub content_type: Option<&'a str>,
    /// Bytes that the application gives to the message; absent if empty.
    pub headers: &'a [u8],
    /// Number that replies to this request repeat.
    pub request: Option<u64>,
    /// Number of the request that this message replies to.
    pub reply: Option<u64>,
    /// Key of which this is the value, 1 to 255 bytes.
    pub key: Option<&'a [u8]>,
}

impl<'a> Envelope<'a> {
    /// Returns whether there is nothing in it, so that the message needs none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns its length on the wire in bytes.
    pub fn wire_len(&self) -> usize {
        let item = |length: Option<usize>| length.map_or(0, |length| ITEM + length);
        let headers = (!self.headers.is_empty()).then_some(self.headers.len());
        let number = |number: Option<u64>| item(number.map(|_| 8));
        HEAD + item(self.deadline_us.map(|_| 4))
            + item(self.content_type.map(str::len))
            + item(headers)
            + number(self.request)
            + number(self.reply)
            + item(self.key.map(<[u8]>::len))
    }

    /// Returns the length of content type and headers together.
    pub fn headers_len(&self) -> usize {
        self.content_type.map_or(0, str::len) + self.headers.len()
    }

    /// Appends the envelope to `to`.
    ///
    /// # Panics
    /// If content type and headers are longer than [`HEADERS_MAX`].
    pub fn write(&self, to: &mut Vec<u8>) {
        assert!(self.headers_len() <= HEADERS_MAX, "the sender has checked the length");
        let length = |length: usize| u16::try_from(length).expect("an envelope is short").to_be_bytes();
        to.extend_from_slice(&length(self.wire_len() - HEAD));
        let mut put = |kind: u8, value: &[u8]| {
            to.push(kind);
            to.extend_from_slice(&length(value.len()));
            to.extend_from_slice(value);
        };
        if let Some(deadline_us) = self.deadline_us {
            put(DEADLINE, &deadline_us.to_be_bytes());
        }
        if let Some(content_type) = self.content_type {
            put(CONTENT_TYPE, content_type.as_bytes());
        }
        if !self.headers.is_empty() {
            put(HEADERS, self.headers);
        }
        for (kind, number) in [(REQUEST, self.request), (REPLY, self.reply)] {
            number.into_iter().for_each(|number| put(kind, &number.to_be_bytes()));
        }
        if let Some(key) = self.key {
            put(KEY, key);
        }
    }

    /// Reads the envelope at the beginning of a message; returns it and the payload.
    ///
    /// # Errors
    /// [`Malformed`] if an item is unknown, repeated, out of order, or does not fit.
    pub fn read(message: &'a [u8]) -> Result<(Self, &'a [u8]), Malformed> {
        let mut reader = Reader(message);
        let length = usize::from(reader.u16()?);
        let mut items = Reader(reader.take(length)?);
        let mut envelope = Self::default();
        let mut last = 0;
        while !items.0.is_empty() {
            let (kind, length) = (items.u8()?, items.u16()?);
            let value = items.take(length.into())?;
            if kind <= last {
                return Err(Malformed::Repeated);
            }
            last = kind;
            match kind {
                DEADLINE => {
                    let value = value.try_into().map_err(|_| Malformed::TooShort)?;
                    envelope.deadline_us = Some(u32::from_be_bytes(value));
                }
                CONTENT_TYPE => {
                    let text = std::str::from_utf8(value).map_err(|_| Malformed::Reserved)?;
                    envelope.content_type = Some(text);
                }
                HEADERS if value.is_empty() => return Err(Malformed::TooShort),
                HEADERS => envelope.headers = value,
                REQUEST => envelope.request = Some(number(value)?),
                REPLY => envelope.reply = Some(number(value)?),
                KEY if !(1..=KEY_MAX).contains(&value.len()) => return Err(Malformed::Count),
                KEY => envelope.key = Some(value),
                _ => return Err(Malformed::Kind),
            }
        }
        if envelope.headers_len() > HEADERS_MAX {
            return Err(Malformed::TooLong);
        }
        Ok((envelope, reader.0))
    }

    /// Lets the deadline of the message that begins with this envelope count from an earlier time.
    pub(crate) fn postpone(message: &mut [u8], by_us: u64) {
        if let Some([_, _, DEADLINE, _, _, deadline_us @ ..]) = message.first_chunk_mut::<9>() {
            let by_us = u32::try_from(by_us).unwrap_or(u32::MAX);
            *deadline_us = u32::from_be_bytes(*deadline_us).saturating_add(by_us).to_be_bytes();
        }
    }
}

/// Reads the number of a request.
fn number(value: &[u8]) -> Result<u64, Malformed> {
    value.try_into().map(u64::from_be_bytes).map_err(|_| Malformed::TooShort)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(envelope: &Envelope<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        envelope.write(&mut bytes);
        bytes
    }

    /// The bytes that `docs/wire.md` promises.
    #[test]
    fn an_envelope_is_these_bytes() {
        let envelope = Envelope {
            deadline_us: Some(0x0102_0304),
            content_type: Some("a/b"),
            headers: b"xyz",
            ..Envelope::default()
        };
        let expected = b"\0\x13\x01\0\x04\x01\x02\x03\x04\x02\0\x03a/b\x03\0\x03xyz";
        assert_eq!(written(&envelope), expected);
        assert_eq!(envelope.wire_len(), expected.len());
        assert_eq!(Envelope::read(expected), Ok((envelope, &b""[..])));
        assert_eq!(Envelope::read(b"\0\0payload"), Ok((Envelope::default(), &b"payload"[..])));
        let full = vec![7; HEADERS_MAX];
        let numbers = Envelope { request: Some(1), reply: Some(2), ..Envelope::default() };
        let expected = b"\0\x16\x04\0\x08\0\0\0\0\0\0\0\x01\x05\0\x08\0\0\0\0\0\0\0\x02";
        assert_eq!(written(&numbers), expected);
        let key = Some(&[7; KEY_MAX][..]);
        let longest =
            Envelope { deadline_us: Some(1), content_type: Some(""), headers: &full, key, ..numbers };
        assert_eq!(written(&longest).len(), ENVELOPE_MAX);
    }

    #[test]
    fn a_wrong_envelope_is_refused_by_reason() {
        for (bytes, reason) in [
            (&b"\0"[..], Malformed::TooShort),
            (b"\0\x05\x01\0\x04\0", Malformed::TooShort),
            (b"\0\x06\x01\0\x03\0\0\0", Malformed::TooShort),
            (b"\0\x03\x03\0\0", Malformed::TooShort),
            (b"\0\x04\x02\0\x01\xff", Malformed::Reserved),
            (b"\0\x04\x09\0\x01x", Malformed::Kind),
            (b"\0\x04\x04\0\x01x", Malformed::TooShort),
            (b"\0\x03\x06\0\0", Malformed::Count),
            (b"\0\x08\x03\0\x01x\x03\0\x01x", Malformed::Repeated),
            (b"\0\x08\x03\0\x01x\x02\0\x01x", Malformed::Repeated),
        ] {
            assert_eq!(Envelope::read(bytes), Err(reason), "{bytes:?}");
        }
        let long = [&b"\x01\x04\x03\x01\x01"[..], &[0; 257]].concat();
        assert_eq!(Envelope::read(&long), Err(Malformed::TooLong));
    }

    #[test]
    fn a_deadline_counts_from_an_earlier_time_and_never_wraps() {
        let mut bytes = written(&Envelope { deadline_us: Some(5), ..Envelope::default() });
        Envelope::postpone(&mut bytes, 10);
        assert_eq!(Envelope::read(&bytes).unwrap().0.deadline_us, Some(15));
        Envelope::postpone(&mut bytes, u64::MAX);
        assert_eq!(Envelope::read(&bytes).unwrap().0.deadline_us, Some(u32::MAX));
        let mut other = written(&Envelope { headers: b"123456789", ..Envelope::default() });
        Envelope::postpone(&mut other, 10);
        assert_eq!(Envelope::read(&other).unwrap().0.headers, b"123456789");
    }

    proptest::proptest! {
        #[test]
        fn an_envelope_survives_the_wire(
            (deadline_us, request, reply) in proptest::prelude::any::<(Option<u32>, Option<u64>, Option<u64>)>(),
            content_type in "[a-z/]{0,100}", has_type in proptest::bool::ANY,
            headers in proptest::collection::vec(0u8.., 0..150), payload in proptest::collection::vec(0u8.., 0..20),
        ) {
            let content_type = has_type.then_some(&*content_type);
            let envelope = Envelope { deadline_us, content_type, headers: &headers, request, reply, key: None };
            let bytes = [written(&envelope), payload.clone()].concat();
            assert_eq!(Envelope::read(&bytes), Ok((envelope, &payload[..])));
        }

        #[test]
        fn no_bytes_panic_a_reader(bytes in proptest::collection::vec(0u8..20, 0..40)) {
            let _ = Envelope::read(&bytes);
        }
    }
}
