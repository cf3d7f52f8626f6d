//! Total order: members that exchange packets in virtual time, without nodes below them.

mod catching_up;
mod promises;
mod room;
