//! Control messages: those that the kernel attaches to a received datagram, and those that request
//! segmentation and a type of service.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

const WORD: usize = size_of::<usize>();
/// Length of a `cmsghdr`: its length as a word, level and type.
const HEADER: usize = WORD + 8;
/// Space for packet info (20 bytes for IPv6), stride, drop counter, time to live, type of service and time,
/// with some to spare.
const RECEIVED_LEN: usize = 192;

/// Space for the control messages of one received datagram.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct ReceivedControl {
    pub(super) bytes: [u8; RECEIVED_LEN],
}

impl ReceivedControl {
    pub(super) const EMPTY: Self = Self { bytes: [0; RECEIVED_LEN] };
}

/// Contents of the control messages of one datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Length of every datagram of a train except the last.
    pub(crate) stride: Option<usize>,
    /// Destination address, and index of the interface on which the datagram arrived.
    pub(crate) to: Option<(IpAddr, u32)>,
    /// Number of datagrams that the socket's queue had dropped when this one entered it. The counter wraps.
    pub(crate) dropped: Option<u32>,
    /// Time to live, or hop limit, with which the datagram arrived.
    pub(crate) ttl: Option<u8>,
    /// Type of service, or traffic class, with which the datagram arrived.
    pub(crate) tos: Option<u8>,
    /// Time of the day, since 1970, at which the kernel received it.
    pub(crate) stamp: Option<Duration>,
}

impl Facts {
    /// Reads the control messages of one datagram and skips unknown ones.
    pub(crate) fn read(mut control: &[u8]) -> Self {
        let mut facts = Self::default();
        while let Some((level, kind, data, rest)) = next(control) {
            facts.take(level, kind, data);
            control = rest;
        }
        facts
    }

    fn take(&mut self, level: libc::c_int, kind: libc::c_int, data: &[u8]) {
        match (level, kind) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                self.stride = word(data, 0).map(|stride| stride as usize).filter(|&stride| stride > 0);
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => self.dropped = word(data, 0),
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => self.stamp = stamp(data),
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                self.ttl = word(data, 0).and_then(|ttl| u8::try_from(ttl).ok());
            }
            // one byte for IPv4, a C int for IPv6
            (libc::IPPROTO_IP, libc::IP_TOS) => self.tos = data.first().copied(),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                self.tos = word(data, 0).and_then(|tos| u8::try_from(tos).ok());
            }
            // in_pktinfo: interface, local address, destination in the header
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let address = data.get(8..12).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
                self.to = address.map(Ipv4Addr::from).map(IpAddr::from).zip(word(data, 0));
            }
            // in6_pktinfo: destination, interface
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let address = data.get(..16).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
                self.to = address.map(Ipv6Addr::from).map(IpAddr::from).zip(word(data, 16));
            }
            _ => {}
        }
    }
}

/// Returns level, type and data of the first message, and the bytes after it.
fn next(control: &[u8]) -> Option<(libc::c_int, libc::c_int, &[u8], &[u8])> {
    let len = usize::from_ne_bytes(control.get(..WORD)?.try_into().ok()?);
    let level = word(control, WORD)?.cast_signed();
    let kind = word(control, WORD + 4)?.cast_signed();
    let data = control.get(HEADER..len)?;
    let rest = control.get(len.next_multiple_of(WORD)..).unwrap_or(&[]);
    Some((level, kind, data, rest))
}

/// Reads a `timespec`: two numbers of 64 bits, or of 32 where the kernel's words have as many.
fn stamp(data: &[u8]) -> Option<Duration> {
    let parts = |data: &[u8]| {
        let long = |at: usize| Some(i64::from_ne_bytes(data.get(at..at + 8)?.try_into().ok()?));
        let short = |at: usize| Some(i64::from(word(data, at)?.cast_signed()));
        if data.len() >= 16 { Some((long(0)?, long(8)?)) } else { Some((short(0)?, short(4)?)) }
    };
    let (seconds, nanos) = parts(data)?;
    let nanos = u32::try_from(nanos).ok().filter(|&nanos| nanos < 1_000_000_000)?;
    Some(Duration::new(u64::try_from(seconds).ok()?, nanos))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Length of one control message for sending.
const SENT: usize = HEADER + WORD;

/// Control messages that make the kernel cut a buffer into datagrams, and set the type of service of these.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct SendControl {
    bytes: [u8; 2 * SENT],
    is_marked: bool,
}

impl SendControl {
    /// Requests datagrams of `segment` bytes with the type of service, or traffic class, `tos`.
    pub(super) fn new(segment: u16, tos: u8, is_v4: bool) -> Self {
        let mut bytes = [0; 2 * SENT];
        let (cut, mark) = bytes.split_at_mut(SENT);
        write(cut, libc::SOL_UDP, libc::UDP_SEGMENT, &segment.to_ne_bytes());
        let (level, kind) =
            if is_v4 { (libc::IPPROTO_IP, libc::IP_TOS) } else { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) };
        write(mark, level, kind, &i32::from(tos).to_ne_bytes());
        Self { bytes, is_marked: tos != 0 }
    }

    /// The messages for the kernel, those of a train or of a single datagram. May be empty.
    pub(super) fn messages(&self, is_train: bool) -> &[u8] {
        let start = if is_train { 0 } else { SENT };
        let end = if self.is_marked { 2 * SENT } else { SENT };
        &self.bytes[start..end]
    }
}

/// Writes one control message of up to a word.
fn write(to: &mut [u8], level: libc::c_int, kind: libc::c_int, data: &[u8]) {
    to[..WORD].copy_from_slice(&(HEADER + data.len()).to_ne_bytes());
    to[WORD..WORD + 4].copy_from_slice(&level.to_ne_bytes());
    to[WORD + 4..HEADER].copy_from_slice(&kind.to_ne_bytes());
    to[HEADER..HEADER + data.len()].copy_from_slice(data);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(level: libc::c_int, kind: libc::c_int, data: &[u8]) -> Vec<u8> {
        let mut bytes = (HEADER + data.len()).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(WORD), 0);
        bytes
    }

    #[test]
    fn all_that_came_is_read_whatever_the_order() {
        let mut info = 7_u32.to_ne_bytes().to_vec();
        info.extend([10, 0, 0, 1, 239, 1, 2, 3]);
        let mut bytes = message(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &5_u32.to_ne_bytes());
        bytes.extend(message(99, 99, &[1]));
        bytes.extend(message(libc::IPPROTO_IP, libc::IP_PKTINFO, &info));
        bytes.extend(message(libc::SOL_UDP, libc::UDP_GRO, &1400_i32.to_ne_bytes()));
        bytes.extend(message(libc::IPPROTO_IP, libc::IP_TTL, &31_i32.to_ne_bytes()));
        bytes.extend(message(libc::IPPROTO_IP, libc::IP_TOS, &[187]));
        let time = [7_i64, 999_999_999].map(i64::to_ne_bytes).concat();
        bytes.extend(message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &time));
        let to = Some(("239.1.2.3".parse().unwrap(), 7));
        let stamp = Some(Duration::new(7, 999_999_999));
        let (stride, dropped, ttl, tos) = (Some(1400), Some(5), Some(31), Some(187));
        let expected = Facts { stride, to, dropped, ttl, tos, stamp };
        assert_eq!(Facts::read(&bytes), expected);

        let group: Ipv6Addr = "ff05::1:3".parse().unwrap();
        let mut info = group.octets().to_vec();
        info.extend(9_u32.to_ne_bytes());
        let facts = Facts::read(&message(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info));
        assert_eq!(facts.to, Some((group.into(), 9)));
        let class = message(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &187_i32.to_ne_bytes());
        assert_eq!(Facts::read(&class).tos, Some(187));
    }

    #[test]
    fn what_is_cut_off_ends_the_reading() {
        let whole = message(libc::SOL_UDP, libc::UDP_GRO, &1400_i32.to_ne_bytes());
        for len in 0..HEADER + 4 {
            assert_eq!(Facts::read(&whole[..len]), Facts::default(), "{len} bytes");
        }
        for len in [0, 1, HEADER - 1, usize::MAX] {
            let mut bytes = whole.clone();
            bytes[..WORD].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(Facts::read(&bytes), Facts::default(), "length {len}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_the_bytes_reading_ends(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = Facts::read(&bytes);
            let _ = crate::netlink::attributes(&bytes).count();
        }
    }

    #[test]
    fn a_time_that_is_none_is_not_read() {
        for parts in [[7, 1_000_000_000], [-1, 0], [7, -1]] {
            let time = parts.map(i64::to_ne_bytes).concat();
            let facts = Facts::read(&message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &time));
            assert_eq!(facts.stamp, None, "{parts:?}");
            let time = parts.map(|part| (part as i32).to_ne_bytes()).concat();
            let facts = Facts::read(&message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &time));
            assert_eq!(facts.stamp, None, "{parts:?} of 32 bits");
        }
    }

    #[test]
    fn a_train_of_no_stride_is_none() {
        let bytes = message(libc::SOL_UDP, libc::UDP_GRO, &0_i32.to_ne_bytes());
        assert_eq!(Facts::read(&bytes).stride, None);
    }

    #[test]
    fn the_messages_for_sending_read_back() {
        let segment = |bytes: &[u8]| Facts::read(bytes).stride;
        let cut = 1_200_u16.to_ne_bytes();
        for (is_v4, expected) in
            [(true, (libc::IPPROTO_IP, libc::IP_TOS)), (false, (libc::IPPROTO_IPV6, libc::IPV6_TCLASS))]
        {
            let plain = SendControl::new(1_200, 0, is_v4);
            assert!(plain.messages(false).is_empty());
            let (level, kind, data, rest) = next(plain.messages(true)).unwrap();
            assert_eq!((level, kind, data, rest), (libc::SOL_UDP, libc::UDP_SEGMENT, &cut[..], &[][..]));
            let marked = SendControl::new(1_200, 46 << 2, is_v4);
            let (.., rest) = next(marked.messages(true)).unwrap();
            assert_eq!(rest, marked.messages(false));
            let (level, kind, data, rest) = next(rest).unwrap();
            assert_eq!(((level, kind), data, rest), (expected, &184_i32.to_ne_bytes()[..], &[][..]));
            assert_eq!(segment(marked.messages(false)), None);
        }
    }
}
