//! Memberships, held by sockets that receive nothing.

use std::io;
use std::net::IpAddr;

use socket2::{InterfaceIndexOrAddress, Socket};

use super::error::{OpenError, interface_of};
use super::version::IpVersion;
use crate::batch::options;

/// Number of memberships of a socket by the kernel's default.
const MEMBERSHIPS_DEFAULT: usize = 20;

/// Joins IP groups at one interface: the kernel accepts their datagrams and announces the memberships to the
/// network.
///
/// A socket may hold 20 memberships by default, so a joiner opens as many sockets as it needs. They are never
/// bound, so nothing is queued for them. Dropping the joiner leaves all groups.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use netio::multicast::{IpVersion, Joiner};
/// let mut joiner = Joiner::new("lo", IpVersion::V4, 64)?;
/// joiner.join("239.192.0.1".parse()?)?;
/// assert_eq!(joiner.groups().count(), 1);
/// joiner.leave("239.192.0.1".parse()?)?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Joiner {
    interface: u32,
    version: IpVersion,
    groups_max: usize,
    holders: Vec<Holder>,
}

/// A socket and the groups that it has joined.
#[derive(Debug)]
struct Holder {
    socket: Socket,
    groups: Vec<IpAddr>,
    full: bool,
}

/// Reason why a group could not be joined or left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// Not a multicast address, or one of the other IP version.
    #[error("expected a multicast address of {version}, saw {group}")]
    NotAGroup {
        /// Address as given.
        group: IpAddr,
        /// IP version of this joiner.
        version: IpVersion,
    },
    /// The permitted number of IP groups is used up.
    #[error(
        "cannot join {group}: expected at most {groups_max} IP groups, saw one more; let more groups share an IP group"
    )]
    TooMany {
        /// The group that exceeds the limit.
        group: IpAddr,
        /// Maximum number of groups.
        groups_max: usize,
    },
    /// Not even a fresh socket may hold the membership.
    #[error(
        "cannot join {group}: {setting} lets a socket hold no membership; raise it, e.g. `sysctl -w {setting}={enough}`"
    )]
    Limit {
        /// The group.
        group: IpAddr,
        /// The kernel setting that limits memberships.
        setting: &'static str,
        /// A sufficient value of the setting.
        enough: u32,
    },
    /// The process has no descriptors left.
    #[error(
        "cannot join {group}: expected a free descriptor for another socket, saw none ({sockets} sockets hold memberships); raise `ulimit -n`, \
         or net.ipv4.igmp_max_memberships so that fewer sockets are needed"
    )]
    Descriptors {
        /// The group.
        group: IpAddr,
        /// Number of sockets that hold memberships.
        sockets: usize,
    },
    /// The interface is gone or lacks the IP version.
    #[error(
        "cannot join {group}: expected an interface with {version}, saw one that is gone or has no such address; add one (`ip address add`)"
    )]
    Interface {
        /// The group.
        group: IpAddr,
        /// The missing IP version.
        version: IpVersion,
    },
    /// Another error.
    #[error("cannot join or leave {group}: {source}")]
    System {
        /// The group.
        group: IpAddr,
        /// The kernel's error.
        source: io::Error,
    },
}

impl Joiner {
    /// Makes a joiner for at most `groups_max` IP groups at the interface of that name, in the network
    /// namespace of the calling thread. It opens the expected number of sockets at once, so that groups may
    /// be joined from any thread later.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn new(interface: &str, version: IpVersion, groups_max: usize) -> Result<Self, OpenError> {
        let interface = interface_of(interface)?.index();
        let sockets = match version {
            IpVersion::V4 => groups_max.div_ceil(memberships_max().clamp(1, MEMBERSHIPS_DEFAULT)),
            IpVersion::V6 => groups_max.min(1),
        };
        let holders = (0..sockets).map(|_| Holder::open(version)).collect::<io::Result<_>>();
        let holders = holders.map_err(OpenError::system("make sockets for memberships"))?;
        Ok(Self { interface, version, groups_max, holders })
    }

    /// Joins an IP group and returns whether it is new. A group joined twice is joined once.
    ///
    /// # Errors
    /// [`JoinError`]; nothing has changed in that case.
    pub fn join(&mut self, group: IpAddr) -> Result<bool, JoinError> {
        if !group.is_multicast() || IpVersion::of(group) != self.version {
            return Err(JoinError::NotAGroup { group, version: self.version });
        }
        if self.groups().any(|joined| joined == group) {
            return Ok(false);
        }
        if self.groups().count() >= self.groups_max {
            return Err(JoinError::TooMany { group, groups_max: self.groups_max });
        }
        for holder in self.holders.iter_mut().filter(|holder| !holder.full) {
            match holder.join(group, self.interface) {
                Ok(()) => return Ok(true),
                // this socket's limit is reached; for a socket without memberships it would be the machine's
                Err(error) if is_limit(&error) && !holder.groups.is_empty() => holder.full = true,
                Err(source) => return Err(explain(group, source)),
            }
        }
        let mut holder = self.open_another(group)?;
        holder.join(group, self.interface).map_err(|source| explain(group, source))?;
        self.holders.push(holder);
        Ok(true)
    }

    /// Leaves an IP group and returns whether it was joined.
    ///
    /// # Errors
    /// [`JoinError::System`]; the group stays joined.
    pub fn leave(&mut self, group: IpAddr) -> Result<bool, JoinError> {
        let interface = self.interface;
        let Some(holder) = self.holders.iter_mut().find(|holder| holder.groups.contains(&group)) else {
            return Ok(false);
        };
        match holder.leave(group, interface) {
            // memberships end with their interface
            Err(source) if !is_gone(&source) => Err(JoinError::System { group, source }),
            _ => {
                holder.groups.retain(|joined| *joined != group);
                holder.full = false;
                Ok(true)
            }
        }
    }

    /// Joins all groups again at the interface of this index, which replaced another of its name. Memberships
    /// end with their interface, though the sockets still count them.
    ///
    /// # Errors
    /// [`JoinError`] of the first group that cannot be joined. All groups still count as joined, so the call
    /// may be repeated.
    pub fn set_interface(&mut self, index: u32) -> Result<(), JoinError> {
        let old = std::mem::replace(&mut self.interface, index);
        let mut failed = Ok(());
        for holder in &self.holders {
            for &group in &holder.groups {
                // Fails for an interface that is gone, or a group that could not be joined last time.
                let _ = holder.leave(group, old);
                let joined = holder.request_join(group, index).map_err(|source| explain(group, source));
                failed = failed.and(joined);
            }
        }
        failed
    }

    /// Returns the joined groups, in no particular order.
    pub fn groups(&self) -> impl Iterator<Item = IpAddr> {
        self.holders.iter().flat_map(|holder| holder.groups.iter().copied())
    }

    /// Returns the number of sockets that hold memberships.
    pub fn sockets(&self) -> usize {
        self.holders.len()
    }

    /// Opens a socket beyond the expected number: the machine's limits have changed, or memory is short.
    fn open_another(&self, group: IpAddr) -> Result<Holder, JoinError> {
        Holder::open(self.version).map_err(|source| match source.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => {
                JoinError::Descriptors { group, sockets: self.holders.len() }
            }
            _ => JoinError::System { group, source },
        })
    }
}

impl Holder {
    fn open(version: IpVersion) -> io::Result<Self> {
        let socket = options::udp_socket(version.wildcard(0))?;
        Ok(Self { socket, groups: Vec::new(), full: false })
    }

    fn join(&mut self, group: IpAddr, interface: u32) -> io::Result<()> {
        self.request_join(group, interface)?;
        self.groups.push(group);
        Ok(())
    }

    fn request_join(&self, group: IpAddr, interface: u32) -> io::Result<()> {
        match group {
            IpAddr::V4(group) => {
                self.socket.join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(interface))
            }
            IpAddr::V6(group) => self.socket.join_multicast_v6(&group, interface),
        }
    }

    fn leave(&self, group: IpAddr, interface: u32) -> io::Result<()> {
        match group {
            IpAddr::V4(group) => {
                self.socket.leave_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(interface))
            }
            IpAddr::V6(group) => self.socket.leave_multicast_v6(&group, interface),
        }
    }
}

/// Returns whether a socket holds its maximum of memberships, by count or by memory.
fn is_limit(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::ENOMEM))
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EADDRNOTAVAIL))
}

fn explain(group: IpAddr, source: io::Error) -> JoinError {
    match source.raw_os_error() {
        Some(libc::ENOBUFS) if group.is_ipv4() && memberships_max() == 0 => {
            JoinError::Limit { group, setting: "net.ipv4.igmp_max_memberships", enough: 20 }
        }
        // otherwise memory for socket options is short
        Some(libc::ENOBUFS | libc::ENOMEM) => {
            JoinError::Limit { group, setting: "net.core.optmem_max", enough: 131_072 }
        }
        Some(libc::ENODEV) => JoinError::Interface { group, version: IpVersion::of(group) },
        _ => JoinError::System { group, source },
    }
}

/// Returns the number of IPv4 memberships that a socket made by this thread may hold.
fn memberships_max() -> usize {
    let setting = std::fs::read_to_string("/proc/sys/net/ipv4/igmp_max_memberships");
    setting.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(MEMBERSHIPS_DEFAULT)
}
