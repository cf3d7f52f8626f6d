//! Packets of the real kernel that are lost on arrival: their number, their identity, and the end of the
//! dropper.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use loss::LossModel;
use netlab::DropFilter;
use netlab::Dropper;
use netlab::bridge::{BridgeLan, BridgeLanConfig, HOST};
use netlab::privilege;

const PORT: u16 = 7801;
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 88, 2, 1);
/// Far longer than needed, so that a busy machine does not matter.
const PATIENCE: Duration = Duration::from_secs(20);
const MARK: [u8; 8] = *b"LOSTMARK";

/// Two hosts; the first sends to the second. Each batch is read before the next is sent, so that only the
/// dropper loses packets.
struct Rig {
    lan: BridgeLan,
    from: UdpSocket,
    to: UdpSocket,
}

impl Rig {
    fn build(name: &str) -> Option<Self> {
        if !privilege::dropper_or_skip(name) {
            return None;
        }
        let lan = BridgeLan::build(&BridgeLanConfig { hosts: 2, ..BridgeLanConfig::default() }).unwrap();
        let to = lan.host(1).run(|| {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
            socket.join_multicast_v4(&GROUP, &Ipv4Addr::UNSPECIFIED).unwrap();
            socket
        });
        to.set_read_timeout(Some(PATIENCE)).unwrap();
        let from = lan.host(0).run(|| UdpSocket::bind((lan.address_v4(0), 0)).unwrap());
        Some(Self { lan, from, to })
    }

    fn dropper(&self, model: &str, filter: &DropFilter) -> Dropper {
        let model: LossModel = model.parse().unwrap();
        Dropper::attach_reporting(self.lan.host(1), HOST, &model, filter, Some(MARK)).unwrap()
    }

    fn unicast(&self) -> SocketAddr {
        (self.lan.address_v4(1), PORT).into()
    }

    /// Sends numbered packets from 0 and returns whether each arrived. A packet of one byte ends a batch; the
    /// filter must let it pass.
    fn fates(&self, address: SocketAddr, packets: u32, length: usize) -> Vec<bool> {
        const BATCH: u32 = 50;
        let mut came = vec![false; packets as usize];
        let mut payload = vec![0; length];
        let mut buffer = [0; 2048];
        let end = self.unicast();
        for start in (0..packets).step_by(BATCH as usize) {
            for number in start..(start + BATCH).min(packets) {
                payload[3..11].copy_from_slice(&MARK);
                payload[11..15].copy_from_slice(&number.to_le_bytes());
                self.from.send_to(&payload, address).unwrap();
            }
            self.from.send_to(b"e", end).unwrap();
            loop {
                let length = self.to.recv(&mut buffer).unwrap();
                if length == 1 {
                    break;
                }
                let number = u32::from_le_bytes(*buffer[11..].first_chunk().unwrap());
                came[number as usize] = true;
            }
        }
        came
    }
}

fn long() -> DropFilter {
    DropFilter { udp_only: true, length_min: 60, ..DropFilter::default() }
}

/// Returns the lengths of the runs of lost packets.
fn runs(came: &[bool]) -> Vec<usize> {
    came.split(|&came| came).map(<[bool]>::len).filter(|&length| length > 0).collect()
}

#[test]
fn uniform_loss_has_its_rate_and_every_loss_is_reported() {
    let Some(rig) = Rig::build("uniform_loss_has_its_rate_and_is_told_packet_by_packet") else { return };
    let mut dropper = rig.dropper("uniform:5%", &long());
    let packets = 30_000;
    let came = rig.fates(rig.unicast(), packets, 100);
    let lost: Vec<u32> = (0..packets).filter(|&number| !came[number as usize]).collect();
    // Five standard deviations of the binomial are 189.
    assert!((1_311..=1_689).contains(&lost.len()), "{}", lost.len());
    let counts = dropper.counts().unwrap();
    assert_eq!((counts.seen, counts.lost), (packets.into(), lost.len() as u64));
    assert_eq!((counts.super_packets, counts.unmarked, counts.unreported), (0, 0, 0));
    let mut times = Vec::new();
    let mut reported = Vec::new();
    while let Some(packet) = dropper.next_lost() {
        assert_eq!(packet.report[..8], MARK);
        reported.push(u32::from_le_bytes(*packet.report[8..].first_chunk().unwrap()));
        times.push(packet.time_ns);
    }
    assert_eq!(reported, lost);
    assert!(times.is_sorted() && times[0] > 0);
}

#[test]
fn bursts_have_their_length() {
    let Some(rig) = Rig::build("bursts_have_the_length_asked_for") else { return };
    let _dropper = rig.dropper("bursty:5%:7", &long());
    let came = rig.fates(rig.unicast(), 30_000, 100);
    let mut runs = runs(&came);
    let last = runs.pop().unwrap(); // the last burst may be cut short
    assert!(last <= 7 && runs.iter().all(|&length| length == 7), "{runs:?}");
    // 214 are expected; the bounds are five standard deviations of a nearly Poisson number.
    assert!((141..=288).contains(&runs.len()), "{}", runs.len());
}

#[test]
fn markov_loss_has_its_rate_and_mean_burst() {
    let Some(rig) = Rig::build("markov_loss_has_its_rate_and_mean_burst") else { return };
    let _dropper = rig.dropper("markov:10%:4", &long());
    let came = rig.fates(rig.unicast(), 30_000, 100);
    let runs = runs(&came);
    let lost: usize = runs.iter().sum();
    // 750 bursts of mean 4 and standard deviation 3.5; the bounds are five standard deviations of their sum,
    // and of the mean.
    assert!((2_270..=3_730).contains(&lost), "{lost}");
    let mean = lost as f64 / runs.len() as f64;
    assert!((3.3..=4.7).contains(&mean), "{mean}");
    assert!(runs.contains(&1) && runs.iter().any(|&length| length > 8), "all bursts are alike");
}

#[test]
fn only_packets_that_match_the_filter_are_lost() {
    let Some(rig) = Rig::build("only_what_the_filter_names_is_lost") else { return };
    let group = (GROUP, PORT).into();
    let all = |came: &[bool]| came.iter().all(|&came| came);
    let none = |came: &[bool]| !came.iter().any(|&came| came);

    let data = DropFilter { multicast_only: true, length_min: 1000, udp_only: true, ..DropFilter::default() };
    let dropper = rig.dropper("uniform:1", &data);
    assert!(none(&rig.fates(group, 20, 972)), "20 + 8 + 972 bytes are 1000");
    assert!(all(&rig.fates(group, 20, 971)));
    assert!(all(&rig.fates(rig.unicast(), 20, 1024)));
    assert_eq!(dropper.counts().unwrap().lost, 20);
    drop(dropper);

    let from = |network: &str| DropFilter { sources: vec![network.parse().unwrap()], ..long() };
    let near = rig.dropper("uniform:1", &from("10.88.0.1/32"));
    assert!(none(&rig.fates(rig.unicast(), 20, 100)));
    drop(near);
    // A process that another test starts holds the programs for a moment.
    testkit::wait_until("the dropper is gone", || all(&rig.fates(rig.unicast(), 20, 100)));
    let far = rig.dropper("uniform:1", &from("10.99.0.0/16"));
    assert!(all(&rig.fates(rig.unicast(), 20, 100)));
    assert_eq!(far.counts().unwrap().seen, 0);
}

#[test]
fn ipv6_is_lost_too() {
    let Some(rig) = Rig::build("ipv6_is_lost_too") else { return };
    let (lan, address) = (&rig.lan, (rig.lan.address_v6(1), PORT + 1));
    let to = lan.host(1).run(|| UdpSocket::bind(address).unwrap());
    to.set_read_timeout(Some(PATIENCE)).unwrap();
    let from = lan.host(0).run(|| UdpSocket::bind((lan.address_v6(0), 0)).unwrap());
    let filter = DropFilter { udp_only: true, length_min: 148, ..DropFilter::default() };
    let dropper = rig.dropper("uniform:1", &filter);
    from.send_to(&[1; 100], address).unwrap();
    from.send_to(&[2; 99], address).unwrap();
    let mut buffer = [0; 200];
    assert_eq!(to.recv(&mut buffer).unwrap(), 99);
    assert_eq!(dropper.counts().unwrap().lost, 1);
    assert_eq!(dropper.counts().unwrap().unmarked, 1);
}

#[test]
fn loss_changes_with_the_model_and_ends_with_the_dropper() {
    let Some(rig) = Rig::build("loss_changes_with_the_model_and_ends_with_the_dropper") else { return };
    let lost = || rig.fates(rig.unicast(), 100, 100).iter().filter(|&&came| !came).count();
    let mut dropper = rig.dropper("none", &long());
    assert_eq!(lost(), 0);
    dropper.set_model(&LossModel::Uniform(1.0)).unwrap();
    assert_eq!(lost(), 100);
    let second = rig.dropper("uniform:1", &long());
    drop(dropper);
    assert_eq!(lost(), 100, "the other dropper is still attached");
    drop(second);
    // A process that another test starts holds the programs for a moment.
    testkit::wait_until("the droppers are gone", || lost() == 0);
}

#[test]
fn a_super_packet_counts_as_its_segments() {
    const BYTES: usize = 1_000_000;
    if !privilege::dropper_or_skip("a_super_packet_counts_as_its_segments") {
        return;
    }
    let config = BridgeLanConfig { hosts: 2, super_packets: true, ..BridgeLanConfig::default() };
    let lan = BridgeLan::build(&config).unwrap();
    let dropper = Dropper::attach(lan.host(1), HOST, &LossModel::None, &DropFilter::default()).unwrap();
    let server = lan.host(1).run(|| std::net::TcpListener::bind((lan.address_v4(1), 0)).unwrap());
    let to = server.local_addr().unwrap();
    let mut client = lan.host(0).run(|| std::net::TcpStream::connect(to).unwrap());
    let (mut accepted, _) = server.accept().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| std::io::Write::write_all(&mut client, &vec![1; BYTES]).unwrap());
        std::io::Read::read_exact(&mut accepted, &mut vec![0; BYTES]).unwrap();
    });
    let on_the_wire = lan.wires().unwrap()[1].sent_packets;
    let seen = dropper.counts().unwrap().seen;
    assert!(seen >= BYTES as u64 / 1460 && on_the_wire < seen, "{seen} {on_the_wire}");
}

#[test]
fn an_unknown_interface_is_named() {
    if !privilege::dropper_or_skip("an_unknown_interface_is_named") {
        return;
    }
    let namespace = netlab::Namespace::create("empty").unwrap();
    let error = Dropper::attach(&namespace, "eth9", &LossModel::None, &DropFilter::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("eth9") && error.contains("empty"), "{error}");
}
