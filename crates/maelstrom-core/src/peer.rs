//! One far gateway: the session with it, and both directions of its traffic.

mod renewal;

use std::net::SocketAddr;

use ipnet::IpNet;

use crate::config::{Config, IngressConfig, PeerConfig};
use crate::counters::{Rejected, Unprotected, Unsent};
use crate::egress::{Egress, Outlet};
use crate::greeting::{Answers, Seen};
use crate::identity::Identity;
use crate::ingress::{Ingress, IngressCx};
use crate::key::Token;
use crate::ledger::TICK_US;
use crate::outbox::{Outbox, Queue};
use crate::packet::Packet;
use crate::prefixes::PrefixTable;
use crate::session::{HelloKey, Opener, Sealer};
use crate::wire::{
    BodyKind, HELLO_HEADER, Hello, LossReport, SEALED_HEADER, SealedHeader, TAG, write_hello_header,
};
use renewal::Renewal;

/// Interval between Hellos to a live peer.
const HELLO_US: u64 = 1_000_000;
/// Interval between Hellos, and between reports, to a peer that is not up.
const CALL_US: u64 = 200_000;
/// Silence after which a peer counts as down; traffic towards it is not protected.
const SILENCE_US: u64 = 3_500_000;
/// Silence after which a session is given up for a new one.
const GIVE_UP_US: u64 = 10_000_000;
/// Interval between reports to a live peer, which also serve as signs of life.
const REPORT_US: u64 = 1_000_000;
/// Maximum number of tokens of a peer that are remembered. At half of it, the session is renewed, and a new
/// token of our own makes them void.
const PAST_MAX: usize = 32;

/// A session. Its peer has proved that it knows the key and our token.
struct Session {
    begun_us: u64,
    far_token: Token,
    sealer: Sealer,
    opener: Opener,
    /// Opens datagrams of the session before a renewal that are still in flight.
    earlier: Option<Opener>,
    /// Our networks as the far gateway knows them: sources that it watches, and destinations that it
    /// protects.
    watched: PrefixTable<()>,
}

/// One far gateway.
pub(crate) struct Peer {
    pub(crate) config: PeerConfig,
    pub(crate) egress: Egress,
    pub(crate) ingress: Ingress,
    ingress_config: IngressConfig,
    identity: Identity,
    networks: PrefixTable<()>,
    listen: SocketAddr,
    index: usize,
    hello_key: HelloKey,
    own_token: Token,
    session: Option<Session>,
    renewal: Option<Renewal>,
    /// Earlier tokens of the peer while our own token has been in use. A session with one of them
    /// would reuse its key from counter 0.
    past: Vec<Token>,
    /// Time of the last datagram sealed in a session.
    last_heard_us: Option<u64>,
    is_up: bool,
    next_hello_us: u64,
    answers: Answers,
    seen: Seen,
    next_report_us: u64,
    next_tick_us: u64,
    far_report: LossReport,
    /// Number of sessions begun.
    pub(crate) sessions: u64,
    /// Number of renewals of a session.
    pub(crate) renewals: u64,
}

impl Peer {
    /// Creates peer number `index` of a gateway whose own token is `token`.
    ///
    /// # Panics
    /// If the configuration is not valid: [`Config::check`] comes first.
    pub(crate) fn new(config: PeerConfig, gateway: &Config, index: usize, token: Token) -> Self {
        let outer = if config.address.is_ipv6() { 40 + 8 } else { 20 + 8 };
        let ingress_config = gateway.ingress();
        Self {
            egress: Egress::new(gateway, index, outer),
            ingress: Ingress::new(&ingress_config),
            ingress_config,
            identity: Identity::new(&config.key).with_name_bits(gateway.name_bits),
            networks: PrefixTable::new(config.networks.iter().map(|&network| (network, ()))),
            listen: gateway.listen,
            index,
            hello_key: HelloKey::new(&config.key),
            own_token: token,
            session: None,
            renewal: None,
            past: Vec::new(),
            last_heard_us: None,
            is_up: false,
            next_hello_us: 0,
            answers: Answers::default(),
            seen: Seen::default(),
            next_report_us: 0,
            next_tick_us: 0,
            far_report: LossReport::default(),
            sessions: 0,
            renewals: 0,
            config,
        }
    }

    /// Changes the gateway's configuration; the session stays.
    ///
    /// # Panics
    /// As [`Peer::new`].
    #[must_use]
    pub(crate) fn reconfigured(mut self, gateway: &Config, index: usize) -> Self {
        self.egress.reconfigure(gateway);
        self.index = index;
        self.egress.renumber(index);
        self
    }

    /// Whether there is a session and the peer was heard recently.
    pub(crate) fn is_up(&self) -> bool {
        self.is_up
    }

    pub(crate) fn last_heard_us(&self) -> Option<u64> {
        self.last_heard_us
    }

    pub(crate) fn far_report(&self) -> &LossReport {
        &self.far_report
    }

    /// Whether the present session, the one before it or the next one has this epoch.
    pub(crate) fn has_epoch(&self, epoch: u32) -> bool {
        self.session.as_ref().is_some_and(|session| session.has_epoch(epoch))
            || self.renewal.as_ref().is_some_and(|renewal| renewal.has_epoch(epoch))
    }

    /// Takes a packet that leaves for this peer's site.
    pub(crate) fn handle_outgoing(
        &mut self,
        now_us: u64,
        packet: &Packet<'_>,
        out: &mut Outbox,
    ) -> Result<(), Unprotected> {
        if packet.is_udp_to(self.config.address) {
            return Err(Unprotected::RepairChannel);
        }
        let Some(session) = self.session.as_mut().filter(|_| self.is_up) else {
            return Err(Unprotected::PeerDown);
        };
        if !session.watched.contains(packet.source()) {
            return Err(Unprotected::ForeignSource);
        }
        let mut outlet = Outlet { sealer: &mut session.sealer, datagrams: &mut out.datagrams };
        self.egress.handle_packet(now_us, packet, &self.identity, &mut outlet)
    }

    /// Takes a packet that arrived from this peer's site.
    pub(crate) fn handle_incoming(&mut self, now_us: u64, packet: &Packet<'_>, out: &mut Outbox) {
        // The far gateway's own datagrams to us are never coded.
        if packet.is_udp_to(self.listen) {
            return;
        }
        // The far gateway protects nothing without a session, and never packets to other destinations. No
        // repair will name such a packet, and it would displace arrivals that repairs need.
        let is_protected =
            self.session.as_ref().is_some_and(|session| session.watched.contains(packet.destination()));
        if !is_protected {
            return self.ingress.on_foreign_packet();
        }
        let (ingress, mut cx) = self.ingress_and_cx(now_us, &mut out.recovered);
        ingress.handle_packet(&mut cx, packet);
    }

    fn ingress_and_cx<'a>(
        &'a mut self,
        now_us: u64,
        recovered: &'a mut Queue<()>,
    ) -> (&'a mut Ingress, IngressCx<'a>) {
        let cx = IngressCx {
            now_us,
            identity: &self.identity,
            networks: &self.networks,
            listen: self.listen,
            recovered,
        };
        (&mut self.ingress, cx)
    }

    /// Takes a datagram sealed in this peer's session.
    pub(crate) fn handle_sealed(
        &mut self,
        now_us: u64,
        header: &SealedHeader,
        datagram: &mut [u8],
        out: &mut Outbox,
    ) -> Result<(), Rejected> {
        let body = self.open(now_us, header, datagram)?;
        let kind = BodyKind::read(body)?;
        self.last_heard_us = Some(now_us);
        if !self.is_up {
            // The far gateway has begun this session too, so it watches all packets that we protect from here
            // on.
            self.is_up = true;
            self.next_report_us = now_us;
        }
        if kind == BodyKind::Report {
            self.far_report = LossReport::read(body)?;
            return Ok(());
        }
        if self.awaits_stream() {
            self.ingress.on_blind_repair();
            return Ok(());
        }
        let (ingress, mut cx) = self.ingress_and_cx(now_us, &mut out.recovered);
        match kind {
            BodyKind::Half => ingress.handle_half(&mut cx, body),
            _ => ingress.handle_repair(&mut cx, body),
        }
    }

    /// Takes a Hello from this peer's address. `entropy` generates nonces.
    pub(crate) fn handle_hello(
        &mut self,
        now_us: u64,
        datagram: &mut [u8],
        entropy: &mut impl FnMut(&mut [u8]),
        out: &mut Outbox,
    ) -> Result<(), Rejected> {
        let digest = Seen::digest(datagram);
        if self.seen.contains(digest) {
            return Err(Rejected::Replayed);
        }
        let hello = Hello::read(self.hello_key.open(datagram)?)?;
        self.seen.insert(digest);
        let next_token = self.renewal.as_ref().map(|renewal| renewal.token);
        // A Hello of our own that was sent back to us would begin a session with ourselves.
        if hello.token == self.own_token
            || Some(hello.token) == next_token
            || self.past.contains(&hello.token)
        {
            return Err(Rejected::StaleHello);
        }
        if hello.echo == self.own_token || Some(hello.echo) == next_token {
            self.on_proof(now_us, &hello, entropy, out);
            return Ok(());
        }
        if self.answers.take(now_us, hello.token) {
            self.send_hello(now_us, hello.token, entropy, out);
        }
        if hello.echo == Token::UNKNOWN { Ok(()) } else { Err(Rejected::StaleHello) }
    }

    /// Acts on a Hello that echoes our token: its sender has been alive since we drew it, so the sender's own
    /// token is the one in use.
    fn on_proof(
        &mut self,
        now_us: u64,
        hello: &Hello,
        entropy: &mut impl FnMut(&mut [u8]),
        out: &mut Outbox,
    ) {
        let watched = PrefixTable::new(hello.watched.iter().map(|&network| (network, ())));
        if hello.echo != self.own_token {
            self.on_next_token_echoed(now_us, hello);
        }
        match &mut self.session {
            Some(session) if session.far_token == hello.token => {
                session.watched = watched;
                if hello.previous != Token::UNKNOWN {
                    // The peer has not received a datagram of the renewed session.
                    self.send_report(now_us, out);
                }
            }
            Some(session)
                if hello.previous != Token::UNKNOWN
                    && session.far_token == hello.previous
                    && self.past.len() < PAST_MAX =>
            {
                self.follow(now_us, hello, watched, entropy, out);
            }
            _ if self.past.len() == PAST_MAX => self.renew(entropy),
            _ => {
                self.begin_session(now_us, hello.token, watched);
                // The peer may need these two datagrams to begin the session as well.
                self.send_hello(now_us, hello.token, entropy, out);
                self.send_report(now_us, out);
            }
        }
    }

    /// Takes a Hello that echoes our next token: its sender has taken the token over, or has restarted since.
    fn on_next_token_echoed(&mut self, now_us: u64, hello: &Hello) {
        let follows = |session: &Session| [hello.token, hello.previous].contains(&session.far_token);
        if self.session.as_ref().is_some_and(follows) {
            self.adopt(now_us);
        } else if let Some(renewal) = self.renewal.take() {
            self.own_token = renewal.token;
        }
    }

    /// Begins a session with new streams in both directions, so that no packet coded earlier is mixed in.
    /// Packets are protected once the far gateway has begun the session too: its tap then sees all of them.
    fn begin_session(&mut self, now_us: u64, far_token: Token, watched: PrefixTable<()>) {
        let key = &self.config.key;
        self.past.extend(self.session.take().map(|session| session.far_token));
        self.is_up = false;
        self.renewal = None;
        self.session = Some(Session {
            begun_us: now_us,
            far_token,
            sealer: Sealer::new(key, self.own_token, far_token),
            opener: Opener::new(key, far_token, self.own_token),
            earlier: None,
            watched,
        });
        self.egress.restart();
        self.ingress.restart(&self.ingress_config);
        self.far_report = LossReport::default();
        self.sessions += 1;
    }

    fn send_hello(
        &mut self,
        now_us: u64,
        echo: Token,
        entropy: &mut impl FnMut(&mut [u8]),
        out: &mut Outbox,
    ) {
        let watched: Vec<IpNet> = self.config.networks.clone();
        let hello = match &self.renewal {
            Some(renewal) => {
                self.next_hello_us = now_us + renewal.pause_us(now_us);
                let (token, restarts) = (renewal.token, renewal.restarts);
                Hello { token, echo, previous: self.own_token, restarts, watched }
            }
            None => {
                let (token, previous) = (self.own_token, Token::UNKNOWN);
                Hello { token, echo, previous, restarts: false, watched }
            }
        };
        let len = HELLO_HEADER + hello.wire_len() + TAG;
        let Some(datagram) = out.datagrams.reserve(len) else {
            return self.egress.on_unsent(Unsent::QueueFull);
        };
        let mut nonce = [0; 12];
        entropy(&mut nonce);
        write_hello_header(datagram, nonce);
        hello.write(&mut datagram[HELLO_HEADER..len - TAG]);
        self.hello_key.seal(datagram);
        out.datagrams.commit(self.index, len);
    }

    /// Time at which [`Peer::handle_timeout`] is due next.
    pub(crate) fn poll_timeout(&self) -> u64 {
        let own = self.next_hello_us.min(self.next_tick_us);
        let report = self.session.as_ref().map(|_| self.next_report_us);
        let others = [self.egress.next_deadline_us(), self.ingress.next_due_us(), report];
        others.into_iter().flatten().fold(own, u64::min)
    }

    /// Runs all due timers. `entropy` generates tokens and nonces.
    pub(crate) fn handle_timeout(
        &mut self,
        now_us: u64,
        entropy: &mut impl FnMut(&mut [u8]),
        out: &mut Outbox,
    ) {
        if let Some(session) = &mut self.session {
            let mut outlet = Outlet { sealer: &mut session.sealer, datagrams: &mut out.datagrams };
            self.egress.fire_due(now_us, &mut outlet);
        }
        let (ingress, mut cx) = self.ingress_and_cx(now_us, &mut out.recovered);
        ingress.use_due(&mut cx);
        if now_us >= self.next_tick_us {
            self.next_tick_us = now_us + TICK_US;
            self.ingress.on_tick();
            self.check_liveness(now_us, entropy);
        }
        if self.session.is_some() && now_us >= self.next_report_us {
            self.send_report(now_us, out);
        }
        if now_us >= self.next_hello_us {
            self.next_hello_us = now_us + if self.is_up { HELLO_US } else { CALL_US };
            let echo = self.session.as_ref().map_or(Token::UNKNOWN, |session| session.far_token);
            self.send_hello(now_us, echo, entropy, out);
        }
    }

    fn check_liveness(&mut self, now_us: u64, entropy: &mut impl FnMut(&mut [u8])) {
        let silent = self.last_heard_us.is_none_or(|heard_us| now_us > heard_us + SILENCE_US);
        if self.is_up && silent {
            self.is_up = false;
            // Packets in the bins must not be mixed with packets of a later time.
            self.egress.empty_bins();
            self.next_hello_us = now_us;
        }
        let is_spent = |session: &Session| {
            let heard_us =
                self.last_heard_us.map_or(session.begun_us, |heard_us| heard_us.max(session.begun_us));
            session.sealer.is_worn_out() || now_us > heard_us + GIVE_UP_US
        };
        if self.session.as_ref().is_some_and(is_spent) {
            self.renew(entropy);
        }
        self.keep_fresh(now_us, entropy);
    }

    /// Draws a new token of our own, which makes all earlier sessions and Hellos void.
    fn renew(&mut self, entropy: &mut impl FnMut(&mut [u8])) {
        entropy(&mut self.own_token.0);
        self.session = None;
        self.renewal = None;
        self.past.clear();
        self.is_up = false;
        // Without a session no deadline fires the bins.
        self.egress.empty_bins();
        self.next_hello_us = 0;
    }

    /// Notes that the far gateway has renewed the session, and is therefore there.
    fn on_followed(&mut self, now_us: u64, restarts: bool) {
        self.last_heard_us = Some(now_us);
        self.is_up = true;
        if restarts {
            self.far_report = LossReport::default();
        }
    }

    /// Notes that no datagram was heard because this gateway stood still.
    fn on_own_silence(&mut self, now_us: u64) {
        self.last_heard_us = self.last_heard_us.map(|_| now_us);
    }

    fn send_report(&mut self, now_us: u64, out: &mut Outbox) {
        let Some(session) = &mut self.session else { return };
        self.next_report_us = now_us + if self.is_up { REPORT_US } else { CALL_US };
        let len = SEALED_HEADER + LossReport::LEN + TAG;
        let Some(datagram) = out.datagrams.reserve(len) else {
            return self.egress.on_unsent(Unsent::QueueFull);
        };
        self.ingress.report().write(&mut datagram[SEALED_HEADER..len - TAG]);
        session.sealer.seal(datagram);
        out.datagrams.commit(self.index, len);
    }
}
