//! Three hosts in a row: `a` is joined by a cable to the router `r`, and `r` by a simulated wire to `b`.
//!
//! ```text
//! a eth0 ──cable── eth0 r tun0 ──(Wire: read, recorded, written)── tun0 b
//!                         tun1 ◄─ return traffic, joined to super-packets
//! ```
//!
//! The wire's TUN devices accept no super-packets, so the kernel itself cut and finished what is read from
//! them. These packets are the reference for captures.

#![allow(dead_code, reason = "each test file takes a part of it")]

pub(crate) mod groups;
pub(crate) mod pair;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ipnet::IpNet;
use netio::coalesce::Coalescer;
use netio::poll::{Interest, Poller};
use netio::tap::{Captured, Direction, Tap, TapConfig};
use netio::tun::{BUFFER_LEN, Tun, TunOptions};
use netio::{Gso, Offload, segment};
use netlab::Namespace;
use netlab::namespace::Route;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

pub(crate) const MTU: u32 = 1300;

pub(crate) fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// Returns the networks behind `a` and `b`.
pub(crate) fn near() -> Vec<IpNet> {
    vec![net("10.1.0.0/24"), net("fd01::/64")]
}

pub(crate) fn far() -> Vec<IpNet> {
    vec![net("10.2.0.0/24"), net("fd02::/64")]
}

pub(crate) struct Lab {
    pub(crate) a: Namespace,
    pub(crate) r: Namespace,
    pub(crate) b: Namespace,
    wire: Option<Wire>,
}

/// Offloads of the two ends of the cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offloads {
    /// The ends pass super-packets.
    On,
    /// The ends pass single finished packets.
    Off,
    /// As `Off`, but `a` merges what it receives (GRO).
    Merging,
    /// As `Merging`, and all TCP segments from `b` carry identification 0.
    MergingFixedIds,
}

impl Lab {
    /// Builds the hosts; fails if this user lacks the rights for these offloads.
    pub(crate) fn build(offloads: Offloads) -> io::Result<Self> {
        let offload = offloads == Offloads::On;
        let [a, r, b] = ["a", "r", "b"].map(|label| Namespace::create(label).unwrap());
        a.add_veth("eth0", &r, "eth0", MTU).unwrap();
        let [out, back] = ["tun0", "tun1"].map(|name| {
            let offload = name == "tun1" && offload;
            r.run(|| Tun::open(name, &tun_options(offload)).unwrap())
        });
        let end = b.run(|| Tun::open("tun0", &tun_options(false)).unwrap());
        for (namespace, interface, address) in
            [(&a, "eth0", "10.1.0.1/24"), (&r, "eth0", "10.1.0.254/24"), (&b, "tun0", "10.2.0.1/24")]
        {
            namespace.add_address(interface, net(address)).unwrap();
            namespace.add_address(interface, net(&six(address))).unwrap();
        }
        for (network, gateway) in [("10.2.0.0/24", "10.1.0.254"), ("fd02::/64", "fd01::254")] {
            a.add_route(&Route::to(net(network)).via(gateway.parse().unwrap())).unwrap();
            r.add_route(&Route::to(net(network)).interface("tun0")).unwrap();
        }
        for network in near() {
            b.add_route(&Route::to(network).interface("tun0")).unwrap();
        }
        for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
            r.sysctl(key, "1").unwrap();
        }
        // return traffic arrives by another device
        for interface in ["all", "tun1"] {
            r.sysctl(&format!("net.ipv4.conf.{interface}.rp_filter"), "0").unwrap();
        }
        if !offload {
            for end in [&a, &r] {
                end.run(|| switch_offloads_off("eth0").unwrap());
            }
        }
        if matches!(offloads, Offloads::Merging | Offloads::MergingFixedIds) {
            a.run(|| switch("eth0", MERGING, true).and_then(|()| wait_before_merging("eth0")))?;
        }
        Ok(Self { a, r, b, wire: Some(Wire::lay(out, back, end, offloads)) })
    }

    /// Waits until the wire is idle and returns all that passed over it. The caller looks for packets that
    /// devices dropped before the wire.
    pub(crate) fn finish(&mut self) -> Recording {
        self.wire.take().expect("finished once").finish()
    }
}

/// `10.N.0.H/24` as `fd0N::H/64`.
fn six(four: &str) -> String {
    let address = four.split('/').next().unwrap();
    let numbers: Vec<&str> = address.split('.').collect();
    format!("fd0{}::{}/64", numbers[1], numbers[3])
}

fn tun_options(offload: bool) -> TunOptions {
    // every packet that a tap saw must reach the wire
    TunOptions { offload, mtu: Some(MTU), transmit_queue: Some(100_000), up: true }
}

/// Packets by content, with their number.
pub(crate) type Packets = BTreeMap<Vec<u8>, usize>;

/// Packets on the wire between the protected networks.
#[derive(Default)]
pub(crate) struct Recording {
    pub(crate) outgoing: Packets,
    pub(crate) incoming: Packets,
}

impl Recording {
    fn add(&mut self, direction: Direction, packet: &[u8]) {
        let (near, far) = match direction {
            Direction::Outgoing => (16, 24),
            Direction::Incoming => (12, 8),
        };
        // of the far network, which the taps capture
        let named = match packet[0] >> 4 {
            4 => packet[near..near + 3] == [10, 2, 0],
            _ => packet[far..far + 2] == [0xfd, 0x02],
        };
        if named {
            let packets = match direction {
                Direction::Outgoing => &mut self.outgoing,
                Direction::Incoming => &mut self.incoming,
            };
            *packets.entry(comparable(packet)).or_default() += 1;
        }
    }
}

/// Returns a packet without the fields that routers change. A TCP checksum of zero has two spellings.
pub(crate) fn comparable(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let (protocol, transport) = if packet[0] >> 4 == 4 {
        packet[8] = 0;
        packet[10..12].fill(0);
        let fragment = packet[6] & 0x1f != 0 || packet[7] != 0;
        (if fragment { 0 } else { packet[9] }, usize::from(packet[0] & 15) * 4)
    } else {
        packet[7] = 0;
        (packet[6], 40)
    };
    if protocol == 6 && packet[transport + 16..transport + 18] == [0xff, 0xff] {
        packet[transport + 16..transport + 18].fill(0);
    }
    packet
}

struct Wire {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Recording>,
}

impl Wire {
    fn lay(out: Tun, back: Tun, end: Tun, offloads: Offloads) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut recording = Recording::default();
            let mut poller = Poller::new().unwrap();
            poller.add(&out, 0, Interest::Readable).unwrap();
            poller.add(&end, 1, Interest::Readable).unwrap();
            let mut joiner = Coalescer::new(back.takes_udp_segments());
            let mut buffer = vec![0; BUFFER_LEN];
            let mut quiet = 0;
            while quiet < 3 || !stopped.load(Ordering::Relaxed) {
                let ready = poller.wait(Some(Duration::from_millis(100))).unwrap().count();
                quiet = if ready > 0 { 0 } else { quiet + 1 };
                for _ in 0..64 {
                    let Some((_, packet)) = out.recv(&mut buffer).unwrap() else { break };
                    recording.add(Direction::Outgoing, packet);
                    end.send(packet).unwrap();
                }
                let mut write = |offload: &Offload, packet: &[u8]| {
                    back.send_super(offload, &[io::IoSlice::new(packet)]).unwrap();
                };
                for _ in 0..64 {
                    let Some((_, packet)) = end.recv(&mut buffer).unwrap() else { break };
                    if offloads == Offloads::MergingFixedIds {
                        clear_id(packet);
                    }
                    recording.add(Direction::Incoming, packet);
                    if offloads == Offloads::On {
                        joiner.push(packet, &mut write);
                    } else {
                        back.send(packet).unwrap();
                    }
                }
                joiner.flush(&mut write);
            }
            recording
        });
        Self { stop, thread }
    }

    fn finish(self) -> Recording {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// A tap that collects its captures, cut into wire packets.
pub(crate) struct Collector {
    pub(crate) name: String,
    pub(crate) tap: Tap,
    pub(crate) outgoing: Packets,
    pub(crate) incoming: Packets,
    pub(crate) supers: [usize; 2],
    pub(crate) refused: usize,
    /// Super-packets of each kind, by what the kernel reported of their segments: their number, or nothing
    /// (0, or 1 for several). A wrong number is refused.
    pub(crate) counted: BTreeMap<(&'static str, &'static str), [usize; 2]>,
    scratch: Vec<u8>,
}

impl Collector {
    pub(crate) fn open(name: &str, place: &Namespace, config: &TapConfig) -> io::Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            tap: place.run(|| Tap::open(config))?,
            outgoing: Packets::new(),
            incoming: Packets::new(),
            supers: [0; 2],
            refused: 0,
            counted: BTreeMap::new(),
            scratch: vec![0; BUFFER_LEN],
        })
    }

    /// Drains the tap and returns whether anything waited.
    pub(crate) fn collect(&mut self) -> bool {
        let Self { tap, outgoing, incoming, supers, refused, counted, scratch, .. } = self;
        let drained = tap.drain(usize::MAX, |captured: Captured<'_>| {
            let (packets, supers) = match captured.direction {
                Direction::Outgoing => (&mut *outgoing, &mut supers[0]),
                Direction::Incoming => (&mut *incoming, &mut supers[1]),
            };
            if captured.offload.is_super() {
                *supers += 1;
                let said = usize::from(captured.offload.segment_count < 2);
                counted.entry(kind(captured.direction, captured.offload.gso)).or_default()[said] += 1;
            }
            let cut = segment::cut(captured.packet, &captured.offload, scratch, |packet| {
                *packets.entry(comparable(packet)).or_default() += 1;
            });
            *refused += usize::from(cut.is_err());
        });
        drained.unwrap().packets > 0
    }
}

fn kind(direction: Direction, gso: Gso) -> (&'static str, &'static str) {
    let direction = if direction == Direction::Outgoing { "out" } else { "in" };
    let gso = match gso {
        Gso::Tcp4 => "TCP over IPv4",
        Gso::Tcp6 => "TCP over IPv6",
        Gso::Udp4 => "UDP over IPv4",
        Gso::Udp6 => "UDP over IPv6",
        _ => "another",
    };
    (direction, gso)
}

/// Sets identification 0 in a "don't fragment" TCP segment, as some systems send it.
fn clear_id(packet: &mut [u8]) {
    if packet[0] == 0x45 && packet[6] == 0x40 && packet[9] == 6 {
        packet[4..6].fill(0);
        packet[10..12].fill(0);
        let sum = netio::checksum::Sum::of(&packet[..20]).finish();
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

// linux/ethtool.h
const CHECKSUMS: u32 = 0x17;
const SCATTER: u32 = 0x19;
const SEGMENTS: u32 = 0x24;
pub(crate) const MERGING: u32 = 0x2c;

/// Makes the kernel segment packets and compute checksums before they reach the device.
pub(crate) fn switch_offloads_off(interface: &str) -> io::Result<()> {
    [CHECKSUMS, SCATTER, SEGMENTS].into_iter().try_for_each(|command| switch(interface, command, false))
}

/// Makes the kernel wait briefly for further packets to merge; a cable delivers single packets.
pub(crate) fn wait_before_merging(interface: &str) -> io::Result<()> {
    let device = format!("class/net/{interface}");
    write_sysfs(&[
        (&format!("{device}/napi_defer_hard_irqs"), "10"),
        (&format!("{device}/gro_flush_timeout"), "200000"),
    ])
}

/// Writes to a sysfs of this namespace, which only this thread sees.
pub(crate) fn write_sysfs(values: &[(&str, &str)]) -> io::Result<()> {
    let nothing: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing)?;
    mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), nothing)?;
    values.iter().try_for_each(|(path, value)| std::fs::write(format!("/sys/{path}"), value))
}

pub(crate) fn switch(interface: &str, command: u32, on: bool) -> io::Result<()> {
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    let mut value = Value { command, data: u32::from(on) };
    // SAFETY: all fields are numbers and pointers, for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *slot = byte.cast_signed();
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: SIOCETHTOOL with these commands reads an ethtool_value behind the pointer; both live through
    // the call.
    if unsafe { libc::ioctl(socket.as_raw_fd(), 0x8946, &raw mut request) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
