//! The joined IP groups, with the number of this node's groups that need each.

use std::net::IpAddr;

use hashbrown::HashMap;
use netio::multicast::{JoinError, Joiner};

/// The joined IP groups.
#[derive(Debug)]
pub(crate) struct IpGroups {
    /// `None` without multicast.
    joiner: Option<Joiner>,
    needed: HashMap<IpAddr, usize>,
}

impl IpGroups {
    pub(crate) fn new(joiner: Option<Joiner>) -> Self {
        Self { joiner, needed: HashMap::new() }
    }

    /// Joins an IP group for one more group.
    fn acquire(&mut self, address: IpAddr) -> Result<(), JoinError> {
        let Some(joiner) = &mut self.joiner else { return Ok(()) };
        if !self.needed.contains_key(&address) {
            joiner.join(address)?;
        }
        *self.needed.entry(address).or_insert(0) += 1;
        Ok(())
    }

    /// Joins each IP group for one more group, all or none.
    pub(crate) fn acquire_all(
        &mut self,
        addresses: impl Iterator<Item = IpAddr> + Clone,
    ) -> Result<(), JoinError> {
        for (done, address) in addresses.clone().enumerate() {
            if let Err(error) = self.acquire(address) {
                addresses.take(done).for_each(|address| self.release(address));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Moves all memberships to the interface with this index.
    pub(crate) fn set_interface(&mut self, index: u32) -> Result<(), JoinError> {
        self.joiner.as_mut().map_or(Ok(()), |joiner| joiner.set_interface(index))
    }

    /// Leaves all IP groups for good.
    pub(crate) fn close(&mut self) {
        self.joiner = None;
        self.needed.clear();
    }

    /// Notes that one group fewer needs the IP group; leaves it if none does.
    pub(crate) fn release(&mut self, address: IpAddr) {
        let (Some(joiner), Some(needed)) = (&mut self.joiner, self.needed.get_mut(&address)) else { return };
        *needed -= 1;
        if *needed == 0 {
            self.needed.remove(&address);
            if let Err(error) = joiner.leave(address) {
                tracing::warn!(%address, %error, "cannot leave an IP group");
            }
        }
    }

    /// Returns the number of IP groups joined.
    pub(crate) fn len(&self) -> usize {
        self.needed.len()
    }
}
