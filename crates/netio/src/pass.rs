//! Open descriptors that one process passes to another, beside the bytes of a Unix socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::cmsg_space;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

/// Maximum number of descriptors that arrive with one call.
const PASSED_MAX: usize = 4;

/// Sends all bytes, and with the first of them copies of the descriptors.
///
/// # Errors
/// The kernel's error; a part may have been sent.
pub fn send(stream: &UnixStream, mut bytes: &[u8], passed: &[BorrowedFd<'_>]) -> io::Result<()> {
    let raw: Vec<RawFd> = passed.iter().map(std::os::fd::AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let mut messages: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
    while !bytes.is_empty() {
        let pieces = [IoSlice::new(bytes)];
        let sent = sendmsg::<()>(stream.as_raw_fd(), &pieces, messages, MsgFlags::MSG_NOSIGNAL, None)?;
        (bytes, messages) = (&bytes[sent..], &[]);
    }
    Ok(())
}

/// Receives bytes, and appends the descriptors that come with them to `passed`. Returns the number of bytes;
/// 0 at the end of the stream. Without `waits`, the call does not block.
///
/// # Errors
/// The kernel's error: `WouldBlock` if nothing waits.
pub fn receive(
    stream: &UnixStream,
    buffer: &mut [u8],
    passed: &mut Vec<OwnedFd>,
    waits: bool,
) -> io::Result<usize> {
    let mut space = cmsg_space!([RawFd; PASSED_MAX]);
    let mut pieces = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC | if waits { MsgFlags::empty() } else { MsgFlags::MSG_DONTWAIT };
    let received = recvmsg::<()>(stream.as_raw_fd(), &mut pieces, Some(&mut space), flags)?;
    for message in received.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = message {
            // SAFETY: the kernel has just opened these descriptors for this process, and nothing else owns
            // them.
            passed.extend(raw.into_iter().map(|raw| unsafe { OwnedFd::from_raw_fd(raw) }));
        }
    }
    Ok(received.bytes)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn a_descriptor_arrives_with_its_bytes_and_is_the_same_socket() {
        let (one, other) = UnixStream::pair().unwrap();
        let (mut kept, passed) = UnixStream::pair().unwrap();
        let (mut buffer, mut arrived) = ([0; 64], Vec::new());
        let nothing = receive(&other, &mut buffer, &mut arrived, false).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        send(&one, b"first", &[]).unwrap();
        assert_eq!(receive(&other, &mut buffer, &mut arrived, true).unwrap(), 5);
        assert!(arrived.is_empty());
        send(&one, b"take it", &[passed.as_fd()]).unwrap();
        drop((one, passed));
        assert_eq!(receive(&other, &mut buffer, &mut arrived, true).unwrap(), 7);
        assert_eq!(&buffer[..7], b"take it");
        kept.write_all(b"hello").unwrap();
        let mut taken = UnixStream::from(arrived.pop().unwrap());
        taken.read_exact(&mut buffer[..5]).unwrap();
        assert_eq!(&buffer[..5], b"hello");
        assert_eq!(receive(&other, &mut buffer, &mut arrived, true).unwrap(), 0, "the end");
    }
}
