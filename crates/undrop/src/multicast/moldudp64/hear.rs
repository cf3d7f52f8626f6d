//! `undrop multicast moldudp64 in`: the messages of a feed become messages of a group.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use daemon::supervisor::Supervisor;
use netio::multicast::PlainListener;
use netio::poll::{Interest, Poller};
use nix::net::if_::if_nametoindex;
use ricochet::{
    Event, HistoryNews, JoinOptions, Node, Order, RecvTimeoutError, SendError, SendOptions, Sender, Start,
    Subscription,
};

use super::frame::Frame;
use super::packet::{DATAGRAM_MAX, Packet, SessionId};
use super::past::Reached;
use super::reader::Reader;
use super::sequence::{Origin, Step, Times};
use super::status::{IN_SCHEMA, InStatus};
use super::{BRIDGE_PORT, CHECK, Clock, micros, session_id};
use crate::failure::Advice as _;
use crate::interrupt::Interrupt;
use crate::multicast::ip_group::{check_ip_groups, ip_group};
use crate::multicast::node::{NodeArgs, seconds};
use crate::multicast::reports::Reports;
use crate::multicast::settings;
use crate::output;

/// Requested receive buffer.
const BUFFER_BYTES: usize = 8 << 20;
/// Time after which a gap is requested, because its messages are not merely out of order.
const REORDER_US: u64 = 500;
/// Interval after which it is requested again at first.
const RETRY_US: u64 = 20_000;
/// Time after which a gap is lost if there is nobody to ask.
const UNASKED_US: u64 = 20_000;
/// Silence of a feed of which this command says so, and after which another session may begin. A feed sends a
/// heartbeat each second.
const SILENCE_US: u64 = 3_000_000;
/// Maximum number of batches of packets read in one turn.
const BATCHES_MAX: usize = 8;
/// Interval between looks whether the interface was replaced.
const LOOK_US: u64 = 100_000;
/// Maximum number of requests of one turn.
const REQUESTS_MAX: usize = 16;
/// Maximum number of answers read in one turn.
const ANSWERS_MAX: usize = 64;
/// Maximum number of messages of other senders dropped at a time.
const OTHERS_MAX: usize = 1_024;
/// Longest wait for the messages of the past that tell how far the bridge before this one has come.
const PAST_WAIT: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "\
Examples:
  undrop multicast moldudp64 in 233.54.12.111:26477 --local eth1 --group itch --interface eth0
  undrop multicast moldudp64 in 233.54.12.111:26477 --local eth1 --requests 10.1.0.5:26478 --requests \\
      10.1.0.6:26478 --group itch --interface eth0 --seed 10.0.0.7:7900 --json --every 10

Each message of the feed is a message of the group. Its headers state session and number. Gaps that nobody fills
and the end of a session are messages too. If this command is started again, it continues behind the last message
that the members of the group keep. Two of them may carry the same feed: `out` hands out each message once.";

/// Carry a feed in NASDAQ's MoldUDP64 over a group.
///
/// Hears the feed, asks its request servers for messages that are missing, and sends all to the group, in
/// order. Reports at its end. The exit code is 1 if messages did not come.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// IP group of the feed
    #[arg(value_name = "ADDRESS:PORT", value_parser = ip_group)]
    feed: SocketAddr,
    /// Interface at which the feed is heard
    #[arg(long, value_name = "NAME")]
    local: String,
    /// Ricochet group that carries the messages
    #[arg(long, value_name = "GROUP")]
    group: String,
    /// Server that is asked for missing messages; may be repeated
    #[arg(long, value_name = "ADDRESS:PORT")]
    requests: Vec<SocketAddr>,
    /// Carry this session alone
    #[arg(long, value_name = "SESSION", value_parser = session_id)]
    session: Option<SessionId>,
    /// Begin with the first message of the session, which the servers are asked for
    #[arg(long, requires = "requests")]
    from_first: bool,
    /// Time in seconds after which messages that no server sends are given up
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    give_up: Duration,
    /// Source port of the feeds that bridges hand out, of which nothing is carried
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
    packets: u64,
    from_bridges: u64,
    malformed: u64,
    too_long: u64,
    silences: u64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    check_ip_groups(&[args.feed], &args.node)?;
    if let [first, others @ ..] = &args.requests[..]
        && let Some(other) = others.iter().find(|other| other.is_ipv4() != first.is_ipv4())
    {
        return Err(anyhow!("expected request servers of one IP version, saw {first} and {other}"))
            .advise("name only those of one IP version with `--requests`");
    }
    let node = args.node.start()?;
    let mut bridge = Bridge::new(args, &node, &interrupt)?;
    bridge.resume()?;
    bridge.run()
}

struct Bridge<'a> {
    args: &'a Args,
    node: &'a Node,
    interrupt: &'a Interrupt,
    clock: Clock,
    sender: Sender,
    /// Makes this node a member, which keeps the history of the group.
    membership: Option<Subscription>,
    listener: PlainListener,
    /// Datagrams that the kernel dropped at earlier listeners.
    overflowed: u64,
    /// Socket for requests and their answers.
    asking: UdpSocket,
    /// Number of requests so far, by which the servers take turns.
    asked: usize,
    reader: Reader,
    steps: Vec<Step>,
    buffer: Vec<u8>,
    counts: Counts,
    heard_us: u64,
    /// Time of the last look at the interface.
    looked_us: u64,
    is_silent: bool,
}

impl<'a> Bridge<'a> {
    fn new(args: &'a Args, node: &'a Node, interrupt: &'a Interrupt) -> anyhow::Result<Self> {
        let listener = PlainListener::bind(args.feed, &args.local, BUFFER_BYTES)
            .with_context(|| format!("cannot hear {} at {}", args.feed, args.local))
            .advise(
                "name an interface of this host with `--local`, and let other programs on this host bind the \
                 port with SO_REUSEADDR",
            )?;
        let any = if args.requests.first().is_none_or(SocketAddr::is_ipv4) {
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))
        } else {
            SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))
        };
        let asking = UdpSocket::bind(any).context("cannot open a socket for requests")?;
        asking.set_nonblocking(true)?;
        let can_ask = !args.requests.is_empty();
        let times = Times {
            reorder_us: can_ask.then_some(REORDER_US),
            retry_us: RETRY_US,
            give_up_us: if can_ask { micros(args.give_up) } else { UNASKED_US },
            reported_us: 0,
            silence_us: SILENCE_US,
        };
        Ok(Self {
            args,
            node,
            interrupt,
            clock: Clock::start(),
            sender: node.sender(&args.group)?.fragments(true),
            membership: None,
            listener,
            overflowed: 0,
            asking,
            asked: 0,
            reader: Reader::new(times, args.session, args.from_first),
            steps: Vec::new(),
            buffer: vec![0; DATAGRAM_MAX],
            counts: Counts::default(),
            heard_us: 0,
            looked_us: 0,
            is_silent: false,
        })
    }

    /// Learns from the members of the group how far a bridge has come, and continues there.
    fn resume(&mut self) -> anyhow::Result<()> {
        // All that they keep: the newest messages may be those of other programs.
        let from = Start::Since(self.args.node.config()?.history.age_ms);
        let options = JoinOptions { order: Order::Fifo, from, fragments: true, ..JoinOptions::default() };
        let past = self.node.join_with(&self.args.group, &options)?;
        let mut reached = Reached::default();
        while self.clock.now_us() < micros(PAST_WAIT) && !self.interrupt.is_requested() {
            match past.recv_event_timeout(CHECK) {
                Ok(Event::Message(message)) => {
                    let is_wanted = |session| self.args.session.is_none_or(|only| only == session);
                    let frame = Frame::read(message.headers()).filter(|frame| is_wanted(frame.place().0));
                    frame.into_iter().for_each(|frame| reached.take(frame));
                }
                Ok(Event::History(history)) => match history.news() {
                    HistoryNews::Begins { .. } => {}
                    HistoryNews::Nothing { .. } | HistoryNews::Ends => break,
                },
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if let Some((session, next)) = reached.place() {
            self.reader.resume(self.clock.now_us(), session, next);
            tracing::info!(%session, next, "continues after the last message that the group has");
        }
        self.membership = Some(past);
        Ok(())
    }

    /// Carries the feed until a stop is requested, and reports.
    fn run(mut self) -> anyhow::Result<ExitCode> {
        let Args { feed, local, group, .. } = self.args;
        let carries = format!("carries {feed} at {local} to group {group}");
        output::note(format_args!("node {} at {}, {carries}", self.node.id(), self.node.address()));
        let mut supervisor = Supervisor::from_environment()
            .context("cannot tell the service manager")
            .advise("leave NOTIFY_SOCKET unset, or set it to the path of a socket")?;
        supervisor.ready(&carries);
        let mut reports = Reports::start(self.args.json)?;
        let outcome = self.carry_all(&mut supervisor, &mut reports);
        supervisor.stopping(Duration::ZERO);
        let status = self.status();
        let reported = reports.finish(&status, || status.text());
        outcome.and(reported)?;
        let differs = settings::report(&self.node.status(), false);
        let is_wrong = differs || status.lost + status.too_long > 0;
        Ok(if is_wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn carry_all(&mut self, supervisor: &mut Supervisor, reports: &mut Reports) -> anyhow::Result<()> {
        let mut poller = self.poller()?;
        let mut reported_us = 0;
        self.heard_us = self.clock.now_us();
        let mut may_wait = false;
        while !self.interrupt.is_requested() {
            let wait = self.clock.wait(self.reader.next_timeout());
            let _ = poller.wait(Some(if may_wait { Duration::ZERO } else { wait }))?;
            supervisor.turn(self.clock.now_us());
            may_wait = self.hear(supervisor)?;
            self.take_answers()?;
            self.reader.handle_timeout(self.clock.now_us(), &mut self.steps);
            self.carry(supervisor)?;
            self.ask();
            self.leave_out_others();
            self.note_silence();
            if self.listen_again() {
                poller = self.poller()?;
            }
            let now_us = self.clock.now_us();
            if self.args.every.is_some_and(|every| now_us - reported_us >= micros(every)) {
                reported_us = now_us;
                let status = self.status();
                reports.pass(&status, || status.text());
            }
        }
        Ok(())
    }

    fn poller(&self) -> io::Result<Poller> {
        let poller = Poller::new()?;
        poller.add(&self.listener, 0, Interest::Readable)?;
        poller.add(&self.asking, 1, Interest::Readable)?;
        Ok(poller)
    }

    /// Reads packets that wait. Returns whether more may wait.
    fn hear(&mut self, supervisor: &mut Supervisor) -> anyhow::Result<bool> {
        for _ in 0..BATCHES_MAX {
            let Self { listener, reader, steps, counts, clock, heard_us, args, .. } = self;
            let now_us = clock.now_us();
            let may_wait = listener.recv(|heard| {
                if heard.from.port() == args.bridge_port {
                    counts.from_bridges += 1;
                    return;
                }
                counts.packets += 1;
                *heard_us = now_us;
                match Packet::read(heard.payload) {
                    Ok(packet) => reader.handle_packet(now_us, &packet, Origin::Feed, steps),
                    Err(_) => counts.malformed += 1,
                }
            })?;
            self.carry(supervisor)?;
            if !may_wait || self.interrupt.is_requested() {
                return Ok(false);
            }
        }
        // A feed without pause must not keep answers from being read.
        Ok(true)
    }

    fn take_answers(&mut self) -> anyhow::Result<()> {
        let now_us = self.clock.now_us();
        for _ in 0..ANSWERS_MAX {
            // An error that an earlier request caused, such as a port that nobody has, is no reason to stop.
            let Ok((length, from)) = self.asking.recv_from(&mut self.buffer) else { return Ok(()) };
            let packet = Packet::read(&self.buffer[..length]);
            match packet {
                Ok(packet) if self.args.requests.contains(&from) => {
                    self.reader.handle_packet(now_us, &packet, Origin::Answer, &mut self.steps);
                }
                _ => self.counts.malformed += 1,
            }
        }
        Ok(())
    }

    /// Sends the requests that are due, each to the next server.
    fn ask(&mut self) {
        let now_us = self.clock.now_us();
        for _ in 0..REQUESTS_MAX {
            let Some(request) = self.reader.poll_request(now_us) else { return };
            let Some(server) = self.args.requests.get(self.asked % self.args.requests.len().max(1)) else {
                return;
            };
            self.asked += 1;
            let mut bytes = Vec::new();
            request.write(&mut bytes);
            // A request that is lost is repeated.
            let _ = self.asking.send_to(&bytes, server);
        }
    }

    /// Sends what the reader has handed on.
    fn carry(&mut self, supervisor: &mut Supervisor) -> anyhow::Result<()> {
        for step in std::mem::take(&mut self.steps) {
            match step {
                Step::Begin { session, next } => {
                    tracing::info!(feed = %self.args.feed, %session, next, "a session begins");
                }
                Step::Message { session, number, payload } => {
                    if !self.send(Frame::Message { session, number }, &payload, supervisor)? {
                        self.counts.too_long += 1;
                        let length = payload.len();
                        tracing::warn!(%session, number, length, "a message is longer than the group takes");
                        self.send(Frame::Lost { session, first: number, last: number }, &[], supervisor)?;
                    }
                }
                Step::Lost { session, first, last } => {
                    tracing::warn!(feed = %self.args.feed, %session, first, last, "messages did not come");
                    self.send(Frame::Lost { session, first, last }, &[], supervisor)?;
                }
                Step::End { session, next } => {
                    tracing::info!(feed = %self.args.feed, %session, next, "a session has ended");
                    self.send(Frame::End { session, next }, &[], supervisor)?;
                }
            }
        }
        Ok(())
    }

    /// Drops the messages of other senders of the group.
    fn leave_out_others(&self) {
        let Some(membership) = &self.membership else { return };
        for _ in 0..OTHERS_MAX {
            if membership.try_recv_event().is_err() {
                return;
            }
        }
    }

    /// Sends a message to the group, and waits until the readers have room. Returns false if it is too long.
    fn send(&self, frame: Frame, payload: &[u8], supervisor: &mut Supervisor) -> anyhow::Result<bool> {
        let mut headers = Vec::new();
        frame.write(&mut headers);
        let options = SendOptions { headers: &headers, ..SendOptions::default() };
        self.leave_out_others();
        while !self.interrupt.is_requested() {
            match self.sender.send_timeout_with(payload, &options, CHECK) {
                Ok(_) => return Ok(true),
                Err(SendError::WouldBlock) => supervisor.turn(self.clock.now_us()),
                Err(SendError::TooLong { .. }) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Says when the feed falls silent, and when it is heard again.
    fn note_silence(&mut self) {
        let is_silent = self.clock.now_us() - self.heard_us >= SILENCE_US;
        if is_silent && !self.is_silent {
            self.counts.silences += 1;
            tracing::warn!(
                feed = %self.args.feed,
                interface = self.args.local,
                "the feed is silent, also of heartbeats; check that it runs, and that its multicast gets here"
            );
        } else if self.is_silent && !is_silent {
            tracing::info!(feed = %self.args.feed, "the feed is heard again");
        }
        self.is_silent = is_silent;
    }

    /// Joins the feed again if the name of the interface stands for another one. Returns whether it did.
    fn listen_again(&mut self) -> bool {
        let (local, now_us) = (&*self.args.local, self.clock.now_us());
        if now_us - self.looked_us < LOOK_US {
            return false;
        }
        self.looked_us = now_us;
        if if_nametoindex(local).is_ok_and(|index| index != self.listener.interface())
            && let Ok(listener) = PlainListener::bind(self.args.feed, local, BUFFER_BYTES)
        {
            tracing::info!(interface = local, "the interface was replaced; the bridge joins again");
            self.overflowed += self.listener.counts().overflowed;
            self.listener = listener;
            return true;
        }
        false
    }

    fn status(&self) -> InStatus {
        let counts = self.reader.counts();
        let position = self.reader.position();
        InStatus {
            schema: IN_SCHEMA,
            node: self.node.id().to_string(),
            address: self.node.address().to_string(),
            feed: self.args.feed.to_string(),
            group: self.args.group.clone(),
            members: self.node.members(&self.args.group),
            session: position.map(|(session, _)| session.to_string()),
            next: position.map(|(_, next)| next),
            missing: self.reader.missing(),
            carried: counts.messages - self.counts.too_long,
            answered: counts.answered,
            lost: counts.lost,
            requests: counts.requests,
            duplicates: counts.duplicates,
            sessions: counts.sessions,
            packets: self.counts.packets,
            from_bridges: self.counts.from_bridges,
            of_past_sessions: counts.of_past_sessions,
            of_other_sessions: counts.of_other_sessions,
            implausible: counts.implausible,
            malformed: self.counts.malformed,
            no_room: counts.no_room,
            too_long: self.counts.too_long,
            overflowed: self.overflowed + self.listener.counts().overflowed,
            silences: self.counts.silences,
        }
    }
}
