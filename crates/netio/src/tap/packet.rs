//! Tap by a packet socket on one interface. Its protocol is ETH_P_ALL, the only one that also sees outgoing
//! packets. A filter in the kernel excludes everything else. Batches are read by `recvmmsg`, each packet with
//! a virtio-net header.

use std::cell::Cell;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{c_int, c_void};

use super::captured::{Captured, Direction, Drained, Missed, TapCounts};
use super::config::TapConfig;
use super::filter;
use super::moderation::{Change, Moderation, now_ns};
use crate::error::step;
use crate::identification::Identifications;
use crate::interface::{Interface, check};
use crate::offload::{Offload, VIRTIO_HEADER_LEN};

/// Number of packets read by one system call.
const SLOTS: usize = 32;
/// Bytes of one slot: the largest super-packet and its link header.
const SLOT_LEN: usize = 65_536 + 64;
/// Space for one control message with a `tpacket_auxdata`.
const CONTROL_LEN: usize = 64;
/// Maximum number of receive errors in one drain. The kernel reports each packet that it cannot describe as
/// an error.
const ERRORS_MAX: usize = 64;

pub(super) struct PacketTap {
    socket: OwnedFd,
    moderation: Moderation,
    slots: Slots,
    ids: Identifications,
    counts: Cell<TapCounts>,
    /// Missed packets whose direction is known.
    missed: Missed,
    interface: Interface,
}

impl PacketTap {
    pub(super) fn open(config: &TapConfig) -> io::Result<Self> {
        let interface = Interface::open(&config.interface)
            .map_err(|error| step(&format!("find interface {}", config.interface), &error))?;
        let program = filter::program(config)?;
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // With protocol 0, the socket receives nothing until it is bound, when the filter is in place.
        // SAFETY: no pointers are passed.
        let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })
            .map_err(|error| step("open a packet socket", &error))?;
        // SAFETY: the descriptor was just opened and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        attach_filter(&socket, &program)?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)
            .map_err(|error| step("request virtio headers", &error))?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)
            .map_err(|error| step("request link header lengths", &error))?;
        // In range: checked when the tap was opened. The kernel doubles it for its own bookkeeping.
        let bytes = config.buffer_bytes as c_int;
        if set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes).is_err() {
            set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)
                .map_err(|error| step("set the receive buffer", &error))?;
        }
        if config.all_groups {
            take_all_groups(&socket, interface.index())
                .map_err(|error| step(&format!("take all IP groups at {}", config.interface), &error))?;
        }
        bind(&socket, interface.index())
            .map_err(|error| step(&format!("listen on {}", config.interface), &error))?;
        let moderation = Moderation::new(socket.as_fd(), config.wake_us)?;
        Ok(Self {
            socket,
            moderation,
            slots: Slots::new(),
            ids: Identifications::new(),
            counts: Cell::new(TapCounts::default()),
            missed: Missed::default(),
            interface,
        })
    }

    pub(super) fn drain(&mut self, budget: usize, handle: impl FnMut(Captured<'_>)) -> io::Result<Drained> {
        let drained = self.take(budget, handle)?;
        let change = self.moderation.on_drained(drained.packets, drained.more, now_ns())?;
        self.apply(change)?;
        Ok(drained)
    }

    pub(super) fn set_unwatched(&mut self, is_unwatched: bool) -> io::Result<()> {
        let change = self.moderation.set_unwatched(is_unwatched)?;
        self.apply(change)
    }

    fn apply(&self, change: Change) -> io::Result<()> {
        match change {
            Change::None => Ok(()),
            Change::Silence => self.moderation.ignore(self.socket.as_fd()),
            Change::Waken => self.moderation.listen(self.socket.as_fd()),
        }
    }

    fn take(&mut self, budget: usize, mut handle: impl FnMut(Captured<'_>)) -> io::Result<Drained> {
        let (mut packets, mut errors) = (0, 0);
        while packets < budget {
            let wanted = SLOTS.min(budget - packets);
            let received = match self.slots.receive(&self.socket, wanted) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Drained { packets, more: false });
                }
                // the kernel drops a packet whose offload no virtio header can describe
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) && errors < ERRORS_MAX => {
                    errors += 1;
                    self.count(|counts| counts.unreadable += 1);
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // the interface is down and may come back
                Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => {
                    return Ok(Drained { packets, more: false });
                }
                Err(error) => return Err(error),
            };
            packets += received;
            for slot in 0..received {
                match self.slots.captured(slot) {
                    Ok(mut captured) => {
                        self.ids.note(captured.packet, &mut captured.offload);
                        handle(captured);
                        self.count(|counts| counts.captured += 1);
                    }
                    Err(unusable) => self.miss(slot, unusable),
                }
            }
            if received < wanted {
                return Ok(Drained { packets, more: false });
            }
        }
        Ok(Drained { packets, more: true })
    }

    /// Counts a received packet that cannot be used.
    fn miss(&mut self, slot: usize, unusable: Unusable) {
        match self.slots.heads[slot].direction {
            Direction::Outgoing => self.missed.outgoing += 1,
            Direction::Incoming => self.missed.incoming += 1,
        }
        self.count(|counts| match unusable {
            Unusable::Oversize => counts.oversize += 1,
            Unusable::Unreadable => counts.unreadable += 1,
        });
    }

    pub(super) fn missed(&self) -> Missed {
        let (counts, known) = (self.counts(), self.missed);
        let all = counts.full + counts.unreadable + counts.oversize;
        let unknown = all - known.outgoing - known.incoming;
        Missed { outgoing: known.outgoing + unknown, incoming: known.incoming + unknown }
    }

    pub(super) fn moderation(&mut self) -> &mut Moderation {
        &mut self.moderation
    }

    pub(super) fn interface(&self) -> &Interface {
        &self.interface
    }

    pub(super) fn counts(&self) -> TapCounts {
        // SAFETY: all fields are numbers, for which zero is valid.
        let mut statistics: libc::tpacket_stats = unsafe { zeroed() };
        let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        let fd = self.socket.as_raw_fd();
        let (value, len) = ((&raw mut statistics).cast(), &raw mut len);
        // SAFETY: the structure and its length are writable and live through the call.
        if unsafe { libc::getsockopt(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, value, len) } == 0 {
            // reading resets the kernel's counter
            self.count(|counts| counts.full += u64::from(statistics.tp_drops));
        }
        self.counts.get()
    }

    fn count(&self, change: impl FnOnce(&mut TapCounts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }
}

impl AsFd for PacketTap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.moderation.as_fd()
    }
}

#[derive(Clone, Copy)]
enum Unusable {
    Oversize,
    Unreadable,
}

/// Metadata of one slot.
#[derive(Clone, Copy)]
struct Head {
    virtio: [u8; VIRTIO_HEADER_LEN],
    control: Control,
    len: usize,
    direction: Direction,
    /// Length of the link header, and VLAN tag; `None` if the kernel did not report them.
    link: Option<(usize, Option<u16>)>,
}

#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_LEN]);

/// Memory into which batches are received.
struct Slots {
    bytes: Box<[u8]>,
    heads: Box<[Head; SLOTS]>,
}

impl Slots {
    fn new() -> Self {
        let head = Head {
            virtio: [0; VIRTIO_HEADER_LEN],
            control: Control([0; CONTROL_LEN]),
            len: 0,
            direction: Direction::Incoming,
            link: None,
        };
        Self { bytes: vec![0; SLOTS * SLOT_LEN].into_boxed_slice(), heads: Box::new([head; SLOTS]) }
    }

    /// Fills the first slots, at most `wanted`, and returns how many.
    fn receive(&mut self, socket: &OwnedFd, wanted: usize) -> io::Result<usize> {
        // SAFETY: all fields are numbers and pointers, for which zero is valid.
        let mut addresses: [libc::sockaddr_ll; SLOTS] = unsafe { zeroed() };
        // SAFETY: as above.
        let mut parts: [[libc::iovec; 2]; SLOTS] = unsafe { zeroed() };
        // SAFETY: as above.
        let mut messages: [libc::mmsghdr; SLOTS] = unsafe { zeroed() };
        let memory = self.bytes.chunks_exact_mut(SLOT_LEN).zip(self.heads.iter_mut());
        for ((slot, (bytes, head)), message) in memory.enumerate().zip(&mut messages).take(wanted) {
            let (virtio, bytes) = (head.virtio.as_mut_ptr().cast(), bytes.as_mut_ptr().cast());
            parts[slot] = [
                libc::iovec { iov_base: virtio, iov_len: VIRTIO_HEADER_LEN },
                libc::iovec { iov_base: bytes, iov_len: SLOT_LEN },
            ];
            let header = &mut message.msg_hdr;
            header.msg_name = (&raw mut addresses[slot]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            header.msg_iov = parts[slot].as_mut_ptr();
            header.msg_iovlen = 2;
            header.msg_control = (&raw mut head.control).cast();
            header.msg_controllen = CONTROL_LEN as _;
        }
        let (fd, flags) = (socket.as_raw_fd(), libc::MSG_DONTWAIT | libc::MSG_TRUNC);
        // SAFETY: every message points to memory that is writable for its given length, overlaps no other,
        // and outlives the call; there is no timeout.
        let received = check(unsafe {
            libc::recvmmsg(fd, messages.as_mut_ptr(), wanted as _, flags as _, std::ptr::null_mut())
        })?;
        let received = received.cast_unsigned() as usize;
        for (slot, message) in messages[..received].iter().enumerate() {
            let head = &mut self.heads[slot];
            head.len = message.msg_len as usize;
            let outgoing = addresses[slot].sll_pkttype == libc::PACKET_OUTGOING;
            head.direction = if outgoing { Direction::Outgoing } else { Direction::Incoming };
            head.link = auxiliary(&message.msg_hdr);
        }
        Ok(received)
    }

    /// Returns the packet in that slot.
    fn captured(&self, slot: usize) -> Result<Captured<'_>, Unusable> {
        let head = &self.heads[slot];
        let Some((link_header, vlan)) = head.link else { return Err(Unusable::Unreadable) };
        // with MSG_TRUNC, the length is that of the packet, not of the copied bytes
        let Some(len) = head.len.checked_sub(VIRTIO_HEADER_LEN) else { return Err(Unusable::Unreadable) };
        if len > SLOT_LEN {
            return Err(Unusable::Oversize);
        }
        let frame = &self.bytes[slot * SLOT_LEN..][..len];
        let (header, packet) = frame.split_at_checked(link_header).ok_or(Unusable::Unreadable)?;
        let vlan = vlan.or_else(|| tag_in_header(header));
        let mut offload = Offload::from_virtio(&head.virtio, packet);
        if offload.needs_checksum {
            // the field counts from the link header
            let start = usize::from(offload.checksum_start).checked_sub(link_header);
            offload.checksum_start = start.ok_or(Unusable::Unreadable)? as u16;
        }
        Ok(Captured { direction: head.direction, offload, packet, vlan, time_ns: None })
    }
}

/// Returns the length of the link header and the VLAN tag, from the control message.
fn auxiliary(header: &libc::msghdr) -> Option<(usize, Option<u16>)> {
    // SAFETY: the header is that of a message just received; its control memory is alive and has the given
    // length.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !message.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return null or a whole header inside the control memory.
        let found = unsafe { &*message };
        if (found.cmsg_level, found.cmsg_type) == (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
            // SAFETY: a message of this type holds a tpacket_auxdata, possibly unaligned.
            let data: libc::tpacket_auxdata =
                unsafe { libc::CMSG_DATA(message).cast::<libc::tpacket_auxdata>().read_unaligned() };
            let tagged = data.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
            return Some((usize::from(data.tp_net), tagged.then_some(data.tp_vlan_tci)));
        }
        // SAFETY: as above.
        message = unsafe { libc::CMSG_NXTHDR(header, message) };
    }
    None
}

/// Returns the VLAN tag in an Ethernet header. Where a card inserts no tags, the kernel inserts them before
/// it shows packets that leave, and reports none.
fn tag_in_header(header: &[u8]) -> Option<u16> {
    /// Length of the addresses.
    const ADDRESSES: usize = 12;
    let (_, rest) = header.split_at_checked(ADDRESSES)?;
    match *rest {
        // There may be another tag between this one and the type of the packet.
        [0x81, 0x00, a, b, _, _, ..] | [0x88, 0xa8, a, b, _, _, ..] => Some(u16::from_be_bytes([a, b])),
        _ => None,
    }
}

fn attach_filter(socket: &OwnedFd, program: &[libc::sock_filter]) -> io::Result<()> {
    let filter = libc::sock_fprog {
        len: program.len() as u16, // in range: bounded by INSTRUCTIONS_MAX
        filter: program.as_ptr().cast_mut(),
    };
    let (value, len) = ((&raw const filter).cast::<c_void>(), size_of::<libc::sock_fprog>());
    let fd = socket.as_raw_fd();
    // SAFETY: the program and its description live through the call, and the kernel only reads them.
    let result = unsafe {
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, value, len as libc::socklen_t)
    };
    check(result).map(drop).map_err(|error| step("attach the networks' filter", &error))
}

fn set(socket: &OwnedFd, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    let (pointer, len) = ((&raw const value).cast::<c_void>(), size_of::<c_int>() as libc::socklen_t);
    // SAFETY: the value lives through the call, and its length is given.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, pointer, len) }).map(drop)
}

/// Lets the interface take the packets of all IP groups, until the socket is closed.
fn take_all_groups(socket: &OwnedFd, index: u32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: index.cast_signed(),
        mr_type: libc::PACKET_MR_ALLMULTI as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    let (value, len) = ((&raw const request).cast::<c_void>(), size_of::<libc::packet_mreq>());
    let (fd, option) = (socket.as_raw_fd(), libc::PACKET_ADD_MEMBERSHIP);
    // SAFETY: the request lives through the call, and its length is given.
    check(unsafe { libc::setsockopt(fd, libc::SOL_PACKET, option, value, len as libc::socklen_t) }).map(drop)
}

fn bind(socket: &OwnedFd, index: u32) -> io::Result<()> {
    // SAFETY: all fields are numbers, for which zero is valid.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index.cast_signed();
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address lives through the call, and its length is given.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) }).map(drop)
}
