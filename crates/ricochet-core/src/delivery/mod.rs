//! Delivery of messages to the application.
//!
//! A node delivers packets at once, in the order in which they come or are recovered. [`Fifo`] restores the
//! order in which they were sent, for subscriptions that want it. The node itself reassembles messages longer
//! than a packet.

mod fifo;
mod fragments;

pub use fifo::{Fifo, FifoConfig, FifoConfigError, FifoCounts, Released};
pub(crate) use fragments::{Fragments, Progress};
pub use fragments::{FragmentsConfig, FragmentsConfigError, FragmentsCounts};
