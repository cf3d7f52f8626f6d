//! Why a node knows no other node, as far as it can tell.

use ricochet::Status;

/// A node without peers: what was expected and seen, and the remedy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Isolation {
    pub(super) what: String,
    pub(super) remedy: &'static str,
}

/// Explains why a node with seed addresses or a registry knows no other node; `None` if it knows one, or
/// waits for others.
pub(super) fn isolation(status: &Status, seeds: &[String]) -> Option<Isolation> {
    if !status.peers.is_empty() {
        return None;
    }
    if let Some(registry) = &status.registry {
        let why = registry.error.as_ref()?;
        return Some(Isolation {
            what: format!("expected the members from {}, saw: {why}", registry.kind),
            remedy: "check the addresses in the section [membership], and that the service runs",
        });
    }
    if seeds.is_empty() {
        return None;
    }
    let seeds = seeds.join(", ");
    let unauthentic = status.dropped.get("unauthentic").copied().unwrap_or(0);
    let unread: u64 = ["too_long", "too_short", "reserved", "count"]
        .iter()
        .filter_map(|reason| status.membership.get(&format!("malformed_{reason}")))
        .sum();
    if unauthentic > 0 {
        return Some(Isolation {
            what: format!(
                "expected datagrams that are signed with the cluster key, saw {unauthentic} that are not"
            ),
            remedy: "give all nodes the same key file, with `--key` or `key.file`",
        });
    }
    if unread > 0 {
        return Some(Isolation {
            what: format!("expected datagrams of the membership, saw {unread} that cannot be read"),
            remedy: "the other nodes may use a cluster key: give this one the same with `--key` or `key.file`",
        });
    }
    Some(Isolation {
        what: format!("expected an answer from a seed address, saw none from {seeds}"),
        remedy: "name the address and port of a live node, which the node prints when it starts; check the \
                 firewalls between the two",
    })
}

#[cfg(test)]
mod tests {
    use ricochet::status::RegistryStatus;

    use super::*;

    fn explained(status: &Status) -> String {
        isolation(status, &["10.0.0.7:7900".to_owned()]).map(|isolation| isolation.what).unwrap_or_default()
    }

    #[test]
    fn the_cause_is_named_as_far_as_it_shows() {
        let mut status = Status::default();
        assert!(explained(&status).contains("saw none from 10.0.0.7:7900"));
        status.membership.insert("malformed_too_long".to_owned(), 3);
        assert!(explained(&status).contains("saw 3 that cannot be read"));
        status.dropped.insert("unauthentic".to_owned(), 5);
        assert!(explained(&status).contains("saw 5 that are not"));
        assert_eq!(isolation(&status, &[]), None, "the first node of a cluster waits for others");
        let error = Some("cannot connect".to_owned());
        status.registry =
            Some(RegistryStatus { kind: "etcd".to_owned(), error, ..RegistryStatus::default() });
        let why = isolation(&status, &[]).map(|isolation| isolation.what);
        assert_eq!(why.as_deref(), Some("expected the members from etcd, saw: cannot connect"));
        status.registry.as_mut().unwrap().error = None;
        assert_eq!(isolation(&status, &[]), None, "the first node that registers waits for others");
    }
}
