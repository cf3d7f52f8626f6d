//! Tests on sockets, devices and namespaces of the real kernel, in one program.
#![allow(missing_docs, reason = "tests are named by what they show")]

mod allocations;
mod application;
mod churn;
#[path = "../common/mod.rs"]
mod common;
mod flow;
#[cfg(feature = "futures")]
mod futures;
mod history;
mod lan;
mod liars;
mod lifecycle;
mod marks;
mod metadata;
mod patterns;
mod registries;
mod requests;
mod settings;
mod starting;
mod views;
