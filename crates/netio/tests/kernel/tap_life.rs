//! Life of taps, and their behaviour besides copying: nothing stays behind, exclusions hold, and losses are
//! counted.

use std::io::{BufRead as _, BufReader, ErrorKind};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::lab::pair::{Pair, config, send_frame};
use aya::programs::tc::{TcError, qdisc_detach_program};
use aya::programs::{SchedClassifier, TcAttachType};
use netio::poll::{Interest, Poller};
use netio::tap::{Attach, Attachment, Captured, Direction, Tap, TapConfig, TapKind};
use netlab::Namespace;

/// Drains the tap and returns direction and payload of the UDP packets with our ports.
fn payloads(tap: &mut Tap, budget: usize) -> (Vec<(Direction, Vec<u8>)>, bool) {
    let mut seen = Vec::new();
    let drained = tap.drain(budget, |captured: Captured<'_>| {
        let transport = if captured.packet[0] >> 4 == 4 { 20 } else { 40 };
        if let [0x1b, 0x59 | 0x5a, 0x1b, 0x59 | 0x5a, rest @ ..] = &captured.packet[transport..] {
            seen.push((captured.direction, rest[4..].to_vec()));
        }
    });
    (seen, drained.unwrap().more)
}

#[test]
fn both_directions_are_drained_in_order_and_within_the_budget() {
    let Some(pair) = Pair::build("order of captures") else { return };
    for mut tap in pair.taps(|_| {}) {
        for version in [4, 6] {
            let (a, b) = pair.sockets(version);
            let mut poller = Poller::new().unwrap();
            poller.add(&tap, 5, Interest::Readable).unwrap();
            let mut buffer = [0; 100];
            let mut expected = Vec::new();
            for n in 0..50_u8 {
                a.send(&[n; 9]).unwrap();
                b.recv(&mut buffer).unwrap();
                b.send(&[n; 5]).unwrap();
                a.recv(&mut buffer).unwrap();
                expected.push((Direction::Outgoing, vec![n; 9]));
                expected.push((Direction::Incoming, vec![n; 5]));
            }
            assert!(poller.wait(Some(Duration::from_secs(5))).unwrap().any(|ready| ready.token == 5));
            let mut seen = Vec::new();
            loop {
                let (some, more) = payloads(&mut tap, 7);
                assert!(some.len() <= 7);
                seen.extend(some);
                if !more {
                    break;
                }
            }
            assert!(seen == expected, "{tap:?}: {} captures in another order or number", seen.len());
            assert_eq!(tap.dropped(), 0);
            assert!(tap.counts().captured >= 100);
        }
    }
}

#[test]
fn other_networks_and_excluded_ends_are_not_captured() {
    let Some(pair) = Pair::build("exclusion") else { return };
    let far: Vec<SocketAddr> = ["10.9.0.2:7002", "[fd09::2]:7002"].map(|end| end.parse().unwrap()).to_vec();
    let near: Vec<SocketAddr> = ["10.9.0.1:7001", "[fd09::1]:7001"].map(|end| end.parse().unwrap()).to_vec();
    let exchange = |version| {
        let (a, b) = pair.sockets(version);
        a.send(b"there").unwrap();
        b.recv(&mut [0; 9]).unwrap();
        b.send(b"back").unwrap();
        a.recv(&mut [0; 9]).unwrap();
    };
    let excluding: Vec<Tap> = pair.taps(|config| config.exclude = far.clone()).collect();
    let near_excluded: Vec<Tap> = pair.taps(|config| config.exclude = near.clone()).collect();
    let elsewhere = |config: &mut TapConfig| {
        config.outgoing_to = vec!["10.9.0.3/32".parse().unwrap(), "fd09::8/125".parse().unwrap()];
        config.incoming_from = vec!["10.9.0.128/25".parse().unwrap()];
    };
    let other_networks: Vec<Tap> = pair.taps(elsewhere).collect();
    exchange(4);
    exchange(6);
    for mut tap in excluding.into_iter().chain(other_networks) {
        assert_eq!(payloads(&mut tap, 1000).0, [], "{tap:?}");
    }
    for mut tap in near_excluded {
        assert_eq!(payloads(&mut tap, 1000).0.len(), 4, "{tap:?}: only far ends are excluded");
    }
}

#[test]
fn captures_that_do_not_fit_are_counted_and_traffic_continues() {
    let Some(pair) = Pair::build("full buffers") else { return };
    for mut tap in pair.taps(|config| config.buffer_bytes = 256 << 10) {
        let (a, b) = pair.sockets(4);
        for _ in 0..2000 {
            a.send(&[7; 1400]).unwrap();
            b.recv(&mut [0; 1500]).unwrap();
        }
        let full = tap.counts().full;
        let (seen, _) = payloads(&mut tap, 10_000);
        assert!(full > 0 && !seen.is_empty(), "{tap:?}: {full} and {}", seen.len());
        // address resolution may add a few packets
        assert!((2000..2020).contains(&(seen.len() as u64 + full)), "{tap:?}: {full} and {}", seen.len());
        // after draining, packets fit again
        a.send(&[8; 9]).unwrap();
        assert_eq!(payloads(&mut tap, 10).0, [(Direction::Outgoing, vec![8; 9])]);
        assert_eq!(tap.dropped(), full);
    }
}

const BURSTS: [usize; 6] = [1, 3, 300, 40, 1, 120];
const BURST_COUNT: usize = 250;
/// Longest wait for a packet.
const STEP: Duration = Duration::from_secs(3);
/// Time without a packet after which one is lost.
const SILENT_MAX: Duration = Duration::from_secs(60);

/// Ends the sending thread, even if an assertion fails.
struct SetOnDrop<'f>(&'f AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn every_packet_wakes_the_reader_at_any_rate() {
    let Some(pair) = Pair::build("waking") else { return };
    for (mut tap, wake_us) in [0, 50, 2000]
        .into_iter()
        .flat_map(|wake_us| pair.taps(move |config| config.wake_us = wake_us).map(move |tap| (tap, wake_us)))
    {
        let (a, _b) = pair.sockets(4);
        let (seen, ended) = (&AtomicUsize::new(0), &AtomicBool::new(false));
        std::thread::scope(|scope| {
            // Each burst is sent only after the one before was seen completely, so a missed wake-up shows.
            scope.spawn(move || {
                let mut sent = 0;
                for (burst, packets) in BURSTS.into_iter().cycle().take(BURST_COUNT).enumerate() {
                    for _ in 0..packets {
                        a.send(&[1; 20]).unwrap();
                    }
                    sent += packets;
                    while seen.load(Ordering::Acquire) < sent && !ended.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                    std::thread::sleep(Duration::from_micros([0, 0, 10, 900, 2500][burst % 5]));
                }
            });
            let mut poller = Poller::new().unwrap();
            poller.add(&tap, 1, Interest::Readable).unwrap();
            let all = BURSTS.into_iter().cycle().take(BURST_COUNT).sum();
            let _ended = SetOnDrop(ended);
            let mut silent = Duration::ZERO;
            while seen.load(Ordering::Acquire) < all {
                let ready = poller.wait(Some(STEP)).unwrap().count();
                let (packets, _) = payloads(&mut tap, 100);
                let missed = ready == 0 && !packets.is_empty();
                assert!(!missed, "{tap:?}, {wake_us} us: {} packets did not wake the reader", packets.len());
                if ready == 0 {
                    silent += STEP;
                } else if !packets.is_empty() {
                    silent = Duration::ZERO;
                }
                let counts = tap.counts();
                assert!(
                    silent < SILENT_MAX,
                    "{tap:?}, {wake_us} us: {seen:?} of {all} were seen, {counts:?}"
                );
                seen.fetch_add(packets.len(), Ordering::AcqRel);
            }
        });
        assert_eq!(tap.dropped(), 0);
    }
}

#[test]
fn a_vlan_tag_is_noted_and_not_part_of_the_packet() {
    let Some(pair) = Pair::build("VLAN tags") else { return };
    for mut tap in pair.taps(|_| {}) {
        for host in [&pair.a, &pair.b] {
            host.run(|| send_frame(&tagged_frame().0));
        }
        let mut seen = Vec::new();
        tap.drain(100, |captured| {
            if captured.packet[0] == 0x45 {
                seen.push((captured.direction, captured.vlan, captured.packet.to_vec()));
            }
        })
        .unwrap();
        let (_, packet) = tagged_frame();
        let expected =
            [(Direction::Outgoing, Some(77), packet.clone()), (Direction::Incoming, Some(77), packet)];
        assert_eq!(seen, expected, "{tap:?}");
    }
}

/// Returns a frame with a VLAN tag, and the packet in it.
fn tagged_frame() -> (Vec<u8>, Vec<u8>) {
    let packet =
        [&[0x45, 0, 0, 40, 0, 1, 0, 0, 9, 253, 0x9d, 0xa9, 10, 9, 0, 5, 10, 9, 0, 6][..], &[3; 20]].concat();
    let frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1], &[0x81, 0, 0, 77, 8, 0], &packet].concat();
    (frame, packet)
}

#[test]
fn without_the_capability_auto_falls_back_to_a_packet_tap() {
    let Some(pair) = Pair::build("falling back") else { return };
    let tap = pair.a.run(|| {
        drop_capabilities();
        Tap::open(&config())
    });
    let tap = tap.unwrap();
    assert_eq!(tap.kind(), TapKind::Packet);
    let reason = tap.fallback_reason().unwrap();
    assert!(reason.contains("not permitted"), "{reason}");
    let refused = pair.a.run(|| {
        drop_capabilities();
        Tap::open(&TapConfig { kind: TapKind::Ebpf, ..config() })
    });
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::PermissionDenied);
}

/// Drops this thread's capabilities except those for packet sockets.
fn drop_capabilities() {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    let header = Header { version: 0x2008_0522, pid: 0 };
    let (net_admin, net_raw) = (1_u32 << 12, 1_u32 << 13);
    // effective, permitted, inheritable; then the same for capabilities from 32 up
    let sets = [net_admin | net_raw, net_admin | net_raw, 0, 0, 0, 0];
    // SAFETY: version 3 takes a header and two triples of sets; both live through the call.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) };
    assert_eq!(result, 0);
}

#[test]
fn an_impossible_configuration_is_refused() {
    let Some(pair) = Pair::build("wrong configurations") else { return };
    for kind in [TapKind::Auto, TapKind::Ebpf, TapKind::Packet] {
        let refused = |config: TapConfig| pair.a.run(|| Tap::open(&config)).unwrap_err();
        let error = refused(TapConfig { kind, interface: "nowhere".to_owned(), ..config() });
        assert!(error.to_string().contains("find interface nowhere"), "{error}");
        let error = refused(TapConfig { kind, buffer_bytes: 1, ..config() });
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}

/// Returns how many of our programs are attached to the interface.
fn attached(host: &Namespace, attach: Attach) -> usize {
    let places = [(TcAttachType::Egress, "undrop_egress"), (TcAttachType::Ingress, "undrop_ingress")];
    let count = |(place, name): (TcAttachType, &str)| match attach {
        Attach::Tcx => SchedClassifier::query_tcx("eth0", place).unwrap().1.len(),
        // clsact filters can only be counted by detaching them
        _ => match qdisc_detach_program("eth0", place, name) {
            Ok(()) => 1,
            Err(TcError::IoError(error)) if error.kind() == ErrorKind::NotFound => 0,
            Err(error) => panic!("{error}"),
        },
    };
    host.run(|| places.into_iter().map(count).sum())
}

#[test]
fn a_dropped_tap_leaves_nothing_attached() {
    let Some(pair) = Pair::build("detaching") else { return };
    for attach in [Attach::Tcx, Attach::Clsact] {
        let set = |config: &mut TapConfig| (config.kind, config.attach) = (TapKind::Ebpf, attach);
        let taps: Vec<Tap> = pair.taps(set).collect();
        if taps.is_empty() {
            return;
        }
        let (a, b) = pair.sockets(4);
        // one tap is closed, by a thread in another namespace; the others stay
        let mut taps = taps.into_iter();
        let mut last = taps.next().unwrap();
        drop(taps);
        a.send(b"still").unwrap();
        b.recv(&mut [0; 9]).unwrap();
        assert_eq!(payloads(&mut last, 10).0.len(), 1, "{attach:?}");
        drop(last);
        // A process that another test starts holds the descriptors for a moment.
        testkit::wait_until("nothing is attached", || attached(&pair.a, attach) == 0);
    }
}

#[test]
fn a_tap_knows_that_its_programs_were_detached() {
    let Some(pair) = Pair::build("detached programs") else { return };
    // A tap may move to another thread, but two threads cannot use it.
    let is_attached = |tap: &mut Tap| {
        pair.a.run(move || {
            let tap = tap;
            tap.attachment().is_none_or(Attachment::is_whole)
        })
    };
    for mut tap in pair.taps(|_| {}) {
        assert!(is_attached(&mut tap), "{tap:?}");
    }
    for attach in [Attach::Tcx, Attach::Clsact] {
        let open = || pair.a.run(|| Tap::open(&TapConfig { kind: TapKind::Ebpf, attach, ..config() }));
        let (Ok(mut tap), Ok(neighbour)) = (open(), open()) else { return };
        drop(neighbour);
        assert!(is_attached(&mut tap), "{attach:?}");
        if attach == Attach::Tcx {
            pair.a.run(|| detach_link(TcAttachType::Ingress));
        } else {
            let mut command = Command::new("tc");
            command.args(["qdisc", "del", "dev", "eth0", "clsact"]);
            assert!(pair.a.run(|| command.status().unwrap()).success());
        }
        assert!(tap.is_alive(), "the interface is there");
        assert!(!is_attached(&mut tap), "{attach:?}");
        drop(tap);
        let mut again = open().unwrap();
        assert!(is_attached(&mut again), "{attach:?}");
    }
}

/// Detaches the program at this hook of the interface as `bpftool link detach` does. The descriptor of the
/// link, which belongs to a tap of this process, stays open.
fn detach_link(place: TcAttachType) {
    const BPF_LINK_DETACH: i32 = 34;
    let (_, programs) = SchedClassifier::query_tcx("eth0", place).unwrap();
    let [program] = &programs[..] else { panic!("expected one program, saw {programs:?}") };
    let of_program = format!("prog_id:\t{}\n", program.id());
    let is_link = |descriptor: &u32| {
        let facts = std::fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).unwrap_or_default();
        facts.contains("link_type:\ttcx\n") && facts.contains(&of_program)
    };
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    let mut numbers =
        descriptors.filter_map(|entry| entry.ok()?.file_name().to_string_lossy().parse::<u32>().ok());
    let link = numbers.find(is_link).expect("a link of this program");
    // SAFETY: the kernel reads the descriptor from the first four bytes, and changes nothing of this process.
    let result = unsafe { libc::syscall(libc::SYS_bpf, BPF_LINK_DETACH, &raw const link, 4) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_killed_process_leaves_nothing_or_the_next_tap_cleans_up() {
    let Some(pair) = Pair::build("killed processes") else { return };
    for attach in [Attach::Tcx, Attach::Clsact] {
        if pair.taps(|_| {}).count() < 3 {
            return;
        }
        let kill = || {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--ignored", "--exact", "--nocapture", "tap_life::child_that_is_killed"]);
            command.env("TAP_ATTACH", format!("{attach:?}")).stdout(Stdio::piped());
            let mut child = pair.a.run(|| command.spawn().unwrap());
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            assert!(lines.map_while(Result::ok).any(|line| line.ends_with("attached")));
            child.kill().unwrap();
            child.wait().unwrap();
        };
        kill();
        if attach == Attach::Tcx {
            // the kernel closes the links after the process has ended
            let gone = (0..100).any(|_| {
                std::thread::sleep(Duration::from_millis(20));
                attached(&pair.a, attach) == 0
            });
            assert!(gone);
            continue;
        }
        assert_eq!(attached(&pair.a, attach), 2, "clsact filters outlive their process");
        kill();
        pair.taps(|_| {}).for_each(drop);
        assert_eq!(attached(&pair.a, attach), 0);
    }
}

#[test]
#[ignore = "child process of another test, which kills it"]
fn child_that_is_killed() {
    let attach = match std::env::var("TAP_ATTACH").as_deref() {
        Ok("Tcx") => Attach::Tcx,
        Ok("Clsact") => Attach::Clsact,
        _ => return,
    };
    let _tap = Tap::open(&TapConfig { kind: TapKind::Ebpf, attach, ..config() }).unwrap();
    println!("\nattached");
    std::thread::sleep(Duration::from_secs(60));
}
