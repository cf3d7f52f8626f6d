//! Packets of IP in IP and GRE tunnels that the kernel merges on arrival (GRO): what a tap shows of them is
//! cut into the packets that were sent.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::thread;
use std::time::Duration;

use netio::checksum::Sum;
use netio::tap::{TapConfig, TapKind};

use crate::lab::pair::{Pair, config, send_frames, skipped};
use crate::lab::{Collector, MERGING, comparable, switch, switch_offloads_off, wait_before_merging};

/// Packets of one burst, with consecutive sequence numbers.
const BURST: usize = 6;
const SEGMENT: usize = 400;

/// Headers around the inner packet.
#[derive(Clone, Copy, Debug)]
struct Tunnel {
    outer_v6: bool,
    inner_v6: bool,
    /// GRE flags, and whether an Ethernet header follows; `None` for IP in IP.
    gre: Option<(u16, bool)>,
    /// Whether the outer header forbids fragments and has identification 0, as some systems send it.
    fixed_id: bool,
}

fn ip(v6: bool, protocol: u8, id: u16, fixed_id: bool, outer: bool, payload: &[u8]) -> Vec<u8> {
    if v6 {
        let mut header = vec![0; 40];
        header[0] = 0x60;
        header[4..6].copy_from_slice(&u16::try_from(payload.len()).unwrap().to_be_bytes());
        header[6..8].copy_from_slice(&[protocol, 60]);
        for (at, last) in [(8, 1), (24, 2)] {
            header[at..at + 2].copy_from_slice(if outer { &[0xfd, 0x09] } else { &[0xfd, 0x77] });
            header[at + 15] = last;
        }
        return [&header, payload].concat();
    }
    let mut header = vec![0; 20];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&u16::try_from(20 + payload.len()).unwrap().to_be_bytes());
    header[4..6].copy_from_slice(&if fixed_id { 0 } else { id }.to_be_bytes());
    header[6] = 0x40;
    header[8..10].copy_from_slice(&[60, protocol]);
    let network: [u8; 3] = if outer { [10, 9, 0] } else { [10, 77, 0] };
    for (at, last) in [(12, 1), (16, 2)] {
        header[at..at + 3].copy_from_slice(&network);
        header[at + 3] = last;
    }
    let sum = Sum::of(&header).finish();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [&header, payload].concat()
}

/// A TCP segment with a correct checksum.
fn tcp(v6: bool, index: usize) -> Vec<u8> {
    let mut segment = vec![0; 20];
    segment[..4].copy_from_slice(&[0x12, 0x34, 0x00, 0x50]);
    segment[4..8].copy_from_slice(&u32::try_from(1_000 + index * SEGMENT).unwrap().to_be_bytes());
    segment[8..12].copy_from_slice(&[0, 0, 0, 9]);
    segment[12..16].copy_from_slice(&[0x50, 0x10, 0x20, 0]);
    // The last segment is shorter.
    let length = if index + 1 == BURST { SEGMENT / 3 } else { SEGMENT };
    segment.extend((0..length).map(|at| (at * 7 + index * 13) as u8));
    let packet = ip(v6, 6, 0, false, false, &segment);
    let addresses = if v6 { &packet[8..40] } else { &packet[12..20] };
    let sum = Sum::of(addresses).word(6).word(u16::try_from(segment.len()).unwrap()).bytes(&segment).finish();
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    segment
}

impl Tunnel {
    fn packet(self, burst: u16, index: usize) -> Vec<u8> {
        let id = (burst * 100).wrapping_add(u16::try_from(index).unwrap()).wrapping_add(1);
        let inner = ip(self.inner_v6, 6, id.wrapping_add(40_000), false, false, &tcp(self.inner_v6, index));
        let ethertype = if self.inner_v6 { [0x86, 0xdd] } else { [8, 0] };
        let (protocol, payload) = match self.gre {
            None => (if self.inner_v6 { 41 } else { 4 }, inner),
            Some((flags, is_bridged)) => {
                let mut gre = flags.to_be_bytes().to_vec();
                gre.extend(if is_bridged { [0x65, 0x58] } else { ethertype });
                gre.extend(vec![0; if flags & 0x8000 != 0 { 4 } else { 0 }]);
                gre.extend(if flags & 0x2000 != 0 { vec![7; 4] } else { Vec::new() });
                if is_bridged {
                    gre.extend([&[2; 12][..], &ethertype].concat());
                }
                gre.extend(inner);
                if flags & 0x8000 != 0 {
                    let sum = Sum::of(&gre).finish();
                    gre[4..6].copy_from_slice(&sum.to_be_bytes());
                }
                (47, gre)
            }
        };
        ip(self.outer_v6, protocol, id, self.fixed_id, true, &payload)
    }
}

/// Sends bursts until the tap has shown merged ones; returns whether any was merged.
fn check(pair: &Pair, kind: TapKind, tunnel: Tunnel) -> bool {
    let what = format!("{tunnel:?}, {kind}");
    let mut tap = match Collector::open(&what, &pair.b, &TapConfig { kind, ..config() }) {
        Ok(tap) => tap,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            skipped(&format!("{kind} tap of merged tunnels: {error}"));
            return true;
        }
        Err(error) => panic!("{error}"),
    };
    let target = pair.b.hardware_address("eth0").unwrap();
    let source = pair.a.hardware_address("eth0").unwrap();
    let mut sent: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for burst in 0..20 {
        let packets: Vec<_> = (0..BURST).map(|index| tunnel.packet(burst, index)).collect();
        packets.iter().for_each(|packet| *sent.entry(comparable(packet)).or_default() += 1);
        let ethertype: &[u8] = if tunnel.outer_v6 { &[0x86, 0xdd] } else { &[8, 0] };
        let frame = |packet: &Vec<u8>| [&target, &source, ethertype, packet].concat();
        let frames: Vec<_> = packets.iter().map(frame).collect();
        pair.a.run(|| send_frames(&frames));
        let count = |tap: &Collector| tap.incoming.keys().filter(|packet| sent.contains_key(*packet)).count();
        for _ in 0..500 {
            tap.collect();
            if count(&tap) == sent.len() {
                break;
            }
            thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(tap.refused, 0, "{what}");
        let missing = sent.keys().filter(|packet| !tap.incoming.contains_key(*packet)).count();
        assert_eq!(missing, 0, "{what}: of {}, {} merged", sent.len(), tap.supers[1]);
        if tap.supers[1] > 1 {
            break;
        }
    }
    println!("{what}: {} merged", tap.supers[1]);
    tap.supers[1] > 0
}

#[test]
fn packets_of_tunnels_that_the_kernel_merged_are_cut_into_those_sent() {
    let what = "packets_of_tunnels_that_the_kernel_merged_are_cut_into_those_sent";
    let Some(pair) = Pair::build(what) else { return };
    // A cable merges nothing that comes from an end with segmentation offloads.
    pair.a.run(|| switch_offloads_off("eth0").unwrap());
    pair.b.run(|| switch("eth0", MERGING, true).unwrap());
    pair.b.run(|| wait_before_merging("eth0").unwrap());
    let (mut merged, mut all) = (0, 0);
    for (outer_v6, inner_v6) in [(false, false), (false, true), (true, false), (true, true)] {
        for gre in
            [None, Some((0, false)), Some((0x2000, false)), Some((0x8000, false)), Some((0xa000, true))]
        {
            for fixed_id in if outer_v6 { &[false][..] } else { &[false, true] } {
                for kind in [TapKind::Ebpf, TapKind::Packet] {
                    all += 1;
                    merged += usize::from(check(
                        &pair,
                        kind,
                        Tunnel { outer_v6, inner_v6, gre, fixed_id: *fixed_id },
                    ));
                }
            }
        }
    }
    // Not every kernel merges every kind.
    assert!(merged * 2 > all, "{merged} of {all} kinds were merged");
}
