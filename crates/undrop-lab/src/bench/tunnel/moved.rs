//! A gateway whose address changes in the middle of a transfer.

use std::fs;
use std::path::Path;
use std::thread::scope;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use loss::LossModel;
use netlab::conntrack;
use netlab::topology::{TwoSites, WAN};
use netlab::traffic::{Pace, TcpTransfer, UdpStream};
use stage::gateways::{End, GatewayPair, Setting, part};

use super::Plan;
use super::report::{Figure, Sheet};
use crate::bench::{rig, stop};

/// Time in which gateways find each other.
const PATIENCE: Duration = Duration::from_secs(30);
/// Packets a second of the stream toward the gateway that moves, and bytes of payload.
const STREAM: (f64, usize) = (1_000.0, 200);
/// Translates all datagrams of the second gateway, as a NAT in front of it does.
const NAT: &str = "add table ip nat; \
    add chain ip nat post { type nat hook postrouting priority srcnat; policy accept; }; \
    add rule ip nat post ip saddr 10.81.9.2 udp sport 4700 masquerade to :20000-29999 random";

/// Fate of the second gateway.
#[derive(Clone, Copy)]
enum Event {
    NatForgets,
    AddressChanges,
}

/// Measures how long traffic stands still when the address of a gateway changes.
///
/// # Errors
/// If the gateways do not start, or do not find each other again.
pub(super) fn run(program: &Path, plan: &Plan, sheet: &mut Sheet) -> anyhow::Result<()> {
    let events =
        [("a NAT forgets its mapping", Event::NatForgets), ("another address", Event::AddressChanges)];
    for (name, event) in events {
        for seed in 0..plan.runs {
            let figures = plan.measured(|| move_away(program, plan, event, seed))?;
            let labels = [("the second gateway", name.to_owned())];
            sheet.add("The address of a gateway changes under a transfer, 1 % loss", &labels, figures)?;
        }
    }
    Ok(())
}

fn move_away(program: &Path, plan: &Plan, event: Event, seed: u64) -> anyhow::Result<Vec<Figure>> {
    let sites = plan.sites(&LossModel::Uniform(0.01), seed)?;
    part(&sites)?;
    if matches!(event, Event::NatForgets) {
        rig::run(&sites.b.gateway, "nft", &[NAT], "")?;
    }
    let pair = start(program, &sites)?;
    let before = pair.status(0)?.peers.swap_remove(0);
    let duration = Duration::from_secs(plan.seconds.max(6));
    let transfer = TcpTransfer { congestion: Some("cubic".to_owned()), duration, ..TcpTransfer::default() };
    let stream = UdpStream {
        pace: Pace::Packets(STREAM.0),
        payload_bytes: STREAM.1,
        duration,
        ..UdpStream::default()
    };
    let (tcp, udp) = scope(|scope| {
        let tcp = scope.spawn(|| rig::transfer(&sites, &transfer));
        let udp = scope.spawn(|| rig::stream(rig::between(&sites), &stream));
        let happened = stop::pause(duration / 2).and_then(|()| event.happen(&sites));
        (tcp.join(), happened.and(udp.join().map_err(|_| anyhow::anyhow!("the stream panicked"))))
    });
    let tcp = tcp.map_err(|_| anyhow::anyhow!("the transfer panicked"))?;
    let udp = udp??;
    let after = pair.status(0)?.peers.swap_remove(0);
    ensure!(after.moves > before.moves, "the first gateway saw no other address:\n{}", pair.logs());
    let alive = tcp.as_ref().is_ok_and(|report| {
        let samples = &report.forward.samples;
        let since = samples.len().saturating_sub(5);
        report.mismatch.is_none()
            && samples[since..].windows(2).any(|pair| pair[1].received_bytes > pair[0].received_bytes)
    });
    let samples = tcp.map(|report| report.forward.samples).unwrap_or_default();
    pair.stop()?;
    Ok(vec![
        ("longest silence of packets, ms", rig::longest_silence_us(&udp) as f64 / 1e3),
        ("longest pause of TCP, ms", rig::longest_pause_us(&samples) as f64 / 1e3),
        ("packets missing", udp.missing() as f64),
        ("connections lost", if alive { 0.0 } else { 1.0 }),
    ])
}

/// Starts tunnels. The first gateway does not know where the second one is, which may be anywhere.
fn start(program: &Path, sites: &TwoSites) -> anyhow::Result<GatewayPair> {
    let ends = End::of(sites);
    let mut pair = GatewayPair::prepare(program, &ends, &Setting::tunnel())?;
    for (side, end) in ends.iter().enumerate() {
        let text = fs::read_to_string(pair.config(side)).context("reading a gateway's configuration")?;
        let text = text.replace("address = \"10.81.9.2:4700\"", "name = \"osaka\"\naddress = \"any\"");
        let text = text.replace("listen = \"10.81.9.2:4700\"", "listen = \"0.0.0.0:4700\"");
        fs::write(pair.config(side), text).context("writing a gateway's configuration")?;
        pair.launch(side, end.namespace)?;
    }
    pair.wait_until_up(PATIENCE)?;
    Ok(pair)
}

impl Event {
    fn happen(self, sites: &TwoSites) -> anyhow::Result<()> {
        let gateway = &sites.b.gateway;
        match self {
            Self::NatForgets => conntrack::forget(gateway)?,
            Self::AddressChanges => {
                rig::run(gateway, "ip", &["-4", "address", "flush", "dev", WAN], "")?;
                rig::run(gateway, "ip", &["address", "add", "10.81.9.22/24", "dev", WAN], "")?;
            }
        }
        Ok(())
    }
}
