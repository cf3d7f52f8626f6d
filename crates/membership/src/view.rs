//! Views: the interface of all providers of membership.

use std::net::SocketAddr;

use ricochet_core::GroupId;

use crate::counters::Counts;
use crate::exchange::Member;
use crate::gossip::Gossip;
use crate::listed::Static;
use crate::output::Output;

/// A provider of membership: tells which nodes live, at which addresses, and in which groups.
///
/// The node that owns a provider calls it from one thread. Time comes as an argument, in microseconds of a
/// clock that never goes back. A view may be stale or wrong for a while; then some repairs go to the wrong
/// nodes. Provide `ask`, `take_proven` and `proves_lives` together, or none of them.
/// [`conformance::check`](crate::conformance::check) is a test that every provider must pass.
pub trait View {
    /// Takes a datagram that begins with [`wire::FIRST_BYTE`](crate::wire::FIRST_BYTE). It may be forged.
    /// Providers that need no datagrams of their own ignore it.
    fn handle_datagram(&mut self, now_us: u64, from: SocketAddr, datagram: &[u8], out: &mut dyn Output);

    /// Acts on all timers that are due.
    fn handle_timeout(&mut self, now_us: u64, out: &mut dyn Output);

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) must be called, unless a call
    /// changes it. A provider that gets its news from another thread is due at its next look at them.
    fn poll_timeout(&self) -> Option<u64>;

    /// Sets the groups that this node is in, and announces them to all others.
    fn set_groups(&mut self, now_us: u64, groups: &[GroupId], out: &mut dyn Output);

    /// Announces that this node leaves. Afterwards the provider is silent, and its members stay as they are.
    fn leave(&mut self, now_us: u64, out: &mut dyn Output);

    /// Returns a number that rises with each change of [`members`](Self::members), and with nothing else.
    fn version(&self) -> u64;

    /// Returns all other nodes that are considered alive, in order of their ids, each once.
    fn members(&self) -> Box<dyn Iterator<Item = &Member> + '_>;

    /// Asks which node lives at an address, because something came from there, unless that is known.
    fn ask(&mut self, now_us: u64, address: SocketAddr) {
        let _ = (now_us, address);
    }

    /// Returns the address of the node that has just proven that it lives there, once.
    fn take_proven(&mut self) -> Option<SocketAddr> {
        None
    }

    /// Returns whether the provider itself asks and answers which node lives at an address
    /// ([`IdentityQuestion`](crate::wire::IdentityQuestion)). If it does not, the node that owns it does.
    fn proves_lives(&self) -> bool {
        false
    }

    /// Returns the counters since the start.
    fn counts(&self) -> Counts {
        Counts::default()
    }

    /// Returns roughly the bytes of memory held.
    fn memory_bytes(&self) -> usize {
        0
    }
}

macro_rules! view {
    ($provider:ty) => {
        impl View for $provider {
            fn handle_datagram(
                &mut self,
                now_us: u64,
                from: SocketAddr,
                datagram: &[u8],
                mut out: &mut dyn Output,
            ) {
                Self::handle_datagram(self, now_us, from, datagram, &mut out);
            }

            fn handle_timeout(&mut self, now_us: u64, mut out: &mut dyn Output) {
                Self::handle_timeout(self, now_us, &mut out);
            }

            fn poll_timeout(&self) -> Option<u64> {
                Self::poll_timeout(self)
            }

            fn set_groups(&mut self, now_us: u64, groups: &[GroupId], mut out: &mut dyn Output) {
                Self::set_groups(self, now_us, groups, &mut out);
            }

            fn leave(&mut self, now_us: u64, mut out: &mut dyn Output) {
                Self::leave(self, now_us, &mut out);
            }

            fn version(&self) -> u64 {
                self.exchange().directory.version()
            }

            fn members(&self) -> Box<dyn Iterator<Item = &Member> + '_> {
                Box::new(self.exchange().directory.members())
            }

            fn ask(&mut self, now_us: u64, address: SocketAddr) {
                Self::ask(self, now_us, address);
            }

            fn take_proven(&mut self) -> Option<SocketAddr> {
                Self::take_proven(self)
            }

            fn proves_lives(&self) -> bool {
                true
            }

            fn counts(&self) -> Counts {
                self.exchange().counts
            }

            fn memory_bytes(&self) -> usize {
                Self::memory_bytes(self)
            }
        }
    };
}

view!(Gossip);
view!(Static);
