//! Erasure codes for packet streams: no I/O, no clock, no allocation per packet.
