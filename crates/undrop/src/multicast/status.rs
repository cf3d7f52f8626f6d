//! `undrop multicast status`: the counters of a running node.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use ricochet::status::reasons::{
    DROPPED, Dropped, MALFORMED, Malformed, MembershipDropped, MembershipMalformed, Reason as _, Unsound,
};
use ricochet::status::{Counts, Status, WindowStatus};

use super::config;
use crate::failure::Advice as _;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  undrop multicast status
  undrop multicast status node.toml --json | jq .counts
  watch -n 1 undrop multicast status --control /run/undrop/prices.sock";

/// Control socket of a node whose place is not stated.
pub(crate) const CONTROL_DEFAULT: &str = "/run/undrop/node.sock";
/// Text of a count by its name.
type Shown = fn(&str) -> String;

/// Maximum number of groups and peers in the text; the JSON has all.
const SHOWN_MAX: usize = 20;

/// Show the state of a running node: groups, peers, losses, recoveries, drops by reason.
///
/// The node must have a control socket: `--control`, `node.control` in its configuration, or
/// `Builder::control` in a program.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    socket: Socket,
    /// Print the node's answer as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let status = ask(&args.socket.path()?)?;
    output::line(&if args.json { serde_json::to_string_pretty(&status)? } else { text(&status) })?;
    Ok(ExitCode::SUCCESS)
}

/// Asks the node at a control socket.
pub(super) fn ask(control: &Path) -> anyhow::Result<Status> {
    Status::ask(control).with_context(|| format!("no node answers on {}", control.display())).advise(
        "start a node with `--control PATH` or `node.control`, name its socket with `--control PATH` or \
         `--config FILE`, and run this command as the user of that node, or as root",
    )
}

/// The control socket of a running node, as a command line states it.
#[derive(Debug, clap::Args)]
pub(super) struct Socket {
    /// The node's control socket [default: /run/undrop/node.sock]
    #[arg(long, value_name = "PATH", conflicts_with_all = ["config", "file"])]
    control: Option<PathBuf>,
    /// Take the control socket from this configuration
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Take the control socket from this configuration, in place of the argument FILE
    #[arg(long, short, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
}

impl Socket {
    /// The stated socket, that of the stated configuration, or the usual one.
    pub(super) fn path(&self) -> anyhow::Result<PathBuf> {
        let Some(file) = self.config.as_ref().or(self.file.as_ref()) else {
            return Ok(self.control.clone().unwrap_or_else(|| CONTROL_DEFAULT.into()));
        };
        config::control(file)?
            .with_context(|| format!("expected `node.control` in {}, saw none", file.display()))
            .advise("set it, or give `--control PATH`")
    }
}

fn text(status: &Status) -> String {
    let address = status.address.map_or_else(|| "?".to_owned(), |address| address.to_string());
    let how = if status.unicast { "unicast to each member" } else { "multicast" };
    let mut text = format!(
        "{}\nnode {} at {address}, {how}, up {:.0} s, room for {:.1} MiB of packets\n",
        status.verdict.text,
        status.id,
        status.uptime_ms as f64 / 1_000.0,
        status.memory_bytes as f64 / f64::from(1 << 20)
    );
    windows(&mut text, &status.windows);
    let _ = writeln!(
        text,
        "\n{} over {}",
        many(status.groups.len(), "group"),
        many(status.ip_groups, "IP group")
    );
    for group in status.groups.iter().take(SHOWN_MAX) {
        let _ = writeln!(text, "  {}: {}, c = {}", group.name, many(group.members, "other member"), group.c);
    }
    more(&mut text, status.groups.len());
    let _ = writeln!(text, "{}", many(status.peers.len(), "peer"));
    for peer in status.peers.iter().take(SHOWN_MAX) {
        let _ = writeln!(text, "  {} at {}, in {}", peer.id, peer.address, many(peer.groups, "group"));
        for difference in &peer.settings_differ {
            let _ = writeln!(text, "    SETTINGS DIFFER: {difference}");
        }
        if peer.hears_no_multicast {
            let _ = writeln!(text, "    NO MULTICAST: it does not hear this node and gets copies");
        }
        if peer.multicast_unheard {
            let _ = writeln!(text, "    NO MULTICAST: this node does not hear it and gets copies");
        }
    }
    more(&mut text, status.peers.len());
    for key in &status.keys {
        let role = if key.signs { "signs" } else { "accepted" };
        let _ = writeln!(text, "key {}: {role}, {} datagrams authenticated", key.name, key.accepted);
    }
    if let Some(why) = &status.key_error {
        let _ = writeln!(text, "KEY FILE: {why}");
    }
    members(&mut text, status);
    subscriptions(&mut text, status);
    let (kernel, ring) = (&status.kernel, &status.ring);
    let _ = writeln!(
        text,
        "sockets: {} received, {} overflowed, {} not for us, {} truncated\nring: {} of {} waiting, {} dropped",
        kernel.received,
        kernel.overflowed,
        kernel.not_for_us,
        kernel.truncated,
        ring.waiting,
        ring.capacity,
        ring.dropped
    );
    let of_counts: [(&str, &Counts, Shown); 6] = [
        ("packets", &status.counts, words),
        ("sending", &status.sending, words),
        ("dropped", &status.dropped, Dropped::text_of),
        ("malformed", &status.malformed, Malformed::text_of),
        ("unsound", &status.unsound, Unsound::text_of),
        ("membership", &status.membership, of_membership),
    ];
    for (title, counts, shown) in of_counts {
        reasons(&mut text, title, counts, shown);
    }
    text.truncate(text.trim_end().len());
    text
}

/// Appends what happened of late, if the node keeps it.
fn windows(text: &mut String, windows: &[WindowStatus]) {
    for window in windows.iter().filter(|window| window.covered_ms > 0) {
        let missing = window.missing_percent().map_or_else(String::new, |share| format!(" ({share:.2} %)"));
        let _ = writeln!(
            text,
            "last {}: {} sent, {} received, {} missing at first{missing}: {} repaired, {} requested, {} lost; {} \
             dropped unread",
            span(window.span_s),
            window.sent,
            window.received,
            window.discovered,
            window.repaired,
            window.requested,
            window.lost,
            window.dropped
        );
    }
}

fn span(seconds: u64) -> String {
    match seconds {
        3_600 => "hour".to_owned(),
        minutes if minutes % 60 == 0 => format!("{} min", minutes / 60),
        seconds => format!("{seconds} s"),
    }
}

/// Appends where the members come from, if that is a file with a mistake or a registry.
fn members(text: &mut String, status: &Status) {
    if let Some(why) = &status.member_file_error {
        let _ = writeln!(text, "MEMBER FILE: {why}");
    }
    let Some(registry) = &status.registry else { return };
    let reached =
        if registry.reached { "reached" } else { "NOT REACHED, the members stay as they are known" };
    // Kubernetes registers the nodes itself.
    let registered = match (registry.kind == "etcd", registry.registered) {
        (true, true) => ", registered",
        (true, false) => ", NOT REGISTERED",
        (false, _) => "",
    };
    let endpoint = registry.endpoint.as_deref().unwrap_or("no server");
    let _ = writeln!(text, "members from {} at {endpoint}: {reached}{registered}", registry.kind);
    if let Some(why) = &registry.error {
        let _ = writeln!(text, "  {why}");
    }
}

fn subscriptions(text: &mut String, status: &Status) {
    for subscription in &status.subscriptions {
        let counts = subscription.counts;
        let _ = writeln!(
            text,
            "subscription: {} of {} waiting, {} held back, {} queued, {} dropped, {} lost",
            subscription.waiting,
            subscription.capacity,
            subscription.held,
            counts.queued,
            counts.dropped,
            counts.lost
        );
        if counts.dropped > 0 {
            let _ = writeln!(
                text,
                "SLOW READER: {} messages dropped; read faster, raise `buffers.queue`, or set `buffers.policy` \
                 to \"block\"",
                counts.dropped
            );
        }
    }
}

/// A number with its noun.
fn many(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn more(text: &mut String, count: usize) {
    if count > SHOWN_MAX {
        let _ = writeln!(text, "  and {} more (--json shows all)", count - SHOWN_MAX);
    }
}

fn words(name: &str) -> String {
    name.replace('_', " ")
}

/// The text of a count of the membership.
fn of_membership(name: &str) -> String {
    let rest = |prefix: &str| name.strip_prefix(prefix)?.strip_prefix('_');
    if let Some(reason) = rest(MALFORMED) {
        return format!("malformed: {}", MembershipMalformed::text_of(reason));
    }
    rest(DROPPED).map_or_else(|| words(name), MembershipDropped::text_of)
}

/// Appends the counts above 0, the largest first.
fn reasons(text: &mut String, title: &str, counts: &Counts, shown: Shown) {
    let mut counts: Vec<_> = counts.iter().filter(|(_, count)| **count > 0).collect();
    counts.sort_by_key(|&(_, count)| std::cmp::Reverse(*count));
    if !counts.is_empty() {
        let listed: Vec<String> =
            counts.iter().map(|(name, count)| format!("{count} {}", shown(name))).collect();
        let _ = writeln!(text, "{title}: {}", listed.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_shown_by_their_texts() {
        let mut status = Status::default();
        status.dropped.insert("unauthentic".to_owned(), 7);
        status.membership.insert("malformed_too_long".to_owned(), 2);
        status.membership.insert("dropped_not_member".to_owned(), 3);
        status.membership.insert("sent_bytes".to_owned(), 9);
        let shown = text(&status);
        for line in
            ["dropped: 7 not authentic", "membership: 9 sent bytes, 3 from no member, 2 malformed: too long"]
        {
            assert!(shown.contains(line), "{line} is not in\n{shown}");
        }
    }
}
