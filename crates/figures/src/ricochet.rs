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
pub(crate) mod loss;
pub(crate) mod rivals;
pub(crate) mod scale;
mod slingshot;
mod tuning;

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::fingerprint;
use crate::plan::{Figure, Job, Sample, Scale};
use ::loss::LossModel;
use sim::{Figures, Setting};

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

/// The papers' setting (Ricochet §5); theirs ran for 30 seconds.
pub(crate) fn base(scale: Scale) -> Setting {
    Setting {
        seconds: scale.pick(1.0, 5.0),
        after_us: scale.pick(500_000, 1_000_000),
        size: scale.pick(64, 1_024),
        ..Setting::default()
    }
}

/// Packets that each of so many nodes keeps. A thousand nodes are to fit into the memory of a small machine, and what a node
/// gets in two seconds is enough.
fn packets_kept(nodes: usize) -> usize {
    let usual = Setting::default().packets_kept;
    if nodes > 64 { usual.min(2_048) } else { usual }
}

/// A job of a setting: `read` takes the samples out of the figures of a run.
pub(crate) fn job(setting: Setting, read: impl Fn(&Figures) -> Vec<Sample> + Send + Sync + 'static) -> Job {
    let setup = format!("{setting:?} {:x} {:x?}", behaviour(setting.nak), special(&setting));
    let bytes = bytes(&setting);
    let run = move |seed| Ok(read(&figures_of(&Setting { seed, ..setting.clone() })?));
    Job::simulated(setup, run).of_bytes(bytes)
}

/// Roughly the memory that a run takes. Measured: 0.57 GB for 64 nodes with 128 groups and 4,096 packets kept, 2.0 GB for 256 of
/// them; what the allocator holds of earlier runs is as much again.
fn bytes(setting: &Setting) -> u64 {
    const NODE: usize = 1_300_000;
    const GROUP: usize = 1_400;
    const RECEIVED: f64 = 300.0;
    let slot = setting.node().datagram_max + 100;
    let node = NODE + setting.packets_kept * slot + setting.groups_per_node * GROUP;
    let seconds = setting.seconds + setting.after_us as f64 / 1e6;
    let received = setting.nodes as f64 * setting.rate * seconds;
    2 * ((setting.nodes * node) as u64 + (received * RECEIVED) as u64)
}

/// What a setting comes to. Some are in several figures, and run once.
fn figures_of(setting: &Setting) -> Result<Figures, String> {
    static KNOWN: Mutex<BTreeMap<String, Figures>> = Mutex::new(BTreeMap::new());
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let key = format!("{setting:?}");
    if let Some(figures) = known().get(&key) {
        return Ok(figures.clone());
    }
    let figures = setting.run(&mut |_| {}).map_err(|error| error.to_string())?;
    known().insert(key, figures.clone());
    Ok(figures)
}

/// A number for what the code of nodes and of their lab does: of a small run with all kinds of trouble. Other code that does
/// the same has the same number.
pub(crate) fn behaviour(nak: bool) -> u64 {
    static BEHAVIOUR: [OnceLock<u64>; 2] = [const { OnceLock::new() }; 2];
    let loss = LossModel::Markov { rate: 0.05, mean_burst: 3.0 };
    let setting = Setting {
        nodes: 12,
        groups_per_node: 24,
        group_size: 6,
        stagger: 2,
        size: 64,
        nak,
        loss_other: loss.clone(),
        loss,
        seconds: 0.5,
        after_us: 200_000,
        ..Setting::default()
    };
    *BEHAVIOUR[usize::from(nak)]
        .get_or_init(|| fingerprint::number(&format!("{:?}", setting.run(&mut |_| {}))))
}

/// The same of what only some settings have: of a small run of each such setting itself.
fn special(setting: &Setting) -> Option<u64> {
    let usual = Setting::default();
    let is_special = setting.one_loss
        || setting.view.is_some()
        || setting.repairs_kept != usual.repairs_kept
        || setting.stagger != 1;
    let small = Setting {
        nodes: 12,
        groups_per_node: setting.groups_per_node.min(24),
        group_size: setting.group_size.min(6),
        view: setting.view.map(|view| view.min(4)),
        size: 64,
        seconds: 0.2,
        after_us: 200_000,
        ..setting.clone()
    };
    is_special.then(|| fingerprint::number(&format!("{:?}", figures_of(&small))))
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
