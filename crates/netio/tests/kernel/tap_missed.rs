//! Packets that a tap could not capture are counted by direction, and harmless ones separately.

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use crate::lab::pair::{Pair, send_frame, skipped};
use netio::tap::{Missed, Tap, TapKind};
use netlab::Namespace;
use netlab::traffic::{Between, Direction, TcpTransfer, tcp_transfer, unwatched};

#[test]
fn a_full_buffer_is_counted_by_direction() {
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
                // only our datagrams travel between the networks
                TapKind::Ebpf => assert_eq!((there, tap.dropped()), (0, here), "{tap:?}"),
                _ => assert_eq!(
                    (there, tap.dropped()),
                    (here, here),
                    "{tap:?}: it does not know the direction"
                ),
            }
            assert_eq!(tap.missed(), missed);
        }
    }
}

/// Builds an Ethernet frame of IPv4 from `a` to `b`, with false fields as given.
fn frame(first: u8, claimed_len: u16, body: usize) -> Vec<u8> {
    let mut header = [first, 0, 0, 0, 0, 1, 0, 0, 9, 253, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
    header[2..4].copy_from_slice(&claimed_len.to_be_bytes());
    let packet = [&header[..], &[3; 100]].concat();
    [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1], &[8, 0], &packet[..body]].concat()
}

#[test]
fn malformed_packets_are_not_missed() {
    let Some(pair) = Pair::build("packets that cannot be") else { return };
    for mut tap in pair.taps(|_| {}) {
        // wrong version; cut short within the header; longer than its bytes; shorter than a header
        let wrong = [frame(0x55, 60, 60), frame(0x45, 60, 10), frame(0x45, 1000, 60), frame(0x45, 7, 60)];
        for host in [&pair.a, &pair.b] {
            host.run(|| wrong.iter().for_each(|frame| send_frame(frame)));
        }
        let mut captured = 0;
        tap.drain(100, |packet| captured += usize::from(packet.packet[9] == 253)).unwrap();
        assert_eq!((tap.missed(), tap.dropped()), (Missed::default(), 0), "{tap:?}: {:?}", tap.counts());
        match tap.kind() {
            TapKind::Ebpf => assert_eq!((captured, tap.counts().foreign), (0, 8), "{tap:?}"),
            // the two frames with whole addresses, in both directions
            _ => assert_eq!((captured, tap.counts().foreign), (4, 0), "{tap:?}"),
        }
    }
}

#[test]
fn an_oversize_super_packet_is_missed_only_in_the_networks() {
    let Some(pair) = Pair::build("super-packets of more than 64 KiB") else { return };
    if !make_big(&pair.a) {
        return skipped("super-packets of more than 64 KiB: this version of ip cannot enable them");
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
        least_bytes: 1 << 20,
        direction: Direction::Forward,
        ..TcpTransfer::default()
    };
    tcp_transfer(between, &transfer, &mut unwatched).unwrap();
    for mut tap in ours {
        // a packet socket notices oversize packets when they are read
        tap.drain(usize::MAX, |_| {}).unwrap();
        let (missed, counts) = (tap.missed(), tap.counts());
        if counts.oversize == 0 {
            return skipped("super-packets of more than 64 KiB: this kernel makes none");
        }
        println!("{tap:?}: {missed:?}, {counts:?}");
        // packets may also meet a full buffer, and a packet socket counts those in both directions
        assert!((counts.oversize..=tap.dropped()).contains(&missed.outgoing));
        assert!(missed.incoming <= counts.full);
    }
    for tap in others {
        assert_eq!((tap.missed(), tap.counts()), Default::default(), "{tap:?}");
    }
}

/// Enables super-packets of more than 64 KiB on the namespace's `eth0`; returns `false` if ip does not
/// support it.
fn make_big(host: &Namespace) -> bool {
    let mut command = Command::new("ip");
    command.args(["link", "set", "eth0", "gso_max_size", "180000"]);
    host.run(|| command.status()).is_ok_and(|status| status.success())
}
