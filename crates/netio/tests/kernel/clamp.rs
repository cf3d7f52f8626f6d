//! Limits on TCP segments, as the kernel's own connections obey them.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;

use netio::clamp::{Ownership, SegmentClamp, SegmentLimit, probe};
use netlab::Namespace;

const TABLE: &str = "undrop_mss_test0";
/// MTU of the cable.
const MTU: u32 = 1_500;

/// Two hosts on a cable: `near` has the limits.
struct Cable {
    near: Namespace,
    far: Namespace,
}

impl Cable {
    fn lay(test: &str) -> Option<Self> {
        if !netlab::privilege::namespaces_or_skip(test) {
            return None;
        }
        let (near, far) = (Namespace::create("near").unwrap(), Namespace::create("far").unwrap());
        near.add_veth("eth0", &far, "eth0", MTU).unwrap();
        for (host, addresses) in
            [(&near, ["10.1.0.1/24", "fd01::1/64"]), (&far, ["10.1.0.2/24", "fd01::2/64"])]
        {
            for address in addresses {
                host.add_address("eth0", address.parse().unwrap()).unwrap();
            }
        }
        Some(Self { near, far })
    }

    fn install(&self, limits: &[SegmentLimit], ownership: Ownership) -> SegmentClamp {
        self.near.run(|| SegmentClamp::install(TABLE, limits, ownership).unwrap())
    }

    /// Returns the longest segments of both ends of two connections, one from each side: those of `near`,
    /// then those of `far`.
    fn segments(&self, v6: bool) -> [[i32; 2]; 2] {
        let address = |host: u8| -> IpAddr {
            let text = if v6 { format!("fd01::{host}") } else { format!("10.1.0.{host}") };
            text.parse().unwrap()
        };
        let [out, back] = [(&self.near, &self.far, address(2)), (&self.far, &self.near, address(1))].map(
            |(from, to, address)| {
                let listener = to.run(|| TcpListener::bind(SocketAddr::new(address, 0)).unwrap());
                let client = from.run(|| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
                let (server, _) = listener.accept().unwrap();
                [segment_max(&client), segment_max(&server)]
            },
        );
        [[out[0], back[1]], [out[1], back[0]]]
    }
}

/// The longest segment that a connected socket sends, without options.
fn segment_max(stream: &TcpStream) -> i32 {
    let (mut value, mut length) = (0_i32, size_of::<i32>() as libc::socklen_t);
    let to = (&raw mut value).cast();
    // SAFETY: value and length outlive the call, and the length is that of the value.
    let result = unsafe {
        libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_MAXSEG, to, &raw mut length)
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    value
}

/// Bytes of the timestamps in each segment.
const TIMESTAMPS: i32 = 12;
const FULL_V4: [i32; 2] = [MTU as i32 - 40 - TIMESTAMPS; 2];
const FULL_V6: [i32; 2] = [MTU as i32 - 60 - TIMESTAMPS; 2];

fn limit(network: &str, bytes: u16) -> SegmentLimit {
    SegmentLimit { network: network.parse().unwrap(), bytes }
}

#[test]
fn segments_toward_the_networks_are_limited_whoever_connects() {
    let Some(cable) = Cable::lay("limits on segments") else { return };
    cable.near.run(|| probe().unwrap());
    let none = [[FULL_V4, FULL_V4], [FULL_V6, FULL_V6]];
    assert_eq!([cable.segments(false), cable.segments(true)], none);
    let limits = [limit("10.9.0.0/16", 600), limit("10.1.0.0/22", 1_000), limit("fd01::/61", 900)];
    let mut clamp = cable.install(&limits, Ownership::Auto);
    let limited = |v4, v6| [[[v4 - TIMESTAMPS; 2], FULL_V4], [[v6 - TIMESTAMPS; 2], FULL_V6]];
    assert_eq!([cable.segments(false), cable.segments(true)], limited(1_000, 900));
    assert!(clamp.is_present().unwrap());
    clamp.replace(&[limit("0.0.0.0/0", 1_100), limit("::/0", 1_200)]).unwrap();
    assert_eq!([cable.segments(false), cable.segments(true)], limited(1_100, 1_200));
    assert!(clamp.is_present().unwrap());
    // A limit above what a host states changes nothing, and a network of one address is a network.
    clamp.replace(&[limit("10.1.0.2/32", 9_000), limit("fd01::2/128", 700)]).unwrap();
    assert_eq!([cable.segments(false), cable.segments(true)], limited(1_460, 700));
    drop(clamp);
    assert_eq!([cable.segments(false), cable.segments(true)], none);
}

#[test]
fn the_largest_table_fits_into_one_batch() {
    let Some(cable) = Cable::lay("the largest table of limits") else { return };
    let many: Vec<SegmentLimit> =
        (0..64 * 60_u32).map(|n| limit(&format!("10.{}.{}.0/24", 2 + n / 256, n % 256), 1_000)).collect();
    let mut clamp = cable.install(&many, Ownership::Auto);
    clamp.replace(&many).unwrap();
    assert!(clamp.is_present().unwrap());
    assert_eq!(cable.segments(false), [FULL_V4, FULL_V4]);
}

#[test]
fn a_table_that_was_left_is_replaced_and_one_of_another_process_is_not() {
    let Some(cable) = Cable::lay("tables of limits that were left") else { return };
    let limited = |bytes: i32| [[bytes - TIMESTAMPS; 2], FULL_V4];
    // A killed process leaves such a table where tables have no owner.
    std::mem::forget(cable.install(&[limit("10.1.0.0/24", 800)], Ownership::None));
    assert_eq!(cable.segments(false), limited(800));
    let clamp = cable.install(&[limit("10.1.0.0/24", 700)], Ownership::Auto);
    assert_eq!(cable.segments(false), limited(700));
    let second = cable.near.run(|| SegmentClamp::install(TABLE, &[], Ownership::Auto));
    assert_eq!(second.unwrap_err().raw_os_error(), Some(libc::EPERM), "the table has an owner");
    assert_eq!(cable.segments(false), limited(700));
    drop(clamp);
    assert_eq!(cable.segments(false), [FULL_V4, FULL_V4]);
    // Somebody replaces the table of a process.
    let first = cable.install(&[limit("10.1.0.0/24", 700)], Ownership::None);
    assert!(first.is_present().unwrap());
    drop(cable.install(&[], Ownership::None));
    assert!(!first.is_present().unwrap());
}
