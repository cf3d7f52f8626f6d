//! Members that lie. Crashes are tolerated, not lies. But no packet may panic a member.

use ricochet_core::NodeId;
use ricochet_core::order::TotalConfig;

use super::room::Room;

const SECOND_US: u64 = 1_000_000;
/// Number of packets that are changed.
const CHANGES: u64 = 6_000;

/// An epoch: its count and its sequencer.
type Epoch = (u32, u32);

/// The log of a promise: its epochs and the first number of each, and the number of messages of sender 9.
struct Claim<'a> {
    council: &'a [u32],
    starts: &'a [(Epoch, u64)],
    messages: u32,
}

impl Claim<'_> {
    /// Returns the packet of a promise.
    fn promise(&self, order: &[u8], epoch: Epoch) -> Vec<u8> {
        let mut packet = [&[3, 0], order].concat();
        let put_epoch = |packet: &mut Vec<u8>, (count, sequencer): Epoch| {
            packet.extend([count, sequencer].into_iter().flat_map(u32::to_be_bytes));
        };
        put_epoch(&mut packet, epoch);
        packet.extend((self.council.len() as u16).to_be_bytes());
        packet.extend(self.council.iter().copied().flat_map(u32::to_be_bytes));
        packet.extend((self.starts.len() as u16).to_be_bytes());
        for &(epoch, start) in self.starts {
            put_epoch(&mut packet, epoch);
            packet.extend(start.to_be_bytes());
        }
        // No positions, the first number, nothing amended, one run.
        packet.extend([0; 2 + 8 + 4]);
        packet.extend([1, 9, 0, self.messages].into_iter().flat_map(u32::to_be_bytes));
        packet.push(0);
        packet
    }
}

/// Four members that have delivered 100 messages. The sequencer, member 0, awaits the promise of member 3,
/// and that of member 2, which lies. Returns the order and the epoch of the attempt.
fn awaiting_promises() -> (Room, Vec<u8>, Epoch) {
    let mut room = Room::new(4, |config| config);
    assert_eq!(room.sequencer(), 0);
    (0..100).for_each(|seq| room.say_all(9, seq));
    room.run_for(SECOND_US);
    room.down.extend([2, 3]);
    let (before, now_us) = (room.sent.len(), room.now_us);
    room.totals[0].change_view(now_us, [2, 3].map(NodeId));
    room.flush(0);
    room.run_for(20_000);
    let prepare = room.sent[before..].iter().find(|(from, packet)| (*from, packet[0]) == (0, 2));
    let packet = &prepare.expect("it asks for promises").1;
    let count = packet[10..14].try_into().expect("there are four bytes");
    let (order, epoch) = (packet[2..10].to_vec(), (u32::from_be_bytes(count), 0));
    (room, order, epoch)
}

/// Asserts that the members that live go on, and have taken nothing back.
fn assert_goes_on(room: &mut Room) {
    room.run_for(SECOND_US);
    room.say_all(9, 100);
    room.run_for(SECOND_US);
    for at in [0, 1] {
        assert_eq!((room.delivered(at).len(), room.broken(at)), (101, vec![]), "member {at}");
    }
}

#[test]
fn a_promise_with_an_epoch_beyond_its_log_is_refused() {
    let (mut room, order, epoch) = awaiting_promises();
    let starts = [((1, 0), 0), ((1, 9), 1 << 40)];
    let claim = Claim { council: &[0, 1, 2, 3], starts: &starts, messages: 5 };
    room.forge(2, 0, &claim.promise(&order, epoch));
    assert_eq!(room.totals[0].counts().malformed, 1);
    assert_goes_on(&mut room);
}

#[test]
fn a_promise_of_a_member_that_has_agreed_to_a_later_epoch_is_refused() {
    let (mut room, order, epoch) = awaiting_promises();
    let claim = Claim { council: &[2], starts: &[((1, 0), 0), ((epoch.0 + 1, 2), 5)], messages: 5 };
    room.forge(2, 0, &claim.promise(&order, epoch));
    assert_eq!(room.totals[0].counts().unauthorized, 1);
    assert_goes_on(&mut room);
}

#[test]
fn a_promise_of_a_node_outside_of_the_councils_counts_for_nothing() {
    let (mut room, order, epoch) = awaiting_promises();
    let claim = Claim { council: &[77], starts: &[((1, 0), 0), ((1, 77), 5)], messages: 5 };
    room.forge(77, 0, &claim.promise(&order, epoch));
    assert_goes_on(&mut room);
}

/// Returns the next of a sequence of numbers that look random.
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    (*state >> 33) as usize
}

/// Lets members leave, join and be cut off, so that all kinds of packets are sent.
fn eventful(safe: bool) -> Room {
    let mut room = Room::new(5, |config| TotalConfig { safe, ..config });
    let sequencer = room.sequencer();
    (0..20).for_each(|seq| room.say_all(9, seq));
    room.say(8, 0, [sequencer]);
    room.run_for(100_000);
    room.side[sequencer] = 1;
    room.update_views();
    (20..40).for_each(|seq| room.say(9, seq, 1..5));
    room.run_for(SECOND_US);
    room.side[sequencer] = 0;
    room.add(|config| TotalConfig { safe, ..config });
    room.update_views();
    room.run_for(SECOND_US);
    room.totals[4].leave();
    room.flush(4);
    room.down.insert(4);
    room.run_for(SECOND_US);
    room
}

#[test]
fn no_changed_packet_panics_a_member() {
    for safe in [false, true] {
        let mut room = eventful(safe);
        let sent = room.sent.clone();
        let mut state = 1;
        for round in 0..CHANGES {
            let (from, mut packet) = sent[next(&mut state) % sent.len()].clone();
            for _ in 0..=next(&mut state) % 3 {
                let at = 10 + next(&mut state) % (packet.len() - 9);
                let value = [0, 1, 2, 0x40, 0x7f, 0x80, 0xff, next(&mut state) as u8][next(&mut state) % 8];
                if let Some(byte) = packet.get_mut(at) {
                    *byte = value;
                }
            }
            let to = [0, 1, 2, 3, 5][next(&mut state) % 5];
            if to != from {
                room.forge(from, to, &packet);
            }
            if round % 20 == 0 {
                room.say_all(9, 40 + (round / 20) as u32);
                room.run_for(2_000);
            }
        }
    }
}
