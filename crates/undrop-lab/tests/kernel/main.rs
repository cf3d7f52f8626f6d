//! Tests on sockets, devices and namespaces of the real kernel, in one program.
#![allow(missing_docs, reason = "tests are named by what they show")]

mod demo;
mod figures;
mod interrupt;
mod links_bench;
mod multicast_bench;
mod multicast_systems;
