//! Questions of routers about members of groups (RFC 2236 §2, RFC 3376 §4.1, RFC 2710 §3, RFC 3810 §5.1).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use foundation::bytes::{ReadError, Reader};

use super::ask::{QUERY_S, ROBUSTNESS};

/// Flag by which a question shortens no time at other routers.
const SUPPRESS: u8 = 8;
/// Time for answers to a question that states none, of version 1 of IGMP (RFC 3376 §7.2.1).
const ANSWER_MS: u32 = 10_000;

/// A question of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Address of the router.
    pub router: IpAddr,
    /// Group that has no members after this question unless a host answers; `None` if it is about all groups,
    /// or about some sources of one.
    pub group: Option<IpAddr>,
    /// Time for the answers, in milliseconds.
    pub answer_ms: u32,
    /// Interval between the router's questions about all groups, in seconds.
    pub interval_s: u16,
    /// Number of these questions of which one gets through.
    pub robustness: u8,
}

impl Question {
    /// Reads an IGMP message from its code on.
    pub(super) fn read_igmp(source: Ipv4Addr, code: u8, group: Ipv4Addr, rest: &mut Reader<'_>) -> Self {
        // Only version 3 has more than the group, and another form of long times.
        let more = More::read(rest).ok();
        let tenths = if more.is_some() { float8(code) } else { code.into() };
        let answer_ms = if tenths == 0 { ANSWER_MS } else { 100 * u32::from(tenths) };
        Self::new(source.into(), Some(group.into()).filter(|_| !group.is_unspecified()), answer_ms, more)
    }

    /// Reads an MLD message from its code for the time of answers on.
    pub(super) fn read_mld(source: Ipv6Addr, code: u16, group: Ipv6Addr, rest: &mut Reader<'_>) -> Self {
        let more = More::read(rest).ok();
        let answer_ms = if more.is_some() { float16(code) } else { code.into() };
        Self::new(source.into(), Some(group.into()).filter(|_| !group.is_unspecified()), answer_ms, more)
    }

    fn new(router: IpAddr, group: Option<IpAddr>, answer_ms: u32, more: Option<More>) -> Self {
        let more = more.unwrap_or(More { is_whole: true, robustness: 0, interval_s: 0 });
        let stated = |number: u16, default: u8| if number == 0 { default.into() } else { number };
        Self {
            router,
            group: group.filter(|_| more.is_whole),
            answer_ms,
            interval_s: stated(more.interval_s, QUERY_S),
            robustness: if more.robustness == 0 { ROBUSTNESS } else { more.robustness },
        }
    }
}

/// The fields behind the group.
struct More {
    /// Whether the question is about all sources of the group, and other routers shorten their times.
    is_whole: bool,
    /// 0 if it is not stated.
    robustness: u8,
    /// 0 if it is not stated.
    interval_s: u16,
}

impl More {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ReadError> {
        let [flags, code] = reader.array()?;
        let sources = reader.u16()?;
        let is_whole = flags & SUPPRESS == 0 && sources == 0;
        Ok(Self { is_whole, robustness: flags & 7, interval_s: float8(code) })
    }
}

/// Reads a number of which long ones have an exponent (RFC 3376 §4.1.1, §4.1.7).
fn float8(code: u8) -> u16 {
    if code < 0x80 { code.into() } else { u16::from(code & 0x0f | 0x10) << ((code >> 4 & 7) + 3) }
}

/// The same with two bytes (RFC 3810 §5.1.3).
fn float16(code: u16) -> u32 {
    if code < 0x8000 { code.into() } else { u32::from(code & 0x0fff | 0x1000) << ((code >> 12 & 7) + 3) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_times_have_an_exponent() {
        assert_eq!([0x7f, 0x80, 0x8f, 0xff].map(float8), [127, 128, 248, 31_744]);
        assert_eq!([0x7fff, 0x8000, 0xffff].map(float16), [32_767, 32_768, 8_387_584]);
    }

    #[test]
    fn questions_of_all_versions_of_igmp_are_read() {
        let (router, group) = (Ipv4Addr::new(10, 1, 1, 9), Ipv4Addr::new(239, 1, 0, 1));
        let read = |code, group, rest: &[u8]| Question::read_igmp(router, code, group, &mut Reader(rest));
        let all = Question {
            router: router.into(),
            group: None,
            answer_ms: 10_000,
            interval_s: 125,
            robustness: 2,
        };
        let none = Ipv4Addr::UNSPECIFIED;
        assert_eq!((read(0, none, &[]), read(100, none, &[])), (all, all));
        assert_eq!(read(100, none, &[0, 0, 0, 0]), all, "nothing is stated");
        let third = Question { interval_s: 300, robustness: 3, answer_ms: 24_800, ..all };
        // Of the times near 300 s, this one can be written.
        assert_eq!(read(0x8f, none, &[3, 0x92, 0, 0]), Question { interval_s: 288, ..third });
        let about = Question { group: Some(group.into()), answer_ms: 1_000, ..all };
        assert_eq!((read(10, group, &[]), read(10, group, &[2, 125, 0, 0])), (about, about));
        for rest in [&[2 | SUPPRESS, 125, 0, 0][..], &[2, 125, 0, 1, 10, 9, 9, 9]] {
            assert_eq!(read(10, group, rest), Question { group: None, ..about });
        }
    }

    #[test]
    fn questions_of_both_versions_of_mld_are_read() {
        let (router, group) = ("fe80::9".parse().unwrap(), "ff15::7".parse::<Ipv6Addr>().unwrap());
        let read = |code, group, rest: &[u8]| Question::read_mld(router, code, group, &mut Reader(rest));
        let about = Question {
            router: router.into(),
            group: Some(group.into()),
            answer_ms: 0x8fff,
            interval_s: 125,
            robustness: 2,
        };
        assert_eq!(read(0x8fff, group, &[]), about, "version 1");
        assert_eq!(read(0x8fff, group, &[0, 0, 0, 0]), Question { answer_ms: 65_528, ..about });
        assert_eq!(read(10_000, Ipv6Addr::UNSPECIFIED, &[7, 20, 0, 0]).group, None);
    }
}
