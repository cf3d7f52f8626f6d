//! Child processes that do not outlive the thread that started them.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

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
