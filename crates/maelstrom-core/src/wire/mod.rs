//! The datagrams of the repair channel, byte for byte (`docs/wire.md`). All numbers are big-endian.

mod forecast;
mod half;
mod header;
mod hello;
mod layout;
mod packets;
mod probe;
mod recipe;
mod repair;
mod report;
mod request;
mod share;
mod wants;

pub use half::{Half, write_half_header};
pub use header::{
    BodyKind, HELLO_HEADER, KeyPart, Lag, Outer, SEALED_HEADER, SealedHeader, SendTime, TAG, VERSION,
    write_hello_header,
};
pub use hello::{HELLO_MAX, Hello, NETWORKS_MAX};
pub use layout::{EXCEPTIONS_BUDGET, Entry, NAMES_APART_MAX, TERMS_MAX, WINDOW_MAX};
pub use packets::{Bundle, PACKET_HEADER, PacketsView};
pub use probe::Probe;
pub use recipe::{Recipe, repair_overhead};
pub use repair::{RecipeView, Sum};
pub use report::{BURST_BUCKETS, Echo, LossReport, Report};
pub use request::{DEFICIT_MAX, REQUEST_SPAN, Request};
pub use share::Announcement;
pub use wants::Want;
pub(crate) use wants::is_multicast;
