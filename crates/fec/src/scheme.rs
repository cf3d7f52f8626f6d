//! The FEC schemes by name, and when their repairs leave.

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// A FEC scheme (RFC 6363), without its parameters.
///
/// ```
/// use fec::Scheme;
/// assert_eq!("reed-solomon".parse(), Ok(Scheme::ReedSolomon));
/// assert_eq!(Scheme::Sliding.to_string(), "sliding");
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scheme {
    /// Layered interleaving (Maelstrom §4.3): XORs of packets one interleave apart; all coefficients are 1.
    #[default]
    Layered,
    /// Reed–Solomon blocks (Maelstrom §4.4): one repair for each row of a Cauchy matrix,
    /// [`cauchy`](crate::cauchy).
    ReedSolomon,
    /// A sliding window (RFC 8681): random linear combinations of the last packets.
    Sliding,
}

/// A word that names no [`Scheme`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("scheme: expected layered, reed-solomon or sliding, saw {0:?}")]
pub struct UnknownScheme(pub String);

impl Scheme {
    /// All schemes.
    pub const ALL: [Self; 3] = [Self::Layered, Self::ReedSolomon, Self::Sliding];

    /// The word for the scheme in configurations, on command lines and in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Layered => "layered",
            Self::ReedSolomon => "reed-solomon",
            Self::Sliding => "sliding",
        }
    }

    /// A phrase that explains the scheme on a command line.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Layered => "XORs of r packets at several distances (Maelstrom)",
            Self::ReedSolomon => "Blocks of r packets and c repairs, of which any r are enough",
            Self::Sliding => "Random sums of the last packets (RFC 8681)",
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Scheme {
    type Err = UnknownScheme;

    fn from_str(word: &str) -> Result<Self, UnknownScheme> {
        let scheme = Self::ALL.into_iter().find(|scheme| scheme.word() == word);
        scheme.ok_or_else(|| UnknownScheme(word.to_owned()))
    }
}

/// When the repairs of a full bin or block leave (Maelstrom §4.3.1, "delaying XORs").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sending {
    /// At once, for the quickest recovery.
    #[default]
    Immediate,
    /// With later packets, so that one burst cannot take both the last packet of a repair and the repair.
    ///
    /// A bin's repair leaves when the next packet enters the emptied bin, one interleave later; the layer of
    /// interleave 1, which recovers single losses and no bursts, still sends at once. A block's repairs leave
    /// with the packets of the next round.
    Delayed,
}
