//! Traffic between two namespaces through the kernel's own sockets: bulk TCP, TCP messages, UDP packets.
//!
//! | file | content |
//! |---|---|
//! | `bulk.rs` | [`tcp_transfer`]: TCP at full speed, in one or both directions, checked bit for bit |
//! | `messages.rs` | [`message_stream`]: messages at a steady rate over one TCP connection, with arrival times |
//! | `datagrams.rs` | [`udp_stream`]: UDP packets at a steady rate, with delay, loss and duplication |
//! | `fetch.rs` | [`tcp_fetch`]: a connection that moves a given number of bytes, and its time |
//! | `connection.rs` | TCP connections with a named congestion control |
//! | `pattern.rs` | content that is known from its offset |
//! | `between.rs`, `watch.rs` | the ends of the traffic; progress, waiting and stopping |
//! | `retransmits.rs` | the kernel's counter of TCP retransmissions |
//!
//! Both ends are threads of this process and share one clock, so latencies are one-way. Every wait is
//! bounded: a link that carries nothing gives an empty report or an error, never a hang.

mod between;
mod bulk;
mod connection;
mod datagrams;
mod fetch;
mod messages;
mod pattern;
mod retransmits;
mod watch;

pub use crate::clock::now_us;
pub use between::Between;
pub use bulk::{Direction, Sample, TcpReport, TcpTransfer, Throughput, tcp_transfer};
pub use datagrams::{Pace, UdpReport, UdpStream, udp_stream};
pub use fetch::{Course, TcpFetch, tcp_fetch};
pub use messages::{Message, MessageReport, MessageStream, message_stream};
pub use retransmits::tcp_retransmits;
pub use watch::{Progress, Watcher, unwatched};
