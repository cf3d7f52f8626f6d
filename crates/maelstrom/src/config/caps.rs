//! Caps so low that they leave a part of the packets without repairs.

use diagnostics::settings::Setting;
use diagnostics::{Diagnostic, Findings};
use maelstrom_core::Schedule;
use maelstrom_core::auto::LADDER;

use super::draft::Draft;

/// Number of the longest repairs in a second below which a bit rate is called low.
const REPAIRS_MIN: u64 = 8;
/// Length of the longest packet on the WAN where the file does not state it, in bytes.
const WAN_MTU: u64 = 1_500;

pub(super) fn check(draft: &Draft, findings: &mut Findings) {
    // For other schemes the keys are mistakes, which are reported elsewhere.
    if draft.code.schedule() == Some(Schedule::Auto) {
        overhead_allows_the_lowest_rate(draft, findings);
        bit_rate_allows_some_repairs(draft, findings);
    }
}

fn overhead_allows_the_lowest_rate(draft: &Draft, findings: &mut Findings) {
    let Some(Setting { value: Some(cap), span }) = &draft.code.overhead_max else { return };
    let lowest = LADDER[0];
    if *cap >= lowest {
        return;
    }
    let share = 100.0 * cap.as_f64() / lowest.as_f64();
    findings.add(
        Diagnostic::warning(
            "low-cap",
            format!("`overhead_max` is below {lowest}, the lowest rate of `auto`"),
        )
        .at(span.clone())
        .expected(format!("{lowest} or more"))
        .seen(cap.to_string())
        .note(format!(
            "the gateway sends at most {share:.0} % of the repairs at that rate; other packets have no repair"
        ))
        .help(
            "raise it, or exclude packets that need no protection by a `[[class]]` with `protect = \"off\"`",
        ),
    );
}

fn bit_rate_allows_some_repairs(draft: &Draft, findings: &mut Findings) {
    let Some(Setting { value: Some(bps), span }) = &draft.code.max_repair_rate else { return };
    let stated = draft.gateway.wan_mtu.as_ref().and_then(|mtu| mtu.value);
    let bits = 8 * stated.map_or(WAN_MTU, u64::from);
    if *bps >= REPAIRS_MIN * bits {
        return;
    }
    let repairs = *bps as f64 / bits as f64;
    let packets = repairs / LADDER[0].as_f64();
    findings.add(
        Diagnostic::warning(
            "low-cap",
            format!("`max_repair_rate` allows {repairs:.2} repairs of {} bytes in a second", bits / 8),
        )
        .at(span.clone())
        .expected(format!("{} kbit/s or more", (REPAIRS_MIN * bits).div_ceil(1_000)))
        .seen(format!("{} kbit/s", *bps as f64 / 1_000.0))
        .note(format!(
            "that is enough for {packets:.0} such packets in a second; of more packets, some have no repair"
        ))
        .help(
            "raise it, or exclude packets that need no protection by a `[[class]]` with `protect = \"off\"`",
        ),
    );
}
