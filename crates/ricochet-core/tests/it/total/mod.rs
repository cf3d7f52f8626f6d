//! Total order: members that exchange packets in virtual time, without nodes below them.

mod promises;
mod room;
