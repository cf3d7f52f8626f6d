//! Integration tests of this crate in one program; none of them needs the kernel.
#![allow(missing_docs, reason = "tests are named by what they show")]

mod allocation;
mod bounds;
mod codes;
mod common;
mod corpus;
mod elimination;
mod fuzz;
mod layered;
mod names;
mod reed_solomon;
#[path = "../../../../fuzz/replay.rs"]
mod replay;
mod ring;
mod second;
mod simulation;
mod sliding;
mod snapshot;
mod stripes;
