//! The one setting that ioctl refuses to root of a user namespace and rtnetlink does not.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::interface::{check, check_len};

/// `nlmsghdr`, `ifinfomsg` and one attribute of four bytes.
const REQUEST_LEN: usize = 16 + 16 + 8;
/// `nlmsghdr` and the error number in an acknowledgement.
const ANSWER_MIN: usize = 16 + 4;

/// Sets the transmit queue's length of an interface in the calling thread's network namespace.
pub(crate) fn set_transmit_queue(index: u32, packets: u32) -> io::Result<()> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers are passed.
    let fd = check(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) })?;
    // SAFETY: the descriptor was just made and belongs to nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let request = request(index, packets);
    // Without an address it goes to the kernel.
    // SAFETY: the request is readable memory of that length.
    check_len(unsafe { libc::send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) })?;
    let mut answer = [0_u8; 256];
    // The kernel answers before `send` returns, so this does not wait.
    // SAFETY: the answer is writable memory of that length.
    let len = check_len(unsafe {
        libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), libc::MSG_DONTWAIT)
    })?;
    verdict(&answer[..len])
}

fn request(index: u32, packets: u32) -> [u8; REQUEST_LEN] {
    let mut request = [0; REQUEST_LEN];
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
    request[..4].copy_from_slice(&(REQUEST_LEN as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&libc::RTM_SETLINK.to_ne_bytes());
    request[6..8].copy_from_slice(&flags.to_ne_bytes());
    request[20..24].copy_from_slice(&index.to_ne_bytes());
    request[32..34].copy_from_slice(&8_u16.to_ne_bytes());
    request[34..36].copy_from_slice(&libc::IFLA_TXQLEN.to_ne_bytes());
    request[36..40].copy_from_slice(&packets.to_ne_bytes());
    request
}

fn verdict(answer: &[u8]) -> io::Result<()> {
    if answer.len() < ANSWER_MIN || answer[4..6] != (libc::NLMSG_ERROR as u16).to_ne_bytes() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "expected an acknowledgement by rtnetlink"));
    }
    match i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]) {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_not_there_is_an_error() {
        let error = set_transmit_queue(0x7fff_fff0, 1000).unwrap_err();
        assert!(matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EPERM)), "{error}");
    }

    #[test]
    fn anything_but_an_acknowledgement_is_refused() {
        assert!(verdict(&[]).is_err());
        assert!(verdict(&[0; 36]).is_err());
        let mut answer = [0; 36];
        answer[4..6].copy_from_slice(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
        assert!(verdict(&answer).is_ok());
        answer[16..20].copy_from_slice(&(-libc::EPERM).to_ne_bytes());
        assert_eq!(verdict(&answer).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
