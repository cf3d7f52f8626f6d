//! Integration tests of this crate in one program; none of them needs the kernel.
#![allow(missing_docs, reason = "the names of tests describe them")]

mod bursts;
mod deliveries;
mod gossip;
mod machine;
mod partition;
#[path = "../../../../fuzz/replay.rs"]
mod replay;
mod scenarios;
mod total;
mod wireshark;
