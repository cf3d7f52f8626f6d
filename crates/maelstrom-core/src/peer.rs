//! One far gateway: the session with it, and both directions of its traffic.

use std::net::SocketAddr;

use ipnet::IpNet;

use crate::counters::{Rejected, Unprotected};
use crate::egress::Egress;
use crate::gateway::{Config, PeerConfig};
use crate::identity::Identity;
use crate::ingress::{Ingress, IngressConfig, Surroundings, TICK_US};
use crate::outbox::{Outbox, Queue};
use crate::packet::Packet;
use crate::prefixes::PrefixTable;
use crate::session::{HelloKey, Opener, Sealer, Token};
use crate::wire::{
    BodyKind, HELLO_HEADER, Hello, LossReport, SEALED_HEADER, SealedHeader, TAG, write_hello_header,
};

/// A peer that is up says Hello so often.
const HELLO_US: u64 = 1_000_000;
/// A peer that is not up is called so often.
const CALL_US: u64 = 200_000;
/// Hellos that prove nothing are answered at most so often, so that replayed ones cannot make us talk.
const ANSWER_US: u64 = 20_000;
/// A peer that was silent for so long is down: nothing is sent to protect traffic towards it.
const SILENCE_US: u64 = 3_500_000;
/// A session in which nothing was heard for so long is given up for a new one.
const GIVE_UP_US: u64 = 10_000_000;
/// Reports go out so often, and serve as signs of life; more often, as Hellos, while the peer is not up.
const REPORT_US: u64 = 1_000_000;
/// Starts of a peer that are remembered; after so many we draw a new token of our own and may forget them.
const PAST_MAX: usize = 32;

/// A session: its peer has proved to know the key and our token.
struct Session {
    begun_us: u64,
    far_token: Token,
    sealer: Sealer,
    opener: Opener,
    /// Our networks as the far gateway has them: sources that it watches for, and destinations that it protects.
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
    /// Tokens of the peer's earlier starts, since our own token is in use: a session with one of them would use its
    /// key again from counter 0.
    past: Vec<Token>,
    /// When a datagram sealed in a session came last.
    last_heard_us: Option<u64>,
    is_up: bool,
    next_hello_us: u64,
    next_answer_us: u64,
    next_report_us: u64,
    next_tick_us: u64,
    far_report: LossReport,
    /// Sessions begun so far.
    pub(crate) sessions: u64,
}

impl Peer {
    pub(crate) fn new(
        config: PeerConfig,
        gateway: &Config,
        index: usize,
        token: Token,
    ) -> Result<Self, fec::ConfigError> {
        let outer = if config.address.is_ipv6() { 40 + 8 } else { 20 + 8 };
        let ingress_config = gateway.ingress();
        Ok(Self {
            egress: Egress::new(gateway, index, outer)?,
            ingress: Ingress::new(&ingress_config),
            ingress_config,
            identity: Identity::new(&config.key).with_name_bits(gateway.name_bits),
            networks: PrefixTable::new(config.networks.iter().map(|&network| (network, ()))),
            listen: gateway.listen,
            index,
            hello_key: HelloKey::new(&config.key),
            own_token: token,
            session: None,
            past: Vec::new(),
            last_heard_us: None,
            is_up: false,
            next_hello_us: 0,
            next_answer_us: 0,
            next_report_us: 0,
            next_tick_us: 0,
            far_report: LossReport::default(),
            sessions: 0,
            config,
        })
    }

    /// Goes on with a changed configuration of the same peer: the session stays.
    pub(crate) fn reconfigured(mut self, gateway: &Config, index: usize) -> Result<Self, fec::ConfigError> {
        self.egress.reconfigure(gateway)?;
        self.index = index;
        self.egress.renumber(index);
        Ok(self)
    }

    /// Whether a session stands and the peer was heard lately.
    pub(crate) fn is_up(&self) -> bool {
        self.is_up
    }

    pub(crate) fn last_heard_us(&self) -> Option<u64> {
        self.last_heard_us
    }

    pub(crate) fn far_report(&self) -> &LossReport {
        &self.far_report
    }

    pub(crate) fn speaks_epoch(&self, epoch: u32) -> bool {
        self.session.as_ref().is_some_and(|session| session.opener.epoch() == epoch)
    }

    /// A packet leaves for this peer's site.
    pub(crate) fn outgoing(
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
        let coded =
            self.egress.source(now_us, packet, &self.identity, &mut session.sealer, &mut out.datagrams);
        if coded { Ok(()) } else { Err(Unprotected::TooLong) }
    }

    /// A packet arrived from this peer's site.
    pub(crate) fn incoming(&mut self, now_us: u64, packet: &Packet<'_>, out: &mut Outbox) {
        // The far gateway's own datagrams to us are never coded.
        if packet.is_udp_to(self.listen) {
            return;
        }
        // Without a session the far gateway protects nothing, and never what goes elsewhere: no repair will name it, and on
        // the shelf it would push out what repairs need.
        let is_protected =
            self.session.as_ref().is_some_and(|session| session.watched.contains(packet.destination()));
        if !is_protected {
            return self.ingress.foreign();
        }
        let (ingress, mut around) = self.ingress_and_surroundings(now_us, &mut out.recovered);
        ingress.source(&mut around, packet);
    }

    fn ingress_and_surroundings<'a>(
        &'a mut self,
        now_us: u64,
        recovered: &'a mut Queue<()>,
    ) -> (&'a mut Ingress, Surroundings<'a>) {
        let around = Surroundings {
            now_us,
            identity: &self.identity,
            networks: &self.networks,
            listen: self.listen,
            recovered,
        };
        (&mut self.ingress, around)
    }

    /// A datagram sealed in this peer's session arrived.
    pub(crate) fn sealed(
        &mut self,
        now_us: u64,
        header: &SealedHeader,
        datagram: &mut [u8],
        out: &mut Outbox,
    ) -> Result<(), Rejected> {
        let session = self.session.as_mut().ok_or(Rejected::UnknownEpoch)?;
        let body = session.opener.open(header, datagram)?;
        let kind = BodyKind::read(body)?;
        self.last_heard_us = Some(now_us);
        if !self.is_up {
            // The far gateway has begun this session too, so it watches all that we protect from now on.
            self.is_up = true;
            self.next_report_us = now_us;
        }
        if kind == BodyKind::Report {
            self.far_report = LossReport::read(body)?;
            return Ok(());
        }
        let (ingress, mut around) = self.ingress_and_surroundings(now_us, &mut out.recovered);
        match kind {
            BodyKind::Half => ingress.half(&mut around, body),
            _ => ingress.repair(&mut around, body),
        }
    }

    /// A Hello arrived from this peer's address. `entropy` makes nonces.
    pub(crate) fn hello(
        &mut self,
        now_us: u64,
        datagram: &mut [u8],
        entropy: &mut impl FnMut(&mut [u8]),
        out: &mut Outbox,
    ) -> Result<(), Rejected> {
        let hello = Hello::read(self.hello_key.open(datagram)?)?;
        // Our own, sent back to us: a session with ourselves would shut the peer out.
        if hello.token == self.own_token || self.past.contains(&hello.token) {
            return Err(Rejected::StaleHello);
        }
        if hello.echo == self.own_token {
            self.believe(now_us, &hello, entropy, out);
            return Ok(());
        }
        if now_us >= self.next_answer_us {
            self.next_answer_us = now_us + ANSWER_US;
            self.say_hello(hello.token, entropy, out);
        }
        if hello.echo == Token::UNKNOWN { Ok(()) } else { Err(Rejected::StaleHello) }
    }

    /// The Hello echoes our token, so its sender has lived since we drew it, and its own token is the one in use.
    fn believe(&mut self, now_us: u64, hello: &Hello, entropy: &mut impl FnMut(&mut [u8]), out: &mut Outbox) {
        let watched = PrefixTable::new(hello.watched.iter().map(|&network| (network, ())));
        match &mut self.session {
            Some(session) if session.far_token == hello.token => session.watched = watched,
            _ if self.past.len() == PAST_MAX => self.renew(entropy),
            _ => {
                self.begin_session(now_us, hello.token, watched);
                // The peer may wait for these two to begin it as well.
                self.say_hello(hello.token, entropy, out);
                self.send_report(now_us, out);
            }
        }
    }

    /// Everything starts afresh: what the far gateway sees from now on, it sees with its tap open, and nothing coded
    /// before is mixed in. Nothing is protected before it has begun the session too.
    fn begin_session(&mut self, now_us: u64, far_token: Token, watched: PrefixTable<()>) {
        let key = &self.config.key;
        self.past.extend(self.session.take().map(|session| session.far_token));
        self.is_up = false;
        self.session = Some(Session {
            begun_us: now_us,
            far_token,
            sealer: Sealer::new(key, self.own_token, far_token),
            opener: Opener::new(key, far_token, self.own_token),
            watched,
        });
        self.egress.restart();
        self.ingress.restart(&self.ingress_config);
        self.far_report = LossReport::default();
        self.sessions += 1;
    }

    fn say_hello(&mut self, echo: Token, entropy: &mut impl FnMut(&mut [u8]), out: &mut Outbox) {
        let watched: Vec<IpNet> = self.config.networks.clone();
        let hello = Hello { token: self.own_token, echo, watched };
        let len = HELLO_HEADER + hello.wire_len() + TAG;
        let Some(datagram) = out.datagrams.reserve(len) else { return };
        let mut nonce = [0; 12];
        entropy(&mut nonce);
        write_hello_header(datagram, nonce);
        hello.write(&mut datagram[HELLO_HEADER..len - TAG]);
        self.hello_key.seal(datagram);
        out.datagrams.commit(self.index, len);
    }

    /// When [`Peer::timeout`] next has something to do.
    pub(crate) fn next_timeout_us(&self) -> u64 {
        let own = self.next_hello_us.min(self.next_tick_us);
        let report = self.session.as_ref().map(|_| self.next_report_us);
        let others = [self.egress.next_deadline_us(), self.ingress.next_due_us(), report];
        others.into_iter().flatten().fold(own, u64::min)
    }

    /// Does what is due. `entropy` makes tokens and nonces.
    pub(crate) fn timeout(&mut self, now_us: u64, entropy: &mut impl FnMut(&mut [u8]), out: &mut Outbox) {
        if let Some(session) = &mut self.session {
            self.egress.fire_due(now_us, &mut session.sealer, &mut out.datagrams);
        }
        let (ingress, mut around) = self.ingress_and_surroundings(now_us, &mut out.recovered);
        ingress.use_due(&mut around);
        if now_us >= self.next_tick_us {
            self.next_tick_us = now_us + TICK_US;
            self.ingress.tick();
            self.watch_liveness(now_us, entropy);
        }
        if self.session.is_some() && now_us >= self.next_report_us {
            self.send_report(now_us, out);
        }
        if now_us >= self.next_hello_us {
            self.next_hello_us = now_us + if self.is_up { HELLO_US } else { CALL_US };
            let echo = self.session.as_ref().map_or(Token::UNKNOWN, |session| session.far_token);
            self.say_hello(echo, entropy, out);
        }
    }

    fn watch_liveness(&mut self, now_us: u64, entropy: &mut impl FnMut(&mut [u8])) {
        let silent = self.last_heard_us.is_none_or(|heard_us| now_us > heard_us + SILENCE_US);
        if self.is_up && silent {
            self.is_up = false;
            // What lies in the bins would be mixed with packets of another time.
            self.egress.empty_bins();
            self.next_hello_us = now_us;
        }
        let is_spent = |session: &Session| {
            let heard_us =
                self.last_heard_us.map_or(session.begun_us, |heard_us| heard_us.max(session.begun_us));
            session.sealer.is_worn() || now_us > heard_us + GIVE_UP_US
        };
        if self.session.as_ref().is_some_and(is_spent) {
            self.renew(entropy);
        }
    }

    /// Draws a new token of our own: all sessions and Hellos so far are void.
    fn renew(&mut self, entropy: &mut impl FnMut(&mut [u8])) {
        entropy(&mut self.own_token.0);
        self.session = None;
        self.past.clear();
        self.is_up = false;
        // Without a session nothing would ever fire what lies in the bins.
        self.egress.empty_bins();
        self.next_hello_us = 0;
    }

    fn send_report(&mut self, now_us: u64, out: &mut Outbox) {
        let Some(session) = &mut self.session else { return };
        self.next_report_us = now_us + if self.is_up { REPORT_US } else { CALL_US };
        let len = SEALED_HEADER + LossReport::LEN + TAG;
        let Some(datagram) = out.datagrams.reserve(len) else { return };
        self.ingress.report().write(&mut datagram[SEALED_HEADER..len - TAG]);
        session.sealer.seal(datagram);
        out.datagrams.commit(self.index, len);
    }
}
