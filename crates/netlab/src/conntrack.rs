//! The kernel's table of connections, as a NAT loses it when it restarts.

use std::os::fd::AsRawFd as _;

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

use crate::error::LabError;
use crate::namespace::Namespace;

/// Request of ctnetlink that deletes entries; without a tuple, all of them.
const DELETE: u16 = 1 << 8 | 2;
const REQUEST_AND_ACKNOWLEDGE: u16 = 5;
/// Length of the request and of an answer's header in bytes.
const REQUEST_BYTES: u32 = 20;
const HEADER_BYTES: usize = 16;

/// Lets a namespace forget all connections of IPv4, and with them the mappings of its NAT.
///
/// # Errors
/// If the kernel refuses the request.
pub fn forget(namespace: &Namespace) -> Result<(), LabError> {
    let mut request = REQUEST_BYTES.to_ne_bytes().to_vec();
    request.extend(DELETE.to_ne_bytes());
    request.extend(REQUEST_AND_ACKNOWLEDGE.to_ne_bytes());
    // Number and port of the request; IPv4, version and resource.
    request.extend([0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
    let mut answer = [0; 64];
    let asked = namespace.run(|| -> nix::Result<usize> {
        let (kind, protocol) = (SockType::Raw, SockProtocol::NetlinkNetFilter);
        let socket = socket(AddressFamily::Netlink, kind, SockFlag::SOCK_CLOEXEC, protocol)?;
        sendto(socket.as_raw_fd(), &request, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
        recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())
    });
    let what = "cannot delete the connections of a namespace";
    let length = asked.map_err(|error| LabError::system(what, error))?;
    let code = answer[..length].get(HEADER_BYTES..HEADER_BYTES + 4).and_then(|bytes| bytes.first_chunk());
    match code.map(|code| i32::from_ne_bytes(*code)) {
        Some(0) => Ok(()),
        Some(error) => Err(LabError::system(what, std::io::Error::from_raw_os_error(-error))),
        None => Err(LabError::Invalid(format!("{what}: expected an acknowledgement, saw {length} bytes"))),
    }
}
