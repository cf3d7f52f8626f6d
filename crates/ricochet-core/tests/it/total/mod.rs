//! Total order: members that exchange packets in virtual time, without nodes below them.

mod amending;
mod away;
mod catching_up;
mod holding_up;
mod lies;
mod members;
mod promises;
mod room;
mod senders;
