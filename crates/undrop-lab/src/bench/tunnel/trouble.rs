//! Small packets that share datagrams, voice over a bad link, and an end that is killed.

use std::path::Path;
use std::thread::scope;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use loss::LossModel;
use netlab::topology::{TwoSites, WAN};
use netlab::traffic::{Pace, UdpStream};
use stage::gateways::{GatewayPair, Setting, TunnelSetting, part};

use super::Plan;
use super::report::{Figure, Sheet};
use super::system::System;
use crate::bench::rig::{self, run};
use crate::bench::stop;

/// Packets a second of the stream, and bytes of payload of a packet of 60 bytes.
const SMALL: (f64, usize) = (20_000.0, 32);
/// Settings of `aggregate_us`.
const WAITS_US: [u16; 3] = [0, 200, 500];
/// Packets a second of a voice, and bytes of payload of a packet of 200 bytes.
const VOICE: (f64, usize) = (50.0, 172);
/// Losses under a voice: 3 % of the packets, in bursts of 5 on average.
const VOICE_LOSS: &str = "markov:0.03:5";
/// Time after which a packet of a voice is of no use, in microseconds.
const VOICE_US: u64 = 150_000;
/// Longest wait for the other end to notice.
const PATIENCE: Duration = Duration::from_secs(20);

fn setting(tunnel: TunnelSetting) -> Setting {
    Setting { tunnel: Some(tunnel), ..Setting::default() }
}

/// Measures the datagrams of small packets.
///
/// # Errors
/// If the gateways do not start.
pub(super) fn aggregation(program: &Path, plan: &Plan, sheet: &mut Sheet) -> anyhow::Result<()> {
    for aggregate_us in WAITS_US {
        for seed in 0..plan.runs {
            let figures = plan.measured(|| small(program, plan, aggregate_us, seed))?;
            let labels = [("aggregate_us", aggregate_us.to_string())];
            sheet.add("20,000 packets of 60 bytes a second", &labels, figures)?;
        }
    }
    Ok(())
}

fn small(program: &Path, plan: &Plan, aggregate_us: u16, seed: u64) -> anyhow::Result<Vec<Figure>> {
    let sites = plan.sites(&LossModel::None, seed)?;
    let setting = setting(TunnelSetting { aggregate_us, ..TunnelSetting::default() });
    let running = System::Undrop.start(program, &plan.peers, &sites, &setting)?;
    let pair = running.pair.as_ref().context("expected gateways")?;
    let counts = || -> anyhow::Result<_> {
        let egress = pair.status(0)?.peers.swap_remove(0).egress;
        let tunnel = egress.tunnel.context("expected a tunnel")?;
        Ok([tunnel.packets, tunnel.datagrams, tunnel.bytes])
    };
    let before = counts()?;
    let stream = UdpStream {
        pace: Pace::Packets(SMALL.0),
        payload_bytes: SMALL.1,
        duration: Duration::from_secs(plan.seconds),
        ..UdpStream::default()
    };
    let report = rig::stream(rig::between(&sites), &stream)?;
    let after = counts()?;
    let [packets, datagrams, bytes] = [0, 1, 2].map(|at| (after[at] - before[at]) as f64);
    ensure!(packets > 0.0, "expected packets in the tunnel, saw none");
    let sorted = report.sorted_latencies_us();
    let beyond = |share| rig::quantile(&sorted, share) as f64 - 1_000.0 * plan.delay_ms as f64;
    Ok(vec![
        ("datagrams per 100 packets", 100.0 * datagrams / packets),
        ("bytes on the wire per packet", bytes / packets),
        ("delay beyond the link's, p50, us", beyond(0.5)),
        ("p99, us", beyond(0.99)),
    ])
}

/// Measures a voice without gateways, and with them in each mode.
///
/// # Errors
/// If the gateways do not start.
pub(super) fn voice(program: &Path, plan: &Plan, sheet: &mut Sheet) -> anyhow::Result<()> {
    let modes = [("none", None), ("passive", Some(Setting::default())), ("tunnel", Some(Setting::tunnel()))];
    for (mode, setting) in modes {
        for seed in 0..plan.runs {
            let figures = plan.measured(|| speak(program, plan, setting.as_ref(), seed))?;
            let labels = [("gateways", mode.to_owned())];
            sheet.add("50 packets of 200 bytes a second, 3 % loss in bursts of 5", &labels, figures)?;
        }
    }
    Ok(())
}

fn speak(program: &Path, plan: &Plan, setting: Option<&Setting>, seed: u64) -> anyhow::Result<Vec<Figure>> {
    let loss: LossModel = VOICE_LOSS.parse().context("a loss model of this file")?;
    let sites = plan.sites(&loss, seed)?;
    if setting.is_some_and(|setting| setting.tunnel.is_some()) {
        part(&sites)?;
    }
    let pair = setting.map(|setting| rig::gateways(program, &sites, setting)).transpose()?;
    let stream = UdpStream {
        pace: Pace::Packets(VOICE.0),
        payload_bytes: VOICE.1,
        duration: Duration::from_secs(plan.seconds),
        ..UdpStream::default()
    };
    let report = rig::stream(rig::between(&sites), &stream)?;
    let in_time = report.latencies_us.iter().flatten().filter(|us| **us <= VOICE_US).count();
    let share = 100.0 * in_time as f64 / report.sent_us.len().max(1) as f64;
    let mut spent_percent = 0.0;
    if let Some(pair) = &pair {
        let egress = pair.status(0)?.peers.swap_remove(0).egress;
        let headers =
            egress.tunnel.as_ref().map_or(0, |tunnel| tunnel.bytes.saturating_sub(egress.source_bytes));
        spent_percent = 100.0 * (egress.repair_bytes + headers) as f64 / egress.source_bytes.max(1) as f64;
    }
    Ok(vec![("within 150 ms, %", share), ("bytes spent, % of the packets", spent_percent)])
}

/// Kills one end under traffic, with each setting of `fail`.
///
/// # Errors
/// If the gateways do not start, or the other end does not notice.
pub(super) fn killed(program: &Path, plan: &Plan, sheet: &mut Sheet) -> anyhow::Result<()> {
    for fails_open in [false, true] {
        for seed in 0..plan.runs {
            let figures = plan.measured(|| kill(program, plan, fails_open, seed))?;
            let labels = [("fail", if fails_open { "open" } else { "closed" }.to_owned())];
            sheet.add("A tunnel end is killed under 200 packets a second of its site", &labels, figures)?;
        }
    }
    Ok(())
}

fn kill(program: &Path, plan: &Plan, fails_open: bool, seed: u64) -> anyhow::Result<Vec<Figure>> {
    let sites = plan.sites(&LossModel::None, seed)?;
    let setting = setting(TunnelSetting { fails_open, ..TunnelSetting::default() });
    let mut running = System::Undrop.start(program, &plan.peers, &sites, &setting)?;
    let pair = running.pair.as_mut().context("expected gateways")?;
    let next_hop = sites.b.wan_v4().to_string();
    run(&sites.a.gateway, "ip", &["route", "add", "default", "via", &next_hop, "dev", WAN], "")?;
    run(&sites.a.gateway, "nft", &[&count_rules(&sites)], "")?;
    let stream = UdpStream {
        pace: Pace::Packets(200.0),
        payload_bytes: 200,
        duration: Duration::from_secs(plan.seconds.max(5)),
        ..UdpStream::default()
    };
    let (notice, report) = scope(|scope| {
        let traffic = scope.spawn(|| rig::stream(rig::between(&sites), &stream));
        let notice = kill_and_wait(pair);
        (notice, traffic.join())
    });
    let report = report.map_err(|_| anyhow::anyhow!("the traffic panicked"))??;
    let leaked = leaked(&run(&sites.a.gateway, "nft", &["list", "chain", "inet", "leak", "out"], "")?);
    let leaked = leaked.context("expected a counter of nft")?;
    ensure!(fails_open || leaked == 0, "{leaked} packets left in the clear although the tunnel is closed");
    Ok(vec![
        ("s until the other end says so", notice?.as_secs_f64()),
        ("packets sent", report.sent_us.len() as f64),
        ("packets in the clear", leaked as f64),
    ])
}

/// Kills the first gateway after a second; returns the time until the other one reports it.
fn kill_and_wait(pair: &mut GatewayPair) -> anyhow::Result<Duration> {
    stop::pause(Duration::from_secs(1))?;
    pair.kill(0)?;
    let killed = Instant::now();
    while pair.status(1)?.peers.iter().all(|peer| peer.up) {
        ensure!(killed.elapsed() < PATIENCE, "the other end says nothing within {PATIENCE:?}");
        stop::pause(Duration::from_millis(10))?;
    }
    Ok(killed.elapsed())
}

/// Counts the packets of the first site that leave by the link as they are.
fn count_rules(sites: &TwoSites) -> String {
    format!(
        "add table inet leak; add chain inet leak out {{ type filter hook postrouting priority 0; policy accept; }}; \
         add rule inet leak out oifname {WAN} ip saddr {} counter",
        sites.a.networks()[0]
    )
}

fn leaked(listed: &str) -> Option<u64> {
    listed.split_once("counter packets ")?.1.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_of_nft_is_read() {
        let listed = "chain out {\n  oifname \"wan0\" ip saddr 10.81.1.0/24 counter packets 17 bytes 3876\n}";
        assert_eq!(leaked(listed), Some(17));
        assert_eq!(leaked("chain out {\n}"), None);
    }
}
