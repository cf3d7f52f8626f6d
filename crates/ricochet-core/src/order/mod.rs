//! Total order: every member delivers the messages of a group in the same sequence (Ricochet §4.2.9, Thesis
//! §4.5.9).
//!
//! One member, the sequencer, numbers the messages, and multicasts the numbers to a group beside that of the
//! messages, the *order group*. Its packets are data packets like others, so that lost ones are repaired and
//! requested. A member delivers a message once it has the message and its number.
//!
//! The sequencer is valid for an [`Epoch`], to which a majority of the members of the epoch before agreed:
//!
//! 1. A member that finds the sequencer dead, or the members changed, asks for the promise to take part in no
//!    earlier epoch (`Prepare`, `Promise`). Promises tell the numbers that their members know.
//! 2. It proposes the beginning of its epoch: the members, and the longest of these logs (`Begin`).
//! 3. When a majority of the members before and of the new members has agreed (`Accept`), the epoch is
//!    settled, and it continues with the numbers that follow.
//!
//! `docs/adr/0014-total-order.md` gives the reasons.
//!
//! | file | content |
//! |---|---|
//! | `total.rs` | the stage between a node and its application, for one group |
//! | `campaign.rs`, `following.rs` | the beginning of epochs, and what each member does then |
//! | `founding.rs` | the beginning of an order, and those that join it |
//! | `numbering.rs` | numbers, acknowledgements, deliveries |
//! | `fetching.rs` | numbers and messages that a member misses |
//! | `epoch.rs`, `log.rs`, `hold.rs` | epochs and majorities, the numbers, the messages |
//! | `report.rs` | what members know and agree to |
//! | `promises.rs` | the promises that a node keeps when it leaves |
//! | `wire.rs` | the packets |

mod campaign;
mod config;
mod epoch;
mod fetching;
mod following;
mod founding;
mod hold;
mod log;
mod numbering;
mod promises;
mod report;
mod total;
mod wire;

pub use config::{TotalConfig, TotalCounts};
pub use epoch::Epoch;
pub use promises::Promises;
pub use total::{OrderNews, OrderOutput, OrderStatus, Ordered, Total};
pub(crate) use wire::COPY_HEAD;

use crate::ids::GroupId;

/// Returns the order group of a group: the group whose members keep that one in total order.
pub fn order_group(group: GroupId) -> GroupId {
    GroupId(xxhash_rust::xxh3::xxh3_64_with_seed(b"ricochet total order", group.0))
}
