//! Forward secrecy: who records everything and later gets the key file opens and forges nothing. And the
//! price of it, which strangers cannot make a gateway pay.

use std::collections::BTreeSet;

use maelstrom_core::counters::Rejected;
use maelstrom_core::session::{HelloKey, Opener};
use maelstrom_core::wire::{HELLO_HEADER, Hello, KeyPart, Outer, SealedHeader, TAG, write_hello_header};
use maelstrom_core::{Gateway, PeerKey, Secret, TOKEN_LEN};
use testkit::Random;

use crate::pair::keys::{hellos, openers};
use crate::pair::{A, B, Pair, config, trusting, udp};

const SECOND_US: u64 = 1_000_000;

fn key() -> PeerKey {
    PeerKey::new([5; 32])
}

/// Two gateways whose ephemeral keys follow from this seed, and all that they sent in the first seconds.
fn recorded(ephemeral: u64) -> (Pair, Vec<Vec<u8>>) {
    let mut pair = Pair::with_ephemeral([config(A), config(B)], ephemeral);
    pair.sent_datagrams = Some(Vec::new());
    pair.run_until_up();
    for n in 0..64 {
        pair.send(A, &udp(A, n, b"a secret of no one"), false);
    }
    pair.advance(2 * SECOND_US);
    let sent = pair.sent_datagrams.take().unwrap();
    (pair, sent)
}

/// Number of sealed datagrams, and of those that open.
fn opened(datagrams: &[Vec<u8>], openers: &mut [Opener]) -> [usize; 2] {
    let mut counts = [0; 2];
    for datagram in datagrams {
        let Some(header) = SealedHeader::read(datagram) else { continue };
        // No epoch is believed.
        let opens = openers.iter_mut().any(|opener| opener.open(&header, &mut datagram.clone()).is_ok());
        counts[0] += 1;
        counts[1] += usize::from(opens);
    }
    counts
}

fn multiplications(pair: &Pair) -> [u64; 2] {
    [A, B].map(|side| pair.status(side, |peer| peer.multiplications))
}

/// Both runs show the holder of the key the same tokens.
#[test]
fn keys_of_a_session_do_not_follow_from_the_key_file_and_the_recorded_hellos() {
    let (run, sent) = recorded(3);
    let (other, sent_there) = recorded(4);
    let (said, said_there) = (hellos(&sent, &key()), hellos(&sent_there, &key()));
    let tokens = |hellos: &[Hello]| hellos.iter().map(|hello| hello.token.0).collect::<BTreeSet<_>>();
    assert!(tokens(&said) == tokens(&said_there) && tokens(&said).len() == 2);
    let [secrets, secrets_there] = [&run, &other].map(|run| run.drawn.lock().unwrap().clone());
    let [sealed, open] = opened(&sent, &mut openers(&said, &secrets, &key()));
    assert!(sealed > 10 && open == sealed, "{open} of {sealed} open with a secret half");
    // The secret halves of the other run with the tokens of this one.
    let mut mixed = said.clone();
    for hello in &mut mixed {
        let same = said_there.iter().find(|there| there.token == hello.token).unwrap();
        hello.public = same.public;
    }
    let mut guessed = openers(&mixed, &secrets_there, &key());
    assert!(!guessed.is_empty());
    assert_eq!(opened(&sent, &mut guessed), [sealed, 0]);
    // A public half is no secret half.
    let publics: Vec<Secret> = said.iter().map(|hello| Secret::new(*hello.public.as_bytes())).collect();
    assert_eq!(opened(&sent, &mut openers(&said, &publics, &key())), [sealed, 0]);
}

/// All secrets of a gateway but the key are those that it would hand over.
#[test]
fn what_a_gateway_has_in_memory_opens_nothing_of_two_hours_ago() {
    let mut pair = Pair::with_ephemeral([trusting(A), trusting(B)], 3);
    pair.sent_datagrams = Some(Vec::new());
    pair.run_until_up();
    pair.advance(2 * SECOND_US);
    for _ in 0..4 {
        let sent = pair.sent_datagrams.replace(Vec::new()).unwrap();
        let said = hellos(&sent, &key());
        let opens = |pair: &Pair| {
            let left = [A, B].map(|side| pair.gateways[side].describe_sessions().remove(0));
            let nexts = left.iter().filter_map(|left| Some(left.next.as_ref()?.1.clone()));
            let held: Vec<_> = left.iter().map(|left| left.ephemeral.clone()).chain(nexts).collect();
            opened(&sent, &mut openers(&said, &held, &key()))
        };
        let [sealed, open] = opens(&pair);
        assert!(sealed > 10 && open == sealed, "{open} of {sealed}: the session is in use");
        pair.advance(2 * 3_700 * SECOND_US);
        assert_eq!(opens(&pair), [sealed, 0]);
        pair.sent_datagrams = Some(Vec::new());
        // Of the session that is recorded next, the Hellos of each second tell tokens and public halves.
        pair.advance(3 * SECOND_US);
    }
    assert!([A, B].iter().all(|&side| pair.status(side, |peer| peer.sessions == 1 && peer.renewals >= 8)));
}

#[test]
fn the_sides_take_turns_to_renew_the_session() {
    let mut pair = Pair::up([trusting(A), trusting(B)]);
    let tokens = |pair: &Pair| pair.gateways[A].describe_sessions()[0].tokens;
    let mut last = tokens(&pair);
    let mut changed = Vec::new();
    for _ in 0..8 {
        pair.advance(3_601 * SECOND_US);
        let now = tokens(&pair);
        changed.push([A, B].map(|side| now[side] != last[side]));
        last = now;
    }
    assert!(changed.iter().all(|[a, b]| a != b), "one token in each hour: {changed:?}");
    assert!(changed.windows(2).all(|hours| hours[0] != hours[1]), "{changed:?}");
}

#[test]
fn a_peer_that_restarts_again_and_again_keeps_no_ephemeral_key_in_use() {
    let mut pair = Pair::up([trusting(A), trusting(B)]);
    let token = |pair: &Pair| pair.gateways[B].describe_sessions()[0].tokens[0];
    let first = token(&pair);
    for start in 0..3 {
        assert_eq!(token(&pair), first, "restarts of the peer do not change it");
        pair.advance(2_900 * SECOND_US);
        pair.gateways[A] = Gateway::new(trusting(A), [100 + start; 32]).unwrap();
        pair.advance(3 * SECOND_US);
    }
    assert_ne!(token(&pair), first, "after two hours");
    assert!(pair.status(B, |peer| peer.is_up && peer.sessions == 4));
}

#[test]
fn a_session_costs_each_end_two_multiplications_and_a_renewal_three_in_all() {
    let mut pair = Pair::up([trusting(A), trusting(B)]);
    assert_eq!(multiplications(&pair), [2, 2]);
    pair.advance(3_500 * SECOND_US);
    assert_eq!(multiplications(&pair), [2, 2], "Hellos cost none");
    pair.advance(101 * SECOND_US);
    let [a, b] = multiplications(&pair);
    assert!([(4, 3), (3, 4)].contains(&(a, b)), "{a} and {b}");
}

/// Replaces the public half in a Hello by another number.
fn with_point(datagram: &[u8], point: [u8; 32], nonce: u64) -> Vec<u8> {
    let (key, mut hello) = (HelloKey::new(&key()), datagram.to_vec());
    key.open(&mut hello).unwrap();
    hello[HELLO_HEADER + 3 * TOKEN_LEN..][..32].copy_from_slice(&point);
    let mut twelve = [0; 12];
    twelve[..8].copy_from_slice(&nonce.to_be_bytes());
    write_hello_header(&mut hello, KeyPart::Only, twelve);
    let end = hello.len() - TAG;
    hello[end..].fill(0);
    key.seal(&mut hello);
    hello
}

#[test]
fn a_peer_with_an_invalid_point_gets_no_session() {
    let mut four = [0xff; 32];
    (four[0], four[31]) = (0xec, 0x7f);
    let mut beyond = four;
    beyond[0] = 0xee;
    for point in [[0; 32], four, beyond, [0xff; 32]] {
        let mut pair = Pair::new([config(A), config(B)]);
        let mut count = 0;
        pair.alter = Box::new(move |side, datagram| {
            if side == A && matches!(Outer::read(datagram), Ok(Outer::Hello(_))) {
                count += 1;
                *datagram = with_point(datagram, point, count);
            }
        });
        pair.advance(3 * SECOND_US);
        assert!(pair.gateways[B].rejected().count(Rejected::Malformed) > 5, "{point:?}");
        assert_eq!(pair.status(B, |peer| (peer.is_up, peer.sessions)), (false, 0));
        assert_eq!(multiplications(&pair)[B], 1, "a refused point is multiplied with nothing");
    }
}

/// An authentic Hello of the present session with another point changes nothing.
#[test]
fn a_point_counts_only_with_the_token_that_it_came_with_first() {
    let mut pair = Pair::up([config(A), config(B)]);
    pair.sent_datagrams = Some(Vec::new());
    pair.advance(1_100_000);
    let sent = pair.sent_datagrams.take().unwrap();
    let hello = sent.iter().find(|datagram| Outer::read(datagram).is_ok_and(is_hello)).unwrap();
    let other = with_point(hello, [9; 32], 1);
    [A, B].iter().for_each(|&side| pair.inject(side, &other));
    pair.advance(SECOND_US);
    assert_eq!(multiplications(&pair), [2, 2]);
    assert!([A, B].iter().all(|&side| pair.status(side, |peer| peer.is_up && peer.sessions == 1)));
}

fn is_hello(outer: Outer) -> bool {
    matches!(outer, Outer::Hello(_))
}

#[test]
fn forged_and_replayed_hellos_cost_no_multiplication() {
    let mut pair = Pair::up([config(A), config(B)]);
    pair.sent_datagrams = Some(Vec::new());
    for start in 0..20 {
        pair.advance(3 * SECOND_US);
        pair.gateways[A] = Gateway::new(config(A), [100 + start; 32]).unwrap();
        pair.run_until_up();
    }
    let sent = pair.sent_datagrams.take().unwrap();
    let old: Vec<_> = sent.into_iter().filter(|datagram| Outer::read(datagram).is_ok_and(is_hello)).collect();
    assert!(old.len() > 100);
    let before = pair.status(B, |peer| (peer.multiplications, peer.sessions));
    let mut random = Random(1);
    let mut flood = |pair: &mut Pair| {
        for round in 0..20_000 {
            let mut datagram = old[round % old.len()].clone();
            if round % 2 == 0 {
                let at = 1 + random.index(datagram.len() - 1);
                datagram[at] ^= 1 << random.below(8);
            }
            pair.inject(B, &datagram);
            pair.advance(100);
        }
    };
    flood(&mut pair);
    assert_eq!(pair.status(B, |peer| (peer.multiplications, peer.sessions)), before);
    assert!(pair.status(B, |peer| peer.is_up));
    // After a restart B knows none of these, and answers some of them. A begins a session meanwhile.
    pair.gateways[B] = Gateway::new(config(B), [99; 32]).unwrap();
    flood(&mut pair);
    assert_eq!(pair.status(B, |peer| (peer.multiplications, peer.sessions, peer.is_up)), (2, 1, true));
    let count = |reason| pair.gateways[B].rejected().count(reason);
    assert!(count(Rejected::Forged) > 5_000 && count(Rejected::Replayed) > 5_000);
}
