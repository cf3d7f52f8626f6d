//! The context of a call of an ingress.

use std::net::SocketAddr;

use crate::ecn::Ecn;
use crate::identity::Identity;
use crate::outbox::{Origin, Queue};
use crate::prefixes::{LocalNetworks, PrefixTable};
use crate::wire::SendTime;

/// Context of one call: the time, and data of the peer or the gateway.
pub(crate) struct IngressCx<'a> {
    /// Time of the arrival; with a repair, that until which the packets that arrived are known.
    pub(crate) now_us: u64,
    /// Time by which that is behind the clock.
    pub(crate) behind_us: u64,
    pub(crate) identity: &'a Identity,
    /// The peer's networks. A recovered packet must come from one of them.
    pub(crate) networks: &'a PrefixTable<()>,
    /// The networks of this site. Recovered packets to others are not injected.
    pub(crate) local: &'a LocalNetworks,
    /// Our end of the repair channel. Recovered packets to it are not injected.
    pub(crate) listen: SocketAddr,
    /// Number of the peer.
    pub(crate) peer: usize,
    /// Number of the datagram with the repair in use, low 32 bits; `None` while there is none.
    pub(crate) repair: Option<u32>,
    /// Time at which the datagram was sent that has just arrived; `None` if it has waited.
    pub(crate) sent: Option<SendTime>,
    /// Mark of the datagram in use; a repair has none that matters.
    pub(crate) ecn: Ecn,
    /// Whether a packet has not arrived: another gateway of the peer's rack has recovered it.
    pub(crate) is_copy: bool,
    /// Whether packets are put in order before the driver gets them.
    pub(crate) is_ordered: bool,
    pub(crate) recovered: &'a mut Queue<Origin>,
}
