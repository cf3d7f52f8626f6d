//! Multicast that recovers lost packets within milliseconds.
#![forbid(unsafe_code)]
