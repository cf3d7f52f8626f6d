//! Memberships, held by sockets that receive nothing.

use std::io;
use std::net::IpAddr;

use socket2::{InterfaceIndexOrAddress, Socket};

use super::{IpVersion, OpenError, interface_of};
use crate::batch::options;

/// So many memberships a socket holds unless the machine is told otherwise.
const MEMBERSHIPS_DEFAULT: usize = 20;

/// Joins IP groups at one interface: the kernel takes in their datagrams and tells the network that they are wanted.
///
/// A socket may hold 20 memberships by default, and here it costs nothing to have more sockets. They are never bound,
/// so nothing is queued for them. When this is dropped, all groups are left.
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

/// A socket and what it has joined.
#[derive(Debug)]
struct Holder {
    socket: Socket,
    groups: Vec<IpAddr>,
    full: bool,
}

/// Why a group could not be joined or left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// No multicast address, or one of the other IP version.
    #[error("expected a multicast address of {version}, saw {group}")]
    NotAGroup {
        /// What was given.
        group: IpAddr,
        /// Of which version groups are joined here.
        version: IpVersion,
    },
    /// As many IP groups as were allowed.
    #[error(
        "cannot join {group}: expected at most {groups_max} IP groups, saw one more; let more groups share an IP group"
    )]
    TooMany {
        /// The one too many.
        group: IpAddr,
        /// How many were allowed.
        groups_max: usize,
    },
    /// Not even a socket of its own may hold the membership.
    #[error(
        "cannot join {group}: {setting} lets a socket hold no membership; raise it, e.g. `sysctl -w {setting}={enough}`"
    )]
    Limit {
        /// The group.
        group: IpAddr,
        /// The kernel setting that allows so few.
        setting: &'static str,
        /// What would do.
        enough: u32,
    },
    /// There are no descriptors left.
    #[error(
        "cannot join {group}: no descriptor is left for another socket, {sockets} hold memberships; raise `ulimit -n`, \
         or net.ipv4.igmp_max_memberships so that fewer sockets are needed"
    )]
    Descriptors {
        /// The group.
        group: IpAddr,
        /// How many sockets there are.
        sockets: usize,
    },
    /// The interface cannot.
    #[error(
        "cannot join {group}: the interface is gone or has no {version}; give it an address of that kind"
    )]
    Interface {
        /// The group.
        group: IpAddr,
        /// What it lacks.
        version: IpVersion,
    },
    /// Something else.
    #[error("cannot join or leave {group}: {source}")]
    System {
        /// The group.
        group: IpAddr,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Joiner {
    /// Joins nothing yet; later at most `groups_max` IP groups, at the interface of that name in the network namespace
    /// of the calling thread. As many sockets as this machine needs for them are opened now, so that groups may be joined
    /// from any thread later.
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

    /// Joins an IP group; returns whether it is new. One that was joined already stays, once.
    ///
    /// # Errors
    /// [`JoinError`]; nothing has changed then.
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
                // its limit; else that of a socket without any
                Err(error) if is_limit(&error) && !holder.groups.is_empty() => holder.full = true,
                Err(source) => return Err(explain(group, source)),
            }
        }
        let mut holder = self.open_another(group)?;
        holder.join(group, self.interface).map_err(|source| explain(group, source))?;
        self.holders.push(holder);
        Ok(true)
    }

    /// Leaves an IP group; returns whether it was joined.
    ///
    /// # Errors
    /// [`JoinError::System`]; it is joined as before.
    pub fn leave(&mut self, group: IpAddr) -> Result<bool, JoinError> {
        let interface = self.interface;
        let Some(holder) = self.holders.iter_mut().find(|holder| holder.groups.contains(&group)) else {
            return Ok(false);
        };
        match holder.leave(group, interface) {
            // with the interface, its memberships go
            Err(source) if !is_gone(&source) => Err(JoinError::System { group, source }),
            _ => {
                holder.groups.retain(|joined| *joined != group);
                holder.full = false;
                Ok(true)
            }
        }
    }

    /// Joins all groups anew at the interface of this number, which has taken the place of another of its name: with that
    /// one its memberships went, though the sockets go on counting them.
    ///
    /// # Errors
    /// [`JoinError`] of the first group that cannot be joined; all count as joined all the same, so that it may be tried
    /// again.
    pub fn set_interface(&mut self, index: u32) -> Result<(), JoinError> {
        let old = std::mem::replace(&mut self.interface, index);
        let mut failed = Ok(());
        for holder in &self.holders {
            for &group in &holder.groups {
                // Of an interface that is gone, or not joined the last time.
                let _ = holder.leave(group, old);
                let joined = holder.ask_to_join(group, index).map_err(|source| explain(group, source));
                failed = failed.and(joined);
            }
        }
        failed
    }

    /// What is joined, in no order.
    pub fn groups(&self) -> impl Iterator<Item = IpAddr> {
        self.holders.iter().flat_map(|holder| holder.groups.iter().copied())
    }

    /// How many sockets hold the memberships.
    #[must_use]
    pub fn sockets(&self) -> usize {
        self.holders.len()
    }

    /// Beyond what was thought to be needed: the limits of this machine have been changed, or memory is short.
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
        self.ask_to_join(group, interface)?;
        self.groups.push(group);
        Ok(())
    }

    fn ask_to_join(&self, group: IpAddr, interface: u32) -> io::Result<()> {
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

/// The socket holds as many memberships as it may, by count or by memory.
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
        // what is left is memory for options
        Some(libc::ENOBUFS | libc::ENOMEM) => {
            JoinError::Limit { group, setting: "net.core.optmem_max", enough: 131_072 }
        }
        Some(libc::ENODEV) => JoinError::Interface { group, version: IpVersion::of(group) },
        _ => JoinError::System { group, source },
    }
}

/// How many IPv4 memberships a socket made by this thread may hold.
fn memberships_max() -> usize {
    let setting = std::fs::read_to_string("/proc/sys/net/ipv4/igmp_max_memberships");
    setting.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(MEMBERSHIPS_DEFAULT)
}
