//! Detachment of the tc programs of others from an interface, as an operator does by `bpftool link detach`.

use std::io;
use std::mem::size_of_val;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use aya::programs::{SchedClassifier, TcAttachType};
use nix::libc;

use crate::error::LabError;
use crate::namespace::Namespace;

/// `enum bpf_cmd`
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const LINK_GET_FD_BY_ID: libc::c_int = 30;
const LINK_GET_NEXT_ID: libc::c_int = 31;
const LINK_DETACH: libc::c_int = 34;

/// Detaches all programs that are attached to an interface by TCX links; returns their number.
///
/// # Errors
/// If there is no such interface, or the kernel refuses it.
pub fn detach_programs(namespace: &Namespace, interface: &str) -> Result<usize, LabError> {
    let ids = || -> Result<Vec<u32>, aya::programs::ProgramError> {
        let mut ids = Vec::new();
        for hook in [TcAttachType::Ingress, TcAttachType::Egress] {
            let (_, programs) = SchedClassifier::query_tcx(interface, hook)?;
            ids.extend(programs.iter().map(aya::programs::ProgramInfo::id));
        }
        Ok(ids)
    };
    let failed = |error| {
        let what = format!("cannot detach programs from {interface} in {:?}", namespace.label());
        LabError::system(what, error)
    };
    let programs = namespace.run(ids).map_err(|error| failed(io::Error::other(error)))?;
    detach_links(&programs).map_err(failed)
}

/// Detaches the links of these programs.
fn detach_links(programs: &[u32]) -> io::Result<usize> {
    let (mut id, mut detached) = (0, 0);
    loop {
        let mut next = [id, 0, 0, 0];
        match bpf(LINK_GET_NEXT_ID, &mut next) {
            Ok(_) => id = next[1],
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(detached),
            Err(error) => return Err(error),
        }
        // It may have gone.
        let Ok(fd) = bpf(LINK_GET_FD_BY_ID, &mut [id, 0, 0, 0]) else { continue };
        // SAFETY: the descriptor was just opened and has no other owner.
        let link = unsafe { OwnedFd::from_raw_fd(fd) };
        // `struct bpf_link_info` begins with type, id and program.
        let mut info = [0_u32; 32];
        let address = (&raw mut info) as u64;
        let halves = [address as u32, (address >> 32) as u32];
        let [low, high] = if cfg!(target_endian = "little") { halves } else { [halves[1], halves[0]] };
        let fd = link.as_raw_fd().cast_unsigned();
        bpf(OBJ_GET_INFO_BY_FD, &mut [fd, size_of_val(&info) as u32, low, high])?;
        if programs.contains(&info[2]) {
            bpf(LINK_DETACH, &mut [fd, 0, 0, 0])?;
            detached += 1;
        }
    }
}

fn bpf(command: libc::c_int, attributes: &mut [u32; 4]) -> io::Result<libc::c_int> {
    let len = size_of_val(attributes);
    // SAFETY: the attributes live through the call, and so does the memory to which they point.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_mut_ptr(), len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}
