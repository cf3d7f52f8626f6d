//! The messages that participants exchange, and the choice of their groups.

/// First bytes of every message, by which the kernel program finds the message in a packet that it drops.
pub(crate) const MAGIC: [u8; 8] = *b"UNDROPMC";

/// Identifier of a message: the host that sent it, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) sender: u32,
    pub(crate) number: u64,
}

impl Name {
    /// Reads the identifier from the first bytes of a message, which begin with [`MAGIC`].
    pub(crate) fn read(message: &[u8]) -> Option<Self> {
        let rest = message.strip_prefix(&MAGIC)?;
        let (sender, rest) = rest.split_first_chunk::<4>()?;
        let (_group, rest) = rest.split_first_chunk::<4>()?;
        let (number, _) = rest.split_first_chunk::<8>()?;
        Some(Self { sender: u32::from_le_bytes(*sender), number: u64::from_le_bytes(*number) })
    }

    /// Returns the group of the message.
    pub(crate) fn group(self, seed: u64, groups: u32) -> u32 {
        let drawn = splitmix64(seed ^ (u64::from(self.sender) << 40) ^ self.number);
        u32::try_from(drawn % u64::from(groups.max(1))).unwrap_or(0)
    }
}

/// Returns the output of SplitMix64, which takes a few lines in any language.
fn splitmix64(seed: u64) -> u64 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix64_gives_the_published_value() {
        assert_eq!(splitmix64(0), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn the_first_bytes_identify_a_message() {
        let mut message = MAGIC.to_vec();
        message.extend([7, 0, 0, 0, 9, 9, 9, 9, 1, 2, 0, 0, 0, 0, 0, 0]);
        let name = Name { sender: 7, number: 0x201 };
        assert_eq!(Name::read(&message), Some(name));
        assert_eq!(Name::read(&message[..23]), None);
        assert_eq!(Name::read(&[0; 32]), None);
        assert!((0..100).all(|number| Name { number, ..name }.group(1, 3) < 3));
    }
}
