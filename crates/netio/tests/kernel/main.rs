//! Tests on sockets, devices and namespaces of the real kernel, in one program.
#![allow(missing_docs, reason = "tests are named by what they show")]

mod alive;
mod allocations;
mod clamp;
mod divert;
mod inject;
mod lab;
mod multicast;
mod multicast_joins;
mod tap;
mod tap_life;
mod tap_missed;
mod tap_shares;
mod tun;
mod tunnels;
mod tunnels_merged;
mod udp;
