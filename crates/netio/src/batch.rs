//! Many datagrams with one system call: what sockets of all kinds have in common.
//!
//! | stage | file |
//! |---|---|
//! | receive: slots filled by one `recvmmsg`, merged trains cut at their stride | `batch/receive.rs`, `batch/control.rs` |
//! | send: trains to many addresses with one `sendmmsg` | `batch/outbox.rs` |
//! | one datagram at once; what was sent and what not | `batch/sending.rs` |
//! | addresses as the kernel takes them, options of a socket | `batch/address.rs`, `batch/options.rs` |

mod address;
mod control;
pub(crate) mod options;
mod outbox;
pub(crate) mod receive;
mod sending;

pub use outbox::Outbox;
pub use sending::{PIECES_MAX, Sending, UdpCounts};
