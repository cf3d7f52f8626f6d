//! What lies between a node and its application.
//!
//! A node delivers at once, in the order in which packets come or are mended. [`Fifo`] puts them in the order in which
//! they were sent, for the subscriptions that want it. Messages longer than a packet are put together within the node.

mod fifo;
mod fragments;

pub use fifo::{Fifo, FifoConfig, FifoConfigError, FifoCounts, Released};
pub(crate) use fragments::{Fragments, Progress};
pub use fragments::{FragmentsConfig, FragmentsConfigError, FragmentsCounts};
