//! TUN devices between two real kernels: TCP and UDP pass as super-packets, cut, and rejoined.

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use netio::coalesce::Coalescer;
use netio::poll::{Interest, Poller};
use netio::segment::cut;
use netio::tun::{BUFFER_LEN, Tun, TunOptions};
use netio::udp::RepairSocket;
use netio::{Gso, Offload};
use netlab::Namespace;
use netlab::namespace::Route;
use netlab::traffic::{Between, Direction, TcpTransfer, tcp_transfer, unwatched};

/// Form in which packets pass from one device to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handing {
    /// Super-packets as received.
    Whole,
    /// Cut into single packets.
    Cut,
    /// Cut and rejoined.
    Joined,
    /// Between devices without offloads.
    Plain,
}

struct Ends {
    hosts: [Namespace; 2],
    devices: [Tun; 2],
}

impl Ends {
    fn build(handing: Handing) -> Self {
        let hosts = ["a", "b"].map(|label| Namespace::create(label).unwrap());
        let options = TunOptions {
            offload: handing != Handing::Plain,
            mtu: Some(1400),
            transmit_queue: Some(10_000),
            up: true,
        };
        let devices = [0, 1].map(|end: usize| hosts[end].run(|| Tun::open("tun%d", &options).unwrap()));
        for (end, host) in hosts.iter().enumerate() {
            let (near, far) = (end + 1, 2 - end);
            assert_eq!(devices[end].name(), "tun0");
            assert_eq!(devices[end].interface().mtu().unwrap(), 1400);
            host.add_address("tun0", format!("10.{near}.0.1/24").parse().unwrap()).unwrap();
            host.add_address("tun0", format!("fd0{near}::1/64").parse().unwrap()).unwrap();
            for network in [format!("10.{far}.0.0/24"), format!("fd0{far}::/64")] {
                host.add_route(&Route::to(network.parse().unwrap()).interface("tun0")).unwrap();
            }
        }
        Self { hosts, devices }
    }
}

/// Carries packets both ways until `stop` is set, and counts super-packets by kind.
fn carry(devices: &[Tun; 2], handing: Handing, stop: &AtomicBool, supers: &[AtomicUsize; 2]) {
    let mut poller = Poller::new().unwrap();
    for (end, device) in devices.iter().enumerate() {
        poller.add(device, end as u64, Interest::Readable).unwrap();
    }
    let mut joiner = Coalescer::new(devices[0].takes_udp_segments());
    let (mut buffer, mut scratch) = (vec![0; BUFFER_LEN], vec![0; BUFFER_LEN]);
    while !stop.load(Ordering::Relaxed) {
        poller.wait(Some(Duration::from_millis(50))).unwrap().for_each(drop);
        for end in [0, 1] {
            let (from, to) = (&devices[end], &devices[1 - end]);
            let mut write = |offload: &Offload, packet: &[u8]| {
                // headers in a piece of their own, as from a program that builds packets
                let (headers, payload) = packet.split_at(packet.len().min(100));
                to.send_super(offload, &[IoSlice::new(headers), IoSlice::new(payload)]).unwrap();
            };
            while let Some((offload, packet)) = from.recv(&mut buffer).unwrap() {
                match offload.gso {
                    Gso::None => {}
                    Gso::Tcp4 | Gso::Tcp6 => drop(supers[0].fetch_add(1, Ordering::Relaxed)),
                    Gso::Udp4 | Gso::Udp6 => drop(supers[1].fetch_add(1, Ordering::Relaxed)),
                    Gso::Unknown => panic!("expected an enabled offload, saw another"),
                }
                match handing {
                    Handing::Whole => write(&offload, packet),
                    Handing::Cut | Handing::Plain => {
                        let sent = cut(packet, &offload, &mut scratch, |packet| {
                            to.send(packet).unwrap();
                        });
                        sent.unwrap();
                    }
                    Handing::Joined => {
                        cut(packet, &offload, &mut scratch, |packet| joiner.push(packet, &mut write))
                            .unwrap();
                    }
                }
            }
            joiner.flush(&mut write);
        }
    }
}

fn traffic([a, b]: &[Namespace; 2]) {
    for address in ["10.2.0.1", "fd02::1"] {
        let address: IpAddr = address.parse().unwrap();
        let between = Between { from: a, to: b, address };
        let plan = TcpTransfer {
            congestion: Some("cubic".to_owned()),
            duration: Duration::from_millis(200),
            least_bytes: 100_001,
            direction: Direction::Both,
            verify: true,
            ..TcpTransfer::default()
        };
        let report = tcp_transfer(between, &plan, &mut unwatched).unwrap();
        assert_eq!(report.mismatch, None);
        assert!(report.forward.received_bytes() > 100_000 && report.backward.received_bytes() > 100_000);
        datagrams(a, b, address);
    }
}

fn datagrams(a: &Namespace, b: &Namespace, address: IpAddr) {
    let bind = |host: &Namespace, address: IpAddr| {
        host.run(|| RepairSocket::bind(SocketAddr::new(address, 0)).unwrap())
    };
    let any: IpAddr = if address.is_ipv4() { "0.0.0.0" } else { "::" }.parse().unwrap();
    let (mut source, mut sink) = (bind(a, any), bind(b, address));
    let to = sink.local_address().unwrap();
    let sent: Vec<Vec<u8>> = (0..100_usize).map(|n| vec![n as u8; 1200 - n / 99 * 700]).collect();
    assert_eq!(source.send(sent.iter().map(|datagram| (to, &datagram[..]))), 0);
    let mut poller = Poller::new().unwrap();
    poller.add(&sink, 1, Interest::Readable).unwrap();
    let mut got = Vec::new();
    while got.len() < sent.len() {
        assert!(poller.wait(Some(Duration::from_secs(10))).unwrap().count() > 0, "{} came", got.len());
        sink.recv(|_, datagram| got.push(datagram.to_vec())).unwrap();
    }
    assert!(got == sent, "expected the datagrams whole and in order");
}

/// Ends the carrying thread, even if an assertion fails.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn passes(handing: Handing) {
    if !netlab::privilege::available_or_skip(&format!("TUN devices, packets handed {handing:?}")) {
        return;
    }
    let Ends { hosts, devices } = Ends::build(handing);
    let (stop, supers) = (AtomicBool::new(false), [const { AtomicUsize::new(0) }; 2]);
    std::thread::scope(|scope| {
        scope.spawn(|| carry(&devices, handing, &stop, &supers));
        let _stop = Stop(&stop);
        traffic(&hosts);
    });
    let [tcp, udp] = supers.map(AtomicUsize::into_inner);
    assert_eq!(tcp > 0, handing != Handing::Plain);
    assert_eq!(udp > 0, devices[0].takes_udp_segments());
    let name = devices[0].name().to_owned();
    assert!(hosts[0].interfaces().unwrap().contains(&name));
    drop(devices);
    // A process that another test starts holds the descriptor for a moment.
    testkit::wait_until("the device ends with its descriptor", || {
        !hosts[0].interfaces().unwrap().contains(&name)
    });
}

#[test]
fn super_packets_pass_whole() {
    passes(Handing::Whole);
}

#[test]
fn super_packets_pass_cut() {
    passes(Handing::Cut);
}

#[test]
fn super_packets_pass_cut_and_rejoined() {
    passes(Handing::Joined);
}

#[test]
fn plain_devices_pass_plain_packets() {
    passes(Handing::Plain);
}
