//! Threads that wake one another, in many orders of their steps: Shuttle schedules them, and reports a thread
//! that sleeps for ever as a deadlock. `cargo xtask assure` runs these tests.

use std::collections::VecDeque;
use std::sync::Arc;

use shuttle::{check_pct, check_random, thread};

use crate::backpressure::Backpressure;
use crate::error::{RecvError, TryRecvError};
use crate::message::{Event, numbered};
use crate::policy::Policy;
use crate::queue::{Bounds, Queue};
use crate::sleep::Sleep;
use crate::sync::{Condvar, Mutex};
use crate::wake::Waker;

/// Number of orders that each test tries, at random and with few preemptions each.
const ORDERS: usize = 20_000;
const MESSAGES: u32 = 5;

/// Model of a descriptor and of `epoll`, which waits until it is readable.
#[derive(Debug, Default)]
pub(crate) struct Readable {
    is_readable: Mutex<bool>,
    changed: Condvar,
}

impl Readable {
    pub(crate) fn set(&self, readable: bool) {
        *self.is_readable.lock().unwrap() = readable;
        self.changed.notify_all();
    }

    pub(crate) fn wait(&self) {
        let mut readable = self.is_readable.lock().unwrap();
        while !*readable {
            readable = self.changed.wait(readable).unwrap();
        }
    }
}

fn check(scenario: impl Fn() + Send + Sync + Clone + 'static) {
    check_random(scenario.clone(), ORDERS);
    check_pct(scenario, ORDERS, 3);
}

fn bounds(messages: usize) -> Bounds {
    Bounds { messages, bytes: 1 << 20 }
}

fn waker() -> Waker {
    Waker::new().unwrap()
}

fn number(event: &Event) -> u32 {
    match event {
        Event::Message(message) => message.seq(),
        Event::Lost(lost) => lost.first,
        other => panic!("{other:?}"),
    }
}

/// The draining thread and an application's thread bring work; the node's thread sleeps whenever it finds
/// none.
#[test]
fn a_node_that_falls_asleep_misses_no_work() {
    check(|| {
        let sleep = Arc::new(Sleep::new(waker()));
        let work: Arc<Mutex<VecDeque<u32>>> = Arc::default();
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let (sleep, work) = (Arc::clone(&sleep), Arc::clone(&work));
                thread::spawn(move || {
                    for item in 0..MESSAGES {
                        work.lock().unwrap().push_back(item);
                        sleep.wake_before(1);
                    }
                })
            })
            .collect();
        let mut left = 2 * MESSAGES;
        while left > 0 {
            if work.lock().unwrap().pop_front().is_some() {
                left -= 1;
                continue;
            }
            sleep.announce(u64::MAX);
            let is_idle = work.lock().unwrap().is_empty();
            if is_idle {
                sleep.waker().wait();
            }
            sleep.on_awake(is_idle);
        }
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

/// Two subscriptions block one node; it goes on when both have room.
#[test]
fn a_node_under_backpressure_is_woken_when_the_last_queue_has_room() {
    check(|| {
        let waker = waker();
        let backpressure = Arc::new(Backpressure::new(waker.clone()));
        let queues =
            [1, 2].map(|capacity| Queue::new(bounds(capacity), Policy::Block, Arc::clone(&backpressure)));
        let readers = queues.clone().map(|queue| {
            thread::spawn(move || {
                for seq in 0..MESSAGES {
                    assert_eq!(number(&queue.pop_wait().unwrap()), seq);
                }
            })
        });
        for seq in 0..MESSAGES {
            while backpressure.arm_if_active() {
                waker.wait();
                waker.clear();
            }
            queues.iter().for_each(|queue| queue.push(numbered(seq)));
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert!(!backpressure.is_active());
        assert!(queues.iter().all(|queue| queue.counts().dropped == 0));
    });
}

/// A reader that waits for the descriptor, as an event loop does.
#[test]
fn a_reader_that_waits_for_the_descriptor_gets_all_messages_and_the_end() {
    check(|| {
        let queue = Queue::new(bounds(8), Policy::DropOldest, Arc::new(Backpressure::new(waker())));
        let writer = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                (0..MESSAGES).for_each(|seq| queue.push(numbered(seq)));
                queue.close(RecvError::Closed).wake();
            })
        };
        queue.ready().unwrap();
        let mut next = 0;
        loop {
            match queue.try_pop() {
                Ok(event) => {
                    assert_eq!(number(&event), next);
                    next += 1;
                }
                Err(TryRecvError::Empty) => queue.wait_until_ready(),
                Err(_) => break,
            }
        }
        assert_eq!(next, MESSAGES);
        writer.join().unwrap();
    });
}

/// Two threads that ask for the descriptor at the same time get one that works.
#[test]
fn two_readers_that_create_the_descriptor_at_once_both_see_the_end() {
    check(|| {
        let queue = Queue::new(bounds(8), Policy::DropOldest, Arc::new(Backpressure::new(waker())));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || {
                    queue.ready().unwrap();
                    loop {
                        match queue.try_pop() {
                            Ok(_) => {}
                            Err(TryRecvError::Empty) => queue.wait_until_ready(),
                            Err(_) => return,
                        }
                    }
                })
            })
            .collect();
        queue.push(numbered(0));
        queue.close(RecvError::Closed).wake();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

/// Readers that block end with the queue, and no message is lost between them.
#[test]
fn blocked_readers_share_the_messages_and_end_with_the_queue() {
    check(|| {
        let queue = Queue::new(bounds(8), Policy::DropNewest, Arc::new(Backpressure::new(waker())));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || std::iter::from_fn(|| queue.pop_wait().ok()).count())
            })
            .collect();
        (0..MESSAGES).for_each(|seq| queue.push(numbered(seq)));
        queue.close(RecvError::Closed).wake();
        let taken: usize = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        assert_eq!(taken, MESSAGES as usize);
    });
}
