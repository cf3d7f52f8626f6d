//! The record of losses of a running gateway: one JSON document over a socket of its own, beside the control
//! socket, and in a file if the configuration names one (`store.rs`). It is longer than the status, so that
//! other threads write it.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use daemon::control::Control;
use maelstrom_core::observe::Observer;
use maelstrom_core::record::{GAP_BUCKETS, RUNS_MAX, Record, Tally, gap_bucket};
use maelstrom_core::wire::{BURST_BUCKETS, LossReport};
use maelstrom_core::{Gateway, PeerStatus, Whereabouts};
use serde::{Deserialize, Serialize};
use tracing::{debug, warn};

use crate::config::{GatewayConfig, Peer};
use crate::status::{BurstStatus, EventStatus, MinuteStatus, StatusError, document};
use crate::store::Store;
use crate::watch::label;

/// Schema of the document, with its version: it rises when a field is removed or gets another meaning.
pub const SCHEMA: &str = "undrop.gateway.losses/1";
/// Largest document that is read, in bytes.
const DOCUMENT_BYTES_MAX: u64 = 1 << 26;
/// Interval between looks for clients.
const LOOK_US: u64 = 100_000;

/// The losses of packets that arrive, by peer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Losses {
    /// Name and version of this schema.
    #[serde(default)]
    pub schema: String,
    /// The far gateways, in the order of the configuration.
    pub peers: Vec<PeerLosses>,
    /// All events that the gateway keeps, also of other peers, oldest first. Not in files.
    #[serde(default)]
    pub events: Vec<EventStatus>,
}

/// The losses of packets from one peer's site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerLosses {
    /// The operator's name for the peer.
    pub name: Option<String>,
    /// Its address as the file states it, if that is a host name or `any`.
    #[serde(default)]
    pub host: Option<String>,
    /// Address of its end of the repair channel.
    pub address: SocketAddr,
    /// Packets per second while there is traffic.
    pub packets_per_second: u64,
    /// Repairs for each packet that the peer sends.
    pub rate: String,
    /// Whether the peer chooses this rate by forecasts.
    pub is_auto: bool,
    /// Whether packets travel inside datagrams of the gateways (tunnel mode).
    #[serde(default)]
    pub is_tunnel: bool,
    /// Number of packets that its repairs reach back; 0 if it has no window.
    #[serde(default)]
    pub window: u16,
    /// Number of stripes of this window, of which a repair contains one; 0 if it has no window.
    #[serde(default)]
    pub stripes: u8,
    /// Time in microseconds after which a recovered packet is of no use, as the peer states it; 0 if it
    /// states none.
    pub late_us: u32,
    /// The last hour by minute, the latest first. Spans without packets are left out.
    pub minutes: Vec<Span>,
    /// The last two days by hour.
    pub hours: Vec<Span>,
    /// The last month by day.
    pub days: Vec<Span>,
    /// Lengths of the last runs of packets that arrived and that were lost, in turn. The last number is 0 if
    /// packets have arrived since the last loss.
    pub trace: Vec<u32>,
    /// Traffic, losses and repairs of both directions in the last hour by minute, the earliest first. Not in
    /// files.
    #[serde(default)]
    pub course: Vec<MinuteStatus>,
}

/// Losses in a minute, an hour or a day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Number of such spans since this one.
    pub ago: u64,
    /// Packets whose fate is known.
    pub packets: u64,
    /// Lost packets among them.
    pub lost: u64,
    /// Longest run of lost packets.
    pub longest: u32,
    /// Runs of lost packets by length.
    pub bursts: Vec<BurstStatus>,
    /// Runs of packets that arrived between two bursts, by length.
    pub gaps: Vec<BurstStatus>,
}

impl Losses {
    /// The losses that a gateway has recorded.
    pub(crate) fn of(gateway: &Gateway, config: &GatewayConfig) -> Self {
        let names = config.peers.iter().map(|peer| (peer.name.clone(), peer.moving()));
        let schema = SCHEMA.to_owned();
        let peers = gateway.peers().zip(names).map(|(peer, names)| PeerLosses::of(names, &peer)).collect();
        Self { schema, peers, events: Vec::new() }
    }

    /// The same with the events and the course of the last hour.
    fn observed(mut self, now_us: u64, observer: &Observer, config: &GatewayConfig) -> Self {
        self.events = EventStatus::kept(now_us, observer, |site| label(config, site));
        for (index, peer) in self.peers.iter_mut().enumerate() {
            peer.course = observer.course(index).iter().map(MinuteStatus::of).collect();
        }
        self
    }

    /// Adds these losses to the records of the same peers ([`Losses::of_peers`]), given in the order of the
    /// gateway; returns the labels of those that have a record and belong to none of these. The records were
    /// taken `elapsed_minutes` ago, at the minute `taken` of their clock.
    pub(crate) fn recall(
        &self,
        gateway: &mut Gateway,
        peers: &[Peer],
        now_us: u64,
        since: (u64, Option<u64>),
    ) -> Vec<String> {
        let left = self.recall_into(&self.of_peers(peers), gateway, now_us, since);
        left.into_iter().map(PeerLosses::label).collect()
    }

    /// Adds these losses to the records of the same peers, of which the places here are given in the order of
    /// the gateway; returns those that have a record and belong to none of these.
    fn recall_into(
        &self,
        owners: &[Option<usize>],
        gateway: &mut Gateway,
        now_us: u64,
        (elapsed_minutes, taken): (u64, Option<u64>),
    ) -> Vec<&PeerLosses> {
        for (index, peer) in owners.iter().enumerate().filter_map(|(index, at)| Some((index, (*at)?))) {
            let peer = &self.peers[peer];
            let spans = |spans: &[Span]| spans.iter().map(|span| (span.ago, span.tally())).collect();
            let history = [spans(&peer.minutes), spans(&peer.hours), spans(&peer.days)];
            let runs: Vec<(u32, u32)> = peer.trace.chunks_exact(2).map(|run| (run[0], run[1])).collect();
            let latest = &runs[runs.len().saturating_sub(RUNS_MAX + 1)..];
            gateway.record_mut(index).recall(now_us, elapsed_minutes, taken, &history, latest);
        }
        let left = self.peers.iter().enumerate().filter(|(at, _)| !owners.contains(&Some(*at)));
        left.map(|(_, peer)| peer).filter(|peer| peer.has_record()).collect()
    }

    /// The losses of peers that no peer of another configuration continues.
    fn left(config: &GatewayConfig, left: &[(usize, Record)]) -> Self {
        let of = |(number, record): &(usize, Record)| {
            let peer = &config.peers[*number];
            let (names, address) = ((peer.name.clone(), peer.moving()), peer.address);
            PeerLosses::of_record(names, address, record)
        };
        Self { schema: SCHEMA.to_owned(), peers: left.iter().map(of).collect(), events: Vec::new() }
    }

    /// Finds the place of each of these peers here. A peer whose address the file states has the same
    /// address, or else, if its address has been edited, the same name. Others have the same name, or the
    /// same host, unless its record has the name of another peer.
    fn of_peers(&self, peers: &[Peer]) -> Vec<Option<usize>> {
        let is_stated = |peer: &Peer| peer.whereabouts == Whereabouts::Stated;
        let has_name = |saved: &PeerLosses, wanted: &Peer| saved.name.is_some() && saved.name == wanted.name;
        // An address counts for more than a name: the link to it is the one whose losses were recorded.
        let is_at_another =
            |saved: &PeerLosses| peers.iter().any(|other| is_stated(other) && other.address == saved.address);
        let place = |wanted: &Peer| {
            let position = |is_it: &dyn Fn(&PeerLosses) -> bool| self.peers.iter().position(is_it);
            if is_stated(wanted) {
                position(&|saved| saved.address == wanted.address)
                    .or_else(|| position(&|saved| has_name(saved, wanted) && !is_at_another(saved)))
            } else {
                let is_of_host = |saved: &PeerLosses| wanted.host.is_some() && saved.host == wanted.moving();
                let is_of_another = |saved: &PeerLosses| {
                    is_at_another(saved) || peers.iter().any(|other| has_name(saved, other))
                };
                position(&|saved| has_name(saved, wanted))
                    .or_else(|| position(&|saved| is_of_host(saved) && !is_of_another(saved)))
            }
        };
        peers.iter().map(place).collect()
    }
}

impl PeerLosses {
    fn of(names: (Option<String>, Option<String>), peer: &PeerStatus<'_>) -> Self {
        let plan = &peer.far.plan;
        let stripes = if plan.is_auto { plan.shape(plan.rate).stripes } else { 1 };
        Self {
            packets_per_second: peer.per_second,
            rate: plan.rate.to_string(),
            is_auto: plan.is_auto,
            is_tunnel: peer.config.is_tunnel,
            window: plan.window,
            stripes: if plan.window > 0 { stripes } else { 0 },
            late_us: plan.late_us,
            ..Self::of_record(names, peer.config.address, peer.record)
        }
    }

    /// The losses of a peer of which nothing else is known.
    fn of_record(
        (name, host): (Option<String>, Option<String>),
        address: SocketAddr,
        record: &Record,
    ) -> Self {
        let [minutes, hours, days] =
            record.history().map(|spans| spans.into_iter().map(|(ago, tally)| Span::of(ago, &tally)));
        Self {
            name,
            host,
            address,
            packets_per_second: 0,
            rate: String::new(),
            is_auto: false,
            is_tunnel: false,
            window: 0,
            stripes: 0,
            late_us: 0,
            minutes: minutes.collect(),
            hours: hours.collect(),
            days: days.collect(),
            trace: record.trace().into_iter().flat_map(|(arrived, lost)| [arrived, lost]).collect(),
            course: Vec::new(),
        }
    }

    /// Whether any packet was counted.
    fn has_record(&self) -> bool {
        self.has_spans() || self.trace.iter().any(|&run| run > 0)
    }

    /// Whether any span of time has packets.
    pub(crate) fn has_spans(&self) -> bool {
        [&self.minutes, &self.hours, &self.days].into_iter().any(|spans| !spans.is_empty())
    }

    /// The peer in tables: its name, or else its address as the file states it.
    pub fn label(&self) -> String {
        let stated = || self.host.clone().unwrap_or_else(|| self.address.to_string());
        self.name.clone().unwrap_or_else(stated)
    }
}

impl Span {
    fn of(ago: u64, tally: &Tally) -> Self {
        let Tally { packets, lost, bursts, gaps, longest } = tally;
        let (packets, lost, longest) = (*packets, *lost, *longest);
        Self { ago, packets, lost, longest, bursts: buckets(bursts), gaps: buckets(gaps) }
    }

    /// The same as it was recorded.
    fn tally(&self) -> Tally {
        let count = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let (mut bursts, mut gaps) = ([0; BURST_BUCKETS], [0; GAP_BUCKETS]);
        for burst in &self.bursts {
            bursts[LossReport::burst_bucket(burst.from)] = count(burst.count);
        }
        for gap in &self.gaps {
            gaps[gap_bucket(u32::try_from(gap.from).unwrap_or(u32::MAX))] = count(gap.count);
        }
        // A file may say what it likes, and counts are added up.
        let [packets, lost] = [self.packets, self.lost].map(|count| count.min(1 << 48));
        Tally { packets, lost, bursts, gaps, longest: self.longest }
    }
}

/// Buckets that are not empty.
fn buckets(counts: &[u32]) -> Vec<BurstStatus> {
    let last = counts.len() - 1;
    let bucket = |(index, &count): (usize, &u32)| BurstStatus {
        from: if index == 0 { 1 } else { (1 << (index - 1)) + 1 },
        to: (index < last).then_some(1 << index),
        count: u64::from(count),
    };
    counts.iter().enumerate().filter(|&(_, &count)| count > 0).map(bucket).collect()
}

/// The socket of the record beside a control socket.
fn socket(control: &Path) -> PathBuf {
    let mut path = control.as_os_str().to_owned();
    path.push(".losses");
    path.into()
}

/// The end of the socket in the gateway.
#[derive(Debug)]
pub(crate) struct LossSocket {
    control: Option<Control>,
    next_us: u64,
    store: Store,
}

impl LossSocket {
    /// Hands out the record that this store keeps.
    pub(crate) fn of(store: Store) -> Self {
        Self { control: None, next_us: 0, store }
    }

    /// Leaves the place to another process.
    pub(crate) fn abandon(&mut self) {
        if let Some(mut control) = self.control.take() {
            control.abandon();
        }
    }

    /// Continues after a reload. `left`: the records that no peer continues, by the numbers of their peers in
    /// the former configuration. A peer that has kept its name alone continues its record. If others have
    /// one, a copy of the file keeps the whole record.
    pub(crate) fn follow(
        &mut self,
        now_us: u64,
        gateway: &mut Gateway,
        (former, config): (&GatewayConfig, &GatewayConfig),
        left: &[(usize, Record)],
    ) {
        let taken = left.first().map(|(_, record)| record.minute());
        let left = Losses::left(former, left);
        let mut owners = left.of_peers(&config.peers);
        for (owner, peer) in owners.iter_mut().zip(gateway.peers()) {
            // It has continued the record of its link.
            *owner = owner.filter(|_| peer.record.is_empty());
        }
        let gone = left.recall_into(&owners, gateway, now_us, (0, taken));
        if former.gateway.loss_record != config.gateway.loss_record {
            self.store.begin_at(config);
        } else if !gone.is_empty() {
            let names: Vec<String> = gone.iter().map(|peer| peer.label()).collect();
            let mut whole = Losses::of(gateway, config);
            whole.peers.extend(gone.into_iter().cloned());
            self.store.keep_former(gateway, config, whole, names.join(", "));
        }
    }

    /// Writes the record for another process: at the next turn into the file, and into memory.
    pub(crate) fn begin_handover(&mut self, gateway: &Gateway, config: &GatewayConfig) {
        self.store.save_soon();
        self.store.pack(gateway, config);
    }

    /// Returns the record in memory, if it is written, and stays there while both processes have it.
    pub(crate) fn take_packed(&mut self) -> Option<File> {
        self.store.take_packed()
    }

    /// Listens beside the control socket. Without a socket, the record cannot be read, and the gateway works
    /// all the same.
    pub(crate) fn listen(&mut self, control: &Path) {
        let opened = Control::bind(&socket(control));
        self.control =
            opened.inspect_err(|error| warn!("`undrop gateway losses` will not work: {error}")).ok();
    }

    /// Writes the record at the end of the process.
    pub(crate) fn close(&mut self, gateway: &Gateway, config: &GatewayConfig) {
        self.store.close(gateway, config);
    }

    /// Number of records that were not written to the file.
    pub(crate) fn unwritten(&self) -> u64 {
        self.store.unwritten()
    }

    /// Answers a client that waits, and writes the file if that is due.
    pub(crate) fn answer(
        &mut self,
        now_us: u64,
        gateway: &Gateway,
        config: &GatewayConfig,
        observer: &Observer,
    ) {
        self.store.save_if_due(now_us, gateway, config);
        let Some(control) = self.control.as_ref().filter(|_| now_us >= self.next_us) else { return };
        self.next_us = now_us + LOOK_US;
        let document = || {
            let losses = Losses::of(gateway, config).observed(now_us, observer, config);
            move || {
                let mut document = serde_json::to_vec(&losses)?;
                document.push(b'\n');
                Ok(document)
            }
        };
        if let Err(error) = control.answer_at_leisure(document) {
            debug!(%error, "cannot answer a request for the losses");
        }
    }
}

/// Reads the losses of the gateway at a control socket.
///
/// # Errors
/// [`StatusError`].
pub fn read(control: &Path) -> Result<Losses, StatusError> {
    document(&socket(control), DOCUMENT_BYTES_MAX)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use super::*;
    use crate::config::machine::record::PEER_BYTES;
    use crate::config::tests::configuration;
    use crate::config::{Mode, PEERS_MAX};
    use crate::ports::core_config;
    use crate::store::FILE_BYTES_MAX;

    #[test]
    fn only_buckets_with_runs_are_shown() {
        let shown = buckets(&[2, 0, 0, 1, 5]);
        let expected = [(1, Some(1), 2), (5, Some(8), 1), (9, None, 5)];
        assert_eq!(shown, expected.map(|(from, to, count)| BurstStatus { from, to, count }));
    }

    fn saved(name: Option<&str>, address: &str, packets: u64) -> PeerLosses {
        let spans = |packets| match packets {
            0 => Vec::new(),
            _ => vec![Span::of(0, &Tally { packets, ..Tally::default() })],
        };
        PeerLosses {
            name: name.map(str::to_owned),
            host: None,
            address: address.parse().unwrap(),
            packets_per_second: 0,
            rate: "1/8".to_owned(),
            is_auto: true,
            is_tunnel: false,
            window: 512,
            stripes: 1,
            late_us: 0,
            minutes: spans(packets),
            hours: Vec::new(),
            days: Vec::new(),
            trace: Vec::new(),
            course: Vec::new(),
        }
    }

    /// A configuration with these peers.
    pub(crate) fn configured(peers: &[(Option<&str>, &str)]) -> GatewayConfig {
        let mut text = "[gateway]\nwan = 'w'\nlisten = '203.0.113.1:4700'\n".to_owned();
        for (n, (name, address)) in peers.iter().enumerate() {
            let name = name.map_or(String::new(), |name| format!("name = '{name}'\n"));
            text += &format!("[[peer]]\n{name}address = '{address}'\n");
            text += &format!("networks = ['10.82.{n}.0/24']\nkey_file = '{n}.key'\n");
        }
        configuration(&text)
    }

    /// A gateway that has lost one packet from the first peer, two from the second, and so on.
    pub(crate) fn gateway_with_losses(config: &GatewayConfig) -> Gateway {
        let mut gateway = Gateway::new(core_config(config, 1_500).unwrap(), [7; 32]).unwrap();
        for (peer, losses) in (0..config.peers.len()).zip(1..) {
            gateway.record_mut(peer).on_all_lost(losses);
            gateway.record_mut(peer).on_arrived(1);
        }
        gateway
    }

    /// Packets lost from each peer.
    pub(crate) fn lost(gateway: &Gateway) -> Vec<u64> {
        let of = |peer: PeerStatus<'_>| {
            let [.., days] = peer.record.history();
            days.iter().map(|(_, tally)| tally.lost).sum()
        };
        gateway.peers().map(of).collect()
    }

    #[test]
    fn the_losses_of_a_tunnel_are_those_of_a_tunnel() {
        let mut config = configured(&NAMED[..2]);
        config.peers[1].mode = Mode::Tunnel;
        let losses = Losses::of(&gateway_with_losses(&config), &config);
        assert_eq!(losses.peers.iter().map(|peer| peer.is_tunnel).collect::<Vec<_>>(), [false, true]);
    }

    const AT: [&str; 4] = ["203.0.113.2:4700", "203.0.113.3:4700", "203.0.113.4:4700", "203.0.113.5:4700"];

    #[test]
    fn a_record_belongs_to_the_address_or_else_to_the_name() {
        let of = |record: &[(Option<&str>, &str)], wanted: &[(Option<&str>, &str)]| {
            let peers = record.iter().map(|(name, address)| saved(*name, address, 1)).collect();
            Losses { peers, ..Losses::default() }.of_peers(&configured(wanted).peers)
        };
        let (osaka, kobe) = (Some("osaka"), Some("kobe"));
        let both = [(osaka, AT[0]), (kobe, AT[1])];
        assert_eq!(of(&both, &both), [Some(0), Some(1)]);
        assert_eq!(of(&both, &[(kobe, AT[2]), (osaka, AT[0])]), [Some(1), Some(0)], "another address");
        assert_eq!(of(&both, &[(None, AT[1]), (osaka, AT[3])]), [Some(1), Some(0)], "another name");
        assert_eq!(of(&both, &[(osaka, AT[1]), (kobe, AT[0])]), [Some(1), Some(0)], "exchanged addresses");
        assert_eq!(of(&both, &[(osaka, AT[2]), (kobe, AT[0])]), [None, Some(0)], "it belongs to the address");
        assert_eq!(of(&[(None, AT[0])], &[(None, AT[1]), (osaka, AT[2])]), [None, None]);
    }

    #[test]
    fn a_record_of_a_host_belongs_to_the_name_or_else_to_the_host() {
        let of = |record: &[(Option<&str>, &str)], wanted: &[(Option<&str>, &str)]| {
            let of_host = |&(name, host): &(Option<&str>, &str)| PeerLosses {
                host: Some(host.to_owned()),
                ..saved(name, AT[0], 1)
            };
            let peers = record.iter().map(of_host).collect();
            Losses { schema: String::new(), events: Vec::new(), peers }.of_peers(&configured(wanted).peers)
        };
        let (osaka, kobe, here, there) =
            (Some("osaka"), Some("kobe"), "here.example:4700", "there.example:4700");
        assert_eq!(of(&[(osaka, here)], &[(kobe, here)]), [Some(0)], "another name");
        assert_eq!(of(&[(osaka, here)], &[(None, here)]), [Some(0)], "no name any more");
        assert_eq!(of(&[(None, here)], &[(osaka, here)]), [Some(0)], "a first name");
        assert_eq!(of(&[(osaka, here)], &[(osaka, there)]), [Some(0)], "another host");
        assert_eq!(of(&[(osaka, here)], &[(kobe, there)]), [None], "another peer");
        assert_eq!(of(&[(osaka, here)], &[(kobe, here), (osaka, there)]), [None, Some(0)], "it has the name");
        assert_eq!(
            of(&[(osaka, here)], &[(kobe, here), (None, AT[0])]),
            [None, Some(0)],
            "it has the address"
        );
        let both = [(osaka, here), (kobe, there)];
        assert_eq!(of(&both, &[(kobe, here), (osaka, there)]), [Some(1), Some(0)], "exchanged names");
        // A peer without a stated address is known by its name alone.
        assert_eq!(of(&[(osaka, "any")], &[(kobe, "any")]), [None]);
    }

    #[test]
    fn records_that_belong_to_no_peer_are_told() {
        let config = configured(&[(Some("osaka"), AT[2])]);
        let core = core_config(&config, 1_500).unwrap();
        let mut gateway = Gateway::new(core, [7; 32]).unwrap();
        let peers =
            vec![saved(None, AT[0], 5), saved(Some("osaka"), AT[1], 77), saved(Some("kobe"), AT[3], 0)];
        let left = Losses { peers, ..Losses::default() }.recall(&mut gateway, &config.peers, 0, (0, None));
        assert_eq!(left, [AT[0]], "and not those that are empty");
        let [minutes, ..] = gateway.peers().next().unwrap().record.history();
        assert_eq!(minutes.iter().map(|(_, tally)| tally.packets).sum::<u64>(), 77);
    }

    const NAMED: [(Option<&str>, &str); 3] =
        [(Some("osaka"), AT[0]), (Some("kobe"), AT[1]), (Some("nara"), AT[2])];

    /// Reloads a gateway with losses from each configuration to the next; returns the losses of its peers
    /// after that, and the peers in the record and in those beside it.
    fn reloaded(place: &str, configs: &[&GatewayConfig]) -> (Vec<u64>, [String; 3]) {
        let directory = std::env::temp_dir().join(format!("undrop-losses-{}-{place}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let mut configs: Vec<GatewayConfig> = configs.iter().map(|&config| config.clone()).collect();
        for config in &mut configs {
            config.gateway.loss_record = Some(directory.join("losses.json"));
        }
        let mut gateway = gateway_with_losses(&configs[0]);
        let mut losses = LossSocket { control: None, next_us: 0, store: Store::default() };
        for pair in configs.windows(2) {
            let left = gateway.reconfigure(core_config(&pair[1], 1_500).unwrap()).unwrap();
            losses.follow(0, &mut gateway, (&pair[0], &pair[1]), &left);
        }
        losses.close(&gateway, configs.last().unwrap());
        let labels = |file: &str| {
            let Ok(text) = fs::read(directory.join(file)) else { return "none".to_owned() };
            let document: serde_json::Value = serde_json::from_slice(&text).unwrap();
            let losses: Losses = serde_json::from_value(document["losses"].clone()).unwrap();
            losses.peers.iter().map(PeerLosses::label).collect::<Vec<_>>().join(" ")
        };
        let files = ["losses.json", "losses.json.former", "losses.json.former.1"].map(labels);
        fs::remove_dir_all(&directory).unwrap();
        (lost(&gateway), files)
    }

    #[test]
    fn a_reload_keeps_the_record_of_a_peer_that_it_drops_and_finds_others_by_their_names() {
        let former = configured(&NAMED);
        let mut wanted = former.clone();
        wanted.peers[1].address = AT[3].parse().unwrap();
        wanted.peers[1].networks = vec!["10.99.0.0/24".parse().unwrap()];
        let (lost, files) = reloaded("renumbered", &[&former, &wanted]);
        assert_eq!((lost, files), (vec![1, 2, 3], ["osaka kobe nara", "none", "none"].map(str::to_owned)));
        wanted.peers.remove(0);
        let (lost, files) = reloaded("dropped", &[&former, &wanted]);
        assert_eq!((lost, files), (vec![2, 3], ["kobe nara", "kobe nara osaka", "none"].map(str::to_owned)));
    }

    #[test]
    fn reloads_that_drop_one_peer_each_keep_the_records_of_all() {
        let [three, two, one] = [&NAMED[..], &NAMED[..2], &NAMED[..1]].map(configured);
        let (lost, files) = reloaded("each", &[&three, &two, &one]);
        let expected = ["osaka", "osaka kobe nara", "osaka kobe"].map(str::to_owned);
        assert_eq!((lost, files), (vec![1], expected));
    }

    #[test]
    fn a_reload_does_not_mix_the_records_of_two_links() {
        let former = configured(&NAMED[..2]);
        let mut wanted = former.clone();
        // Osaka takes over the networks of Kobe, at a third address.
        (wanted.peers[0].address, wanted.peers[0].networks) =
            (AT[3].parse().unwrap(), wanted.peers[1].networks.clone());
        wanted.peers.truncate(1);
        let (lost, files) = reloaded("mixed", &[&former, &wanted]);
        assert_eq!((lost, files), (vec![2], ["osaka", "osaka osaka", "none"].map(str::to_owned)));
    }

    #[test]
    fn no_record_is_longer_than_the_check_of_the_disk_expects() {
        let (bursts, gaps) = ([u32::MAX; BURST_BUCKETS], [u32::MAX; GAP_BUCKETS]);
        let full = Tally { packets: 1 << 48, lost: 1 << 48, bursts, gaps, longest: u32::MAX };
        let spans = |count| (0..count).map(|ago| Span::of(ago, &full)).collect::<Vec<_>>();
        let peer = PeerLosses {
            minutes: spans(60),
            hours: spans(48),
            days: spans(31),
            trace: vec![u32::MAX; 2 * (RUNS_MAX + 1)],
            ..saved(Some("a-name-of-many-letters"), AT[0], 0)
        };
        let bytes = serde_json::to_vec(&peer).unwrap().len() as u64;
        assert!((400_000..=PEER_BYTES).contains(&bytes), "{bytes}");
        assert!(PEERS_MAX as u64 * PEER_BYTES < FILE_BYTES_MAX, "each file that is written can be read");
    }

    #[test]
    fn a_span_is_read_as_it_was_written() {
        let mut tally = Tally { packets: 900, lost: 40, longest: 17, ..Tally::default() };
        for (index, count) in tally.bursts.iter_mut().enumerate() {
            *count = index as u32;
        }
        for (index, count) in tally.gaps.iter_mut().enumerate() {
            *count = 100 + index as u32;
        }
        assert_eq!(Span::of(7, &tally).tally(), tally);
    }

    #[test]
    fn the_record_has_a_socket_beside_the_control_socket() {
        assert_eq!(
            socket(Path::new("/run/undrop/gateway.sock")),
            Path::new("/run/undrop/gateway.sock.losses")
        );
        assert!(matches!(read(Path::new("/nowhere/x.sock")), Err(StatusError::Absent { .. })));
    }
}
