//! Which IP groups are joined, and by how many of this node's groups each is needed.

use std::net::IpAddr;

use hashbrown::HashMap;
use netio::multicast::{JoinError, Joiner};

/// The joined IP groups.
#[derive(Debug)]
pub(crate) struct IpGroups {
    /// None where there is no multicast.
    joiner: Option<Joiner>,
    needed: HashMap<IpAddr, usize>,
}

impl IpGroups {
    pub(crate) fn new(joiner: Option<Joiner>) -> Self {
        Self { joiner, needed: HashMap::new() }
    }

    /// One more group needs an IP group.
    fn need(&mut self, address: IpAddr) -> Result<(), JoinError> {
        let Some(joiner) = &mut self.joiner else { return Ok(()) };
        if !self.needed.contains_key(&address) {
            joiner.join(address)?;
        }
        *self.needed.entry(address).or_insert(0) += 1;
        Ok(())
    }

    /// One more group needs each, or none does if one cannot be had.
    pub(crate) fn need_all(
        &mut self,
        addresses: impl Iterator<Item = IpAddr> + Clone,
    ) -> Result<(), JoinError> {
        for (done, address) in addresses.clone().enumerate() {
            if let Err(error) = self.need(address) {
                addresses.take(done).for_each(|address| self.release(address));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Goes on with the interface of this number.
    pub(crate) fn set_interface(&mut self, index: u32) -> Result<(), JoinError> {
        self.joiner.as_mut().map_or(Ok(()), |joiner| joiner.set_interface(index))
    }

    /// Leaves all, and joins none any more.
    pub(crate) fn close(&mut self) {
        self.joiner = None;
        self.needed.clear();
    }

    /// One group less needs it.
    pub(crate) fn release(&mut self, address: IpAddr) {
        let (Some(joiner), Some(needed)) = (&mut self.joiner, self.needed.get_mut(&address)) else { return };
        *needed -= 1;
        if *needed == 0 {
            self.needed.remove(&address);
            if let Err(error) = joiner.leave(address) {
                tracing::warn!(%address, %error, "leaving an IP group");
            }
        }
    }

    /// How many are joined.
    pub(crate) fn len(&self) -> usize {
        self.needed.len()
    }
}
