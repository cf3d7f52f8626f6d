//! Questions for the names of groups, and their answers (`docs/wire.md`).

use std::sync::Arc;

use foundation::bytes::Reader;
use ricochet_core::NodeId;
use ricochet_core::counters::Malformed;

/// Maximum length of a pattern in bytes.
pub(crate) const PATTERN_LENGTH_MAX: usize = 256;

const FIRST_BYTE: u8 = ricochet_core::wire::VERSION << 4;
const FORM_QUESTION: u8 = 5;
const FORM_ANSWER: u8 = 6;

/// Maximum number of datagrams of an answer.
pub(crate) const PARTS_MAX: usize = 64;
/// Maximum number of bytes of names in a datagram: those of the longest name.
pub(crate) const NAMES_MAX: usize = 1_026;

/// Asks a node for the names of groups that match a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question<'a> {
    pub(crate) from: NodeId,
    /// Number of the question, which the answer repeats.
    pub(crate) number: u32,
    /// Version of the names of which the sender has a whole answer; 0 for none.
    pub(crate) version: u64,
    pub(crate) pattern: &'a str,
}

/// A part of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer<'a> {
    pub(crate) from: NodeId,
    pub(crate) number: u32,
    pub(crate) version: u64,
    /// Number of this part, from 0.
    pub(crate) part: u8,
    /// Number of parts; 0 if the names have not changed.
    pub(crate) parts: u8,
    names: &'a [u8],
}

/// A question or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamesDatagram<'a> {
    Question(Question<'a>),
    Answer(Answer<'a>),
}

impl Question<'_> {
    pub(crate) fn to_wire(self) -> Vec<u8> {
        let mut bytes = head(FORM_QUESTION, self.from, self.number, self.version);
        bytes.extend_from_slice(self.pattern.as_bytes());
        bytes
    }
}

impl<'a> Answer<'a> {
    /// Returns the names; ends before bytes that are none.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let mut rest = Reader(self.names);
        std::iter::from_fn(move || {
            let length = rest.u16().ok()?;
            std::str::from_utf8(rest.take(length.into()).ok()?).ok()
        })
    }
}

/// Returns the datagrams of an answer with these names. Names beyond the maximum number of datagrams are left
/// out.
pub(crate) fn answers(
    from: NodeId,
    question: &Question<'_>,
    version: u64,
    names: &[Arc<str>],
) -> Vec<Vec<u8>> {
    let mut parts: Vec<Vec<u8>> = vec![Vec::new()];
    for name in names {
        let length = u16::try_from(name.len()).expect("a name has at most 1,024 bytes").to_be_bytes();
        if parts.last().is_none_or(|part| part.len() + 2 + name.len() > NAMES_MAX) {
            parts.push(Vec::new());
        }
        if let Some(part) = parts.last_mut() {
            part.extend_from_slice(&length);
            part.extend_from_slice(name.as_bytes());
        }
    }
    parts.truncate(PARTS_MAX);
    let count = if question.version == version { 0 } else { parts.len() as u8 };
    let used = if count == 0 { &parts[..1] } else { &parts[..] };
    let datagrams = used.iter().zip(0u8..).map(|(part, number)| {
        let mut bytes = head(FORM_ANSWER, from, question.number, version);
        bytes.extend_from_slice(&[number, count]);
        bytes.extend_from_slice(if count == 0 { &[] } else { part });
        bytes
    });
    datagrams.collect()
}

fn head(form: u8, from: NodeId, number: u32, version: u64) -> Vec<u8> {
    let mut bytes = vec![FIRST_BYTE, form];
    bytes.extend_from_slice(&from.0.to_be_bytes());
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(&version.to_be_bytes());
    bytes
}

impl<'a> NamesDatagram<'a> {
    /// Returns whether a datagram is a question for names or an answer, and no greeting.
    pub(crate) fn is_one(datagram: &[u8]) -> bool {
        matches!(datagram, [FIRST_BYTE, FORM_QUESTION | FORM_ANSWER, ..])
    }

    /// Reads a datagram.
    ///
    /// # Errors
    /// [`Malformed`].
    pub(crate) fn read(datagram: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(datagram);
        let (first, form) = (reader.u8()?, reader.u8()?);
        if first != FIRST_BYTE {
            return Err(Malformed::Kind);
        }
        let (from, number, version) = (NodeId(reader.u32()?), reader.u32()?, reader.u64()?);
        match form {
            FORM_QUESTION => {
                let pattern = std::str::from_utf8(reader.0).map_err(|_| Malformed::Reserved)?;
                if !(1..=PATTERN_LENGTH_MAX).contains(&pattern.len()) {
                    return Err(Malformed::TooLong);
                }
                Ok(Self::Question(Question { from, number, version, pattern }))
            }
            FORM_ANSWER => {
                let (part, parts) = (reader.u8()?, reader.u8()?);
                if usize::from(parts) > PARTS_MAX || part >= parts.max(1) {
                    return Err(Malformed::Count);
                }
                Ok(Self::Answer(Answer { from, number, version, part, parts, names: reader.0 }))
            }
            _ => Err(Malformed::Kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: NodeId = NodeId(7);

    #[test]
    fn questions_and_answers_are_read_as_they_were_written() {
        let question = Question { from: NodeId(9), number: 3, version: 5, pattern: "prices/*" };
        let bytes = question.to_wire();
        assert_eq!(bytes, b"\xb0\x05\0\0\0\x09\0\0\0\x03\0\0\0\0\0\0\0\x05prices/*");
        assert!(NamesDatagram::is_one(&bytes));
        assert_eq!(NamesDatagram::read(&bytes), Ok(NamesDatagram::Question(question)));
        let names: Vec<Arc<str>> = (0..200).map(|number| format!("prices/{number:03}").into()).collect();
        let datagrams = answers(ME, &question, 6, &names);
        assert_eq!(datagrams.len(), 3);
        let mut read = Vec::new();
        for (datagram, part) in datagrams.iter().zip(0..) {
            assert!(datagram.len() < 1_200);
            let Ok(NamesDatagram::Answer(answer)) = NamesDatagram::read(datagram) else {
                panic!("no answer")
            };
            assert_eq!((answer.from, answer.number, answer.version), (ME, 3, 6));
            assert_eq!((answer.part, answer.parts), (part, 3));
            read.extend(answer.names().map(Arc::<str>::from));
        }
        assert_eq!(read, names);
        let unchanged = answers(ME, &Question { version: 6, ..question }, 6, &names);
        let [datagram] = &unchanged[..] else { panic!("one datagram") };
        let Ok(NamesDatagram::Answer(answer)) = NamesDatagram::read(datagram) else { panic!("no answer") };
        assert_eq!((answer.parts, answer.names().count()), (0, 0));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic_a_reader(form in 4u8..8, bytes: Vec<u8>) {
            if let Ok(NamesDatagram::Answer(answer)) = NamesDatagram::read(&[&[FIRST_BYTE, form][..], &bytes].concat()) {
                assert!(answer.names().count() <= bytes.len());
            }
        }
    }
}
