//! Integration tests of this crate in one program; none of them needs the kernel.
#![allow(missing_docs, reason = "tests are named by what they show")]

mod allocation;
mod auto;
mod blocks;
mod bottleneck;
mod caps;
mod chance;
mod changes;
mod classes;
mod congestion;
mod corpus;
mod doubt;
mod dscp;
mod evidence;
mod filters;
mod flows;
mod forecasts;
mod fragments;
mod full_link;
mod fuzz;
mod keys;
mod late;
mod lies;
mod lifetime;
mod lone;
mod moves;
mod noise;
mod observe;
mod overload;
mod pair;
mod path;
mod quiet;
mod recovery;
mod renewal;
mod repair_loss;
#[path = "../../../../fuzz/replay.rs"]
mod replay;
mod requests;
mod roaming;
mod session;
mod sparse;
mod stalls;
mod translated;
mod uninjected;
mod windows;
mod wireshark;
