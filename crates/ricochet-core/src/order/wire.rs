//! The packets by which members agree on the order, byte for byte (`docs/wire.md`).
//!
//! They are the payloads of ordinary data packets to the order group, so that lost ones are repaired and
//! requested like any other.

use std::collections::BTreeMap;

use foundation::Seq;
use foundation::bytes::Reader;

use super::epoch::{COUNCIL_MAX, Council, Epoch};
use super::log::{Log, Position, Run, SENDERS_MAX, STARTS_MAX};
use super::report::{Begin, Report};
use crate::counters::Malformed;
use crate::ids::NodeId;

/// Bit of a run's count: the run is lost.
const LOST: u32 = 1 << 31;
/// Greatest length of a packet with a copy of a message before that message: with the time of sending.
pub(crate) const COPY_HEAD: usize = 39;
/// Maximum number of runs in a packet.
const RUNS_MAX: usize = 1 << 16;

/// Form of a message that is sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Form {
    /// Whether it is several messages that share a packet.
    pub(super) joint: bool,
    /// Whether each begins with an envelope.
    pub(super) enveloped: bool,
    /// Time at which it was sent, by its sender's clock, if the sender told.
    pub(super) sent_us: Option<u64>,
}

/// Which order a packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Random number of the order; 0 if the sender has none.
    pub(super) order: u64,
    /// Whether no message has been numbered in it.
    pub(super) is_empty: bool,
}

/// A packet of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body<'a> {
    /// A node that wants to be a member.
    Hello {
        safe: bool,
        count: u32,
    },
    /// A member that wants to be the sequencer.
    Prepare {
        epoch: Epoch,
    },
    /// The promise to take part in no earlier epoch.
    Promise {
        epoch: Epoch,
        report: Report,
    },
    Begin(Begin),
    /// The agreement to a beginning.
    Accept {
        epoch: Epoch,
    },
    /// Numbers, from `first` on.
    Numbers {
        epoch: Epoch,
        held: u64,
        stable: u64,
        first: u64,
        runs: Vec<Run>,
        amended: Vec<(u64, u64)>,
    },
    /// A member has all messages before `held`.
    Ack {
        epoch: Epoch,
        held: u64,
    },
    /// A request for the numbers from `next` on.
    Pull {
        epoch: Option<Epoch>,
        promised: Option<Epoch>,
        next: u64,
    },
    /// A request for a message to one member.
    Want {
        epoch: Epoch,
        to: NodeId,
        number: u64,
        sender: NodeId,
        seq: Seq,
    },
    /// A message, sent again.
    Copy {
        number: u64,
        sender: NodeId,
        seq: Seq,
        packets: u32,
        form: Form,
        payload: &'a [u8],
    },
    /// The news that a member holds none of the messages from `number` on.
    Deny {
        epoch: Epoch,
        number: u64,
        count: u32,
    },
    /// A member leaves.
    Bye(Report),
    /// The news that a member has dropped the message of a number, and those that follow before `until`.
    Gone {
        epoch: Epoch,
        number: u64,
        until: u64,
    },
}

struct Put(Vec<u8>);

impl Put {
    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    fn u16(&mut self, value: usize) {
        let value = u16::try_from(value).expect("lists are bounded");
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    fn epoch(&mut self, epoch: Option<Epoch>) {
        // No epoch has count 0.
        let Epoch { count, sequencer } = epoch.unwrap_or(Epoch { count: 0, sequencer: NodeId(0) });
        self.u32(count);
        self.u32(sequencer.0);
    }

    fn council(&mut self, council: &Council) {
        let members = &council.members[..council.members.len().min(COUNCIL_MAX)];
        self.u16(members.len());
        members.iter().for_each(|member| self.u32(member.0));
    }

    fn runs(&mut self, runs: impl Iterator<Item = Run>) {
        let at = self.0.len();
        self.u32(0);
        let mut count = 0u32;
        for Run { sender, seq, count: positions, lost } in runs {
            self.u32(sender.0);
            self.u32(seq.to_wire());
            self.u32(positions & !LOST | if lost { LOST } else { 0 });
            count += 1;
        }
        self.0[at..at + 4].copy_from_slice(&count.to_be_bytes());
    }

    fn amended(&mut self, amended: impl Iterator<Item = (u64, u64)>) {
        let at = self.0.len();
        self.u32(0);
        let mut count = 0u32;
        for (first, end) in amended {
            self.u64(first);
            self.u64(end);
            count += 1;
        }
        self.0[at..at + 4].copy_from_slice(&count.to_be_bytes());
    }

    fn log(&mut self, log: &Log) {
        self.u16(log.starts.len());
        for &(epoch, start) in &log.starts {
            self.epoch(Some(epoch));
            self.u64(start);
        }
        let positions = log.newest_positions();
        self.u16(positions.len());
        for (sender, seq) in positions {
            self.u32(sender.0);
            self.u32(seq.to_wire());
        }
        self.u64(log.start);
        self.amended(log.amended.iter().map(|(&first, &end)| (first, end)));
        self.runs(log.runs_from(log.start).map(|(_, run)| run));
    }

    fn report(&mut self, report: &Report) {
        self.council(&report.council);
        self.log(&report.log);
        self.u8(u8::from(report.pending.is_some()));
        if let Some(pending) = &report.pending {
            self.begin(pending);
        }
    }

    fn begin(&mut self, begin: &Begin) {
        self.epoch(Some(begin.epoch));
        self.u8(u8::from(begin.settled)
            | u8::from(begin.prompt) << 1
            | u8::from(begin.before.is_some()) << 2);
        self.council(&begin.council);
        if let Some((epoch, council)) = &begin.before {
            self.epoch(Some(*epoch));
            self.council(council);
        }
        self.log(&begin.log);
    }
}

impl Body<'_> {
    /// Returns the packet's bytes.
    pub(super) fn write(&self, head: Head) -> Vec<u8> {
        let mut put = Put(Vec::with_capacity(64));
        put.u8(self.kind());
        put.u8(u8::from(head.is_empty));
        put.u64(head.order);
        match self {
            Body::Hello { safe, count } => {
                put.u8(u8::from(*safe));
                put.u32(*count);
            }
            Body::Prepare { epoch } | Body::Accept { epoch } => put.epoch(Some(*epoch)),
            Body::Promise { epoch, report } => {
                put.epoch(Some(*epoch));
                put.report(report);
            }
            Body::Begin(begin) => put.begin(begin),
            Body::Numbers { epoch, held, stable, first, runs, amended } => {
                put.epoch(Some(*epoch));
                [*held, *stable, *first].into_iter().for_each(|number| put.u64(number));
                put.amended(amended.iter().copied());
                put.runs(runs.iter().copied());
            }
            Body::Ack { epoch, held } => {
                put.epoch(Some(*epoch));
                put.u64(*held);
            }
            Body::Pull { epoch, promised, next } => {
                put.epoch(*epoch);
                put.epoch(*promised);
                put.u64(*next);
            }
            Body::Want { epoch, to, number, sender, seq } => {
                put.epoch(Some(*epoch));
                put.u32(to.0);
                put.u64(*number);
                put.u32(sender.0);
                put.u32(seq.to_wire());
            }
            Body::Copy { number, sender, seq, packets, form, payload } => {
                put.u64(*number);
                put.u32(sender.0);
                put.u32(seq.to_wire());
                put.u32(*packets);
                let is_timed = form.sent_us.is_some();
                put.u8(u8::from(form.joint) | u8::from(form.enveloped) << 1 | u8::from(is_timed) << 2);
                form.sent_us.into_iter().for_each(|sent_us| put.u64(sent_us));
                put.0.extend_from_slice(payload);
            }
            Body::Deny { epoch, number, count } => {
                put.epoch(Some(*epoch));
                put.u64(*number);
                put.u32(*count);
            }
            Body::Bye(report) => put.report(report),
            Body::Gone { epoch, number, until } => {
                put.epoch(Some(*epoch));
                put.u64(*number);
                put.u64(*until);
            }
        }
        put.0
    }

    fn kind(&self) -> u8 {
        match self {
            Body::Hello { .. } => 1,
            Body::Prepare { .. } => 2,
            Body::Promise { .. } => 3,
            Body::Begin(_) => 4,
            Body::Accept { .. } => 5,
            Body::Numbers { .. } => 6,
            Body::Ack { .. } => 7,
            Body::Pull { .. } => 8,
            Body::Want { .. } => 9,
            Body::Copy { .. } => 10,
            Body::Deny { .. } => 11,
            Body::Bye(_) => 12,
            Body::Gone { .. } => 13,
        }
    }

    /// Reads a packet. Sequence numbers are those near the positions that `near` returns.
    pub(super) fn read<'a>(
        packet: &'a [u8],
        near: &dyn Fn(NodeId) -> Option<Seq>,
    ) -> Result<(Head, Body<'a>), Malformed> {
        let mut take = Take { reader: Reader(packet), near };
        let kind = take.reader.u8()?;
        let is_empty = take.reader.flags(1)? == 1;
        let head = Head { order: take.reader.u64()?, is_empty };
        let body = match kind {
            1 => Body::Hello { safe: take.reader.flags(1)? == 1, count: take.reader.u32()? },
            2 => Body::Prepare { epoch: take.some_epoch()? },
            3 => Body::Promise { epoch: take.some_epoch()?, report: take.report()? },
            4 => Body::Begin(take.begin()?),
            5 => Body::Accept { epoch: take.some_epoch()? },
            6 => {
                let epoch = take.some_epoch()?;
                let (held, stable, first) = (take.reader.u64()?, take.reader.u64()?, take.reader.u64()?);
                let amended = take.amended()?;
                Body::Numbers { epoch, held, stable, first, amended, runs: take.runs(&BTreeMap::new())? }
            }
            7 => Body::Ack { epoch: take.some_epoch()?, held: take.reader.u64()? },
            8 => Body::Pull { epoch: take.epoch()?, promised: take.epoch()?, next: take.reader.u64()? },
            9 => {
                let (epoch, to, number) = (take.some_epoch()?, take.node()?, take.reader.u64()?);
                let sender = take.node()?;
                Body::Want { epoch, to, number, sender, seq: take.seq(sender)? }
            }
            10 => {
                let (number, sender) = (take.reader.u64()?, take.node()?);
                let (seq, packets) = (take.seq(sender)?, take.reader.u32()?);
                let flags = take.reader.flags(7)?;
                let sent_us = if flags & 4 != 0 { Some(take.reader.u64()?) } else { None };
                let form = Form { joint: flags & 1 != 0, enveloped: flags & 2 != 0, sent_us };
                let payload = take.reader.rest();
                return Ok((head, Body::Copy { number, sender, seq, packets, form, payload }));
            }
            11 => {
                let (epoch, number) = (take.some_epoch()?, take.reader.u64()?);
                Body::Deny { epoch, number, count: take.reader.u32()? }
            }
            12 => Body::Bye(take.report()?),
            13 => {
                let (epoch, number) = (take.some_epoch()?, take.reader.u64()?);
                Body::Gone { epoch, number, until: take.reader.u64()? }
            }
            _ => return Err(Malformed::Kind),
        };
        take.reader.end()?;
        Ok((head, body))
    }
}

/// Takes fields off the front of a packet. Lists are read entry by entry, so that a length that is a lie
/// costs nothing.
struct Take<'a, 'n> {
    reader: Reader<'a>,
    near: &'n dyn Fn(NodeId) -> Option<Seq>,
}

impl Take<'_, '_> {
    fn node(&mut self) -> Result<NodeId, Malformed> {
        Ok(NodeId(self.reader.u32()?))
    }

    fn seq(&mut self, sender: NodeId) -> Result<Seq, Malformed> {
        let wire = self.reader.u32()?;
        Ok((self.near)(sender).map_or(Seq::first_seen(wire), |near| Seq::from_wire(wire, near)))
    }

    fn epoch(&mut self) -> Result<Option<Epoch>, Malformed> {
        let epoch = Epoch { count: self.reader.u32()?, sequencer: self.node()? };
        Ok((epoch.count > 0).then_some(epoch))
    }

    fn some_epoch(&mut self) -> Result<Epoch, Malformed> {
        self.epoch()?.ok_or(Malformed::Count)
    }

    fn count(&mut self, max: usize) -> Result<usize, Malformed> {
        let count = usize::from(self.reader.u16()?);
        if count <= max { Ok(count) } else { Err(Malformed::Count) }
    }

    fn long_count(&mut self) -> Result<usize, Malformed> {
        let count = self.reader.u32()? as usize;
        if count <= RUNS_MAX { Ok(count) } else { Err(Malformed::Count) }
    }

    fn council(&mut self) -> Result<Council, Malformed> {
        let mut members: Vec<NodeId> = Vec::new();
        for _ in 0..self.count(COUNCIL_MAX)? {
            members.push(self.node()?);
        }
        let mut sorted = members.clone();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Malformed::Repeated);
        }
        Ok(Council { members })
    }

    fn runs(&mut self, positions: &BTreeMap<NodeId, Seq>) -> Result<Vec<Run>, Malformed> {
        let mut runs = Vec::new();
        for _ in 0..self.long_count()? {
            let sender = self.node()?;
            let wire = self.reader.u32()?;
            let near = positions.get(&sender).copied().or_else(|| (self.near)(sender));
            let seq = near.map_or(Seq::first_seen(wire), |near| Seq::from_wire(wire, near));
            let count = self.reader.u32()?;
            if count & !LOST == 0 {
                return Err(Malformed::Count);
            }
            runs.push(Run { sender, seq, count: count & !LOST, lost: count & LOST != 0 });
        }
        Ok(runs)
    }

    fn amended(&mut self) -> Result<Vec<(u64, u64)>, Malformed> {
        let mut amended = Vec::new();
        for _ in 0..self.long_count()? {
            let (first, end) = (self.reader.u64()?, self.reader.u64()?);
            if first >= end {
                return Err(Malformed::Count);
            }
            amended.push((first, end));
        }
        Ok(amended)
    }

    fn log(&mut self) -> Result<Log, Malformed> {
        let mut log = Log { starts: self.starts()?, ..Log::default() };
        let mut positions = Vec::new();
        for _ in 0..self.count(SENDERS_MAX)? {
            let sender = self.node()?;
            positions.push((sender, self.seq(sender)?));
        }
        log.start = self.reader.u64()?;
        // Numbers are 2⁶² at most, so that sums of them are in range.
        if log.start > 1 << 62 {
            return Err(Malformed::Count);
        }
        log.next = log.start;
        for (first, end) in self.amended()? {
            log.amend(first, end);
        }
        for run in self.runs(&positions.iter().copied().collect())? {
            log.append(run);
        }
        if log.starts.last().is_some_and(|&(_, start)| start > log.next) {
            return Err(Malformed::Count);
        }
        // Those without runs were numbered before `start`, in the order in which they are told.
        for (rank, (sender, seq)) in (0u64..).zip(positions) {
            log.positions.entry(sender).or_insert(Position { seq, until: rank.min(log.start) });
        }
        Ok(log)
    }

    /// Takes the epochs of a log, each later than the one that precedes it, and with no lower number.
    fn starts(&mut self) -> Result<Vec<(Epoch, u64)>, Malformed> {
        let mut starts: Vec<(Epoch, u64)> = Vec::new();
        for _ in 0..self.count(STARTS_MAX)? {
            let (epoch, start) = (self.some_epoch()?, self.reader.u64()?);
            if starts.last().is_some_and(|&(last, at)| epoch <= last || start < at) {
                return Err(Malformed::Count);
            }
            starts.push((epoch, start));
        }
        Ok(starts)
    }

    fn report(&mut self) -> Result<Report, Malformed> {
        let (council, log) = (self.council()?, self.log()?);
        let pending = if self.reader.flags(1)? == 1 { Some(Box::new(self.begin()?)) } else { None };
        Ok(Report { council, log, pending })
    }

    fn begin(&mut self) -> Result<Begin, Malformed> {
        let epoch = self.some_epoch()?;
        let flags = self.reader.flags(7)?;
        let council = self.council()?;
        let before = if flags & 4 != 0 { Some((self.some_epoch()?, self.council()?)) } else { None };
        let (settled, log) = (flags & 1 != 0, self.log()?);
        // A log has the epochs that are settled, the last one included.
        let is_next = if settled { log.epoch() == Some(epoch) } else { log.epoch() < Some(epoch) };
        if !is_next {
            return Err(Malformed::Count);
        }
        Ok(Begin { epoch, settled, prompt: flags & 2 != 0, council, before, log })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(count: u32) -> Epoch {
        Epoch { count, sequencer: NodeId(9) }
    }

    fn begin() -> Begin {
        let mut log = Log { start: 40, next: 40, ..Log::default() };
        log.starts.push((epoch(1), 3));
        log.append(Run { sender: NodeId(1), seq: Seq::first_seen(7), count: 3, lost: false });
        log.append(Run { sender: NodeId(2), seq: Seq::first_seen(0), count: 1, lost: true });
        log.amend(41, 42);
        let council = Council { members: vec![NodeId(9), NodeId(1)] };
        let before = Some((epoch(1), council.clone()));
        Begin { epoch: epoch(2), settled: false, prompt: true, council, before, log }
    }

    fn bodies() -> Vec<Body<'static>> {
        let Begin { council, log, .. } = begin();
        let report = Report { council, log, pending: Some(Box::new(begin())) };
        let run = Run { sender: NodeId(4), seq: Seq::first_seen(5), count: 6, lost: false };
        let (number, sender, seq) = (7, NodeId(3), Seq::first_seen(8));
        vec![
            Body::Hello { safe: true, count: 5 },
            Body::Prepare { epoch: epoch(3) },
            Body::Promise { epoch: epoch(3), report: report.clone() },
            Body::Begin(begin()),
            Body::Accept { epoch: epoch(3) },
            Body::Numbers {
                epoch: epoch(3),
                held: 1,
                stable: 2,
                first: 3,
                runs: vec![run],
                amended: vec![(1, 2)],
            },
            Body::Ack { epoch: epoch(3), held: 99 },
            Body::Pull { epoch: None, promised: Some(epoch(4)), next: 5 },
            Body::Want { epoch: epoch(3), to: NodeId(5), number, sender, seq },
            Body::Copy {
                number,
                sender,
                seq,
                packets: 1,
                form: Form { joint: false, enveloped: true, sent_us: None },
                payload: b"187.21",
            },
            Body::Copy {
                number,
                sender,
                seq,
                packets: 1,
                form: Form { sent_us: Some(1_700_000_000_000_000), ..Form::default() },
                payload: b"187.22",
            },
            Body::Deny { epoch: epoch(3), number, count: 2 },
            Body::Bye(report),
            Body::Gone { epoch: epoch(3), number, until: 9 },
        ]
    }

    #[test]
    fn what_is_written_is_read_and_no_part_of_it_panics_the_reader() {
        let head = Head { order: 77, is_empty: true };
        for body in bodies() {
            let bytes = body.write(head);
            assert_eq!(Body::read(&bytes, &|_| None), Ok((head, body.clone())));
            if let Body::Copy { payload, form, .. } = body {
                let unused = if form.sent_us.is_some() { 0 } else { 8 };
                assert_eq!(bytes.len(), COPY_HEAD - unused + payload.len());
            }
            for cut in 0..bytes.len() {
                let read = Body::read(&bytes[..cut], &|_| None);
                assert!(read.is_err() || matches!(body, Body::Copy { .. }), "{body:?} cut to {cut}");
            }
            for at in 0..bytes.len() {
                let mut changed = bytes.clone();
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    changed[at] = value;
                    let _ = Body::read(&changed, &|_| None);
                }
            }
        }
    }

    /// Returns the packet of a promise with a log whose epochs begin with any numbers.
    fn promise(starts: &[(u32, u64)], start: u64, counts: &[u32]) -> Vec<u8> {
        let starts = starts.iter().map(|&(count, start)| (epoch(count), start)).collect();
        let mut log = Log { start, next: start, starts, ..Log::default() };
        for &count in counts {
            log.append(Run { sender: NodeId(count), seq: Seq::first_seen(1), count, lost: false });
        }
        let report = Report { council: Council::default(), log, pending: None };
        Body::Promise { epoch: epoch(20), report }.write(Head { order: 77, is_empty: false })
    }

    #[test]
    fn a_log_whose_epochs_go_back_or_begin_beyond_its_end_is_refused() {
        let is_read =
            |starts: &[(u32, u64)], counts| Body::read(&promise(starts, 3, counts), &|_| None).is_ok();
        assert!(is_read(&[(1, 0), (2, 0), (9, 5)], &[2]));
        assert!(!is_read(&[(1, 0), (9, 1 << 40)], &[2]), "beyond the end");
        assert!(!is_read(&[(1, 4), (9, 2)], &[2]), "back to a lower number");
        assert!(!is_read(&[(9, 0), (1, 2)], &[2]), "back to an earlier epoch");
        assert!(!is_read(&[(9, 0), (9, 2)], &[2]), "an epoch twice");
    }

    #[test]
    fn a_beginning_whose_log_has_other_epochs_is_refused() {
        let is_read = |count, settled| {
            let body = Body::Begin(Begin { epoch: epoch(count), settled, ..begin() });
            Body::read(&body.write(Head { order: 77, is_empty: false }), &|_| None).is_ok()
        };
        assert!(is_read(2, false) && is_read(1, true));
        assert!(!is_read(1, false) && !is_read(2, true));
    }

    #[test]
    fn the_senders_numbered_last_are_told_in_their_order() {
        let mut log = Log::default();
        let run =
            |sender: u32| Run { sender: NodeId(sender), seq: Seq::first_seen(1), count: 1, lost: false };
        let senders = SENDERS_MAX as u32 + 10;
        (0..senders).rev().for_each(|sender| log.append(run(sender)));
        log.forget_before(log.next - 3, |_| {});
        let body = Body::Bye(Report { council: Council::default(), log, pending: None });
        let bytes = body.write(Head { order: 77, is_empty: false });
        let (_, Body::Bye(report)) = Body::read(&bytes, &|_| None).expect("it is read") else {
            panic!("it is another packet")
        };
        let newest: Vec<u32> = report.log.newest_positions().iter().map(|(sender, _)| sender.0).collect();
        assert!(newest.into_iter().eq((0..SENDERS_MAX as u32).rev()));
    }

    proptest::proptest! {
        #[test]
        fn the_epochs_of_a_log_that_is_read_ascend_to_its_end(
            starts in proptest::collection::vec((0u32..5, 0u64..12), 0..4),
            start in 0u64..6,
            counts in proptest::collection::vec(1u32..4, 0..3),
        ) {
            let packet = promise(&starts, start, &counts);
            if let Ok((_, Body::Promise { report: Report { log, .. }, .. })) = Body::read(&packet, &|_| None) {
                let ascend = |pair: &[(Epoch, u64)]| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1;
                assert!(log.starts.windows(2).all(ascend));
                assert!(log.starts.iter().all(|&(_, at)| at <= log.next));
            }
        }

        #[test]
        fn no_bytes_panic_the_reader(bytes: Vec<u8>, kind in 0u8..15) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            let _ = Body::read(&bytes, &|_| Some(Seq::first_seen(1)));
        }
    }
}
