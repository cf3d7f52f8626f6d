//! The socket of a carrier, and the exchange by which both ends prove themselves.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

use maelstrom_core::split::{
    AuthError, CHALLENGE_LEN, CarrierKey, Challenged, Event, FRAME_MAX, Fault, GREETING_LEN, Greeted, Mux,
    NONCE_LEN, PROOF_LEN, Pool, Role,
};
use netio::transparent;

use super::warmth::Warmth;

/// Room for input before both ends have proven themselves.
const INPUT_FIRST: usize = 512;
/// Room for input, more than a frame.
const INPUT: usize = 256 << 10;
/// Maximum number of reads and of writes of one turn.
const TURNS_MAX: usize = 8;
/// Time in which the bytes leave that the kernel holds back.
const UNSENT_MS: u64 = 8;
/// Maximum number of these bytes.
const UNSENT_MAX: u64 = 4 << 20;
/// Time within which both ends must have proven themselves.
pub(super) const HANDSHAKE_US: u64 = 5_000_000;

/// Why a carrier is closed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error("the far gateway has closed it")]
    Closed,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Auth(#[from] AuthError),
    #[error("the far gateway does not keep to the protocol: {0}")]
    Fault(#[from] Fault),
    #[error("the far gateway does not answer")]
    Silent,
    #[error("it has no more numbers for connections, and another one takes its place")]
    Worn,
}

#[derive(Debug)]
enum Stage {
    /// The connection is not open yet.
    Dialing,
    /// The challenge is to come.
    Greeted(Greeted),
    /// The greeting is to come.
    Accepted,
    /// The proof is to come.
    Challenged(Challenged),
    /// Both ends have proven themselves.
    Up(Box<Mux>),
}

/// A carrier.
#[derive(Debug)]
pub(super) struct Carrier {
    pub(super) socket: TcpStream,
    /// Number of the far site.
    pub(super) site: usize,
    pub(super) role: Role,
    /// Whether hosts send before their streams are open.
    wants_advance: bool,
    pub(super) is_readable: bool,
    pub(super) is_writable: bool,
    since_us: u64,
    stage: Stage,
    input: Vec<u8>,
    filled: usize,
    /// Flows that wait for room.
    pub(super) waiting: VecDeque<usize>,
    /// Segments that were sent again, as far as it was seen.
    pub(super) retransmits: u64,
    /// Bytes that the kernel holds back before they are sent.
    unsent: u32,
    pub(super) warmth: Warmth,
}

impl Carrier {
    pub(super) fn new(socket: TcpStream, site: usize, role: Role, now_us: u64) -> Self {
        let stage = if role == Role::Dialer { Stage::Dialing } else { Stage::Accepted };
        Self {
            socket,
            site,
            role,
            wants_advance: false,
            is_readable: false,
            is_writable: false,
            since_us: now_us,
            stage,
            input: vec![0; INPUT_FIRST],
            filled: 0,
            waiting: VecDeque::new(),
            retransmits: 0,
            unsent: transparent::UNSENT,
            warmth: Warmth::default(),
        }
    }

    /// Lets hosts send before their streams are open. A carrier that was dialed opens none.
    #[must_use]
    pub(super) fn with_advance(self, wants_advance: bool) -> Self {
        Self { wants_advance, ..self }
    }

    /// The streams, once both ends have proven themselves.
    pub(super) fn mux(&self) -> Option<&Mux> {
        if let Stage::Up(mux) = &self.stage { Some(mux) } else { None }
    }

    pub(super) fn mux_mut(&mut self) -> Option<&mut Mux> {
        if let Stage::Up(mux) = &mut self.stage { Some(mux) } else { None }
    }

    /// Ends the carrier; returns the streams that it had, as [`Mux::end`] does.
    pub(super) fn end(self, pool: &mut Pool) -> Vec<(u32, Option<VecDeque<u8>>)> {
        if let Stage::Up(mux) = self.stage { mux.end(pool) } else { Vec::new() }
    }

    /// Reads what has arrived, and takes the next steps of the exchange.
    pub(super) fn receive(
        &mut self,
        now_us: u64,
        keys: &[CarrierKey],
        pool: &mut Pool,
        events: &mut Vec<Event>,
    ) -> Result<(), Broken> {
        self.greet()?;
        for _ in 0..TURNS_MAX {
            if !self.is_readable || matches!(self.stage, Stage::Dialing) || !self.takes_input() {
                break;
            }
            match (&self.socket).read(&mut self.input[self.filled..]) {
                Ok(0) => return Err(Broken::Closed),
                Ok(bytes) => {
                    self.filled += bytes;
                    self.process(now_us, keys, pool, events)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn takes_input(&self) -> bool {
        self.mux().is_none_or(Mux::takes_input)
    }

    /// Sends the greeting when the connection is open.
    fn greet(&mut self) -> Result<(), Broken> {
        if !matches!(self.stage, Stage::Dialing) {
            return Ok(());
        }
        if let Some(error) = self.socket.take_error()? {
            return Err(error.into());
        }
        if !self.is_writable {
            return Ok(());
        }
        if self.socket.peer_addr().is_err() {
            self.is_writable = false;
            return Ok(());
        }
        let greeted = Greeted::new(number()?);
        self.say(&greeted.greeting())?;
        self.stage = Stage::Greeted(greeted);
        Ok(())
    }

    /// Takes whole messages of the exchange, then frames.
    fn process(
        &mut self,
        now_us: u64,
        keys: &[CarrierKey],
        pool: &mut Pool,
        events: &mut Vec<Event>,
    ) -> Result<(), Broken> {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Accepted) {
                Stage::Greeted(greeted) => {
                    let Some(challenge) = self.take::<CHALLENGE_LEN>() else {
                        self.stage = Stage::Greeted(greeted);
                        return Ok(());
                    };
                    self.say(&greeted.answer(&challenge, keys)?)?;
                    self.go_up(now_us);
                }
                Stage::Accepted => {
                    let Some(greeting) = self.take::<GREETING_LEN>() else { return Ok(()) };
                    let (challenged, challenge) = Challenged::new(&greeting, number()?, keys)?;
                    self.say(&challenge)?;
                    self.stage = Stage::Challenged(challenged);
                }
                Stage::Challenged(challenged) => {
                    let Some(proof) = self.take::<PROOF_LEN>() else {
                        self.stage = Stage::Challenged(challenged);
                        return Ok(());
                    };
                    challenged.verify(&proof, keys)?;
                    self.go_up(now_us);
                }
                Stage::Up(mut mux) => {
                    let handled = mux.handle_input(now_us, &self.input[..self.filled], pool, events);
                    // The streams stay known also after a fault, so that they are closed with the carrier.
                    self.stage = Stage::Up(mux);
                    let taken = handled?;
                    self.input.copy_within(taken..self.filled, 0);
                    self.filled -= taken;
                    return Ok(());
                }
                Stage::Dialing => {
                    self.stage = Stage::Dialing;
                    return Ok(());
                }
            }
        }
    }

    fn go_up(&mut self, now_us: u64) {
        const { assert!(INPUT > FRAME_MAX, "a frame fits") };
        let mut mux = Mux::new(self.role, now_us);
        if self.wants_advance {
            mux.want_advance();
        }
        self.stage = Stage::Up(Box::new(mux));
        self.input.resize(INPUT, 0);
    }

    /// Takes the first N bytes of the input, if they are there.
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let taken = *self.input[..self.filled].first_chunk::<N>()?;
        self.input.copy_within(N..self.filled, 0);
        self.filled -= N;
        Some(taken)
    }

    /// Sends a message of the exchange. It fits into the empty buffer of the socket.
    fn say(&mut self, message: &[u8]) -> io::Result<()> {
        (&self.socket).write_all(message)
    }

    /// Sends what waits.
    pub(super) fn transmit(&mut self) -> Result<(), Broken> {
        let Stage::Up(mux) = &mut self.stage else { return Ok(()) };
        for _ in 0..TURNS_MAX {
            if !self.is_writable || mux.output().is_empty() {
                break;
            }
            match (&self.socket).write(mux.output()) {
                Ok(bytes) => mux.on_sent(bytes),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Lets the kernel hold back as many bytes as leave in [`UNSENT_MS`] at a rate in bytes a second: with
    /// fewer, a fast carrier would stand still whenever this process is late, and a slow one would make
    /// streams wait for each other with more.
    pub(super) fn follow_rate(&mut self, rate: u64) {
        let bytes = (rate / 1_000 * UNSENT_MS).clamp(transparent::UNSENT.into(), UNSENT_MAX);
        let bytes = (bytes as u32).next_power_of_two(); // at most UNSENT_MAX, which is one
        if bytes != self.unsent && transparent::set_unsent(&self.socket, bytes).is_ok() {
            self.unsent = bytes;
        }
    }

    /// Does what is due.
    pub(super) fn handle_timeout(&mut self, now_us: u64, pool: &mut Pool) -> Result<(), Broken> {
        match &mut self.stage {
            Stage::Up(mux) if mux.is_silent(now_us) => Err(Broken::Silent),
            Stage::Up(mux) => {
                mux.handle_timeout(now_us, pool);
                Ok(())
            }
            _ if now_us >= self.since_us + HANDSHAKE_US => Err(Broken::Silent),
            _ => Ok(()),
        }
    }

    /// Whether something can be done at once.
    pub(super) fn has_work(&self) -> bool {
        let can_read = self.is_readable && self.takes_input() && !matches!(self.stage, Stage::Dialing);
        let can_write = self.mux().is_some_and(|mux| !mux.output().is_empty() || !self.waiting.is_empty());
        can_read || (can_write && self.is_writable)
    }
}

fn number() -> io::Result<[u8; NONCE_LEN]> {
    crate::random::random().map_err(|error| io::Error::other(error.to_string()))
}
