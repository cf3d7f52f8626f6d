//! A configuration as far as it could be understood: each value with its place, none where the value was wrong.

use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use maelstrom_core::RepairRate;

use super::{Code, Gateway, GatewayConfig, Mode, Peer, PeerKey, Schedule, Span, TapChoice};

/// A value and where it stands; no place means that it is the default.
#[derive(Clone, Debug)]
pub(super) struct Setting<T> {
    pub(super) value: T,
    pub(super) span: Option<Span>,
}

/// The file's values. `None` means wrong or missing, and that there is an error which says so.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) gateway: GatewayDraft,
    pub(super) code: CodeDraft,
    pub(super) peers: Vec<PeerDraft>,
}

/// `[gateway]`. The two MTUs are optional: wrong is the outer `None`, absent the inner.
#[derive(Debug)]
pub(super) struct GatewayDraft {
    pub(super) mode: Option<Setting<Mode>>,
    pub(super) wan: Option<Setting<String>>,
    pub(super) listen: Option<Setting<SocketAddr>>,
    pub(super) control: Option<Setting<PathBuf>>,
    pub(super) lan_mtu: Option<Option<Setting<u16>>>,
    pub(super) wan_mtu: Option<Option<Setting<u16>>>,
    pub(super) tap: Option<Setting<TapChoice>>,
    pub(super) tun: Option<Setting<String>>,
}

/// The words that `scheme` may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Layered,
    ReedSolomon,
    Sliding,
}

impl Scheme {
    /// The word in the file.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Layered => "layered",
            Self::ReedSolomon => "reed-solomon",
            Self::Sliding => "sliding",
        }
    }
}

/// `[code]`. What belongs to another scheme than the chosen one is here too, and says nothing.
#[derive(Debug)]
pub(super) struct CodeDraft {
    pub(super) scheme: Option<Setting<Scheme>>,
    pub(super) r: Option<Setting<u8>>,
    pub(super) interleaves: Option<Setting<Vec<u16>>>,
    pub(super) c: Option<Setting<u8>>,
    pub(super) interleave: Option<Setting<u16>>,
    pub(super) rate: Option<Setting<RepairRate>>,
    pub(super) window: Option<Setting<u16>>,
    pub(super) density: Option<Setting<u8>>,
    pub(super) delayed: Option<Setting<bool>>,
    pub(super) max_delay_ms: Option<Setting<u16>>,
}

impl CodeDraft {
    /// The chosen scheme with its settings, if they are all right.
    pub(super) fn schedule(&self) -> Option<Schedule> {
        Some(match self.scheme.as_ref()?.value {
            Scheme::Layered => Schedule::Layered {
                r: self.r.as_ref()?.value,
                interleaves: self.interleaves.as_ref()?.value.clone(),
            },
            Scheme::ReedSolomon => Schedule::ReedSolomon {
                r: self.r.as_ref()?.value,
                c: self.c.as_ref()?.value,
                interleave: self.interleave.as_ref()?.value,
            },
            Scheme::Sliding => Schedule::Sliding {
                rate: self.rate.as_ref()?.value,
                window: self.window.as_ref()?.value,
                density: self.density.as_ref()?.value,
            },
        })
    }

    /// Where the size of the code is chosen, if it is not the default.
    pub(super) fn span(&self) -> Option<Span> {
        let keys: &[&str] = match self.scheme.as_ref()?.value {
            Scheme::Layered => &["interleaves", "r"],
            Scheme::ReedSolomon => &["interleave", "c", "r"],
            Scheme::Sliding => &["window"],
        };
        keys.iter().find_map(|key| self.place(key)).cloned()
    }

    /// Where a key that not every scheme has stands, if it does.
    pub(super) fn place(&self, key: &str) -> Option<&Span> {
        fn at<T>(setting: Option<&Setting<T>>) -> Option<&Span> {
            setting?.span.as_ref()
        }
        match key {
            "r" => at(self.r.as_ref()),
            "interleaves" => at(self.interleaves.as_ref()),
            "c" => at(self.c.as_ref()),
            "interleave" => at(self.interleave.as_ref()),
            "delayed" => at(self.delayed.as_ref()),
            "rate" => at(self.rate.as_ref()),
            "window" => at(self.window.as_ref()),
            "density" => at(self.density.as_ref()),
            _ => None,
        }
    }
}

/// One `[[peer]]`. Of the networks, those that were right.
#[derive(Debug)]
pub(super) struct PeerDraft {
    pub(super) name: Option<Option<Setting<String>>>,
    pub(super) address: Option<Setting<SocketAddr>>,
    pub(super) networks: Vec<Setting<IpNet>>,
    pub(super) key: Option<Setting<PeerKey>>,
}

impl PeerDraft {
    /// What to call the peer in a message; `index` counts from 0.
    pub(super) fn label(&self, index: usize) -> String {
        match (&self.name, &self.address) {
            (Some(Some(name)), _) => format!("peer `{}`", name.value),
            (_, Some(address)) => format!("peer {}", address.value),
            _ => format!("peer {}", index + 1),
        }
    }
}

impl Draft {
    /// The configuration, of a draft in which nothing is wrong.
    ///
    /// # Panics
    /// If something is wrong in it: the reader must have reported an error for every gap.
    pub(super) fn finish(self) -> GatewayConfig {
        GatewayConfig {
            gateway: Gateway {
                mode: whole(self.gateway.mode),
                wan: whole(self.gateway.wan),
                listen: whole(self.gateway.listen),
                control: whole(self.gateway.control),
                lan_mtu: present(self.gateway.lan_mtu),
                wan_mtu: present(self.gateway.wan_mtu),
                tap: whole(self.gateway.tap),
                tun: whole(self.gateway.tun),
            },
            code: Code {
                schedule: self.code.schedule().expect("every gap in a draft has an error of its own"),
                delayed: whole(self.code.delayed),
                max_delay_ms: whole(self.code.max_delay_ms),
            },
            peers: self.peers.into_iter().map(PeerDraft::finish).collect(),
        }
    }
}

impl PeerDraft {
    fn finish(self) -> Peer {
        assert!(!self.networks.is_empty(), "a peer without networks is an error");
        Peer {
            name: present(self.name),
            address: whole(self.address),
            networks: self.networks.into_iter().map(|network| network.value).collect(),
            key: whole(self.key),
        }
    }
}

fn whole<T>(setting: Option<Setting<T>>) -> T {
    setting.expect("every gap in a draft has an error of its own").value
}

fn present<T>(setting: Option<Option<Setting<T>>>) -> Option<T> {
    setting.expect("every gap in a draft has an error of its own").map(|setting| setting.value)
}
