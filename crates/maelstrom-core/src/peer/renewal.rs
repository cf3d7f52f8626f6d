//! Renewal of a session in use, and its restart after this gateway stood still.
//!
//! 1. One side draws its next token and says Hello with it ([`Peer::begin_renewal`]). From then on it opens
//!    datagrams of the session in use and of the next one.
//! 2. The far gateway takes the token over and seals everything in the next session ([`Peer::follow`]). It
//!    still opens datagrams of the earlier one.
//! 3. The first datagram of the next session shows the side that began that it can use its next token too
//!    ([`Peer::adopt`]).
//!
//! So each side seals nothing that the other cannot open, and the streams continue. The next token comes with
//! another ephemeral key, and the key of the token before is wiped. The sides take turns, so that the token
//! and the ephemeral key of either are in use for two hours at most.
//!
//! A gateway that stood still has not seen the packets that arrived meanwhile. It cannot tell them from lost
//! ones, and repairs may name them. With the renewal it asks for a new stream, and it uses repairs of the
//! next session alone. The far gateway protected the packets of the new stream after it had received that
//! Hello, so that this gateway has seen all that arrived.

use std::mem;
use std::net::SocketAddr;

use ipnet::IpNet;

use super::handover::Leaving;
use super::order::InOrder;
use super::{GIVE_UP_US, HELLO_US, PAST_MAX, Peer, Session};
use crate::counters::Rejected;
use crate::exchange::{Agreement, EphemeralKey};
use crate::key::{PeerKey, Token};
use crate::keys::{FarKeys, Keys, Openers, Shown};
use crate::outbox::Outbox;
use crate::session::Sealer;
use crate::wire::{Hello, SealedHeader};

/// Age at which a session is renewed.
const RENEW_US: u64 = 3_600_000_000;
/// Delay of the renewal at the side whose token is the younger one, so that the sides do not begin at the
/// same time. In the first renewal of a session, it is the side with the higher token.
const SECOND_US: u64 = 60_000_000;
/// Time for which an ephemeral key is in use, also if the peer restarts or renews the session again and
/// again.
const EPHEMERAL_US: u64 = 2 * RENEW_US;
/// Interval between the first Hellos of a renewal.
const HURRY_US: u64 = 50_000;
/// Time after which a renewal does not hurry any more.
const HURRIED_US: u64 = 1_000_000;
/// Time for which datagrams of the earlier session are opened.
const EARLIER_US: u64 = 10_000_000;

/// The next session, until the far gateway has taken over our next token.
pub(super) struct Renewal {
    pub(super) token: Token,
    /// Key that was drawn with the token.
    pub(super) ephemeral: EphemeralKey,
    /// The secret of this key and the peer's.
    agreement: Agreement,
    /// Keys that we accept with this token.
    pub(super) keys: Keys,
    /// Networks that we list with this token.
    pub(super) listed: Vec<IpNet>,
    openers: Openers,
    /// Whether the far gateway starts a new stream.
    pub(super) restarts: bool,
    /// Another address than the peer's, if the token is told there alone.
    pub(super) told_at: Option<SocketAddr>,
    pub(super) begun_us: u64,
}

impl Renewal {
    /// Creates a renewal with the holder of token `far`. It begins no new stream.
    pub(super) fn new(
        now_us: u64,
        (token, ephemeral): (Token, EphemeralKey),
        agreement: Agreement,
        far: Token,
        keys: Keys,
        listed: Vec<IpNet>,
    ) -> Self {
        let openers = Openers::new(&keys, &agreement, far, token);
        let (restarts, told_at, begun_us) = (false, None, now_us);
        Self { token, ephemeral, agreement, keys, listed, openers, restarts, told_at, begun_us }
    }

    /// Sets whether the far gateway starts a new stream.
    #[must_use]
    pub(super) fn with_restart(self, restarts: bool) -> Self {
        Self { restarts, ..self }
    }

    /// Whether the next session has this epoch.
    pub(super) fn has_epoch(&self, epoch: u32) -> bool {
        self.openers.has_epoch(epoch)
    }

    /// Time between two Hellos.
    pub(super) fn pause_us(&self, now_us: u64) -> u64 {
        if now_us < self.begun_us + HURRIED_US { HURRY_US } else { HELLO_US }
    }
}

impl Session {
    /// Whether the session, or the one before it, has this epoch.
    pub(super) fn has_epoch(&self, epoch: u32) -> bool {
        self.openers.has_epoch(epoch) || self.earlier.has_epoch(epoch)
    }

    /// Whether no later datagram has been opened than the one with this header. The peer may not know yet
    /// that the session was renewed.
    pub(super) fn is_newest(&self, header: &SealedHeader) -> bool {
        self.openers.is_newest(header) || self.openers.is_unused() && self.earlier.is_newest(header)
    }

    fn openers(&mut self, epoch: u32) -> &mut Openers {
        if self.earlier.has_epoch(epoch) { &mut self.earlier } else { &mut self.openers }
    }

    /// Replaces the keys of both directions: seals with `key`, as the holder of `own_token`.
    fn change_keys(
        &mut self,
        now_us: u64,
        own_token: Token,
        key: PeerKey,
        agreement: Agreement,
        openers: Openers,
    ) {
        self.sealer = Sealer::new(&key, &agreement, own_token, self.far_token);
        (self.key, self.agreement) = (key, agreement);
        self.earlier = mem::replace(&mut self.openers, openers);
        self.begun_us = now_us;
    }
}

impl Peer {
    /// Decrypts a datagram of the session, of the earlier one, or of the next one, which it begins.
    pub(super) fn open<'d>(
        &mut self,
        now_us: u64,
        header: &SealedHeader,
        datagram: &'d mut [u8],
    ) -> Result<&'d mut [u8], Rejected> {
        if let Some(renewal) = self.renewal.as_mut().filter(|renewal| renewal.has_epoch(header.epoch)) {
            let body = renewal.openers.open(header, datagram)?;
            self.adopt(now_us);
            return Ok(body);
        }
        let session = self.session.as_mut().ok_or(Rejected::UnknownEpoch)?;
        session.openers(header.epoch).open(header, datagram)
    }

    /// Whether repairs are of no use because they are of a stream in which this gateway has not seen all
    /// packets.
    pub(super) fn awaits_stream(&self) -> bool {
        match self.leaving {
            Some(Leaving::Asked | Leaving::Staying) => false,
            // Packets of a tunnel have come to this process all the same.
            Some(Leaving::Followed | Leaving::Stayed) => !self.config.is_tunnel,
            Some(Leaving::Due) | None => self.renewal.as_ref().is_some_and(|renewal| renewal.restarts),
        }
    }

    /// Renews the session when it is due, and forgets an earlier session.
    pub(super) fn keep_fresh(&mut self, now_us: u64, entropy: &mut impl FnMut(&mut [u8])) {
        let Some(session) = &mut self.session else { return };
        let age_us = now_us.saturating_sub(session.begun_us);
        if age_us >= EARLIER_US {
            session.earlier = Openers::default();
        }
        let delay_us = if self.renews_first { 0 } else { SECOND_US };
        let is_old = |since_us| now_us >= since_us + EPHEMERAL_US;
        let is_due = session.sealer.is_worn()
            || age_us >= RENEW_US + delay_us
            || self.past.len() >= PAST_MAX / 2
            || self.ephemeral_since_us.is_some_and(is_old);
        if is_due && self.is_up && self.renewal.is_none() {
            self.begin_renewal(now_us, false, entropy);
        }
    }

    /// Draws the next token and ephemeral key, and says Hello with them at once.
    pub(super) fn begin_renewal(&mut self, now_us: u64, restarts: bool, entropy: &mut impl FnMut(&mut [u8])) {
        let Some(session) = &self.session else { return };
        let (far_token, far_public) = (session.far_token, session.far_public);
        let (token, ephemeral) = self.draw(entropy);
        self.multiplications += 1;
        let agreement = ephemeral.agree(&far_public).expect("the session has used this point");
        let keys = Keys::of(&self.config);
        let listed = self.to_list();
        let renewal = Renewal::new(now_us, (token, ephemeral), agreement, far_token, keys, listed);
        self.renewal = Some(renewal.with_restart(restarts));
        self.next_hello_us = now_us;
    }

    /// Uses the next token, which the far gateway has taken over.
    pub(super) fn adopt(&mut self, now_us: u64) {
        let (Some(renewal), Some(session)) = (self.renewal.take(), &mut self.session) else { return };
        let key = renewal.keys.best(&session.far_keys).unwrap_or_else(|| renewal.keys.fallback());
        session.change_keys(now_us, renewal.token, key, renewal.agreement, renewal.openers);
        if renewal.restarts {
            // Its repairs are of the old stream.
            session.earlier = Openers::default();
            self.on_stream_followed();
            if self.config.is_tunnel {
                self.ingress.restart(&self.ingress_config);
                self.begin_order();
            }
        }
        (self.own_token, self.own_keys) = (renewal.token, renewal.keys);
        // This wipes the one before.
        (self.ephemeral, self.ephemeral_since_us) = (renewal.ephemeral, Some(now_us));
        self.renews_first = false;
        self.list(now_us, renewal.listed);
        // Keys of earlier tokens of the peer with this token of ours have never been used.
        self.past.clear();
        self.renewals += 1;
    }

    /// Takes over the token with which the far gateway renews the session.
    pub(super) fn follow(
        &mut self,
        now_us: u64,
        hello: &Hello,
        shown: Shown,
        entropy: &mut impl FnMut(&mut [u8]),
        out: &mut Outbox,
    ) -> Result<(), Rejected> {
        // Of two renewals at a time the one with the lower token takes place.
        if self.renewal.as_ref().is_some_and(|ours| ours.token.0 < hello.token.0) {
            return Ok(());
        }
        let far_keys = FarKeys::of(shown);
        // Without a common key the earlier tokens stay in use until ours is drawn again.
        let Some(key) = self.own_keys.best(&far_keys) else { return Ok(()) };
        let agreement = self.agree(&hello.public)?;
        if hello.restarts {
            // Another process of the peer decodes the new stream, and the present one may still read this.
            self.finish_stream(now_us, out);
        }
        let Some(session) = &mut self.session else { return Ok(()) };
        let restarts_again = self.renewal.take().is_some_and(|ours| ours.restarts);
        self.past.push(mem::replace(&mut session.far_token, hello.token));
        (session.far_public, session.far_keys) = (hello.public, far_keys);
        let openers = Openers::new(&self.own_keys, &agreement, hello.token, self.own_token);
        session.change_keys(now_us, self.own_token, key, agreement, openers);
        self.renews_first = true;
        session.listed.update(now_us, &hello.watched);
        if hello.restarts {
            self.egress.restart();
            self.watched_since_us = now_us;
        }
        self.renewals += 1;
        self.on_followed(now_us, hello.restarts);
        // The peer waits for a datagram of this session.
        self.send_report(now_us, out);
        if restarts_again {
            self.begin_renewal(now_us, true, entropy);
        }
        Ok(())
    }

    /// Takes the report that this gateway stood still for `stalled_us`. All input that waited is discarded,
    /// unless the peer is reached by a tunnel: its positions show which packets came, however late.
    pub(crate) fn on_stall(&mut self, now_us: u64, stalled_us: u64, entropy: &mut impl FnMut(&mut [u8])) {
        self.paths.on_stall(now_us);
        if self.config.is_tunnel && stalled_us < GIVE_UP_US {
            return self.on_own_silence(now_us);
        }
        // Packets in the bins are old.
        self.egress.empty_bins();
        self.early.clear();
        self.order.iter_mut().for_each(InOrder::restart);
        self.ingress.restart(&self.ingress_config);
        self.next_hello_us = now_us;
        if stalled_us >= GIVE_UP_US || self.renewal.is_some() {
            // The peer has given the session up, or may have taken over a token without a new stream.
            return self.renew(entropy);
        }
        self.on_own_silence(now_us);
        self.begin_renewal(now_us, true, entropy);
        self.next_report_us = now_us;
    }
}
