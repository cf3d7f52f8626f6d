//! `undrop multicast metrics`: the metrics of a running node, for Prometheus.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use daemon::http::Server;
use daemon::openmetrics::{CONTENT_TYPE, Exposition, Kind};
use daemon::signals::{Signal, Signals};
use netio::poll::{Interest, Poller};
use ricochet::status::{GroupStatus, ReceptionStatus, Status};

use super::status::{Socket, ask};
use crate::exposition::Format;
use crate::failure::Advice as _;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  undrop multicast metrics
  undrop multicast metrics --control /run/undrop/prices.sock --listen 127.0.0.1:9470
  undrop multicast metrics --format prometheus > new && mv new node.prom || rm -f node.prom";

/// Print the metrics of a running node in the OpenMetrics format, which Prometheus reads.
///
/// With `--listen`, serve them by HTTP at `/metrics` until Ctrl-C. Each request asks the node; while it
/// does not answer, requests fail. Everybody who reaches the address can read the metrics. With
/// `--format prometheus`, a timer can write them for the textfile collector of node_exporter: into another
/// file of its directory first, because it must not read half of them. Remove the last file if the command
/// fails, or its figures stay after the node has ended.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    socket: Socket,
    /// Serve the metrics at this address and TCP port, such as `127.0.0.1:9470`
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Form of the metrics that are printed
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t, conflicts_with = "listen")]
    format: Format,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let control = args.socket.path()?;
    if let Some(address) = args.listen {
        return serve(address, control);
    }
    let status = ask(&control)?;
    output::line(args.format.of(&render(&status)).trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// Answers requests for the metrics until a signal asks to stop.
fn serve(address: SocketAddr, control: PathBuf) -> anyhow::Result<ExitCode> {
    // Before the threads of the server, so that signals reach this one alone.
    let signals = Signals::new().context("cannot watch for signals")?;
    let document = move || Ok((render(&Status::ask(&control)?), CONTENT_TYPE));
    let server = Server::start(address, document)
        .with_context(|| format!("cannot answer at {address}"))
        .advise("choose an address of this machine and an unused port")?;
    output::note(format!("metrics at http://{}/metrics", server.address()));
    let mut poller = Poller::new()?;
    poller.add(&signals, 0, Interest::Readable)?;
    loop {
        let _ = poller.wait(None)?;
        while let Some(signal) = signals.next()? {
            if signal != Signal::HangUp {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
}

/// A family of one count for each group.
type OfGroup = (&'static str, &'static str, fn(&ReceptionStatus) -> u64);

const OF_GROUPS: [OfGroup; 7] = [
    ("undrop_node_messages_received", "Messages of a group.", |group| group.messages),
    ("undrop_node_packets_received", "Data packets of a group received as sent.", |group| group.data.packets),
    ("undrop_node_packets_missing", "Packets of a group found missing.", |group| group.discovered),
    ("undrop_node_packets_repaired", "Packets of a group recovered from repairs.", |group| group.repaired),
    ("undrop_node_packets_requested", "Packets of a group received on request.", |group| group.requested),
    ("undrop_node_packets_lost", "Packets of a group given up as lost.", |group| group.lost),
    ("undrop_node_packets_duplicate", "Packets of a group received again.", |group| group.duplicates),
];

fn render(status: &Status) -> String {
    let mut out = Exposition::default();
    out.family("undrop_node", Kind::Info, "The node and its interface.")
        .sample(&[("id", &status.id), ("interface", &status.interface.name)], 1.0);
    for (name, help, value) in [
        (
            "undrop_node_up",
            "Whether the thread of the node works.",
            f64::from(u8::from(status.failed.is_none())),
        ),
        ("undrop_node_uptime_seconds", "Time since the start of the node.", status.uptime_ms as f64 / 1e3),
        ("undrop_node_memory_bytes", "Memory held for packets and repairs.", status.memory_bytes as f64),
        ("undrop_node_peers", "Other nodes that the node knows.", status.peers.len() as f64),
        ("undrop_node_ip_groups", "IP groups joined.", status.ip_groups as f64),
        ("undrop_node_ring_waiting", "Datagrams that wait for the node.", status.ring.waiting as f64),
        ("undrop_node_flow_waiting", "Packets that wait for their readers.", status.flow.waiting as f64),
    ] {
        out.family(name, Kind::Gauge, help).sample(&[], value);
    }
    if let Some(registry) = &status.registry {
        let flag = |holds: bool| f64::from(u8::from(holds));
        let mut family =
            out.family("undrop_node_registry_up", Kind::Gauge, "Whether the registry of members is reached.");
        family.sample(&[("kind", &registry.kind)], flag(registry.reached));
        let mut family =
            out.family("undrop_node_registry_lost", Kind::Counter, "Times that the registry was lost.");
        family.sample(&[("kind", &registry.kind)], registry.lost as f64);
    }
    groups(&mut out, &status.groups);
    subscriptions(&mut out, status);
    let kernel = &status.kernel;
    out.family("undrop_node_ring_dropped", Kind::Counter, "Datagrams dropped to make room for others.")
        .sample(&[], status.ring.dropped as f64);
    let mut family =
        out.family("undrop_node_socket_datagrams", Kind::Counter, "Datagrams at the sockets, by fate.");
    for (fate, count) in [
        ("received", kernel.received),
        ("overflowed", kernel.overflowed),
        ("not_for_us", kernel.not_for_us),
        ("truncated", kernel.truncated),
    ] {
        family.sample(&[("fate", fate)], count as f64);
    }
    for (name, help, counts) in [
        ("undrop_node_core", "Counters of the core.", &status.counts),
        ("undrop_node_sending", "Datagrams given to the kernel, by result.", &status.sending),
        ("undrop_node_dropped_datagrams", "Datagrams dropped before the core, by reason.", &status.dropped),
        (
            "undrop_node_malformed_datagrams",
            "Datagrams that could not be read, by reason.",
            &status.malformed,
        ),
        ("undrop_node_membership", "Counters of the membership.", &status.membership),
    ] {
        let mut family = out.family(name, Kind::Counter, help);
        for (reason, &count) in counts {
            family.sample(&[("reason", reason)], count as f64);
        }
    }
    out.finish()
}

fn groups(out: &mut Exposition, groups: &[GroupStatus]) {
    let mut family = out.family("undrop_node_group_members", Kind::Gauge, "Other nodes in a group.");
    for group in groups {
        family.sample(&[("group", &group.name)], group.members as f64);
    }
    let mut family = out.family("undrop_node_packets_sent", Kind::Counter, "Data packets sent to a group.");
    for group in groups {
        family.sample(&[("group", &group.name)], group.sent.packets as f64);
    }
    let mut family = out.family("undrop_node_messages_sent", Kind::Counter, "Messages sent to a group.");
    for group in groups {
        family.sample(&[("group", &group.name)], group.messages_sent as f64);
    }
    for (name, help, value) in OF_GROUPS {
        let mut family = out.family(name, Kind::Counter, help);
        for group in groups {
            family.sample(&[("group", &group.name)], value(&group.reception) as f64);
        }
    }
}

/// Appends the queues of all subscriptions together: they have no names.
fn subscriptions(out: &mut Exposition, status: &Status) {
    let sum = |count: fn(&ricochet::status::SubscriptionStatus) -> u64| {
        status.subscriptions.iter().map(count).sum::<u64>() as f64
    };
    out.family("undrop_node_queue_waiting", Kind::Gauge, "Messages that wait for their readers.")
        .sample(&[], sum(|subscription| subscription.waiting as u64));
    let mut family =
        out.family("undrop_node_queue_messages", Kind::Counter, "Messages of subscriptions, by fate.");
    family.sample(&[("fate", "queued")], sum(|subscription| subscription.counts.queued));
    family.sample(&[("fate", "dropped")], sum(|subscription| subscription.counts.dropped));
    family.sample(&[("fate", "lost")], sum(|subscription| subscription.counts.lost));
}

#[cfg(test)]
mod tests {
    use ricochet::status::RegistryStatus;

    use super::*;

    #[test]
    fn a_node_has_metrics_for_each_group_and_reason() {
        let mut status = Status { id: "n1".to_owned(), uptime_ms: 2_500, ..Status::default() };
        status.dropped.insert("unauthentic".to_owned(), 7);
        let reception = ReceptionStatus { repaired: 3, messages: 9, ..ReceptionStatus::default() };
        status.groups.push(GroupStatus {
            name: "prices/AAPL".to_owned(),
            reception,
            ..GroupStatus::default()
        });
        let registry = RegistryStatus { kind: "etcd".to_owned(), lost: 2, ..RegistryStatus::default() };
        status.registry = Some(registry);
        let text = render(&status);
        for line in [
            "undrop_node_registry_up{kind=\"etcd\"} 0\n",
            "undrop_node_registry_lost_total{kind=\"etcd\"} 2\n",
            "undrop_node_info{id=\"n1\",interface=\"\"} 1\n",
            "undrop_node_uptime_seconds 2.5\n",
            "undrop_node_packets_repaired_total{group=\"prices/AAPL\"} 3\n",
            "undrop_node_messages_received_total{group=\"prices/AAPL\"} 9\n",
            "undrop_node_dropped_datagrams_total{reason=\"unauthentic\"} 7\n",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn the_book_has_a_table_of_the_metrics() {
        let registry = Some(RegistryStatus { kind: "etcd".to_owned(), ..RegistryStatus::default() });
        let mut status = Status { registry, groups: vec![GroupStatus::default()], ..Status::default() };
        let status_counts = [
            &mut status.counts,
            &mut status.sending,
            &mut status.dropped,
            &mut status.malformed,
            &mut status.membership,
        ];
        for counts in status_counts {
            counts.insert("reason".to_owned(), 1);
        }
        testkit::page::check("docs/book/metrics.md", "node", &testkit::page::metrics(&render(&status)));
    }
}
