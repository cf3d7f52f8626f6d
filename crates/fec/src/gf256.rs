//! Arithmetic of GF(256), polynomial x⁸+x⁴+x³+x²+1 (0x11D), over byte strings.

/// The field's polynomial.
pub const POLYNOMIAL: u16 = 0x11D;

const LOGARITHMS: ([u8; 256], [u8; 512]) = logarithms();

const fn logarithms() -> ([u8; 256], [u8; 512]) {
    let mut log = [0u8; 256];
    let mut exp = [0u8; 512];
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

/// The product of two elements.
pub const fn product(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    let (log, exp) = &LOGARITHMS;
    exp[log[a as usize] as usize + log[b as usize] as usize]
}

/// The element that gives 1 when multiplied with `a`.
///
/// # Panics
/// If `a` is 0, which has none.
pub const fn inverse(a: u8) -> u8 {
    assert!(a != 0, "0 has no inverse");
    let (log, exp) = &LOGARITHMS;
    exp[255 - log[a as usize] as usize]
}

/// `acc[k] ^= src[k]` for the bytes of `src`.
///
/// # Panics
/// If `src` is longer than `acc`.
pub fn xor_into(acc: &mut [u8], src: &[u8]) {
    assert!(src.len() <= acc.len(), "source longer than sum");
    for (a, s) in acc.iter_mut().zip(src) {
        *a ^= s;
    }
}

/// Adds all of `sources`, each no longer than `acc`.
///
/// # Panics
/// If a source is longer than `acc`.
pub fn xor_many(acc: &mut [u8], sources: &[&[u8]]) {
    for source in sources {
        xor_into(acc, source);
    }
}

/// `acc[k] ^= c · src[k]` for the bytes of `src`.
///
/// # Panics
/// If `src` is longer than `acc`.
pub fn mul_add(acc: &mut [u8], c: u8, src: &[u8]) {
    assert!(src.len() <= acc.len(), "source longer than sum");
    match c {
        0 => {}
        1 => xor_into(acc, src),
        _ => acc.iter_mut().zip(src).for_each(|(a, &s)| *a ^= product(c, s)),
    }
}

/// `acc[k] = c · acc[k]`.
pub fn mul(acc: &mut [u8], c: u8) {
    acc.iter_mut().for_each(|a| *a = product(c, *a));
}
