//! Tests on sockets, devices and namespaces of the real kernel, in one program.
#![allow(missing_docs, reason = "tests are named by what they show")]

mod bridge;
mod dropper;
mod emulator;
mod identifications;
mod namespaces;
mod traffic;
