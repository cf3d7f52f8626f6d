//! The hand-over of the session to another process of this gateway, and its continuation there.
//!
//! 1. The next process gets the session, and watches the packets that arrive ([`Peer::watch_for`]).
//! 2. This one asks the peer for a new stream, by a renewal of the session ([`Peer::begin_handover`]), and
//!    goes on with the old stream meanwhile.
//! 3. When the first datagram of the renewed session arrives, repairs are of the new stream, which is the
//!    next process's ([`Peer::may_hand_over`], [`Peer::hand_over`], [`Peer::resume`] there).
//!
//! So each process sees all packets of its own stream, and each stream has a decoder from its first to its
//! last packet. The stream in the other direction keeps its numbers, and a sliding window begins again.
//!
//! Packets of a tunnel come to the process that has the socket. It hands on those of the new stream until it
//! gives the session away, and the next process gets copies of them, so that it can use repairs that contain
//! them, and hands on nothing twice. Before, this one uses the repairs that wait for packets: the next one
//! does not know of packets that are recovered afterwards.

use super::listed::Listed;
use super::order::InOrder;
use super::renewal::Renewal;
use super::{Peer, Session};
use crate::exchange::EphemeralKey;
use crate::handover::PeerHandover;
use crate::key::PeerKey;
use crate::keys::{FarKeys, Keys, Openers, Shown};
use crate::outbox::Outbox;
use crate::sender::Outlet;
use crate::session::Sealer;
use crate::wire::{KeyPart, Report};
use foundation::Seq;

/// Progress of a hand-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    /// The peer must be asked for a new stream.
    Due,
    /// It has been asked.
    Asked,
    /// It sends a new stream, which is the next process's.
    Followed,
    /// The peer has been asked, and this process stays.
    Staying,
    /// It sends a new stream of which this process has not seen all packets, and must be asked for another.
    Stayed,
}

impl Peer {
    /// Asks the peer for a new stream, if it is up.
    pub(crate) fn begin_handover(&mut self, now_us: u64, entropy: &mut impl FnMut(&mut [u8])) {
        self.leaving = Some(Leaving::Due);
        self.keep_leaving(now_us, entropy);
    }

    /// Goes on in this process, which has not handed the session over.
    pub(crate) fn cancel_handover(&mut self, now_us: u64, entropy: &mut impl FnMut(&mut [u8])) {
        self.leaving = match self.leaving {
            Some(Leaving::Asked | Leaving::Staying) => Some(Leaving::Staying),
            Some(Leaving::Followed | Leaving::Stayed) => Some(Leaving::Stayed),
            Some(Leaving::Due) | None => None,
        };
        self.keep_leaving(now_us, entropy);
    }

    /// Begins another session, because a process that has ended had this one. It may have sealed any number
    /// of datagrams.
    pub(crate) fn take_back(&mut self, entropy: &mut impl FnMut(&mut [u8])) {
        self.leaving = None;
        self.forget_session(entropy);
    }

    /// Whether nothing that the peer sends from here on is of use to this process.
    pub(crate) fn may_hand_over(&self) -> bool {
        !self.is_up || self.leaving == Some(Leaving::Followed)
    }

    /// Takes the next step that does not follow from a datagram.
    pub(super) fn keep_leaving(&mut self, now_us: u64, entropy: &mut impl FnMut(&mut [u8])) {
        if self.session.is_none() || self.renewal.is_some() {
            return;
        }
        match self.leaving {
            Some(Leaving::Due) if self.is_up => {
                self.begin_renewal(now_us, true, entropy);
                self.leaving = Some(Leaving::Asked);
            }
            Some(Leaving::Stayed) => {
                self.ingress.restart(&self.ingress_config);
                self.begin_renewal(now_us, true, entropy);
                self.leaving = None;
            }
            _ => {}
        }
    }

    /// Notes that the peer has begun the new stream.
    pub(super) fn on_stream_followed(&mut self) {
        self.leaving = match self.leaving {
            Some(Leaving::Asked) => Some(Leaving::Followed),
            Some(Leaving::Staying) => Some(Leaving::Stayed),
            other => other,
        };
    }

    /// Notes that a session has begun, whose stream this process has seen from its first packet on.
    pub(super) fn on_session_begun(&mut self) {
        self.leaving = match self.leaving {
            Some(Leaving::Due | Leaving::Asked | Leaving::Followed) => Some(Leaving::Due),
            Some(Leaving::Staying | Leaving::Stayed) | None => None,
        };
    }

    /// Sends repairs of all packets that wait for one, which the next process does not know.
    pub(crate) fn finish_stream(&mut self, now_us: u64, out: &mut Outbox) {
        if let Some(session) = self.session.as_mut().filter(|_| self.is_up) {
            let (sealer, paths) = (&mut session.sealer, &mut self.paths);
            let mut outlet = Outlet { now_us, sealer, paths, datagrams: &mut out.datagrams };
            self.egress.finish(&mut outlet);
        }
    }

    /// Returns the session for the next process, if the peer is up and has been asked for a new stream. Of
    /// the old one, the next process has not seen all packets.
    pub(crate) fn hand_over(&self) -> Option<PeerHandover> {
        let is_asked = matches!(self.leaving, Some(Leaving::Asked | Leaving::Followed));
        let mut left = self.describe().filter(|_| is_asked)?;
        if self.config.is_tunnel && self.leaving == Some(Leaving::Followed) {
            left.arrived = self.ingress.stream();
        }
        Some(left)
    }

    /// Returns the session, if the peer is up.
    pub(crate) fn describe(&self) -> Option<PeerHandover> {
        let session = self.session.as_ref().filter(|_| self.is_up)?;
        let seals = |key: &PeerKey| {
            Sealer::new(key, &session.agreement, self.own_token, session.far_token).position().0
        };
        let mut report = vec![0; Report::LEN];
        self.far().write(&mut report);
        Some(PeerHandover {
            networks: self.config.networks.clone(),
            is_tunnel: self.config.is_tunnel,
            address: self.config.address,
            names: self.names.clone()?,
            tokens: [self.own_token, session.far_token],
            ephemeral: self.ephemeral.secret(),
            far_public: session.far_public,
            next: self.renewal.as_ref().map(|renewal| (renewal.token, renewal.ephemeral.secret())),
            past: self.past.clone(),
            seals: session.sealer.position(),
            opens: session.openers.positions().collect(),
            shown: session.far_keys.shown().map(|(key, part)| (seals(key), part.to_wire())).collect(),
            listed: self.own_listed.clone(),
            watched: session.listed.networks().to_vec(),
            position: self.egress.next().0,
            report,
            link: self.egress.memory(),
            lengths: self.path_mtu().lengths(),
            arrived: Vec::new(),
            counts: [self.sessions, self.renewals],
        })
    }

    /// Continues the session of another process, which does not use it any more; returns whether it is that
    /// of [`Peer::watch_for`].
    pub(crate) fn resume(&mut self, now_us: u64, left: &PeerHandover) -> bool {
        let is_it = self.session.is_some() && self.names.as_ref() == Some(&left.names);
        if !is_it || !self.watch_for(now_us, left) {
            return false;
        }
        self.ingress.continue_stream(now_us, &left.arrived);
        if left.arrived.is_empty() {
            self.order.iter_mut().for_each(InOrder::restart);
        } else {
            self.begin_order();
        }
        true
    }

    /// Watches the packets of a session of another process, which still uses it; returns whether it is one of
    /// the keys of this configuration.
    pub(crate) fn watch_for(&mut self, now_us: u64, left: &PeerHandover) -> bool {
        let ([own, far], keys) = (left.tokens, Keys::of(&self.config));
        let (ephemeral, far_public) = (EphemeralKey::new(&left.ephemeral), left.far_public);
        self.multiplications += 2;
        let Ok(agreement) = ephemeral.agree(&far_public) else { return false };
        let of_epoch = |epoch: u32| {
            let mut known = keys.iter().map(|(_, key)| key);
            known.find(|key| Sealer::new(key, &agreement, own, far).position().0 == epoch).cloned()
        };
        let shown = |&(epoch, part): &(u32, u8)| {
            Some(Shown { key: of_epoch(epoch)?, part: KeyPart::from_wire(part)? })
        };
        let (Some(key), Ok(report)) = (of_epoch(left.seals.0), Report::read(&left.report)) else {
            return false;
        };
        let Some(openers) = Openers::resumed(&keys, &agreement, left.tokens, &left.opens) else {
            return false;
        };
        self.session = Some(Session {
            begun_us: now_us,
            far_token: far,
            far_public,
            far_keys: FarKeys::of_all(left.shown.iter().filter_map(shown)),
            sealer: Sealer::new(&key, &agreement, own, far).at(left.seals.1),
            key,
            openers,
            earlier: Openers::default(),
            listed: Listed::new(now_us, &left.watched),
            agreement,
        });
        self.renewal = self.asked(now_us, left, &keys);
        (self.own_token, self.own_keys, self.ephemeral) = (own, keys, ephemeral);
        self.own_listed.clone_from(&left.listed);
        self.update_part();
        self.ephemeral_since_us = Some(now_us);
        // The peer's token is the older one, because the other process has asked for a new stream.
        self.renews_first = false;
        self.past.clone_from(&left.past);
        self.identity.begin_session(&left.names);
        self.names = Some(left.names.clone());
        self.egress.continue_at(Seq(left.position), report.loss.repairs);
        self.egress.recall(now_us, &left.link, &report);
        self.widths.first().resume(now_us, left.lengths);
        self.follow_widths(now_us);
        self.channel.resume(now_us, report);
        [self.sessions, self.renewals] = left.counts;
        self.is_up = self.channel.works(now_us);
        (self.next_hello_us, self.next_report_us) = (now_us, now_us);
        true
    }

    /// Returns the renewal with which another process has asked for a new stream.
    fn asked(&mut self, now_us: u64, left: &PeerHandover, keys: &Keys) -> Option<Renewal> {
        let (token, secret) = left.next.as_ref()?;
        let next = EphemeralKey::new(secret);
        self.multiplications += 2;
        let agreement = next.agree(&left.far_public).ok()?;
        let (far, listed) = (left.tokens[1], self.to_list());
        let renewal = Renewal::new(now_us, (*token, next), agreement, far, keys.clone(), listed);
        Some(renewal.with_restart(true))
    }

    /// Ends a session that another process has, or has lost.
    pub(crate) fn forget_session(&mut self, entropy: &mut impl FnMut(&mut [u8])) {
        if self.session.is_some() {
            self.renew(entropy);
        }
    }
}
