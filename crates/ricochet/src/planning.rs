//! Plans for the repairs of large clusters, made by a thread of their own.
//!
//! A node that shares a hundred groups with hundreds of nodes needs milliseconds for the plan of a view.
//! While it is made, packets pass the core as before, and repairs go by the last plan (`docs/adr/0045`).

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};

use ricochet_core::{Node, Planned, Planner, View};

use crate::shared::Core;
use crate::wake::Waker;

/// Number of pairs of a member and a group of this node from which on a plan is made aside. Fewer take less
/// than a thread that has to be woken.
const PAIRS: usize = 2_048;

/// The plan that is made aside, if one is.
#[derive(Debug, Default)]
pub(crate) struct Planning {
    worker: Option<Worker>,
    is_busy: bool,
    /// Whether the view has changed since that plan was begun.
    is_stale: bool,
    /// Number of plans made aside that the core has adopted.
    pub(crate) adopted: u64,
}

impl Planning {
    /// Begins a plan for a view; once another one is done, if one is made already. Returns false if the plan
    /// is small, or no thread can be had: then the core makes it at once.
    pub(crate) fn begin(&mut self, node: &Node, view: &View, waker: &Waker) -> bool {
        if self.is_busy {
            self.is_stale = true;
            return true;
        }
        if view.members().len().saturating_mul(node.groups().len()) < PAIRS {
            return false;
        }
        if self.worker.is_none() {
            self.worker = Worker::start(waker.clone());
        }
        let Some(worker) = &self.worker else { return false };
        self.is_busy = worker.planners.as_ref().is_some_and(|to| to.send(node.planner(view)).is_ok());
        self.is_busy
    }

    /// Gives the core the plan that is done, if one is. `view` is the present view: if it has changed
    /// meanwhile, another plan is begun.
    ///
    /// # Panics
    /// If the thread that plans has panicked.
    pub(crate) fn adopt(&mut self, core: &mut Core, view: impl FnOnce() -> View, waker: &Waker) {
        let Some(planned) = self.take_planned() else { return };
        self.is_busy = false;
        self.adopted += u64::from(core.node.adopt(planned, &mut core.out));
        if std::mem::take(&mut self.is_stale) {
            let view = view();
            if !self.begin(&core.node, &view, waker) {
                core.node.change_view(&view, &mut core.out);
            }
        }
    }

    fn take_planned(&self) -> Option<Planned> {
        let worker = self.worker.as_ref().filter(|_| self.is_busy)?;
        match worker.planned.try_recv() {
            Ok(planned) => Some(planned),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => panic!("the thread that plans repairs has panicked"),
        }
    }
}

/// The thread that makes plans. It ends with this.
#[derive(Debug)]
struct Worker {
    /// `None` once it has to end.
    planners: Option<Sender<Planner>>,
    planned: Receiver<Planned>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread, unless the system has none left.
    fn start(waker: Waker) -> Option<Self> {
        let (planners, to_plan) = channel::<Planner>();
        let (done, planned) = channel();
        let work = move || {
            while let Ok(planner) = to_plan.recv() {
                if done.send(planner.plan()).is_err() {
                    return;
                }
                waker.wake();
            }
        };
        let thread = thread::Builder::new().name("ricochet-plan".to_owned()).spawn(work);
        let thread = thread.inspect_err(|error| tracing::warn!(%error, "no thread to plan repairs: {error}"));
        thread.ok().map(|thread| Self { planners: Some(planners), planned, thread: Some(thread) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.planners = None;
        // Its panic has been reported where the plan was missing.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
