//! Elements of GF(256), and the tables from which products follow.

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

/// Logarithm of each element (that of 0 is meaningless), and the powers of 2, twice.
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

/// For each constant, its products with 0 to 15 and with 0, 16, … 240.
pub(super) static NIBBLES: [([u8; 16], [u8; 16]); 256] = nibbles();

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

/// For each constant, the bit matrix of its multiplication in the form of GF2P8AFFINEQB: byte 7 - i marks the
/// bits of the factor whose sum is bit i of the product.
#[cfg(target_arch = "x86_64")]
pub(super) static MATRICES: [u64; 256] = matrices();

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
