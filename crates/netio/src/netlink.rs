//! Requests that ioctl cannot serve: setting a transmit queue as root of a user namespace, and describing a
//! link.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::interface::{check, check_len};

/// `nlmsghdr`: length, kind, flags, sequence, port.
const HEADER: usize = 16;
/// `ifinfomsg`: family, type, index, flags, mask.
const LINK: usize = 16;
/// `nlmsghdr` and the error number in an acknowledgement.
const ANSWER_MIN: usize = HEADER + 4;
/// Maximum size of the description of one link.
const ANSWER_MAX: usize = 1 << 15;
/// Maximum number of datagrams in one list: those of some millions of routes.
const DATAGRAMS_MAX: usize = 1 << 16;
/// Kinds of messages: the end of a list, and an acknowledgement.
const DONE: u16 = libc::NLMSG_DONE as u16;
const ERROR: u16 = libc::NLMSG_ERROR as u16;

/// Sets the length of an interface's transmit queue in the calling thread's network namespace.
pub(crate) fn set_transmit_queue(index: u32, packets: u32) -> io::Result<()> {
    let mut attribute = [0; 8];
    attribute[..2].copy_from_slice(&8_u16.to_ne_bytes());
    attribute[2..4].copy_from_slice(&libc::IFLA_TXQLEN.to_ne_bytes());
    attribute[4..].copy_from_slice(&packets.to_ne_bytes());
    verdict(&transact(&request(libc::RTM_SETLINK, libc::NLM_F_ACK, index, &attribute))?)
}

/// Returns the flags and attributes of an interface in the calling thread's network namespace. `/sys` would
/// describe the namespace in which it was mounted.
pub(crate) fn link(index: u32) -> io::Result<(u32, Vec<u8>)> {
    let answer = transact(&request(libc::RTM_GETLINK, 0, index, &[]))?;
    if kind(&answer) != Some(libc::RTM_NEWLINK) {
        verdict(&answer)?;
    }
    let flags = answer.get(HEADER + 8..HEADER + 12).and_then(|bytes| bytes.try_into().ok());
    let attributes = answer.get(HEADER + LINK..);
    let (Some(flags), Some(attributes)) = (flags, attributes) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "expected a link description from rtnetlink, saw a shorter answer",
        ));
    };
    Ok((u32::from_ne_bytes(flags), attributes.to_vec()))
}

/// Returns whether an interface has this filter of clsact, in the calling thread's network namespace.
pub(crate) fn has_filter(index: u32, is_ingress: bool, priority: u16, handle: u32) -> io::Result<bool> {
    /// `TC_H_MAKE(TC_H_CLSACT, …)` with `TC_H_MIN_INGRESS` and `TC_H_MIN_EGRESS`.
    const PARENTS: [u32; 2] = [0xffff_fff3, 0xffff_fff2];
    let parent = PARENTS[usize::from(is_ingress)];
    let info = u32::from(priority) << 16 | u32::from((libc::ETH_P_ALL as u16).to_be());
    // `tcmsg` is longer than `ifinfomsg` by four bytes and has its index at the same place.
    let mut request = request(libc::RTM_GETTFILTER, 0, index, &[0; 4]);
    for (at, value) in [(HEADER + 8, handle), (HEADER + 12, parent), (HEADER + 16, info)] {
        request[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    let answer = transact(&request)?;
    if kind(&answer) == Some(libc::RTM_NEWTFILTER) {
        return Ok(true);
    }
    match verdict(&answer) {
        // The kernel knows no such filter, or no such queueing discipline.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)) => Ok(false),
        Err(error) => Err(error),
        Ok(()) => Ok(true),
    }
}

/// Iterates over the attributes in these bytes, by kind.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let [len, _, kind, _] = [0, 1, 2, 3].map(|at| bytes.get(at..at + 2));
        let (len, kind) = (usize::from(word(len)?), word(kind)?);
        let data = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        // the upper two bits are flags
        Some((kind & 0x3fff, data))
    })
}

/// A socket for requests, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Requests(OwnedFd);

impl Requests {
    pub(crate) fn open() -> io::Result<Self> {
        open().map(Self)
    }

    /// Sends a request whose header, after that of netlink, and attributes are `body`, and returns the
    /// kernel's verdict.
    pub(crate) fn command(&self, kind: u16, flags: libc::c_int, body: &[u8]) -> io::Result<()> {
        let mut request = vec![0; HEADER];
        request.extend_from_slice(body);
        let (len, flags) = (request.len() as u32, (libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags) as u16);
        request[..4].copy_from_slice(&len.to_ne_bytes());
        request[4..6].copy_from_slice(&kind.to_ne_bytes());
        request[6..8].copy_from_slice(&flags.to_ne_bytes());
        verdict(&ask(&self.0, &request)?)
    }

    /// Sends such a request for a list, and passes each message of the answer to `each`: its kind, and what
    /// follows the header of netlink. The kernel lists only what fits to the request's header, but before
    /// Linux 4.20 everything.
    pub(crate) fn dump(&self, kind: u16, body: &[u8], each: &mut impl FnMut(u16, &[u8])) -> io::Result<()> {
        let on: libc::c_int = 1;
        let (on_at, on_len) = (std::ptr::from_ref(&on).cast(), size_of_val(&on) as libc::socklen_t);
        // An older kernel knows no such option.
        // SAFETY: the value is readable memory of that length.
        unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                libc::SOL_NETLINK,
                libc::NETLINK_GET_STRICT_CHK,
                on_at,
                on_len,
            )
        };
        let mut request = vec![0; HEADER];
        request.extend_from_slice(body);
        let (len, flags) = (request.len() as u32, (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16);
        request[..4].copy_from_slice(&len.to_ne_bytes());
        request[4..6].copy_from_slice(&kind.to_ne_bytes());
        request[6..8].copy_from_slice(&flags.to_ne_bytes());
        let mut answer = ask(&self.0, &request)?;
        for _ in 0..DATAGRAMS_MAX {
            if deliver(&answer, each)? {
                return Ok(());
            }
            answer = receive(&self.0)?;
        }
        Err(io::Error::other("expected an end of the kernel's list, saw none"))
    }
}

/// Passes the messages of a datagram to `each`; true if the list ends in it.
fn deliver(mut datagram: &[u8], each: &mut impl FnMut(u16, &[u8])) -> io::Result<bool> {
    while let Some(len) = datagram.first_chunk().map(|len| u32::from_ne_bytes(*len) as usize) {
        let Some(message) = datagram.get(..len).filter(|message| message.len() >= HEADER) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "expected a message from rtnetlink, saw a part of one",
            ));
        };
        match kind(message) {
            Some(DONE) => return Ok(true),
            Some(ERROR) => return verdict(message).map(|()| true),
            Some(kind) => each(kind, &message[HEADER..]),
            None => {}
        }
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or(&[]);
    }
    Ok(false)
}

fn request(kind: u16, flags: libc::c_int, index: u32, attributes: &[u8]) -> Vec<u8> {
    let mut request = vec![0; HEADER + LINK];
    request.extend_from_slice(attributes);
    let (len, flags) = (request.len() as u32, (libc::NLM_F_REQUEST | flags) as u16);
    request[..4].copy_from_slice(&len.to_ne_bytes());
    request[4..6].copy_from_slice(&kind.to_ne_bytes());
    request[6..8].copy_from_slice(&flags.to_ne_bytes());
    request[HEADER + 4..HEADER + 8].copy_from_slice(&index.to_ne_bytes());
    request
}

fn transact(request: &[u8]) -> io::Result<Vec<u8>> {
    ask(&open()?, request)
}

fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers are passed.
    let fd = check(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) })?;
    // SAFETY: the descriptor was just opened and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn ask(socket: &OwnedFd, request: &[u8]) -> io::Result<Vec<u8>> {
    // Without an address, the message goes to the kernel.
    // SAFETY: the request is readable memory of that length.
    check_len(unsafe { libc::send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) })?;
    receive(socket)
}

fn receive(socket: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut answer = vec![0_u8; ANSWER_MAX];
    // The kernel answers before `send` returns, and goes on with a list before `recv` does, so this call does
    // not wait.
    // SAFETY: the answer is writable memory of that length.
    let len = check_len(unsafe {
        libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), libc::MSG_DONTWAIT)
    })?;
    answer.truncate(len);
    Ok(answer)
}

fn kind(answer: &[u8]) -> Option<u16> {
    word(answer.get(4..6))
}

/// Reads a number of two bytes.
pub(crate) fn word(bytes: Option<&[u8]>) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes?.try_into().ok()?))
}

fn verdict(answer: &[u8]) -> io::Result<()> {
    if answer.len() < ANSWER_MIN || kind(answer) != Some(libc::NLMSG_ERROR as u16) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "expected an acknowledgement from rtnetlink, saw another message",
        ));
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
    fn a_missing_interface_is_an_error() {
        let error = set_transmit_queue(0x7fff_fff0, 1000).unwrap_err();
        assert!(matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EPERM)), "{error}");
    }

    #[test]
    fn a_link_is_described_by_flags_and_attributes() {
        let index = crate::interface::Interface::open("lo").unwrap().index();
        let (flags, bytes) = link(index).unwrap();
        assert_ne!(flags & libc::IFF_LOOPBACK as u32, 0);
        let name = attributes(&bytes).find(|(kind, _)| *kind == libc::IFLA_IFNAME);
        assert_eq!(name.unwrap().1, b"lo\0");
        assert_eq!(link(0x7fff_fff0).unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn attributes_cut_short_end_the_iteration() {
        let bytes: Vec<u8> = [
            6_u16.to_ne_bytes(),
            0x8001_u16.to_ne_bytes(),
            [7, 8],
            [0, 0],
            4_u16.to_ne_bytes(),
            2_u16.to_ne_bytes(),
        ]
        .concat();
        assert_eq!(attributes(&bytes).collect::<Vec<_>>(), [(1, &[7, 8][..]), (2, &[])]);
        assert_eq!(attributes(&bytes[..6]).count(), 1);
        for len in 0..6 {
            assert_eq!(attributes(&bytes[..len]).count(), 0, "{len}");
        }
        for len in [0_u16, 3, 100] {
            let wrong = [len.to_ne_bytes(), [1, 0], [0, 0]].concat();
            assert_eq!(attributes(&wrong).count(), 0, "length {len}");
        }
    }

    #[test]
    fn a_list_has_messages_and_an_end() {
        let message = |kind: u16, data: &[u8]| {
            let mut bytes = vec![0; HEADER];
            bytes[..4].copy_from_slice(&(HEADER as u32 + data.len() as u32).to_ne_bytes());
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            bytes.extend_from_slice(data);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let mut seen = Vec::new();
        let two = [message(libc::RTM_NEWROUTE, &[1, 2, 3]), message(libc::RTM_NEWROUTE, &[4])].concat();
        let mut each = |kind, data: &[u8]| seen.push((kind, data.to_vec()));
        assert!(!deliver(&two, &mut each).unwrap());
        let end = [message(libc::RTM_NEWROUTE, &[]), message(DONE, &[0; 4]), two.clone()].concat();
        assert!(deliver(&end, &mut each).unwrap());
        let bodies: Vec<_> = seen.iter().map(|(_, data)| &data[..]).collect();
        assert_eq!(bodies, [&[1, 2, 3][..], &[4], &[]]);
        let refused = deliver(&message(ERROR, &(-libc::ENOENT).to_ne_bytes()), &mut |_, _| {}).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENOENT));
        for len in 4..two.len() - 4 {
            // A message that is cut short is an error, unless it is cut between two.
            let is_whole = (HEADER + 3..HEADER + 8).contains(&len);
            assert_eq!(deliver(&two[..len], &mut |_, _| {}).is_ok(), is_whole, "{len}");
        }
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
