//! The keys that two gateways accept from each other: one, and two while the key is changed.
//!
//! A token stands for the keys that its gateway accepts. A gateway that accepts other keys from here on draws
//! another token. A Hello with the present token of the peer, under some key, therefore shows that the peer
//! opens datagrams under this key as long as it has the token.

use std::fmt;

use crate::config::PeerConfig;
use crate::counters::Rejected;
use crate::exchange::Agreement;
use crate::key::{PeerKey, Token};
use crate::observe::Level;
use crate::session::{HelloKey, Opener};
use crate::wire::{HELLO_MAX, KeyPart, SealedHeader};

/// Number of Hellos of a peer with two keys under one of them alone, after which its other key is none of
/// ours: more than chance loses in a row.
const UNMATCHED_MAX: u32 = 8;
/// Maximum number of keys of a peer that are remembered. A peer accepts two.
const SHOWN_MAX: usize = 4;

/// The keys that a gateway accepts from a peer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Keys {
    present: PeerKey,
    next: Option<PeerKey>,
}

impl Keys {
    pub(crate) fn of(config: &PeerConfig) -> Self {
        Self { present: config.key.clone(), next: config.next_key.clone() }
    }

    /// The keys with their parts, the one that is preferred first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (KeyPart, &PeerKey)> {
        let part = if self.next.is_some() { KeyPart::Present } else { KeyPart::Only };
        self.next.iter().map(|key| (KeyPart::Next, key)).chain([(part, &self.present)])
    }

    pub(crate) fn contains(&self, key: &PeerKey) -> bool {
        self.iter().any(|(_, own)| own == key)
    }

    /// The key to seal with: the preferred one of those that the peer accepts.
    pub(crate) fn best(&self, far: &FarKeys) -> Option<PeerKey> {
        self.iter().map(|(_, key)| key).find(|key| far.accepts(key)).cloned()
    }

    /// The key to seal with while the peer has shown none of these.
    pub(crate) fn fallback(&self) -> PeerKey {
        self.present.clone()
    }
}

/// Opens Hellos under each key that a gateway accepts.
pub(crate) struct HelloKeys(Vec<(PeerKey, HelloKey)>);

impl HelloKeys {
    pub(crate) fn new(keys: &Keys) -> Self {
        Self(keys.iter().map(|(_, key)| (key.clone(), HelloKey::new(key))).collect())
    }

    /// Decrypts the body of a Hello in place, and returns the key with which it was sealed.
    ///
    /// # Errors
    /// As [`HelloKey::open`].
    pub(crate) fn open<'d>(&self, datagram: &'d mut [u8]) -> Result<(&PeerKey, &'d [u8]), Rejected> {
        if datagram.len() > HELLO_MAX {
            return Err(Rejected::Malformed);
        }
        let (last, others) = self.0.split_last().expect("a gateway accepts a key");
        // A key that does not open the datagram spoils it.
        let mut copy = [0; HELLO_MAX];
        let copy = &mut copy[..datagram.len()];
        let mut opens = |hello_key: &HelloKey| {
            copy.copy_from_slice(datagram);
            hello_key.open(copy).is_ok()
        };
        let (key, hello_key) = others.iter().find(|(_, hello_key)| opens(hello_key)).unwrap_or(last);
        Ok((key, hello_key.open(datagram)?))
    }
}

/// Opens the sealed datagrams of one session, under each key of our token.
#[derive(Default)]
pub(crate) struct Openers(Vec<Opener>);

impl Openers {
    /// Creates the openers of datagrams from the holder of token `far` to us.
    pub(crate) fn new(keys: &Keys, agreement: &Agreement, far: Token, own: Token) -> Self {
        Self(keys.iter().map(|(_, key)| Opener::new(key, agreement, far, own)).collect())
    }

    /// Continues with the openers of another process: each epoch with the lowest number that may still come.
    /// `None` if these epochs are not those of our keys.
    pub(crate) fn resumed(
        keys: &Keys,
        agreement: &Agreement,
        [own, far]: [Token; 2],
        left: &[(u32, u64)],
    ) -> Option<Self> {
        let Self(openers) = Self::new(keys, agreement, far, own);
        if openers.len() != left.len() {
            return None;
        }
        let resumed = openers.into_iter().map(|opener| {
            let &(_, next) = left.iter().find(|(epoch, _)| *epoch == opener.epoch())?;
            Some(opener.continued_at(next))
        });
        resumed.collect::<Option<Vec<_>>>().map(Self)
    }

    /// The epochs, each with the lowest number that may still come.
    pub(crate) fn positions(&self) -> impl Iterator<Item = (u32, u64)> {
        self.0.iter().map(|opener| (opener.epoch(), opener.next()))
    }

    pub(crate) fn has_epoch(&self, epoch: u32) -> bool {
        self.0.iter().any(|opener| opener.epoch() == epoch)
    }

    /// Whether no datagram of this session has been opened.
    pub(crate) fn is_unused(&self) -> bool {
        self.0.iter().all(Opener::is_unused)
    }

    /// Whether no later datagram of this session than this one has been opened.
    pub(crate) fn is_newest(&self, header: &SealedHeader) -> bool {
        let opener = self.0.iter().find(|opener| opener.epoch() == header.epoch);
        opener.is_some_and(|opener| opener.is_newest(header.counter))
    }

    /// Decrypts the body of a sealed datagram in place.
    ///
    /// # Errors
    /// [`Rejected::UnknownEpoch`], or as [`Opener::open`].
    pub(crate) fn open<'d>(
        &mut self,
        header: &SealedHeader,
        datagram: &'d mut [u8],
    ) -> Result<&'d mut [u8], Rejected> {
        let opener = self.0.iter_mut().find(|opener| opener.epoch() == header.epoch);
        opener.ok_or(Rejected::UnknownEpoch)?.open(header, datagram)
    }
}

/// The evidence of one Hello about the keys of the peer.
pub(crate) struct Shown {
    /// A key that the peer accepts.
    pub(crate) key: PeerKey,
    /// The part that it plays there.
    pub(crate) part: KeyPart,
}

/// The keys that the peer accepts, as the Hellos with its present token have shown.
#[derive(Default)]
pub(crate) struct FarKeys {
    shown: Vec<Shown>,
    /// Number of Hellos with two keys since a key was shown for the first time.
    unmatched: u32,
}

impl FarKeys {
    /// The keys of a peer that has a new token, and says Hello for the first time.
    pub(crate) fn of(shown: Shown) -> Self {
        Self { shown: vec![shown], unmatched: 0 }
    }

    /// The keys that another process has seen.
    pub(crate) fn of_all(shown: impl Iterator<Item = Shown>) -> Self {
        Self { shown: shown.take(SHOWN_MAX).collect(), unmatched: 0 }
    }

    /// The keys that were shown, with their parts.
    pub(crate) fn shown(&self) -> impl Iterator<Item = (&PeerKey, KeyPart)> {
        self.shown.iter().map(|shown| (&shown.key, shown.part))
    }

    /// Takes a further Hello.
    pub(crate) fn on_hello(&mut self, shown: Shown) {
        if shown.part == KeyPart::Only || self.accepts(&shown.key) {
            self.unmatched = self.unmatched.saturating_add(1);
        } else {
            self.unmatched = 0;
        }
        match self.shown.iter_mut().find(|known| known.key == shown.key) {
            Some(known) => known.part = shown.part,
            None => {
                if self.shown.len() == SHOWN_MAX {
                    self.shown.remove(0);
                }
                self.shown.push(shown);
            }
        }
    }

    /// Notes that we accept other keys from here on, so that the next Hellos may show more.
    pub(crate) fn on_own_change(&mut self) {
        self.unmatched = 0;
    }

    pub(crate) fn accepts(&self, key: &PeerKey) -> bool {
        self.part_of(key).is_some()
    }

    /// The part that a key plays for the peer; `None` if the peer has not shown that it accepts it.
    fn part_of(&self, key: &PeerKey) -> Option<KeyPart> {
        self.shown.iter().find(|shown| shown.key == *key).map(|shown| shown.part)
    }
}

/// Progress of a change of the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyState {
    /// Both ends accept the same single key, as far as is known.
    #[default]
    Single,
    /// The peer accepts a further key, its next one, that this gateway does not have.
    Offered,
    /// The peer still accepts the key before this one.
    LeftOver,
    /// The peer has not shown that it accepts the next key.
    Waiting,
    /// The next key is in use.
    Changed,
    /// The peer has another next key.
    Different,
    /// The present key here is the next one there: the peer has not finished the change before.
    Behind,
    /// The present key here is the next one there, and the other way round.
    Crossed,
}

impl KeyState {
    /// Finds the progress from the keys of this end, what is known of those of the peer, and the key that
    /// this gateway seals with.
    pub(crate) fn of(keys: &Keys, far: &FarKeys, in_use: &PeerKey) -> Self {
        let there = far.part_of(&keys.present);
        let Some(next) = &keys.next else {
            return match there {
                Some(KeyPart::Present) => Self::Offered,
                Some(KeyPart::Next) => Self::LeftOver,
                Some(KeyPart::Only) | None => Self::Single,
            };
        };
        match (far.part_of(next), there) {
            (Some(KeyPart::Present), Some(KeyPart::Next)) => Self::Crossed,
            (Some(_), _) if in_use == next => Self::Changed,
            (Some(_), _) => Self::Waiting,
            (None, Some(KeyPart::Next)) => Self::Behind,
            (None, Some(KeyPart::Present)) if far.unmatched >= UNMATCHED_MAX => Self::Different,
            (None, _) => Self::Waiting,
        }
    }

    /// Returns its name: stable, in snake case.
    pub fn id(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Offered => "offered",
            Self::LeftOver => "left_over",
            Self::Waiting => "waiting",
            Self::Changed => "changed",
            Self::Different => "different",
            Self::Behind => "behind",
            Self::Crossed => "crossed",
        }
    }

    /// The attention that it needs.
    pub fn level(self) -> Level {
        match self {
            Self::Different | Self::Behind | Self::Crossed => Level::Warning,
            _ => Level::Info,
        }
    }

    /// Returns what an operator does next; `None` if nothing is left to do.
    pub fn remedy(self) -> Option<&'static str> {
        Some(match self {
            Self::Single => return None,
            Self::Offered => {
                "copy the next key file of the peer, name it as `next_key_file` here, and reload"
            }
            Self::LeftOver => {
                "at the peer, name the next key file as `key_file`, leave out `next_key_file`, and reload"
            }
            Self::Waiting => {
                "copy the next key file to the peer, name it as `next_key_file` there, and reload"
            }
            Self::Changed => {
                "at both ends, in any order, name the next key file as `key_file`, leave out `next_key_file`, and reload"
            }
            Self::Different => "copy the next key file of one gateway to the other, and reload there",
            Self::Behind => {
                "finish the change before this one: at the peer, name its next key file as `key_file`, and this one as \
                 `next_key_file`"
            }
            Self::Crossed => {
                "exchange `key_file` and `next_key_file` at one of the gateways, and reload there"
            }
        })
    }
}

impl fmt::Display for KeyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Single => "one key, which both ends accept",
            Self::Offered => "the peer has a next key, which this gateway does not have",
            Self::LeftOver => "the new key is in use; the peer still accepts the old one",
            Self::Waiting => "the next key waits until the peer accepts it; the present one is in use",
            Self::Changed => "the next key is in use; the present one is not needed any more",
            Self::Different => "the next keys of both ends differ; the present one is in use",
            Self::Behind => "the peer has not finished the change to the present key",
            Self::Crossed => "the present key is the next one of the peer, and the other way round",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> PeerKey {
        PeerKey::new([byte; 32])
    }

    fn keys(present: u8, next: Option<u8>) -> Keys {
        Keys { present: key(present), next: next.map(key) }
    }

    /// Returns what a gateway with `own` keys knows after `hellos` Hellos of a peer with the keys `far`.
    fn learned(own: &Keys, far: &Keys, hellos: u32) -> FarKeys {
        let mut known = FarKeys::default();
        for _ in 0..hellos {
            for (part, key) in far.iter().filter(|(_, key)| own.contains(key)) {
                known.on_hello(Shown { key: key.clone(), part });
            }
        }
        known
    }

    fn state(own: (u8, Option<u8>), far: (u8, Option<u8>), hellos: u32) -> KeyState {
        let (own, far) = (keys(own.0, own.1), keys(far.0, far.1));
        let known = learned(&own, &far, hellos);
        let in_use = own.best(&known).unwrap_or_else(|| own.fallback());
        KeyState::of(&own, &known, &in_use)
    }

    #[test]
    fn each_combination_of_keys_has_its_state_at_both_ends() {
        for (one, other, states) in [
            ((1, None), (1, None), [KeyState::Single, KeyState::Single]),
            ((1, Some(2)), (1, None), [KeyState::Waiting, KeyState::Offered]),
            ((1, Some(2)), (1, Some(2)), [KeyState::Changed, KeyState::Changed]),
            ((2, None), (1, Some(2)), [KeyState::LeftOver, KeyState::Changed]),
            ((2, None), (2, None), [KeyState::Single, KeyState::Single]),
            ((1, Some(2)), (1, Some(3)), [KeyState::Different, KeyState::Different]),
            ((2, Some(3)), (1, Some(2)), [KeyState::Behind, KeyState::Changed]),
            ((1, Some(2)), (2, Some(1)), [KeyState::Crossed, KeyState::Crossed]),
        ] {
            assert_eq!([state(one, other, 20), state(other, one, 20)], states, "{one:?} and {other:?}");
        }
        assert_eq!(state((1, Some(2)), (1, Some(2)), 0), KeyState::Waiting, "nothing was heard");
    }

    #[test]
    fn a_few_lost_hellos_are_no_other_key() {
        assert_eq!(state((1, Some(2)), (1, Some(3)), UNMATCHED_MAX), KeyState::Waiting);
        assert_eq!(state((1, Some(2)), (1, Some(3)), UNMATCHED_MAX + 1), KeyState::Different);
    }

    #[test]
    fn all_states_but_the_last_have_a_remedy_and_names_of_their_own() {
        let all = [
            KeyState::Single,
            KeyState::Offered,
            KeyState::LeftOver,
            KeyState::Waiting,
            KeyState::Changed,
            KeyState::Different,
            KeyState::Behind,
            KeyState::Crossed,
        ];
        for (at, state) in all.into_iter().enumerate() {
            assert_eq!(state.remedy().is_none(), state == KeyState::Single);
            assert!(all[..at].iter().all(|other| other.id() != state.id()));
            assert!(state.remedy().is_none_or(|remedy| !remedy.contains("genkey")), "no key is made again");
        }
    }

    #[test]
    fn a_hello_opens_under_either_key() {
        use crate::wire::{HELLO_HEADER, TAG, write_hello_header};
        let both = HelloKeys::new(&keys(1, Some(2)));
        let sealed = |byte| {
            let mut hello = vec![0; HELLO_HEADER + 50 + TAG];
            write_hello_header(&mut hello, KeyPart::Only, [9; 12]);
            HelloKey::new(&key(byte)).seal(&mut hello);
            hello
        };
        for byte in [1, 2] {
            let mut hello = sealed(byte);
            let (found, body) = both.open(&mut hello).unwrap();
            assert!(*found == key(byte) && *body == [0; 50]);
        }
        assert!(matches!(both.open(&mut sealed(3)), Err(Rejected::Forged)));
        assert!(matches!(both.open(&mut vec![0; HELLO_MAX + 1]), Err(Rejected::Malformed)));
    }
}
