//! Split mode (Maelstrom §4.2, docs/adr/0022): TCP connections of hosts end at this gateway, travel on
//! carriers, and begin again at the far gateway.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | the thread, its commands, its state |
//! | `plan.rs` | what it needs of the configuration |
//! | `driver.rs` | its loop |
//! | `carriers.rs`, `connections.rs` | the parts of the loop about carriers and connections |
//! | `site.rs` | the listeners for connections to a far site |
//! | `pressure.rs` | whether first packets come too fast |
//! | `carrier.rs`, `warmth.rs` | the socket of a carrier, and how fast it has been |
//! | `flow.rs` | a connection with a host |
//! | `spool.rs` | bytes of hosts that wait on disk |
//! | `late.rs` | connections whose clients wait until their servers have been reached |
//! | `rests.rs` | the last bytes of connections whose carrier has gone |
//! | `look.rs` | what the kernel knows about its sockets |
//! | `drain.rs` | its end as the gateway stops |
//! | `report.rs` | what it counts, and its state for operators |
//!
//! The protocol is in `maelstrom_core::split`. The main loop never waits for this thread.

mod carrier;
mod carriers;
mod connections;
mod drain;
mod driver;
mod flow;
mod late;
mod look;
mod plan;
mod pressure;
mod report;
mod rests;
mod site;
mod slots;
pub(crate) mod spool;
mod warmth;

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use netio::poll::lower_priority;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::{debug, info, warn};

use crate::config::GatewayConfig;
use crate::passive::clock_us;
use crate::status::SplitStatus;
use driver::Driver;
use plan::Plan;

/// Interval between attempts after a start has failed.
const RETRY: Duration = Duration::from_secs(5);
/// Wait before split mode begins again after an error.
const RESTART: Duration = Duration::from_millis(500);
/// Longest wait for the end of the thread as the gateway stops. A disk may hang.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// Interval between looks whether the thread has ended.
const STEP: Duration = Duration::from_millis(10);
/// Interval between states for operators.
const STATUS_US: u64 = 200_000;

/// The thread of split mode, if the configuration asks for it. Dropping this ends it: split connections are
/// reset.
#[derive(Debug, Default)]
pub(crate) struct Split {
    thread: Option<Thread>,
    /// The thread of an earlier configuration, which has been told to end. Its disk may make it wait.
    former: Option<JoinHandle<()>>,
    is_draining: bool,
}

#[derive(Debug)]
struct Thread {
    commands: Option<Sender<Command>>,
    wake: Arc<EventFd>,
    status: Arc<Mutex<SplitStatus>>,
    handle: Option<JoinHandle<()>>,
}

/// A request of the main loop to the thread.
enum Command {
    /// Goes on with another plan.
    Change(Box<Plan>),
    /// Lets connections end, and ends itself.
    Drain,
}

impl Split {
    /// Starts, changes or ends the thread as the configuration asks. A gateway without split mode works all
    /// the same.
    pub(crate) fn configure(&mut self, config: &GatewayConfig) {
        if self.is_draining {
            return;
        }
        let Some(plan) = Plan::of(config) else {
            if let Some(mut thread) = self.thread.take() {
                self.former = thread.end();
            }
            return;
        };
        if let Some(thread) = &self.thread {
            return thread.command(Command::Change(Box::new(plan)));
        }
        match Thread::start(plan, self.former.take()) {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => warn!("split mode does not start, so that connections go unsplit: {error}"),
        }
    }

    /// Splits no further connections, and lets the present ones end within the time that the configuration
    /// states.
    pub(crate) fn drain(&mut self) {
        self.is_draining = true;
        if let Some(thread) = &self.thread {
            thread.command(Command::Drain);
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Whether no connection has to end any more before the gateway does.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_draining && self.thread.as_ref().is_none_or(Thread::has_ended)
    }

    /// Ends the thread as the gateway stops, and waits for it with signs of life. If it does not end in
    /// time, it does so with the process.
    pub(crate) fn end(&mut self, mut beat: impl FnMut()) {
        let present = self.thread.take().and_then(|mut thread| thread.end());
        let ending: Vec<_> = self.former.take().into_iter().chain(present).collect();
        let mut left = STOP_PATIENCE;
        while !left.is_zero() && !ending.iter().all(JoinHandle::is_finished) {
            beat();
            thread::sleep(STEP);
            left = left.saturating_sub(STEP);
        }
        ending.into_iter().filter(JoinHandle::is_finished).for_each(join);
    }

    /// Whether connections may end here.
    pub(crate) fn is_on(&self) -> bool {
        self.thread.is_some()
    }

    /// The state for operators; `None` if the configuration asks for no split mode.
    pub(crate) fn status(&self) -> Option<SplitStatus> {
        let thread = self.thread.as_ref()?;
        let mut status = thread.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if thread.has_ended() && !self.is_draining {
            status.fault = Some("its thread has ended; restart the gateway".to_owned());
        }
        Some(status.judged())
    }
}

impl Drop for Split {
    fn drop(&mut self) {
        self.end(|| ());
    }
}

impl Thread {
    /// Starts the thread. It begins when the `former` one has ended, whose ports it may take.
    fn start(plan: Plan, former: Option<JoinHandle<()>>) -> io::Result<Self> {
        let wake = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        let status = Arc::new(Mutex::new(SplitStatus::default()));
        let (commands, received) = mpsc::channel();
        let work = Work { plan, commands: received, wake: Arc::clone(&wake), status: Arc::clone(&status) };
        let run = move || {
            former.into_iter().for_each(join);
            work.run();
        };
        let handle = thread::Builder::new().name("split".to_owned()).spawn(run)?;
        Ok(Self { commands: Some(commands), wake, status, handle: Some(handle) })
    }

    fn command(&self, command: Command) {
        if let Some(commands) = &self.commands {
            // A thread that has ended is reported by the status.
            let _ = commands.send(command);
            let _ = self.wake.write(1);
        }
    }

    fn has_ended(&self) -> bool {
        self.handle.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Tells the thread to end, and does not wait for it.
    fn end(&mut self) -> Option<JoinHandle<()>> {
        self.commands = None;
        let _ = self.wake.write(1);
        self.handle.take()
    }
}

/// Waits for the end of a thread.
fn join(thread: JoinHandle<()>) {
    if thread.join().is_err() {
        warn!("the thread of split mode has panicked");
    }
}

/// The work of the thread.
struct Work {
    plan: Plan,
    commands: Receiver<Command>,
    wake: Arc<EventFd>,
    status: Arc<Mutex<SplitStatus>>,
}

/// Why a driver ends.
enum End {
    /// The gateway stops.
    Stop,
    /// Another plan follows.
    Plan(Box<Plan>),
}

impl Work {
    fn run(mut self) {
        if let Err(error) = raise_descriptors() {
            warn!("cannot raise the limit on open files: {error}");
        }
        // As the main loop, which would else wait for this thread.
        if let Err(error) = lower_priority() {
            debug!(%error, "cannot run below forwarding");
        }
        loop {
            let end = match Driver::new(self.plan.clone(), &*self.wake) {
                Ok(driver) => {
                    info!(listen = %self.plan.listen, "split mode is ready");
                    self.drive(driver)
                }
                Err(error) => {
                    let fault = error.to_string();
                    warn!("split mode does not work, so that connections go unsplit: {fault}");
                    self.publish(SplitStatus { fault: Some(fault), ..SplitStatus::default() });
                    match self.commands.recv_timeout(RETRY) {
                        Ok(Command::Change(plan)) => End::Plan(plan),
                        Ok(Command::Drain) | Err(RecvTimeoutError::Disconnected) => End::Stop,
                        Err(RecvTimeoutError::Timeout) => continue,
                    }
                }
            };
            match end {
                End::Stop => return,
                End::Plan(plan) => self.plan = *plan,
            }
        }
    }

    /// Runs a driver until another plan comes. It resets its connections as it ends.
    fn drive(&self, mut driver: Driver) -> End {
        let mut next_status_us = 0;
        loop {
            if let Err(error) = driver.turn() {
                if driver.is_draining() {
                    warn!("split connections are reset, because split mode has failed: {error}");
                    return End::Stop;
                }
                warn!("split mode begins again: {error}");
                thread::sleep(RESTART);
                return End::Plan(Box::new(driver.plan().clone()));
            }
            let _ = self.wake.read();
            match self.commands.try_recv() {
                Ok(Command::Drain) => driver.drain(),
                Ok(Command::Change(plan)) if *plan == *driver.plan() => {}
                Ok(Command::Change(plan)) if plan.keeps_connections(driver.plan()) => driver.change(*plan),
                Ok(Command::Change(plan)) => {
                    warn!("the settings of split mode have changed: its connections are reset");
                    return End::Plan(plan);
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return End::Stop,
            }
            if driver.is_drained() {
                return End::Stop;
            }
            let now_us = clock_us();
            if now_us >= next_status_us {
                next_status_us = now_us + STATUS_US;
                self.publish(driver.status());
            }
        }
    }

    fn publish(&self, status: SplitStatus) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }
}

/// Allows as many open files as the system lets this process have: each connection is one.
fn raise_descriptors() -> nix::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::configuration;

    #[test]
    fn a_reload_that_ends_split_mode_does_not_wait_for_its_thread() {
        let (release, held) = mpsc::channel::<()>();
        let busy = Thread {
            commands: Some(mpsc::channel().0),
            wake: Arc::new(EventFd::new().unwrap()),
            status: Arc::default(),
            handle: Some(thread::spawn(move || _ = held.recv())),
        };
        let mut split = Split { thread: Some(busy), former: None, is_draining: false };
        let without = configuration(
            "[gateway]\nwan = 'w'\nlisten = '10.0.0.1:1'\n\
             [[peer]]\naddress = '10.0.0.2:1'\nnetworks = ['10.2.0.0/16']\nkey_file = 'peer.key'\n",
        );
        let (reloaded, waiting) = mpsc::channel();
        let reload = thread::spawn(move || {
            split.configure(&without);
            let is_ending = split.former.as_ref().is_some_and(|former| !former.is_finished());
            reloaded.send((is_ending, split.is_on())).unwrap();
            split
        });
        let seen = waiting.recv_timeout(Duration::from_secs(60));
        release.send(()).unwrap();
        assert_eq!(seen, Ok((true, false)));
        // The end of the gateway waits for it.
        drop(reload.join().unwrap());
    }
}
