//! One half of a repair that was cut in two.

use super::header::BodyKind;
use crate::counters::Rejected;
use foundation::bytes::Reader;

/// Length of the header in bytes: kind, half, serial number (4).
const HALF_HEADER: usize = 6;

/// One half of a repair that was too long for one datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Half<'a> {
    /// Whether it is the second half.
    pub second: bool,
    /// Number that both halves carry.
    pub serial: u32,
    /// Part of the repair's body.
    pub bytes: &'a [u8],
}

impl<'a> Half<'a> {
    /// Length of a half's own header in bytes.
    pub const HEADER: usize = HALF_HEADER;

    /// Reads an authenticated body of kind [`BodyKind::Half`].
    ///
    /// # Errors
    /// [`Rejected::Malformed`].
    pub fn read(body: &'a [u8]) -> Result<Self, Rejected> {
        let mut reader = Reader(body);
        let [_kind, which] = reader.array()?;
        let serial = reader.u32()?;
        let bytes = reader.rest();
        if which > 1 || bytes.is_empty() {
            return Err(Rejected::Malformed);
        }
        Ok(Self { second: which == 1, serial, bytes })
    }
}

/// Writes the header of a half into the first [`Half::HEADER`] bytes of `to`.
pub fn write_half_header(to: &mut [u8], second: bool, serial: u32) {
    to[0] = BodyKind::Half.to_wire();
    to[1] = u8::from(second);
    to[2..HALF_HEADER].copy_from_slice(&serial.to_be_bytes());
}
