//! The cluster key, which authenticates datagrams.
//!
//! Each datagram ends in a trailer: sender, its start, a counter, the name of the key, and the first 16 bytes
//! of an HMAC-SHA-256 of all that and of the addresses. Every holder of the key is trusted: the trailer
//! neither tells members apart nor encrypts anything. A node accepts several keys, so that a cluster can
//! change its key.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use foundation::bytes::{Reader, Writer};
pub use keyfile::KeyError;
use keyfile::KeyText;
use ricochet_core::NodeId;
use ring::hmac;
use zeroize::Zeroizing;

/// Length of the trailer in bytes: sender (4), start (8), counter (6), name of the key (2), authenticator
/// (16).
pub const TRAILER: usize = STAMP + 2 + TAG;
const STAMP: usize = 18;
const TAG: usize = 16;
/// Length of an address in the authenticated bytes: IP address as IPv6 (16), port (2).
const ADDRESS: usize = 18;

/// The secret of 32 bytes that all nodes of a cluster share.
///
/// ```
/// let key = ricochet::ClusterKey::generate()?;
/// let same = ricochet::ClusterKey::parse(key.to_text().as_str())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ClusterKey(Zeroizing<[u8; 32]>);

impl ClusterKey {
    /// Creates a key from its bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Generates a new key.
    ///
    /// # Errors
    /// If the operating system's random source fails.
    pub fn generate() -> io::Result<Self> {
        Self::parse(KeyText::generate()?.as_str()).map_err(io::Error::other)
    }

    /// Parses a key from text: 32 bytes in base64, surrounded by any whitespace.
    ///
    /// # Errors
    /// [`KeyError`], whose messages never contain the text.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        keyfile::parse(text).map(|secret| Self::new(*secret.bytes()))
    }

    /// Reads a key from a file as `undrop multicast genkey` writes it. Only the owner
    /// may have access to the file.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn read(file: &Path) -> Result<Self, KeyError> {
        keyfile::read(file).map(|secret| Self::new(*secret.bytes()))
    }

    /// Reads one or more keys from a file, one in a line. Blank lines and lines that begin with `#` are
    /// skipped. Nodes sign with the first key and accept all.
    ///
    /// # Errors [`KeyError`].
    pub fn read_all(file: &Path) -> Result<Vec<Self>, KeyError> {
        Ok(keyfile::read_all(file)?.iter().map(|secret| Self::new(*secret.bytes())).collect())
    }

    /// Parses one or more keys, one in a line. Blank lines and lines that begin with `#` are skipped.
    ///
    /// # Errors
    /// [`KeyError`], whose messages never contain the text.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, KeyError> {
        Ok(keyfile::parse_all(text)?.iter().map(|secret| Self::new(*secret.bytes())).collect())
    }

    /// Returns the key as text that [`ClusterKey::parse`] reads.
    pub fn to_text(&self) -> KeyText {
        KeyText::new(&self.0)
    }

    /// Returns the name of the key, which identifies it and reveals nothing of it.
    pub fn name(&self) -> KeyName {
        Keyed::new(self).name
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(secret)")
    }
}

/// Name of a key: two bytes of a hash, shown as four hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyName([u8; 2]);

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}{:02x}", self.0[0], self.0[1])
    }
}

/// A key ready for use.
struct Keyed {
    name: KeyName,
    hmac: hmac::Key,
    /// Number of datagrams that it authenticated.
    accepted: AtomicU64,
}

impl Keyed {
    fn new(key: &ClusterKey) -> Self {
        let hmac = hmac::Key::new(hmac::HMAC_SHA256, &*key.0);
        let tag = hmac::sign(&hmac, b"undrop ricochet key name");
        let name = KeyName([tag.as_ref()[0], tag.as_ref()[1]]);
        Self { name, hmac, accepted: AtomicU64::new(0) }
    }
}

/// The keys of a node, shared by all that sign and check. The first one signs.
pub(crate) struct KeyRing(RwLock<Arc<[Arc<Keyed>]>>);

impl KeyRing {
    /// Creates a ring of at least one key.
    pub(crate) fn new(keys: &[ClusterKey]) -> Arc<Self> {
        Arc::new(Self(RwLock::new(keys.iter().map(|key| Arc::new(Keyed::new(key))).collect())))
    }

    /// Continues with other keys. Keys that stay keep their counts.
    pub(crate) fn replace(&self, keys: &[ClusterKey]) {
        let before = self.keys();
        let keyed = |key: &ClusterKey| {
            let new = Keyed::new(key);
            let same = |old: &&Arc<Keyed>| tag(&old.hmac, &[b"same"]) == tag(&new.hmac, &[b"same"]);
            before.iter().find(same).map_or_else(|| Arc::new(Keyed::new(key)), Arc::clone)
        };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = keys.iter().map(keyed).collect();
    }

    /// Returns name and number of accepted datagrams of each key, the one that signs first.
    pub(crate) fn counts(&self) -> Vec<(KeyName, u64)> {
        self.keys().iter().map(|key| (key.name, key.accepted.load(Ordering::Relaxed))).collect()
    }

    fn keys(&self) -> Arc<[Arc<Keyed>]> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyRing(secret)")
    }
}

/// Sender of a datagram, and the number of the datagram among all of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The sender.
    pub(crate) sender: NodeId,
    /// Start of its process, in microseconds since 1970.
    pub(crate) start: u64,
    /// Counts the datagrams of this process.
    pub(crate) counter: u64,
}

impl Stamp {
    /// Returns whether both are of the same process.
    pub(crate) fn is_same_life(self, other: Self) -> bool {
        (self.sender, self.start) == (other.sender, other.start)
    }

    fn write(self, to: &mut Writer<'_>) {
        to.put(&self.sender.0.to_be_bytes());
        to.put(&self.start.to_be_bytes());
        to.put(&self.counter.to_be_bytes()[2..]);
    }

    fn read(mut from: Reader<'_>) -> Option<Self> {
        let (sender, start) = (NodeId(from.u32().ok()?), from.u64().ok()?);
        let (high, low) = (from.u16().ok()?, from.u32().ok()?);
        Some(Self { sender, start, counter: u64::from(high) << 32 | u64::from(low) })
    }
}

/// Creates and checks the trailers of one node.
#[derive(Clone, Debug)]
pub(crate) struct Seal {
    keys: Arc<KeyRing>,
    sender: NodeId,
    start: u64,
    /// Address that this node sends from.
    own: SocketAddr,
    counter: Arc<AtomicU64>,
}

impl Seal {
    /// Creates the seal of a node that sends from `own` and started at `start`.
    pub(crate) fn new(keys: Arc<KeyRing>, sender: NodeId, start: u64, own: SocketAddr) -> Self {
        Self { keys, sender, start, own, counter: Arc::new(AtomicU64::new(1)) }
    }

    /// Returns the trailer of a datagram to one node, or to a group if `to` is `None`.
    pub(crate) fn trailer(&self, to: Option<SocketAddr>, datagram: &[u8]) -> [u8; TRAILER] {
        let counter = self.counter.fetch_add(1, Ordering::Relaxed);
        let stamp = Stamp { sender: self.sender, start: self.start, counter };
        let keys = self.keys.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut trailer = [0; TRAILER];
        let Some(key) = keys.first() else { return trailer };
        let mut writer = Writer::new(&mut trailer);
        stamp.write(&mut writer);
        writer.put(&key.name.0);
        let (head, tag_at) = trailer.split_at_mut(STAMP + 2);
        tag_at.copy_from_slice(&tag(&key.hmac, &[datagram, head, &address(Some(self.own)), &address(to)]));
        trailer
    }

    /// Returns a datagram without its trailer, and who sent it, if the trailer is right. `is_multicast` tells
    /// whether the datagram came to a group.
    pub(crate) fn open<'d>(
        &self,
        from: SocketAddr,
        is_multicast: bool,
        datagram: &'d [u8],
    ) -> Option<(&'d [u8], Stamp)> {
        let (body, trailer) = datagram.split_last_chunk::<TRAILER>()?;
        let (head, seen) = trailer.split_at(STAMP + 2);
        let (from, to) = (address(Some(from)), address((!is_multicast).then_some(self.own)));
        let keys = self.keys.0.read().unwrap_or_else(PoisonError::into_inner);
        let key = keys.iter().filter(|key| key.name.0 == head[STAMP..]).find(|key| {
            let expected = tag(&key.hmac, &[body, head, &from, &to]);
            // Compares all bytes, so that the time does not reveal where they differ.
            let differing = expected.iter().zip(seen).fold(0, |sum, (a, b)| sum | (a ^ b));
            std::hint::black_box(differing) == 0
        })?;
        key.accepted.fetch_add(1, Ordering::Relaxed);
        Some((body, Stamp::read(Reader(head))?))
    }
}

fn tag(key: &hmac::Key, parts: &[&[u8]]) -> [u8; TAG] {
    let mut context = hmac::Context::with_key(key);
    parts.iter().for_each(|part| context.update(part));
    let mut tag = [0; TAG];
    tag.copy_from_slice(&context.sign().as_ref()[..TAG]);
    tag
}

/// Returns the authenticated bytes of an address; all zero for a group.
fn address(address: Option<SocketAddr>) -> [u8; ADDRESS] {
    let mut bytes = [0; ADDRESS];
    let Some(address) = address else { return bytes };
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&address.port().to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], 7_900))
    }

    fn seal(keys: &[u8], host: u8) -> Seal {
        let keys: Vec<ClusterKey> = keys.iter().map(|&byte| ClusterKey::new([byte; 32])).collect();
        Seal::new(KeyRing::new(&keys), NodeId(u32::from(host)), 5, at(host))
    }

    fn sealed(seal: &Seal, to: Option<SocketAddr>, body: &[u8]) -> Vec<u8> {
        [body, &seal.trailer(to, body)].concat()
    }

    #[test]
    fn only_datagrams_sealed_with_the_key_open() {
        let (sender, receiver, other) = (seal(&[7], 1), seal(&[7], 2), seal(&[8], 2));
        let datagram = sealed(&sender, Some(at(2)), b"something");
        let stamp = Stamp { sender: NodeId(1), start: 5, counter: 1 };
        assert_eq!(receiver.open(at(1), false, &datagram), Some((&b"something"[..], stamp)));
        assert_eq!(other.open(at(1), false, &datagram), None);
        for bit in 0..datagram.len() * 8 {
            let mut forged = datagram.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(receiver.open(at(1), false, &forged), None, "bit {bit}");
        }
        for length in 0..datagram.len() {
            assert_eq!(receiver.open(at(1), false, &datagram[..length]), None);
        }
        let empty = sealed(&sender, Some(at(2)), b"");
        let counter = receiver.open(at(1), false, &empty).map(|(body, stamp)| (body.len(), stamp.counter));
        assert_eq!(counter, Some((0, 2)), "each datagram has a counter of its own");
    }

    #[test]
    fn a_datagram_opens_only_between_its_addresses() {
        let (sender, receiver, third) = (seal(&[7], 1), seal(&[7], 2), seal(&[7], 3));
        let to_one = sealed(&sender, Some(at(2)), b"x");
        assert_eq!(third.open(at(1), false, &to_one), None, "sent to another node");
        assert_eq!(receiver.open(at(9), false, &to_one), None, "from another address");
        assert_eq!(receiver.open(at(1), true, &to_one), None, "by multicast");
        let to_group = sealed(&sender, None, b"x");
        assert!(
            receiver.open(at(1), true, &to_group).is_some() && third.open(at(1), true, &to_group).is_some()
        );
        assert_eq!(receiver.open(at(1), false, &to_group), None, "by unicast");
    }

    #[test]
    fn a_cluster_changes_its_key_step_by_step() {
        let [a, b] = [1, 2].map(|host| seal(&[7], host));
        let steps: [(&[u8], &[u8]); 5] =
            [(&[7, 8], &[7]), (&[7, 8], &[7, 8]), (&[8, 7], &[7, 8]), (&[8, 7], &[8, 7]), (&[8], &[8, 7])];
        for (of_a, of_b) in steps {
            for (seal, keys) in [(&a, of_a), (&b, of_b)] {
                let keys: Vec<ClusterKey> = keys.iter().map(|&byte| ClusterKey::new([byte; 32])).collect();
                seal.keys.replace(&keys);
            }
            assert!(b.open(at(1), false, &sealed(&a, Some(at(2)), b"x")).is_some(), "{of_a:?} {of_b:?}");
            assert!(a.open(at(2), false, &sealed(&b, Some(at(1)), b"x")).is_some(), "{of_a:?} {of_b:?}");
        }
        let accepted: Vec<u64> = b.keys.counts().iter().map(|(_, accepted)| *accepted).collect();
        assert_eq!(accepted, [3, 2], "keys that stay keep their counts");
    }

    #[test]
    fn the_authenticator_is_the_first_half_of_rfc_4231_test_case_2() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"Jefe");
        let expected =
            [0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24, 0x26, 0x08, 0x95, 0x75, 0xc7];
        assert_eq!(tag(&key, &[b"what do ya want ", b"for nothing?"]), expected);
    }

    #[test]
    fn a_key_survives_its_text() {
        let key = ClusterKey::generate().unwrap();
        assert_eq!(*ClusterKey::parse(key.to_text().as_str()).unwrap().0, *key.0);
        assert!(matches!(ClusterKey::parse("ab"), Err(KeyError::Length { seen: 2 })));
        assert_eq!(format!("{key:?}"), "ClusterKey(secret)");
        assert_eq!(ClusterKey::new([7; 32]).name().to_string().len(), 4);
    }
}
