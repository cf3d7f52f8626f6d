//! The `undrop` command: one file for each subcommand. `undrop-lab` shares how it logs, writes, reports
//! errors and stops.

mod cli;
mod exposition;
pub mod failure;
mod fec;
pub mod gateway;
pub mod help;
pub mod interrupt;
mod key;
pub mod log;
mod moved;
mod multicast;
pub mod output;
pub mod scheme;
mod top;

pub use cli::{command, main};
