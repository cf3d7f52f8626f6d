//! Figures of Ricochet (Thesis ch. 4) and Slingshot, simulated.
//!
//! | file | what |
//! |---|---|
//! | `setting.rs` | the papers' setting, and jobs of whole nodes in virtual time |
//! | `tuning.rs` | the rate of fire: 4.9, Slingshot 2 |
//! | `scale.rs` | groups, members, nodes: 4.10, 4.11, 4.15, §4.6.6 |
//! | `loss.rs` | rates and models of loss, bursts, stagger: 4.12, 4.13, 4.14 |
//! | `rivals.rs` | other protocols: SRM, Bimodal Multicast, FEC by the sender: 4.2, Slingshot 3 |
//! | `ladder.rs` | repairs, then NAKs: 4.8 |
//! | `slingshot.rs` | one large group, partial views, the bounds of the analysis: Slingshot 4, 5 |

pub(crate) mod ladder;
pub(crate) mod loss;
pub(crate) mod rivals;
pub(crate) mod scale;
pub(crate) mod setting;
mod slingshot;
mod tuning;

use crate::plan::Figure;

pub(crate) fn figures() -> Vec<Figure> {
    [
        rivals::figures(),
        ladder::figures(),
        tuning::figures(),
        scale::figures(),
        loss::figures(),
        slingshot::figures(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
