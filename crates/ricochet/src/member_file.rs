//! The file that lists the members, which is read again when it changes.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use membership::{ListedMember, MemberFile, Membership};

use crate::driver::MembershipDriver;
use crate::rekey::{Facts, facts};
use crate::shared::Shared;

/// Interval between checks of the file.
const CHECK_PERIOD_US: u64 = 1_000_000;

/// Watches the file, on the node's thread. A file that has not changed for one interval is read, so that one
/// that is being written is not.
#[derive(Debug, Default)]
pub(crate) struct MemberFileWatch {
    path: Option<PathBuf>,
    /// Facts of the file that was read, and of the one that was seen last.
    read: Option<Facts>,
    seen: Option<Facts>,
    next_check_us: u64,
}

impl MemberFileWatch {
    /// Watches a file that is about to be read.
    pub(crate) fn new(path: Option<&Path>) -> Self {
        let read = path.and_then(facts);
        Self { path: path.map(Path::to_owned), read, seen: read, next_check_us: 0 }
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.path.as_ref().map(|_| self.next_check_us)
    }

    /// Checks the file, if it is time.
    pub(crate) fn handle_timeout(&mut self, now_us: u64, membership: &mut MembershipDriver, shared: &Shared) {
        let Some(path) = self.path.as_ref().filter(|_| now_us >= self.next_check_us) else { return };
        self.next_check_us = now_us + CHECK_PERIOD_US;
        let facts = facts(path);
        let is_settled = std::mem::replace(&mut self.seen, facts) == facts;
        if facts == self.read || !is_settled {
            return;
        }
        self.read = facts;
        let result = read(path, shared.address).and_then(|file| match file.members() {
            [] => Err(format!("{}: expected a member, saw none", path.display())),
            _ => Ok(file),
        });
        let mut published = shared.published.lock().unwrap_or_else(PoisonError::into_inner);
        published.members_read += u64::from(result.is_ok());
        published.member_file_error = result.as_ref().err().cloned();
        drop(published);
        match (result, &mut membership.provider) {
            (Ok(file), Membership::Static(provider)) => {
                tracing::info!(path = %path.display(), count = file.members().len(), "the members were read again");
                provider.change_file(now_us, &file);
            }
            (Err(error), _) => tracing::warn!(error, "the node continues with the members that it has"),
            (Ok(_), _) => {}
        }
    }
}

/// Reads a file of members for the node at an address. One that lists only addresses with the other IP
/// version is refused, because the node reaches none of them.
pub(crate) fn read(path: &Path, own: SocketAddr) -> Result<MemberFile, String> {
    let text =
        fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let file = MemberFile::parse(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let is_far = |member: &ListedMember| member.address.is_ipv4() != own.is_ipv4();
    if !file.members().is_empty() && file.members().iter().all(is_far) {
        let version = if own.is_ipv4() { 4 } else { 6 };
        return Err(format!(
            "{}: expected a member with an IPv{version} address, as that of this node, saw none",
            path.display()
        ));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_lists_no_address_of_the_nodes_ip_version_is_refused() {
        let path = std::env::temp_dir().join(format!("ricochet-members-{}.toml", std::process::id()));
        let listed = |address: &str| format!("[[member]]\naddress = \"{address}\"\n");
        let own = "10.0.0.7:7900".parse().unwrap();
        fs::write(&path, listed("[fd00::7]:7900")).unwrap();
        let error = read(&path, own).unwrap_err();
        assert!(error.contains("expected a member with an IPv4 address"), "{error}");
        fs::write(&path, listed("[fd00::7]:7900") + &listed("10.0.0.8:7900")).unwrap();
        assert_eq!(read(&path, own).map(|file| file.members().len()), Ok(2));
        fs::write(&path, "").unwrap();
        assert!(read(&path, own).is_ok(), "it may be filled later");
        fs::remove_file(&path).unwrap();
    }
}
