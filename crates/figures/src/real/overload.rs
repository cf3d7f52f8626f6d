//! Loss at an overloaded receiver, and none at its neighbour: Thesis Figure 4.1.
//!
//! 1. `Field::build`: a sender and two receivers on a bridge; one receiver is in groups A and B, the other in
//!    A alone.
//! 2. `Field::fit`: both get a socket buffer for about [`ROOM`] packets.
//! 3. `Field::send`: bursts of [`A_EACH`] packets to A and any number to B at the same time. Either receiver
//!    works a millisecond on each packet.
//! 4. The kernel dropped the packets that did not arrive; its own counter confirms that.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use netlab::bridge::{BridgeLan, BridgeLanConfig};
use socket2::SockRef;
use xxhash_rust::xxh3::xxh3_64;

use crate::outcome::Panel;
use crate::plan::{Figure, Job, Lab, PanelPlan, Plan, RunError, Sample, Scale, Verdict};

const GROUPS: [Ipv4Addr; 2] = [Ipv4Addr::new(239, 255, 41, 1), Ipv4Addr::new(239, 255, 41, 2)];
const PORT: u16 = 4_101;
const PACKET: usize = 1_024;
/// Packets of each burst to group A; group B gets 0 to [`B_MOST`].
const A_EACH: u32 = 25;
const B_MOST: u32 = 50;
/// Packets that a receiver's buffer holds: a burst to A alone, and some more.
const ROOM: usize = 32;
/// Work of a receiver on each packet.
const WORK: Duration = Duration::from_millis(1);
/// Interval between bursts; a full buffer is empty long before.
const INTERVAL: Duration = Duration::from_millis(150);
/// Pause at the end, in which receivers take everything that arrived.
const REST: Duration = Duration::from_millis(400);
const TICK: Duration = Duration::from_millis(20);
/// Size of the buffer by which the size for [`ROOM`] packets is found.
const BUFFER_TRIED: usize = 128 << 10;
/// Classes of the lengths of rows; the last one is open.
const LENGTHS_MOST: usize = 50;
/// Labels of the counts of a burst at either receiver.
const COUNTS: [&str; 4] = ["sent to it", "dropped by kernel", "lost", "lost in A"];

pub(super) fn figures() -> Vec<Figure> {
    vec![Figure::new("4.1", plan, judge)]
}

fn plan(scale: Scale) -> Plan {
    let x = "burst of packets";
    let panels = vec![
        PanelPlan::new(x, "r1, in A and B: packets", COUNTS),
        PanelPlan::new(x, "r2, in A: packets", COUNTS),
        PanelPlan::new("packet of the burst", "lost at r1 (% of bursts)", ["A", "B"]),
        PanelPlan::new("packets lost in a row at r1", "number of rows", ["A and B"]),
    ];
    let bursts = scale.pick(20, 100);
    let setup = format!(
        "real, {bursts} bursts of {A_EACH} to A and 0 to {B_MOST} to B, {PACKET} bytes, room for {ROOM} of {BUFFER_TRIED} tried, \
         work {WORK:?}, each {INTERVAL:?}, {REST:?} in the end, rows to {LENGTHS_MOST}"
    );
    // One run, as in the source: the figure shows a course of events.
    Plan { panels, jobs: vec![Job::real(setup, 1, move |seed, lab| run(bursts, seed, lab))] }
}

fn run(bursts: u32, seed: u64, lab: &Lab<'_>) -> Result<Vec<Sample>, RunError> {
    let failed = |error: io::Error| RunError::Failed(format!("sending to an overloaded receiver: {error}"));
    let field = Field::build()?;
    field.fit().map_err(failed)?;
    let course: Vec<Vec<Packet>> = (0..bursts).map(|burst| burst_of(burst, seed)).collect();
    let stop = AtomicBool::new(false);
    let (drops, came) = thread::scope(|scope| {
        let threads = field.receivers.each_ref().map(|socket| scope.spawn(|| receive(socket, &stop)));
        let drops = field.send(&course, lab);
        stop.store(true, Ordering::Relaxed);
        (drops, threads.map(|thread| thread.join().expect("a receiver does not panic")))
    });
    lab.go_on()?;
    let drops = drops.map_err(failed)?;
    let [Ok(first), Ok(second)] = came else {
        return Err(RunError::Failed(
            "expected both receivers to read their sockets, saw one fail".to_owned(),
        ));
    };
    Ok(samples(&course, &[first, second], &drops))
}

/// One packet: its number, its burst, its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Packet {
    burst: u32,
    number: u32,
    group: u8,
}

impl Packet {
    fn write(self) -> [u8; PACKET] {
        let mut bytes = [0; PACKET];
        bytes[..4].copy_from_slice(&self.burst.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.number.to_be_bytes());
        bytes[8] = self.group;
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (burst, rest) = bytes.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (burst, number) = (u32::from_be_bytes(*burst), u32::from_be_bytes(*number));
        Some(Self { burst, number, group: *rest.first()? })
    }
}

/// Returns the packets of a burst, both groups mixed.
fn burst_of(burst: u32, seed: u64) -> Vec<Packet> {
    let chance = |what: u32| xxh3_64(format!("{seed} {burst} {what}").as_bytes());
    let to_b = (chance(0) % u64::from(B_MOST + 1)) as u32;
    let mut groups: Vec<(u64, u8)> =
        (1..=A_EACH + to_b).map(|at| (chance(at), u8::from(at > A_EACH))).collect();
    groups.sort_unstable();
    (0..).zip(groups).map(|(number, (_, group))| Packet { burst, number, group }).collect()
}

/// Receives packets and works on each until the end.
fn receive(socket: &UdpSocket, stop: &AtomicBool) -> io::Result<HashSet<Packet>> {
    let mut came = HashSet::new();
    let mut bytes = [0; 2 * PACKET];
    while !stop.load(Ordering::Relaxed) {
        match socket.recv(&mut bytes) {
            Ok(length) => {
                came.extend(Packet::read(&bytes[..length]));
                thread::sleep(WORK);
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(came)
}

/// A sender and two receivers.
struct Field {
    sender: UdpSocket,
    receivers: [UdpSocket; 2],
    lan: BridgeLan,
}

impl Field {
    fn build() -> Result<Self, RunError> {
        let failed = |error: &dyn std::fmt::Display| RunError::Failed(error.to_string());
        let lan = BridgeLan::build(&BridgeLanConfig { hosts: 3, ..BridgeLanConfig::default() });
        let lan = lan.map_err(|error| failed(&error))?;
        let address = |host| match lan.address_v4(host) {
            IpAddr::V4(address) => address,
            IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
        };
        let receiver = |host: usize, groups: &[Ipv4Addr]| {
            let own = address(host);
            lan.host(host).run(|| -> io::Result<UdpSocket> {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
                groups.iter().try_for_each(|group| socket.join_multicast_v4(group, &own))?;
                socket.set_read_timeout(Some(TICK))?;
                Ok(socket)
            })
        };
        let own = address(0);
        let sender = lan.host(0).run(|| UdpSocket::bind((own, 0))).map_err(|error| failed(&error))?;
        let receivers = [receiver(1, &GROUPS), receiver(2, &GROUPS[..1])];
        let [first, second] = receivers.map(|receiver| receiver.map_err(|error| failed(&error)));
        Ok(Self { sender, receivers: [first?, second?], lan })
    }

    /// Gives both sockets a buffer for [`ROOM`] packets. The kernel decides how much of it a packet takes, so
    /// this is measured.
    fn fit(&self) -> io::Result<()> {
        let packet = Packet { burst: u32::MAX, number: 0, group: 0 };
        for socket in &self.receivers {
            SockRef::from(socket).set_recv_buffer_size(BUFFER_TRIED)?;
        }
        for _ in 0..4 * BUFFER_TRIED / PACKET {
            self.to_group(packet)?;
        }
        thread::sleep(TICK);
        for socket in &self.receivers {
            let mut bytes = [0; 2 * PACKET];
            let held = std::iter::from_fn(|| socket.recv(&mut bytes).ok()).count();
            SockRef::from(socket).set_recv_buffer_size(BUFFER_TRIED * ROOM / held.max(1))?;
        }
        Ok(())
    }

    fn to_group(&self, packet: Packet) -> io::Result<()> {
        let to = SocketAddr::from((GROUPS[usize::from(packet.group)], PORT));
        self.sender.send_to(&packet.write(), to).map(drop)
    }

    /// Sends all bursts; returns the drops that the kernel counted in each at either receiver.
    fn send(&self, course: &[Vec<Packet>], lab: &Lab<'_>) -> io::Result<Vec<[u64; 2]>> {
        let mut before = self.dropped()?;
        let mut drops = Vec::new();
        for (at, burst) in course.iter().enumerate() {
            if (lab.is_stopped)() {
                break;
            }
            burst.iter().try_for_each(|&packet| self.to_group(packet))?;
            thread::sleep(if at + 1 == course.len() { REST } else { INTERVAL });
            let now = self.dropped()?;
            drops.push([now[0] - before[0], now[1] - before[1]]);
            before = now;
        }
        Ok(drops)
    }

    /// Returns the packets for which the sockets of each receiver have had no room.
    fn dropped(&self) -> io::Result<[u64; 2]> {
        Ok([self.dropped_at(1)?, self.dropped_at(2)?])
    }

    fn dropped_at(&self, host: usize) -> io::Result<u64> {
        // /proc/net is that of the process' first thread; this path is that of the calling thread.
        let text = self.lan.host(host).run(|| fs::read_to_string("/proc/thread-self/net/snmp"))?;
        dropped_of(&text)
            .ok_or_else(|| io::Error::other("expected Udp RcvbufErrors in /proc/net/snmp, saw none"))
    }
}

/// Returns `RcvbufErrors` of the two `Udp:` lines, the first with names and the second with values.
fn dropped_of(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let column = names.split_whitespace().position(|name| name == "RcvbufErrors")?;
    values.split_whitespace().nth(column)?.parse().ok()
}

fn samples(course: &[Vec<Packet>], came: &[HashSet<Packet>; 2], drops: &[[u64; 2]]) -> Vec<Sample> {
    let mut samples = Vec::new();
    let is_for = |receiver: usize, packet: &Packet| receiver == 0 || packet.group == 0;
    for (receiver, came) in came.iter().enumerate() {
        for ((at, burst), drops) in course.iter().enumerate().zip(drops) {
            let sent = burst.iter().filter(|packet| is_for(receiver, packet));
            let lost = sent.clone().filter(|packet| !came.contains(*packet));
            let of_a = lost.clone().filter(|packet| packet.group == 0).count();
            let counts = [sent.count() as f64, drops[receiver] as f64, lost.count() as f64, of_a as f64];
            let x = (at + 1) as f64;
            samples.extend((0..).zip(counts).map(|(series, y)| Sample { panel: receiver, series, x, y }));
        }
    }
    samples.extend(places(course, &came[0]));
    samples.extend(rows(course, &came[0]));
    samples
}

/// Returns the share of losses at each place of a burst.
fn places(course: &[Vec<Packet>], came: &HashSet<Packet>) -> Vec<Sample> {
    let most = (A_EACH + B_MOST) as usize;
    let of_place = |(group, number): (u8, usize)| {
        let at = course.iter().filter_map(|burst| burst.get(number)).filter(|packet| packet.group == group);
        let all = at.clone().count();
        let lost = at.filter(|packet| !came.contains(*packet)).count();
        let (series, x) = (usize::from(group), (number + 1) as f64);
        (all > 0).then(|| Sample { panel: 2, series, x, y: 100.0 * lost as f64 / all as f64 })
    };
    [0, 1].into_iter().flat_map(|group| (0..most).map(move |at| (group, at))).filter_map(of_place).collect()
}

/// Returns the lengths of rows of lost packets, of either group.
fn rows(course: &[Vec<Packet>], came: &HashSet<Packet>) -> Vec<Sample> {
    let mut often = [0_u32; LENGTHS_MOST];
    for burst in course {
        for row in burst.chunk_by(|a, b| came.contains(a) == came.contains(b)) {
            if !came.contains(&row[0]) {
                often[row.len().min(LENGTHS_MOST) - 1] += 1;
            }
        }
    }
    let sample =
        |(at, &count): (usize, &u32)| Sample { panel: 3, series: 0, x: (at + 1) as f64, y: f64::from(count) };
    often.iter().enumerate().map(sample).collect()
}

fn judge(panels: &[Panel]) -> Verdict {
    let sum = |panel: usize, series: usize| -> f64 {
        panels[panel].series[series].points.iter().map(|point| point.median).sum()
    };
    let longest = panels[3].series[0].points.iter().rev().find(|point| point.median > 0.0);
    let longest = longest.map_or(0.0, |point| point.x);
    let [sent, dropped, lost, of_a] = [0, 1, 2, 3].map(|series| sum(0, series));
    let [sent_on, dropped_on, lost_on] = [0, 1, 2].map(|series| sum(1, series));
    let in_a = 100.0 * of_a / lost.max(1.0);
    let alone = lost > 0.0 && lost_on < 1.0;
    // Every loss is for want of room.
    let by_kernel = (lost - dropped).abs() <= 0.02 * lost;
    let verdict = Verdict::new(alone && by_kernel && longest >= 5.0 && (10.0..60.0).contains(&in_a));
    let counts = [
        ("sent_1", sent),
        ("dropped_1", dropped),
        ("lost_1", lost),
        ("sent_2", sent_on),
        ("dropped_2", dropped_on),
        ("lost_2", lost_on),
        ("longest", longest),
        ("in_a", in_a),
    ];
    counts.into_iter().fold(verdict, |verdict, (name, count)| verdict.number(name, count, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_counted_by_burst_place_and_row() {
        let packet = |number, group| Packet { burst: 0, number, group };
        let course = vec![vec![packet(0, 0), packet(1, 1), packet(2, 0), packet(3, 1)]];
        let first = HashSet::from([packet(0, 0), packet(3, 1)]);
        let second = HashSet::from([packet(0, 0), packet(2, 0)]);
        let samples = samples(&course, &[first, second], &[[2, 0]]);
        let of = |panel, series, x| {
            let same = samples.iter().find(|s| (s.panel, s.series) == (panel, series) && s.x == x);
            same.map(|sample| sample.y)
        };
        assert_eq!([0, 1, 2, 3].map(|series| of(0, series, 1.0)), [4.0, 2.0, 2.0, 1.0].map(Some));
        assert_eq!([0, 1, 2, 3].map(|series| of(1, series, 1.0)), [2.0, 0.0, 0.0, 0.0].map(Some));
        assert_eq!([of(2, 0, 3.0), of(2, 1, 2.0), of(2, 1, 4.0)], [Some(100.0), Some(100.0), Some(0.0)]);
        assert_eq!([of(3, 0, 1.0), of(3, 0, 2.0)], [Some(0.0), Some(1.0)]);
    }

    #[test]
    fn a_packet_is_read_as_it_was_written() {
        let packet = Packet { burst: 7, number: 70_000, group: 1 };
        assert_eq!(Packet::read(&packet.write()), Some(packet));
        assert_eq!(Packet::read(&[0; 8]), None);
    }

    #[test]
    fn bursts_have_all_packets_of_a_and_any_number_of_b() {
        let bursts: Vec<_> = (0..200).map(|burst| burst_of(burst, 3)).collect();
        let of = |burst: &Vec<Packet>, group| burst.iter().filter(|packet| packet.group == group).count();
        assert!(bursts.iter().all(|burst| of(burst, 0) == 25 && of(burst, 1) <= 50));
        assert!(bursts.iter().any(|burst| of(burst, 1) > 40) && bursts.iter().any(|burst| of(burst, 1) < 10));
    }

    #[test]
    fn the_kernels_counter_is_found_by_its_name() {
        let text = "Tcp: A B\nTcp: 1 2\nUdp: InDatagrams RcvbufErrors X\nUdp: 9 4 0\n";
        assert_eq!(dropped_of(text), Some(4));
        assert_eq!(dropped_of("Udp: A\nUdp: 1\n"), None);
    }
}
