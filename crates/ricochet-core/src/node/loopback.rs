//! Own messages: a node hands what it sends to its own subscriptions, where they want that.

use foundation::Seq;
use hashbrown::HashMap;

use super::Node;
use crate::delivery::Progress;
use crate::ids::{GroupId, StreamKey};
use crate::message::{How, Message, Output, Sent};
use crate::tracker::Front;
use crate::wire::Data;

/// Groups whose subscriptions want this node's own messages, and the position after the newest of these.
#[derive(Debug, Default)]
pub(super) struct Loopback {
    groups: HashMap<GroupId, Option<Seq>>,
}

impl Node {
    /// Sets whether this node's own messages to a group are delivered to it as they are sent. The node need
    /// not know yet that it is in the group.
    pub fn set_loopback(&mut self, group: GroupId, loopback: bool) {
        if loopback {
            self.loopback.groups.entry(group).or_default();
        } else {
            self.loopback.groups.remove(&group);
        }
    }

    /// Delivers a packet of this node to its own subscriptions, and keeps the messages of keys in it.
    pub(super) fn loop_back(&mut self, now_us: u64, data: &Data<'_>, out: &mut impl Output) {
        let is_kept = data.extras.enveloped && self.keyed.keeps(data.group);
        let next = self.loopback.groups.get_mut(&data.group);
        let is_wanted = next.is_some();
        if !is_kept && !is_wanted {
            return;
        }
        let near = next.as_ref().and_then(|next| **next);
        let seq = near.map_or(Seq::first_seen(data.seq), |near| Seq::from_wire(data.seq, near));
        let packets = data.count();
        let end = seq.plus(packets.into());
        if let Some(next) = next {
            *next = Some(end);
        }
        let StreamKey { sender, group } = data.key();
        let packet = Message {
            sender,
            group,
            seq,
            payload: data.body(),
            joint: data.joint,
            packets,
            how: How::Multicast,
            missed_us: None,
            // Nothing before it is missing.
            front: Front { settled: end, awaited: end },
            past_us: None,
            sent: data.sent_us().map(|at_us| Sent { at_us, since_us: now_us }),
            enveloped: data.extras.enveloped,
        };
        if !data.fragment {
            self.keyed.note(now_us, &packet);
            if is_wanted {
                out.deliver(&packet);
            }
            return;
        }
        let Progress::Whole(slot) = self.take_fragment(now_us, &packet, out) else { return };
        let message = self.fragments.message(slot, packet.front);
        self.keyed.note(now_us, &message);
        if is_wanted {
            out.deliver(&message);
        }
        self.fragments.on_delivered(slot);
    }
}
