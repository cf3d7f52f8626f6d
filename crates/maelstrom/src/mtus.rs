//! The MTU of the WAN: the longest packet that all interfaces carry by which datagrams may leave.
//!
//! Another MTU ends all sessions. Uplinks come and go, and one that is missing or has returned is therefore
//! no reason for another MTU: the core finds the width of each path by itself. Reasons are other interfaces
//! or another `wan_mtu` in the file, and an interface that has got another MTU.

use netio::interface::Interface;

use crate::config::GatewayConfig;
use crate::error::StartError;

/// The interfaces by which datagrams may leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mtus {
    /// The MTU that the file states.
    stated: Option<u16>,
    /// The interfaces, and the MTU of each when it was there last.
    of: Vec<(String, Option<u32>)>,
    wan_mtu: usize,
}

impl Mtus {
    /// Reads the MTUs of the interfaces that are there.
    ///
    /// # Errors
    /// The kernel's error, if no WAN interface is there.
    pub(crate) fn read(config: &GatewayConfig) -> Result<Self, StartError> {
        let mtu_of = |name: &str| {
            let open = Interface::open(name).and_then(|interface| interface.mtu());
            open.map_err(|error| StartError::new(format!("read the MTU of {name}"), error))
        };
        let wans = config.wans();
        if wans.iter().all(|wan| mtu_of(wan).is_err()) {
            mtu_of(&config.gateway.wan)?;
        }
        let paths = config.peers.iter().flat_map(|peer| &peer.paths);
        let further = paths.filter_map(|path| path.interface.as_deref());
        let names = wans.into_iter().chain(further).chain(config.gateway.listen_interface.as_deref());
        let of = names.map(|name| (name.to_owned(), mtu_of(name).ok())).collect();
        Ok(Self::of(config.gateway.wan_mtu, of))
    }

    /// Of several interfaces the narrowest counts, because a datagram may take any of them.
    fn of(stated: Option<u16>, of: Vec<(String, Option<u32>)>) -> Self {
        let present = of.iter().filter_map(|&(_, mtu)| mtu);
        let narrowest = present.chain(stated.map(u32::from)).min();
        Self { stated, of, wan_mtu: narrowest.map_or(usize::MAX, |mtu| mtu as usize) }
    }

    /// Keeps the former MTU of the WAN, unless there is a reason for another one.
    #[must_use]
    pub(crate) fn following(self, former: &Self) -> Self {
        let both = || self.of.iter().zip(&former.of);
        let are_same = self.of.len() == former.of.len()
            && both().all(|((name, is), (other, was))| {
                name == other && is.zip(*was).is_none_or(|(is, was)| is == was)
            });
        if self.stated != former.stated || !are_same {
            return self;
        }
        let of = both().map(|((name, is), (_, was))| (name.clone(), is.or(*was))).collect();
        Self { stated: self.stated, of, wan_mtu: former.wan_mtu }
    }

    /// MTU of the WAN, in bytes.
    pub(crate) fn wan_mtu(&self) -> usize {
        self.wan_mtu
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mtus(stated: Option<u16>, of: &[(&str, Option<u32>)]) -> Mtus {
        Mtus::of(stated, of.iter().map(|&(name, mtu)| (name.to_owned(), mtu)).collect())
    }

    const WAN: (&str, Option<u32>) = ("wan0", Some(1_500));

    #[test]
    fn the_narrowest_interface_that_is_there_counts_at_the_start() {
        assert_eq!(mtus(None, &[WAN, ("lte0", Some(1_420))]).wan_mtu(), 1_420);
        assert_eq!(mtus(None, &[WAN, ("lte0", None)]).wan_mtu(), 1_500);
        assert_eq!(mtus(Some(1_400), &[WAN, ("lte0", Some(1_420))]).wan_mtu(), 1_400);
        assert_eq!(mtus(Some(1_450), &[WAN, ("lte0", Some(1_420))]).wan_mtu(), 1_420);
    }

    #[test]
    fn an_uplink_that_comes_or_goes_changes_nothing() {
        let without = mtus(None, &[WAN, ("lte0", None)]);
        let with = mtus(None, &[WAN, ("lte0", Some(1_420))]);
        let returned = with.clone().following(&without);
        assert_eq!(returned.wan_mtu(), 1_500);
        let gone = without.clone().following(&returned);
        assert_eq!(gone.wan_mtu(), 1_500);
        assert_eq!(with.clone().following(&gone).wan_mtu(), 1_500);
        assert_eq!(without.following(&with).wan_mtu(), 1_420, "it may return");
    }

    #[test]
    fn an_interface_with_another_mtu_counts_and_so_does_another_file() {
        let former = mtus(None, &[WAN, ("lte0", Some(1_420))]);
        let gone = mtus(None, &[WAN, ("lte0", None)]).following(&former);
        for former in [former, gone] {
            let follow = |next: Mtus| next.following(&former).wan_mtu();
            assert_eq!(follow(mtus(None, &[WAN, ("lte0", Some(1_430))])), 1_430);
            assert_eq!(follow(mtus(None, &[("wan0", Some(9_000)), ("lte0", None)])), 9_000);
            assert_eq!(follow(mtus(Some(1_300), &[WAN, ("lte0", None)])), 1_300);
            assert_eq!(follow(mtus(None, &[WAN])), 1_500);
            assert_eq!(follow(mtus(None, &[WAN, ("lte1", None)])), 1_500);
        }
    }
}
