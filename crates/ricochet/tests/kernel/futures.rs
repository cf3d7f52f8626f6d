//! Subscriptions as streams and senders as sinks, on an executor that knows nothing but wakers.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use futures_core::Stream;
use futures_sink::Sink;
use ricochet::{Builder, Event, JoinOptions, Node, Policy, SendError, Subscription};

use crate::common::LONG;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a task to its end on this thread.
fn block_on<T>(task: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut task = pin!(task);
    loop {
        match task.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

fn here() -> Builder {
    Node::builder("lo").address([127, 0, 0, 1]).port(0).unicast(true)
}

/// Returns a receiver with a subscription, and a sender that knows it.
fn pair(options: &JoinOptions) -> (Node, Subscription, Node) {
    let receiver = here().start().unwrap();
    let subscription = receiver.join_with("g", options).unwrap();
    let sender = here().seed(receiver.address().to_string()).start().unwrap();
    assert!(sender.wait_for_members("g", 1, LONG));
    (receiver, subscription, sender)
}

async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await
}

async fn feed<S: Sink<Vec<u8>, Error = SendError> + Unpin>(sink: &mut S, message: Vec<u8>) {
    poll_fn(|context| Pin::new(&mut *sink).poll_ready(context)).await.unwrap();
    Pin::new(&mut *sink).start_send(message).unwrap();
}

async fn flush<S: Sink<Vec<u8>, Error = SendError> + Unpin>(sink: &mut S) -> Result<(), SendError> {
    poll_fn(|context| Pin::new(&mut *sink).poll_flush(context)).await
}

/// The queue of the receiver has room for one message and makes the sender wait, so that both tasks sleep and
/// are woken again and again.
#[test]
fn a_sink_feeds_a_stream_through_a_full_queue() {
    let options = JoinOptions { queue: Some(1), policy: Some(Policy::Block), ..JoinOptions::default() };
    let (receiver, mut subscription, sender) = pair(&options);
    const MESSAGES: u32 = 2_000;
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut sink = sender.sender("g").unwrap().into_sink::<Vec<u8>>();
            block_on(async {
                for number in 0..MESSAGES {
                    feed(&mut sink, [&number.to_be_bytes()[..], &[0; 1_000]].concat()).await;
                }
                flush(&mut sink).await.unwrap();
            });
        });
        block_on(async {
            let mut seen = vec![false; MESSAGES as usize];
            while seen.contains(&false) {
                let event = next(&mut subscription).await.expect("the node lives").unwrap();
                let Event::Message(message) = event else { panic!("{event:?}") };
                let number = u32::from_be_bytes(*message.payload().first_chunk().unwrap());
                assert!(!std::mem::replace(&mut seen[number as usize], true), "{number} came twice");
            }
        });
    });
    // A stream that waits ends with the node, and stays at its end.
    thread::scope(|scope| {
        let closer = scope.spawn(|| receiver.close());
        assert!(block_on(next(&mut subscription)).is_none());
        closer.join().unwrap();
    });
    assert!(block_on(next(&mut &subscription)).is_none());
}

#[test]
fn messages_are_awaited_and_a_message_that_is_too_long_is_an_error_of_the_sink() {
    let (_receiver, subscription, sender) = pair(&JoinOptions::default());
    let mut sink = sender.sender("g").unwrap().into_sink::<Vec<u8>>();
    block_on(async {
        feed(&mut sink, vec![0; sender.payload_max() + 1]).await;
        assert!(matches!(flush(&mut sink).await, Err(SendError::TooLong { .. })));
        feed(&mut sink, b"fits".to_vec()).await;
        flush(&mut sink).await.unwrap();
        assert_eq!(subscription.recv_async().await.unwrap().payload(), b"fits");
        sink.into_sender().send_async(b"again").await.unwrap();
        let event = next(&mut &subscription).await.unwrap().unwrap();
        assert!(matches!(event, Event::Message(message) if message.payload() == b"again"));
    });
    sender.close();
    let mut sink = sender.sender("g").unwrap().into_sink::<Vec<u8>>();
    block_on(feed(&mut sink, b"late".to_vec()));
    assert_eq!(block_on(flush(&mut sink)), Err(SendError::Closed));
}

/// Tasks that share a subscription are all woken when it ends.
#[test]
fn tasks_that_share_a_subscription_end_with_it() {
    let node = here().start().unwrap();
    let subscription = node.join("g").unwrap();
    thread::scope(|scope| {
        let tasks: Vec<_> =
            (0..100).map(|_| scope.spawn(|| block_on(next(&mut &subscription)).is_none())).collect();
        subscription.leave();
        assert!(tasks.into_iter().all(|task| task.join().unwrap()));
    });
}
