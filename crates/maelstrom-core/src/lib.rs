//! The Maelstrom gateway as a pure state machine: no socket, no clock.
