//! The fuzz targets, shared with the test that replays their corpora.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each user takes a part of it")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use maelstrom_core::controller::Targets;
use maelstrom_core::exchange::EphemeralKey;
use maelstrom_core::forecast::{Fit, Forecast, Tail};
use maelstrom_core::packet::{MutableFields, Packet, restore};
use maelstrom_core::reports::{self, Said};
use maelstrom_core::session::{HelloKey, Sealer};
use maelstrom_core::wire::{
    Announcement, BodyKind, Bundle, Echo, HELLO_HEADER, Half, Hello, KeyPart, LossReport, NAMES_APART_MAX,
    Outer, PacketsView, Probe, RecipeView, Report, Request, SEALED_HEADER, SendTime, TAG, TERMS_MAX,
    WINDOW_MAX, Want, write_hello_header,
};
use maelstrom_core::{
    Config, EgressCounts, Gateway, Outbox, PathConfig, PathUse, PeerConfig, PeerKey, Schedule, Secret, Seq,
    Token, Whereabouts,
};

/// Reads a message about groups: IGMP if the first byte is even, else MLD.
pub fn reports(data: &[u8]) {
    let Some((first, message)) = data.split_first() else { return };
    let source: IpAddr =
        if first % 2 == 0 { [10, 81, 1, 9].into() } else { [0xfe80, 0, 0, 0, 0, 0, 0, 9].into() };
    let mut count = 0;
    reports::read_message(source, message, &mut |said| {
        count += 1;
        match said {
            Said::Joins(group) | Said::Leaves(group) => {
                assert!(group.is_multicast() && group.is_ipv4() == source.is_ipv4());
            }
            Said::Asks(question) => {
                assert!(question.router == source && question.interval_s > 0 && question.robustness > 0);
            }
        }
    });
    assert!(count <= 1 + message.len() / 8, "a record has eight bytes at least");
}

/// Runs every reader of network input on the same bytes.
pub fn wire(data: &[u8]) {
    let _ = Outer::read(data);
    let _ = BodyKind::read(data);
    if let Ok(hello) = Hello::read(data) {
        let mut again = vec![0; hello.wire_len()];
        hello.write(&mut again);
        assert_eq!(Hello::read(&again).as_ref(), Ok(&hello));
    }
    if let Ok(report) = Report::read(data) {
        assert!(report.loss.recovered <= report.loss.lost && report.loss.lost <= report.loss.named);
    }
    let _ = Half::read(data);
    if let Ok(wants) = Want::read_all(data) {
        let wants: Vec<_> = wants.collect();
        let mut again = vec![0; data.len()];
        Want::write_all(&wants, &mut again);
        assert_eq!(again[1..], data[1..]);
    }
    if let Ok(packets) = PacketsView::read(data, Seq(1 << 33)) {
        let mut again = Bundle::default();
        packets.for_each(|(position, packet)| again.push(packet, 0, position));
        assert_eq!(again.body(), data);
    }
    if let Ok(probe) = Probe::read(data) {
        let mut again = [0; Probe::LEN];
        probe.write(&mut again);
        assert_eq!((Probe::read(&again), &again[6..]), (Ok(probe), &data[6..]));
    }
    if let Ok(announcement) = Announcement::read(data) {
        let mut again = [0; Announcement::LEN];
        announcement.write(&mut again);
        assert_eq!(Announcement::read(&again), Ok(announcement));
    }
    if let Ok(request) = Request::read(data, Seq(1 << 33)) {
        assert!(request.places().count() >= usize::from(request.deficit));
    }
    if let Ok(view) = RecipeView::read(data, Seq(1 << 33)) {
        assert!(view.entries().count() <= if view.is_names_only() { NAMES_APART_MAX } else { TERMS_MAX });
        assert!((1..=usize::from(WINDOW_MAX)).contains(&view.packets().count()));
        assert!(view.entries().zip(view.entries().skip(1)).all(|(a, b)| a.seq < b.seq));
        assert!(view.entries().all(|entry| (view.first()..=view.last()).contains(&entry.seq)));
        let mut terms = Vec::new();
        view.terms(&mut terms);
        assert!(view.is_names_only() == view.symbol.is_empty());
        assert!(terms.iter().all(|term| term.coefficient != 0 && term.id.0 <= view.last().0));
    }
    packet(data);
}

fn packet(data: &[u8]) {
    let Ok(packet) = Packet::new_checked(data) else { return };
    assert!(packet.as_slice().len() <= data.len());
    let fields = packet.mutable_fields();
    let mut rebuilt = [packet.stable_header().as_slice(), packet.behind_header()].concat();
    restore(&mut rebuilt, fields);
    let again = Packet::new_checked(&rebuilt).expect("mutable fields decide nothing");
    assert_eq!(again.mutable_fields(), fields);
    assert_eq!((again.source(), again.destination()), (packet.source(), packet.destination()));
    let _ = packet.is_udp_to(SocketAddr::from(([10, 81, 2, 1], 4700)));
}

/// Runs a gateway against a peer that holds the key and sends what the data contains: packets and sealed
/// bodies.
///
/// Each step is a byte for the kind, a byte for the length, and the content. The gateway's own code is fixed
/// at first, and is chosen by the peer's reports then.
pub fn ingress(data: &[u8]) {
    lie(Liar::new(), data);
    // By the length, packets travel in a tunnel.
    lie(Liar::to(Schedule::Auto, data.len() % 2 == 1), data);
}

fn lie(mut liar: Liar, mut data: &[u8]) {
    while let [kind, len, rest @ ..] = data {
        let (content, behind) = rest.split_at(usize::from(*len).min(rest.len()));
        data = behind;
        match kind % 4 {
            _ if *kind >= 250 => liar.say_report(content),
            0 => liar.arrive(content),
            1 => liar.say(content),
            2 => liar.say_repair(content),
            _ => liar.wait(content.first().copied().unwrap_or(1)),
        }
    }
}

fn is_icmp(packet: &[u8]) -> bool {
    packet[0] >> 4 == 6 || packet[9] == 1
}

/// A gateway, and its peer that lies.
pub struct Liar {
    gateway: Gateway,
    out: Outbox,
    sealer: Sealer,
    /// Secret of the names of packets.
    pub names: Secret,
    now_us: u64,
}

const LIAR: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 81, 9, 2)), 4700);

impl Liar {
    /// A peer of a gateway with a layered code.
    pub fn new() -> Self {
        Self::to(Schedule::Layered { r: 4, interleaves: vec![1, 3] }, false)
    }

    /// A peer of a gateway with this code, by a tunnel or not.
    pub fn to(schedule: Schedule, is_tunnel: bool) -> Self {
        let key = PeerKey::new([5; 32]);
        let network: ipnet::IpNet = "10.81.2.0/24".parse().expect("a network");
        let config = Config {
            listen: SocketAddr::from(([10, 81, 9, 1], 4700)),
            wan_mtu: 576,
            schedule,
            targets: Targets::default(),
            delayed: false,
            max_delay_us: 20_000,
            requests: maelstrom_core::Requests::All,
            repair_dscp: maelstrom_core::RepairDscp::default(),
            on_congestion: maelstrom_core::congestion::OnCongestion::Leave,
            name_bits: 2,
            classes: Vec::new(),
            local_networks: Vec::new(),
            multicast: Vec::new(),
            peers: vec![PeerConfig {
                address: LIAR,
                whereabouts: Default::default(),
                networks: vec![network],
                key: key.clone(),
                next_key: None,
                is_of_rack: false,
                trusts_path: false,
                is_tunnel,
                // All that it says comes by the first.
                paths: if is_tunnel {
                    vec![PathConfig { door: 1, address: LIAR, whereabouts: Whereabouts::Stated }]
                } else {
                    Vec::new()
                },
                path_use: PathUse::Spread,
                tunnel: maelstrom_core::TunnelConfig { resequence_us: 20_000, aggregate_us: 0 },
            }],
        };
        let mut gateway = Gateway::new(config, [1; 32]).expect("a valid configuration");
        let mut out = gateway.outbox();
        gateway.handle_timeout(1, &mut out);
        let hello_key = HelloKey::new(&key);
        let mut heard: Vec<u8> = out.datagrams.iter().next().expect("a Hello").1.to_vec();
        let heard = Hello::read(hello_key.open(&mut heard).expect("our key")).expect("a Hello");
        let (ours, theirs) = (Token([9; 16]), heard.token);
        let ephemeral = EphemeralKey::new(&Secret::new([8; 32]));
        let agreement = ephemeral.agree(&heard.public).expect("a point");
        let hello = Hello {
            token: ours,
            echo: theirs,
            previous: Token::UNKNOWN,
            public: ephemeral.public(),
            restarts: false,
            is_tunnel,
            watched: vec![network, "10.81.1.0/24".parse().expect("a network")],
        };
        let mut datagram = vec![0; HELLO_HEADER + hello.wire_len() + TAG];
        write_hello_header(&mut datagram, KeyPart::Only, [7; 12]);
        let end = datagram.len() - TAG;
        hello.write(&mut datagram[HELLO_HEADER..end]);
        hello_key.seal(&mut datagram);
        out.datagrams.clear();
        gateway.handle_datagram(2, LIAR, &mut datagram, &mut out);
        let sealer = Sealer::new(&key, &agreement, ours, theirs);
        let mut liar = Self { gateway, out, sealer, names: agreement.names(ours, theirs), now_us: 3 };
        let mut report = [0; Report::LEN];
        Report { silence_ms: Some(0), ..Report::default() }.write(&mut report);
        liar.say(&report);
        assert!(liar.gateway.peers().all(|peer| peer.is_up));
        liar
    }

    fn arrive(&mut self, content: &[u8]) {
        let mut packet = vec![0; 20 + content.len()];
        packet[0] = 0x45;
        let total = packet.len() as u16;
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        packet[12..20].copy_from_slice(&[10, 81, 2, 9, 10, 81, 1, 9]);
        packet[20..].copy_from_slice(content);
        restore(&mut packet, MutableFields { ttl: 60, tos: 0 });
        if self.gateway.config().peers[0].is_tunnel {
            let len = (packet.len() as u16).to_be_bytes();
            let first = [0, 0, 0, content.first().copied().unwrap_or(0)];
            self.say(&[&[BodyKind::Packets.to_wire()], &first[..], &len, &packet].concat());
            self.gateway.handle_tunnelled(self.now_us, content, &mut self.out);
            self.gateway.flush_tunnels(self.now_us, &mut self.out);
            return self.empty();
        }
        self.gateway.handle_incoming(self.now_us, &packet, &mut self.out);
        self.gateway.handle_incoming(self.now_us, content, &mut self.out);
        self.gateway.handle_outgoing(self.now_us, content, &mut self.out);
        self.empty();
    }

    /// Sends a sealed body.
    pub fn say(&mut self, body: &[u8]) {
        let mut datagram = vec![0; SEALED_HEADER + body.len() + TAG];
        datagram[SEALED_HEADER..SEALED_HEADER + body.len()].copy_from_slice(body);
        self.sealer.seal(self.now_us, &mut datagram);
        self.gateway.handle_datagram(self.now_us, LIAR, &mut datagram, &mut self.out);
        self.empty();
    }

    /// Lets a packet of the liar's site arrive.
    pub fn deliver(&mut self, packet: &[u8]) {
        self.gateway.handle_incoming(self.now_us, packet, &mut self.out);
        self.empty();
    }

    /// Lets a packet leave the gateway's site.
    pub fn leave(&mut self, packet: &[u8]) {
        self.gateway.handle_outgoing(self.now_us, packet, &mut self.out);
        self.empty();
    }

    /// Sends a report whose counts are in the content, each at its own scale: 0, small, or huge.
    fn say_report(&mut self, content: &[u8]) {
        let mut values = content.iter().map(|&byte| match byte {
            0..128 => u64::from(byte),
            128..192 => 1 << (byte - 128),
            _ => u64::MAX - u64::from(byte - 192),
        });
        let mut next = || values.next().unwrap_or(0);
        let loss = LossReport { named: next(), lost: next(), recovered: next(), ..LossReport::NONE };
        let mut forecast = Forecast { packets: next() as u32, lost: next() as u32, ..Forecast::NONE };
        forecast.fit = Fit { packets: next() as u32, lost: next() as u32 };
        for tail in &mut forecast.tails {
            *tail = Tail { half: next() as u32, most: next() as u32, failed: next() as u32 };
        }
        self.say_counts(loss, forecast);
    }

    /// Sends a report with these counts.
    pub fn say_counts(&mut self, loss: LossReport, forecast: Forecast) {
        let mut report = [0; Report::LEN];
        Report { silence_ms: Some(0), loss, forecast, ..Report::default() }.write(&mut report);
        self.say(&report);
    }

    pub fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// Lets time pass without timers.
    pub fn pass(&mut self, us: u64) {
        self.now_us += us;
    }

    /// Tells the gateway a round-trip time of next to nothing.
    pub fn tell_round_trip(&mut self) {
        let mut report = [0; Report::LEN];
        let echo = Some(Echo { sent: SendTime::at(self.now_us), held_us: 0 });
        Report { silence_ms: Some(0), echo, ..Report::default() }.write(&mut report);
        self.say(&report);
    }

    pub fn egress(&self) -> EgressCounts {
        *self.gateway.peers().next().expect("a peer").egress
    }

    /// Sends a body whose first bytes make it a repair near the start of the stream.
    fn say_repair(&mut self, content: &[u8]) {
        let [count, stride, last, rest @ ..] = content else { return };
        let count = count % 5 + 1;
        if *stride >= 192 {
            // A window, with runs of names somewhere in it.
            let window = [1, 3, 0, count * 3, *stride, *last, stride % 16, 0, 0, 0, last % 64, 63, 0, 0];
            let runs = [0, last % 11, stride % 3, 0, last % 5, count % 3, 0, 0, stride % 2];
            return self.say(&[&window[..], &runs, rest].concat());
        }
        // The high bits of the stride choose the scheme: layered below 128, else one of four rows of a block.
        let (scheme, row) = if *stride < 128 { (1, 0) } else { (2, stride / 4 % 4) };
        let head = [1, scheme, count, row, 0, stride % 4 + 1, 0, 0, 0, last % 64, 63, 0, 0];
        self.say(&[&head, rest].concat());
    }

    /// Lets tenths of a second pass, and runs the timers at the end.
    pub fn wait(&mut self, tenths: u8) {
        self.now_us += u64::from(tenths) * 100_000;
        self.gateway.handle_timeout(self.now_us, &mut self.out);
        self.empty();
    }

    fn empty(&mut self) {
        for (_, packet) in self.out.recovered.iter() {
            let whole = Packet::new_whole(packet).expect("what is injected is a packet");
            // Routers anywhere may report errors to hosts behind a tunnel.
            let is_error = self.gateway.config().peers[0].is_tunnel && is_icmp(packet);
            let is_of_site = whole.source().to_string().starts_with("10.81.2.");
            assert!(is_of_site || is_error, "from elsewhere: {}", whole.source());
        }
        self.out.recovered.clear();
        self.out.datagrams.clear();
    }
}
