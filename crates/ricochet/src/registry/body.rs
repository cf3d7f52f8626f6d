//! The body of an HTTP response, decoded piece by piece (RFC 9112 §6 and §7.1).

use super::failure::Failure;

/// Longest line that gives the length of a chunk, or of its trailer, in bytes.
const CHUNK_LINE_MAX: usize = 4_096;

/// How the end of a body is recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// This many bytes are left.
    Length(u64),
    /// Chunks, each with its length.
    Chunked,
    /// The connection ends.
    UntilClose,
}

/// Position within chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunk {
    /// The line with the length comes next.
    Size,
    /// This many bytes of the chunk are left.
    Data(u64),
    /// The empty line after a chunk comes next.
    DataEnd,
    /// Lines after the last chunk.
    Trailer,
}

/// A body that arrives.
#[derive(Debug)]
pub(super) struct Body {
    framing: Framing,
    chunk: Chunk,
    /// Bytes that are not decoded.
    raw: Vec<u8>,
    /// Decoded bytes that were not taken.
    text: Vec<u8>,
    /// Number of these in which no end of a line was found.
    searched: usize,
    /// Maximum number of decoded bytes that may wait.
    text_max: usize,
    has_ended: bool,
}

impl Body {
    pub(super) fn new(framing: Framing, text_max: usize) -> Self {
        let (raw, text) = (Vec::new(), Vec::new());
        let has_ended = framing == Framing::Length(0);
        Self { framing, chunk: Chunk::Size, raw, text, searched: 0, text_max, has_ended }
    }

    /// Takes bytes of the connection.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if self.has_ended {
            return Ok(());
        }
        match self.framing {
            Framing::UntilClose => self.text.extend_from_slice(bytes),
            Framing::Length(left) => {
                let taken = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                self.text.extend_from_slice(&bytes[..taken]);
                self.framing = Framing::Length(left - taken as u64);
                self.has_ended = left == taken as u64;
            }
            Framing::Chunked => {
                self.raw.extend_from_slice(bytes);
                self.decode_chunks()?;
            }
        }
        if self.text.len() > self.text_max {
            let (seen, max) = (self.text.len(), self.text_max);
            return Err(Failure::answer(format!("expected at most {max} bytes at once, saw {seen}")));
        }
        Ok(())
    }

    /// Notes that the connection has ended.
    pub(super) fn on_close(&mut self) -> Result<(), Failure> {
        if !self.has_ended && self.framing != Framing::UntilClose {
            return Err(Failure::answer("expected the rest of the answer, saw the end of the connection"));
        }
        self.has_ended = true;
        Ok(())
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns the next line without its end, if a whole one is there. The last line may lack an end.
    pub(super) fn take_line(&mut self) -> Option<Vec<u8>> {
        let end = self.text[self.searched..].iter().position(|&byte| byte == b'\n');
        let Some(end) = end.map(|end| self.searched + end) else {
            self.searched = self.text.len();
            let is_last = self.has_ended && !self.text.is_empty();
            return is_last.then(|| self.take_all());
        };
        let rest = self.text.split_off(end + 1);
        let mut line = std::mem::replace(&mut self.text, rest);
        self.searched = 0;
        line.pop();
        Some(line)
    }

    /// Returns everything that has been decoded.
    pub(super) fn take_all(&mut self) -> Vec<u8> {
        self.searched = 0;
        std::mem::take(&mut self.text)
    }

    fn decode_chunks(&mut self) -> Result<(), Failure> {
        let mut at = 0;
        loop {
            if let Chunk::Data(left) = self.chunk {
                let here = self.raw.len() - at;
                let taken = here.min(usize::try_from(left).unwrap_or(usize::MAX));
                self.text.extend_from_slice(&self.raw[at..at + taken]);
                at += taken;
                let left = left - taken as u64;
                self.chunk = if left == 0 { Chunk::DataEnd } else { Chunk::Data(left) };
                if left > 0 {
                    break;
                }
                continue;
            }
            let Some(line) = line_at(&self.raw, at)? else { break };
            at += line.len() + 1;
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            self.chunk = match self.chunk {
                Chunk::Size => match chunk_size(line)? {
                    0 => Chunk::Trailer,
                    size => Chunk::Data(size),
                },
                Chunk::DataEnd if line.is_empty() => Chunk::Size,
                Chunk::DataEnd => return Err(Failure::answer("expected the end of a chunk, saw more bytes")),
                Chunk::Trailer if line.is_empty() => {
                    self.has_ended = true;
                    break;
                }
                other => other,
            };
        }
        self.raw.drain(..at);
        Ok(())
    }
}

/// Returns the line at a position without its line feed, if a whole one is there.
fn line_at(raw: &[u8], at: usize) -> Result<Option<&[u8]>, Failure> {
    let rest = &raw[at..];
    match rest.iter().position(|&byte| byte == b'\n') {
        Some(end) => Ok(Some(&rest[..end])),
        None if rest.len() > CHUNK_LINE_MAX => {
            Err(Failure::answer("expected the length of a chunk, saw a long line"))
        }
        None => Ok(None),
    }
}

/// Parses the length of a chunk. Extensions after a semicolon are ignored.
fn chunk_size(line: &[u8]) -> Result<u64, Failure> {
    let digits = line.split(|&byte| byte == b';').next().unwrap_or_default();
    let text = std::str::from_utf8(digits).unwrap_or_default().trim_ascii();
    // `from_str_radix` would accept a sign.
    let is_hex = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let size = u64::from_str_radix(text, 16).ok().filter(|_| is_hex);
    size.ok_or_else(|| {
        Failure::answer("expected the length of a chunk in hexadecimal digits, saw another text")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1 << 20;

    fn lines(body: &mut Body) -> Vec<String> {
        std::iter::from_fn(|| body.take_line()).map(|line| String::from_utf8(line).unwrap()).collect()
    }

    #[test]
    fn chunks_are_decoded_wherever_the_network_cuts_them() {
        let wire = b"7\r\none\ntwo\r\n1;name=value\r\n\n\r\nA\r\nthree\nfour\r\n0\r\nTrailer: x\r\n\r\nmore";
        for step in 1..wire.len() {
            let mut body = Body::new(Framing::Chunked, MAX);
            let mut seen = Vec::new();
            for piece in wire.chunks(step) {
                body.push(piece).unwrap();
                seen.extend(lines(&mut body));
            }
            assert_eq!(seen, ["one", "two", "three", "four"], "pieces of {step}");
            assert!(body.has_ended());
        }
    }

    #[test]
    fn a_body_of_known_length_ends_with_it() {
        let mut body = Body::new(Framing::Length(5), MAX);
        body.push(b"ab").unwrap();
        assert!(!body.has_ended());
        assert!(body.on_close().is_err());
        body.push(b"cdefg").unwrap();
        assert_eq!((body.has_ended(), body.take_all()), (true, b"abcde".to_vec()));
        assert!(Body::new(Framing::Length(0), MAX).has_ended());
    }

    #[test]
    fn a_body_without_a_length_ends_with_the_connection() {
        let mut body = Body::new(Framing::UntilClose, MAX);
        body.push(b"one\ntw").unwrap();
        assert_eq!(lines(&mut body), ["one"]);
        body.push(b"o").unwrap();
        body.on_close().unwrap();
        assert_eq!(lines(&mut body), ["two"]);
    }

    #[test]
    fn chunks_without_a_length_and_endless_answers_are_refused() {
        for wrong in ["-1\r\n", "x\r\n", "\r\n", "+3\r\nabc", "1ffffffffffffffff\r\n", "3\r\nabcd\r\n"] {
            let mut body = Body::new(Framing::Chunked, MAX);
            assert!(body.push(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
        assert!(Body::new(Framing::Chunked, MAX).push(&[b'1'; 5_000]).is_err());
        assert!(Body::new(Framing::UntilClose, 10).push(&[b'1'; 11]).is_err());
        // A length is no reason to reserve memory.
        let mut body = Body::new(Framing::Chunked, MAX);
        body.push(b"7fffffffffffffff\r\nabc").unwrap();
        assert_eq!(body.take_all(), b"abc");
    }

    #[test]
    fn any_bytes_are_decoded_or_refused() {
        let mut random = testkit::Random(3);
        for _ in 0..2_000 {
            let mut body = Body::new(Framing::Chunked, 64);
            let length = random.index(200);
            let wire: Vec<u8> = (0..length).map(|_| b"0123456789abcdef\r\n;x "[random.index(21)]).collect();
            for piece in wire.chunks(1 + random.index(16)) {
                if body.push(piece).is_err() {
                    break;
                }
                while body.take_line().is_some() {}
            }
        }
    }
}
