//! The beginning of a session, and its end: a new token of our own, with its ephemeral key.

use super::listed::Listed;
use super::{Peer, Session};
use crate::counters::Rejected;
use crate::exchange::{Agreement, EphemeralKey, Public};
use crate::key::Token;
use crate::keys::{FarKeys, Keys, Openers, Shown};
use crate::session::Sealer;
use crate::wire::Hello;

impl Peer {
    /// Begins a session with new streams in both directions, so that no packet coded earlier is mixed in.
    /// Packets are protected once the far gateway has begun the session too: its tap then sees all of them.
    pub(super) fn begin_session(&mut self, now_us: u64, hello: &Hello, shown: Shown) -> Result<(), Rejected> {
        let agreement = self.agree(&hello.public)?;
        let (far_token, key) = (hello.token, shown.key.clone());
        let names = agreement.names(self.own_token, far_token);
        self.identity.begin_session(&names);
        self.past.extend(self.session.take().map(|session| session.far_token));
        self.is_up = false;
        self.renewal = None;
        self.session = Some(Session {
            begun_us: now_us,
            far_token,
            far_public: hello.public,
            far_keys: FarKeys::of(shown),
            sealer: Sealer::new(&key, &agreement, self.own_token, far_token),
            key,
            openers: Openers::new(&self.own_keys, &agreement, far_token, self.own_token),
            earlier: Openers::default(),
            listed: Listed::new(now_us, &hello.watched),
            agreement,
        });
        self.names = Some(names);
        self.ephemeral_since_us.get_or_insert(now_us);
        self.renews_first = self.own_token.0 < far_token.0;
        self.on_session_begun();
        self.unwatched_source = None;
        self.sharing.restart();
        self.egress.restart();
        self.ingress.restart(&self.ingress_config);
        self.channel.restart();
        self.egress.on_far_restart();
        self.widths.restart();
        self.paths.restart();
        self.early.clear();
        self.groups.restart();
        self.begin_order();
        self.follow_widths(now_us);
        self.sessions += 1;
        Ok(())
    }

    /// Computes the secret of our ephemeral key and that of a peer who knows our token.
    pub(super) fn agree(&mut self, public: &Public) -> Result<Agreement, Rejected> {
        self.multiplications += 1;
        self.ephemeral.agree(public)
    }

    /// Draws a new token of our own, and the ephemeral key with it.
    pub(super) fn renew(&mut self, entropy: &mut impl FnMut(&mut [u8])) {
        let (token, ephemeral) = self.draw(entropy);
        self.restart_as(token, ephemeral);
    }

    pub(super) fn draw(&mut self, entropy: &mut impl FnMut(&mut [u8])) -> (Token, EphemeralKey) {
        let mut token = Token::UNKNOWN;
        entropy(&mut token.0);
        self.multiplications += 1;
        (token, EphemeralKey::draw(entropy))
    }

    /// Uses a new token of our own and its ephemeral key, which makes all earlier sessions and Hellos void.
    pub(super) fn restart_as(&mut self, token: Token, ephemeral: EphemeralKey) {
        (self.own_token, self.ephemeral, self.own_keys) = (token, ephemeral, Keys::of(&self.config));
        self.ephemeral_since_us = None;
        self.own_listed = self.to_list();
        self.update_part();
        self.session = None;
        self.names = None;
        self.renewal = None;
        self.past.clear();
        self.roaming.restart();
        self.is_up = false;
        // Without a session no deadline fires the bins.
        self.egress.empty_bins();
        self.next_hello_us = 0;
    }
}
