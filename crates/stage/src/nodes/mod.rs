//! Real Ricochet nodes on this machine: the library's driver and sockets, a network namespace for each node, one bridge
//! between them. What `sim` is in virtual time, with the same traffic, book and figures.
//!
//! 1. `stage.rs`: hosts, nodes, groups joined, all members known to all.
//! 2. `run.rs`: the packets that the simulation sends too, by the same senders, from one thread.
//! 3. `tap.rs`: each node loses some, between its sockets and its core.
//! 4. `account.rs`: what was delivered is held against what was sent, and figures are made of it.
//!
//! `cost.rs` measures what a packet costs one node, its neighbours being made beforehand; `clock.rs` reads times that only a real machine has.

mod account;
mod clock;
mod cost;
mod run;
mod stage;
mod tap;

pub use clock::thread_cpu_ns;
pub use cost::{Cost, CostPlan, cost};
pub use run::{Carried, Real, Step, Watcher, check, run, unwatched};
