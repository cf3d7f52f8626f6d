//! The keys of gateways, for tests that look into datagrams.

use std::sync::{Arc, Mutex};

use maelstrom_core::exchange::{EphemeralKey, Public};
use maelstrom_core::session::{HelloKey, Opener};
use maelstrom_core::wire::Hello;
use maelstrom_core::{Entropy, PeerKey, Secret, Token};
use testkit::Random;

/// The secret halves of the ephemeral keys that gateways have drawn. No attacker has them.
pub type Drawn = Arc<Mutex<Vec<Secret>>>;

/// A source of randomness that keeps the ephemeral keys that it generates. They follow from a seed of their
/// own.
pub fn watched(seed: u64, ephemeral: u64, drawn: &Drawn) -> Entropy {
    let (mut others, mut ephemeral, drawn) = (Random(seed), Random(ephemeral), Arc::clone(drawn));
    Entropy::new(move |bytes| {
        let random = if bytes.len() == 32 { &mut ephemeral } else { &mut others };
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&random.draw().to_be_bytes()[..chunk.len()]);
        }
        if let Ok(secret) = <[u8; 32]>::try_from(&*bytes) {
            drawn.lock().unwrap().push(Secret::new(secret));
        }
    })
}

/// Returns the Hellos under a key among datagrams.
pub fn hellos(datagrams: &[Vec<u8>], key: &PeerKey) -> Vec<Hello> {
    let opened = |datagram: &Vec<u8>| Hello::read(HelloKey::new(key).open(&mut datagram.clone()).ok()?).ok();
    datagrams.iter().filter_map(opened).collect()
}

/// Returns the openers of all sessions between the senders of these Hellos that follow from a key and from
/// secret halves.
pub fn openers(hellos: &[Hello], secrets: &[Secret], key: &PeerKey) -> Vec<Opener> {
    let mut ends: Vec<(Token, Public)> = Vec::new();
    for hello in hellos {
        if !ends.contains(&(hello.token, hello.public)) {
            ends.push((hello.token, hello.public));
        }
    }
    let mut openers = Vec::new();
    for ephemeral in secrets.iter().map(EphemeralKey::new) {
        for &(own, _) in ends.iter().filter(|(_, public)| *public == ephemeral.public()) {
            for &(far, public) in ends.iter().filter(|(far, _)| *far != own) {
                let agreement = ephemeral.agree(&public).unwrap();
                openers.push(Opener::new(key, &agreement, far, own));
                openers.push(Opener::new(key, &agreement, own, far));
            }
        }
    }
    openers
}
