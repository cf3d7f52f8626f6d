//! Network namespaces that vanish with the process.
//!
//! A [`Namespace`] is held by a file descriptor and by one keeper thread inside it, never by a name below
//! `/run/netns`. When the process ends, in any way, the kernel removes the namespace and all its devices.
//!
//! 1. `create` or `open`: a keeper thread enters the namespace and stays.
//! 2. `run`: a scoped thread enters, does the work, and ends. A socket keeps the namespace of its creation,
//!    so sockets made by `run` can be used from any thread.
//! 3. `spawn`: the keeper starts a child process, which inherits the namespace from it.
//!
//! | file | content |
//! |---|---|
//! | `handle.rs` | the namespace and its keeper thread |
//! | `child.rs` | child processes |
//! | `devices.rs` | devices, addresses and routes |
//! | `cards.rs` | counters, hardware addresses, bridges |
//! | `features.rs` | features of drivers |

mod cards;
mod child;
mod devices;
mod features;
mod handle;

pub use cards::DeviceCounters;
pub use child::Child;
pub use devices::Route;
pub use handle::Namespace;
