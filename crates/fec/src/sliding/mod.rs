//! A sliding window of random linear combinations, the schedule of RFC 8681.
//!
//! A repair is a sum of the last W source packets with random coefficients of GF(256). Any k repairs recover
//! k missing packets, whichever those are, with a probability of about 0.996. No packet has to be aligned
//! with a block or a layer, and the very next repair recovers a single loss.
//!
//! The encoder knows in advance when its next repairs leave, which packets they contain, and their
//! coefficients. It therefore computes several of them together (`rows.rs`) before they are due, some packets
//! at each [`push`](SlidingEncoder::push). That costs less in total, and the same with every packet. A change
//! of the rate or a deadline invalidates the plan; such a repair is computed when it leaves.
//!
//! A window may have k *stripes*. A repair then contains every k-th packet, and the stripes take turns. All
//! of them have the same share of a burst, so that together they recover bursts as one window does, while a
//! repair costs a k-th of the products. Against scattered losses each stripe is as strong as a window of
//! W/k packets. Repairs out of turn contain packets of all stripes.

mod bare;
mod coefficients;
mod config;
mod encoder;
mod rows;
mod strings;

pub use coefficients::coding_coefficients;
pub use config::{DENSITY_FULL, STRIPES_MAX, SlidingConfig, WINDOW_MAX};
pub use encoder::{SlidingEncoder, stripes_max};
