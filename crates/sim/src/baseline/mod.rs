//! Other reliable multicast protocols in virtual time, for comparison.
//!
//! | file | content |
//! |---|---|
//! | `world.rs` | nodes in many groups, random traffic, and the times of loss, detection and recovery |
//! | `srm.rs` | SRM: requests and repairs to the whole group, held back by timers (Floyd et al. 1997) |
//! | `fec.rs` | FEC by the sender: c repairs after every r packets of one sender to one group |
//! | `bimodal.rs` | Bimodal Multicast: gossip of received packets (Birman et al. 1999) |
//!
//! A protocol implements one member of one group and knows no other group.

pub mod bimodal;
pub mod fec;
pub mod srm;
pub mod world;
