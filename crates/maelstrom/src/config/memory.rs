//! How much memory a configuration takes: windows of packets for each peer, allocated at the start, used or not.

use super::Diagnostic;
use super::draft::Draft;
use super::report::Findings;

/// No gateway takes more for packets and repairs, in bytes. (A memory limit of the machine ends it without a word.)
pub const MEMORY_MAX: u64 = 512 << 20;

/// What the path is taken to carry where neither the file nor the machine tells, in bytes.
const WAN_MTU_ASSUMED: u16 = 1500;

/// Beside its bytes a packet of the window takes so many, for its name and place.
const BOOKS: u64 = 640;
/// Repairs that wait at a time, and other buffers of one packet.
const BUFFERS: u64 = 560;
/// Beside its bytes a repair takes so many, for its recipe and coefficients.
const RECIPE: u64 = 1024;
/// The window does not shrink below this, in packets.
const WINDOW_MIN: u64 = 4096;

/// What a configuration takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    peers: u64,
    window: u64,
    packet_bytes: u64,
    peer_bytes: u64,
}

impl Memory {
    /// Of a gateway with so many peers; those in `core` do not matter.
    pub(crate) fn of(core: &maelstrom_core::Config, peers: usize) -> Self {
        let ingress = core.ingress();
        let (window, packet_bytes) = (ingress.window as u64, ingress.packet_max as u64);
        let bins: u64 = core.interleaves.iter().copied().map(u64::from).sum();
        let repairs = ingress.equations as u64 + BUFFERS + bins;
        let peer_bytes = window * (packet_bytes + BOOKS) + repairs * (packet_bytes + RECIPE);
        Self { peers: peers as u64, window, packet_bytes, peer_bytes }
    }

    /// In all.
    pub(crate) fn bytes(&self) -> u64 {
        self.peers * self.peer_bytes
    }

    pub(crate) fn is_too_much(&self) -> bool {
        self.bytes() > MEMORY_MAX
    }

    /// How it comes about, in words.
    pub(crate) fn origin(&self) -> String {
        let peers = if self.peers == 1 { "1 peer".to_owned() } else { format!("{} peers", self.peers) };
        format!("{peers}, each with a window of {} packets of up to {} bytes", self.window, self.packet_bytes)
    }

    /// What lowers it, as far as it goes here.
    pub(crate) fn remedies(&self) -> Vec<&'static str> {
        let mut remedies = Vec::new();
        if self.window > WINDOW_MIN {
            remedies
                .push("lower `r`, or the largest of `interleaves`: the window is four times their product");
        }
        if self.packet_bytes > u64::from(WAN_MTU_ASSUMED) {
            remedies.push("if no packet on the path is that large, set a smaller `wan_mtu`");
        }
        if self.peers > 1 {
            remedies.push("run a gateway for each part of the peers");
        }
        remedies
    }
}

/// Refuses what takes too much with the `wan_mtu` that is stated, or the usual one.
pub(super) fn check(draft: &Draft, findings: &mut Findings) {
    if let Some(memory) = of_draft(draft, None).filter(Memory::is_too_much) {
        findings.add(refused(draft, &memory));
    }
}

/// The same with what the path carries on this machine; tells the figure where it will do.
pub(super) fn check_with(draft: &Draft, wan_mtu: u32, findings: &mut Findings) {
    if of_draft(draft, None).is_some_and(|memory| memory.is_too_much()) {
        return;
    }
    let Some(memory) = of_draft(draft, Some(wan_mtu)) else { return };
    findings.add(if memory.is_too_much() {
        refused(draft, &memory)
    } else {
        let message = format!("packets and repairs take about {} of memory", mebibytes(memory.bytes()));
        Diagnostic::remark("memory", message).note(memory.origin())
    });
}

fn refused(draft: &Draft, memory: &Memory) -> Diagnostic {
    let (r, interleaves) = (draft.code.r.as_ref(), draft.code.interleaves.as_ref());
    let span =
        interleaves.and_then(|setting| setting.span.clone()).or(r.and_then(|setting| setting.span.clone()));
    let message = format!("packets and repairs would take about {} of memory", mebibytes(memory.bytes()));
    let diagnostic = Diagnostic::error("memory", message)
        .at(span)
        .expected(format!("at most {}", mebibytes(MEMORY_MAX)))
        .seen(memory.origin());
    memory.remedies().into_iter().fold(diagnostic, Diagnostic::help)
}

fn of_draft(draft: &Draft, wan_mtu: Option<u32>) -> Option<Memory> {
    let stated = draft.gateway.wan_mtu.as_ref()?.as_ref().map(|stated| stated.value);
    let wan_mtu = wan_mtu.unwrap_or(u32::from(stated.unwrap_or(WAN_MTU_ASSUMED)));
    let core = maelstrom_core::Config {
        listen: draft.gateway.listen.as_ref()?.value,
        wan_mtu: wan_mtu as usize,
        r: draft.code.r.as_ref()?.value,
        interleaves: draft.code.interleaves.as_ref()?.value.clone(),
        delayed: false,
        max_delay_us: 0,
        name_bits: 32,
        peers: Vec::new(),
    };
    Some(Memory::of(&core, draft.peers.len()))
}

/// Rounded up.
pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

#[cfg(test)]
mod tests {
    use maelstrom_core::{Config, Gateway, PeerConfig, PeerKey};

    use super::*;

    fn config(r: u8, interleaves: &[u16], wan_mtu: usize) -> Config {
        let peer = PeerConfig {
            address: "10.81.9.2:4700".parse().unwrap(),
            networks: vec!["10.81.2.0/24".parse().unwrap()],
            key: PeerKey::new([7; 32]),
        };
        Config {
            listen: "10.81.9.1:4700".parse().unwrap(),
            wan_mtu,
            r,
            interleaves: interleaves.to_vec(),
            delayed: false,
            max_delay_us: 20_000,
            name_bits: 32,
            peers: vec![peer],
        }
    }

    #[test]
    fn what_is_foretold_is_what_the_core_takes() {
        for (r, interleaves, wan_mtu) in [
            (8, &[1, 11, 19][..], 1500),
            (8, &[1, 11, 19], 576),
            (8, &[1, 11, 19], 9000),
            (64, &[1, 512], 1500),
            (16, &[1024, 1023, 1021], 1500),
            (1, &[1], 1500),
        ] {
            let config = config(r, interleaves, wan_mtu);
            let foretold = Memory::of(&config, 1).bytes() as f64;
            let taken = Gateway::new(config, [1; 32]).unwrap().memory_bytes() as f64;
            let ratio = foretold / taken;
            assert!((0.9..1.25).contains(&ratio), "r {r}, {interleaves:?}, {wan_mtu}: {taken} x {ratio}");
        }
    }

    #[test]
    fn the_widest_code_is_too_much() {
        let widest = config(64, &[1024], 1500);
        assert!(Memory::of(&widest, 1).is_too_much());
        assert!(
            !Memory::of(&config(8, &[1, 11, 19], 1500), super::super::knobs::PEERS_MAX / 2).is_too_much()
        );
    }
}
