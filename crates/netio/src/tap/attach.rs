//! Attaching programs to an interface, so that nothing stays behind: those of the tap, and that of the dropper.
//!
//! TCX links die with the process. The filters of clsact (kernels before 6.6) do not: they have a fixed
//! priority and one of a few handles, and who lives holds a lock of the same number. A filter whose lock is
//! free is left over and is removed.

use std::fs::{File, Metadata};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use aya::programs::links::LinkOrder;
use aya::programs::tc::{self, NlOptions, SchedClassifierLink, TcAttachOptions, TcError, TcHandle};
use aya::programs::{Link as _, ProgramError, SchedClassifier, TcAttachType};
use aya::{Ebpf, util::KernelVersion};

use nix::sched::{CloneFlags, setns};

use super::{Attach, step};

const NAMESPACE: &str = "/proc/thread-self/ns/net";

/// Programs of one object, and where they go.
#[derive(Debug)]
pub(crate) struct Programs {
    /// Names the lock of a filter's handle.
    pub(crate) lock: &'static str,
    pub(crate) places: &'static [Place],
}

/// One program: its name, its hook, and its priority by clsact.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) program: &'static str,
    pub(crate) hook: TcAttachType,
    pub(crate) priority: u16,
}

/// The tap's: early where packets arrive, late where they leave; numbers that others hardly use.
pub(super) const TAP: Programs = Programs {
    lock: "undrop-tap",
    places: &[
        Place { program: "undrop_egress", hook: TcAttachType::Egress, priority: 60_047 },
        Place { program: "undrop_ingress", hook: TcAttachType::Ingress, priority: 47 },
    ],
};

/// Users of one interface at a time, by clsact.
const HANDLES: u16 = 16;

/// What keeps the programs attached, apart from links that the object owns.
#[derive(Debug)]
pub(crate) struct Attached {
    _filters: Option<Filters>,
}

/// Attaches the programs, which are loaded.
///
/// Ours is the first to see what arrives, as it was on the wire, and the last to see what leaves.
pub(crate) fn attach(
    object: &mut Ebpf,
    programs: &'static Programs,
    interface: &str,
    index: u32,
    how: Attach,
) -> io::Result<Attached> {
    let tcx = match how {
        Attach::Tcx => true,
        Attach::Clsact => false,
        Attach::Auto => KernelVersion::current().is_ok_and(|version| version >= KernelVersion::new(6, 6, 0)),
    };
    let mut filters = if tcx { None } else { Some(Filters::prepare(programs, interface, index)?) };
    for &Place { program: name, hook, priority } in programs.places {
        let options = match &filters {
            None if hook == TcAttachType::Egress => TcAttachOptions::TcxOrder(LinkOrder::last()),
            None => TcAttachOptions::TcxOrder(LinkOrder::first()),
            Some(filters) => TcAttachOptions::Netlink(NlOptions {
                priority,
                handle: TcHandle::new(0, filters.handle),
                classid: None,
            }),
        };
        let program: &mut SchedClassifier = program(object, name)?;
        let failed = |error| step(&format!("attach {name} to {interface}"), &error);
        let id = program.attach_with_options(interface, hook, options).map_err(failed)?;
        if let Some(filters) = &mut filters {
            filters.links.push(program.take_link(id).map_err(failed)?);
        }
    }
    Ok(Attached { _filters: filters })
}

/// Loads the programs into the kernel.
pub(crate) fn load(object: &mut Ebpf, programs: &Programs) -> io::Result<()> {
    for &Place { program: name, .. } in programs.places {
        program(object, name)?.load().map_err(|error| step(&format!("load {name}"), &error))?;
    }
    Ok(())
}

fn program<'o>(object: &'o mut Ebpf, name: &str) -> io::Result<&'o mut SchedClassifier> {
    let program = object.program_mut(name).ok_or_else(|| io::Error::other(format!("no program {name}")))?;
    program.try_into().map_err(|error: ProgramError| step(&format!("use {name}"), &error))
}

/// Our filters of clsact.
#[derive(Debug)]
struct Filters {
    handle: u16,
    links: Vec<SchedClassifierLink>,
    /// Where the interface is; the tap may be dropped by a thread that is elsewhere.
    namespace: File,
    _lock: UnixListener,
}

impl Filters {
    /// Makes the interface ready, removes the filters that a killed process left, and takes a free handle.
    fn prepare(programs: &Programs, interface: &str, index: u32) -> io::Result<Self> {
        match tc::qdisc_add_clsact(interface) {
            Ok(()) => {}
            // it is there
            Err(TcError::NetlinkError(error)) if error.raw_os_error() == Some(libc::EEXIST) => {}
            Err(error) => return Err(step(&format!("add clsact to {interface}"), &error)),
        }
        let mut taken = None;
        for handle in 1..=HANDLES {
            // an abstract address: of this network namespace only, and gone with the process
            let address = SocketAddr::from_abstract_name(format!("{}/{index}/{handle}", programs.lock))?;
            let lock = match UnixListener::bind_addr(&address) {
                Ok(lock) => lock,
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => continue,
                Err(error) => return Err(step("lock a filter handle", &error)),
            };
            for place in programs.places {
                let handle = TcHandle::new(0, handle);
                let stale =
                    SchedClassifierLink::attached(interface, place.hook, place.priority, handle, None)?;
                // mostly there is none
                let _ = stale.detach();
            }
            taken = taken.or(Some((handle, lock)));
        }
        let Some((handle, lock)) = taken else {
            return Err(io::Error::other(format!(
                "{HANDLES} users of {} are attached to {interface} already",
                programs.lock
            )));
        };
        Ok(Self { handle, links: Vec::new(), namespace: File::open(NAMESPACE)?, _lock: lock })
    }

    fn detach(links: Vec<SchedClassifierLink>) {
        for link in links {
            // it may have gone with the interface
            let _ = link.detach();
        }
    }
}

impl Drop for Filters {
    fn drop(&mut self) {
        let links = std::mem::take(&mut self.links);
        let inode = |file: io::Result<Metadata>| file.map(|file| file.ino()).ok();
        let here = inode(std::fs::metadata(NAMESPACE));
        if here == inode(self.namespace.metadata()) {
            return Self::detach(links);
        }
        let namespace = &self.namespace;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if setns(namespace, CloneFlags::CLONE_NEWNET).is_ok() {
                    Self::detach(links);
                } else {
                    // it would detach what has the same numbers here; the next tap there cleans up
                    links.into_iter().for_each(std::mem::forget);
                }
            });
        });
    }
}
