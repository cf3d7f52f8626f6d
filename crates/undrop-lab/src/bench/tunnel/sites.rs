//! Three sites with tunnels to each other: transfers at once, and a group that crosses to two of them.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::thread::{ScopedJoinHandle, scope, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use netio::multicast::{PlainListener, PlainTalker};
use netlab::topology::HOST;
use netlab::traffic::TcpTransfer;
use stage::gateways::{Modes, ThreeSites};

use super::Plan;
use super::report::{Figure, Sheet};
use crate::bench::{rig, stop};

/// Groups that cross the tunnels, and one of them.
const GROUPS: &str = "[[multicast]]\ninterface = \"lan0\"\ngroups = [\"239.1.0.0/16\"]\nwanted = \"all\"\n";
const GROUP: ([u8; 4], u16) = ([239, 1, 7, 7], 5_007);
/// Packets a second to the group, and their bytes of payload.
const GROUP_STREAM: (u64, usize) = (1_000, 500);
/// Time to live of packets to the group.
const TTL: u8 = 9;
/// Time in which the last packets to the group come, recovered ones too.
const LAST: Duration = Duration::from_secs(1);
/// Receive buffer of a listener.
const BUFFER: usize = 8 << 20;

/// Measures three sites: a transfer from each to each other at once, then a group from one to the others.
///
/// # Errors
/// If the gateways do not start, or TCP delivers a byte that was not sent.
pub(super) fn run(program: &Path, plan: &Plan, sheet: &mut Sheet) -> anyhow::Result<()> {
    for seed in 0..plan.runs {
        let lab = ThreeSites::start(program, Modes::Tunnels, GROUPS, seed)?;
        for congestion in &plan.congestion {
            let figures = plan.measured(|| exchange(&lab, plan, congestion))?;
            let labels = [("hosts", congestion.clone())];
            sheet.add("Three sites, a transfer from each to each other, 1 % loss", &labels, figures)?;
        }
        let figures = plan.measured(|| group(&lab, plan))?;
        sheet.add(
            "A group from one site to two, 1 % loss",
            &[("packets a second", "1000".to_owned())],
            figures,
        )?;
        lab.stop()?;
    }
    Ok(())
}

fn exchange(lab: &ThreeSites, plan: &Plan, congestion: &str) -> anyhow::Result<Vec<Figure>> {
    let transfer = TcpTransfer {
        congestion: Some(congestion.to_owned()),
        duration: Duration::from_secs(plan.seconds),
        ..TcpTransfer::default()
    };
    let reports: Vec<_> = scope(|scope| {
        let spawn = |(from, to)| {
            let transfer = &transfer;
            scope.spawn(move || rig::transfer_of(lab.between(from, to), transfer))
        };
        let running: Vec<_> = ThreeSites::pairs().map(spawn).collect();
        running.into_iter().map(ScopedJoinHandle::join).collect()
    });
    let mut rates = Vec::new();
    for report in reports {
        let report = report.map_err(|_| anyhow::anyhow!("a transfer panicked"))??;
        ensure!(report.mismatch.is_none(), "TCP delivered a byte that was not sent");
        rates.push(report.forward.second_half_bps() / 1e6);
    }
    let (median, least, most) = rig::spread(rates.clone());
    Ok(vec![
        ("Mbit/s of all six", rates.iter().sum()),
        ("of one", median),
        ("the slowest", least),
        ("the fastest", most),
    ])
}

fn group(lab: &ThreeSites, plan: &Plan) -> anyhow::Result<Vec<Figure>> {
    let at = SocketAddr::from(GROUP);
    let source: IpAddr = lab.address(3);
    let before = lab.status(3)?.multicast.swap_remove(0);
    let mut listeners = Vec::new();
    for site in [1, 2] {
        listeners
            .push(lab.host(site).run(|| PlainListener::bind(at, HOST, BUFFER)).context("joining a group")?);
    }
    let mut talker = lab.host(3).run(|| PlainTalker::bind(at, HOST, 0)).context("sending to a group")?;
    let count = GROUP_STREAM.0 * plan.seconds;
    let mut got = vec![vec![0_u32; count as usize]; listeners.len()];
    let mut take = |got: &mut Vec<Vec<u32>>| -> anyhow::Result<()> {
        for (listener, got) in listeners.iter_mut().zip(got) {
            let mut note = |heard: netio::multicast::Heard<'_>| {
                let number = heard.payload.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
                let slot = number.and_then(|number| got.get_mut(number as usize));
                if let Some(slot) = slot.filter(|_| heard.from.ip() == source) {
                    *slot += 1;
                }
            };
            while listener.recv(&mut note).context("reading a group")? {}
        }
        Ok(())
    };
    let start = Instant::now();
    for number in 0..count {
        let mut payload = [0; GROUP_STREAM.1];
        payload[..8].copy_from_slice(&number.to_be_bytes());
        talker.send(TTL, &payload).context("sending to a group")?;
        let due = start + Duration::from_micros((number + 1) * 1_000_000 / GROUP_STREAM.0);
        sleep(due.saturating_duration_since(Instant::now()));
        if number % 64 == 0 {
            take(&mut got)?;
            stop::check()?;
        }
    }
    sleep(LAST);
    take(&mut got)?;
    let after = lab.status(3)?.multicast.swap_remove(0);
    let missing = |got: &Vec<u32>| got.iter().filter(|&&times| times == 0).count() as f64;
    let twice: usize = got.iter().flatten().filter(|&&times| times > 1).count();
    let forwarded = (after.forwarded - before.forwarded).max(1) as f64;
    Ok(vec![
        ("missing at the first", missing(&got[0])),
        ("at the second", missing(&got[1])),
        ("of", count as f64),
        ("twice", twice as f64),
        ("copies sent of a packet", (after.sent - before.sent) as f64 / forwarded),
    ])
}
