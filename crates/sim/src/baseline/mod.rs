//! Other reliable multicast protocols, to compare with, in virtual time.
//!
//! | file | what |
//! |---|---|
//! | `world.rs` | nodes in many groups, random traffic, what was lost and when it was found missing and came back |
//! | `srm.rs` | SRM: requests and repairs to the whole group, held back by timers (Floyd et al. 1997) |
//! | `fec.rs` | FEC by the sender: c repairs after each r packets of one sender to one group |
//! | `bimodal.rs` | Bimodal Multicast: gossip of what was received (Birman et al. 1999) |
//!
//! A protocol is one member of one group; it knows no other group.

pub mod bimodal;
pub mod fec;
pub mod srm;
pub mod world;
