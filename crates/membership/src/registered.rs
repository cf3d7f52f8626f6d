//! Membership from a registry: a service outside of the cluster, such as etcd, keeps an entry of each node
//! and removes those of nodes that have failed.
//!
//! A driver talks with the service. It registers [`Registered::registration`], and passes on what the service
//! tells as [`News`]. While the service cannot be reached, the members stay as they are known. When it is
//! reached again, it may have lost entries; nodes that it lacks stay members for a while, so that they can
//! register again.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use ricochet_core::{GroupId, NodeId};

use crate::counters::{Counts, Dropped};
use crate::exchange::Member;
use crate::me::{ConfigError, Me, in_range};
use crate::output::Output;
use crate::view::View;
use crate::wire::GROUPS_MAX;
use crate::wire::swim::{LIFE_MAX, canonical, is_sendable};

/// Maximum number of nodes whose entries are kept.
pub const REGISTERED_MAX: usize = 4_096;

/// Maximum number of groups of all entries together, 8 bytes each.
const TOTAL_GROUPS_MAX: usize = 4 << 20;

/// The entry of a node in a registry. The address is its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Address that the node sends from.
    pub address: SocketAddr,
    /// Identifier of its life.
    pub id: NodeId,
    /// Start of its life in microseconds since 1970.
    pub life: u64,
    /// The groups that it is in, in ascending order.
    pub groups: Arc<[GroupId]>,
}

/// News from a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// All entries, because the registry was reached, or because changes may have been missed.
    All(Vec<Registration>),
    /// An entry was made or has changed.
    Set(Registration),
    /// The entry of the node at an address is gone: the node has left, or it has failed.
    Gone(SocketAddr),
    /// The registry cannot be reached.
    Away,
}

/// News of this node's own entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnNews {
    /// The registry has it.
    Stored,
    /// The registry does not have it. The driver registers again.
    Missing,
    /// A node that started later registered the same address, for example that of another cluster with the
    /// same key prefix.
    Taken(NodeId),
}

#[derive(Debug)]
struct Entry {
    registration: Registration,
    /// Whether the registry lacked the entry when it was reached again.
    is_missing: bool,
}

/// A node that knows the others from a registry.
///
/// ```
/// use membership::{Me, News, Registered, Registration, View};
/// use ricochet_core::NodeId;
/// let me = Me { id: NodeId(1), address: "10.0.0.1:7900".parse()?, life: 5 };
/// let mut view = Registered::new(me, 10_000_000)?;
/// let other = Registration { address: "10.0.0.2:7900".parse()?, id: NodeId(2), life: 6, groups: [].into() };
/// view.handle_news(0, [News::All(vec![view.registration(), other])]);
/// view.handle_news(1, [News::Away]);
/// assert_eq!(view.members().map(|member| member.id).collect::<Vec<_>>(), [NodeId(2)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Registered {
    me: Me,
    groups: Arc<[GroupId]>,
    entries: BTreeMap<SocketAddr, Entry>,
    /// Number of groups of all entries.
    total_groups: usize,
    members: BTreeMap<NodeId, Member>,
    version: u64,
    /// Time for which entries stay that the registry lacks when it is reached again.
    grace_us: u64,
    /// The end of that time. `None` while the registry is away, or if it lacks none.
    grace_until_us: Option<u64>,
    /// Time until which entries that the registry removes stay for a while too.
    doubt_until_us: u64,
    own_news: Option<OwnNews>,
    counts: Counts,
    left: bool,
}

impl Registered {
    /// Creates a node that knows nobody. Nodes that the registry lacks after it was away stay members for
    /// `grace_us`, which is longer than they take to register again.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(me: Me, grace_us: u64) -> Result<Self, ConfigError> {
        in_range("grace_us", grace_us, 0..=86_400_000_000, "at most a day")?;
        Ok(Self {
            me: me.check()?,
            groups: Arc::default(),
            entries: BTreeMap::new(),
            total_groups: 0,
            members: BTreeMap::new(),
            version: 0,
            grace_us,
            grace_until_us: None,
            doubt_until_us: 0,
            own_news: None,
            counts: Counts::default(),
            left: false,
        })
    }

    /// Returns what this node registers.
    pub fn registration(&self) -> Registration {
        let Me { id, address, life } = self.me;
        Registration { address, id, life, groups: Arc::clone(&self.groups) }
    }

    /// Takes news in the order in which the registry told them.
    pub fn handle_news(&mut self, now_us: u64, news: impl IntoIterator<Item = News>) {
        if self.left {
            return;
        }
        for news in news {
            match news {
                News::All(all) => self.on_all(now_us, all),
                News::Set(registration) => self.on_set(registration),
                News::Gone(address) => self.on_gone(now_us, canonical(address)),
                News::Away => self.grace_until_us = None,
            }
        }
        self.refresh();
    }

    /// Notes that the registry did not answer in time. It may have heard no other node either, and may remove
    /// entries of nodes that live. For a while, these stay members, as after an absence of the registry.
    pub fn on_stall(&mut self, now_us: u64) {
        self.doubt_until_us = now_us.saturating_add(self.grace_us);
    }

    /// Returns news of this node's own entry, once.
    pub fn take_own_news(&mut self) -> Option<OwnNews> {
        self.own_news.take()
    }

    fn on_all(&mut self, now_us: u64, all: Vec<Registration>) {
        self.entries.values_mut().for_each(|entry| entry.is_missing = true);
        self.own_news = Some(OwnNews::Missing);
        all.into_iter().for_each(|registration| self.on_set(registration));
        self.begin_grace(now_us);
    }

    /// Sets the end of the time for which missing entries stay, if there are any and it is not set.
    fn begin_grace(&mut self, now_us: u64) {
        let is_one_missing = self.entries.values().any(|entry| entry.is_missing);
        let until_us = self.grace_until_us.unwrap_or(now_us.saturating_add(self.grace_us));
        self.grace_until_us = is_one_missing.then_some(until_us);
    }

    fn on_set(&mut self, registration: Registration) {
        let registration = Registration { address: canonical(registration.address), ..registration };
        if registration.address == self.me.address {
            return self.on_own(&registration);
        }
        if let Err(reason) = self.check(&registration) {
            return self.counts.dropped.add(reason);
        }
        self.counts.lists += 1;
        self.total_groups += registration.groups.len();
        let entry = Entry { is_missing: false, registration };
        if let Some(before) = self.entries.insert(entry.registration.address, entry) {
            self.total_groups -= before.registration.groups.len();
        }
    }

    fn on_own(&mut self, registration: &Registration) {
        let Registration { id, life, .. } = *registration;
        let news = match (life, id) {
            same if same == (self.me.life, self.me.id) => OwnNews::Stored,
            // The entry of an earlier life is overwritten.
            other if other < (self.me.life, self.me.id) => OwnNews::Missing,
            _ => OwnNews::Taken(id),
        };
        self.own_news = Some(news);
    }

    fn check(&self, registration: &Registration) -> Result<(), Dropped> {
        let Registration { address, id, life, ref groups } = *registration;
        let before = self.entries.get(&address).map(|entry| entry.registration.groups.len());
        if !is_sendable(address) || address.is_ipv4() != self.me.address.is_ipv4() {
            return Err(Dropped::NotMember);
        }
        if id == self.me.id {
            return Err(Dropped::DuplicateId);
        }
        if life > LIFE_MAX {
            return Err(Dropped::Future);
        }
        if before.is_none() && self.entries.len() >= REGISTERED_MAX {
            return Err(Dropped::MembersFull);
        }
        if groups.len() > GROUPS_MAX {
            return Err(Dropped::GroupsMax);
        }
        if !groups.is_sorted_by(|one, other| one < other) {
            return Err(Dropped::CheckMismatch);
        }
        if self.total_groups - before.unwrap_or(0) + groups.len() > TOTAL_GROUPS_MAX {
            return Err(Dropped::TotalFull);
        }
        Ok(())
    }

    fn on_gone(&mut self, now_us: u64, address: SocketAddr) {
        if address == self.me.address {
            self.own_news = Some(OwnNews::Missing);
        } else if now_us < self.doubt_until_us {
            self.entries.get_mut(&address).into_iter().for_each(|entry| entry.is_missing = true);
            self.begin_grace(now_us);
        } else if let Some(gone) = self.entries.remove(&address) {
            self.total_groups -= gone.registration.groups.len();
        }
    }

    /// Derives the members from the entries. Of several entries with one id, the latest life counts.
    fn refresh(&mut self) {
        let mut lives: BTreeMap<NodeId, &Registration> = BTreeMap::new();
        for Entry { registration, .. } in self.entries.values() {
            let chosen = lives.entry(registration.id).or_insert(registration);
            if chosen.life < registration.life {
                *chosen = registration;
            }
        }
        let is_same = lives.len() == self.members.len()
            && lives.values().zip(self.members.values()).all(|(entry, member)| {
                entry.id == member.id && entry.address == member.address && entry.groups == member.groups
            });
        if is_same {
            return;
        }
        let member = |entry: &Registration| {
            let groups = Arc::clone(&entry.groups);
            (entry.id, Member { id: entry.id, address: entry.address, groups })
        };
        self.members = lives.into_values().map(member).collect();
        self.version += 1;
    }
}

impl View for Registered {
    /// Drops the datagram: the registry tells everything.
    fn handle_datagram(&mut self, _now_us: u64, _from: SocketAddr, _datagram: &[u8], _out: &mut dyn Output) {
        self.counts.received += 1;
        self.counts.dropped.add(Dropped::Unused);
    }

    fn handle_timeout(&mut self, now_us: u64, _out: &mut dyn Output) {
        if self.left || self.grace_until_us.is_none_or(|until_us| now_us < until_us) {
            return;
        }
        self.grace_until_us = None;
        let total_groups = &mut self.total_groups;
        self.entries.retain(|_, entry| {
            *total_groups -= if entry.is_missing { entry.registration.groups.len() } else { 0 };
            !entry.is_missing
        });
        self.refresh();
    }

    fn poll_timeout(&self) -> Option<u64> {
        self.grace_until_us.filter(|_| !self.left)
    }

    fn set_groups(&mut self, _now_us: u64, groups: &[GroupId], _out: &mut dyn Output) {
        let mut groups = groups.to_vec();
        groups.sort_unstable();
        groups.dedup();
        self.groups = groups.into();
    }

    fn leave(&mut self, _now_us: u64, _out: &mut dyn Output) {
        self.left = true;
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn members(&self) -> Box<dyn Iterator<Item = &Member> + '_> {
        Box::new(self.members.values())
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn memory_bytes(&self) -> usize {
        let nodes = self.entries.len() * (size_of::<Entry>() + size_of::<Member>() + 32);
        // A member shares the groups of its entry.
        nodes + self.total_groups * size_of::<GroupId>()
    }
}
