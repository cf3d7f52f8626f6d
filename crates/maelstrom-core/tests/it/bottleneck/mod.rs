//! A bottleneck with a queue that drops what does not fit, flows of TCP that share it, and a gateway pair
//! that protects some of them, in virtual time.
//!
//! The flows, the queue and the code are models; what is left to the senders is decided by the gateway's
//! [`Congestion`]. A repair after each `per_repair` packets passes the queue too, and solves the oldest batch
//! of losses once there are as many repairs as losses.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use maelstrom_core::Seq;
use maelstrom_core::congestion::{Congestion, OnCongestion, Verdict};
use maelstrom_core::wire::SendTime;

/// Time after which a sender takes a packet for lost.
const DETECTED_US: u64 = 30_000;

/// Reaction of a flow to losses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Reno,
    Cubic,
    /// Packets at a constant interval, whatever is lost.
    Constant {
        every_us: f64,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowPlan {
    pub(crate) kind: Kind,
    pub(crate) is_protected: bool,
    /// Time of the first packet, and of the last one.
    pub(crate) from_us: u64,
    pub(crate) to_us: u64,
}

/// A link and its load.
#[derive(Clone, Debug)]
pub(crate) struct Bottleneck {
    /// Packets per second, and packets that the queue holds.
    pub(crate) per_second: f64,
    pub(crate) queue: f64,
    pub(crate) one_way_us: u64,
    pub(crate) flows: Vec<FlowPlan>,
    /// Share of packets that the link loses, at a time in microseconds.
    pub(crate) loss: fn(u64) -> f64,
    /// Delay that the link adds at a time, with a random number from 0 to 1.
    pub(crate) noise_us: fn(u64, f64) -> u64,
    /// Parts per million by which the clock of the receiver is fast.
    pub(crate) drift_ppm: i64,
    /// Treatment of congestion; `None` without gateways.
    pub(crate) gateways: Option<OnCongestion>,
    pub(crate) per_repair: u64,
    pub(crate) us: u64,
    /// Time from which packets count.
    pub(crate) counted_from_us: u64,
    pub(crate) seed: u64,
}

impl Default for Bottleneck {
    /// 20 Mbit/s, 256 KB, 25 ms one way.
    fn default() -> Self {
        Self {
            per_second: 1_900.0,
            queue: 200.0,
            one_way_us: 25_000,
            flows: Vec::new(),
            loss: |_| 0.0,
            noise_us: |_, _| 0,
            drift_ppm: 0,
            gateways: None,
            per_repair: 32,
            us: 120_000_000,
            counted_from_us: 60_000_000,
            seed: 1,
        }
    }
}

/// Counts of the time in which packets counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Packets per second that each flow delivered.
    pub(crate) goodput: Vec<f64>,
    pub(crate) dropped: u64,
    /// Lost packets of protected flows that were recovered, and those that were left.
    pub(crate) recovered: u64,
    pub(crate) left: u64,
    /// Knowledge of the gateway in the end.
    pub(crate) state: String,
}

impl Outcome {
    pub(crate) fn sum(&self, flows: std::ops::Range<usize>) -> f64 {
        self.goodput[flows].iter().sum()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Start {
        flow: usize,
    },
    Arrive {
        flow: usize,
        number: u64,
    },
    Repair {
        last: u64,
        sent_us: u64,
    },
    /// Later packets have shown the sender a loss that is not recovered yet.
    Detect {
        number: u64,
    },
    Answer {
        flow: usize,
        sent_us: u64,
        is_lost: bool,
    },
}

struct Flow {
    plan: FlowPlan,
    window: f64,
    threshold: f64,
    in_flight: f64,
    cut_us: u64,
    /// Window at the last cut.
    most: f64,
    delivered: u64,
}

/// A protected packet on its way.
#[derive(Clone, Copy)]
struct Packet {
    flow: usize,
    sent_us: u64,
    is_lost: bool,
}

struct World {
    plan: Bottleneck,
    now_us: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    serial: u64,
    flows: Vec<Flow>,
    busy_until_us: f64,
    random: u64,
    congestion: Option<Congestion>,
    /// Protected packets whose fate the far gateway does not know, from `first` on.
    packets: VecDeque<Packet>,
    first: u64,
    since_repair: u64,
    /// Losses of the batch, and repairs since its begin.
    lost: VecDeque<u64>,
    matched: usize,
    /// Losses that were neither recovered nor detected.
    open: HashMap<u64, Packet>,
    next_tick_us: u64,
    outcome: Outcome,
}

impl Bottleneck {
    pub(crate) fn run(&self) -> Outcome {
        let flows = self.flows.iter().map(|&plan| Flow {
            plan,
            window: 10.0,
            threshold: f64::MAX,
            in_flight: 0.0,
            cut_us: 0,
            most: 10.0,
            delivered: 0,
        });
        let mut world = World {
            plan: self.clone(),
            now_us: 0,
            events: BinaryHeap::new(),
            serial: 0,
            flows: flows.collect(),
            busy_until_us: 0.0,
            random: self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            congestion: self.gateways.map(Congestion::new),
            packets: VecDeque::new(),
            first: 0,
            since_repair: 0,
            matched: 0,
            lost: VecDeque::new(),
            open: HashMap::new(),
            next_tick_us: 0,
            outcome: Outcome::default(),
        };
        for flow in 0..self.flows.len() {
            world.at(self.flows[flow].from_us, Event::Start { flow });
        }
        world.run()
    }
}

impl World {
    fn run(mut self) -> Outcome {
        while let Some(Reverse((at_us, _, event))) = self.events.pop() {
            if at_us >= self.plan.us {
                break;
            }
            self.now_us = at_us;
            if at_us >= self.next_tick_us {
                self.next_tick_us = at_us + 100_000;
                let now_us = self.far_us();
                self.congestion.iter_mut().for_each(|congestion| congestion.on_tick(now_us));
            }
            match event {
                Event::Start { flow } => self.start(flow),
                Event::Arrive { flow, number } => self.arrive(flow, number),
                Event::Repair { last, sent_us } => self.repair(last, sent_us),
                Event::Detect { number } => self.end(number, true, false),
                Event::Answer { flow, sent_us, is_lost } => self.answer(flow, sent_us, is_lost),
            }
        }
        let seconds = (self.plan.us - self.plan.counted_from_us) as f64 / 1e6;
        self.outcome.goodput = self.flows.iter().map(|flow| flow.delivered as f64 / seconds).collect();
        self.outcome.state =
            self.congestion.map(|congestion| congestion.state().to_string()).unwrap_or_default();
        self.outcome
    }

    fn at(&mut self, at_us: u64, event: Event) {
        self.serial += 1;
        self.events.push(Reverse((at_us, self.serial, event)));
    }

    fn chance(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Time on the clock of the receiver.
    fn far_us(&self) -> u64 {
        let drift_us = self.now_us as i64 / 1_000 * self.plan.drift_ppm / 1_000;
        self.now_us.saturating_add_signed(drift_us + 3_600_000_000)
    }

    fn counts(&self) -> bool {
        self.now_us >= self.plan.counted_from_us
    }

    /// Puts a packet into the queue; returns when it arrives, or would have done so if it is lost.
    fn enqueue(&mut self) -> Result<u64, u64> {
        let service_us = 1e6 / self.plan.per_second;
        let waiting = (self.busy_until_us - self.now_us as f64).max(0.0) / service_us;
        if waiting + 1.0 > self.plan.queue {
            self.outcome.dropped += u64::from(self.counts());
            return Err(self.busy_until_us as u64
                + self.plan.one_way_us
                + (self.plan.noise_us)(self.now_us, 0.5));
        }
        self.busy_until_us = self.busy_until_us.max(self.now_us as f64) + service_us;
        let (coin, noise) = (self.chance(), self.chance());
        let at_us =
            self.busy_until_us as u64 + self.plan.one_way_us + (self.plan.noise_us)(self.now_us, noise);
        if coin < (self.plan.loss)(self.now_us) { Err(at_us) } else { Ok(at_us) }
    }

    fn start(&mut self, flow: usize) {
        let FlowPlan { kind, to_us, .. } = self.flows[flow].plan;
        if self.now_us >= to_us {
            return;
        }
        if let Kind::Constant { every_us } = kind {
            self.send(flow);
            self.at(self.now_us + every_us as u64, Event::Start { flow });
        } else {
            self.fill(flow);
        }
    }

    fn fill(&mut self, flow: usize) {
        while self.flows[flow].in_flight < self.flows[flow].window.floor()
            && self.now_us < self.flows[flow].plan.to_us
        {
            self.send(flow);
        }
    }

    fn send(&mut self, flow: usize) {
        self.flows[flow].in_flight += 1.0;
        let sent_us = self.now_us;
        let arrival = self.enqueue();
        if self.congestion.is_none() || !self.flows[flow].plan.is_protected {
            let (Ok(known_us) | Err(known_us)) = arrival;
            let answer = Event::Answer { flow, sent_us, is_lost: arrival.is_err() };
            return self.at(known_us + self.plan.one_way_us, answer);
        }
        let number = self.first + self.packets.len() as u64;
        let packet = Packet { flow, sent_us, is_lost: arrival.is_err() };
        self.packets.push_back(packet);
        match arrival {
            Ok(at_us) => self.at(at_us, Event::Arrive { flow, number }),
            Err(known_us) => {
                self.open.insert(number, packet);
                self.at(known_us + DETECTED_US, Event::Detect { number });
            }
        }
        self.since_repair += 1;
        if self.since_repair >= self.plan.per_repair {
            self.since_repair = 0;
            if let Ok(at_us) = self.enqueue() {
                self.at(at_us, Event::Repair { last: number, sent_us });
            }
        }
    }

    fn arrive(&mut self, flow: usize, number: u64) {
        let sent_us =
            number.checked_sub(self.first).map_or(self.now_us, |at| self.packets[at as usize].sent_us);
        self.at(self.now_us + self.plan.one_way_us, Event::Answer { flow, sent_us, is_lost: false });
    }

    fn repair(&mut self, last: u64, sent_us: u64) {
        let now_us = self.far_us();
        let congestion = self.congestion.as_mut().unwrap();
        congestion.on_datagram(now_us, 0, SendTime::at(sent_us));
        congestion.on_packet(Seq(last));
        while self.first <= last {
            let packet = self.packets.pop_front().unwrap();
            let number = self.first;
            self.first += 1;
            let congestion = self.congestion.as_mut().unwrap();
            if packet.is_lost {
                congestion.on_lost(Seq(number));
                self.lost.push_back(number);
            } else {
                congestion.on_arrived(Seq(number), 1);
            }
        }
        while self.lost.pop_front_if(|number| *number + 512 < last).is_some() {
            self.matched = self.matched.saturating_sub(1);
        }
        self.matched += usize::from(!self.lost.is_empty());
        if self.matched >= self.lost.len() {
            for number in std::mem::take(&mut self.lost) {
                let verdict = self.congestion.as_mut().unwrap().judge(Seq(number));
                self.end(number, verdict == Verdict::Leave, true);
            }
            self.matched = 0;
        }
    }

    /// Tells the sender of a lost packet what became of it, unless it knows.
    fn end(&mut self, number: u64, is_lost: bool, is_solved: bool) {
        let Some(packet) = self.open.remove(&number) else { return };
        if self.counts() && is_solved {
            self.outcome.left += u64::from(is_lost);
            self.outcome.recovered += u64::from(!is_lost);
        }
        let answer = Event::Answer { flow: packet.flow, sent_us: packet.sent_us, is_lost };
        self.at(self.now_us + self.plan.one_way_us, answer);
    }

    fn answer(&mut self, flow: usize, sent_us: u64, is_lost: bool) {
        let (now_us, counts) = (self.now_us, self.counts());
        let one = &mut self.flows[flow];
        one.in_flight -= 1.0;
        one.delivered += u64::from(!is_lost && counts);
        match one.plan.kind {
            Kind::Constant { .. } => return,
            _ if is_lost && sent_us >= one.cut_us => {
                let beta = if one.plan.kind == Kind::Reno { 0.5 } else { 0.7 };
                one.most = one.window;
                one.window = (one.window * beta).max(2.0);
                (one.threshold, one.cut_us) = (one.window, now_us);
            }
            _ if is_lost => {}
            _ if one.window < one.threshold => one.window += 1.0,
            Kind::Reno => one.window += 1.0 / one.window,
            Kind::Cubic => {
                let k = (one.most * 0.3 / 0.4).cbrt();
                let t = (now_us - one.cut_us) as f64 / 1e6;
                let target = 0.4 * (t - k).powi(3) + one.most;
                // RFC 9438 §4.3: at least as fast as reno.
                let least = 0.53 / one.window;
                one.window += ((target - one.window) / one.window).clamp(least, 0.5);
            }
        }
        self.fill(flow);
    }
}
