//! Linux packet I/O in batches: taps, TUN devices, UDP with segmentation offload.
//!
//! A packet here is an IP packet, from its IP header on, without a link header. A tap or a TUN device may
//! hand over a *super-packet*: many segments that the card would cut apart, or that the kernel has merged.
//! [`segment::cut`] turns it into the exact packets of the wire; [`coalesce::Coalescer`] does the reverse for
//! writing.
//!
//! | stage | file |
//! |---|---|
//! | kinds of super-packets, virtio header | `offload.rs` |
//! | super-packet to wire packets | `segment/`, `checksum.rs`, `header.rs` |
//! | wire packets to super-packet | `coalesce/` |
//! | tap | `tap/`, `../bpf/tap.c` |
//! | tc programs: load, attach | `bpf.rs` |
//! | packets that arrive as if from the wire | `inject.rs`, `../bpf/inject.c` |
//! | TUN device | `tun.rs`, `interface.rs`, `netlink.rs` |
//! | routes, and those that a program sets | `route.rs`, `main_routes.rs`, `own_routes.rs` |
//! | tables of the firewall | `nftables/` |
//! | limits on TCP segments | `clamp.rs` |
//! | connections that end here in place of their hosts | `divert/`, `queue.rs`, `transparent.rs` |
//! | IP groups of other hosts, heard and sent at an interface | `lan.rs` |
//! | waiting | `poll.rs` |
//! | descriptors for another process | `pass.rs` |
//! | forks of this process | `fork.rs` |
//! | repair channel | `udp.rs` |
//! | many datagrams with one system call | `batch/` |
//! | sockets of a multicast node | `multicast/` |
//! | width of a terminal | `terminal.rs` |
//!
//! This is a driver crate: it holds the workspace's system calls and their `unsafe`, and it knows none of our
//! protocols.

pub mod batch;
pub mod bpf;
pub mod checksum;
pub mod clamp;
pub mod coalesce;
pub mod divert;
pub mod error;
pub mod fork;
mod header;
pub mod identification;
pub mod inject;
pub mod interface;
pub mod lan;
pub mod main_routes;
pub mod multicast;
mod netlink;
mod nftables;
pub mod offload;
pub mod own_routes;
pub mod pass;
pub mod poll;
pub mod queue;
pub mod route;
pub mod segment;
pub mod tap;
pub mod terminal;
pub mod transparent;
pub mod tun;
pub mod udp;

pub use offload::{Gso, Offload};
