//! Tasks to be woken, and the lock of the core, after whose release they are.

use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;
use std::task::Waker as TaskWaker;

use crate::shared::Core;

/// Tasks that something has come for. A task may do anything when it is woken, for example drop its
/// subscription. Therefore no lock may be held then.
#[must_use = "tasks sleep until they are woken"]
#[derive(Debug, Default)]
pub(crate) struct Tasks(Vec<TaskWaker>);

impl From<Vec<TaskWaker>> for Tasks {
    fn from(tasks: Vec<TaskWaker>) -> Self {
        Self(tasks)
    }
}

impl Tasks {
    pub(crate) fn add(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }

    pub(crate) fn wake(self) {
        self.0.into_iter().for_each(TaskWaker::wake);
    }
}

/// The locked core. Wakes tasks after it is unlocked.
pub(crate) struct CoreGuard<'a>(Option<MutexGuard<'a, Core>>);

impl<'a> CoreGuard<'a> {
    pub(crate) fn new(core: MutexGuard<'a, Core>) -> Self {
        Self(Some(core))
    }

    /// Unlocks the core. Returns the tasks to be woken.
    pub(crate) fn unlock(mut self) -> Tasks {
        self.take()
    }

    fn take(&mut self) -> Tasks {
        self.0.take().map_or_else(Tasks::default, |mut core| std::mem::take(core.out.tasks.get_mut()))
    }
}

impl Deref for CoreGuard<'_> {
    type Target = Core;

    fn deref(&self) -> &Core {
        self.0.as_ref().expect("the core is locked until the guard is dropped")
    }
}

impl DerefMut for CoreGuard<'_> {
    fn deref_mut(&mut self) -> &mut Core {
        self.0.as_mut().expect("the core is locked until the guard is dropped")
    }
}

impl Drop for CoreGuard<'_> {
    fn drop(&mut self) {
        self.take().wake();
    }
}
