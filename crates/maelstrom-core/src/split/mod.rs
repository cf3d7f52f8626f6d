//! Split mode: TCP connections that end at the gateways (Maelstrom §4.2, Thesis §3.3.2).
//!
//! The gateway of the client's site takes a connection, carries its bytes to the far gateway, and this one
//! opens the connection to the server. Between the gateways the bytes of many connections travel as *streams*
//! of a few long-lived TCP connections, the *carriers*. A short connection then meets no handshake and no
//! slow start on the long-haul link.
//!
//! | file | contents |
//! |---|---|
//! | `advance.rs` | the credit that new streams have before the far end has heard of them |
//! | `auth.rs` | how the two ends of a carrier prove that they have the key |
//! | `event.rs` | the ends of a carrier, and what happens on it |
//! | `frame.rs` | the frames on a carrier |
//! | `pool.rs` | the buffer that all streams share, and the credit that each gets of it |
//! | `mux.rs` | one carrier with its streams |
//!
//! As everywhere in this crate, there is no socket and no clock: a driver moves bytes and passes the time.

mod advance;
mod auth;
mod event;
mod frame;
mod mux;
mod pool;

pub use advance::ADVANCE_MAX;
pub use auth::{
    AuthError, CHALLENGE_LEN, CarrierKey, Challenged, GREETING_LEN, Greeted, NONCE_LEN, PROOF_LEN,
};
pub use event::{Event, Role};
pub use frame::{Body, Ends, FRAME_MAX, Fault, Frame, HEADER_LEN, PAYLOAD_MAX, Refusal};
pub use mux::{Mux, SILENCE_US};
pub use pool::{BUFFER_MIN, INITIAL, Pool};
