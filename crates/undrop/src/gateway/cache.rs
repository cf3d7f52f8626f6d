//! `undrop gateway cache`: the packets that a gateway keeps to send them again on request.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use maelstrom::cached::{self, Cache, End, FlowCache, PeerCache};

use super::status::{Socket, remedy};
use crate::failure::{Advice as _, usage};
use crate::output;

const EXAMPLES: &str = "\
Examples:
  undrop gateway cache
  undrop gateway cache --flow 10.81.2.9
  undrop gateway cache --flow 10.81.1.7:5060 --flow 10.81.2.9
  undrop gateway cache --json | jq '.peers[].flows[] | select(.answers > 0)'";

/// Show the packets that the gateway keeps to send them again when a peer requests them, by flow.
///
/// Packets are kept for the time of two requests, and in a limited number of bytes. The flow with the most
/// bytes comes first.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    socket: Socket,
    /// Show only flows with this end; given twice, only those between both
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    flow: Vec<End>,
    /// Show only the packets for this peer, given by its name or its address
    #[arg(long, value_name = "PEER")]
    peer: Option<String>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut cache = cached::read(&args.socket.path()?, &args.flow).or_else(|error| {
        let remedy = remedy(&error);
        Err(error).advise(remedy)
    })?;
    if let Some(peer) = &args.peer {
        let names: Vec<String> = cache.peers.iter().map(PeerCache::label).collect();
        cache.peers.retain(|one| one.is_called(peer));
        if cache.peers.is_empty() {
            return Err(usage(format!("--peer: expected one of {}, saw `{peer}`", names.join(", "))));
        }
    }
    for peer in &mut cache.peers {
        peer.flows.sort_by_key(|flow| std::cmp::Reverse(flow.bytes));
    }
    output::line(&if args.json { serde_json::to_string_pretty(&cache)? } else { render(&cache) })?;
    Ok(ExitCode::SUCCESS)
}

fn render(cache: &Cache) -> String {
    let mut text = String::new();
    for peer in &cache.peers {
        let _ = writeln!(
            text,
            "packets for {}: {} packets, {} of {} bytes, for at most {} ms",
            peer.label(),
            peer.packets,
            peer.bytes,
            peer.bytes_max,
            peer.keep_ms
        );
        for flow in &peer.flows {
            let _ = writeln!(text, "  {}", of_flow(flow));
        }
        if peer.other_packets > 0 {
            let _ = writeln!(text, "  {} packets of further flows", peer.other_packets);
        }
    }
    text.truncate(text.trim_end().len());
    text
}

fn of_flow(flow: &FlowCache) -> String {
    let end = |address: IpAddr, port: Option<u16>| match port {
        Some(port) => SocketAddr::new(address, port).to_string(),
        None => address.to_string(),
    };
    let protocol = match flow.protocol {
        Some(1) => "ICMP".to_owned(),
        Some(6) => "TCP".to_owned(),
        Some(17) => "UDP".to_owned(),
        Some(58) => "ICMPv6".to_owned(),
        Some(number) => format!("protocol {number}"),
        None => "fragments".to_owned(),
    };
    format!(
        "{protocol} {} to {}: {} packets, {} bytes, {} to {} ms old, sent again {} times",
        end(flow.source, flow.source_port),
        end(flow.destination, flow.destination_port),
        flow.packets,
        flow.bytes,
        flow.newest_ms,
        flow.oldest_ms,
        flow.answers
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_has_a_line() {
        let flow = FlowCache {
            source: "10.1.0.1".parse().unwrap(),
            destination: "fd00::1".parse().unwrap(),
            protocol: Some(17),
            source_port: Some(4_000),
            destination_port: Some(53),
            packets: 12,
            bytes: 700,
            answers: 3,
            oldest_ms: 90,
            newest_ms: 4,
        };
        assert_eq!(
            of_flow(&flow),
            "UDP 10.1.0.1:4000 to [fd00::1]:53: 12 packets, 700 bytes, 4 to 90 ms old, sent again 3 times"
        );
        let bare = FlowCache { protocol: None, source_port: None, destination_port: None, ..flow };
        assert!(of_flow(&bare).starts_with("fragments 10.1.0.1 to fd00::1: "));
    }
}
