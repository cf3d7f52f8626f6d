//! The Internet checksum (RFC 1071), fast enough to compute for every segment.
//!
//! Data is summed as native-endian 32-bit lanes into 64-bit accumulators, which compilers vectorize. RFC 1071
//! §2: the sum does not depend on the byte order if the result is written back in the same order.

/// A ones' complement sum in progress.
///
/// Every added piece must start at an even distance from the start of the summed data.
///
/// ```
/// use netio::checksum::Sum;
/// // RFC 1071 §3
/// let sum = Sum::of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
/// assert_eq!(sum.fold(), 0xddf2);
/// assert_eq!(sum.finish(), !0xddf2);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// Returns the sum of `data`.
    pub fn of(data: &[u8]) -> Self {
        Self(sum_lanes(data))
    }

    /// Adds the sum of `data`.
    #[must_use]
    pub fn bytes(self, data: &[u8]) -> Self {
        self.plus(Self::of(data))
    }

    /// Adds a 16-bit field.
    #[must_use]
    pub fn word(self, value: u16) -> Self {
        self.plus(Self(u64::from(value.to_be())))
    }

    /// Adds a 32-bit field.
    #[must_use]
    pub fn double(self, value: u32) -> Self {
        self.plus(Self(u64::from(value.to_be())))
    }

    /// Adds another sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        // No overflow: one packet gives less than 2^47, and at most a handful of packets are summed.
        Self(self.0 + other.0)
    }

    /// Returns the sum folded to 16 bits, not complemented. Taken over the pseudo-header, this is the
    /// checksum field of a packet whose checksum is left to the card.
    pub fn fold(self) -> u16 {
        let mut sum = self.0;
        sum = (sum & 0xffff_ffff) + (sum >> 32);
        sum = (sum & 0xffff_ffff) + (sum >> 32);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        u16::from_be(sum as u16) // in range: folded three times
    }

    /// Returns the checksum: the complement of the folded sum.
    pub fn finish(self) -> u16 {
        !self.fold()
    }
}

/// Copies `source` to the start of `target` and returns the sum of the copied bytes, in one pass.
///
/// # Panics
/// If `target` is shorter than `source`.
pub fn copy_and_sum(source: &[u8], target: &mut [u8]) -> Sum {
    let target = &mut target[..source.len()];
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, the only condition of this safe-bodied function.
        return Sum(unsafe { copy_and_sum_avx2(source, target) });
    }
    Sum(copy_and_sum_body(source, target))
}

fn sum_lanes(data: &[u8]) -> u64 {
    // For headers, the check of the processor's features costs more than it saves.
    #[cfg(target_arch = "x86_64")]
    if data.len() >= 128 && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, the only condition of this safe-bodied function.
        return unsafe { sum_avx2(data) };
    }
    sum_body(data)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_avx2(data: &[u8]) -> u64 {
    sum_body(data)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn copy_and_sum_avx2(source: &[u8], target: &mut [u8]) -> u64 {
    copy_and_sum_body(source, target)
}

const LANES: usize = 16;

#[inline(always)]
fn sum_body(data: &[u8]) -> u64 {
    let (blocks, rest) = data.as_chunks::<{ LANES * 4 }>();
    let mut lanes = [0_u64; LANES];
    for block in blocks {
        add_block(&mut lanes, block);
    }
    lanes.iter().sum::<u64>() + sum_tail(rest)
}

#[inline(always)]
fn copy_and_sum_body(source: &[u8], target: &mut [u8]) -> u64 {
    let (blocks, rest) = source.as_chunks::<{ LANES * 4 }>();
    let (targets, target_rest) = target.as_chunks_mut::<{ LANES * 4 }>();
    let mut lanes = [0_u64; LANES];
    for (block, out) in blocks.iter().zip(targets) {
        *out = *block;
        add_block(&mut lanes, block);
    }
    target_rest[..rest.len()].copy_from_slice(rest);
    lanes.iter().sum::<u64>() + sum_tail(rest)
}

#[inline(always)]
fn add_block(lanes: &mut [u64; LANES], block: &[u8; LANES * 4]) {
    for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<4>().0) {
        *lane += u64::from(u32::from_ne_bytes(*word));
    }
}

#[inline(always)]
fn sum_tail(data: &[u8]) -> u64 {
    let (words, rest) = data.as_chunks::<4>();
    let mut sum: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let (halves, last) = rest.as_chunks::<2>();
    sum += halves.iter().map(|half| u64::from(u16::from_ne_bytes(*half))).sum::<u64>();
    if let [byte] = last {
        // padded with a zero byte
        sum += u64::from(u16::from_ne_bytes([*byte, 0]));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checksum by its definition, word by word.
    fn plain(data: &[u8]) -> u16 {
        let mut sum = 0_u32;
        for pair in data.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        u16::try_from(sum).unwrap()
    }

    fn noise(len: usize) -> Vec<u8> {
        testkit::Random(1).bytes(len)
    }

    #[test]
    fn every_length_sums_as_defined() {
        for data in [noise(600), vec![0xff; 600], vec![0; 600]] {
            for len in 0..data.len() {
                assert_eq!(Sum::of(&data[..len]).fold(), plain(&data[..len]), "length {len}");
                assert_eq!(sum_body(&data[..len]), sum_lanes(&data[..len]));
            }
        }
        let long = vec![0xff; 65_535];
        assert_eq!(Sum::of(&long).fold(), plain(&long));
    }

    #[test]
    fn copying_copies_and_sums() {
        let data = noise(1500);
        for len in [0, 1, 2, 3, 63, 64, 65, 127, 128, 1299, 1300, 1500] {
            let mut out = vec![0; 1500];
            assert_eq!(copy_and_sum(&data[..len], &mut out).fold(), plain(&data[..len]));
            assert_eq!(out[..len], data[..len]);
            assert!(out[len..].iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn pieces_and_fields_add_up() {
        let data = noise(40);
        let word = u16::from_be_bytes([data[4], data[5]]);
        let double = u32::from_be_bytes([data[6], data[7], data[8], data[9]]);
        let sum = Sum::of(&data[..4]).word(word).double(double).bytes(&data[10..]);
        assert_eq!(sum.fold(), plain(&data));
    }
}
