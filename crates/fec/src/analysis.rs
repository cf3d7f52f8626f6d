//! The closed forms of Maelstrom §4.4 for the probability that a lost packet is recovered.
//!
//! The paper calls them back-of-the-envelope; [`simulate`](crate::simulate) shows what a code does. Two
//! assumptions make them simple: repairs are lost like sources, and a recovered packet does not help to
//! recover others. The second makes the layered forms lower bounds.

/// Probability that a lost packet is recovered by a layered code of rate (r, c), where every packet is lost
/// with probability `p`, independently: 1 − (1 − (1 − p)^r)^c.
///
/// A repair recovers the packet if the repair and its other r − 1 packets arrive, which has the probability
/// (1 − p)^r. One of c repairs must do so. A lower bound, if no two repairs [share more than one
/// packet](share_at_most_one).
///
/// ```
/// let recovered = fec::analysis::layered_uniform(0.01, 8, 3);
/// assert!((recovered - 0.99954).abs() < 1e-5);
/// ```
///
/// # Panics
/// If `p` is not a probability.
pub fn layered_uniform(p: f64, r: u8, c: usize) -> f64 {
    assert_probability(p);
    let useless = 1.0 - (1.0 - p).powi(i32::from(r));
    1.0 - useless.powi(c as i32)
}

/// Probability that a packet lost in a burst of `burst` packets is recovered, at the overall loss rate `p`.
/// Only layers whose interleave is greater than the burst count.
///
/// Assumes that a burst loses none of the repairs that would recover its packets, which holds with
/// [`Sending::Delayed`](crate::Sending::Delayed).
///
/// ```
/// // of 1, 11 and 19 two are greater than 10
/// let recovered = fec::analysis::layered_bursty(0.01, 8, &[1, 11, 19], 10);
/// assert_eq!(recovered, fec::analysis::layered_uniform(0.01, 8, 2));
/// assert_eq!(fec::analysis::layered_bursty(0.01, 8, &[1, 11, 19], 20), 0.0);
/// ```
///
/// # Panics
/// If `p` is not a probability.
pub fn layered_bursty(p: f64, r: u8, interleaves: &[u16], burst: u32) -> f64 {
    layered_uniform(p, r, interleaves.iter().filter(|&&interleave| u32::from(interleave) > burst).count())
}

/// Probability that a lost packet is recovered by a Reed–Solomon code with c repairs for every r packets,
/// each of the r + c lost with probability `p`, independently.
///
/// This is the exact probability that at most c − 1 of the r + c − 1 others are lost. (In one place the
/// paper's sum ends below c − 1; its text says P(Y ≤ c − 1).)
///
/// ```
/// let recovered = fec::analysis::reed_solomon(0.01, 8, 3);
/// assert!((recovered - 0.99989).abs() < 1e-5);
/// assert_eq!(fec::analysis::reed_solomon(0.01, 8, 0), 0.0);
/// ```
///
/// # Panics
/// If `p` is not a probability.
pub fn reed_solomon(p: f64, r: u8, c: usize) -> f64 {
    assert_probability(p);
    if c == 0 {
        return 0.0;
    }
    let others = usize::from(r) + c - 1;
    let mut ways = 1.0;
    let mut sum = 0.0;
    for lost in 0..c {
        sum += ways * p.powi(lost as i32) * (1.0 - p).powi((others - lost) as i32);
        ways *= (others - lost) as f64 / (lost + 1) as f64;
    }
    sum.min(1.0)
}

/// Whether no two repairs of two layers have more than one packet in common. This holds if the least common
/// multiple of their interleaves is greater than r times the smaller one.
///
/// ```
/// assert!(fec::analysis::share_at_most_one(8, 11, 19));
/// assert!(!fec::analysis::share_at_most_one(8, 10, 20));
/// ```
///
/// # Panics
/// If an interleave is 0.
pub fn share_at_most_one(r: u8, one: u16, other: u16) -> bool {
    assert!(one > 0 && other > 0, "interleaves begin at 1");
    let (one, other) = (u64::from(one), u64::from(other));
    let (mut divisor, mut rest) = (one, other);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    one / divisor * other > u64::from(r) * one.min(other)
}

fn assert_probability(p: f64) {
    assert!((0.0..=1.0).contains(&p), "expected a probability, saw {p}");
}
