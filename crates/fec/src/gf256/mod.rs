//! Arithmetic of GF(256), polynomial x⁸+x⁴+x³+x²+1 (0x11D), over byte strings.
//!
//! Each operation exists once for plain bytes and once, generic over a vector, for the vector instructions of a
//! processor; [`Kernel::best`] is the fastest set this processor can run. Multiplication by a constant is a bit
//! matrix (GFNI; its own product has another polynomial) or two look-ups in tables of 16 (the others).
#![allow(unsafe_code)]

mod fused;
mod lanes;
mod scalar;
mod vector;

use std::sync::OnceLock;

/// The field's polynomial.
pub const POLYNOMIAL: u16 = 0x11D;

/// The product of two elements.
#[inline]
pub const fn product(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    let (log, exp) = (&LOGARITHMS.0, &LOGARITHMS.1);
    exp[log[a as usize] as usize + log[b as usize] as usize]
}

/// The element that gives 1 when multiplied with `a`.
///
/// # Panics
/// If `a` is 0, which has none.
#[inline]
pub const fn inverse(a: u8) -> u8 {
    assert!(a != 0, "0 has no inverse");
    LOGARITHMS.1[255 - LOGARITHMS.0[a as usize] as usize]
}

/// `acc[k] ^= src[k]` for the bytes of `src`.
///
/// # Panics
/// If `src` is longer than `acc`.
#[inline]
pub fn xor_into(acc: &mut [u8], src: &[u8]) {
    Kernel::best().xor_into(acc, src);
}

/// Adds all of `sources`, which may differ in length, in one pass over `acc` as far as the shortest reaches.
///
/// # Panics
/// If a source is longer than `acc`.
#[inline]
pub fn xor_many(acc: &mut [u8], sources: &[&[u8]]) {
    Kernel::best().xor_many(acc, sources);
}

/// `acc[k] ^= c · src[k]` for the bytes of `src`.
///
/// # Panics
/// If `src` is longer than `acc`.
#[inline]
pub fn mul_add(acc: &mut [u8], c: u8, src: &[u8]) {
    Kernel::best().mul_add(acc, c, src);
}

/// Adds `c · src` to `acc` for all `(c, src)` of `terms` in one pass over `acc`.
///
/// Sources may differ in length; each counts as if padded with zeros. A term with coefficient 0 changes nothing and
/// costs as much as any.
///
/// ```
/// let mut repair = [0; 3];
/// fec::gf256::mul_add_many(&mut repair, &[(1, &[7, 7, 7]), (2, &[0x80])]);
/// assert_eq!(repair, [7 ^ 0x1D, 7, 7]);
/// ```
///
/// # Panics
/// If a source is longer than `acc`.
#[inline]
pub fn mul_add_many(acc: &mut [u8], terms: &[(u8, &[u8])]) {
    Kernel::best().mul_add_many(acc, terms);
}

/// Adds `c[k] · src` to `sums[k]` for all `(c, src)` of `terms` and all `k`: [`mul_add_many`] for several sums at once.
///
/// With GFNI three sums of the same long window take less than twice the time of one, since its packets are read once.
/// Sources that begin at a multiple of 64 bytes are read fastest.
///
/// ```
/// let (mut one, mut other) = ([0; 2], [0; 2]);
/// fec::gf256::mul_add_rows(&mut [&mut one, &mut other], &[(&[1, 2], &[5, 0x80]), (&[1, 0], &[1])]);
/// assert_eq!((one, other), ([4, 0x80], [10, 0x1D]));
/// ```
///
/// # Panics
/// If a source is longer than one of the sums, or a term has not one coefficient for each sum.
#[inline]
pub fn mul_add_rows(sums: &mut [&mut [u8]], terms: &[(&[u8], &[u8])]) {
    Kernel::best().mul_add_rows(sums, terms);
}

/// Adds `c · src` to `sum` for all `(c, sum)` of `sums` in one pass over `src`.
///
/// Sums may differ in length; what of them lies beyond `src` stays as it is.
///
/// ```
/// let (mut one, mut other) = ([0; 2], [1; 3]);
/// fec::gf256::mul_add_each(&mut [(1, &mut one), (2, &mut other)], &[5, 0x80]);
/// assert_eq!((one, other), ([5, 0x80], [1 ^ 10, 1 ^ 0x1D, 1]));
/// ```
///
/// # Panics
/// If `src` is longer than one of the sums.
#[inline]
pub fn mul_add_each(sums: &mut [(u8, &mut [u8])], src: &[u8]) {
    Kernel::best().mul_add_each(sums, src);
}

/// `acc[k] = c · acc[k]`.
#[inline]
pub fn mul(acc: &mut [u8], c: u8) {
    Kernel::best().mul(acc, c);
}

/// One implementation of the operations; all of them give the same bytes.
#[derive(Debug)]
#[allow(clippy::type_complexity, reason = "the operations as they are called")]
pub struct Kernel {
    name: &'static str,
    present: fn() -> bool,
    xor_into: unsafe fn(&mut [u8], &[u8]),
    xor_many: unsafe fn(&mut [u8], &[&[u8]]),
    mul_add: unsafe fn(&mut [u8], u8, &[u8]),
    mul_add_many: unsafe fn(&mut [u8], &[(u8, &[u8])]),
    mul_add_rows: unsafe fn(&mut [&mut [u8]], &[(&[u8], &[u8])]),
    mul_add_each: unsafe fn(&mut [(u8, &mut [u8])], &[u8]),
    mul: unsafe fn(&mut [u8], u8),
}

/// Best first.
#[cfg(target_arch = "x86_64")]
static KERNELS: &[&Kernel] = &[
    &lanes::gfni512::KERNEL,
    &lanes::gfni256::KERNEL,
    &lanes::avx2::KERNEL,
    &lanes::ssse3::KERNEL,
    &scalar::KERNEL,
];
/// Best first.
#[cfg(target_arch = "aarch64")]
static KERNELS: &[&Kernel] = &[&lanes::neon::KERNEL, &scalar::KERNEL];
/// Best first.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
static KERNELS: &[&Kernel] = &[&scalar::KERNEL];

static BEST: OnceLock<&Kernel> = OnceLock::new();

// SAFETY, for all calls through the pointers below: the functions are unsafe only in that the processor must have
// their instructions, and that sources are no longer than sums. `available` and `best` hand out no other kernels, and
// the methods assert the lengths.
impl Kernel {
    /// The fastest that this processor can run; found once.
    #[inline]
    pub fn best() -> &'static Self {
        BEST.get_or_init(|| Self::available().next().unwrap_or(&scalar::KERNEL))
    }

    /// Makes the kernel of this name the [best](Self::best), to measure and test codes with each; false if this
    /// processor does not have it, or another was chosen or used before.
    #[doc(hidden)]
    pub fn choose(name: &str) -> bool {
        let kernel = Self::available().find(|kernel| kernel.name == name);
        kernel.is_some_and(|kernel| BEST.set(kernel).is_ok() || std::ptr::eq(Self::best(), kernel))
    }

    /// All that this processor can run, the fastest first; the last is the scalar one.
    pub fn available() -> impl Iterator<Item = &'static Self> {
        KERNELS.iter().copied().filter(|kernel| (kernel.present)())
    }

    /// Names the instructions used.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether a product is one instruction, so that choosing products costs more than making all.
    pub(crate) fn has_products(&self) -> bool {
        self.name.starts_with("GFNI")
    }

    /// See [`xor_into`].
    #[inline]
    pub fn xor_into(&self, acc: &mut [u8], src: &[u8]) {
        assert!(src.len() <= acc.len(), "source longer than sum");
        // SAFETY: see above.
        unsafe { (self.xor_into)(acc, src) }
    }

    /// See [`xor_many`].
    #[inline]
    pub fn xor_many(&self, acc: &mut [u8], sources: &[&[u8]]) {
        assert!(sources.iter().all(|source| source.len() <= acc.len()), "source longer than sum");
        // SAFETY: see above.
        unsafe { (self.xor_many)(acc, sources) }
    }

    /// See [`mul_add`].
    #[inline]
    pub fn mul_add(&self, acc: &mut [u8], c: u8, src: &[u8]) {
        assert!(src.len() <= acc.len(), "source longer than sum");
        match c {
            0 => {}
            // SAFETY: see above.
            1 => unsafe { (self.xor_into)(acc, src) },
            // SAFETY: see above.
            _ => unsafe { (self.mul_add)(acc, c, src) },
        }
    }

    /// See [`mul_add_many`].
    #[inline]
    pub fn mul_add_many(&self, acc: &mut [u8], terms: &[(u8, &[u8])]) {
        assert!(terms.iter().all(|(_, src)| src.len() <= acc.len()), "source longer than sum");
        // SAFETY: see above.
        unsafe { (self.mul_add_many)(acc, terms) }
    }

    /// See [`mul_add_rows`].
    #[inline]
    pub fn mul_add_rows(&self, sums: &mut [&mut [u8]], terms: &[(&[u8], &[u8])]) {
        assert!(terms.iter().all(|(c, _)| c.len() == sums.len()), "expected one coefficient for each sum");
        let shortest = sums.iter().map(|sum| sum.len()).min().unwrap_or(usize::MAX);
        assert!(terms.iter().all(|(_, src)| src.len() <= shortest), "source longer than sum");
        // SAFETY: see above.
        unsafe { (self.mul_add_rows)(sums, terms) }
    }

    /// See [`mul_add_each`].
    #[inline]
    pub fn mul_add_each(&self, sums: &mut [(u8, &mut [u8])], src: &[u8]) {
        assert!(sums.iter().all(|(_, sum)| src.len() <= sum.len()), "source longer than sum");
        // SAFETY: see above.
        unsafe { (self.mul_add_each)(sums, src) }
    }

    /// See [`mul`].
    #[inline]
    pub fn mul(&self, acc: &mut [u8], c: u8) {
        match c {
            0 => acc.fill(0),
            1 => {}
            // SAFETY: see above.
            _ => unsafe { (self.mul)(acc, c) },
        }
    }
}

/// Logarithm of each element (of 0: meaningless) and, twice round, the powers of 2.
static LOGARITHMS: ([u8; 256], [u8; 512]) = logarithms();

const fn logarithms() -> ([u8; 256], [u8; 512]) {
    let mut log = [0; 256];
    let mut exp = [0; 512];
    let mut x = 1u16;
    let mut power = 0;
    while power < 255 {
        exp[power] = x as u8;
        exp[power + 255] = x as u8;
        log[x as usize] = power as u8;
        x <<= 1;
        if x & 0x100 != 0 {
            x ^= POLYNOMIAL;
        }
        power += 1;
    }
    (log, exp)
}

/// For each constant its products with 0 to 15 and with 0, 16, … 240.
static NIBBLES: [([u8; 16], [u8; 16]); 256] = nibbles();

const fn nibbles() -> [([u8; 16], [u8; 16]); 256] {
    let mut tables = [([0; 16], [0; 16]); 256];
    let mut c = 0;
    while c < 256 {
        let mut x = 0;
        while x < 16 {
            tables[c].0[x] = product(c as u8, x as u8);
            tables[c].1[x] = product(c as u8, (x << 4) as u8);
            x += 1;
        }
        c += 1;
    }
    tables
}

/// For each constant the matrix of its multiplication, as GF2P8AFFINEQB wants it: byte 7 - i tells which bits of the
/// factor are summed into bit i of the product.
#[cfg(target_arch = "x86_64")]
static MATRICES: [u64; 256] = matrices();

#[cfg(target_arch = "x86_64")]
const fn matrices() -> [u64; 256] {
    let mut matrices = [0; 256];
    let mut at = 0;
    while at < 256 * 64 {
        let (c, i, j) = (at / 64, at / 8 % 8, at % 8);
        if product(c as u8, 1 << j) >> i & 1 != 0 {
            matrices[c] |= 1 << ((7 - i) * 8 + j);
        }
        at += 1;
    }
    matrices
}
