//! Upgrade: another process takes the gateway over while traffic flows (docs/adr/0028).
//!
//! The process that runs starts the program that is installed at present, and works on until that one has
//! opened everything that can fail. Then, for a moment, both watch the packets that arrive:
//! 1. the next process opens its own tap and its own way of recovered packets (`start.rs`), and says so
//!    ([`Message::Ready`]);
//! 2. it gets the sessions ([`Message::Sessions`]), and watches the packets that arrive;
//! 3. this process asks the peers for new streams, and decodes the old ones until the new ones come;
//! 4. it codes the packets that have left, sends the last repairs, and gives the sessions and the repair
//!    socket away ([`Message::Over`]). From here on it sends nothing, and recovers what its repairs still
//!    can;
//! 5. the next process works ([`Message::Taken`]), becomes the one that clients and the service manager know
//!    ([`Message::Main`]), and this one ends.
//!
//! Whatever fails up to 5 leaves this process at work, and the other one is killed.

mod door;
mod link;
mod message;
mod successor;

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, io, thread};

use netio::poll::Interest;
use tracing::{debug, info, warn};

use crate::config::GatewayConfig;
use crate::engine::ALL_OUTGOING;
use crate::errands::Errands;
use crate::error::StartError;
use crate::passive::{Passive, clock_us};
use crate::rack::Racked;
use crate::reload::LAST_ROUNDS_MAX;
use crate::tunnel::{self, Tunnel};
use door::Door;
pub use door::{Outcome, RequestError, request};
pub use link::Link;
use message::{Message, RecordHandover, VERSION};
use successor::Former;
pub(crate) use successor::Inheritance;

/// Token of the connection in the loop's epoll set.
const NEXT: u64 = 6;

/// Longest wait for the kernel to start the program. The main loop stands still meanwhile.
const SPAWN: Duration = Duration::from_secs(2);
/// Longest start of the next process.
const START_US: u64 = 15_000_000;
/// Longest wait for its answer.
const ANSWER_US: u64 = 5_000_000;
/// Time after which the sessions go to the next process although not all peers have begun new streams. It
/// recovers nothing of the others until they have.
const NEW_STREAMS_US: u64 = 1_000_000;
/// Longest time until it works.
const TAKE_US: u64 = 3_000_000;
/// Time for which this process recovers what its repairs still can.
const LINGER_US: u64 = 500_000;
/// Longest wait for the exit status of a process that has closed its connection.
const EXIT_US: u64 = 500_000;

/// Upgrades of this process.
#[derive(Debug)]
pub(crate) struct Upgrade {
    door: Door,
    program: Program,
    /// The thread that starts the program. A process begins with the priority of the thread that starts it,
    /// and that of the main loop is lowered (`passive.rs`).
    starter: Errands,
    work: Option<Work>,
    /// The process that this one has taken over from, as long as it runs.
    former: Option<Former>,
}

/// The program, as this process was started.
#[derive(Debug)]
struct Program {
    path: io::Result<PathBuf>,
    arguments: Vec<std::ffi::OsString>,
}

/// An upgrade under way.
#[derive(Debug)]
struct Work {
    client: UnixStream,
    child: Child,
    link: Link,
    stage: Stage,
    /// Time at which the stage must have ended.
    until_us: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The next process starts.
    Starting,
    /// It begins to watch.
    Watching,
    /// The peers begin new streams.
    Streams,
    /// The next process has the sessions.
    Given,
    /// It works, and this one ends.
    Leaving,
    /// It has closed its connection, so that the upgrade has failed; its exit status is awaited.
    Ended,
}

impl Upgrade {
    /// Listens for requests, unless another process does so.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn new(control: &Path, former: Option<Former>) -> Result<Self, StartError> {
        let starter = Errands::start().map_err(|error| StartError::new("start a thread", error))?;
        let (door, program) = (Door::default(), Program::of_process());
        let mut upgrade = Self { door, program, starter, work: None, former };
        if upgrade.former.is_none() {
            upgrade.door.listen(control);
        }
        Ok(upgrade)
    }

    /// Listens beside another control socket.
    pub(crate) fn listen(&mut self, control: &Path) {
        self.door.listen(control);
    }

    /// Whether this process has given its sessions to another one, which works.
    pub(crate) fn is_over(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.stage == Stage::Leaving)
    }

    /// Whether the process runs that this one has taken over from.
    pub(crate) fn has_former(&self) -> bool {
        self.former.is_some()
    }
}

impl Program {
    fn of_process() -> Self {
        let mut words = env::args_os();
        // A path may lead to another file by the time of an upgrade, and must not be followed before.
        let named = words.next().map(PathBuf::from).filter(|path| path.is_absolute());
        let path = named.map_or_else(env::current_exe, Ok);
        Self { path, arguments: words.filter(|word| word != TAKE_OVER).collect() }
    }

    /// Starts the program on the thread of `starter`. It takes over by the link.
    fn start(&self, starter: &Errands) -> io::Result<(Child, Link)> {
        let path = self.path.as_ref().map_err(|error| io::Error::other(error.to_string()))?;
        let (link, far) = Link::pair()?;
        let mut command = Command::new(path);
        command.args(&self.arguments).arg(TAKE_OVER).stdin(Stdio::from(far));
        // The limit is that of the process that is the main one.
        command.env_remove("WATCHDOG_PID");
        let child = starter.begin(move || command.spawn()).wait(SPAWN);
        // A process that starts later finds the link closed, and ends.
        let late = || Err(io::Error::new(io::ErrorKind::TimedOut, "the kernel does not start it in time"));
        Ok((child.unwrap_or_else(late)?, link))
    }
}

/// Option of `undrop gateway run` with which a process takes over.
pub const TAKE_OVER: &str = "--take-over";

/// Why sessions of this configuration cannot be handed over.
fn obstacle(config: &GatewayConfig, splits: bool) -> Option<&'static str> {
    if std::process::id() == 1 {
        return Some("this gateway is the first process of its container, which ends with it");
    }
    if config.peers.iter().any(|peer| !peer.paths.is_empty()) {
        return Some("packets that take several paths cannot be handed over");
    }
    if !config.multicast.is_empty() {
        return Some("IP groups that cross tunnels cannot be handed over");
    }
    splits.then_some("connections that are split cannot be handed over")
}

impl Passive {
    /// Takes the next step of an upgrade, at both ends of it.
    pub(crate) fn follow_upgrade(&mut self) {
        self.follow_former();
        if let Some(client) = self.upgrade.door.look(self.engine.now_us) {
            self.begin_upgrade(client);
        }
        if let Err(reason) = self.advance_upgrade() {
            self.fail_upgrade(&reason);
        }
    }

    fn begin_upgrade(&mut self, client: UnixStream) {
        let refuse = |client, reason: &str| {
            door::answer(client, &Outcome::Refused { reason: reason.to_owned() });
        };
        if self.upgrade.work.is_some() || self.upgrade.has_former() {
            return refuse(client, "an upgrade is under way");
        }
        if let Some(obstacle) = obstacle(&self.config, self.split.is_on()) {
            return refuse(client, &format!("{obstacle}; restart the gateway at a quiet time"));
        }
        self.losses.begin_handover(&self.engine.gateway, &self.config);
        let started = self.upgrade.program.start(&self.upgrade.starter).and_then(|(child, link)| {
            self.poller.add(&link, NEXT, Interest::Readable)?;
            Ok((child, link))
        });
        match started {
            Ok((child, link)) => {
                info!("an upgrade begins: process {} starts", child.id());
                let until_us = self.engine.now_us + START_US;
                self.upgrade.work = Some(Work { client, child, link, stage: Stage::Starting, until_us });
            }
            Err(error) => refuse(client, &format!("cannot start the program: {error}")),
        }
    }

    /// Handles what the next process says, and what is due.
    ///
    /// # Errors
    /// The reason why the upgrade has failed.
    fn advance_upgrade(&mut self) -> Result<(), String> {
        let now_us = self.engine.now_us;
        let Some(work) = &mut self.upgrade.work else { return Ok(()) };
        match work.stage {
            Stage::Leaving => {
                self.stopping |= now_us >= work.until_us;
                return Ok(());
            }
            Stage::Ended => return work.await_exit(now_us),
            _ => {}
        }
        match work.link.poll() {
            Ok(Some(message)) => return self.on_message(message),
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                if work.stage == Stage::Given {
                    return Err("the next process ended although it had the sessions".to_owned());
                }
                self.await_exit();
                return Ok(());
            }
            Err(error) => return Err(format!("the next process cannot be understood: {error}")),
        }
        let is_late = now_us >= work.until_us;
        match work.stage {
            Stage::Streams if is_late || self.engine.gateway.may_hand_over() => self.give(),
            Stage::Starting if is_late => Err(work.late("was not ready", START_US)),
            _ if is_late => Err(work.late("did not answer", TAKE_US)),
            _ => Ok(()),
        }
    }

    fn on_message(&mut self, message: Message) -> Result<(), String> {
        let now_us = self.engine.now_us;
        let Some(work) = &mut self.upgrade.work else { return Ok(()) };
        let unsent = |error: io::Error| format!("the next process does not read: {error}");
        match (work.stage, message) {
            (_, Message::Failed { reason }) => return Err(reason),
            (Stage::Starting, Message::Ready { version, listen, wan, rack, tunnel }) => {
                check(version, listen, &wan, &self.config)?;
                check_rack(rack, &self.config)?;
                check_tunnel(tunnel, &self.config)?;
                let peers = self.engine.gateway.describe_sessions();
                let peers = peers.into_iter().map(Into::into).collect();
                let held = self.rack.as_mut().map(Racked::begin_handover);
                // Without it, the next process reads the file.
                let packed = self.losses.take_packed();
                let file = || Some(self.config.gateway.loss_record.as_ref()?.to_string_lossy().into_owned());
                let record = packed.as_ref().map(|_| RecordHandover { file: file() });
                let passed: Vec<_> = packed.iter().map(AsFd::as_fd).collect();
                work.link.send(&Message::Sessions { peers, held, record }, &passed).map_err(unsent)?;
                (work.stage, work.until_us) = (Stage::Watching, now_us + ANSWER_US);
            }
            (Stage::Watching, Message::Watching) => {
                self.engine.gateway.begin_handover(now_us);
                (work.stage, work.until_us) = (Stage::Streams, now_us + NEW_STREAMS_US);
            }
            (Stage::Given, Message::Taken { after_us, sessions }) => self.leave(after_us, sessions),
            (stage, message) => {
                debug!(?stage, ?message, "unexpected");
                return Err("the next process says what this one does not expect".to_owned());
            }
        }
        Ok(())
    }

    /// Sends the last repairs, and gives the sessions to the next process.
    fn give(&mut self) -> Result<(), String> {
        let is_late = self.upgrade.work.as_ref().is_some_and(|work| self.engine.now_us >= work.until_us);
        if !self.inbox.is_empty() && !is_late {
            // The datagrams wait for the tap.
            return Ok(());
        }
        for wan in 0..self.ports.wans.len() {
            self.read_tap_to_its_end(wan);
            self.ports.wans[wan].behind = false;
        }
        for _ in 0..LAST_ROUNDS_MAX {
            if self.inbox.is_empty() {
                break;
            }
            self.decode();
        }
        let now_us = clock_us();
        self.engine.now_us = now_us;
        self.engine.flush(&mut self.ports.outlets);
        self.engine.finish_streams(&mut self.ports.outlets);
        let peers = self.engine.gateway.hand_over().into_iter().map(Into::into).collect();
        let Some(work) = &mut self.upgrade.work else { return Ok(()) };
        (work.stage, work.until_us) = (Stage::Given, now_us + TAKE_US);
        self.ports.outlets.is_silent = true;
        self.engine.skips_outgoing_until_us = ALL_OUTGOING;
        let rack = self.rack.as_ref().map(|racked| racked.hand_over().into());
        let outlets = &self.ports.outlets;
        let over = Message::Over { cut_us: clock_us(), peers, rack, tunnel: outlets.tunnel.is_some() };
        let heartbeats = self.rack.as_ref().map(|racked| racked.socket.as_fd());
        let device = outlets.tunnel.as_ref().map(Tunnel::as_fd);
        let passed = [Some(outlets.socket.as_fd()), heartbeats, device];
        let passed: Vec<_> = passed.into_iter().flatten().collect();
        let sent = work.link.send(&over, &passed);
        sent.map_err(|error| format!("the next process does not read: {error}"))
    }

    /// Leaves everything to the next process, which works.
    fn leave(&mut self, after_us: u64, sessions: usize) {
        let Some(work) = &mut self.upgrade.work else { return };
        let process = work.child.id();
        info!(
            "process {process} has taken over {sessions} sessions, {} us after this one had stopped; this one ends",
            after_us
        );
        (work.stage, work.until_us) = (Stage::Leaving, self.engine.now_us + LINGER_US);
        // In this order: the manager hears only the main process.
        self.supervisor.name_main_process(process);
        self.exporter.stop();
        self.control.abandon();
        self.losses.abandon();
        self.cache.abandon();
        self.engine.capturing.abandon();
        self.upgrade.door.abandon();
        let Some(work) = &mut self.upgrade.work else { return };
        if let Err(error) = work.link.send(&Message::Main, &[]) {
            // It learns of the end of this process all the same.
            debug!(%error, "cannot tell the next process that it is the main one");
        }
        if let Ok(client) = work.client.try_clone() {
            door::answer(client, &Outcome::Upgraded { process, sessions, after_us });
        }
        // The client waits for the end of the answer.
        let _ = work.client.shutdown(std::net::Shutdown::Both);
    }

    /// Notes that the next process has ended, whose exit status follows.
    fn await_exit(&mut self) {
        let now_us = self.engine.now_us;
        let Some(work) = &mut self.upgrade.work else { return };
        let stage = std::mem::replace(&mut work.stage, Stage::Ended);
        work.until_us = now_us + EXIT_US;
        self.go_on(stage);
    }

    /// Goes on alone after an upgrade that has failed at this stage.
    fn go_on(&mut self, stage: Stage) {
        if let Some(racked) = &mut self.rack {
            racked.take_back();
        }
        match stage {
            Stage::Given => {
                self.engine.gateway.take_back();
                self.ports.outlets.is_silent = false;
                self.engine.skips_outgoing_until_us = 0;
                // The next process may have begun to follow another file.
                self.follow_file_in_tunnel();
            }
            Stage::Streams => self.engine.gateway.cancel_handover(self.engine.now_us),
            Stage::Starting | Stage::Watching | Stage::Leaving | Stage::Ended => {}
        }
    }

    /// Ends an upgrade that has failed, and goes on alone.
    pub(crate) fn fail_upgrade(&mut self, reason: &str) {
        let Some(mut work) = self.upgrade.work.take_if(|work| work.stage != Stage::Leaving) else { return };
        warn!("the upgrade has failed, this process goes on: {reason}");
        drop(self.losses.take_packed());
        if let Err(error) = work.child.kill() {
            debug!(%error, "cannot kill the next process");
        }
        let Work { mut child, stage, client, .. } = work;
        if stage == Stage::Given {
            // Before this process sends: the other one must not do so any more.
            drop(child.wait());
        } else {
            let reap = thread::Builder::new().name("reap".to_owned());
            drop(reap.spawn(move || drop(child.wait())));
        }
        self.go_on(stage);
        door::answer(client, &Outcome::Refused { reason: reason.to_owned() });
    }
}

impl Work {
    /// Waits a moment for the exit status of the next process.
    fn await_exit(&mut self, now_us: u64) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(None) if now_us < self.until_us => Ok(()),
            Ok(Some(status)) => Err(format!("the next process ended with {status}; the log has its reason")),
            _ => Err("the next process has closed its connection".to_owned()),
        }
    }

    fn late(&self, what: &str, limit_us: u64) -> String {
        format!("the next process {what} within {} s", limit_us / 1_000_000)
    }
}

/// Checks that the next process can take over from this configuration.
fn check(
    version: u32,
    listen: std::net::SocketAddr,
    wan: &str,
    present: &GatewayConfig,
) -> Result<(), String> {
    if version != VERSION {
        return Err(format!(
            "expected a program that takes over by version {VERSION}, saw version {version}; restart the gateway \
             at a quiet time"
        ));
    }
    let (own_listen, own_wan) = (present.gateway.listen, present.wans().join(", "));
    if (listen, wan) == (own_listen, own_wan.as_str()) {
        return Ok(());
    }
    Err(format!(
        "expected a file with `listen = \"{own_listen}\"` and `wan = \"{own_wan}\"`, as this process uses them, saw \
         {listen} and {wan}; reload it first"
    ))
}

/// Checks that the next process is the same member of the same rack.
fn check_rack(rack: Option<u64>, present: &GatewayConfig) -> Result<(), String> {
    if rack == present.rack.as_ref().map(|rack| rack.core().mark()) {
        return Ok(());
    }
    Err(match (&present.rack, rack) {
        (Some(_), Some(_)) => {
            "expected a file with the rack that this process is in, saw another one; reload it first".to_owned()
        }
        (Some(_), None) => "expected a file and a program with the rack that this process is in, saw none; reload \
                            the file first, or restart the gateway, because an earlier version hands no racks over"
            .to_owned(),
        (None, _) => "expected a file without a rack, as in this process, saw one; reload it first".to_owned(),
    })
}

/// Checks that the next process has the same device of a tunnel in its file.
fn check_tunnel(tunnel: Option<String>, present: &GatewayConfig) -> Result<(), String> {
    let expected = tunnel::device(present);
    if tunnel == expected {
        return Ok(());
    }
    let name =
        |device: Option<String>| device.map_or("no tunnel".to_owned(), |name| format!("the tunnel {name}"));
    Err(format!(
        "expected a program that takes over {}, as this process uses it, saw {}; reload the file first, or restart the \
         gateway at a quiet time",
        name(expected),
        name(tunnel)
    ))
}
