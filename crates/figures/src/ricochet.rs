//! The figures of Ricochet (Thesis ch. 4) and Slingshot, simulated.
//!
//! | file | what |
//! |---|---|
//! | `tuning.rs` | the rate of fire: 4.9, Slingshot 2 |
//! | `scale.rs` | groups, members, nodes: 4.10, 4.11, 4.15, §4.6.6 |
//! | `loss.rs` | rates and models of loss, bursts, stagger: 4.12, 4.13, 4.14 |
//! | `rivals.rs` | beside SRM, Bimodal Multicast and FEC by the sender: 4.2, Slingshot 3 |
//! | `ladder.rs` | repairs, then requests: 4.8 |
//! | `slingshot.rs` | one large group, partial views, the analysis' bounds: Slingshot 4, 5 |

pub(crate) mod ladder;
mod loss;
mod rivals;
mod scale;
mod slingshot;
mod tuning;

use ricochet_lab::{Figures, Setting};

use crate::plan::{Figure, Job, Sample, Scale};

/// The papers' setting of a node, in short.
const SETUP: &str = "64 nodes, each in 128 groups of ten members on average, 1,000 packets of 1 KiB a second at each \
                     node, rate of fire (8,5), 1 % uniform loss of all datagrams, 50 µs from socket to socket, no \
                     requests";

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

/// The papers' setting (Ricochet §5).
pub(crate) fn base(scale: Scale) -> Setting {
    Setting { seconds: scale.pick(1.0, 10.0), size: scale.pick(64, 1_024), ..Setting::default() }
}

/// A job of a setting: `read` takes the samples out of the figures of a run.
pub(crate) fn job(setting: Setting, read: impl Fn(&Figures) -> Vec<Sample> + Send + Sync + 'static) -> Job {
    let setup = format!("{setting:?}");
    let run = move |seed| {
        let setting = Setting { seed, ..setting.clone() };
        let figures = setting.run(&mut |_| {}).map_err(|error| error.to_string())?;
        Ok(read(&figures))
    };
    Job::simulated(setup, run)
}

/// Recovery in panel 0 and mean latency in panel 1, where most figures have them.
fn recovery_and_latency(series: usize, x: f64) -> impl Fn(&Figures) -> Vec<Sample> + Send + Sync + 'static {
    move |figures| {
        let mut samples = vec![Sample { panel: 0, series, x, y: figures.recovered_percent }];
        // Where nothing came back, it took no time.
        if figures.repaired > 0 {
            samples.push(Sample { panel: 1, series, x, y: figures.latency_ms.mean });
        }
        samples
    }
}
