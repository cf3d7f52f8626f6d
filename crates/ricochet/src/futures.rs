//! Subscriptions as streams, and senders as sinks, on any executor.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_sink::Sink;

use crate::error::{RecvError, SendError};
use crate::message::Event;
use crate::sender::{SendOptions, Sender};
use crate::subscription::Subscription;

/// The events of a subscription. The stream ends when the node or the subscription is closed and all queued
/// events have been received. A node that has failed is an error, after which the stream does not continue.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use futures_core::Stream as _;
/// # let node = ricochet::Node::builder("lo").address([127, 0, 0, 1]).unicast(true).port(0).start()?;
/// let mut prices = std::pin::pin!(node.join("prices/AAPL")?);
/// let mut context = std::task::Context::from_waker(std::task::Waker::noop());
/// assert!(prices.as_mut().poll_next(&mut context).is_pending());
/// node.close();
/// assert!(matches!(prices.poll_next(&mut context), std::task::Poll::Ready(None)));
/// # Ok(()) }
/// ```
impl Stream for Subscription {
    type Item = Result<Event, RecvError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        next(&self, context)
    }
}

/// The same, for tasks that share a subscription: each gets a part of the events.
impl Stream for &Subscription {
    type Item = Result<Event, RecvError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        next(&self, context)
    }
}

fn next(subscription: &Subscription, context: &Context<'_>) -> Poll<Option<Result<Event, RecvError>>> {
    Poll::Ready(match ready!(subscription.poll_event(context)) {
        Err(RecvError::Closed) => None,
        event => Some(event),
    })
}

impl Sender {
    /// Returns a sink of messages. It is ready when the readers have room for the previous message.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use futures_sink::Sink as _;
    /// # let node = ricochet::Node::builder("lo").address([127, 0, 0, 1]).unicast(true).port(0).start()?;
    /// let mut sink = std::pin::pin!(node.sender("prices/AAPL")?.into_sink::<&[u8]>());
    /// let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// assert!(sink.as_mut().poll_ready(&mut context)?.is_ready());
    /// sink.as_mut().start_send(b"187.21")?;
    /// assert!(sink.poll_flush(&mut context)?.is_ready());
    /// # Ok(()) }
    /// ```
    pub fn into_sink<P: AsRef<[u8]>>(self) -> SenderSink<P> {
        SenderSink { sender: self, waiting: None }
    }
}

/// A sink of messages to one group.
///
/// Flushing it waits until its message is with the node, and closing it does the same.
/// [`Node::flush`](crate::Node::flush) waits until messages have left the node.
#[derive(Debug)]
#[must_use = "a sink does nothing unless it is polled"]
pub struct SenderSink<P> {
    sender: Sender,
    /// A message for which there may be no room yet.
    waiting: Option<P>,
}

impl<P> SenderSink<P> {
    /// Returns the sender. A message that was not flushed is dropped.
    pub fn into_sender(self) -> Sender {
        self.sender
    }
}

impl<P: AsRef<[u8]> + Unpin> Sink<P> for SenderSink<P> {
    type Error = SendError;

    fn poll_ready(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.poll_flush(context)
    }

    /// Takes a message.
    ///
    /// # Panics
    /// If the sink is not ready.
    fn start_send(self: Pin<&mut Self>, message: P) -> Result<(), SendError> {
        let waiting = &mut self.get_mut().waiting;
        assert!(waiting.is_none(), "a sink takes a message when `poll_ready` has returned that it is ready");
        *waiting = Some(message);
        Ok(())
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        let sink = self.get_mut();
        let Some(message) = &sink.waiting else { return Poll::Ready(Ok(())) };
        let sent = ready!(sink.sender.poll_send(message.as_ref(), &SendOptions::default(), context));
        // A message that cannot be sent is dropped with its error.
        sink.waiting = None;
        Poll::Ready(sent.map(drop))
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.poll_flush(context)
    }
}
