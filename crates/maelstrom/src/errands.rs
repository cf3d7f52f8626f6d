//! Work that may wait for locks of the kernel, on a thread of its own.
//!
//! The kernel answers questions about interfaces, routes and attached programs under locks that all network
//! namespaces share. Whoever starts containers or loads large rule sets holds them for hundreds of
//! milliseconds. A main loop that waited for them would stand still, and lose the packets of that time.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::Duration;
use std::{io, thread};

/// Interval between the signs of life of a thread that waits.
pub(crate) const BEAT: Duration = Duration::from_millis(100);

type Work = Box<dyn FnOnce() + Send>;

/// The thread, which takes its errands one by one. It ends when this is dropped, after those that wait.
#[derive(Debug)]
pub(crate) struct Errands(Sender<Work>);

/// An errand, or none.
#[derive(Debug)]
pub(crate) struct Errand<T>(Option<Receiver<T>>);

impl Errands {
    /// Starts the thread, in the network namespace of the calling one.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (errands, waiting) = mpsc::channel::<Work>();
        let run = move || waiting.into_iter().for_each(|work| work());
        thread::Builder::new().name("errands".to_owned()).spawn(run)?;
        Ok(Self(errands))
    }

    /// Sends for an answer.
    pub(crate) fn begin<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Errand<T> {
        let (answer, errand) = mpsc::sync_channel(1);
        // Nobody may wait for the answer any more.
        self.run(move || drop(answer.send(work())));
        Errand(Some(errand))
    }

    /// Has something done of which nobody needs to hear.
    pub(crate) fn run(&self, work: impl FnOnce() + Send + 'static) {
        if let Err(unsent) = self.0.send(Box::new(work)) {
            // The thread has panicked: better late than never.
            (unsent.0)();
        }
    }
}

impl<T> Errand<T> {
    /// Returns the answer when it is there, once.
    pub(crate) fn take(&mut self) -> Option<T> {
        match self.0.as_ref()?.try_recv() {
            Ok(answer) => {
                self.0 = None;
                Some(answer)
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                self.0 = None;
                None
            }
        }
    }

    /// Waits for the answer, if an errand is under way.
    pub(crate) fn wait(&mut self, patience: Duration) -> Option<T> {
        self.0.take()?.recv_timeout(patience).ok()
    }

    /// The same with a sign of life at each [`BEAT`], for whoever watches this thread.
    pub(crate) fn wait_with(&mut self, patience: Duration, mut beat: impl FnMut()) -> Option<T> {
        let answer = self.0.take()?;
        let mut left = patience;
        while !left.is_zero() {
            beat();
            match answer.recv_timeout(left.min(BEAT)) {
                Err(RecvTimeoutError::Timeout) => left = left.saturating_sub(BEAT),
                answer => return answer.ok(),
            }
        }
        None
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.0.is_some()
    }
}

impl<T> Default for Errand<T> {
    fn default() -> Self {
        Self(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn nobody_waits_for_an_errand_and_its_answer_comes_once() {
        let errands = Errands::start().unwrap();
        let (release, held) = mpsc::channel::<()>();
        let mut slow = errands.begin(move || held.recv().is_ok());
        let mut next = errands.begin(|| 7);
        assert_eq!((slow.take(), next.take()), (None, None));
        assert!(slow.is_under_way() && next.is_under_way());
        release.send(()).unwrap();
        assert_eq!(slow.wait(LONG), Some(true));
        assert_eq!(next.wait(LONG), Some(7));
        assert!(!next.is_under_way());
        assert_eq!((next.take(), next.wait(LONG)), (None, None));
    }

    #[test]
    fn a_thread_that_waits_for_an_errand_gives_signs_of_life() {
        let errands = Errands::start().unwrap();
        let (release, held) = mpsc::channel::<()>();
        let mut slow = errands.begin(move || held.recv().is_ok());
        let mut beats = 0;
        let answer = slow.wait_with(LONG, || {
            beats += 1;
            if beats == 3 {
                release.send(()).unwrap();
            }
        });
        assert!(answer == Some(true) && beats >= 3, "{answer:?} after {beats}");
        let (_keep, held) = mpsc::channel::<()>();
        let mut never = errands.begin(move || held.recv().is_ok());
        beats = 0;
        assert_eq!((never.wait_with(2 * BEAT, || beats += 1), beats), (None, 2));
    }

    #[test]
    fn an_answer_is_taken_without_waiting_when_it_is_there() {
        let errands = Errands::start().unwrap();
        let mut errand = errands.begin(|| 7);
        errands.begin(|| ()).wait(LONG).unwrap();
        assert_eq!(errand.take(), Some(7));
        assert!(!errand.is_under_way() && errand.take().is_none());
    }

    #[test]
    fn errands_that_wait_are_done_although_nobody_listens_any_more() {
        let errands = Errands::start().unwrap();
        let (done, seen) = mpsc::channel();
        drop(errands.begin(|| 1));
        errands.run(move || done.send(2).unwrap());
        drop(errands);
        assert_eq!(seen.recv_timeout(LONG), Ok(2));
    }

    #[test]
    fn after_an_errand_that_panics_the_others_are_still_done() {
        let errands = Errands::start().unwrap();
        let mut panics = errands.begin(|| panic!("this panic is part of the test"));
        let none: Option<()> = panics.wait(LONG);
        assert_eq!(none, None);
        // Errands that were sent as the thread ended are lost, and their answers with them.
        while errands.begin(|| 7).wait(LONG) != Some(7) {
            thread::yield_now();
        }
    }
}
