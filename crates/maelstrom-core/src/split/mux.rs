//! One carrier with its streams.
//!
//! The end that dialed opens streams, each for a connection that it took; the other end opens the connection
//! to the server. Bytes that arrive wait in the stream until the host takes them. Bytes of hosts do not wait
//! here: the driver reads a host's socket only if the stream has credit and the carrier has room.

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::advance::{Given, Held, WANTED};
use super::event::{Event, Role};
use super::frame::{self, Body, Ends, Fault, Frame, PAYLOAD_MAX, Refusal};
use super::pool::{INITIAL, Pool, Window};

/// Interval between pings.
const PING_US: u64 = 1_000_000;
/// Time without a frame after which the far end is considered dead. It is longer than short outages of the
/// link.
pub const SILENCE_US: u64 = 15_000_000;
/// Output below which there is room for data.
const DATA_BELOW: usize = 64 << 10;
/// Output above which no input is taken, so that a far end that does not read cannot make this one keep
/// answers.
const OUTPUT_MAX: usize = 1 << 20;
/// Capacity of a stream up to which its memory is kept.
const CAPACITY_KEPT: usize = 64 << 10;

/// A stream.
#[derive(Debug)]
struct Stream {
    window: Window,
    /// Bytes that may be sent.
    credit: u64,
    /// Bytes that wait for the host.
    inbound: VecDeque<u8>,
    /// Whether the far host has ended its direction.
    is_far_ended: bool,
    /// Whether our host has ended its direction.
    is_ended: bool,
    /// Whether data was sent since the last look.
    is_busy: bool,
}

/// One carrier, from the moment when both ends have proven themselves.
#[derive(Debug)]
pub struct Mux {
    role: Role,
    streams: HashMap<u32, Stream>,
    /// The latest stream.
    last: u32,
    out: Vec<u8>,
    /// Bytes of `out` that are gone.
    sent: usize,
    is_heard: bool,
    heard_us: u64,
    next_ping_us: u64,
    rtt_us: Option<u64>,
    /// Whether the far end opens no more connections.
    is_far_leaving: bool,
    /// The advance of the end that dialed, and that of the other one.
    held: Held,
    given: Given,
    /// Bytes of a host on their way to the output.
    room: Box<[u8]>,
}

impl Mux {
    /// Begins without streams. The end that was dialed speaks first, which tells the other one that its proof
    /// was accepted.
    pub fn new(role: Role, now_us: u64) -> Self {
        let mut mux = Self {
            role,
            streams: HashMap::new(),
            last: 0,
            out: Vec::new(),
            sent: 0,
            is_heard: false,
            heard_us: now_us,
            next_ping_us: now_us + PING_US,
            rtt_us: None,
            is_far_leaving: false,
            held: Held::default(),
            given: Given::default(),
            room: vec![0; PAYLOAD_MAX].into(),
        };
        if role == Role::Acceptor {
            mux.put(0, Body::Ping(now_us));
        }
        mux
    }

    /// Takes the bytes that have arrived, up to the last whole frame, and returns their number. Appends what
    /// has happened to `events`.
    ///
    /// # Errors
    /// [`Fault`]: the carrier must be closed.
    pub fn handle_input(
        &mut self,
        now_us: u64,
        bytes: &[u8],
        pool: &mut Pool,
        events: &mut Vec<Event>,
    ) -> Result<usize, Fault> {
        let mut taken = 0;
        while let Some((frame, length)) = Frame::parse(&bytes[taken..])? {
            self.handle_frame(now_us, frame, pool, events)?;
            taken += length;
        }
        if taken > 0 {
            (self.is_heard, self.heard_us) = (true, now_us);
        }
        Ok(taken)
    }

    fn handle_frame(
        &mut self,
        now_us: u64,
        Frame { stream, body }: Frame<'_>,
        pool: &mut Pool,
        events: &mut Vec<Event>,
    ) -> Result<(), Fault> {
        match body {
            Body::Open { credit, advance, ends } => {
                return self.on_open(stream, (credit, advance), ends, pool, events);
            }
            Body::Opened { .. } | Body::Refused(_) | Body::Leaving if self.role == Role::Acceptor => {
                return Err(Fault::Role);
            }
            Body::Ping(_) | Body::Pong(_) | Body::Leaving | Body::Advance(_) => {
                self.handle_of_carrier(now_us, body, pool, events);
                return Ok(());
            }
            _ => {}
        }
        // Frames of a stream that this end has reset may still be under way.
        let Some(known) = self.streams.get_mut(&stream) else { return Ok(()) };
        match body {
            Body::Opened { credit } => {
                known.credit += u64::from(credit);
                events.push(Event::Opened(stream));
            }
            Body::Credit(bytes) => {
                known.credit = known.credit.saturating_add(bytes.into());
                events.push(Event::Writable(stream));
            }
            Body::Data { .. } if known.is_far_ended => return Err(Fault::Credit),
            Body::Data { limited, bytes } => {
                known.window.on_received(bytes.len())?;
                known.inbound.extend(bytes);
                let granted = if limited { known.window.on_limited(pool) } else { 0 };
                self.grant(stream, granted);
                events.push(Event::Arrived(stream));
            }
            Body::Return(_) if known.is_far_ended => return Err(Fault::Credit),
            Body::Return(bytes) => known.window.on_returned(bytes, pool)?,
            Body::End if known.is_far_ended => return Err(Fault::Credit),
            Body::End => {
                known.is_far_ended = true;
                known.window.on_end(pool);
                events.push(Event::Arrived(stream));
            }
            Body::Refused(reason) => {
                self.remove(stream, pool);
                events.push(Event::Refused(stream, reason));
            }
            Body::Reset => {
                self.remove(stream, pool);
                events.push(Event::Reset(stream));
            }
            Body::Open { .. } | Body::Ping(_) | Body::Pong(_) | Body::Leaving | Body::Advance(_) => {}
        }
        Ok(())
    }

    /// Takes a frame about the carrier itself.
    fn handle_of_carrier(&mut self, now_us: u64, body: Body<'_>, pool: &mut Pool, events: &mut Vec<Event>) {
        match body {
            Body::Ping(token) => self.put(0, Body::Pong(token)),
            Body::Pong(token) => self.rtt_us = now_us.checked_sub(token),
            Body::Leaving => {
                self.is_far_leaving = true;
                events.push(Event::Leaving);
            }
            Body::Advance(bytes) if self.role == Role::Dialer => self.held.on_given(bytes),
            Body::Advance(bytes) => {
                self.given.on_wanted(bytes);
                self.give_advance(pool);
            }
            _ => {}
        }
    }

    fn on_open(
        &mut self,
        stream: u32,
        (credit, advance): (u32, u32),
        ends: Ends,
        pool: &mut Pool,
        events: &mut Vec<Event>,
    ) -> Result<(), Fault> {
        if self.role == Role::Dialer {
            return Err(Fault::Role);
        }
        if stream <= self.last {
            return Err(Fault::Reused { last: self.last, stream });
        }
        self.last = stream;
        self.given.spend(advance, pool)?;
        // Connections that the kernel has accepted already for this end find room in the rest.
        let window = if pool.is_full() { None } else { Window::open(pool) };
        if let Some(mut window) = window {
            window.take(pool, advance.into());
            self.insert(stream, window, credit);
            events.push(Event::Open { stream, ends });
        } else {
            self.put(stream, Body::Refused(Refusal::Full));
        }
        self.give_advance(pool);
        Ok(())
    }

    /// Asks the far end for a connection, and returns its stream. `None` if there are as many streams as can
    /// be, or the far end opens no more.
    pub fn open(&mut self, ends: Ends, pool: &mut Pool) -> Option<u32> {
        assert_eq!(self.role, Role::Dialer, "only the end that dialed opens streams");
        let stream = self.last.checked_add(1).filter(|_| !self.is_far_leaving)?;
        let mut window = Window::open(pool)?;
        let credit = window.begin(pool);
        let advance = self.held.take();
        self.last = stream;
        self.insert(stream, window, advance);
        self.put(stream, Body::Open { credit, advance, ends });
        Some(stream)
    }

    /// Asks the far end for credit that new streams have from their beginning, for hosts that send before
    /// their streams are open.
    pub fn want_advance(&mut self) {
        assert_eq!(self.role, Role::Dialer, "only the end that dialed opens streams");
        self.put(0, Body::Advance(WANTED));
    }

    fn give_advance(&mut self, pool: &mut Pool) {
        let bytes = self.given.give(pool);
        if bytes > 0 {
            self.put(0, Body::Advance(bytes));
        }
    }

    /// Tells the far end that the connection of a stream is open.
    pub fn accept(&mut self, stream: u32, pool: &mut Pool) {
        let Some(known) = self.streams.get_mut(&stream) else { return };
        let credit = known.window.begin(pool);
        self.put(stream, Body::Opened { credit });
    }

    /// Tells the far end that the connection of a stream cannot be opened. The stream is gone.
    pub fn refuse(&mut self, stream: u32, reason: Refusal, pool: &mut Pool) {
        if self.remove(stream, pool) {
            self.put(stream, Body::Refused(reason));
        }
    }

    /// Tells the far end that our host has reset the connection. The stream is gone.
    pub fn reset(&mut self, stream: u32, pool: &mut Pool) {
        if self.remove(stream, pool) {
            self.put(stream, Body::Reset);
        }
    }

    /// Tells the far end that our host has ended its direction.
    pub fn finish(&mut self, stream: u32) {
        let Some(known) = self.streams.get_mut(&stream) else { return };
        if !known.is_ended {
            known.is_ended = true;
            self.put(stream, Body::End);
        }
    }

    /// Tells the far end to open no more streams. Those whose opening is under way are opened all the same. A
    /// carrier on which this end opens the streams needs no word.
    pub fn leave(&mut self) {
        if self.role == Role::Acceptor {
            self.put(0, Body::Leaving);
        }
    }

    /// Forgets a stream of which both directions have ended.
    pub fn close(&mut self, stream: u32, pool: &mut Pool) {
        self.remove(stream, pool);
    }

    /// Bytes of our host that the stream may send at present in one frame.
    pub fn room(&self, stream: u32) -> usize {
        let known = self.streams.get(&stream).filter(|known| !known.is_ended);
        known.map_or(0, |known| known.credit.min(PAYLOAD_MAX as u64) as usize)
    }

    /// Appends data of our host to the output. `fill` gets the room for it, and returns the number of bytes
    /// that it has written; it is not called if there is none.
    ///
    /// # Errors
    /// Those of `fill`; nothing is sent then.
    pub fn send_data<E>(
        &mut self,
        stream: u32,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let room = self.room(stream);
        if room == 0 {
            return Ok(0);
        }
        let filled = fill(&mut self.room[..room]);
        let bytes = *filled.as_ref().unwrap_or(&0);
        assert!(bytes <= room, "expected at most {room} bytes, saw {bytes}");
        if bytes == 0 {
            return filled;
        }
        let at = frame::begin_data(&mut self.out);
        self.out.extend_from_slice(&self.room[..bytes]);
        let known = self.streams.get_mut(&stream).expect("a stream with room exists");
        known.credit -= bytes as u64;
        known.is_busy = true;
        frame::end_data(&mut self.out, at, stream, known.credit == 0);
        filled
    }

    /// Bytes that wait for our host, in two parts.
    pub fn inbound(&self, stream: u32) -> (&[u8], &[u8]) {
        self.streams.get(&stream).map_or((&[], &[]), |known| known.inbound.as_slices())
    }

    /// Notes that our host has taken the first `bytes` of those that wait.
    pub fn on_written(&mut self, stream: u32, bytes: usize, pool: &mut Pool) {
        let Some(known) = self.streams.get_mut(&stream) else { return };
        known.inbound.drain(..bytes);
        // Memory beyond what waits belongs to other streams. A quarter keeps this rare.
        let (length, capacity) = (known.inbound.len(), known.inbound.capacity());
        if capacity > CAPACITY_KEPT && length < capacity / 4 {
            known.inbound.shrink_to((2 * length).max(CAPACITY_KEPT / 2));
        }
        let granted = known.window.on_taken(bytes, pool);
        self.grant(stream, granted);
    }

    /// Whether the far host has ended its direction, and our host has taken everything.
    pub fn is_drained(&self, stream: u32) -> bool {
        self.streams.get(&stream).is_some_and(|known| known.is_far_ended && known.inbound.is_empty())
    }

    /// Does what is due about once a second: asks whether the far end lives, gives back credit of streams
    /// that send nothing, and gives the advance for which there was no room.
    pub fn handle_timeout(&mut self, now_us: u64, pool: &mut Pool) {
        if now_us < self.next_ping_us {
            return;
        }
        self.next_ping_us = now_us + PING_US;
        self.put(0, Body::Ping(now_us));
        self.give_advance(pool);
        let mut returned = Vec::new();
        for (&stream, known) in &mut self.streams {
            let spare = known.credit.saturating_sub(INITIAL.into()).min(u32::MAX.into());
            if !std::mem::take(&mut known.is_busy) && spare > 0 && !known.is_ended {
                known.credit -= spare;
                returned.push((stream, spare as u32)); // at most u32::MAX
            }
        }
        for (stream, bytes) in returned {
            self.put(stream, Body::Return(bytes));
        }
    }

    /// Whether the far end has not been heard for [`SILENCE_US`].
    pub fn is_silent(&self, now_us: u64) -> bool {
        now_us >= self.heard_us + SILENCE_US
    }

    /// Whether the far end has been heard at all.
    pub fn is_heard(&self) -> bool {
        self.is_heard
    }

    /// Whether numbers of streams run out, so that the carrier should end when it has none.
    pub fn is_worn(&self) -> bool {
        self.last > u32::MAX / 2
    }

    /// Whether no stream can be opened any more.
    pub fn is_used_up(&self) -> bool {
        self.last == u32::MAX
    }

    /// Whether the far end opens no more connections.
    pub fn is_far_leaving(&self) -> bool {
        self.is_far_leaving
    }

    /// Time at which the far end was last heard, or the carrier began.
    pub fn heard_us(&self) -> u64 {
        self.heard_us
    }

    /// Bytes to be sent.
    pub fn output(&self) -> &[u8] {
        &self.out[self.sent..]
    }

    /// Notes that the first `bytes` of the output are gone.
    pub fn on_sent(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        } else if self.sent >= DATA_BELOW {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Whether the output has room for data.
    pub fn has_room(&self) -> bool {
        self.output().len() < DATA_BELOW
    }

    /// Whether input may be taken.
    pub fn takes_input(&self) -> bool {
        self.output().len() < OUTPUT_MAX
    }

    /// Number of streams.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Bytes that wait for hosts.
    pub fn waiting(&self) -> u64 {
        self.streams.values().map(|stream| stream.inbound.len() as u64).sum()
    }

    /// The latest round-trip time to the far end and back, in microseconds, queues included.
    pub fn rtt_us(&self) -> Option<u64> {
        self.rtt_us
    }

    /// Ends the carrier: gives everything back to the pool, and returns the streams that it had. With those
    /// that have ended in both directions come the bytes that wait for their hosts; nothing is missing.
    pub fn end(self, pool: &mut Pool) -> Vec<(u32, Option<VecDeque<u8>>)> {
        self.given.close(pool);
        let ended = |(number, stream): (u32, Stream)| {
            stream.window.close(pool);
            (number, (stream.is_ended && stream.is_far_ended).then_some(stream.inbound))
        };
        let mut streams: Vec<_> = self.streams.into_iter().map(ended).collect();
        streams.sort_unstable_by_key(|&(number, _)| number);
        streams
    }

    fn insert(&mut self, stream: u32, window: Window, credit: u32) {
        let stream_state = Stream {
            window,
            credit: u64::from(INITIAL) + u64::from(credit),
            inbound: VecDeque::new(),
            is_far_ended: false,
            is_ended: false,
            is_busy: true,
        };
        self.streams.insert(stream, stream_state);
    }

    fn remove(&mut self, stream: u32, pool: &mut Pool) -> bool {
        let removed = self.streams.remove(&stream);
        removed.map(|removed| removed.window.close(pool)).is_some()
    }

    fn grant(&mut self, stream: u32, bytes: u32) {
        if bytes > 0 {
            self.put(stream, Body::Credit(bytes));
        }
    }

    fn put(&mut self, stream: u32, body: Body<'_>) {
        Frame { stream, body }.write(&mut self.out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_follows_what_waits_for_a_host() {
        let mut pool = Pool::new(64 << 20, 1);
        let mut mux = Mux::new(Role::Dialer, 0);
        let address = ([10, 81, 1, 2], 40_000).into();
        let stream = mux.open(Ends { client: address, server: address }, &mut pool).unwrap();
        let capacity = |mux: &Mux| mux.streams[&stream].inbound.capacity();
        let known = mux.streams.get_mut(&stream).unwrap();
        let bytes = 3 << 20;
        known.window.on_received(bytes).unwrap();
        known.inbound.extend(vec![7; bytes]);
        let mut waiting = bytes;
        while waiting > 1 {
            let taken = waiting.div_ceil(3).min(waiting - 1);
            mux.on_written(stream, taken, &mut pool);
            waiting -= taken;
            assert!(capacity(&mux) <= CAPACITY_KEPT.max(4 * waiting), "{} for {waiting}", capacity(&mux));
        }
        assert_eq!(mux.inbound(stream), (&[7][..], &[][..]));
    }

    #[test]
    fn the_last_stream_of_a_carrier_is_the_last() {
        let mut pool = Pool::new(64 << 20, 1);
        let mut mux = Mux::new(Role::Dialer, 0);
        let address = ([10, 81, 1, 2], 40_000).into();
        let ends = Ends { client: address, server: address };
        assert!(!mux.is_worn());
        mux.last = u32::MAX - 1;
        assert!(mux.is_worn() && !mux.is_used_up());
        assert_eq!(mux.open(ends, &mut pool), Some(u32::MAX));
        assert!(mux.is_used_up());
        assert_eq!(mux.open(ends, &mut pool), None);
    }
}
