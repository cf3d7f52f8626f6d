//! Packet identifiers that both ends compute without a header of ours.
//!
//! The identity is a keyed 64-bit hash of all that no router changes: addresses, protocol, length, IP ID,
//! transport header and payload. (Maelstrom §4.6 takes IP ID and checksum, which fail on IPv6 and on IP ID
//! 0.) Its low 32 bits, the *name*, travel in a repair's recipe and find the packet among recent arrivals.
//! All 64 bits travel inside the coded symbol and are checked on every recovered packet.
//!
//! The key of the hash follows from the tokens and ephemeral keys with which a session begins, and not from
//! the key that the gateways share: that key may change while the streams of the session continue.

use xxhash_rust::xxh3::{xxh3_64_with_secret, xxh3_64_with_seed};

use crate::key::{Length, PeerKey, Secret, derive};
use crate::packet::Packet;

/// Length of the hash's secret in bytes; XXH3 needs at least 136.
const SECRET_LEN: usize = 192;

/// The keyed hash of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketHash(pub u64);

/// Short identifier that recipes carry; several packets may share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(pub u32);

/// Hashes packets under a secret that two gateways share.
pub struct Identity {
    secret: [u8; SECRET_LEN],
    /// Seed of hashes that this gateway alone computes, and that it remembers from session to session.
    local: u64,
    name_mask: u32,
}

impl Identity {
    /// Creates the identity of a gateway that has no session yet.
    pub fn new(key: &PeerKey) -> Self {
        let mut secret = [0; SECRET_LEN];
        key.derive(&[b"identity"], Length(SECRET_LEN), &mut secret);
        let local = u64::from_le_bytes(secret[8..16].try_into().expect("8 bytes of the secret"));
        Self { secret, local, name_mask: u32::MAX }
    }

    /// Changes to the hash that both gateways compute in a session and in its renewals, under the secret that
    /// they have in common ([`Agreement::names`](crate::exchange::Agreement::names)).
    pub fn begin_session(&mut self, names: &Secret) {
        derive(names.as_bytes(), &[b"identity"], Length(SECRET_LEN), &mut self.secret);
    }

    /// Shortens names to `bits`, so that tests can make different packets share them.
    #[must_use]
    pub fn with_name_bits(mut self, bits: u32) -> Self {
        self.name_mask = 1u32.checked_shl(bits).map_or(u32::MAX, |bit| bit - 1);
        self
    }

    /// Returns the hash of `packet`, which does not depend on its mutable fields.
    pub fn hash(&self, packet: &Packet<'_>) -> PacketHash {
        let behind = xxh3_64_with_secret(packet.behind_header(), &self.secret);
        // The header is hashed together with the hash of the rest, which avoids a copy of the packet.
        let header = packet.stable_header();
        let mut joined = [0; 48];
        let len = header.as_slice().len();
        joined[..len].copy_from_slice(header.as_slice());
        joined[len..len + 8].copy_from_slice(&behind.to_le_bytes());
        let seed = u64::from_le_bytes(self.secret[..8].try_into().expect("8 bytes of the secret"));
        PacketHash(xxh3_64_with_seed(&joined[..len + 8], seed))
    }

    /// Returns a keyed hash of parts of a packet, which strangers cannot predict. It is the same in all
    /// sessions.
    pub(crate) fn keyed_hash(&self, bytes: &[u8]) -> u64 {
        xxh3_64_with_seed(bytes, self.local)
    }

    /// Returns the name of a packet with this hash.
    pub fn name(&self, hash: PacketHash) -> Name {
        Name(hash.0 as u32 & self.name_mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::tests::{udp4, udp6};
    use crate::packet::{MutableFields, restore};

    fn identity(byte: u8) -> Identity {
        Identity::new(&PeerKey::new([byte; 32]))
    }

    fn hash(identity: &Identity, bytes: &[u8]) -> PacketHash {
        identity.hash(&Packet::new_checked(bytes).unwrap())
    }

    #[test]
    fn routers_do_not_change_the_hash_and_everything_else_does() {
        let id = identity(1);
        let v4 = udp4([10, 0, 0, 1], [10, 0, 1, 1], 77, b"hello, far site, this is a payload");
        let v6 = udp6("fd00::1".parse().unwrap(), "fd00:1::1".parse().unwrap(), b"hello");
        for sent in [v4, v6] {
            let mut routed = sent.clone();
            restore(&mut routed, MutableFields { ttl: 12, tos: 3 });
            assert_ne!(routed, sent);
            assert_eq!(hash(&id, &routed), hash(&id, &sent));
            let mutable: &[usize] = if sent[0] >> 4 == 4 { &[1, 8, 10, 11] } else { &[7] };
            for at in (2..sent.len()).filter(|at| !mutable.contains(at)) {
                let mut other = sent.clone();
                other[at] ^= 0x01;
                if let Ok(packet) = Packet::new_checked(&other) {
                    assert_ne!(id.hash(&packet), hash(&id, &sent), "byte {at}");
                }
            }
        }
    }

    #[test]
    fn another_key_gives_another_hash() {
        let sent = udp4([10, 0, 0, 1], [10, 0, 1, 1], 77, b"hello");
        assert_ne!(hash(&identity(1), &sent), hash(&identity(2), &sent));
    }

    #[test]
    fn both_gateways_compute_the_same_hash_whatever_keys_they_began_with() {
        let sent = udp4([10, 0, 0, 1], [10, 0, 1, 1], 77, b"hello");
        let [one, other] = [3, 4].map(|byte| Secret::new([byte; 32]));
        let hash_in = |key, names: &Secret| {
            let mut identity = identity(key);
            identity.begin_session(names);
            hash(&identity, &sent)
        };
        assert_eq!(hash_in(1, &one), hash_in(2, &one));
        assert_ne!(hash_in(1, &one), hash_in(1, &other), "another session");
        let mut renewed = identity(1);
        renewed.begin_session(&one);
        assert_eq!(renewed.keyed_hash(b"a flow"), identity(1).keyed_hash(b"a flow"));
    }

    #[test]
    fn weak_names_collide() {
        let id = identity(1).with_name_bits(0);
        assert_eq!(id.name(PacketHash(5)), id.name(PacketHash(6)));
    }
}
