//! Integration tests of this crate in one program; none of them needs the kernel.
#![allow(missing_docs, reason = "tests are named by what they show")]

mod cli;
mod documents;
mod examples;
mod help;
mod running;
#[path = "../common/schema.rs"]
mod schema;
