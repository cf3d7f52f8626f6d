//! Integration tests of this crate in one program; none of them needs the kernel.
#![allow(missing_docs, reason = "the names of tests describe them")]

mod deliveries;
mod gossip;
mod partition;
mod scenarios;
mod total;
