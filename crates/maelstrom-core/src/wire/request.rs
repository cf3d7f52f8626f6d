//! The request for packets that the code does not bring back in time.

use foundation::Seq;
use foundation::bytes::{Reader, Writer};

use super::header::BodyKind;
use crate::counters::Rejected;

/// Maximum number of packets that one request asks for. A batch that needs more is an overflow.
pub const DEFICIT_MAX: u8 = 64;
/// Maximum number of consecutive places that one request covers.
pub const REQUEST_SPAN: u64 = 1_024;

const HEADER: usize = 6;
const BITMAP_MAX: usize = REQUEST_SPAN as usize / 8;

/// The body of a request: places that are missing, and how many of them suffice to solve the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Number of packets that suffice, 1 to [`DEFICIT_MAX`].
    pub deficit: u8,
    /// Place of the first bit.
    oldest: Seq,
    /// Places from `oldest` on, one bit each.
    bitmap: [u8; BITMAP_MAX],
    /// Bytes of the bitmap that travel.
    len: usize,
}

impl Request {
    /// Creates a request that covers the places from `oldest` on and names none of them yet.
    pub fn new(oldest: Seq) -> Self {
        Self { deficit: 0, oldest, bitmap: [0; BITMAP_MAX], len: 0 }
    }

    /// Names a place. Returns false if it lies outside of the places that the request covers.
    pub fn add(&mut self, seq: Seq) -> bool {
        let Some(at) = seq.0.checked_sub(self.oldest.0).filter(|&at| at < REQUEST_SPAN) else { return false };
        let byte = at as usize / 8;
        self.bitmap[byte] |= 0x80 >> (at % 8);
        self.len = self.len.max(byte + 1);
        true
    }

    /// The places named, in order of the stream.
    pub fn places(&self) -> impl Iterator<Item = Seq> + '_ {
        let bits =
            self.bitmap[..self.len].iter().flat_map(|&byte| (0..8).map(move |bit| byte << bit & 0x80 != 0));
        bits.zip(0..).filter(|&(is_named, _)| is_named).map(|(_, at)| self.oldest.plus(at))
    }

    /// Length on the wire in bytes.
    pub fn wire_len(&self) -> usize {
        HEADER + self.len
    }

    /// Writes the body into `to`, which is [`Request::wire_len`] bytes.
    ///
    /// # Panics
    /// If `to` is too short.
    pub fn write(&self, to: &mut [u8]) {
        let mut writer = Writer::new(to);
        writer.put(&[BodyKind::Request.to_wire(), self.deficit]);
        writer.put(&self.oldest.to_wire().to_be_bytes());
        writer.put(&self.bitmap[..self.len]);
    }

    /// Reads an authenticated body. Places are interpreted near `newest`.
    ///
    /// # Errors
    /// [`Rejected::Malformed`] for a wrong length, or a deficit of 0, above [`DEFICIT_MAX`], or above the
    /// number of places.
    pub fn read(body: &[u8], newest: Seq) -> Result<Self, Rejected> {
        let mut reader = Reader(body);
        let [_kind, deficit] = reader.array()?;
        let oldest = Seq::from_wire(reader.u32()?, newest);
        let rest = reader.rest();
        let mut request = Self { deficit, len: rest.len(), ..Self::new(oldest) };
        request.bitmap.get_mut(..rest.len()).ok_or(Rejected::Malformed)?.copy_from_slice(rest);
        let named: u32 = rest.iter().map(|byte| byte.count_ones()).sum();
        if !(1..=DEFICIT_MAX).contains(&deficit) || u32::from(deficit) > named || rest.last() == Some(&0) {
            return Err(Rejected::Malformed);
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_the_wire() {
        let places = [0, 1, 7, 8, 300, 1_023].map(|at| Seq((1 << 33) + at));
        let mut request = Request { deficit: 4, ..Request::new(places[0]) };
        assert!(places.iter().all(|&seq| request.add(seq)));
        assert!(!request.add(places[0].plus(REQUEST_SPAN)) && !request.add(places[0].minus(1)));
        let mut body = vec![0; request.wire_len()];
        request.write(&mut body);
        let read = Request::read(&body, Seq((1 << 33) + 5_000)).unwrap();
        assert_eq!(read, request);
        assert_eq!(read.places().collect::<Vec<_>>(), places);
        for cut in 0..HEADER {
            assert_eq!(Request::read(&body[..cut], Seq(0)), Err(Rejected::Malformed));
        }
        for (at, wrong) in [(1, 0), (1, 7), (1, 65), (body.len() - 1, 0)] {
            let mut body = body.clone();
            body[at] = wrong;
            assert_eq!(Request::read(&body, Seq(0)), Err(Rejected::Malformed), "byte {at} = {wrong}");
        }
        body.push(1);
        assert_eq!(Request::read(&body, Seq(0)), Err(Rejected::Malformed), "too long");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic_the_reader(body: Vec<u8>, newest: u64) {
            if let Ok(request) = Request::read(&body, Seq(newest)) {
                assert!(request.places().count() >= usize::from(request.deficit));
            }
        }
    }
}
