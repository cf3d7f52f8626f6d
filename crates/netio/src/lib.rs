//! Linux packet I/O in batches: taps, TUN devices, UDP with segmentation offload.
//!
//! A packet here is an IP packet from its IP header on; no link header. What a tap or a TUN device hands over
//! may be a *super-packet* (many segments that the card would cut apart, or that the kernel has merged);
//! [`segment::cut`] turns it into the exact packets of the wire, [`coalesce::Coalescer`] does the reverse for
//! writing.
//!
//! | stage | file |
//! |---|---|
//! | what a super-packet is, virtio header | `offload.rs` |
//! | super-packet to wire packets | `segment.rs`, `segment/tunnel.rs`, `checksum.rs`, `header.rs` |
//! | wire packets to super-packet | `coalesce.rs` |
//! | tap | `tap/`, `../bpf/tap.c` |
//! | packets lost on purpose, for tests | `dropper.rs`, `../bpf/drop.c` |
//! | TUN device | `tun.rs`, `interface.rs`, `netlink.rs` |
//! | waiting, signals | `poll.rs`, `signals.rs` |
//! | repair channel | `udp.rs` |
//! | many datagrams with one system call | `batch.rs`, `batch/` |
//! | the sockets of a multicast node | `multicast.rs`, `multicast/` |
//! | children | `process.rs` |
//! | status of a running process | `control.rs` |
//!
//! This is a driver crate: it is the one room with `unsafe` (system calls), and it knows nothing of any
//! protocol of ours.

pub mod batch;
pub mod checksum;
pub mod coalesce;
pub mod control;
pub mod dropper;
mod header;
pub mod interface;
pub mod multicast;
mod netlink;
pub mod offload;
pub mod poll;
pub mod process;
pub mod segment;
#[cfg(test)]
mod shape;
pub mod signals;
pub mod tap;
pub mod tun;
pub mod udp;

pub use offload::{Gso, Offload};
