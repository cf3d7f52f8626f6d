//! Loads tc programs and attaches them to an interface, so that nothing stays behind.
//!
//! TCX links end with the process. Filters of clsact (kernels before 6.6) do not: each has a fixed priority
//! and one of a few handles, and its owner holds a lock of the same number. A filter whose lock is free is
//! left over from a killed process and is removed.

use std::fs::{File, Metadata};
use std::io;
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{Map, MapData, MapError};
use aya::programs::links::LinkOrder;
use aya::programs::tc::{self, NlOptions, SchedClassifierLink, TcAttachOptions, TcError, TcHandle};
use aya::programs::{Link as _, ProgramError, SchedClassifier, TcAttachType};
use aya::{Ebpf, util::KernelVersion};
use ipnet::IpNet;
use nix::sched::{CloneFlags, setns};

use crate::error::step;
use crate::interface::Interface;
use crate::netlink;

const NAMESPACE: &str = "/proc/thread-self/ns/net";

/// How a tc program is attached to its interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attach {
    /// TCX, or clsact on kernels without it (before 6.6).
    #[default]
    Auto,
    /// Links that vanish with the process.
    Tcx,
    /// Filters of the clsact queueing discipline. They are removed with the tap; those of a killed process
    /// are removed by the next tap on that interface. Until then nothing reads their copies, which cost time
    /// but harm no packet.
    Clsact,
}

/// Programs of one object, and their hooks.
#[derive(Debug)]
pub struct Programs {
    /// Name prefix of the lock of a filter's handle.
    pub lock: &'static str,
    /// Each program and its hook.
    pub places: &'static [Place],
}

/// A program: its name, its hook, and its priority under clsact.
#[derive(Debug)]
pub struct Place {
    /// Name of the program in the object.
    pub program: &'static str,
    /// Direction of the packets that it sees.
    pub hook: TcAttachType,
    /// Priority of its filter if it is attached by clsact.
    pub priority: u16,
}

/// Maximum number of users of one interface under clsact.
const HANDLES: u16 = 16;

/// Keeps the programs attached, apart from links that the object owns.
#[derive(Debug)]
pub struct Attached {
    _filters: Option<Filters>,
    attachment: Attachment,
}

impl Attached {
    /// Returns what is attached.
    pub fn attachment(&self) -> &Attachment {
        &self.attachment
    }
}

/// The programs that were attached to an interface. It keeps nothing open or attached.
#[derive(Clone, Debug)]
pub struct Attachment {
    interface: String,
    index: u32,
    hooked: Vec<Hooked>,
}

/// A program at its hook.
#[derive(Clone, Copy, Debug)]
enum Hooked {
    /// A link of TCX.
    Link { hook: TcAttachType, program: u32 },
    /// A filter of clsact.
    Filter { hook: TcAttachType, priority: u16, handle: u16 },
}

impl Attachment {
    /// Whether the programs are still attached. An operator can detach a link by its number, and filters go
    /// with their queueing discipline. Must be called in the network namespace of the interface.
    ///
    /// Costs a few system calls for each program. They wait while anybody changes the network configuration
    /// of the machine, in whatever namespace: hundreds of milliseconds where containers start.
    pub fn is_whole(&self) -> bool {
        let is_present = |hooked: &Hooked| match *hooked {
            Hooked::Link { hook, program } => has_link(&self.interface, hook, program),
            Hooked::Filter { hook, priority, handle } => {
                let is_ingress = hook == TcAttachType::Ingress;
                netlink::has_filter(self.index, is_ingress, priority, u32::from(handle))
            }
        };
        // A failed query proves nothing.
        self.hooked.iter().all(|hooked| is_present(hooked).unwrap_or(true))
    }
}

fn has_link(interface: &str, hook: TcAttachType, own: u32) -> io::Result<bool> {
    let failed = |error: ProgramError| step("query the programs of an interface", &error);
    let (_, attached) = SchedClassifier::query_tcx(interface, hook).map_err(failed)?;
    Ok(attached.iter().any(|program| program.id() == own))
}

/// Attaches loaded programs: first in the order of ingress, where packets look as on the wire, and last in
/// that of egress. With `after`, they follow this program of the interface's ingress; under clsact, their
/// priority decides instead.
///
/// # Errors
/// If the kernel refuses a program, or all filter handles of the interface are in use.
pub fn attach(
    object: &mut Ebpf,
    programs: &'static Programs,
    interface: &Interface,
    how: Attach,
    after: Option<&SchedClassifier>,
) -> io::Result<Attached> {
    let (index, interface) = (interface.index(), interface.name());
    let tcx = match how {
        Attach::Tcx => true,
        Attach::Clsact => false,
        Attach::Auto => KernelVersion::current().is_ok_and(|version| version >= KernelVersion::new(6, 6, 0)),
    };
    let mut filters = if tcx { None } else { Some(Filters::prepare(programs, &interface, index)?) };
    let mut hooked = Vec::new();
    for &Place { program: name, hook, priority } in programs.places {
        let failed = |error| step(&format!("attach {name} to {interface}"), &error);
        let options = match &filters {
            None if hook == TcAttachType::Egress => TcAttachOptions::TcxOrder(LinkOrder::last()),
            None => TcAttachOptions::TcxOrder(match after {
                Some(program) => LinkOrder::after_program(program).map_err(failed)?,
                None => LinkOrder::first(),
            }),
            Some(filters) => TcAttachOptions::Netlink(NlOptions {
                priority,
                handle: TcHandle::new(0, filters.handle),
                classid: None,
            }),
        };
        let program: &mut SchedClassifier = program(object, name)?;
        let id = program.attach_with_options(&interface, hook, options).map_err(failed)?;
        hooked.push(match &mut filters {
            Some(filters) => {
                filters.links.push(program.take_link(id).map_err(failed)?);
                Hooked::Filter { hook, priority, handle: filters.handle }
            }
            None => Hooked::Link { hook, program: program.info().map_err(failed)?.id() },
        });
    }
    Ok(Attached { _filters: filters, attachment: Attachment { interface, index, hooked } })
}

/// Loads the programs into the kernel.
///
/// # Errors
/// If the object lacks a program or the kernel's verifier refuses it.
pub fn load(object: &mut Ebpf, programs: &Programs) -> io::Result<()> {
    for &Place { program: name, .. } in programs.places {
        program(object, name)?.load().map_err(|error| step(&format!("load {name}"), &error))?;
    }
    Ok(())
}

fn program<'o>(object: &'o mut Ebpf, name: &str) -> io::Result<&'o mut SchedClassifier> {
    let program = object.program_mut(name).ok_or_else(|| io::Error::other(format!("no program {name}")))?;
    program.try_into().map_err(|error: ProgramError| step(&format!("use {name}"), &error))
}

/// Fills a pair of prefix tables, IPv4 and IPv6, with networks.
///
/// # Errors
/// If the object has no such maps or the kernel refuses an entry.
pub fn insert_networks(object: &mut Ebpf, [v4, v6]: [&'static str; 2], networks: &[IpNet]) -> io::Result<()> {
    let failed = |error: MapError| step("set the networks of an eBPF program", &error);
    let mut v4: LpmTrie<MapData, [u8; 4], u8> = map(object, v4, LpmTrie::try_from)?;
    let mut v6: LpmTrie<MapData, [u8; 16], u8> = map(object, v6, LpmTrie::try_from)?;
    for network in networks {
        let bits = u32::from(network.prefix_len());
        match network.network() {
            IpAddr::V4(address) => v4.insert(&Key::new(bits, address.octets()), 1, 0),
            IpAddr::V6(address) => v6.insert(&Key::new(bits, address.octets()), 1, 0),
        }
        .map_err(failed)?;
    }
    Ok(())
}

/// Takes a map out of an object and converts it to its type.
///
/// # Errors
/// If the object has no map of that name, or it is of another type.
pub fn map<T>(
    object: &mut Ebpf,
    name: &'static str,
    typed: impl FnOnce(Map) -> Result<T, MapError>,
) -> io::Result<T> {
    let map = object.take_map(name).ok_or_else(|| io::Error::other(format!("no map {name}")))?;
    typed(map).map_err(|error| step(&format!("use map {name}"), &error))
}

/// Raises the limit of locked memory. Before Linux 5.11 the ring counts as such, and the default is low.
pub fn raise_locked_memory() {
    use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};
    // if this is refused and matters, loading will fail with a reason
    let _ = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY);
}

/// Filters attached by clsact.
#[derive(Debug)]
struct Filters {
    handle: u16,
    links: Vec<SchedClassifierLink>,
    /// Namespace of the interface; a thread elsewhere may drop the tap.
    namespace: File,
    _lock: UnixListener,
}

impl Filters {
    /// Prepares the interface, removes filters that a killed process left, and takes a free handle.
    fn prepare(programs: &Programs, interface: &str, index: u32) -> io::Result<Self> {
        match tc::qdisc_add_clsact(interface) {
            Ok(()) => {}
            // clsact is there already
            Err(TcError::NetlinkError(error)) if error.raw_os_error() == Some(libc::EEXIST) => {}
            Err(error) => return Err(step(&format!("add clsact to {interface}"), &error)),
        }
        let mut taken = None;
        for handle in 1..=HANDLES {
            // an abstract address belongs to this network namespace and ends with the process
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
                // usually there is none
                let _ = stale.detach();
            }
            taken = taken.or(Some((handle, lock)));
        }
        let Some((handle, lock)) = taken else {
            return Err(io::Error::other(format!(
                "expected at most {HANDLES} users of {} on {interface}, saw one more",
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
                    // detaching would hit filters with the same numbers here; the next tap there cleans up
                    links.into_iter().for_each(std::mem::forget);
                }
            });
        });
    }
}
