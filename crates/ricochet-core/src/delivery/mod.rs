//! What lies between a node and its application.
//!
//! A node delivers at once, in the order in which packets come or are mended. [`Fifo`] puts them in the order in which
//! they were sent, for the subscriptions that want it.

mod fifo;

pub use fifo::{Fifo, FifoConfig, FifoConfigError, FifoCounts, Released};
