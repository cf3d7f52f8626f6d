//! What a tap could not capture is told by direction, and what does not matter is kept apart.

mod lab;

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use lab::pair::{Pair, send_frame, skipped};
use netio::tap::{Missed, Tap, TapKind};
use netlab::Namespace;
use netlab::traffic::{Between, Direction, TcpTransfer, tcp_transfer, unwatched};

#[test]
fn what_meets_a_full_buffer_is_missed_in_its_direction() {
    let Some(pair) = Pair::build("full buffers by direction") else { return };
    for outgoing in [true, false] {
        for tap in pair.taps(|config| config.buffer_bytes = 256 << 10) {
            assert_eq!(tap.missed(), Missed::default());
            let (a, b) = pair.sockets(4);
            let (from, to) = if outgoing { (a, b) } else { (b, a) };
            for _ in 0..1000 {
                from.send(&[7; 1400]).unwrap();
                to.recv(&mut [0; 1500]).unwrap();
            }
            let missed = tap.missed();
            let (here, there) = if outgoing {
                (missed.outgoing, missed.incoming)
            } else {
                (missed.incoming, missed.outgoing)
            };
            assert!(here > 500, "{tap:?}: {missed:?}");
            match tap.kind() {
                // nothing but our datagrams goes between the networks
                TapKind::Ebpf => assert_eq!((there, tap.dropped()), (0, here), "{tap:?}"),
                _ => assert_eq!((there, tap.dropped()), (here, here), "{tap:?}: it cannot tell which"),
            }
            assert_eq!(tap.missed(), missed);
        }
    }
}

/// An Ethernet frame of IPv4 from `a` to `b`, as far as the lies in it allow.
fn frame(first: u8, claimed_len: u16, body: usize) -> Vec<u8> {
    let mut header = [first, 0, 0, 0, 0, 1, 0, 0, 9, 253, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
    header[2..4].copy_from_slice(&claimed_len.to_be_bytes());
    let packet = [&header[..], &[3; 100]].concat();
    [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1], &[8, 0], &packet[..body]].concat()
}

#[test]
fn what_no_ip_stack_takes_is_not_missed() {
    let Some(pair) = Pair::build("packets that cannot be") else { return };
    for mut tap in pair.taps(|_| {}) {
        // another version; less than a header; longer than there is; shorter than a header
        let wrong = [frame(0x55, 60, 60), frame(0x45, 60, 10), frame(0x45, 1000, 60), frame(0x45, 7, 60)];
        for host in [&pair.a, &pair.b] {
            host.run(|| wrong.iter().for_each(|frame| send_frame(frame)));
        }
        let mut captured = 0;
        tap.drain(100, |packet| captured += usize::from(packet.packet[9] == 253)).unwrap();
        assert_eq!((tap.missed(), tap.dropped()), (Missed::default(), 0), "{tap:?}: {:?}", tap.counts());
        match tap.kind() {
            TapKind::Ebpf => assert_eq!((captured, tap.counts().foreign), (0, 8), "{tap:?}"),
            // the two with whole addresses, each way
            _ => assert_eq!((captured, tap.counts().foreign), (4, 0), "{tap:?}"),
        }
    }
}

#[test]
fn too_long_a_super_packet_is_missed_only_if_it_is_of_the_networks() {
    let Some(pair) = Pair::build("super-packets of more than 64 KiB") else { return };
    if !make_big(&pair.a) {
        return skipped("super-packets of more than 64 KiB: ip cannot ask for them here");
    }
    let other = |tap: &mut netio::tap::TapConfig| {
        tap.outgoing_to = vec!["fd0a::/64".parse().unwrap()];
        tap.incoming_from.clone_from(&tap.outgoing_to);
    };
    let ours: Vec<Tap> = pair.taps(|config| config.buffer_bytes = 64 << 20).collect();
    let others: Vec<Tap> = pair.taps(other).collect();
    let address: IpAddr = "fd09::2".parse().unwrap();
    let between = Between { from: &pair.a, to: &pair.b, address };
    let transfer = TcpTransfer {
        congestion: Some("cubic".to_owned()),
        duration: Duration::from_millis(60),
        direction: Direction::Forward,
        ..TcpTransfer::default()
    };
    tcp_transfer(between, &transfer, &mut unwatched).unwrap();
    for mut tap in ours {
        // a packet socket sees what is too long when it is read
        tap.drain(usize::MAX, |_| {}).unwrap();
        let (missed, counts) = (tap.missed(), tap.counts());
        if counts.oversize == 0 {
            return skipped("super-packets of more than 64 KiB: this kernel makes none");
        }
        println!("{tap:?}: {missed:?}, {counts:?}");
        // what meets a full buffer is the machine's business here, and a packet socket counts it both ways
        assert!((counts.oversize..=tap.dropped()).contains(&missed.outgoing));
        assert!(missed.incoming <= counts.full);
    }
    for tap in others {
        assert_eq!((tap.missed(), tap.counts()), Default::default(), "{tap:?}");
    }
}

/// Lets the namespace's `eth0` take super-packets of more than 64 KiB; `false` where it cannot be said.
fn make_big(host: &Namespace) -> bool {
    let mut command = Command::new("ip");
    command.args(["link", "set", "eth0", "gso_max_size", "180000"]);
    host.run(|| command.status()).is_ok_and(|status| status.success())
}
