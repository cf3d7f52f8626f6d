//! A TUN device: a network interface whose packets this process reads and writes.
//!
//! With offloads, the kernel passes whole super-packets in both directions, so that one system call moves up
//! to 64 KiB. The device vanishes with its file descriptor, however the process ends.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::checksum::Sum;
use crate::header::{Layout, TCP};
use crate::interface::{Interface, check, check_len, name_field, request_for};
use crate::netlink;
use crate::offload::VIRTIO_HEADER_LEN;
use crate::offload::{Gso, Offload};

/// Size of a buffer that holds anything a TUN device returns.
pub const BUFFER_LEN: usize = 65_536 + 64;

// linux/if_tun.h
const TUN_F_CSUM: libc::c_ulong = 0x01;
const TUN_F_TSO4: libc::c_ulong = 0x02;
const TUN_F_TSO6: libc::c_ulong = 0x04;
const TUN_F_TSO_ECN: libc::c_ulong = 0x08;
const TUN_F_USO4: libc::c_ulong = 0x20;
const TUN_F_USO6: libc::c_ulong = 0x40;

/// Maximum number of pieces of one packet.
const PIECES_MAX: usize = 255;

/// Options of a TUN device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TunOptions {
    /// Passes super-packets and unfinished checksums in both directions, each with a virtio-net header.
    pub offload: bool,
    /// Size of the largest IP packet in bytes; the kernel's default is 1500.
    pub mtu: Option<u32>,
    /// Number of packets that may wait to be read; the kernel's default is 500.
    pub transmit_queue: Option<u32>,
    /// Switches the device on at once.
    pub up: bool,
}

/// A TUN device. Reading and writing never block.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// use netio::{segment, tun::{BUFFER_LEN, Tun, TunOptions}};
/// let tun = Tun::open("tun%d", &TunOptions { offload: true, up: true, ..TunOptions::default() })?;
/// let (mut buffer, mut scratch) = (vec![0; BUFFER_LEN], vec![0; BUFFER_LEN]);
/// while let Some((offload, packet)) = tun.recv(&mut buffer)? {
///     let cut = segment::cut(packet, &offload, &mut scratch, |wire| println!("{} bytes", wire.len()));
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Tun {
    file: OwnedFd,
    interface: Interface,
    name: String,
    offload: bool,
    udp_segments: bool,
}

impl Tun {
    /// Makes the device in the network namespace of the calling thread. The kernel replaces `%d` in the name
    /// by a number.
    ///
    /// # Errors
    /// The kernel's error: `EPERM` without `CAP_NET_ADMIN`, `EBUSY` if there is such an interface.
    pub fn open(name: &str, options: &TunOptions) -> io::Result<Self> {
        let flags = libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC;
        // SAFETY: the path is a C string.
        let fd = check(unsafe { libc::open(c"/dev/net/tun".as_ptr(), flags) })?;
        // SAFETY: the descriptor was just opened and has no other owner.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut request = request_for(name_field(name)?);
        let header = if options.offload { libc::IFF_VNET_HDR } else { 0 };
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | header) as libc::c_short;
        // SAFETY: TUNSETIFF takes an ifreq, which lives through the call.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as libc::Ioctl, &raw mut request) })?;
        let name = name_in(&request);
        let udp_segments = options.offload && set_offloads(&file)?;
        let interface = Interface::open(&name)?;
        if let Some(mtu) = options.mtu {
            interface.set_mtu(mtu)?;
        }
        if let Some(packets) = options.transmit_queue {
            match interface.set_transmit_queue(packets) {
                // The kernel permits this ioctl only to root of the machine, not to root of a user namespace.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    netlink::set_transmit_queue(interface.index(), packets)?;
                }
                other => other?,
            }
        }
        if options.up {
            interface.set_up(true)?;
        }
        Ok(Self { file, interface, name, offload: options.offload, udp_segments })
    }

    /// Takes a device that another process has opened with such offloads.
    ///
    /// # Errors
    /// The kernel's error: `EBADFD` if the descriptor is not that of a device.
    pub fn adopt(file: OwnedFd, offload: bool) -> io::Result<Self> {
        let mut request = request_for([0; libc::IFNAMSIZ]);
        // SAFETY: TUNGETIFF fills an ifreq, which lives through the call.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNGETIFF as libc::Ioctl, &raw mut request) })?;
        let name = name_in(&request);
        let udp_segments = offload && set_offloads(&file)?;
        Ok(Self { interface: Interface::open(&name)?, file, name, offload, udp_segments })
    }

    /// Returns the interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives the device another name. Where the kernel demands it, the device is down for a moment.
    ///
    /// # Errors
    /// The kernel's error: `EEXIST` if there is such an interface.
    pub fn rename(&mut self, name: &str) -> io::Result<()> {
        if let Err(error) = self.interface.rename(name) {
            if error.raw_os_error() != Some(libc::EBUSY) {
                return Err(error);
            }
            self.interface.set_up(false)?;
            let renamed = self.interface.rename(name);
            self.interface.set_up(true)?;
            renamed?;
        }
        name.clone_into(&mut self.name);
        Ok(())
    }

    /// Returns the interface, for further settings.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Returns whether the device still exists, under its name, in the network namespace of its creation, and
    /// attached to this descriptor. Costs two system calls, which wait for no lock of the kernel; call it
    /// about once a second.
    pub fn is_alive(&self) -> bool {
        // A deleted device is detached from its descriptor. TUNGETIFF would say so too, but under a lock that
        // others hold for seconds.
        let mut descriptors = [PollFd::new(self.file.as_fd(), PollFlags::empty())];
        let polled = poll(&mut descriptors, PollTimeout::ZERO);
        let state = descriptors[0].revents().unwrap_or(PollFlags::empty());
        let is_deleted = polled.is_ok() && state.contains(PollFlags::POLLERR);
        !is_deleted && self.interface.is_alive()
    }

    /// Returns whether TCP super-packets can be written.
    pub fn takes_tcp_segments(&self) -> bool {
        self.offload
    }

    /// Returns whether UDP super-packets can be written (Linux 6.2).
    pub fn takes_udp_segments(&self) -> bool {
        self.udp_segments
    }

    /// Reads one packet or super-packet; returns `None` if none waits. A reader that cuts super-packets notes
    /// each in [`Identifications`](crate::identification::Identifications) before.
    ///
    /// A packet longer than `buffer` is truncated; [`BUFFER_LEN`] bytes always suffice.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn recv<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Option<(Offload, &'b mut [u8])>> {
        let mut header = [0; VIRTIO_HEADER_LEN];
        let header_len = if self.offload { header.len() } else { 0 };
        let parts = [
            libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: header_len },
            libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() },
        ];
        // SAFETY: both parts point to writable memory of their length, which outlives the call.
        let read = check_len(unsafe { libc::readv(self.file.as_raw_fd(), parts.as_ptr(), 2) });
        let read = match read {
            Ok(read) => read,
            Err(error) if would_block(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let packet = &mut buffer[..read.saturating_sub(header_len)];
        let offload = if self.offload { Offload::from_virtio(&header, packet) } else { Offload::default() };
        Ok(Some((offload, packet)))
    }

    /// Writes one packet in its wire form; returns `false` if the kernel has no room for it.
    ///
    /// # Errors
    /// The kernel's error: `EIO` while the interface is down, `EINVAL` for anything but an IP packet.
    pub fn send(&self, packet: &[u8]) -> io::Result<bool> {
        let header = [0; VIRTIO_HEADER_LEN];
        if self.offload {
            self.write(&[IoSlice::new(&header), IoSlice::new(packet)])
        } else {
            self.write(&[IoSlice::new(packet)])
        }
    }

    /// Writes one packet or super-packet given in `pieces`, with all headers in the first. Returns `false` if
    /// the kernel has no room for it.
    ///
    /// If `offload` reports an unfinished checksum, the checksum field must hold the folded sum of the
    /// pseudo-header, as it does in every packet from [`Tun::recv`].
    ///
    /// # Errors
    /// `InvalidInput` if the headers do not fit the offload or the device does not support it; otherwise the
    /// kernel's error.
    pub fn send_super(&self, offload: &Offload, pieces: &[IoSlice<'_>]) -> io::Result<bool> {
        if !self.offload && (offload.is_super() || offload.needs_checksum) {
            return Err(invalid("expected a device with offloads, saw a super-packet for one without"));
        }
        if pieces.len() > PIECES_MAX {
            return Err(invalid("expected at most 255 pieces, saw more"));
        }
        let first: &[u8] = pieces.first().map_or(&[], |piece| piece);
        let header = virtio_header(offload, first)?;
        let mut parts = [IoSlice::new(&[]); PIECES_MAX + 1];
        parts[0] = IoSlice::new(if self.offload { &header } else { &[] });
        parts[1..=pieces.len()].copy_from_slice(pieces);
        self.write(&parts[..=pieces.len()])
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<bool> {
        let count = parts.len() as libc::c_int; // in range: at most 256
        // SAFETY: `IoSlice` has the layout of `iovec` (guaranteed by std), and the memory outlives the call.
        let written = check_len(unsafe { libc::writev(self.file.as_raw_fd(), parts.as_ptr().cast(), count) });
        match written {
            Ok(_) => Ok(true),
            Err(error) if would_block(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The name that the kernel has written into a request.
fn name_in(request: &libc::ifreq) -> String {
    request.ifr_name.iter().take_while(|&&c| c != 0).map(|&c| char::from(c as u8)).collect()
}

/// Enables super-packets and returns whether UDP's are among them.
fn set_offloads(file: &OwnedFd) -> io::Result<bool> {
    let header_len: libc::c_int = VIRTIO_HEADER_LEN as libc::c_int;
    let code = libc::TUNSETVNETHDRSZ as libc::Ioctl;
    // SAFETY: TUNSETVNETHDRSZ takes a pointer to an int, which lives through the call.
    check(unsafe { libc::ioctl(file.as_raw_fd(), code, &raw const header_len) })?;
    let tcp = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
    let code = libc::TUNSETOFFLOAD as libc::Ioctl;
    // SAFETY: TUNSETOFFLOAD takes a number.
    if check(unsafe { libc::ioctl(file.as_raw_fd(), code, tcp | TUN_F_USO4 | TUN_F_USO6) }).is_ok() {
        return Ok(true);
    }
    // SAFETY: TUNSETOFFLOAD takes a number.
    check(unsafe { libc::ioctl(file.as_raw_fd(), code, tcp) })?;
    Ok(false)
}

/// Returns the virtio-net header for a packet that begins with `headers`.
fn virtio_header(offload: &Offload, headers: &[u8]) -> io::Result<[u8; VIRTIO_HEADER_LEN]> {
    if *offload == Offload::default() {
        return Ok([0; VIRTIO_HEADER_LEN]);
    }
    if offload.gso == Gso::Unknown {
        return Err(invalid("expected TCP or UDP segments, saw a super-packet of another kind"));
    }
    let known = offload.checksum_start > 0;
    if !offload.is_super() && (known || !offload.needs_checksum) {
        return Ok(offload.to_virtio(0, false));
    }
    let Some((at, protocol)) = transport_of(headers) else {
        return Err(invalid("expected all headers in the first piece, saw fewer bytes"));
    };
    let (length, offset, congestion) = match protocol {
        TCP => match headers.get(at + 12..at + 14) {
            Some(field) => (usize::from(field[0] >> 4) * 4, 16, field[1] & 0x80 != 0),
            None => return Err(invalid("expected all headers in the first piece, saw fewer bytes")),
        },
        _ => (8, 6, false),
    };
    let start = if known { offload.checksum_start } else { at as u16 };
    let offload = Offload {
        needs_checksum: true,
        checksum_start: start,
        checksum_offset: if known { offload.checksum_offset } else { offset },
        ..*offload
    };
    Ok(offload.to_virtio((at + length) as u16, congestion)) // in range: headers of an IP packet
}

/// Returns offset and protocol of the transport header; the packet may continue after `headers`.
fn transport_of(headers: &[u8]) -> Option<(usize, u8)> {
    match headers.first()? >> 4 {
        4 => Some((usize::from(headers[0] & 0x0f) * 4, *headers.get(9)?)),
        // extension headers are followed only if the whole packet is in one piece
        6 if matches!(headers.get(6)?, 6 | 17) => Some((40, headers[6])),
        6 => Layout::of(headers).map(|layout| (layout.transport, layout.protocol)),
        _ => None,
    }
}

/// Writes the folded sum of the pseudo-header into the checksum field of a TCP or UDP packet, which leaves
/// the checksum to the kernel or the card. Returns `false` for any other packet.
pub fn leave_checksum(packet: &mut [u8]) -> bool {
    let Some(layout) = Layout::of(packet) else { return false };
    let Some(offset) = layout.checksum_offset() else { return false };
    if layout.fragment || layout.routed {
        return false;
    }
    let length = (layout.total - layout.transport) as u16; // in range: an IP packet
    let sum: Sum = layout.pseudo(packet).word(length);
    let at = layout.transport + offset;
    packet[at..at + 2].copy_from_slice(&sum.fold().to_be_bytes());
    true
}

fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_a_super_packet_are_measured() {
        let mut headers = [0; 52];
        headers[0] = 0x45;
        headers[9] = 6;
        headers[32] = 0x80;
        headers[33] = 0x80;
        let header = virtio_header(&Offload::segments(Gso::Tcp4, 1000), &headers).unwrap();
        let expected =
            Offload { checksum_start: 20, checksum_offset: 16, ..Offload::segments(Gso::Tcp4, 1000) };
        assert_eq!(header, expected.to_virtio(52, true));
        assert!(virtio_header(&Offload::segments(Gso::Tcp4, 1000), &headers[..30]).is_err());
        assert!(virtio_header(&Offload::segments(Gso::Unknown, 1000), &headers).is_err());
        assert_eq!(virtio_header(&Offload::default(), &[]).unwrap(), [0; VIRTIO_HEADER_LEN]);
    }
}
