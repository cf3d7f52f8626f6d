use super::*;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

const OUR_MARK: u32 = 0x1234_5678;

/// Runs a program like the kernel, on a packet without a mark.
fn run(program: &[sock_filter], packet: &[u8], protocol: u32, kind: u32) -> bool {
    run_marked(program, packet, protocol, kind, 0)
}

fn run_marked(program: &[sock_filter], packet: &[u8], protocol: u32, kind: u32, mark: u32) -> bool {
    let (mut a, mut x, mut at) = (0_u32, 0_u32, 0_usize);
    let load = |from: u32, len: usize| -> Option<u32> {
        let from = from.wrapping_sub(NET_OFF) as usize;
        let bytes = packet.get(from..from + len)?;
        Some(bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
    };
    for _ in 0..INSTRUCTIONS_MAX {
        let step = program[at];
        at += 1;
        let loaded = match step.code {
            LD_WORD if step.k == AD_PROTOCOL => Some(protocol),
            LD_WORD if step.k == AD_PKTTYPE => Some(kind),
            LD_WORD if step.k == AD_MARK => Some(mark),
            LD_WORD => load(step.k, 4),
            LD_HALF => load(step.k, 2),
            LD_BYTE => load(step.k, 1),
            LD_HALF_AT_X => load(step.k.wrapping_add(x), 2),
            _ => Some(a),
        };
        // a load beyond the packet ends the program
        let Some(value) = loaded else { return false };
        a = value;
        match step.code {
            AND => a &= step.k,
            ADD => a = a.wrapping_add(step.k),
            SHIFT_LEFT => a <<= step.k,
            SHIFT_RIGHT => a >>= step.k,
            TAX => x = a,
            JUMP => at += step.k as usize,
            JUMP_EQUAL => at += usize::from(if a == step.k { step.jt } else { step.jf }),
            JUMP_GREATER => at += usize::from(if a > step.k { step.jt } else { step.jf }),
            RETURN => return step.k != 0,
            _ => {}
        }
    }
    panic!("no verdict");
}

fn program_for(
    outgoing: &[IpNet],
    incoming: &[IpNet],
    exclude: &[SocketAddr],
) -> io::Result<Vec<sock_filter>> {
    program(&TapConfig {
        outgoing_to: outgoing.to_vec(),
        incoming_from: incoming.to_vec(),
        exclude: exclude.to_vec(),
        pass_over: Some(OUR_MARK),
        ..TapConfig::default()
    })
}

#[test]
fn packets_that_arrive_for_groups_pass_whatever_their_source() {
    let groups = ["239.1.0.0/16", "ff3e::8000:0/112"].map(|groups| groups.parse().unwrap());
    let program = program(&TapConfig { incoming_to: groups.to_vec(), ..TapConfig::default() }).unwrap();
    let passes = |to: &str, kind| {
        let from = if to.starts_with('[') { "[fd00::9]:7" } else { "10.1.1.1:7" };
        let protocol = if to.starts_with('[') { 0x86dd } else { 0x0800 };
        run(&program, &packet(from.parse().unwrap(), to.parse().unwrap()), protocol, kind)
    };
    assert!(passes("239.1.255.9:5", PACKET_MULTICAST) && passes("[ff3e::8000:7]:5", PACKET_MULTICAST));
    assert!(!passes("239.2.0.1:5", PACKET_MULTICAST) && !passes("[ff3e::8001:7]:5", PACKET_MULTICAST));
    assert!(!passes("239.1.255.9:5", PACKET_OUTGOING), "what this host sends is not heard");
}

fn packet(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let mut packet = Vec::new();
    match (source.ip(), destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            packet.extend_from_slice(&[0x46, 0, 0, 32, 0, 0, 0x40, 0, 9, 17, 0, 0]);
            packet.extend_from_slice(&source.octets());
            packet.extend_from_slice(&destination.octets());
            packet.extend_from_slice(&[1; 4]);
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            packet.extend_from_slice(&[0x60, 0, 0, 0, 0, 8, 17, 9]);
            packet.extend_from_slice(&source.octets());
            packet.extend_from_slice(&destination.octets());
        }
        _ => unreachable!("one version"),
    }
    packet.extend_from_slice(&source.port().to_be_bytes());
    packet.extend_from_slice(&destination.port().to_be_bytes());
    packet.extend_from_slice(&[0, 8, 0, 0]);
    packet
}

fn nets(list: &[&str]) -> Vec<IpNet> {
    list.iter().map(|net| net.parse().unwrap()).collect()
}

fn accepts(program: &[sock_filter], source: &str, destination: &str, kind: u32) -> bool {
    let packet = packet(source.parse().unwrap(), destination.parse().unwrap());
    let protocol = if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
    run(program, &packet, protocol, kind)
}

const HOST: u32 = 0;
const OTHER_HOST: u32 = 3;
const OUTGOING: u32 = 4;
const LOOPBACK: u32 = 5;

#[test]
fn each_direction_matches_its_far_end() {
    let program = program_for(&nets(&["10.2.0.0/16", "fd02::/48"]), &nets(&["10.3.0.0/16"]), &[]).unwrap();
    assert!(accepts(&program, "10.1.0.1:1", "10.2.0.1:1", OUTGOING));
    assert!(!accepts(&program, "10.2.0.1:1", "10.1.0.1:1", OUTGOING));
    assert!(accepts(&program, "10.3.0.1:1", "10.1.0.1:1", HOST));
    assert!(!accepts(&program, "10.2.0.1:1", "10.1.0.1:1", HOST));
    assert!(accepts(&program, "[fd01::1]:1", "[fd02::1]:1", OUTGOING));
    assert!(!accepts(&program, "[fd02::1]:1", "[fd01::1]:1", HOST));
    for kind in [OTHER_HOST, LOOPBACK] {
        assert!(!accepts(&program, "10.3.0.1:1", "10.1.0.1:1", kind));
    }
}

#[test]
fn other_protocols_are_rejected() {
    let program = program_for(&nets(&["0.0.0.0/0", "::/0"]), &nets(&["0.0.0.0/0", "::/0"]), &[]).unwrap();
    let wire = packet("10.1.0.1:1".parse().unwrap(), "10.2.0.1:1".parse().unwrap());
    for protocol in [0x0800, 0x86dd, 0x8100, 0x88a8] {
        assert!(run(&program, &wire, protocol, OUTGOING));
    }
    assert!(!run(&program, &wire, 0x0806, OUTGOING));
    assert!(!run(&program, &[0x55; 40], 0x8100, OUTGOING));
    assert!(!run(&program, &[], 0x0800, OUTGOING));
}

#[test]
fn the_repair_channel_is_excluded() {
    let everything = nets(&["0.0.0.0/0", "::/0"]);
    let exclude: Vec<SocketAddr> =
        ["10.2.0.1:4700", "[fd02::1]:4700"].iter().map(|end| end.parse().unwrap()).collect();
    let program = program_for(&everything, &everything, &exclude).unwrap();
    assert!(!accepts(&program, "10.1.0.1:9", "10.2.0.1:4700", OUTGOING));
    assert!(!accepts(&program, "10.2.0.1:4700", "10.1.0.1:9", HOST));
    assert!(!accepts(&program, "[fd01::1]:9", "[fd02::1]:4700", OUTGOING));
    // the near end, another port, another address
    assert!(accepts(&program, "10.2.0.1:4700", "10.1.0.1:9", OUTGOING));
    assert!(accepts(&program, "10.1.0.1:9", "10.2.0.1:4701", OUTGOING));
    assert!(accepts(&program, "[fd01::1]:9", "[fd02::2]:4700", OUTGOING));
}

#[test]
fn incoming_packets_with_our_mark_are_passed_over() {
    let everything = nets(&["0.0.0.0/0", "::/0"]);
    let program = program_for(&everything, &everything, &[]).unwrap();
    let wire = packet("10.1.0.1:1".parse().unwrap(), "10.2.0.1:1".parse().unwrap());
    assert!(!run_marked(&program, &wire, 0x0800, HOST, OUR_MARK));
    assert!(run_marked(&program, &wire, 0x0800, HOST, OUR_MARK + 1));
    // a packet that was forwarded with a mark of somebody else
    assert!(run_marked(&program, &wire, 0x0800, OUTGOING, OUR_MARK));
}

#[test]
fn too_long_a_list_is_refused() {
    let many: Vec<IpNet> =
        (0..400).map(|i| format!("10.{}.{}.0/25", i / 250, i % 250).parse().unwrap()).collect();
    let error = program_for(&many, &many, &[]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(program_for(&many[..200], &many[..200], &[]).is_ok());
}

fn networks() -> impl Strategy<Value = Vec<IpNet>> {
    // few distinct addresses, so that some match
    let v4 = (0..4_u32, 0..=32_u8)
        .prop_map(|(bits, len)| IpNet::new(Ipv4Addr::from_bits(bits << 30 | bits).into(), len).unwrap());
    let v6 = (0..4_u128, 0..=128_u8).prop_map(|(bits, len)| {
        IpNet::new(Ipv6Addr::from_bits(bits << 126 | bits << 62 | bits).into(), len).unwrap()
    });
    proptest::collection::vec(prop_oneof![v4, v6], 0..12)
}

fn pairs() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    let v4 = |bits: u32| IpAddr::V4(Ipv4Addr::from_bits(bits << 30 | bits));
    let v6 = |bits: u128| IpAddr::V6(Ipv6Addr::from_bits(bits << 126 | bits << 62 | bits));
    prop_oneof![
        (0..4_u32, 0..4_u32).prop_map(move |(a, b)| (v4(a), v4(b))),
        (0..4_u128, 0..4_u128).prop_map(move |(a, b)| (v6(a), v6(b))),
    ]
}

proptest! {
    #[test]
    fn the_filter_is_the_list(outgoing in networks(), incoming in networks(), (source, destination) in pairs()) {
        let program = program_for(&outgoing, &incoming, &[]).unwrap();
        let wire = packet(SocketAddr::new(source, 1), SocketAddr::new(destination, 2));
        let protocol = if source.is_ipv4() { 0x0800 } else { 0x86dd };
        let wanted = outgoing.iter().any(|net| net.contains(&destination));
        prop_assert_eq!(run(&program, &wire, protocol, OUTGOING), wanted);
        let wanted = incoming.iter().any(|net| net.contains(&source));
        prop_assert_eq!(run(&program, &wire, protocol, HOST), wanted);
    }
}
