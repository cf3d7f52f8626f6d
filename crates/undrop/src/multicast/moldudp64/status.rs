//! The reports of the bridges, as text and as JSON.

use serde::Serialize;

/// Schema of the document of `in`.
pub(super) const IN_SCHEMA: &str = "undrop.multicast.moldudp64.in/1";
/// Schema of the document of `out`.
pub(super) const OUT_SCHEMA: &str = "undrop.multicast.moldudp64.out/1";

/// State of `undrop multicast moldudp64 in`, which carries a feed into a group. Counts begin at its start.
#[derive(Debug, Default, Serialize)]
pub(super) struct InStatus {
    /// Name and version of this schema.
    pub(super) schema: &'static str,
    /// Identifier of the node.
    pub(super) node: String,
    /// Unicast address of the node.
    pub(super) address: String,
    /// IP group and port of the feed.
    pub(super) feed: String,
    /// Name of the group.
    pub(super) group: String,
    /// Other nodes in the group.
    pub(super) members: usize,
    /// Present session of the feed; null before its first packet.
    pub(super) session: Option<String>,
    /// Number of the next message of the session.
    pub(super) next: Option<u64>,
    /// Messages that are missing and may still come.
    pub(super) missing: u64,
    /// Messages carried.
    pub(super) carried: u64,
    /// Those of them that request servers sent.
    pub(super) answered: u64,
    /// Messages that did not come, which the group was told.
    pub(super) lost: u64,
    /// Requests sent to request servers.
    pub(super) requests: u64,
    /// Messages that came again.
    pub(super) duplicates: u64,
    /// Sessions heard.
    pub(super) sessions: u64,
    /// Packets of the feed that were heard.
    pub(super) packets: u64,
    /// Packets handed out by a bridge, and not carried.
    pub(super) from_bridges: u64,
    /// Packets of sessions that are over.
    pub(super) of_past_sessions: u64,
    /// Packets of other sessions.
    pub(super) of_other_sessions: u64,
    /// Packets with numbers far from the others.
    pub(super) implausible: u64,
    /// Datagrams that are no packets of MoldUDP64.
    pub(super) malformed: u64,
    /// Messages dropped for want of room, and requested later.
    pub(super) no_room: u64,
    /// Messages longer than the group takes, which it was told of as lost.
    pub(super) too_long: u64,
    /// Datagrams that the kernel dropped before they were read.
    pub(super) overflowed: u64,
    /// Times at which the feed fell silent.
    pub(super) silences: u64,
}

impl InStatus {
    /// Returns the text for people.
    pub(super) fn text(&self) -> String {
        let session = self.session.as_ref().map_or("no session".to_owned(), |session| {
            format!("session {session}, next message {}", self.next.unwrap_or_default())
        });
        let first = format!(
            "{}: {session}, {} packets heard, {} messages carried to {} members of {}",
            self.feed, self.packets, self.carried, self.members, self.group
        );
        let counts = [
            (self.missing, "messages missing, which may still come"),
            (self.lost, "messages that did not come"),
            (self.answered, "messages from request servers"),
            (self.requests, "requests"),
            (self.duplicates, "messages that came again"),
            (self.from_bridges, "packets of bridges, not carried"),
            (self.of_past_sessions, "packets of sessions that are over"),
            (self.of_other_sessions, "packets of other sessions"),
            (self.implausible, "packets with numbers far from the others"),
            (self.malformed, "datagrams that are no packets of MoldUDP64"),
            (self.no_room, "messages dropped for want of room, and requested later"),
            (self.too_long, "messages longer than the group takes"),
            (self.overflowed, "packets dropped by the kernel before they were read"),
            (self.silences, "times at which the feed fell silent"),
        ];
        listed(first, &counts)
    }
}

/// State of `undrop multicast moldudp64 out`, which hands a group out as a feed. Counts begin at its start.
#[derive(Debug, Default, Serialize)]
pub(super) struct OutStatus {
    /// Name and version of this schema.
    pub(super) schema: &'static str,
    /// Identifier of the node.
    pub(super) node: String,
    /// Unicast address of the node.
    pub(super) address: String,
    /// IP group and port of the feed.
    pub(super) feed: String,
    /// Name of the group.
    pub(super) group: String,
    /// Other nodes in the group.
    pub(super) members: usize,
    /// Session that is handed out.
    pub(super) session: String,
    /// Number of the next message of the session.
    pub(super) next: u64,
    /// Number of the oldest message that can be requested.
    pub(super) oldest: u64,
    /// Session of the feed that `in` hears; null before its first message.
    pub(super) from_session: Option<String>,
    /// Number of the next message of the feed that `in` hears.
    pub(super) from_next: Option<u64>,
    /// Messages handed out.
    pub(super) handed_out: u64,
    /// Messages from the history of the group, which handlers can request.
    pub(super) from_history: u64,
    /// Packets sent.
    pub(super) packets: u64,
    /// Heartbeats sent.
    pub(super) heartbeats: u64,
    /// Sessions handed out.
    pub(super) sessions: u64,
    /// Messages of the feed that never came to `in`, or to this node.
    pub(super) lost: u64,
    /// Packets of Ricochet that this node lost, and messages that it dropped.
    pub(super) lost_here: u64,
    /// Messages that another bridge had brought.
    pub(super) duplicates: u64,
    /// Messages without a place in a feed, which `--keep-session` leaves out.
    pub(super) without_number: u64,
    /// Messages longer than a datagram takes.
    pub(super) too_long: u64,
    /// Packets that the kernel did not take.
    pub(super) not_sent: u64,
    /// Requests that came.
    pub(super) requests: u64,
    /// Requests that were answered.
    pub(super) answered: u64,
    /// Messages in the answers.
    pub(super) messages_answered: u64,
    /// Requests for messages that are not kept.
    pub(super) not_kept: u64,
    /// Requests from networks that are not allowed.
    pub(super) refused: u64,
    /// Requests beyond `--answers`.
    pub(super) over_rate: u64,
    /// Datagrams that are no requests.
    pub(super) malformed: u64,
}

impl OutStatus {
    /// Returns whether handlers of the feed do not get all messages.
    pub(super) fn has_losses(&self) -> bool {
        self.lost + self.lost_here + self.too_long > 0
    }

    /// Returns the text for people.
    pub(super) fn text(&self) -> String {
        let first = format!(
            "{}: session {}, next message {}, {} messages handed out in {} packets, {} other members of {}",
            self.feed, self.session, self.next, self.handed_out, self.packets, self.members, self.group
        );
        let counts = [
            (self.from_history, "messages from the history of the group, kept for requests"),
            (self.requests, "requests"),
            (self.answered, "requests answered"),
            (self.messages_answered, "messages in answers"),
            (self.not_kept, "requests for messages that are not kept"),
            (self.refused, "requests from networks that `--allow` does not name"),
            (self.over_rate, "requests beyond `--answers`"),
            (self.malformed, "datagrams that are no requests"),
            (self.lost, "messages of the feed that did not come"),
            (self.lost_here, "packets that this node lost"),
            (self.duplicates, "messages that came again"),
            (self.without_number, "messages without session and number, not handed out"),
            (self.too_long, "messages longer than a datagram takes"),
            (self.not_sent, "packets that the kernel did not take"),
        ];
        listed(first, &counts)
    }
}

/// Returns a text with the counters that are not 0 below its first line.
fn listed(first: String, counts: &[(u64, &str)]) -> String {
    let shown = counts.iter().filter(|(count, _)| *count > 0);
    shown.fold(first, |text, (count, what)| format!("{text}\n  {count} {what}"))
}
