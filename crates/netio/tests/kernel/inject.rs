//! Packets written to a TUN device arrive by another interface, and no tap of ours takes them for arrivals.

use std::io::{self, BufRead as _, BufReader, ErrorKind};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::lab::pair::{Pair, config, skipped};
use aya::programs::TcAttachType;
use aya::programs::tc::{TcError, qdisc_detach_program};
use netio::inject::{Injector, Signs};
use netio::tap::{Attach, Direction, Tap, TapConfig, TapKind};
use netio::tun::{Tun, TunOptions};
use testkit::{wait_for, wait_until};

/// Opens the device. A process that another test starts holds an earlier one for a moment.
fn tun() -> Tun {
    let open = || Tun::open("inject0", &TunOptions { up: true, ..TunOptions::default() });
    let is_free =
        |opened: &io::Result<Tun>| !matches!(opened, Err(error) if error.kind() == ErrorKind::ResourceBusy);
    wait_for(|| Some(open()).filter(is_free)).expect("the device stays busy").unwrap()
}

fn signs() -> Signs {
    Signs::new([3; 16])
}

/// Returns a UDP packet from `b` to port 7001 of `a`, without a checksum where that is allowed.
fn packet(version: u8, content: &[u8]) -> Vec<u8> {
    let (length, from, to) = (8 + content.len() as u16, 7002_u16.to_be_bytes(), 7001_u16.to_be_bytes());
    let mut udp: Vec<u8> = [from, to, length.to_be_bytes(), [0, 0]].concat();
    udp.extend_from_slice(content);
    let sum = |bytes: &[u8]| -> u32 {
        bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |&low| low.into())).sum()
    };
    let fold = |sum: u32| !(((sum & 0xffff) + (sum >> 16)) as u16);
    if version == 4 {
        let mut packet = vec![0x45, 0, 0, 20 + length as u8, 0, 1, 0x40, 0, 64, 17, 0, 0];
        packet.extend_from_slice(&[10, 9, 0, 2, 10, 9, 0, 1]);
        let checksum = fold(sum(&packet)).to_be_bytes();
        packet[10..12].copy_from_slice(&checksum);
        packet.extend_from_slice(&udp);
        return packet;
    }
    let mut packet = vec![0x60, 0, 0, 0, 0, length as u8, 17, 64];
    for host in [2, 1] {
        packet.extend_from_slice(&[0xfd, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    }
    let checksum = fold(sum(&packet[8..]) + u32::from(length) + 17 + sum(&udp)).to_be_bytes();
    udp[6..8].copy_from_slice(&checksum);
    packet.extend_from_slice(&udp);
    packet
}

fn assert_passed_over(tap: &mut Tap) {
    let name = format!("{tap:?}");
    tap.drain(1000, |captured| {
        // a packet that found no socket is returned within an ICMP message
        let is_ours = captured.direction == Direction::Incoming && captured.packet.ends_with(b"recovered");
        assert!(!is_ours, "{name} took it for an arrival: {captured:?}");
    })
    .unwrap();
}

#[test]
fn an_injected_packet_arrives_by_the_other_interface_and_is_no_capture() {
    let Some(pair) = Pair::build("injection") else { return };
    let kinds =
        [(TapKind::Ebpf, Attach::Tcx), (TapKind::Ebpf, Attach::Clsact), (TapKind::Packet, Attach::Auto)];
    for (kind, tap_way) in kinds {
        // clsact filters come after all TCX programs, so tap and injector are attached alike
        let ways = if kind == TapKind::Ebpf { vec![tap_way] } else { vec![Attach::Tcx, Attach::Clsact] };
        for way in ways {
            pair.a.run(|| {
                let tun = tun();
                let tapped = TapConfig { kind, attach: tap_way, pass_over: Some(signs().mark()), ..config() };
                let mut tap = match Tap::open(&tapped) {
                    Ok(tap) => tap,
                    Err(error) => return skipped(&format!("injection beside {kind}: {error}")),
                };
                let injector = match Injector::open(&tun, "eth0", signs(), Some(&tap), way) {
                    Ok(injector) => injector,
                    Err(error) => return skipped(&format!("injection: {error}")),
                };
                let socket = UdpSocket::bind("[::]:7001").unwrap();
                socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                // accepts only what arrives by eth0
                socket2::SockRef::from(&socket).bind_device(Some(b"eth0")).unwrap();
                assert!(injector.send_probe(&tun).unwrap());
                wait_until("the probe arrives", || injector.probes() == 1);
                for version in [4, 6] {
                    assert!(tun.send(&packet(version, b"recovered")).unwrap());
                    let mut buffer = [0; 64];
                    let (len, _) = socket.recv_from(&mut buffer).unwrap();
                    assert_eq!(&buffer[..len], b"recovered", "{kind:?} {way:?} IPv{version}");
                }
                assert_eq!((injector.arrived(), injector.refused(), injector.probes()), (2, 0, 1));
                assert_passed_over(&mut tap);
            });
        }
    }
}

/// A later tap comes first again, so that it sees the mark.
#[test]
fn a_tap_that_is_opened_later_passes_injected_packets_over() {
    let Some(pair) = Pair::build("injection before a tap") else { return };
    for kind in [TapKind::Ebpf, TapKind::Packet] {
        pair.a.run(|| {
            let tun = tun();
            let Ok(injector) = Injector::open(&tun, "eth0", signs(), None, Attach::Auto) else {
                return skipped("injection before a tap");
            };
            let tapped = TapConfig { kind, pass_over: Some(signs().mark()), ..config() };
            let mut taps = [Tap::open(&tapped).unwrap(), Tap::open(&tapped).unwrap()];
            // a second injector, as after the loss of the TUN device
            drop(injector);
            let injector = Injector::open(&tun, "eth0", signs(), Some(&taps[0]), Attach::Auto).unwrap();
            assert!(tun.send(&packet(4, b"recovered")).unwrap());
            wait_until("the packet arrives", || injector.arrived() == 1);
            taps.iter_mut().for_each(assert_passed_over);
        });
    }
}

#[test]
fn a_plain_packet_with_the_address_of_a_probe_is_not_taken_for_one() {
    let Some(pair) = Pair::build("probes") else { return };
    pair.a.run(|| {
        let tun = tun();
        let Ok(injector) = Injector::open(&tun, "eth0", signs(), None, Attach::Auto) else {
            return skipped("probes");
        };
        assert!(tun.send(&packet(4, &[0; 0])).unwrap());
        wait_until("the packet arrives", || injector.arrived() == 1);
        assert_eq!(injector.probes(), 0);
    });
}

/// Filters of clsact outlive a killed process. They remove a mark that nobody sets, and the next start
/// removes them.
#[test]
fn what_a_killed_process_leaves_is_removed_by_the_next_injector() {
    let Some(pair) = Pair::build("a killed injector") else { return };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "--nocapture", "inject::child_that_is_killed"]);
    let mut child = pair.a.run(|| command.stdout(Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let is_attached = lines.map_while(Result::ok).any(|line| line.ends_with("attached"));
    child.kill().unwrap();
    child.wait().unwrap();
    if !is_attached {
        return skipped("a killed injector: its programs cannot be attached");
    }
    pair.a.run(|| {
        let (tun, signs) = (tun(), Signs::new([9; 16]));
        let injector = Injector::open(&tun, "eth0", signs, None, Attach::Clsact).unwrap();
        assert!(injector.send_probe(&tun).unwrap());
        wait_until("the probe arrives", || injector.probes() == 1);
        assert!(tun.send(&packet(4, b"recovered")).unwrap());
        wait_until("the packet arrives", || injector.arrived() == 1);
        drop(injector);
        let left = qdisc_detach_program("eth0", TcAttachType::Ingress, "undrop_arrive");
        assert!(matches!(left, Err(TcError::IoError(error)) if error.kind() == ErrorKind::NotFound));
    });
}

#[test]
#[ignore = "child process of another test, which kills it"]
fn child_that_is_killed() {
    let tun = tun();
    let opened = Injector::open(&tun, "eth0", signs(), None, Attach::Clsact);
    println!("\n{}", if opened.is_ok() { "attached" } else { "refused" });
    std::thread::sleep(Duration::from_secs(if opened.is_ok() { 60 } else { 0 }));
}
