//! A network of many nodes in virtual time: it delays, reorders, repeats, loses and cuts off datagrams by a seed.
//!
//! The nodes belong to the caller, who asks [`VirtualNet::next`] what happens next, hands that to the node concerned, and
//! gives back what the node sends and when it wants to be woken. Same calls, same seed: same events.
//!
//! A datagram is stored once, however many receivers it has; an event costs a push and a pop of a heap. A timer that is
//! moved to later costs nothing, so a node may set its timer after each datagram.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::rc::Rc;

use loss::chance::{Dice, Probability};
use loss::{Loss, LossModel};

/// What the network does to datagrams.
#[derive(Clone, Debug, Default)]
pub struct Weather {
    /// What each receiver loses of each class of datagrams, for itself. Classes beyond the list are not lost.
    pub loss: Vec<LossModel>,
    /// How long a datagram takes, in microseconds.
    pub delay_us: u64,
    /// Up to so much longer, evenly distributed: datagrams overtake each other.
    pub jitter_us: u64,
    /// Share of datagrams that come twice; each of the two has its own delay and its own luck.
    pub repeat: f64,
}

/// What a node takes to take datagrams in, one after the other. Without it all come in the moment they arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intake {
    /// So long for each, in microseconds.
    pub datagram_us: u64,
    /// So many wait meanwhile; what comes on top of them is dropped.
    pub queue: u64,
}

/// Why a datagram did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dropped {
    /// By the loss model.
    Lost,
    /// Sender and receiver were on different sides.
    CutOff,
    /// The receiver was down.
    Down,
    /// As many waited at the receiver as may.
    Full,
}

/// What happens next. Nodes are numbered in the order in which they were added.
#[derive(Clone, Debug)]
pub enum Event {
    /// A datagram reaches a node.
    Arrived {
        /// Who sent it.
        from: usize,
        /// Who gets it.
        to: usize,
        /// What was sent.
        datagram: Rc<[u8]>,
    },
    /// A datagram does not reach a node; told at the time at which it would have.
    Missed {
        /// Who sent it.
        from: usize,
        /// Who does not get it.
        to: usize,
        /// What was sent.
        datagram: Rc<[u8]>,
        /// Why.
        reason: Dropped,
    },
    /// The time that a node asked for has come.
    Woken {
        /// Which node.
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
    /// One that arrived and has been taken in.
    Taken {
        from: u32,
        bytes: Rc<[u8]>,
    },
    Timer,
}

#[derive(Debug)]
struct Queued {
    due_us: u64,
    /// Of two at one time, the one queued first comes first.
    number: u64,
    node: u32,
    cause: Cause,
}

impl Ord for Queued {
    /// The earliest is the greatest: the heap gives out its greatest.
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

/// A node as the network sees it.
#[derive(Debug, Default)]
struct Port {
    down: bool,
    side: u8,
    /// One for each class.
    loss: Vec<Loss>,
    wake_us: Option<u64>,
    /// When its entry in the heap is due, if it has one that counts: never after `wake_us`.
    queued_us: Option<u64>,
    /// When it will have taken in all that has arrived.
    busy_us: u64,
}

/// The network.
///
/// ```
/// use simnet::virtual_net::{Event, VirtualNet, Weather};
/// let mut net = VirtualNet::new(Weather { delay_us: 50, ..Weather::default() }, 1);
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
    weather: Weather,
    repeat: Probability,
    intake: Option<Intake>,
    seed: u64,
    dice: Dice,
    ports: Vec<Port>,
    events: BinaryHeap<Queued>,
    queued: u64,
    now_us: u64,
}

impl VirtualNet {
    /// A network without nodes, at time 0.
    #[must_use]
    pub fn new(weather: Weather, seed: u64) -> Self {
        Self {
            repeat: Probability::new(weather.repeat),
            weather,
            intake: None,
            seed,
            dice: Dice::new(seed),
            ports: Vec::new(),
            events: BinaryHeap::new(),
            queued: 0,
            now_us: 0,
        }
    }

    /// Adds a node; returns its number, counted from 0.
    pub fn add_node(&mut self) -> usize {
        let node = self.ports.len();
        let loss = self.models_of(node);
        self.ports.push(Port { loss, ..Port::default() });
        node
    }

    fn models_of(&self, node: usize) -> Vec<Loss> {
        let seed = |class: usize| {
            // Distinct for each node and class; the generator makes unrelated streams of them.
            self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ ((node as u64 + 1) << 8 | class as u64)
        };
        self.weather.loss.iter().enumerate().map(|(class, model)| model.seeded(seed(class))).collect()
    }

    /// From now on the weather is different; what is on its way keeps its delay.
    pub fn change_weather(&mut self, weather: Weather) {
        self.repeat = Probability::new(weather.repeat);
        self.weather = weather;
        for node in 0..self.ports.len() {
            self.ports[node].loss = self.models_of(node);
        }
    }

    /// What the network does to datagrams.
    #[must_use]
    pub fn weather(&self) -> &Weather {
        &self.weather
    }

    /// From now on each node takes its time for what arrives.
    pub fn set_intake(&mut self, intake: Option<Intake>) {
        self.intake = intake;
    }

    /// Virtual time in microseconds.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// A node that is down gets nothing and is not woken. Its timer is forgotten.
    pub fn set_down(&mut self, node: usize, down: bool) {
        self.ports[node].down = down;
        self.ports[node].wake_us = None;
    }

    /// Nodes hear only those on their own side; at first all are on side 0.
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
        let jitter_us = match self.weather.jitter_us {
            0 => 0,
            jitter_us => self.dice.below(jitter_us + 1),
        };
        let due_us = self.now_us + self.weather.delay_us + jitter_us;
        self.push(due_us, to, Cause::Datagram { from: from as u32, class, bytes: Rc::clone(bytes) });
    }

    fn push(&mut self, due_us: u64, node: usize, cause: Cause) {
        let number = self.queued;
        self.queued += 1;
        self.events.push(Queued { due_us, number, node: node as u32, cause });
    }

    /// Sets the one timer of a node, or takes it away. A time that has passed is as good as now.
    pub fn wake(&mut self, node: usize, at_us: Option<u64>) {
        let port = &mut self.ports[node];
        port.wake_us = at_us.filter(|_| !port.down);
        let Some(wake_us) = port.wake_us.map(|at_us| at_us.max(self.now_us)) else { return };
        if port.queued_us.is_none_or(|queued_us| wake_us < queued_us) {
            port.queued_us = Some(wake_us);
            self.push(wake_us, node, Cause::Timer);
        }
    }

    /// The next event up to and with `end_us`, which becomes the present; `None` when all of them have been told, and it
    /// is `end_us`.
    #[allow(clippy::should_implement_trait, reason = "it takes an end")]
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
                Cause::Timer if self.is_due(due_us, node) => return Some(Event::Woken { node }),
                Cause::Timer => {}
            }
        }
        self.now_us = self.now_us.max(end_us);
        None
    }

    /// `None` if the datagram has yet to be taken in.
    fn arrive(&mut self, from: usize, to: usize, class: u8, datagram: Rc<[u8]>) -> Option<Event> {
        let side = self.ports[from].side;
        let port = &mut self.ports[to];
        let reason = if port.down {
            Dropped::Down
        } else if port.side != side {
            Dropped::CutOff
        } else if port.loss.get_mut(usize::from(class)).is_some_and(Loss::lose) {
            Dropped::Lost
        } else {
            let Some(Intake { datagram_us, queue }) = self.intake else {
                return Some(Event::Arrived { from, to, datagram });
            };
            let start_us = port.busy_us.max(self.now_us);
            if start_us - self.now_us <= queue * datagram_us {
                port.busy_us = start_us + datagram_us;
                self.push(start_us + datagram_us, to, Cause::Taken { from: from as u32, bytes: datagram });
                return None;
            }
            Dropped::Full
        };
        Some(Event::Missed { from, to, datagram, reason })
    }

    /// Whether the entry in the heap is the one that counts, and the node's time has come; else it is queued anew.
    fn is_due(&mut self, due_us: u64, node: usize) -> bool {
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

    fn net(weather: Weather, nodes: usize) -> VirtualNet {
        let mut net = VirtualNet::new(weather, 3);
        (0..nodes).for_each(|_| {
            net.add_node();
        });
        net
    }

    /// Who is woken when.
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
        let mut net = net(Weather::default(), 2);
        net.wake(0, Some(50));
        net.wake(0, Some(80));
        net.wake(1, Some(70));
        net.wake(1, Some(60));
        assert_eq!(wakes(&mut net, 1_000), [(60, 1), (80, 0)]);
        net.wake(0, Some(1_200));
        net.wake(0, None);
        net.wake(1, Some(10));
        assert_eq!(wakes(&mut net, 2_000), [(1_000, 1)], "the past is now");
        net.wake(0, Some(2_100));
        net.wake(0, Some(2_050));
        net.wake(0, Some(2_300));
        assert_eq!(wakes(&mut net, 3_000), [(2_300, 0)]);
    }

    #[test]
    fn each_receiver_loses_of_each_class_for_itself() {
        let loss = vec![LossModel::Uniform(0.1), LossModel::Uniform(0.5)];
        let mut net = net(Weather { loss, ..Weather::default() }, 3);
        let mut lost = [[0, 0, 0], [0, 0, 0]];
        let mut both = 0;
        for _ in 0..10_000 {
            for class in 0..3u8 {
                net.send(0, &[1, 2], class, &[class]);
            }
            let mut of_this = 0;
            while let Some(event) = net.next(net.now_us()) {
                if let Event::Missed { to, datagram, reason: Dropped::Lost, .. } = event {
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
        assert!((60..150).contains(&both), "{both}: they are independent");
    }

    #[test]
    fn jitter_reorders_and_repeats_come_twice() {
        let mut net = net(Weather { delay_us: 10, jitter_us: 100, repeat: 0.25, ..Weather::default() }, 2);
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
    fn who_is_down_or_on_the_other_side_hears_nothing() {
        let mut net = net(Weather::default(), 3);
        net.set_down(1, true);
        net.set_side(2, 1);
        net.wake(1, Some(5));
        net.send(0, &[1, 2], 0, b"x");
        let mut reasons = Vec::new();
        while let Some(Event::Missed { to, reason, .. }) = net.next(10) {
            reasons.push((to, reason));
        }
        assert_eq!(reasons, [(1, Dropped::Down), (2, Dropped::CutOff)]);
        net.set_down(1, false);
        net.set_side(2, 0);
        net.send(0, &[1, 2], 0, b"x");
        assert!(matches!(net.next(20), Some(Event::Arrived { to: 1, .. })));
        assert!(matches!(net.next(20), Some(Event::Arrived { to: 2, .. })));
    }

    #[test]
    fn what_arrives_at_once_is_taken_in_one_after_the_other() {
        let mut net = net(Weather { delay_us: 5, ..Weather::default() }, 3);
        net.set_intake(Some(Intake { datagram_us: 10, queue: 2 }));
        for n in 0..5u8 {
            net.send(0, &[1], 0, &[n]);
        }
        net.send(0, &[2], 0, &[9]);
        let (mut came, mut dropped) = (Vec::new(), Vec::new());
        while let Some(event) = net.next(100) {
            match event {
                Event::Arrived { to, datagram, .. } => came.push((net.now_us(), to, datagram[0])),
                Event::Missed { datagram, reason: Dropped::Full, .. } => dropped.push(datagram[0]),
                _ => panic!("{event:?}"),
            }
        }
        assert_eq!(came, [(15, 1, 0), (15, 2, 9), (25, 1, 1), (35, 1, 2)]);
        assert_eq!(dropped, [3, 4]);
    }

    #[test]
    fn same_seed_same_events() {
        let run = || {
            let loss = vec!["markov:0.2:3".parse().unwrap()];
            let weather = Weather { loss, delay_us: 5, jitter_us: 9, repeat: 0.1 };
            let mut net = net(weather, 4);
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
