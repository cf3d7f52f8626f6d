//! Child processes that do not outlive the thread that started them, and threads that wait for no other.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::{io, mem};

use nix::libc;

/// Priority of urgent threads among real-time ones, in the middle of 1 to 99.
const PRIORITY: i32 = 50;

/// Nice value of threads that give way: below that of gateways, which have 5.
const NICE: i32 = 10;

/// Makes the child die by SIGKILL as soon as the *thread* that spawns it ends, in any way (also by `kill -9`
/// of the process).
///
/// If the parent died between fork and this setting, the child exits before it becomes the command.
///
/// ```
/// let mut command = std::process::Command::new("true");
/// netlab::process::die_with_parent(&mut command);
/// assert!(command.status().unwrap().success());
/// ```
pub fn die_with_parent(command: &mut Command) {
    let parent = nix::unistd::getpid();
    // SAFETY: the closure runs in the child between fork and exec, where only async-signal-safe calls are
    // allowed; prctl and getppid are plain system calls, and building an io::Error from a code does not
    // allocate.
    unsafe {
        command.pre_exec(move || {
            nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
            if nix::unistd::getppid() != parent {
                return Err(nix::errno::Errno::ECANCELED.into());
            }
            Ok(())
        });
    }
}

/// Lets threads of usual priority run before this one, gateways among them: a host of a real network takes no
/// processor time from its gateway.
///
/// # Errors
/// The kernel's error.
pub fn give_way() -> io::Result<()> {
    // SAFETY: the call takes numbers, and 0 means this thread.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives this thread real-time priority, so that it runs before all usual ones.
///
/// # Errors
/// If the kernel refuses, as it does without the right CAP_SYS_NICE.
pub fn become_urgent() -> io::Result<()> {
    // SAFETY: the structure consists of integers, for which zero is a value.
    let mut parameters: libc::sched_param = unsafe { mem::zeroed() };
    parameters.sched_priority = PRIORITY;
    // SAFETY: the pointer is to a structure of this function, and 0 means this thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
