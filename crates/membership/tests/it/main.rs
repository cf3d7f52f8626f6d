//! Integration tests of this crate in one program; none of them needs the kernel.
#![allow(missing_docs, reason = "tests are named by what they show")]

mod common;
mod conformance;
mod corpus;
mod fuzz;
mod gossip;
mod liars;
mod listed;
mod noise;
mod proving;
mod registered;
#[path = "../../../../fuzz/replay.rs"]
mod replay;
