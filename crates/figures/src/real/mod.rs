//! Figures that are measured on the real kernel, through namespaces and an emulated link.
//!
//! | file | what |
//! |---|---|
//! | `rig.rs` | gateways at both ends of a link, and the fingerprint of what runs there |
//! | `bursts.rs`, `stream.rs` | bursts through gateways, packet by packet: 3.17, 3.18 |
//! | `codes.rs` | Reed-Solomon, layered interleaving and a sliding window over a stream: 3.19 |
//! | `cost.rs` | processor time against groups: 4.11 |
//! | `goodput/` | TCP under loss, with and without gateways: 3.11, 3.12 |
//! | `ladder.rs` | repairs, then NAKs, with real nodes: 4.8 |
//! | `messages/` | latency of messages: 3.14, 3.15 |
//! | `overload.rs` | drops of the kernel at a slow receiver: 4.1 |
//! | `split.rs` | TCP that ends at the gateways, and its short connections: 3.13 |
//!
//! The values depend on the machine and on its other load, so verdicts here leave wide margins.

mod bursts;
mod codes;
mod cost;
pub(crate) mod goodput;
mod ladder;
pub(crate) mod messages;
mod overload;
mod rig;
pub(crate) mod split;
mod stream;

use crate::plan::Figure;

pub(crate) fn figures() -> Vec<Figure> {
    [
        goodput::figures(),
        split::figures(),
        messages::figures(),
        bursts::figures(),
        codes::figures(),
        overload::figures(),
        ladder::figures(),
        cost::figures(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Made;
    use crate::plan::{Job, Scale};

    #[test]
    fn every_real_set_up_with_our_code_contains_its_behaviour() {
        for figure in figures() {
            let jobs = (figure.plan)(Scale::Quick).jobs;
            let real: Vec<&Job> = jobs.iter().filter(|job| job.made() == Made::Real).collect();
            let telling = real.iter().filter(|job| job.setup.contains("behaviour "));
            // Some transfers have no gateways.
            let expected = if figure.id == "4.1" { 0..1 } else { 1..real.len() + 1 };
            assert!(expected.contains(&telling.count()), "{}", figure.id);
        }
    }
}
