//! Real Ricochet nodes on this machine: the library's driver and sockets, a network namespace per node, and
//! one bridge. It is the real counterpart of `sim`, with the same traffic, ledger and figures.
//!
//! 1. `stage.rs`: hosts, nodes and groups, until all members know each other.
//! 2. `run.rs`: sends the same packets as the simulation, from the same senders, by one thread.
//! 3. `tap.rs`: loses packets between each node's sockets and its core.
//! 4. `account.rs`: compares deliveries with the packets sent, and computes figures.
//!
//! `cost.rs` measures the cost of a packet for one node, with prerecorded neighbours; `watch.rs` reports
//! progress; `clock.rs` reads the times of the real machine.

mod account;
mod clock;
mod cost;
mod run;
mod stage;
mod tap;
mod watch;

pub use clock::thread_cpu_ns;
pub use cost::{Cost, CostPlan, cost};
pub use run::{Carried, Real, check, run, run_with_key};
pub use watch::{Step, Watcher, unwatched};
