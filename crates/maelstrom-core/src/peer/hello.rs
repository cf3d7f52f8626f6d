//! Hellos: they begin sessions, renew them, and show whether the peer has our key.

use std::net::SocketAddr;

use ipnet::IpNet;

use super::{PAST_MAX, Peer};
use crate::config::Source;
use crate::counters::{Rejected, Unsent};
use crate::greeting::Seen;
use crate::key::Token;
use crate::keys::{Keys, Shown};
use crate::outbox::{Envelope, Outbox};
use crate::session::HelloKey;
use crate::wire::{HELLO_HEADER, HELLO_MAX, Hello, KeyPart, TAG, write_hello_header};

use super::Session;

impl Peer {
    /// Takes a Hello from this peer's address. `part`: of its key, as the header states it. `entropy`
    /// generates nonces.
    pub(crate) fn handle_hello(
        &mut self,
        now_us: u64,
        part: KeyPart,
        datagram: &mut [u8],
        entropy: &mut impl FnMut(&mut [u8]),
        out: &mut Outbox,
    ) -> Result<(), Rejected> {
        let mut result = self.answer_hello(now_us, part, datagram, entropy, out);
        if result == Err(Rejected::Forged) && self.channel.excuses(now_us, part) {
            result = Err(Rejected::OtherKey);
        }
        self.channel.on_hello(now_us, result);
        result
    }

    /// Notes a datagram of another version from this peer's address.
    pub(crate) fn on_other_version(&mut self, now_us: u64, version: u8) {
        self.channel.on_other_version(now_us, version);
    }

    /// Takes a Hello from an address of no peer; returns whether it is a Hello of this one.
    pub(crate) fn handle_stray_hello(&mut self, now_us: u64, from: SocketAddr, datagram: &[u8]) -> bool {
        let is_ours = self.opens(datagram);
        if is_ours {
            self.channel.on_other_address(now_us, from);
        }
        is_ours
    }

    /// Whether a Hello was sealed with a key of this peer.
    pub(crate) fn opens(&self, datagram: &[u8]) -> bool {
        let mut copy = [0; HELLO_MAX];
        let copy = copy.get_mut(..datagram.len());
        copy.is_some_and(|copy| {
            copy.copy_from_slice(datagram);
            self.hello_keys.open(copy).is_ok()
        })
    }

    /// Takes a Hello of this peer from another address than its own, at which the peer may be.
    pub(crate) fn handle_hello_elsewhere(
        &mut self,
        now_us: u64,
        from: Source,
        part: KeyPart,
        datagram: &mut [u8],
        entropy: &mut impl FnMut(&mut [u8]),
        out: &mut Outbox,
    ) -> Result<(), Rejected> {
        // A Hello takes all paths, and the one of its first copy may carry nothing back. A later copy shows
        // an address by the token that was told there, and nothing else.
        let is_copy = self.paths.are_several() && self.seen.contains(Seen::digest(datagram));
        let (hello, shown) =
            if is_copy { self.read_hello(part, datagram)? } else { self.open_hello(part, datagram)? };
        if !is_copy {
            self.channel.on_hello(now_us, Ok(()));
        }
        if let Some((token, ephemeral)) = self.roaming.echoed(now_us, from, &hello) {
            // It began a session with this token, which only this address was told.
            self.restart_as(token, ephemeral);
            self.move_to(from);
            return self.on_proof(now_us, &hello, shown, entropy, out);
        }
        if self.continues_session(&hello) {
            if !is_copy {
                self.on_continued(now_us, from, &hello, shown, entropy, out)?;
            }
            if self.is_heard(now_us) {
                return Ok(());
            }
        }
        let is_answered = match is_copy {
            true => self.answers.take_copy(now_us, hello.token, from),
            false => self.answers.take(now_us, hello.token),
        };
        if is_answered {
            self.call_back(now_us, from, hello.token, entropy, out);
        }
        Ok(())
    }

    /// Takes a Hello of the present session from another address than the peer's. If the next token was told
    /// there alone, its echo shows that the peer is there.
    fn on_continued(
        &mut self,
        now_us: u64,
        from: Source,
        hello: &Hello,
        shown: Shown,
        entropy: &mut impl FnMut(&mut [u8]),
        out: &mut Outbox,
    ) -> Result<(), Rejected> {
        let renewal = self.renewal.as_ref().filter(|renewal| renewal.token == hello.echo);
        let told_at = renewal.and_then(|renewal| renewal.told_at);
        self.on_proof(now_us, hello, shown, entropy, out)?;
        if told_at == Some(from.address) && from.door == 0 {
            self.set_address(from.address);
        }
        Ok(())
    }

    /// Whether a Hello is of the present session, or renews it.
    fn continues_session(&self, hello: &Hello) -> bool {
        let echoes = hello.echo == self.own_token
            || self.renewal.as_ref().is_some_and(|renewal| renewal.token == hello.echo);
        let continues = |session: &Session| {
            session.far_token == hello.token
                || hello.previous != Token::UNKNOWN && session.far_token == hello.previous
        };
        echoes && self.session.as_ref().is_some_and(continues)
    }

    fn answer_hello(
        &mut self,
        now_us: u64,
        part: KeyPart,
        datagram: &mut [u8],
        entropy: &mut impl FnMut(&mut [u8]),
        out: &mut Outbox,
    ) -> Result<(), Rejected> {
        let (hello, shown) = self.open_hello(part, datagram)?;
        let next_token = self.renewal.as_ref().map(|renewal| renewal.token);
        if hello.echo == self.own_token || Some(hello.echo) == next_token {
            return self.on_proof(now_us, &hello, shown, entropy, out);
        }
        if self.answers.take(now_us, hello.token) {
            self.send_hello(now_us, hello.token, entropy, out);
        }
        if hello.echo == Token::UNKNOWN { Ok(()) } else { Err(Rejected::StaleHello) }
    }

    /// Decrypts a Hello that has not come before.
    fn open_hello(&mut self, part: KeyPart, datagram: &mut [u8]) -> Result<(Hello, Shown), Rejected> {
        if self.seen.contains(Seen::digest(datagram)) {
            return Err(Rejected::Replayed);
        }
        self.read_hello(part, datagram)
    }

    /// Decrypts a Hello.
    fn read_hello(&mut self, part: KeyPart, datagram: &mut [u8]) -> Result<(Hello, Shown), Rejected> {
        let digest = Seen::digest(datagram);
        let (key, body) = self.hello_keys.open(datagram)?;
        let (shown, hello) = (Shown { key: key.clone(), part }, Hello::read(body)?);
        self.seen.insert(digest);
        if hello.is_tunnel != self.config.is_tunnel {
            return Err(Rejected::OtherMode);
        }
        let next_token = self.renewal.as_ref().map(|renewal| renewal.token);
        // A Hello of our own that was sent back to us would begin a session with ourselves.
        if hello.token == self.own_token
            || Some(hello.token) == next_token
            || self.roaming.has_told(hello.token)
            || self.past.contains(&hello.token)
        {
            return Err(Rejected::StaleHello);
        }
        Ok((hello, shown))
    }

    /// Acts on a Hello that echoes our token: its sender has been alive since we drew it, so the sender's own
    /// token is the one in use. Only here is its ephemeral key used, once for each of its tokens.
    fn on_proof(
        &mut self,
        now_us: u64,
        hello: &Hello,
        shown: Shown,
        entropy: &mut impl FnMut(&mut [u8]),
        out: &mut Outbox,
    ) -> Result<(), Rejected> {
        if hello.echo != self.own_token {
            self.on_next_token_echoed(now_us, hello);
        }
        match &mut self.session {
            Some(session) if session.far_token == hello.token => {
                if session.listed.update(now_us, &hello.watched) {
                    self.unwatched_source = None;
                }
                self.on_key_shown(shown);
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
                self.follow(now_us, hello, shown, entropy, out)?;
            }
            // The peer continues a session of which this gateway has dropped a step, with other streams than
            // a new session would have here.
            Some(_) if hello.previous != Token::UNKNOWN => self.renew(entropy),
            // The peer's key is one of those for which we have not drawn a token yet.
            _ if !self.own_keys.contains(&shown.key) => self.renew(entropy),
            _ if self.past.len() == PAST_MAX => self.renew(entropy),
            _ => {
                self.begin_session(now_us, hello, shown)?;
                // The peer may need these two datagrams to begin the session as well.
                self.send_hello(now_us, hello.token, entropy, out);
                self.send_report(now_us, out);
            }
        }
        Ok(())
    }

    /// Takes a Hello that echoes our next token: its sender has taken the token over, or has restarted since.
    fn on_next_token_echoed(&mut self, now_us: u64, hello: &Hello) {
        let follows = |session: &Session| [hello.token, hello.previous].contains(&session.far_token);
        if self.session.as_ref().is_some_and(follows) {
            self.adopt(now_us);
        } else if let Some(renewal) = self.renewal.take() {
            (self.own_token, self.own_keys) = (renewal.token, renewal.keys);
            (self.ephemeral, self.ephemeral_since_us) = (renewal.ephemeral, None);
            self.list(now_us, renewal.listed);
        }
    }

    /// Says Hello, with the next token during a renewal: once under each key for which the token stands.
    pub(super) fn send_hello(
        &mut self,
        now_us: u64,
        echo: Token,
        entropy: &mut impl FnMut(&mut [u8]),
        out: &mut Outbox,
    ) {
        let listed = self.renewal.as_ref().map_or(&self.own_listed, |renewal| &renewal.listed);
        let (watched, is_tunnel): (Vec<IpNet>, bool) = (listed.clone(), self.config.is_tunnel);
        let keys: Keys = self.renewal.as_ref().map_or(&self.own_keys, |renewal| &renewal.keys).clone();
        let told_at = self.renewal.as_ref().and_then(|renewal| renewal.told_at);
        let hello = match &self.renewal {
            Some(renewal) => {
                self.next_hello_us = now_us + renewal.pause_us(now_us);
                let (token, public, restarts) = (renewal.token, renewal.ephemeral.public(), renewal.restarts);
                Hello { token, echo, previous: self.own_token, public, restarts, is_tunnel, watched }
            }
            None => {
                let (token, previous, public) = (self.own_token, Token::UNKNOWN, self.ephemeral.public());
                Hello { token, echo, previous, public, restarts: false, is_tunnel, watched }
            }
        };
        let to = Envelope::to(self.index).at(told_at).by(self.paths.all());
        self.send_as(&hello, &keys, to, entropy, out);
    }

    /// Sends a Hello once under each of `keys`.
    pub(super) fn send_as(
        &mut self,
        hello: &Hello,
        keys: &Keys,
        to: Envelope,
        entropy: &mut impl FnMut(&mut [u8]),
        out: &mut Outbox,
    ) {
        let len = HELLO_HEADER + hello.wire_len() + TAG;
        for (part, key) in keys.iter() {
            let Some(datagram) = out.datagrams.reserve(len) else {
                return self.egress.on_unsent(Unsent::QueueFull);
            };
            let mut nonce = [0; 12];
            entropy(&mut nonce);
            write_hello_header(datagram, part, nonce);
            hello.write(&mut datagram[HELLO_HEADER..len - TAG]);
            HelloKey::new(key).seal(datagram);
            out.datagrams.commit(to, len);
        }
    }
}
