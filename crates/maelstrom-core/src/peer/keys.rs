//! The change of the key that the gateways share, while traffic stays protected.
//!
//! 1. A gateway whose configuration names a next key draws another token, by a renewal of the session
//!    ([`Peer::keep_keys`]). From then on it opens datagrams under both keys, and says Hello under both.
//! 2. A Hello under the next key shows each end that the other accepts this key
//!    ([`Peer::on_key_shown`]). The end seals its datagrams with the next key from here on. Each direction
//!    changes on its own.
//! 3. An end whose configuration leaves the old key out draws another token again. It opens nothing under the
//!    old key, with which the peer has stopped to seal.
//!
//! An end drops no key while the peer accepts no other one of its keys ([`Peer::accepts_a_key_of`]). The
//! streams of the session continue all the time, because the identity of packets does not depend on the key.

use super::Peer;
use crate::config::PeerConfig;
use crate::keys::{HelloKeys, KeyState, Keys, Shown};
use crate::session::Sealer;

impl Peer {
    /// Accepts the keys of `wanted` from here on, and uses them as soon as a token stands for them.
    #[must_use]
    pub(crate) fn with_keys_of(mut self, wanted: &PeerConfig) -> Self {
        let keys = Keys::of(wanted);
        if keys != Keys::of(&self.config) {
            self.hello_keys = HelloKeys::new(&keys);
            let (address, paths) = (self.config.address, self.config.paths.clone());
            self.config = PeerConfig { address, paths, ..wanted.clone() };
            self.roaming.restart();
            if let Some(session) = &mut self.session {
                session.far_keys.on_own_change();
            }
        }
        self
    }

    /// Whether the peer has shown, with its present token, that it accepts a key of `wanted`.
    pub(crate) fn accepts_a_key_of(&self, wanted: &PeerConfig) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|session| Keys::of(wanted).best(&session.far_keys).is_some())
    }

    /// Progress of a change of the key.
    pub(crate) fn key_state(&self) -> KeyState {
        let keys = Keys::of(&self.config);
        match &self.session {
            Some(session) => KeyState::of(&keys, &session.far_keys, &session.key),
            None => KeyState::of(&keys, &Default::default(), &keys.fallback()),
        }
    }

    /// Takes what a Hello with the peer's present token shows about its keys.
    ///
    /// While neither token changes, our keys stay and the peer's become only more. The key to seal with
    /// therefore changes at most once, and a sealer never begins again with the same key and tokens.
    pub(super) fn on_key_shown(&mut self, shown: Shown) {
        let Some(session) = &mut self.session else { return };
        session.far_keys.on_hello(shown);
        if let Some(best) = self.own_keys.best(&session.far_keys)
            && best != session.key
        {
            session.sealer = Sealer::new(&best, &session.agreement, self.own_token, session.far_token);
            session.key = best;
        }
    }

    /// Draws a token for the keys of the configuration, if the present one stands for others.
    pub(super) fn keep_keys(&mut self, now_us: u64, entropy: &mut impl FnMut(&mut [u8])) {
        if self.own_keys == Keys::of(&self.config) {
            return;
        }
        if !self.is_up {
            self.renew(entropy);
        } else if self.renewal.is_none() {
            // The peer may have taken over the token of a renewal that is under way, so that it ends first.
            self.begin_renewal(now_us, false, entropy);
        }
    }
}
