//! Base64 with padding (RFC 4648 §4): keys as text, and the JSON of etcd.
//!
//! No branch and no address in memory depends on a digit that is valid, so that the time to read or write a
//! key says nothing about it. Only the place of a digit that is none is found by a branch.

use zeroize::Zeroize as _;

/// Appends the text of `bytes`.
pub fn encode(bytes: &[u8], text: &mut String) {
    for chunk in bytes.chunks(3) {
        let mut group = chunk.iter().fold(0_u32, |sum, &byte| sum << 8 | u32::from(byte));
        group <<= 8 * (3 - chunk.len());
        for place in 0..4 {
            let value = (group >> (18 - 6 * place)) & 63;
            text.push(if place <= chunk.len() { char::from(digit_of(value as u8)) } else { '=' });
        }
        group.zeroize();
    }
}

/// Appends the bytes that a text states. The bits after the last byte must be 0, so that bytes have one
/// spelling only.
///
/// # Errors
/// The position, from 1, at which the text is wrong, or its length if that is no multiple of 4.
pub fn decode(text: &str, bytes: &mut Vec<u8>) -> Result<(), usize> {
    let text = text.as_bytes();
    if !text.len().is_multiple_of(4) {
        return Err(text.len());
    }
    let padding = text.iter().rev().take(2).take_while(|&&digit| digit == b'=').count();
    for (group, digits) in text[..text.len() - padding].chunks(4).enumerate() {
        let mut value = 0_u32;
        for (place, &digit) in digits.iter().enumerate() {
            let code = u32::try_from(value_of(digit)).map_err(|_| group * 4 + place + 1)?;
            value = value << 6 | code;
        }
        let room = digits.len() * 6 / 8;
        let loose = digits.len() * 6 - room * 8;
        if value & ((1 << loose) - 1) != 0 {
            return Err(group * 4 + digits.len());
        }
        value <<= 6 * (4 - digits.len());
        let mut be = value.to_be_bytes();
        bytes.extend_from_slice(&be[1..=room]);
        be.zeroize();
        value.zeroize();
    }
    Ok(())
}

/// Returns the digit of a value below 64. A difference is below 0 for a value behind a bound, and its upper
/// bits are then a mask.
fn digit_of(value: u8) -> u8 {
    let value = i32::from(value);
    let mut digit = value + i32::from(b'A');
    digit += ((25 - value) >> 8) & 6;
    digit -= ((51 - value) >> 8) & 75;
    digit -= ((61 - value) >> 8) & 15;
    digit += ((62 - value) >> 8) & 3;
    digit as u8
}

/// Returns the value of a digit, or -1 if it is none.
fn value_of(digit: u8) -> i32 {
    let digit = i32::from(digit);
    // All bits if the digit is in the range, and none otherwise.
    let within = |first: u8, last: u8| ((i32::from(first) - 1 - digit) & (digit - i32::from(last) - 1)) >> 8;
    let mut value = -1;
    value += within(b'A', b'Z') & (digit - 64);
    value += within(b'a', b'z') & (digit - 70);
    value += within(b'0', b'9') & (digit + 5);
    value += within(b'+', b'+') & 63;
    value += within(b'/', b'/') & 64;
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    fn text_of(bytes: &[u8]) -> String {
        let mut text = String::new();
        encode(bytes, &mut text);
        text
    }

    fn bytes_of(text: &str) -> Result<Vec<u8>, usize> {
        let mut bytes = Vec::new();
        decode(text, &mut bytes).map(|()| bytes)
    }

    #[test]
    fn digits_are_those_of_the_alphabet_and_no_others() {
        for (value, &digit) in (0..).zip(ALPHABET) {
            assert_eq!(digit_of(value), digit);
        }
        for digit in 0..=255_u8 {
            let value = ALPHABET.iter().position(|&one| one == digit).map_or(-1, |at| at as i32);
            assert_eq!(value_of(digit), value, "{digit}");
        }
    }

    #[test]
    fn the_vectors_of_the_standard_are_met() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!((text_of(bytes.as_bytes()), bytes_of(text)), (text.to_owned(), Ok(bytes.into())));
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(bytes_of(&text_of(&all)), Ok(all));
    }

    #[test]
    fn the_place_of_a_mistake_is_told() {
        for (wrong, at) in [
            ("Z", 1),
            ("Zg", 2),
            ("Zg=", 3),
            ("Z===", 2),
            ("====", 1),
            ("Zg=a", 3),
            ("Z\n==", 2),
            ("Zm9-", 4),
            ("Zh==", 2),
            ("Zm9=", 3),
            ("Zg==Zg==", 3),
        ] {
            assert_eq!(bytes_of(wrong), Err(at), "{wrong:?}");
        }
    }
}
