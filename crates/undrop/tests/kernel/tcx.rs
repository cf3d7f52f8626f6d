//! Programs attached to an interface, detached as `bpftool link detach` does, by somebody who does not own
//! them.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use aya::programs::SchedClassifier;
use aya::programs::tc::TcAttachType;
use netlab::Namespace;
use nix::libc;

const LINK_GET_FD_BY_ID: libc::c_int = 30;
const LINK_GET_NEXT_ID: libc::c_int = 31;
const LINK_DETACH: libc::c_int = 34;

/// Arguments of these commands: a number of a link or a descriptor, and the next number.
#[repr(C)]
#[derive(Default)]
struct Arguments {
    number: u32,
    next: u32,
    flags: u32,
}

/// Detaches the first program that sees what arrives by an interface; returns false if there is none, or if
/// the kernel is older than such links (6.6). The process that attached it keeps the descriptor of its link.
pub(crate) fn detach_first(namespace: &Namespace, interface: &str) -> io::Result<bool> {
    namespace.run(|| detach(interface))
}

fn detach(interface: &str) -> io::Result<bool> {
    let place = TcAttachType::Ingress;
    let Ok((_, programs)) = SchedClassifier::query_tcx(interface, place) else { return Ok(false) };
    let Some(program) = programs.first() else { return Ok(false) };
    let of_program = format!("prog_id:\t{}\n", program.id());
    let mut arguments = Arguments::default();
    // Ends with an error behind the last link.
    loop {
        bpf(LINK_GET_NEXT_ID, &mut arguments)?;
        arguments.number = arguments.next;
        let Some(link) = open(arguments.number)? else { continue };
        let facts = fs::read_to_string(format!("/proc/self/fdinfo/{}", link.as_raw_fd()))?;
        if facts.contains("link_type:\ttcx\n") && facts.contains(&of_program) {
            let number = u32::try_from(link.as_raw_fd()).expect("a descriptor is not negative");
            bpf(LINK_DETACH, &mut Arguments { number, ..Arguments::default() })?;
            return Ok(true);
        }
    }
}

/// Opens a link by its number; `None` if it has ended meanwhile.
fn open(number: u32) -> io::Result<Option<OwnedFd>> {
    match bpf(LINK_GET_FD_BY_ID, &mut Arguments { number, ..Arguments::default() }) {
        // SAFETY: the kernel has just made this descriptor for us, and nothing else owns it.
        Ok(descriptor) => Ok(Some(unsafe { OwnedFd::from_raw_fd(descriptor) })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn bpf(command: libc::c_int, arguments: &mut Arguments) -> io::Result<libc::c_int> {
    let size = size_of::<Arguments>();
    // SAFETY: the kernel reads and writes `size` bytes at most, which belong to `arguments`.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *arguments, size) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(libc::c_int::try_from(result).expect("the kernel returns an int"))
}
