//! The papers' setting, and jobs of whole nodes in virtual time.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use loss::LossModel;
use sim::{Figures, Setting};

use crate::fingerprint;
use crate::plan::{Job, Sample, Scale};

/// Returns the papers' setting (Ricochet §5), for a shorter time than their 30 seconds.
pub(crate) fn base(scale: Scale) -> Setting {
    let usual = Setting::default();
    Setting {
        seconds: scale.pick_smallest(0.7, 1.0, 5.0),
        after_us: scale.pick(500_000, 1_000_000),
        packets_kept: scale.pick_smallest(1_024, usual.packets_kept, usual.packets_kept),
        size: scale.pick(64, 1_024),
        ..usual
    }
}

/// Returns the number of packets that each node keeps. A thousand nodes must fit into the memory of a small
/// machine, and the packets of two seconds are enough.
pub(super) fn packets_kept(scale: Scale, nodes: usize) -> usize {
    let usual = base(scale).packets_kept;
    if nodes > 64 { usual.min(scale.pick_smallest(256, 2_048, 2_048)) } else { usual }
}

/// Returns the job of a setting; `read` takes the samples out of the figures of a run.
pub(crate) fn job(setting: Setting, read: impl Fn(&Figures) -> Vec<Sample> + Send + Sync + 'static) -> Job {
    let setup = format!("{setting:?} {:x} {:x?}", behaviour(setting.nak), special(&setting));
    let bytes = bytes(&setting);
    let run = move |seed| Ok(read(&figures_of(&Setting { seed, ..setting.clone() })?));
    Job::simulated(setup, run).of_bytes(bytes)
}

/// Returns the rough memory of a run. Measured: 0.57 GB for 64 nodes with 128 groups and 4,096 packets kept,
/// 2.0 GB for 256 of them. The allocator holds as much again of earlier runs.
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

/// Returns the figures of a setting. Some settings occur in several figures, and run once.
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

/// Returns a number for what nodes and their lab do in a small run with several kinds of loss; the same
/// behaviour has the same number.
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

/// Returns such a number for the rarer parts of a setting, from a small run of the setting itself; none if it
/// has no such part.
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

/// Returns a reader of recovery for panel 0 and mean latency for panel 1.
pub(super) fn recovery_and_latency(
    series: usize,
    x: f64,
) -> impl Fn(&Figures) -> Vec<Sample> + Send + Sync + 'static {
    move |figures| {
        let mut samples = vec![Sample { panel: 0, series, x, y: figures.recovered_percent }];
        // Without recoveries there is no latency.
        if figures.repaired > 0 {
            samples.push(Sample { panel: 1, series, x, y: figures.latency_ms.mean });
        }
        samples
    }
}
