//! The address of the peer, which may change while its session continues.
//!
//! A peer whose address the configuration does not state is where its own datagrams come from. Source
//! addresses are easily forged, and who recorded a datagram can send it again from anywhere. No datagram
//! therefore moves the address by itself. The gateway draws a token, and tells it at the other address
//! alone. The address moves when an authentic datagram from there shows that the peer has received the token:
//! - While datagrams of the session arrive, the token is that of a renewal ([`Peer::try_elsewhere`]), so that
//!   the streams go on.
//! - Otherwise it is in the answer to a Hello ([`Peer::call_back`]), and begins a session.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Peer, Token};
use crate::channel::{SILENCE_US, Trouble};
use crate::config::{Source, Whereabouts};
use crate::exchange::EphemeralKey;
use crate::keys::Keys;
use crate::outbox::{Envelope, Outbox};
use crate::wire::{Hello, SealedHeader};

/// Time for which all new datagrams of the session come from another address before it is tried. Datagrams
/// that are in flight when a NAT changes its mapping pass meanwhile.
const SETTLE_US: u64 = 300_000;
/// Time for which another address is tried.
const TRY_US: u64 = 3_000_000;
/// Time between the end of a try in vain and the next one.
const TRY_AGAIN_US: u64 = 10_000_000;
/// Time for which a token that was told in an answer counts.
const ECHO_US: u64 = 10_000_000;
/// Maximum number of answers whose tokens count at a time. An earlier one makes room for a later one.
const CALLS_MAX: usize = 64;
/// Silence after which a peer that calls from anywhere is not called at its last address any more, because
/// somebody else may have the address.
const FORGET_US: u64 = 60_000_000;

/// Knowledge about other addresses of a peer.
#[derive(Debug, Default)]
pub(super) struct Roaming {
    /// Answers to Hellos from other addresses, oldest first.
    calls: Vec<Call>,
    /// The ephemeral key of all of them: replays of Hellos must not make us draw further ones.
    ephemeral: Option<EphemeralKey>,
    /// Another address, from which all new datagrams of the session come, and the time since which they do.
    elsewhere: Option<(SocketAddr, u64)>,
    next_try_us: u64,
    moves: u64,
}

/// A Hello from another address, and the token that was told there alone.
#[derive(Clone, Copy, Debug)]
struct Call {
    from: Source,
    far_token: Token,
    token: Token,
    first_us: u64,
}

impl Roaming {
    /// Whether this is a token of our own, which a Hello of the peer cannot have.
    pub(super) fn has_told(&self, token: Token) -> bool {
        self.calls.iter().any(|call| call.token == token)
    }

    /// Returns the token that a Hello echoes to the address at which it was told, and the ephemeral key that
    /// was told with it.
    pub(super) fn echoed(&self, now_us: u64, from: Source, hello: &Hello) -> Option<(Token, EphemeralKey)> {
        let call = self.call(now_us, from, hello.token)?;
        if call.token == hello.echo { Some((call.token, self.ephemeral.clone()?)) } else { None }
    }

    fn call(&self, now_us: u64, from: Source, far_token: Token) -> Option<&Call> {
        let is_it = |call: &&Call| (call.from, call.far_token) == (from, far_token);
        self.calls.iter().find(is_it).filter(|call| now_us < call.first_us + ECHO_US)
    }

    /// Notes an answer. One for the same sender at the same address has ended.
    fn note(&mut self, call: Call) {
        self.calls.retain(|known| (known.from, known.far_token) != (call.from, call.far_token));
        if self.calls.len() == CALLS_MAX {
            self.calls.remove(0);
        }
        self.calls.push(call);
    }

    /// Forgets all that depends on keys and tokens of this gateway that it does not use any more.
    pub(super) fn restart(&mut self) {
        self.calls.clear();
        self.ephemeral = None;
        self.elsewhere = None;
    }
}

/// The unspecified address of a family.
fn nowhere(like: SocketAddr) -> IpAddr {
    if like.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

impl Peer {
    /// Changes the address that the peer is at.
    pub(crate) fn set_address(&mut self, address: SocketAddr) {
        let before = std::mem::replace(&mut self.config.address, address);
        self.roaming.moves += u64::from(before != address);
        if before.ip() != address.ip() {
            self.widths.first().restart();
        }
        self.stay();
        // The peer learns at once where we are.
        self.next_hello_us = 0;
    }

    /// Changes the address that the peer is at on one of several paths.
    pub(crate) fn move_on_path(&mut self, path: usize, address: SocketAddr) {
        let Some(at) = path.checked_sub(1) else { return self.set_address(address) };
        let door = self.config.paths[at].door;
        if self.config.paths[at].address.ip() != address.ip()
            && let Some(width) = self.widths.of(path)
        {
            width.restart();
        }
        for (index, other) in self.config.paths.iter_mut().enumerate() {
            if index == at {
                self.roaming.moves += u64::from(other.address != address);
                other.address = address;
            } else if other.may_move() && (other.door, other.address) == (door, address) {
                // The peer has shown that it is there on this path.
                other.address = SocketAddr::new(nowhere(address), 0);
            }
        }
        // The same for the first path, which a Hello by any uplink may have moved.
        if door == 0 && self.config.address == address && self.config.may_move() {
            self.config.address = SocketAddr::new(nowhere(address), 0);
        }
    }

    /// Moves the path on which the peer may be there to the source of a Hello that begins a session.
    pub(super) fn move_to(&mut self, from: Source) {
        let path = self.config.callable_at(from.door);
        path.into_iter().for_each(|path| self.move_on_path(path, from.address));
    }

    /// Number of changes of the address.
    pub(crate) fn moves(&self) -> u64 {
        self.roaming.moves
    }

    /// Ends the try of another address. A token that was told there is told at the present address from here
    /// on, and shows nothing any more.
    fn stay(&mut self) {
        self.roaming.elsewhere = None;
        if let Some(renewal) = &mut self.renewal {
            renewal.told_at = None;
        }
    }

    /// Address at which alone the next token has been told, if this header is of the session with it.
    pub(super) fn told_at(&self, header: &SealedHeader) -> Option<SocketAddr> {
        self.renewal.as_ref().filter(|renewal| renewal.has_epoch(header.epoch))?.told_at
    }

    /// Notes where an authentic datagram of the session came from. `told_at`: the address at which alone the
    /// token was told that this datagram shows.
    pub(super) fn on_source(
        &mut self,
        now_us: u64,
        from: SocketAddr,
        told_at: Option<SocketAddr>,
        header: &SealedHeader,
    ) {
        if told_at == Some(from) {
            return self.set_address(from);
        }
        // Earlier datagrams may take longer on their way from an earlier address.
        if !self.session.as_ref().is_some_and(|session| session.is_newest(header)) {
            return;
        }
        if self.config.is_at(from) {
            self.stay();
        } else if self.roaming.elsewhere.is_none_or(|(address, _)| address != from) {
            self.roaming.elsewhere = Some((from, now_us));
        }
    }

    /// Tries the address from which all new datagrams of the session come: renews the session with a token
    /// that is told there alone. The present address stays in use until the peer shows this token.
    pub(super) fn try_elsewhere(&mut self, now_us: u64, entropy: &mut impl FnMut(&mut [u8])) {
        let settled = |&(_, since_us): &(SocketAddr, u64)| now_us >= since_us + SETTLE_US;
        let Some((address, _)) = self.roaming.elsewhere.filter(settled) else { return };
        if let Some(renewal) = self.renewal.as_ref().filter(|renewal| renewal.told_at == Some(address)) {
            if now_us >= renewal.begun_us + TRY_US {
                self.roaming.next_try_us = now_us + TRY_AGAIN_US;
                self.stay();
            }
            return;
        }
        if self.session.is_none() || now_us < self.roaming.next_try_us {
            return;
        }
        // The token of a renewal that is under way has been told at the present address.
        let restarts = self.renewal.take().is_some_and(|renewal| renewal.restarts);
        self.begin_renewal(now_us, restarts, entropy);
        if let Some(renewal) = &mut self.renewal {
            renewal.told_at = Some(address);
        }
    }

    /// Answers a Hello from another address there, with a token that is told nowhere else.
    pub(super) fn call_back(
        &mut self,
        now_us: u64,
        from: Source,
        far_token: Token,
        entropy: &mut impl FnMut(&mut [u8]),
        out: &mut Outbox,
    ) {
        let token = match self.roaming.call(now_us, from, far_token) {
            Some(call) => call.token,
            None => {
                let mut token = Token::UNKNOWN;
                entropy(&mut token.0);
                self.roaming.note(Call { from, far_token, token, first_us: now_us });
                token
            }
        };
        let ephemeral = self.roaming.ephemeral.get_or_insert_with(|| {
            self.multiplications += 1;
            EphemeralKey::draw(entropy)
        });
        let public = ephemeral.public();
        let (watched, is_tunnel) = (self.to_list(), self.config.is_tunnel);
        let (echo, previous) = (far_token, Token::UNKNOWN);
        let hello = Hello { token, echo, previous, public, restarts: false, is_tunnel, watched };
        let to = Envelope::to(self.index).back(from);
        self.send_as(&hello, &Keys::of(&self.config), to, entropy, out);
    }

    /// Whether this gateway says Hello by itself.
    pub(super) fn calls(&self, now_us: u64) -> bool {
        let is_here = || self.channel.heard_us().is_some_and(|heard_us| now_us < heard_us + FORGET_US);
        let further = self.config.paths.iter().map(|path| path.whereabouts);
        let is_stated =
            further.chain([self.config.whereabouts]).any(|source| source != Whereabouts::Unstated);
        self.config.is_reachable() && (is_stated || is_here())
    }

    /// Whether sealed datagrams of the peer have arrived lately. They show its address if it moves.
    pub(super) fn is_heard(&self, now_us: u64) -> bool {
        self.channel.heard_us().is_some_and(|heard_us| now_us < heard_us + SILENCE_US / 2)
    }

    /// Notes an authentic Hello from an address that cannot be the peer's.
    pub(crate) fn on_unusable_address(&mut self, now_us: u64, from: SocketAddr) {
        self.channel.on_unusable_address(now_us, from);
    }

    /// Why the repair channel does not work.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        let trouble = self.channel.trouble();
        if self.config.is_reachable() {
            return trouble;
        }
        match (self.config.whereabouts, trouble) {
            (
                Whereabouts::Unstated,
                Some(Trouble::Unheard | Trouble::UnusableAddress(_) | Trouble::OtherVersion(_)),
            ) => trouble,
            (Whereabouts::Unstated, _) => Some(Trouble::Uncalled),
            (Whereabouts::Stated | Whereabouts::Named, _) => Some(Trouble::NoAddress),
        }
    }
}
