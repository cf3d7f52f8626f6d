//! A table of the family inet that belongs to this process.

use std::io;

use super::{Batch, Bytes, Socket};

// linux/netfilter/nf_tables.h
const NEW_TABLE: u16 = 0;
const DELETE_TABLE: u16 = 2;
const NEW_CHAIN: u16 = 3;
const NEW_RULE: u16 = 6;
const GET_RULE: u16 = 7;
const DELETE_RULE: u16 = 8;
const GET_GENERATION: u16 = 16;
const OWNER: u32 = 2;
const TABLE_NAME: u16 = 1;
const TABLE_FLAGS: u16 = 2;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
// linux/netfilter.h
const PREROUTING: u32 = 0;

/// Whether a table belongs to the process that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The kernel removes it with its owner (Linux 5.12 or newer), or else it has none.
    Auto,
    /// It stays until somebody removes it.
    None,
}

/// A chain as it should be.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub(crate) name: String,
    /// Priority among the chains of all packets that arrive; `None` for a chain to which others jump.
    pub(crate) priority: Option<i32>,
    /// The expressions of each rule.
    pub(crate) rules: Vec<Bytes>,
}

/// A table in the network namespace of the thread that installed it. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Table {
    socket: Socket,
    name: String,
    /// Number of rules in the table.
    rules: usize,
}

impl Table {
    /// Creates the table `name`, in place of one that a killed process left. A chain must come before those
    /// that jump to it.
    ///
    /// # Errors
    /// The kernel's error: `EPERM` without `CAP_NET_ADMIN`, or if another process owns a table of this name;
    /// most others mean that the kernel lacks a part of nf_tables.
    pub(crate) fn install(name: &str, chains: &[Chain], ownership: Ownership) -> io::Result<Self> {
        let socket = Socket::open()?;
        let owned = match ownership {
            Ownership::Auto => socket.commit(&creation(name, chains, OWNER)),
            Ownership::None => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        };
        match owned {
            // An older kernel does not know the flag.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
                socket.commit(&creation(name, chains, 0))?;
            }
            other => other?,
        }
        let rules = chains.iter().map(|chain| chain.rules.len()).sum();
        Ok(Self { socket, name: name.to_owned(), rules })
    }

    /// Returns the error that [`Table::install`] would have, and changes nothing.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn rehearse(name: &str, chains: &[Chain]) -> io::Result<()> {
        Socket::open()?.rehearse(&creation(name, chains, 0))
    }

    /// Replaces the rules of a chain that has `before`, without a moment between the old and the new ones.
    ///
    /// # Errors
    /// The kernel's error; the old rules then stay.
    pub(crate) fn replace(&mut self, chain: &str, before: usize, rules: &[Bytes]) -> io::Result<()> {
        let mut batch = Batch::default();
        batch.add(DELETE_RULE, 0, &place(&self.name, chain));
        add_rules(&mut batch, &self.name, chain, rules);
        self.socket.commit(&batch)?;
        self.rules = self.rules - before + rules.len();
        Ok(())
    }

    /// Whether the table has all of its rules.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn is_present(&self) -> io::Result<bool> {
        Ok(self.socket.count(GET_RULE, &Bytes::default().text(RULE_TABLE, &self.name))? == self.rules)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let mut batch = Batch::default();
        batch.add(DELETE_TABLE, 0, &Bytes::default().text(TABLE_NAME, &self.name));
        // Somebody may have removed it already.
        let _ = self.socket.commit(&batch);
    }
}

/// Whether the kernel has nf_tables.
///
/// # Errors
/// The kernel's error: `EPERM` without `CAP_NET_ADMIN`, and others if it has not.
pub fn probe() -> io::Result<()> {
    Socket::open()?.ask(GET_GENERATION)
}

/// The batch that makes the table. It first makes a plain table and removes it, so that it succeeds whether
/// or not a table is there.
fn creation(name: &str, chains: &[Chain], flags: u32) -> Batch {
    let mut batch = Batch::default();
    let table = || Bytes::default().text(TABLE_NAME, name);
    batch.add(NEW_TABLE, libc::NLM_F_CREATE, &table());
    batch.add(DELETE_TABLE, 0, &table());
    batch.add(NEW_TABLE, libc::NLM_F_CREATE, &table().number(TABLE_FLAGS, flags));
    for chain in chains {
        let attributes = Bytes::default().text(CHAIN_TABLE, name).text(CHAIN_NAME, &chain.name);
        let attributes = match chain.priority {
            None => attributes,
            Some(priority) => {
                let hook = Bytes::default().number(HOOK_NUMBER, PREROUTING);
                let hook = hook.number(HOOK_PRIORITY, priority.cast_unsigned());
                attributes.nest(CHAIN_HOOK, &hook).text(CHAIN_TYPE, "filter")
            }
        };
        batch.add(NEW_CHAIN, libc::NLM_F_CREATE, &attributes);
    }
    for chain in chains {
        add_rules(&mut batch, name, &chain.name, &chain.rules);
    }
    batch
}

fn add_rules(batch: &mut Batch, name: &str, chain: &str, rules: &[Bytes]) {
    for rule in rules {
        let rule = place(name, chain).nest(RULE_EXPRESSIONS, rule);
        batch.add(NEW_RULE, libc::NLM_F_CREATE | libc::NLM_F_APPEND, &rule);
    }
}

/// The attributes that name a chain in a message about rules.
fn place(name: &str, chain: &str) -> Bytes {
    Bytes::default().text(RULE_TABLE, name).text(RULE_CHAIN, chain)
}
