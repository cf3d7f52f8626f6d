//! Tests on sockets, devices and namespaces of the real kernel, in one program.
#![allow(missing_docs, reason = "tests are named by what they show")]

mod by_tunnel;
mod bypass;
mod capture;
mod check_machine;
mod differences;
mod disturbance;
mod doctor;
mod fail_closed;
mod firewall;
mod forecasts;
mod gateway;
mod groups;
mod health;
mod interfaces;
mod keys;
mod log_outlets;
mod managed_mtu;
mod moldudp64;
mod multicast;
mod multicast_load;
mod multicast_refusals;
mod names;
mod nat;
mod node;
mod pair;
mod paths;
mod prometheus;
mod rack;
mod relay;
mod report;
mod requests;
#[path = "../common/schema.rs"]
mod schema;
mod secrets;
mod several_paths;
mod split;
mod stalls;
mod supervision;
mod tcx;
mod three_sites;
mod tick;
mod time_to_live;
mod tunnels;
mod upgrade;
mod wireguard;
