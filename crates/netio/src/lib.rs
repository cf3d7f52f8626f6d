//! Linux packet I/O in batches: taps, TUN devices, UDP with segmentation offload.

pub mod process;
