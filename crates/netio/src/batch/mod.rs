//! Many datagrams with one system call: the parts common to all sockets.
//!
//! | stage | file |
//! |---|---|
//! | receive: one `recvmmsg` fills many slots; merged trains are cut at their stride | `batch/receive.rs`, `batch/control.rs` |
//! | send: trains to many addresses with one `sendmmsg` | `batch/outbox.rs` |
//! | one datagram at once; counters of a sender | `batch/sending.rs` |
//! | how long datagrams have waited | `batch/waited.rs` |
//! | datagrams of strangers are dropped in the kernel | `batch/senders.rs` |
//! | addresses in the kernel's layout, socket options | `batch/address.rs`, `batch/options.rs` |

mod address;
mod control;
pub(crate) mod options;
mod outbox;
pub(crate) mod receive;
pub(crate) mod senders;
mod sending;
pub(crate) mod waited;

pub use outbox::Outbox;
pub use sending::{PIECES_MAX, Sending, UdpCounts};
