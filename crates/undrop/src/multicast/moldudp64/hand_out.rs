//! `undrop multicast moldudp64 out`: the messages of a group become a feed.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use daemon::supervisor::Supervisor;
use ipnet::IpNet;
use netio::multicast::PlainTalker;
use netio::poll::{Interest, Poller};
use ricochet::{Event, HistoryNews, JoinOptions, Message, Node, Order, Policy, Subscription, TryRecvError};

use super::feed::{Feed, MESSAGE_MAX};
use super::frame::Frame;
use super::packet::SessionId;
use super::past::Past;
use super::reader::Reader;
use super::sequence::{Origin, Step, Times};
use super::server::Server;
use super::status::{OUT_SCHEMA, OutStatus};
use super::{BRIDGE_PORT, Clock, micros, random_session};
use crate::failure::Advice as _;
use crate::interrupt::Interrupt;
use crate::multicast::ip_group::{check_ip_groups, ip_group};
use crate::multicast::node::{NodeArgs, seconds};
use crate::multicast::reports::Reports;
use crate::multicast::settings;
use crate::output;

/// Times for messages of a feed. Those of one bridge come in order, so only another bridge fills a gap.
const TIMES: Times = Times {
    reorder_us: None,
    retry_us: 0,
    give_up_us: 1_000_000,
    reported_us: 200_000,
    silence_us: 3_000_000,
};
/// Maximum number of messages taken in one turn.
const MESSAGES_MAX: usize = 512;
/// Number of packets that end a session at once.
const ENDS: usize = 3;
/// Interval between them while the command ends.
const END_INTERVAL_US: u64 = 250_000;
/// Time after which a socket that fails is opened again.
const REOPEN_US: u64 = 1_000_000;

const EXAMPLES: &str = "\
Examples:
  undrop multicast moldudp64 out 239.1.1.1:26477 --local lo --serve 127.0.0.1:26478 --group itch \\
      --interface eth0 --seed 10.0.0.7:7900
  undrop multicast moldudp64 out 239.1.1.1:26477 --local eth1 --serve 10.1.0.7:26478 --keep-session \\
      --group itch --interface eth0 --seed 10.0.0.7:7900 --json --every 10

Any member of the group can send: the feed has the messages of all, those of each sender in order. It has a
session of its own, with a name drawn at random at each start, and numbers from 1. With --keep-session it has the
session and the numbers of the feed that `in` hears, and messages of other senders are left out. A gap there is
a gap here. If that feed begins another session, so does this one, in both cases.

If this command is started again with --keep-session and --serve, it answers requests for all messages that the
members of the group keep in their history. Without both, messages from before its start are not handed out.";

/// Hand out a group as a feed in NASDAQ's MoldUDP64.
///
/// Sends heartbeats, and answers requests for messages that handlers missed. At its end it ends the session,
/// and reports. The exit code is 1 if messages were lost on the way here.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// IP group to which the feed is sent
    #[arg(value_name = "ADDRESS:PORT", value_parser = ip_group)]
    feed: SocketAddr,
    /// Interface by which it is sent
    #[arg(long, value_name = "NAME")]
    local: String,
    /// Ricochet group whose messages are handed out
    #[arg(long, value_name = "GROUP")]
    group: String,
    /// Address at which handlers request messages; without it they cannot
    #[arg(long, value_name = "ADDRESS:PORT")]
    serve: Option<SocketAddr>,
    /// Network whose handlers are answered, beside private networks; may be repeated
    #[arg(long, value_name = "NETWORK", requires = "serve")]
    allow: Vec<IpNet>,
    /// Maximum number of requests answered in a second
    #[arg(long, value_name = "N", default_value_t = 20_000, requires = "serve")]
    answers: u32,
    /// Mebibytes of messages kept for requests
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    keep: u32,
    /// Hand out with the session and numbers of the feed that `in` hears
    #[arg(long)]
    keep_session: bool,
    /// Maximum length of a packet with several messages, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1_400, value_parser = clap::value_parser!(u16).range(64..=65_507))]
    packet_max: u16,
    /// Time to live of the packets
    #[arg(long, value_name = "TTL", default_value_t = 1)]
    ttl: u8,
    /// Seconds without a message after which a heartbeat is sent
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    heartbeat: Duration,
    /// Seconds for which requests are answered after the end of the session
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    linger: Duration,
    /// Source port of the packets, the same for all bridges
    #[arg(long, value_name = "PORT", default_value_t = BRIDGE_PORT)]
    bridge_port: u16,
    /// Report as JSON
    #[arg(long)]
    json: bool,
    /// Also report at this interval, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    every: Option<Duration>,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Debug, Default)]
struct Counts {
    handed_out: u64,
    from_history: u64,
    packets: u64,
    heartbeats: u64,
    sessions: u64,
    without_number: u64,
    too_long: u64,
    not_sent: u64,
}

/// State of the session that is handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There was none yet.
    None,
    Open,
    Ended,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    check_ip_groups(&[args.feed], &args.node)?;
    let node = args.node.start()?;
    let (past, from) = Past::of(&args.node, args.serve.is_some(), args.keep_session)?;
    let options = JoinOptions {
        order: Order::Fifo,
        from,
        policy: Some(Policy::Block),
        fragments: true,
        ..JoinOptions::default()
    };
    let subscription = node.join_with(&args.group, &options)?;
    Bridge::new(args, &node, &subscription, &interrupt, past)?.run()
}

struct Bridge<'a> {
    args: &'a Args,
    node: &'a Node,
    subscription: &'a Subscription,
    interrupt: &'a Interrupt,
    clock: Clock,
    talker: PlainTalker,
    opened_us: u64,
    server: Option<Server>,
    /// Puts messages with session and number in order, which may come by several bridges.
    reader: Reader,
    steps: Vec<Step>,
    feed: Feed,
    past: Past,
    state: State,
    /// Time of the last packet.
    sent_us: u64,
    packet: Vec<u8>,
    counts: Counts,
}

impl<'a> Bridge<'a> {
    fn new(
        args: &'a Args,
        node: &'a Node,
        subscription: &'a Subscription,
        interrupt: &'a Interrupt,
        past: Past,
    ) -> anyhow::Result<Self> {
        let talker = PlainTalker::bind(args.feed, &args.local, args.bridge_port)
            .advise("name an interface of this host with `--local`, and a free port with `--bridge-port`")?;
        let bind = |address| Server::bind(address, args.allow.clone(), args.answers);
        let server = args
            .serve
            .map(bind)
            .transpose()
            .context("cannot open the socket for requests")
            .advise("name an address of this host, and a free port, with `--serve`")?;
        let kept_max = usize::try_from(args.keep).unwrap_or(usize::MAX).saturating_mul(1 << 20);
        let feed = Feed::new(random_session(), args.packet_max.into(), kept_max);
        let state = if args.keep_session { State::None } else { State::Open };
        let counts = Counts { sessions: u64::from(state == State::Open), ..Counts::default() };
        Ok(Self {
            args,
            node,
            subscription,
            interrupt,
            clock: Clock::start(),
            talker,
            opened_us: 0,
            server,
            reader: Reader::new(TIMES, None, false),
            steps: Vec::new(),
            feed,
            past,
            state,
            sent_us: 0,
            packet: Vec::new(),
            counts,
        })
    }

    /// Hands out until a stop is requested, ends the session, and reports.
    fn run(mut self) -> anyhow::Result<ExitCode> {
        let Args { feed, local, group, .. } = self.args;
        let hands_out = format!("hands out group {group} to {feed} at {local}");
        output::note(format_args!("node {} at {}, {hands_out}", self.node.id(), self.node.address()));
        let mut supervisor = Supervisor::from_environment()
            .context("cannot tell the service manager")
            .advise("leave NOTIFY_SOCKET unset, or set it to the path of a socket")?;
        supervisor.ready(&hands_out);
        let mut reports = Reports::start(self.args.json)?;
        let outcome = self.hand_out_all(&mut supervisor, &mut reports);
        supervisor.stopping(Duration::ZERO);
        let lingered = self.linger();
        let status = self.status();
        let reported = reports.finish(&status, || status.text());
        outcome.and(lingered).and(reported)?;
        let differs = settings::report(&self.node.status(), false);
        let is_wrong = differs || status.has_losses();
        Ok(if is_wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn hand_out_all(&mut self, supervisor: &mut Supervisor, reports: &mut Reports) -> anyhow::Result<()> {
        let mut poller = Poller::new()?;
        poller.add(&self.subscription.ready_fd()?, 0, Interest::Readable)?;
        if let Some(server) = &self.server {
            poller.add(server.socket(), 1, Interest::Readable)?;
        }
        let mut reported_us = 0;
        let mut may_wait = false;
        while !self.interrupt.is_requested() {
            let heartbeat_us = self.sent_us.saturating_add(micros(self.args.heartbeat));
            let next_us = self.reader.next_timeout().map_or(heartbeat_us, |at_us| at_us.min(heartbeat_us));
            let wait = if may_wait { Duration::ZERO } else { self.clock.wait(Some(next_us)) };
            let _ = poller.wait(Some(wait))?;
            supervisor.turn(self.clock.now_us());
            may_wait = self.take_messages()?;
            self.reader.handle_timeout(self.clock.now_us(), &mut self.steps);
            self.follow_steps();
            self.pack();
            let now_us = self.clock.now_us();
            if let Some(server) = &mut self.server {
                server.serve(now_us, &self.feed);
            }
            if now_us.saturating_sub(self.sent_us) >= micros(self.args.heartbeat) {
                self.beat();
            }
            if self.args.every.is_some_and(|every| now_us - reported_us >= micros(every)) {
                reported_us = now_us;
                let status = self.status();
                reports.pass(&status, || status.text());
            }
        }
        Ok(())
    }

    /// Takes the messages that wait. Returns whether more may wait.
    fn take_messages(&mut self) -> anyhow::Result<bool> {
        for _ in 0..MESSAGES_MAX {
            match self.subscription.try_recv_event() {
                Ok(Event::Message(message)) => self.take(&message),
                Ok(Event::History(history)) => match history.news() {
                    HistoryNews::Begins { .. } => {}
                    HistoryNews::Nothing { .. } | HistoryNews::Ends => self.end_past(),
                },
                // Losses are counted, and news of other kinds were not asked for.
                Ok(_) => {}
                Err(TryRecvError::Empty) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    fn take(&mut self, message: &Message) {
        let (now_us, payload) = (self.clock.now_us(), message.payload());
        let Self { reader, steps, .. } = self;
        let frame = Frame::read(message.headers());
        if let Some((session, number)) = frame.filter(|_| message.is_past()).map(|frame| frame.place()) {
            reader.enter(now_us, session, number, steps);
        }
        match frame {
            Some(Frame::Message { session, number }) => {
                let one = std::iter::once(payload);
                reader.handle_messages(now_us, session, number, one, Origin::Feed, steps);
            }
            Some(Frame::Lost { session, first, last }) => {
                reader.handle_lost(now_us, session, first, last, steps);
            }
            Some(Frame::End { session, next }) => reader.handle_end(now_us, session, next, steps),
            None if self.args.keep_session => self.counts.without_number += 1,
            None => self.push(payload, false),
        }
        self.follow_steps();
    }

    fn follow_steps(&mut self) {
        for step in std::mem::take(&mut self.steps) {
            match step {
                Step::Begin { session, next } if self.args.keep_session => {
                    self.pack();
                    if self.state != State::None && self.feed.session() == session {
                        self.feed.skip_to(next);
                        self.state = State::Open;
                    } else {
                        self.begin(session, next);
                    }
                }
                // Another session of the feed is another one here, unless this one has no message yet.
                Step::Begin { .. } if self.feed.next() > 1 => self.end(),
                Step::Begin { .. } => {}
                Step::Message { session, number, payload } => {
                    self.push(&payload, self.past.holds(session, number));
                }
                Step::Lost { session, first, last } => {
                    tracing::warn!(group = self.args.group, %session, first, last, "messages did not come");
                    if self.args.keep_session {
                        self.pack();
                        self.feed.skip_to(last + 1);
                    }
                }
                Step::End { .. } => self.end(),
            }
        }
    }

    /// Tells the handlers how far the feed has come, once the history of the group has been read.
    fn end_past(&mut self) {
        self.past.end(self.reader.known());
        let messages = self.counts.from_history;
        if messages > 0 {
            let (session, oldest) = (self.feed.session(), self.feed.oldest());
            tracing::info!(messages, %session, oldest, "handlers can request messages of the history");
        } else {
            tracing::info!("the group keeps no messages; handlers can request only those that come");
        }
        let times = if self.state == State::Ended { ENDS } else { 1 };
        (0..times).for_each(|_| self.beat());
    }

    /// Hands out a message, or keeps one of the past for requests.
    fn push(&mut self, message: &[u8], is_past: bool) {
        if message.len() > MESSAGE_MAX {
            self.counts.too_long += 1;
            let (length, max) = (message.len(), MESSAGE_MAX);
            tracing::warn!(length, max, "a message is longer than a datagram takes");
            if self.args.keep_session {
                self.pack();
                self.feed.skip_to(self.feed.next() + 1);
            }
            return;
        }
        if self.state != State::Open {
            self.begin(random_session(), 1);
        }
        self.feed.push(message);
        if is_past {
            self.feed.leave_to_requests();
            self.counts.from_history += 1;
        } else {
            self.counts.handed_out += 1;
        }
    }

    fn begin(&mut self, session: SessionId, next: u64) {
        self.end();
        self.feed.begin(session, next);
        self.state = State::Open;
        self.counts.sessions += 1;
        tracing::info!(feed = %self.args.feed, %session, next, "a session begins");
    }

    /// Ends the session, if one is open.
    fn end(&mut self) {
        self.pack();
        if self.state != State::Open {
            return;
        }
        self.state = State::Ended;
        for _ in 0..ENDS {
            self.beat();
        }
        tracing::info!(feed = %self.args.feed, session = %self.feed.session(), "a session has ended");
    }

    /// Sends the messages that have not been sent.
    fn pack(&mut self) {
        while self.feed.pack(&mut self.packet) > 0 {
            self.counts.packets += 1;
            self.send();
        }
    }

    /// Sends a heartbeat, or that the session has ended.
    fn beat(&mut self) {
        match self.state {
            _ if self.past.is_reading() => return self.sent_us = self.clock.now_us(),
            State::None => return self.sent_us = self.clock.now_us(),
            State::Open => self.feed.write_heartbeat(&mut self.packet),
            State::Ended => self.feed.write_end(&mut self.packet),
        }
        self.counts.heartbeats += 1;
        self.send();
    }

    fn send(&mut self) {
        let now_us = self.clock.now_us();
        self.sent_us = now_us;
        let Err(error) = self.talker.send(self.args.ttl, &self.packet) else { return };
        // Handlers request what the packet contains.
        self.counts.not_sent += 1;
        if now_us.saturating_sub(self.opened_us) >= REOPEN_US {
            let Args { feed, local, bridge_port, .. } = self.args;
            tracing::warn!(%feed, interface = local, %error, "a packet cannot be sent");
            self.opened_us = now_us;
            // The interface may have been replaced.
            if let Ok(talker) = PlainTalker::bind(*feed, local, *bridge_port) {
                self.talker = talker;
            }
        }
    }

    /// Ends the session, and answers requests for a while.
    fn linger(&mut self) -> anyhow::Result<()> {
        self.end();
        let until_us = self.clock.now_us().saturating_add(micros(self.args.linger));
        let Some(server) = &self.server else { return Ok(()) };
        let mut poller = Poller::new()?;
        poller.add(server.socket(), 1, Interest::Readable)?;
        while self.clock.now_us() < until_us {
            let _ = poller.wait(Some(self.clock.wait(Some(until_us))))?;
            let now_us = self.clock.now_us();
            if let Some(server) = &mut self.server {
                server.serve(now_us, &self.feed);
            }
            if now_us.saturating_sub(self.sent_us) >= END_INTERVAL_US {
                self.beat();
            }
        }
        Ok(())
    }

    fn status(&self) -> OutStatus {
        let (reader, queue) = (self.reader.counts(), self.subscription.counts());
        let server = self.server.as_ref().map(Server::counts).unwrap_or_default();
        let position = self.reader.position();
        OutStatus {
            schema: OUT_SCHEMA,
            node: self.node.id().to_string(),
            address: self.node.address().to_string(),
            feed: self.args.feed.to_string(),
            group: self.args.group.clone(),
            members: self.node.members(&self.args.group),
            session: self.feed.session().to_string(),
            next: self.feed.next(),
            oldest: self.feed.oldest(),
            from_session: position.map(|(session, _)| session.to_string()),
            from_next: position.map(|(_, next)| next),
            handed_out: self.counts.handed_out,
            from_history: self.counts.from_history,
            packets: self.counts.packets,
            heartbeats: self.counts.heartbeats,
            sessions: self.counts.sessions,
            lost: reader.lost,
            lost_here: queue.lost + queue.dropped,
            duplicates: reader.duplicates,
            without_number: self.counts.without_number,
            too_long: self.counts.too_long,
            not_sent: self.counts.not_sent + server.not_sent,
            requests: server.requests,
            answered: server.answered,
            messages_answered: server.messages,
            not_kept: server.not_kept,
            refused: server.refused,
            over_rate: server.over_rate,
            malformed: server.malformed,
        }
    }
}
