//! The ephemeral keys of sessions, which give them forward secrecy (docs/adr/0033).
//!
//! 1. A gateway draws an X25519 key (RFC 7748) with each token of its own, and says its public half in the
//!    Hellos with this token.
//! 2. A Hello that echoes this token brings the public half of the peer's key. Both ends compute the same
//!    [`Agreement`], and the keys of the session follow from it, from the peer key, and from both tokens.
//! 3. The secret half is overwritten when another token takes the place of its token. Nothing that is left
//!    then, the peer key included, opens or forges what was sealed.
//!
//! A Hello that does not echo a token of ours costs no multiplication on the curve, whoever sealed it.

use std::fmt;

use ed25519_compact::x25519;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::counters::Rejected;
use crate::key::{Length, Secret, Token, derive};

/// Length of the public half of an ephemeral key in bytes.
pub const PUBLIC_LEN: usize = 32;

/// The points of small order, of which each has the same product, zero, with all secret keys (RFC 7748 §6.1).
const SMALL_ORDER: [[u8; PUBLIC_LEN]; 5] = [
    [0; PUBLIC_LEN],
    [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    [
        0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4, 0x6a, 0xda,
        0x09, 0x8d, 0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00,
    ],
    [
        0x5f, 0x9c, 0x95, 0xbc, 0xa3, 0x50, 0x8c, 0x24, 0xb1, 0xd0, 0xb1, 0x55, 0x9c, 0x83, 0xef, 0x5b, 0x04,
        0x44, 0x5c, 0xc4, 0x58, 0x1c, 0x8e, 0x86, 0xd8, 0x22, 0x4e, 0xdd, 0xd0, 0x9f, 0x11, 0x57,
    ],
    [
        0xec, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
    ],
];

/// The public half of an ephemeral key: a canonical coordinate of a point that is not of small order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Public([u8; PUBLIC_LEN]);

impl Public {
    /// Reads the coordinate, as in a Hello.
    ///
    /// # Errors
    /// [`Rejected::Malformed`] for a coordinate that no gateway sends: 2²⁵⁵ − 19 or more, or of small order.
    pub fn read(bytes: [u8; PUBLIC_LEN]) -> Result<Self, Rejected> {
        let has_255_bits = bytes[PUBLIC_LEN - 1] < 0x80;
        if has_255_bits && x25519::PublicKey::from_slice(&bytes).is_ok() && !SMALL_ORDER.contains(&bytes) {
            Ok(Self(bytes))
        } else {
            Err(Rejected::Malformed)
        }
    }

    /// Returns the coordinate as in a Hello.
    pub fn as_bytes(&self) -> &[u8; PUBLIC_LEN] {
        &self.0
    }
}

/// An ephemeral key of this gateway. Its secret half is overwritten when it is dropped.
#[derive(Clone)]
pub struct EphemeralKey {
    secret: x25519::SecretKey,
    public: Public,
}

impl EphemeralKey {
    /// Draws a key. `entropy` generates secret random bytes.
    pub(crate) fn draw(entropy: &mut impl FnMut(&mut [u8])) -> Self {
        let mut bytes = [0; 32];
        entropy(&mut bytes);
        let key = Self::new(&Secret::new(bytes));
        bytes.zeroize();
        key
    }

    /// Creates the key with this secret half.
    pub fn new(secret: &Secret) -> Self {
        let secret = x25519::SecretKey::new(*secret.as_bytes());
        let public = secret.recover_public_key();
        let public = public.expect("the order of the base point divides no clamped number");
        Self { public: Public(*public), secret }
    }

    /// Returns the public half.
    pub fn public(&self) -> Public {
        self.public
    }

    /// Returns the secret half, for another process of this gateway.
    pub fn secret(&self) -> Secret {
        Secret::new(*self.secret)
    }

    /// Computes the secret that the holder of `far` computes from the public half of this key.
    ///
    /// # Errors
    /// [`Rejected::Malformed`] if `far` is of small order.
    pub fn agree(&self, far: &Public) -> Result<Agreement, Rejected> {
        let shared = x25519::PublicKey::new(far.0).dh(&self.secret).map_err(|_| Rejected::Malformed)?;
        let (low, high) = if self.public.0 <= far.0 { (&self.public, far) } else { (far, &self.public) };
        let mut bytes = [0; 32];
        derive(&*shared, &[b"exchange", &low.0, &high.0], Length(32), &mut bytes);
        let agreement = Agreement(Secret::new(bytes));
        bytes.zeroize();
        Ok(agreement)
    }
}

impl fmt::Debug for EphemeralKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EphemeralKey({:?}, …)", self.public)
    }
}

/// The secret that two ephemeral keys have in common, wiped when dropped.
#[derive(Clone, Debug, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct Agreement(Secret);

impl Agreement {
    pub(crate) fn secret(&self) -> &Secret {
        &self.0
    }

    /// Derives the secret of the packet hash of a session that begins with these tokens, whichever of them is
    /// `one`. Nothing else follows from it.
    pub fn names(&self, one: Token, other: Token) -> Secret {
        let (low, high) = if one.0 <= other.0 { (one, other) } else { (other, one) };
        let mut bytes = [0; 32];
        derive(self.0.as_bytes(), &[b"names", &low.0, &high.0], Length(32), &mut bytes);
        let names = Secret::new(bytes);
        bytes.zeroize();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::TOKEN_LEN;
    use ring::agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral};
    use ring::rand::SystemRandom;

    fn key(byte: u8) -> EphemeralKey {
        EphemeralKey::new(&Secret::new([byte; 32]))
    }

    fn bytes(hex: &str) -> [u8; 32] {
        let digits = hex.as_bytes().as_chunks::<2>().0;
        std::array::from_fn(|at| u8::from_str_radix(std::str::from_utf8(&digits[at]).unwrap(), 16).unwrap())
    }

    /// RFC 7748 §6.1.
    #[test]
    fn the_curve_is_that_of_the_rfc() {
        let alice = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a";
        let public = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a";
        let key = EphemeralKey::new(&Secret::new(bytes(alice)));
        assert_eq!(key.public(), Public(bytes(public)));
        let bob = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f";
        let shared = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742";
        let product = x25519::PublicKey::new(bytes(bob)).dh(&key.secret).unwrap();
        assert_eq!(*product, bytes(shared));
    }

    #[test]
    fn another_implementation_computes_the_same_products() {
        let random = SystemRandom::new();
        for byte in 0..50 {
            let other = EphemeralPrivateKey::generate(&X25519, &random).unwrap();
            let public: [u8; 32] = other.compute_public_key().unwrap().as_ref().try_into().unwrap();
            let key = key(byte);
            let product = x25519::PublicKey::new(public).dh(&key.secret).unwrap();
            let ours = UnparsedPublicKey::new(&X25519, *key.public().as_bytes());
            let same = agree_ephemeral(other, &ours, |shared| shared == &product[..]);
            assert_eq!((same, Public::read(public).is_ok()), (Ok(true), true));
        }
    }

    #[test]
    fn both_ends_agree_and_nobody_else_does() {
        let agreed = key(1).agree(&key(2).public()).unwrap();
        assert_eq!(key(2).agree(&key(1).public()), Ok(agreed.clone()));
        for (one, other) in [(1, 3), (3, 2)] {
            assert_ne!(key(one).agree(&key(other).public()), Ok(agreed.clone()));
        }
        let [one, other] = [1, 2].map(|byte| Token([byte; TOKEN_LEN]));
        assert_eq!(agreed.names(one, other), agreed.names(other, one));
        assert_ne!(agreed.names(one, other), agreed.names(one, one));
    }

    #[test]
    fn a_point_of_small_order_or_beyond_the_field_is_refused() {
        for point in SMALL_ORDER {
            assert_eq!(Public::read(point), Err(Rejected::Malformed));
            assert_eq!(key(7).agree(&Public(point)), Err(Rejected::Malformed), "{point:?}");
            // The highest bit is not part of the coordinate.
            let mut same = point;
            same[31] |= 0x80;
            assert_eq!(Public::read(same), Err(Rejected::Malformed));
        }
        let prime = {
            let mut prime = [0xff; 32];
            (prime[0], prime[31]) = (0xed, 0x7f);
            prime
        };
        for above in 0..=18 {
            let mut number = prime;
            number[0] += above;
            assert_eq!(Public::read(number), Err(Rejected::Malformed));
        }
        let mut below = prime;
        below[0] -= 2;
        assert!(Public::read(below).is_ok());
    }

    #[test]
    fn no_secret_is_printed() {
        let text = format!("{:?} {:?}", key(0x5a), key(0x5a).agree(&key(1).public()));
        assert!(!text.contains("90, 90") && text.contains('…'), "{text}");
    }

    proptest::proptest! {
        #[test]
        fn each_point_that_is_read_has_a_product(point: [u8; 32], secret: [u8; 32]) {
            if let Ok(public) = Public::read(point) {
                let agreed = EphemeralKey::new(&Secret::new(secret)).agree(&public);
                proptest::prop_assert!(agreed.is_ok());
            }
        }
    }
}
