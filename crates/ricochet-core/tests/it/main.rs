//! Integration tests of this crate in one program; none of them needs the kernel.
#![allow(missing_docs, reason = "tests are named by what they show")]

mod allocation;
mod auto;
mod common;
mod corpus;
mod cut_off;
mod expiry;
mod far_behind;
mod feedback;
mod flow;
mod fuzz;
mod history;
mod hostile;
mod keyed;
mod liar;
mod liars;
mod lies;
mod long_messages;
mod node;
mod order;
mod own;
mod partners;
mod quiet;
mod readers;
mod recovery;
#[path = "../../../../fuzz/replay.rs"]
mod replay;
mod slingshot;
mod total;
mod view_change;
