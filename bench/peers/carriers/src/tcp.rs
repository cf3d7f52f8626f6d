//! Relays between TCP connections.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;

use anyhow::ensure;
use nix::fcntl::{FcntlArg, SpliceFFlags, fcntl};

use crate::CHUNK_BYTES;

/// Bytes of the header of a frame: number of the stream, length.
const HEADER_BYTES: usize = 8;

/// Copies until the end; returns the number of bytes.
pub(crate) fn copy(from: &mut TcpStream, to: &mut TcpStream) -> anyhow::Result<u64> {
    let (mut bytes, mut chunk) = (0, vec![0; CHUNK_BYTES]);
    loop {
        let length = from.read(&mut chunk)?;
        if length == 0 {
            return Ok(bytes);
        }
        to.write_all(&chunk[..length])?;
        bytes += length as u64;
    }
}

/// As [`copy`], with a header before each chunk.
pub(crate) fn frame(from: &mut TcpStream, to: &mut TcpStream) -> anyhow::Result<u64> {
    let (mut bytes, mut chunk) = (0, vec![0; HEADER_BYTES + CHUNK_BYTES]);
    chunk[..4].copy_from_slice(&1_u32.to_be_bytes());
    loop {
        let length = from.read(&mut chunk[HEADER_BYTES..])?;
        if length == 0 {
            return Ok(bytes);
        }
        chunk[4..HEADER_BYTES].copy_from_slice(&u32::try_from(length)?.to_be_bytes());
        to.write_all(&chunk[..HEADER_BYTES + length])?;
        bytes += length as u64;
    }
}

/// Passes on the content of frames until the end; returns the number of its bytes.
pub(crate) fn unframe(from: &mut TcpStream, to: &mut TcpStream) -> anyhow::Result<u64> {
    let (mut bytes, mut chunk) = (0, vec![0; HEADER_BYTES + CHUNK_BYTES]);
    let (mut filled, mut is_open) = (0, true);
    while is_open || filled > 0 {
        if is_open && filled < HEADER_BYTES + CHUNK_BYTES {
            let length = from.read(&mut chunk[filled..])?;
            (filled, is_open) = (filled + length, length > 0);
        }
        let mut at = 0;
        while filled - at >= HEADER_BYTES {
            let mut length = [0; 4];
            length.copy_from_slice(&chunk[at + 4..at + HEADER_BYTES]);
            let length = u32::from_be_bytes(length) as usize;
            ensure!(length <= CHUNK_BYTES, "expected at most {CHUNK_BYTES} bytes in a frame, saw {length}");
            if filled - at < HEADER_BYTES + length {
                break;
            }
            to.write_all(&chunk[at + HEADER_BYTES..at + HEADER_BYTES + length])?;
            (at, bytes) = (at + HEADER_BYTES + length, bytes + length as u64);
        }
        ensure!(is_open || at > 0 || filled == 0, "expected a whole frame at the end, saw a part of {filled} bytes");
        chunk.copy_within(at..filled, 0);
        filled -= at;
    }
    Ok(bytes)
}

/// Moves bytes by a pipe until the end, without copying them; returns their number.
pub(crate) fn splice(from: &TcpStream, to: &TcpStream) -> anyhow::Result<u64> {
    let (read, write) = nix::unistd::pipe()?;
    // A shorter pipe than asked for works as well.
    let _ = fcntl(&write, FcntlArg::F_SETPIPE_SZ(CHUNK_BYTES as i32));
    let mut bytes = 0;
    loop {
        let length = moved(from, &write, CHUNK_BYTES)?;
        if length == 0 {
            return Ok(bytes);
        }
        let mut left = length;
        while left > 0 {
            left -= moved(&read, to, left)?;
        }
        bytes += length as u64;
    }
}

fn moved(from: impl AsFd, to: impl AsFd, bytes: usize) -> anyhow::Result<usize> {
    let flags = SpliceFFlags::SPLICE_F_MOVE | SpliceFFlags::SPLICE_F_MORE;
    Ok(nix::fcntl::splice(from, None, to, None, bytes, flags)?)
}
