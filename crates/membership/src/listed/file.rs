//! The file that lists the members.

use std::net::SocketAddr;

use hashbrown::HashSet;
use ricochet_core::GroupId;
use serde::Deserialize;
use thiserror::Error;
use toml::Spanned;

use crate::wire::GROUPS_MAX;
use crate::wire::swim::{canonical, is_sendable};

/// Maximum number of members in one file.
pub const LISTED_MAX: usize = 4_096;

/// The members of a cluster that a file lists.
///
/// ```
/// let file = membership::MemberFile::parse(r#"
///     [[member]]
///     address = "10.0.0.7:7901"
///     groups = ["prices/AAPL", "prices/MSFT"]
///
///     [[member]]
///     address = "10.0.0.8:7901"
/// "#)?;
/// assert_eq!(file.members().len(), 2);
/// assert_eq!(file.members()[0].groups, ["prices/AAPL", "prices/MSFT"]);
/// # Ok::<(), membership::FileError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberFile {
    members: Vec<ListedMember>,
}

/// One member of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedMember {
    /// Address of the socket that the node sends from.
    pub address: SocketAddr,
    /// Names of the groups that the node is assumed to be in until it reports others.
    pub groups: Vec<String>,
}

/// Mistake in a file of members.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FileError {
    /// The text is not TOML, or has an unknown key or a value of the wrong type.
    #[error("line {line}: {what}")]
    Syntax {
        /// Line in the file, from 1.
        line: usize,
        /// Message of the TOML parser.
        what: String,
    },
    /// A string is not an address.
    #[error("line {line}: expected an address and a port, such as \"10.0.0.7:7901\", saw {saw:?}")]
    Address {
        /// Line in the file, from 1.
        line: usize,
        /// The string.
        saw: String,
    },
    /// An address occurs twice.
    #[error(
        "line {line}: expected each address once, saw {address} again; put all its groups into one entry"
    )]
    Repeated {
        /// Line in the file, from 1.
        line: usize,
        /// The address.
        address: SocketAddr,
    },
    /// A member has too many groups.
    #[error("line {line}: expected at most {GROUPS_MAX} groups of one member, saw {count}")]
    TooManyGroups {
        /// Line in the file, from 1.
        line: usize,
        /// Number of its groups.
        count: usize,
    },
    /// The file has more than [`LISTED_MAX`] members.
    #[error("expected at most {LISTED_MAX} members, saw {0}; use gossip for more")]
    TooMany(usize),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    #[serde(default)]
    member: Vec<RawMember>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMember {
    address: Spanned<String>,
    #[serde(default)]
    groups: Vec<String>,
}

impl MemberFile {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// [`FileError`] for the first mistake.
    pub fn parse(text: &str) -> Result<Self, FileError> {
        let raw: RawFile = toml::from_str(text).map_err(|error| FileError::Syntax {
            line: line_of(text, error.span().map_or(0, |span| span.start)),
            what: error.message().lines().collect::<Vec<_>>().join("; "),
        })?;
        if raw.member.len() > LISTED_MAX {
            return Err(FileError::TooMany(raw.member.len()));
        }
        let mut seen = HashSet::new();
        let mut members = Vec::with_capacity(raw.member.len());
        for RawMember { address, groups } in raw.member {
            let line = line_of(text, address.span().start);
            let parsed: Option<SocketAddr> = address.as_ref().parse().ok();
            let Some(address) = parsed.map(canonical).filter(|&address| is_sendable(address)) else {
                return Err(FileError::Address { line, saw: address.into_inner() });
            };
            if !seen.insert(address) {
                return Err(FileError::Repeated { line, address });
            }
            if groups.len() > GROUPS_MAX {
                return Err(FileError::TooManyGroups { line, count: groups.len() });
            }
            members.push(ListedMember { address, groups });
        }
        Ok(Self { members })
    }

    /// Lists members by their addresses alone, each once. Addresses that no node can have are left out.
    ///
    /// # Errors
    /// [`FileError::TooMany`].
    pub fn of(addresses: impl IntoIterator<Item = SocketAddr>) -> Result<Self, FileError> {
        let mut seen = HashSet::new();
        let addresses = addresses.into_iter().map(canonical);
        let members: Vec<ListedMember> = addresses
            .filter(|&address| is_sendable(address) && seen.insert(address))
            .map(|address| ListedMember { address, groups: Vec::new() })
            .collect();
        if members.len() > LISTED_MAX { Err(FileError::TooMany(members.len())) } else { Ok(Self { members }) }
    }

    /// Returns all members in the order of the file.
    pub fn members(&self) -> &[ListedMember] {
        &self.members
    }

    /// Returns the entry of the member at `address`, for instance a node's own.
    pub fn member(&self, address: SocketAddr) -> Option<&ListedMember> {
        let address = canonical(address);
        self.members.iter().find(|member| member.address == address)
    }
}

impl ListedMember {
    /// Returns the ids of its groups in ascending order, each once.
    pub fn group_ids(&self) -> Vec<GroupId> {
        let mut ids: Vec<GroupId> = self.groups.iter().map(|name| GroupId::of_name(name)).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}

/// Returns the line, from 1, that contains byte `at`.
fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        MemberFile::parse(text).expect_err(text).to_string()
    }

    #[test]
    fn mistakes_are_reported_with_their_line_and_a_remedy() {
        assert_eq!(
            error("[[member]]\naddress = \"10.0.0.7\"\n"),
            "line 2: expected an address and a port, such as \"10.0.0.7:7901\", saw \"10.0.0.7\""
        );
        assert!(
            error("[[member]]\naddress = \"224.0.0.1:7901\"\n").starts_with("line 2: expected an address")
        );
        assert_eq!(
            error("[[member]]\naddress = \"10.0.0.7:1\"\n[[member]]\naddress = \"[::ffff:10.0.0.7]:1\"\n"),
            "line 4: expected each address once, saw 10.0.0.7:1 again; put all its groups into one entry"
        );
        let unknown = error("[[member]]\naddress = \"10.0.0.7:1\"\ngroup = [\"a\"]\n");
        assert!(
            unknown.starts_with("line 3: unknown field `group`, expected `address` or `groups`"),
            "{unknown}"
        );
        let missing = error("\n[[member]]\ngroups = [\"a\"]\n");
        assert!(missing.starts_with("line 2: missing field `address`"), "{missing}");
        let kind = error("[[member]]\naddress = 7901\n");
        assert!(kind.starts_with("line 2: invalid type: integer `7901`, expected a string"), "{kind}");
        assert!(error("[[member]\n").starts_with("line 1: "), "{}", error("[[member]\n"));
    }

    #[test]
    fn a_member_finds_its_own_entry_and_groups() {
        let file =
            MemberFile::parse("[[member]]\naddress = \"10.0.0.7:1\"\ngroups = [\"b\", \"a\", \"b\"]\n")
                .unwrap();
        let member = file.member("[::ffff:10.0.0.7]:1".parse().unwrap()).unwrap();
        assert_eq!(member.group_ids().len(), 2);
        assert!(member.group_ids().is_sorted());
        assert_eq!(file.member("10.0.0.8:1".parse().unwrap()), None);
        assert_eq!(MemberFile::parse("").unwrap().members(), []);
    }

    #[test]
    fn members_are_listed_by_their_addresses_each_once() {
        let addresses = |texts: &[&str]| -> Vec<SocketAddr> {
            texts.iter().map(|text| text.parse().expect("an address")).collect()
        };
        let given =
            addresses(&["10.0.0.8:1", "[::ffff:10.0.0.7]:1", "0.0.0.0:1", "10.0.0.7:1", "10.0.0.7:0"]);
        let file = MemberFile::of(given).unwrap();
        let listed: Vec<SocketAddr> = file.members().iter().map(|member| member.address).collect();
        assert_eq!(listed, addresses(&["10.0.0.8:1", "10.0.0.7:1"]));
        let many = (1..=LISTED_MAX as u16 + 1).map(|port| SocketAddr::from(([10, 0, 0, 7], port)));
        assert_eq!(MemberFile::of(many), Err(FileError::TooMany(LISTED_MAX + 1)));
    }
}
