//! The forecast and the plan in a report.

use crate::controller::Plan;
use crate::counters::Rejected;
use crate::forecast::{CANDIDATES, Fit, Forecast, Tail};
use fec::RepairRate;
use foundation::bytes::{Reader, Writer};

/// Bits of a plan's flags.
const AUTO: u8 = 1;
const THIN: u8 = 2;
const STRIPED: u8 = 4;

/// Length of a plan on the wire in bytes.
pub(super) const PLAN_LEN: usize = 19;
/// Length of a forecast on the wire in bytes.
pub(super) const FORECAST_LEN: usize = 18 + 12 * CANDIDATES;

pub(super) fn write_plan(plan: &Plan, writer: &mut Writer<'_>) {
    let flag = |is_set: bool, bit| if is_set { bit } else { 0 };
    writer.put(&[flag(plan.is_auto, AUTO) | flag(plan.is_thin, THIN) | flag(plan.is_striped, STRIPED)]);
    [plan.rate.repairs(), plan.rate.sources(), plan.late_us]
        .iter()
        .for_each(|value| writer.put(&value.to_be_bytes()));
    [plan.window, plan.products, plan.window_max].iter().for_each(|value| writer.put(&value.to_be_bytes()));
}

pub(super) fn read_plan(reader: &mut Reader<'_>) -> Result<Plan, Rejected> {
    let flags = reader.u8()?;
    let rate = RepairRate::new(reader.u32()?, reader.u32()?).map_err(|_| Rejected::Malformed)?;
    let late_us = reader.u32()?;
    let (window, products, window_max) = (reader.u16()?, reader.u16()?, reader.u16()?);
    if flags > AUTO | THIN | STRIPED {
        return Err(Rejected::Malformed);
    }
    let [is_auto, is_thin, is_striped] = [AUTO, THIN, STRIPED].map(|flag| flags & flag != 0);
    Ok(Plan { rate, window, products, window_max, late_us, is_auto, is_striped, is_thin })
}

pub(super) fn write_forecast(forecast: &Forecast, writer: &mut Writer<'_>) {
    let Forecast { packets, lost, fit, burst, tails } = forecast;
    [*packets, *lost, fit.packets, fit.lost].iter().for_each(|value| writer.put(&value.to_be_bytes()));
    writer.put(&burst.to_be_bytes());
    for tail in tails {
        [tail.half, tail.most, tail.failed].iter().for_each(|value| writer.put(&value.to_be_bytes()));
    }
}

pub(super) fn read_forecast(reader: &mut Reader<'_>) -> Result<Forecast, Rejected> {
    let (packets, lost) = (reader.u32()?, reader.u32()?);
    let fit = Fit { packets: reader.u32()?, lost: reader.u32()? };
    let burst = reader.u16()?;
    let mut tails = [Tail::default(); CANDIDATES];
    for tail in &mut tails {
        *tail = Tail { half: reader.u32()?, most: reader.u32()?, failed: reader.u32()? };
    }
    Ok(Forecast { packets, lost, fit, burst, tails })
}
