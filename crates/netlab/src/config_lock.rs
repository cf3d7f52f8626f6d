//! The kernel's lock of network configuration, held for as long as a test wants.
//!
//! All network namespaces of a machine share this lock (`rtnl`). A machine that starts containers holds it
//! for hundreds of milliseconds at a time. Here a query of an interface's features holds it: the kernel
//! writes the answer with the lock held, to a page of memory that this process fills only later
//! (userfaultfd(2)).
//! All tests on the machine wait as well, so hold it for a few seconds at most.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use nix::libc;

use crate::privilege::proceed_or_skip;

// linux/userfaultfd.h
const UFFD_API: u64 = 0xaa;
const UFFD_REGISTER_MISSING: u64 = 1;
const UFFDIO_API: libc::Ioctl = 0xc018_aa3f_u32 as libc::Ioctl;
const UFFDIO_REGISTER: libc::Ioctl = 0xc020_aa00_u32 as libc::Ioctl;
const UFFDIO_ZEROPAGE: libc::Ioctl = 0xc020_aa04_u32 as libc::Ioctl;
// linux/ethtool.h
const ETHTOOL_GFEATURES: u32 = 0x3a;
/// Length of the question: the command, and how many blocks of features the answer may have.
const QUESTION: usize = 8;
/// Time for the query to reach the lock.
const PATIENCE: Duration = Duration::from_millis(200);

/// The lock, held until this is dropped.
#[derive(Debug)]
pub struct ConfigLock {
    faults: OwnedFd,
    memory: Memory,
    done: Receiver<io::Result<()>>,
}

/// Two pages: the question at the end of the first, the answer at the start of the second.
#[derive(Clone, Copy, Debug)]
struct Memory {
    start: usize,
    page: usize,
}

impl ConfigLock {
    /// Holds the lock of the machine, for tests. If that is impossible, prints `SKIPPED: name: reason`, as
    /// [`crate::privilege::available_or_skip`] does.
    #[must_use]
    pub fn hold_or_skip(name: &str) -> Option<Self> {
        let held = Self::hold();
        let reason = held.as_ref().map(drop);
        let reason =
            reason.map_err(|error| format!("cannot hold the lock of network configuration: {error}"));
        if proceed_or_skip(name, reason) { held.ok() } else { None }
    }

    /// Holds the lock of the machine.
    ///
    /// # Errors
    /// The kernel's error if it has no userfaultfd(2), or refuses it to this process.
    pub fn hold() -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let faults = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) };
        let faults = check(faults as libc::c_int)?;
        // SAFETY: the descriptor was just opened and has no other owner.
        let faults = unsafe { OwnedFd::from_raw_fd(faults) };
        let memory = Memory::map()?;
        let answer = (memory.start + memory.page) as u64;
        command(&faults, UFFDIO_API, &mut [UFFD_API, 0, 0, 0])?;
        command(&faults, UFFDIO_REGISTER, &mut [answer, memory.page as u64, UFFD_REGISTER_MISSING, 0])?;
        let (query, done) = mpsc::sync_channel(1);
        thread::spawn(move || drop(query.send(memory.query())));
        // Nothing shows that the query has the lock, but an answer would show that it has not.
        match done.recv_timeout(PATIENCE) {
            Ok(Err(error)) => Err(error),
            Ok(Ok(())) => Err(io::Error::other("the kernel answered without a pause")),
            Err(_) => Ok(Self { faults, memory, done }),
        }
    }
}

impl Drop for ConfigLock {
    fn drop(&mut self) {
        let answer = (self.memory.start + self.memory.page) as u64;
        let filled = command(&self.faults, UFFDIO_ZEROPAGE, &mut [answer, self.memory.page as u64, 0, 0]);
        if filled.is_ok() && self.done.recv().is_ok() {
            // SAFETY: the pages were mapped by `map`, and the only thread that used them has ended its query.
            unsafe { libc::munmap(self.memory.start as *mut libc::c_void, 2 * self.memory.page) };
        }
    }
}

impl Memory {
    fn map() -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the kernel chooses the place.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), 2 * page, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start: start as usize, page })
    }

    fn question(self) -> usize {
        self.start + self.page - QUESTION
    }

    /// Asks for the features of the loopback interface.
    fn query(self) -> io::Result<()> {
        let socket = UdpSocket::bind("127.0.0.1:0").or_else(|_| UdpSocket::bind("[::1]:0"))?;
        // SAFETY: the first page is mapped, nobody else uses it, and the question is aligned.
        unsafe { (self.question() as *mut [u32; 2]).write([ETHTOOL_GFEATURES, 2]) };
        // SAFETY: zeros are a valid `ifreq`.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_name[..2].copy_from_slice(&b"lo".map(|byte| byte as libc::c_char));
        request.ifr_ifru.ifru_data = self.question() as *mut libc::c_char;
        // SAFETY: the request and the pages that it names live through the call.
        check(unsafe {
            libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as libc::Ioctl, &raw mut request)
        })?;
        Ok(())
    }
}

fn command(faults: &OwnedFd, which: libc::Ioctl, arguments: &mut [u64; 4]) -> io::Result<()> {
    // SAFETY: the arguments are as long as the longest of these commands takes, and live through the call.
    check(unsafe { libc::ioctl(faults.as_raw_fd(), which, arguments.as_mut_ptr()) })?;
    Ok(())
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
