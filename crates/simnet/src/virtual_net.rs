//! A network of many nodes in virtual time. It delays, reorders, duplicates and loses datagrams, and it can
//! partition the nodes, all from one random seed.
//!
//! The caller owns the nodes. It asks [`VirtualNet::next`] for the next event, passes it to the node
//! concerned, and reports the datagrams that the node sends and the time at which it must be woken. The same
//! calls with the same seed give the same events.
//!
//! A datagram is stored once, whatever the number of its receivers; an event costs a push and a pop of a
//! heap. Postponing a timer is free, so a node may set its timer after each datagram.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::rc::Rc;

use loss::chance::{Dice, Probability};
use loss::{Loss, LossModel};

/// Conditions of the network: its effects on datagrams.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// Loss models by class of datagrams, applied at each receiver independently. Further classes have no
    /// loss.
    pub loss: Vec<LossModel>,
    /// One-way delay in microseconds.
    pub delay_us: u64,
    /// Maximum additional delay in microseconds, uniformly distributed; datagrams may overtake each other.
    pub jitter_us: u64,
    /// Share of datagrams that arrive twice. Each copy has its own delay and its own loss.
    pub repeat: f64,
}

/// Cost of receiving datagrams, one after the other. Without it, a node receives each at its arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intake {
    /// Time per datagram in microseconds.
    pub datagram_us: u64,
    /// Number of datagrams that may wait; further ones are dropped.
    pub queue: u64,
    /// Number of processors that all nodes share, as on one machine; with 0, each node has one of its own.
    pub processors: usize,
}

/// Reason why a datagram did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DropReason {
    /// The loss model lost it.
    Lost,
    /// Sender and receiver were in different partitions.
    CutOff,
    /// The receiver was down.
    Down,
    /// The receiver's queue was full.
    Full,
}

/// Next event. Nodes are numbered in the order of their addition.
#[derive(Clone, Debug)]
pub enum Event {
    /// A datagram reaches a node.
    Arrived {
        /// The sender.
        from: usize,
        /// The receiver.
        to: usize,
        /// The datagram.
        datagram: Rc<[u8]>,
    },
    /// A datagram does not reach a node; reported at the time at which it would have arrived.
    Missed {
        /// The sender.
        from: usize,
        /// The intended receiver.
        to: usize,
        /// The datagram.
        datagram: Rc<[u8]>,
        /// The reason.
        reason: DropReason,
    },
    /// A node's timer has expired.
    Woken {
        /// The node.
        node: usize,
    },
}

#[derive(Debug)]
enum Cause {
    Datagram {
        from: u32,
        class: u8,
        bytes: Rc<[u8]>,
    },
    /// A datagram that arrived and has passed the receiver's queue.
    Taken {
        from: u32,
        bytes: Rc<[u8]>,
    },
    Timer,
}

#[derive(Debug)]
struct Queued {
    due_us: u64,
    /// At equal times, the event queued first comes first.
    number: u64,
    node: u32,
    cause: Cause,
}

impl Ord for Queued {
    /// Reverses the order, because the heap returns its greatest entry and the earliest is needed.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due_us, other.number).cmp(&(self.due_us, self.number))
    }
}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Queued {}

/// State of a node in the network.
#[derive(Debug, Default)]
struct Port {
    down: bool,
    side: u8,
    /// One generator per class.
    loss: Vec<Loss>,
    wake_us: Option<u64>,
    /// When the valid heap entry of the timer is due, if there is one; never after `wake_us`.
    queued_us: Option<u64>,
    /// When the node will have received everything that has arrived.
    busy_us: u64,
}

/// A network in virtual time.
///
/// ```
/// use simnet::virtual_net::{Event, VirtualNet, Conditions};
/// let mut net = VirtualNet::new(Conditions { delay_us: 50, ..Conditions::default() }, 1);
/// let (a, b) = (net.add_node(), net.add_node());
/// net.send(a, &[b], 0, b"hello");
/// net.wake(a, Some(70));
/// let Some(Event::Arrived { to, datagram, .. }) = net.next(1_000) else { unreachable!() };
/// assert_eq!((to, &datagram[..], net.now_us()), (b, &b"hello"[..], 50));
/// assert!(matches!(net.next(1_000), Some(Event::Woken { node }) if node == a));
/// assert!(net.next(1_000).is_none());
/// assert_eq!(net.now_us(), 1_000);
/// ```
#[derive(Debug)]
pub struct VirtualNet {
    conditions: Conditions,
    repeat: Probability,
    intake: Option<Intake>,
    /// For each shared processor, when it will have finished all that has arrived.
    processors: Vec<u64>,
    seed: u64,
    dice: Dice,
    ports: Vec<Port>,
    events: BinaryHeap<Queued>,
    queued: u64,
    now_us: u64,
}

impl VirtualNet {
    /// Makes a network without nodes, at time 0.
    pub fn new(conditions: Conditions, seed: u64) -> Self {
        Self {
            repeat: Probability::new(conditions.repeat),
            conditions,
            intake: None,
            processors: Vec::new(),
            seed,
            dice: Dice::new(seed),
            ports: Vec::new(),
            events: BinaryHeap::new(),
            queued: 0,
            now_us: 0,
        }
    }

    /// Adds a node and returns its number, counted from 0.
    pub fn add_node(&mut self) -> usize {
        let node = self.ports.len();
        let loss = self.models_of(node);
        self.ports.push(Port { loss, ..Port::default() });
        node
    }

    fn models_of(&self, node: usize) -> Vec<Loss> {
        let seed = |class: usize| {
            // distinct for each node and class; the generator makes independent streams of them
            self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ ((node as u64 + 1) << 8 | class as u64)
        };
        self.conditions.loss.iter().enumerate().map(|(class, model)| model.seeded(seed(class))).collect()
    }

    /// Sets other conditions; datagrams in flight keep their delay.
    pub fn set_conditions(&mut self, conditions: Conditions) {
        self.repeat = Probability::new(conditions.repeat);
        self.conditions = conditions;
        for node in 0..self.ports.len() {
            self.ports[node].loss = self.models_of(node);
        }
    }

    /// Returns the current conditions.
    pub fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// Sets the cost of receiving, for all nodes.
    pub fn set_intake(&mut self, intake: Option<Intake>) {
        self.intake = intake;
        self.processors = vec![self.now_us; intake.map_or(0, |intake| intake.processors)];
    }

    /// Returns the virtual time in microseconds.
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// Takes a node down or up. A node that is down receives nothing and is not woken; its timer is cleared.
    pub fn set_down(&mut self, node: usize, down: bool) {
        self.ports[node].down = down;
        self.ports[node].wake_us = None;
    }

    /// Moves a node to a partition. Datagrams reach only nodes of the same one; all nodes start in partition
    /// 0.
    pub fn set_side(&mut self, node: usize, side: u8) {
        self.ports[node].side = side;
    }

    /// Sends one datagram of a class to each of `receivers`.
    pub fn send(&mut self, from: usize, receivers: &[usize], class: u8, datagram: &[u8]) {
        let bytes: Rc<[u8]> = Rc::from(datagram);
        for &to in receivers {
            self.launch(from, to, class, &bytes);
            if self.dice.happens(self.repeat) {
                self.launch(from, to, class, &bytes);
            }
        }
    }

    fn launch(&mut self, from: usize, to: usize, class: u8, bytes: &Rc<[u8]>) {
        let jitter_us = match self.conditions.jitter_us {
            0 => 0,
            jitter_us => self.dice.below(jitter_us + 1),
        };
        let due_us = self.now_us + self.conditions.delay_us + jitter_us;
        self.push(due_us, to, Cause::Datagram { from: from as u32, class, bytes: Rc::clone(bytes) });
    }

    fn push(&mut self, due_us: u64, node: usize, cause: Cause) {
        let number = self.queued;
        self.queued += 1;
        self.events.push(Queued { due_us, number, node: node as u32, cause });
    }

    /// Sets the single timer of a node, or clears it. A time in the past counts as the present.
    pub fn wake(&mut self, node: usize, at_us: Option<u64>) {
        let port = &mut self.ports[node];
        port.wake_us = at_us.filter(|_| !port.down);
        let Some(wake_us) = port.wake_us.map(|at_us| at_us.max(self.now_us)) else { return };
        if port.queued_us.is_none_or(|queued_us| wake_us < queued_us) {
            port.queued_us = Some(wake_us);
            self.push(wake_us, node, Cause::Timer);
        }
    }

    /// Returns the next event up to and including `end_us` and advances the time to it. Returns `None` when
    /// there is none left, with the time at `end_us`.
    #[allow(clippy::should_implement_trait, reason = "takes an argument")]
    pub fn next(&mut self, end_us: u64) -> Option<Event> {
        while self.events.peek().is_some_and(|queued| queued.due_us <= end_us) {
            let Queued { due_us, node, cause, .. } = self.events.pop()?;
            let node = node as usize;
            self.now_us = self.now_us.max(due_us);
            match cause {
                Cause::Datagram { from, class, bytes } => {
                    if let Some(event) = self.arrive(from as usize, node, class, bytes) {
                        return Some(event);
                    }
                }
                Cause::Taken { from, bytes: datagram } => {
                    return Some(Event::Arrived { from: from as usize, to: node, datagram });
                }
                Cause::Timer if self.take_due(due_us, node) => return Some(Event::Woken { node }),
                Cause::Timer => {}
            }
        }
        self.now_us = self.now_us.max(end_us);
        None
    }

    /// Returns the event of an arrival, or `None` if the datagram waits in the receiver's queue.
    fn arrive(&mut self, from: usize, to: usize, class: u8, datagram: Rc<[u8]>) -> Option<Event> {
        let side = self.ports[from].side;
        let port = &mut self.ports[to];
        let reason = if port.down {
            DropReason::Down
        } else if port.side != side {
            DropReason::CutOff
        } else if port.loss.get_mut(usize::from(class)).is_some_and(Loss::lose) {
            DropReason::Lost
        } else {
            let Some(Intake { datagram_us, queue, .. }) = self.intake else {
                return Some(Event::Arrived { from, to, datagram });
            };
            let busy_us = self.processors.iter_mut().min().unwrap_or(&mut port.busy_us);
            let start_us = (*busy_us).max(self.now_us);
            if start_us - self.now_us <= queue * datagram_us {
                *busy_us = start_us + datagram_us;
                self.push(start_us + datagram_us, to, Cause::Taken { from: from as u32, bytes: datagram });
                return None;
            }
            DropReason::Full
        };
        Some(Event::Missed { from, to, datagram, reason })
    }

    /// Returns whether a timer's heap entry is valid and the node's time has come. A postponed timer is
    /// queued again.
    fn take_due(&mut self, due_us: u64, node: usize) -> bool {
        let port = &mut self.ports[node];
        if port.queued_us != Some(due_us) {
            return false;
        }
        port.queued_us = None;
        let wake_us = port.wake_us.take();
        if wake_us.is_some_and(|wake_us| wake_us > due_us) {
            self.wake(node, wake_us);
            return false;
        }
        wake_us.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(conditions: Conditions, nodes: usize) -> VirtualNet {
        let mut net = VirtualNet::new(conditions, 3);
        (0..nodes).for_each(|_| {
            net.add_node();
        });
        net
    }

    /// Returns the time and node of each wake-up.
    fn wakes(net: &mut VirtualNet, end_us: u64) -> Vec<(u64, usize)> {
        let mut seen = Vec::new();
        while let Some(event) = net.next(end_us) {
            let Event::Woken { node } = event else { panic!("{event:?}") };
            seen.push((net.now_us(), node));
        }
        seen
    }

    #[test]
    fn a_timer_fires_once_and_at_the_last_time_set() {
        let mut net = net(Conditions::default(), 2);
        net.wake(0, Some(50));
        net.wake(0, Some(80));
        net.wake(1, Some(70));
        net.wake(1, Some(60));
        assert_eq!(wakes(&mut net, 1_000), [(60, 1), (80, 0)]);
        net.wake(0, Some(1_200));
        net.wake(0, None);
        net.wake(1, Some(10));
        assert_eq!(wakes(&mut net, 2_000), [(1_000, 1)], "a time in the past counts as the present");
        net.wake(0, Some(2_100));
        net.wake(0, Some(2_050));
        net.wake(0, Some(2_300));
        assert_eq!(wakes(&mut net, 3_000), [(2_300, 0)]);
    }

    #[test]
    fn each_receiver_loses_each_class_independently() {
        let loss = vec![LossModel::Uniform(0.1), LossModel::Uniform(0.5)];
        let mut net = net(Conditions { loss, ..Conditions::default() }, 3);
        let mut lost = [[0, 0, 0], [0, 0, 0]];
        let mut both = 0;
        for _ in 0..10_000 {
            for class in 0..3u8 {
                net.send(0, &[1, 2], class, &[class]);
            }
            let mut of_this = 0;
            while let Some(event) = net.next(net.now_us()) {
                if let Event::Missed { to, datagram, reason: DropReason::Lost, .. } = event {
                    lost[to - 1][usize::from(datagram[0])] += 1;
                    of_this += usize::from(datagram[0] == 0);
                }
            }
            both += usize::from(of_this == 2);
        }
        for of_node in lost {
            assert!((900..1_100).contains(&of_node[0]) && (4_800..5_200).contains(&of_node[1]), "{lost:?}");
            assert_eq!(of_node[2], 0);
        }
        assert!((60..150).contains(&both), "{both}: losses are not independent");
    }

    #[test]
    fn jitter_reorders_and_duplicates_arrive_twice() {
        let mut net =
            net(Conditions { delay_us: 10, jitter_us: 100, repeat: 0.25, ..Conditions::default() }, 2);
        for n in 0..4_000u32 {
            net.send(0, &[1], 0, &n.to_be_bytes());
        }
        let mut seen = Vec::new();
        while let Some(Event::Arrived { datagram, .. }) = net.next(10_000) {
            assert!((10..=110).contains(&net.now_us()));
            seen.push(u32::from_be_bytes(datagram[..].try_into().unwrap()));
        }
        assert!((4_900..5_100).contains(&seen.len()), "{}", seen.len());
        assert!(!seen.is_sorted());
    }

    #[test]
    fn a_node_that_is_down_or_partitioned_receives_nothing() {
        let mut net = net(Conditions::default(), 3);
        net.set_down(1, true);
        net.set_side(2, 1);
        net.wake(1, Some(5));
        net.send(0, &[1, 2], 0, b"x");
        let mut reasons = Vec::new();
        while let Some(Event::Missed { to, reason, .. }) = net.next(10) {
            reasons.push((to, reason));
        }
        assert_eq!(reasons, [(1, DropReason::Down), (2, DropReason::CutOff)]);
        net.set_down(1, false);
        net.set_side(2, 0);
        net.send(0, &[1, 2], 0, b"x");
        assert!(matches!(net.next(20), Some(Event::Arrived { to: 1, .. })));
        assert!(matches!(net.next(20), Some(Event::Arrived { to: 2, .. })));
    }

    #[test]
    fn simultaneous_arrivals_are_received_one_after_the_other() {
        let mut net = net(Conditions { delay_us: 5, ..Conditions::default() }, 3);
        net.set_intake(Some(Intake { datagram_us: 10, queue: 2, processors: 0 }));
        for n in 0..5u8 {
            net.send(0, &[1], 0, &[n]);
        }
        net.send(0, &[2], 0, &[9]);
        let (mut came, mut dropped) = (Vec::new(), Vec::new());
        while let Some(event) = net.next(100) {
            match event {
                Event::Arrived { to, datagram, .. } => came.push((net.now_us(), to, datagram[0])),
                Event::Missed { datagram, reason: DropReason::Full, .. } => dropped.push(datagram[0]),
                _ => panic!("{event:?}"),
            }
        }
        assert_eq!(came, [(15, 1, 0), (15, 2, 9), (25, 1, 1), (35, 1, 2)]);
        assert_eq!(dropped, [3, 4]);
    }

    #[test]
    fn nodes_on_one_machine_wait_for_its_processors() {
        let mut net = net(Conditions { delay_us: 5, ..Conditions::default() }, 5);
        net.set_intake(Some(Intake { datagram_us: 10, queue: 100, processors: 2 }));
        net.send(0, &[1, 2, 3, 4], 0, b"x");
        net.send(0, &[1], 0, b"y");
        let mut came = Vec::new();
        while let Some(Event::Arrived { to, .. }) = net.next(100) {
            came.push((net.now_us(), to));
        }
        assert_eq!(came, [(15, 1), (15, 2), (25, 3), (25, 4), (35, 1)]);
    }

    #[test]
    fn the_same_seed_gives_the_same_events() {
        let run = || {
            let loss = vec!["markov:0.2:3".parse().unwrap()];
            let conditions = Conditions { loss, delay_us: 5, jitter_us: 9, repeat: 0.1 };
            let mut net = net(conditions, 4);
            let mut seen = Vec::new();
            for n in 0..2_000u32 {
                net.send(n as usize % 4, &[0, 1, 2, 3], 0, &n.to_be_bytes());
                while let Some(event) = net.next(u64::from(n)) {
                    seen.push(format!("{} {event:?}", net.now_us()));
                }
            }
            seen
        };
        assert_eq!(run(), run());
    }
}
