//! The parts of a rack's traffic, and who takes each.
//!
//! A part is a list of far networks. Its members stand in an order, and the first that can holds it. By hand,
//! a part is what the operator gives to a member, who comes first. By hash, the networks are cut into pieces,
//! and each piece is a part. The rest of the order is that of rendezvous hashing: the members by a hash of
//! their name and that of the part. A member that goes leaves all other parts where they are.

use std::cmp::Reverse;

use ipnet::IpNet;
use ring::digest;

use crate::wire::NETWORKS_MAX;

/// Maximum number of parts of a rack.
pub const PARTS_MAX: usize = 256;
/// Maximum number of bits by which a network is cut into pieces.
const CUT_MAX: u8 = 4;

/// A part of the traffic between this site and others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name: that of the member that holds it by the file, or its network.
    pub name: String,
    /// Far networks whose packets belong to it.
    pub networks: Vec<IpNet>,
    /// The members by their numbers: the first that can holds it.
    pub order: Vec<usize>,
}

impl Part {
    fn new(name: String, networks: Vec<IpNet>, owner: Option<usize>, members: &[&str]) -> Self {
        let mut order: Vec<usize> = (0..members.len()).collect();
        order.sort_by_cached_key(|&member| {
            (Some(member) != owner, Reverse(weight(members[member], &name)), members[member].to_owned())
        });
        Self { name, networks, order }
    }
}

/// The parts that an operator gives to each member. A member without networks only takes those of others.
pub fn by_hand(members: &[&str], networks: &[Vec<IpNet>]) -> Vec<Part> {
    let owned = networks.iter().enumerate().filter(|(_, networks)| !networks.is_empty());
    let mut parts: Vec<Part> = owned
        .map(|(owner, networks)| Part::new(members[owner].to_owned(), networks.clone(), Some(owner), members))
        .collect();
    parts.sort_by(|one, other| one.name.cmp(&other.name));
    parts
}

/// The pieces of the networks of each site. A site has at most [`NETWORKS_MAX`] pieces, which fit into a
/// Hello, and all of them are at most [`PARTS_MAX`], unless there are more networks.
pub fn by_hash(members: &[&str], sites: &[&[IpNet]]) -> Vec<Part> {
    let pieces = |most| {
        let mut pieces: Vec<IpNet> = sites.iter().flat_map(|networks| cut(networks, most)).collect();
        pieces.sort();
        // A piece belongs to one part. One that contains others is before them.
        pieces.dedup_by(|piece, larger| larger.contains(&*piece));
        pieces
    };
    let fits = |pieces: &Vec<IpNet>| pieces.len() <= PARTS_MAX;
    let pieces = (0..=CUT_MAX).rev().map(pieces).find(fits).unwrap_or_else(|| pieces(0));
    pieces.into_iter().map(|piece| Part::new(piece.to_string(), vec![piece], None, members)).collect()
}

/// The pieces of the networks of one site, each cut by at most as many bits.
fn cut(networks: &[IpNet], most: u8) -> Vec<IpNet> {
    let fits = |bits: &u8| networks.len() << bits <= NETWORKS_MAX;
    let bits = (0..=most).rev().find(fits).unwrap_or(0);
    let pieces = |network: &IpNet| {
        let len = (network.prefix_len() + bits).min(network.max_prefix_len());
        network.subnets(len).into_iter().flatten().collect::<Vec<_>>()
    };
    networks.iter().flat_map(pieces).collect()
}

/// Weight of a member for a part. Versions of the program must agree about it.
fn weight(member: &str, part: &str) -> u64 {
    number_of(&[member, part])
}

/// A number by which equal lists of texts are known.
pub(super) fn number_of(texts: &[&str]) -> u64 {
    let mut context = digest::Context::new(&digest::SHA256);
    for text in texts {
        context.update(&(text.len() as u64).to_be_bytes());
        context.update(text.as_bytes());
    }
    let digest = context.finish();
    u64::from_be_bytes(*digest.as_ref().first_chunk().expect("a SHA-256 digest has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    #[test]
    fn a_piece_is_a_part_and_pieces_spread_over_the_members() {
        let networks = [net("10.81.0.0/16"), net("fd81::/32")];
        let parts = by_hash(&["a", "b", "c"], &[&networks]);
        assert_eq!(parts.len(), 32);
        assert_eq!(
            (parts[0].name.as_str(), &parts[0].networks[..]),
            ("10.81.0.0/20", &[net("10.81.0.0/20")][..])
        );
        for member in 0..3 {
            let owned = parts.iter().filter(|part| part.order[0] == member).count();
            assert!((4..=18).contains(&owned), "member {member} has {owned} of 32");
        }
        // A network that cannot be cut is one part, and one that two peers have is there once.
        assert_eq!(by_hash(&["a"], &[&[net("10.1.2.3/32")], &[net("10.1.2.3/32")]]).len(), 1);
        // Many networks stay whole, so that a Hello holds them all.
        let many: Vec<IpNet> = (0..60).map(|n| net(&format!("10.{n}.0.0/16"))).collect();
        assert_eq!(by_hash(&["a"], &[&many]).len(), 60);
    }

    #[test]
    fn pieces_of_many_sites_are_larger_and_never_overlap() {
        let sites: Vec<Vec<IpNet>> =
            (0..20).map(|n| vec![net(&format!("10.{n}.0.0/16")), net(&format!("fd{n:02}::/32"))]).collect();
        let sites: Vec<&[IpNet]> = sites.iter().map(Vec::as_slice).collect();
        assert_eq!(by_hash(&["a", "b"], &sites[..8]).len(), 256, "16 of each network");
        assert_eq!(by_hash(&["a", "b"], &sites[..9]).len(), 144, "8 of each");
        assert_eq!(by_hash(&["a", "b"], &sites).len(), 160, "4 of each");
        let nested = [net("10.0.0.0/8"), net("10.16.0.0/16"), net("10.17.0.0/16")];
        let parts = by_hash(&["a"], &[&nested[..1], &nested[1..]]);
        assert_eq!(parts.len(), 16);
        assert!(parts.iter().all(|part| part.networks[0].prefix_len() == 12));
    }

    #[test]
    fn a_member_that_goes_moves_its_own_parts_alone() {
        let networks = [net("10.81.0.0/16")];
        let (all, fewer) = (by_hash(&["a", "b", "c"], &[&networks]), by_hash(&["a", "b"], &[&networks]));
        for (before, after) in all.iter().zip(&fewer) {
            let without: Vec<usize> = before.order.iter().copied().filter(|&member| member != 2).collect();
            assert_eq!(after.order, without);
        }
        // The order does not depend on that of the file.
        let turned = by_hash(&["c", "b", "a"], &[&networks]);
        for (one, other) in all.iter().zip(&turned) {
            assert!(one.order.iter().map(|member| 2 - member).eq(other.order.iter().copied()));
        }
    }

    #[test]
    fn by_hand_the_owner_comes_first() {
        let networks = [vec![net("10.2.0.0/16")], vec![], vec![net("10.1.0.0/16"), net("fd01::/16")]];
        let parts = by_hand(&["b", "spare", "a"], &networks);
        let firsts: Vec<(&str, usize)> =
            parts.iter().map(|part| (part.name.as_str(), part.order[0])).collect();
        assert_eq!(firsts, [("a", 2), ("b", 0)]);
        assert!(parts.iter().all(|part| part.order.len() == 3));
    }
}
