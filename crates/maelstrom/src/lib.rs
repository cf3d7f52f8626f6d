//! Maelstrom gateway drivers: the core on real packets.
