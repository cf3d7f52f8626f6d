//! The authenticated channel between two gateways.
//!
//! Both hold one pre-shared key. Each draws a random *token* and an ephemeral key at its start, and at each
//! renewal of the session, and sends the token and the public half of that key in a Hello, together with the
//! token it has heard from the other. A token counts only if it comes with our own echoed, so an old Hello
//! changes nothing. One AEAD key per direction is derived from the pre-shared key, both tokens, and what the
//! ephemeral keys have in common ([`Agreement`]). A datagram recorded before either side restarted can never
//! be opened again, and no clock is needed.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use zeroize::Zeroize;

use crate::counters::Rejected;
use crate::exchange::Agreement;
use crate::key::{Length, PeerKey, Token};
use crate::replay::ReplayWindow;
use crate::wire::{HELLO_HEADER, SEALED_HEADER, SealedHeader, SendTime, TAG};

/// Number of datagrams after which a session is renewed: far below 2³², the most that NIST SP 800-38D allows
/// under one key where nonces are random. Ours are counted.
const RENEW_AT: u64 = 1 << 28;
/// Number of datagrams after which a session ends, if it could not be renewed: 32 bits of the counter travel,
/// and the end is noticed a little later.
const COUNTER_MAX: u64 = (1 << 32) - (1 << 24);

/// One direction's AEAD key and the epoch that identifies it on the wire.
struct DirectionKey {
    aead: LessSafeKey,
    epoch: u32,
}

impl DirectionKey {
    fn new(key: &PeerKey, agreement: &Agreement, from: Token, to: Token) -> Self {
        let mut derived = [0; 36];
        let secret = agreement.secret();
        key.derive_with(secret, &[b"session", &from.0, &to.0], Length(36), &mut derived);
        let aead = aead_key(&derived[..32]);
        let epoch = u32::from_be_bytes(derived[32..].try_into().expect("4 of 36 bytes"));
        derived.zeroize();
        Self { aead, epoch }
    }
}

fn aead_key(bytes: &[u8]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, bytes).expect("32 bytes are an AES-256 key"))
}

/// Seals the datagrams that we send in one session.
pub struct Sealer {
    key: DirectionKey,
    counter: u64,
}

impl Sealer {
    /// Creates the sealer of datagrams from the holder of token `from` to the holder of `to`.
    pub fn new(key: &PeerKey, agreement: &Agreement, from: Token, to: Token) -> Self {
        Self { key: DirectionKey::new(key, agreement, from, to), counter: 0 }
    }

    /// Returns the epoch of its datagrams, and the number of the next one.
    pub fn position(&self) -> (u32, u64) {
        (self.key.epoch, self.counter)
    }

    /// Continues at the number at which another process has ended.
    #[must_use]
    pub fn at(self, counter: u64) -> Self {
        Self { counter, ..self }
    }

    /// Whether the session should be renewed because of the number of datagrams sealed.
    pub fn is_worn(&self) -> bool {
        self.counter >= RENEW_AT
    }

    /// Whether the session must end because of the number of datagrams sealed.
    pub fn is_worn_out(&self) -> bool {
        self.counter >= COUNTER_MAX
    }

    /// Seals in place. `datagram` consists of room for the header, the body, and room for the tag.
    pub fn seal(&mut self, now_us: u64, datagram: &mut [u8]) {
        let sent = SendTime::at(now_us);
        let header = SealedHeader { sent, epoch: self.key.epoch, counter: self.counter };
        self.counter += 1;
        let (head, rest) = datagram.split_at_mut(SEALED_HEADER);
        header.write(head);
        let (body, tag_room) = rest.split_at_mut(rest.len() - TAG);
        let tag = self
            .key
            .aead
            .seal_in_place_separate_tag(session_nonce(&header), Aad::from(&*head), body)
            .expect("a datagram is far below the AEAD's limit");
        tag_room.copy_from_slice(tag.as_ref());
    }
}

/// Opens the datagrams that the peer sends in one session.
pub struct Opener {
    key: DirectionKey,
    replay: ReplayWindow,
}

impl Opener {
    /// Creates the opener of datagrams from the holder of token `from` to the holder of `to`.
    pub fn new(key: &PeerKey, agreement: &Agreement, from: Token, to: Token) -> Self {
        Self { key: DirectionKey::new(key, agreement, from, to), replay: ReplayWindow::default() }
    }

    /// Epoch that datagrams of this session carry.
    pub fn epoch(&self) -> u32 {
        self.key.epoch
    }

    /// Returns the lowest number that is higher than all that were opened.
    pub fn next(&self) -> u64 {
        self.replay.next()
    }

    /// Continues where another process has ended: opens no lower number than this one.
    #[must_use]
    pub fn continued_at(self, next: u64) -> Self {
        Self { replay: ReplayWindow::continued_at(next), ..self }
    }

    /// Whether no datagram has been opened.
    pub fn is_unused(&self) -> bool {
        self.replay.is_unused()
    }

    /// Whether no datagram with a higher counter than this one has been opened.
    pub fn is_newest(&self, counter: u64) -> bool {
        self.replay.is_newest(counter)
    }

    /// Decrypts the body of a sealed datagram in place.
    ///
    /// # Errors
    /// [`Rejected::Replayed`] for a repeated or old datagram, before any cryptography; [`Rejected::Forged`].
    pub fn open<'a>(
        &mut self,
        header: &SealedHeader,
        datagram: &'a mut [u8],
    ) -> Result<&'a mut [u8], Rejected> {
        if !self.replay.is_fresh(header.counter) {
            return Err(Rejected::Replayed);
        }
        let (head, sealed) = datagram.split_at_mut(SEALED_HEADER);
        let body = self
            .key
            .aead
            .open_in_place(session_nonce(header), Aad::from(&*head), sealed)
            .map_err(|_| Rejected::Forged)?;
        self.replay.accept(header.counter);
        Ok(body)
    }
}

/// The counter never repeats under one key, unless a copy of this process runs too, as in a virtual machine
/// that is restored from a snapshot. The time of sending then tells the copies apart: their nonces are equal
/// only where both seal the same number within the same 16 µs of their clocks.
fn session_nonce(header: &SealedHeader) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[..4].copy_from_slice(&header.sent.to_wire().to_be_bytes());
    nonce[4..].copy_from_slice(&header.counter.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// Seals and opens Hellos, with one static key for both directions and a random nonce for each Hello.
pub struct HelloKey(LessSafeKey);

impl HelloKey {
    /// Derives the Hello key of all holders of `key`.
    pub fn new(key: &PeerKey) -> Self {
        Self::derived(key, b"hello")
    }

    /// Derives the key of heartbeats between the members of a rack, which seals them like Hellos.
    pub(crate) fn of_rack(key: &PeerKey) -> Self {
        Self::derived(key, b"rack")
    }

    fn derived(key: &PeerKey, purpose: &[u8]) -> Self {
        let mut derived = [0; 32];
        key.derive(&[purpose], Length(32), &mut derived);
        let aead = aead_key(&derived);
        derived.zeroize();
        Self(aead)
    }

    /// Seals in place. The header must already contain the nonce.
    pub fn seal(&self, datagram: &mut [u8]) {
        let (head, rest) = datagram.split_at_mut(HELLO_HEADER);
        let (body, tag_room) = rest.split_at_mut(rest.len() - TAG);
        let tag = self
            .0
            .seal_in_place_separate_tag(hello_nonce(head), Aad::from(&*head), body)
            .expect("a datagram is far below the AEAD's limit");
        tag_room.copy_from_slice(tag.as_ref());
    }

    /// Decrypts the body of a Hello in place.
    ///
    /// # Errors
    /// [`Rejected::Malformed`] if it is too short, [`Rejected::Forged`] if it was not sealed with this key.
    pub fn open<'a>(&self, datagram: &'a mut [u8]) -> Result<&'a [u8], Rejected> {
        if datagram.len() < HELLO_HEADER + TAG {
            return Err(Rejected::Malformed);
        }
        let (head, sealed) = datagram.split_at_mut(HELLO_HEADER);
        let opened = self.0.open_in_place(hello_nonce(head), Aad::from(&*head), sealed);
        opened.map(|body| &*body).map_err(|_: ring::error::Unspecified| Rejected::Forged)
    }
}

fn hello_nonce(head: &[u8]) -> Nonce {
    let bytes: [u8; NONCE_LEN] =
        head[HELLO_HEADER - NONCE_LEN..].try_into().expect("a Hello header ends in its nonce");
    Nonce::assume_unique_for_key(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::EphemeralKey;
    use crate::key::{Secret, TOKEN_LEN};

    const A: Token = Token([1; TOKEN_LEN]);
    const B: Token = Token([2; TOKEN_LEN]);

    fn key() -> PeerKey {
        PeerKey::new([9; 32])
    }

    fn ephemeral(byte: u8) -> EphemeralKey {
        EphemeralKey::new(&Secret::new([byte; 32]))
    }

    fn agreement() -> Agreement {
        ephemeral(3).agree(&ephemeral(4).public()).unwrap()
    }

    fn sealed(sealer: &mut Sealer, body: &[u8]) -> Vec<u8> {
        let mut datagram = [&[0; SEALED_HEADER], body, &[0; TAG]].concat();
        sealer.seal(0, &mut datagram);
        datagram
    }

    fn open(opener: &mut Opener, datagram: &[u8]) -> Result<Vec<u8>, Rejected> {
        let header = SealedHeader::read(datagram).expect("sealed");
        opener.open(&header, &mut datagram.to_vec()).map(|body| body.to_vec())
    }

    #[test]
    fn a_sealed_datagram_opens_once() {
        let (mut sealer, mut opener) =
            (Sealer::new(&key(), &agreement(), A, B), Opener::new(&key(), &agreement(), A, B));
        let datagram = sealed(&mut sealer, b"repair");
        assert_eq!(open(&mut opener, &datagram), Ok(b"repair".to_vec()));
        assert_eq!(open(&mut opener, &datagram), Err(Rejected::Replayed));
    }

    #[test]
    fn a_changed_bit_anywhere_is_a_forgery_and_uses_up_no_counter() {
        let (mut sealer, mut opener) =
            (Sealer::new(&key(), &agreement(), A, B), Opener::new(&key(), &agreement(), A, B));
        let datagram = sealed(&mut sealer, b"repair");
        for at in 1..datagram.len() {
            let mut forged = datagram.clone();
            forged[at] ^= 1;
            assert_eq!(open(&mut opener, &forged), Err(Rejected::Forged), "byte {at}");
        }
        assert!(open(&mut opener, &datagram).is_ok());
    }

    /// The key stream of a datagram is its ciphertext if the body is zero.
    #[test]
    fn a_copy_of_the_session_at_another_time_has_other_nonces() {
        let key_stream = |now_us: u64| {
            let mut datagram = [0; SEALED_HEADER + 64 + TAG];
            Sealer::new(&key(), &agreement(), A, B).seal(now_us, &mut datagram);
            assert_eq!(open(&mut Opener::new(&key(), &agreement(), A, B), &datagram), Ok(vec![0; 64]));
            datagram[SEALED_HEADER..][..64].to_vec()
        };
        let original = key_stream(5_000_000);
        assert_eq!(key_stream(5_000_015), original, "the clock of the nonce is coarse");
        for later_us in [16, 1_000, 1_000_000, 3_600_000_000] {
            assert_ne!(key_stream(5_000_000 + later_us), original, "{later_us} us later");
        }
    }

    #[test]
    fn a_key_is_renewed_after_2_to_the_28_datagrams() {
        let mut sealer = Sealer::new(&key(), &agreement(), A, B);
        sealer.counter = (1 << 28) - 1;
        assert!(!sealer.is_worn());
        sealed(&mut sealer, b"repair");
        assert!(sealer.is_worn() && !sealer.is_worn_out());
        sealer.counter = 1 << 32;
        assert!(sealer.is_worn_out());
    }

    #[test]
    fn a_key_of_another_direction_or_start_does_not_open_it() {
        let mut sealer = Sealer::new(&key(), &agreement(), A, B);
        let datagram = sealed(&mut sealer, b"repair");
        let later = Token([3; TOKEN_LEN]);
        for (from, to) in [(B, A), (A, later), (later, B)] {
            let mut opener = Opener::new(&key(), &agreement(), from, to);
            assert_ne!(
                opener.epoch(),
                Opener::new(&key(), &agreement(), A, B).epoch(),
                "a gateway finds the session by it"
            );
            assert_eq!(open(&mut opener, &datagram), Err(Rejected::Forged));
        }
    }

    /// A holder of the key file who recorded both Hellos knows the key, the tokens, and the public halves.
    #[test]
    fn the_same_key_and_tokens_with_other_ephemeral_keys_open_and_forge_nothing() {
        let datagram = sealed(&mut Sealer::new(&key(), &agreement(), A, B), b"repair");
        for (one, other) in [(3, 5), (5, 4), (5, 6)] {
            let guessed = ephemeral(one).agree(&ephemeral(other).public()).unwrap();
            let mut opener = Opener::new(&key(), &guessed, A, B);
            assert_ne!(opener.epoch(), Opener::new(&key(), &agreement(), A, B).epoch());
            assert_eq!(open(&mut opener, &datagram), Err(Rejected::Forged));
            let forged = sealed(&mut Sealer::new(&key(), &guessed, A, B), b"repair");
            assert_eq!(open(&mut Opener::new(&key(), &agreement(), A, B), &forged), Err(Rejected::Forged));
        }
        let both = ephemeral(4).agree(&ephemeral(3).public()).unwrap();
        assert!(
            open(&mut Opener::new(&key(), &both, A, B), &datagram).is_ok(),
            "only a secret half opens it"
        );
    }

    #[test]
    fn the_ephemeral_keys_alone_open_nothing_without_the_key() {
        let datagram = sealed(&mut Sealer::new(&key(), &agreement(), A, B), b"repair");
        let mut opener = Opener::new(&PeerKey::new([8; 32]), &agreement(), A, B);
        assert_eq!(open(&mut opener, &datagram), Err(Rejected::Forged));
    }
}
