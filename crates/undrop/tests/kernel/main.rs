//! Tests on sockets, devices and namespaces of the real kernel, in one program.
#![allow(missing_docs, reason = "tests are named by what they show")]

mod check_machine;
mod disturbance;
mod firewall;
mod gateway;
mod interfaces;
mod multicast;
mod paths;
mod secrets;
mod stalls;
