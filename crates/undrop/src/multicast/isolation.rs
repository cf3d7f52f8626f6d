//! Why a node knows no other node, as far as it can tell.

use ricochet::{MembershipSection, Status};

/// A node without peers: what was expected and seen, and the remedy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Isolation {
    pub(super) what: String,
    pub(super) remedy: &'static str,
}

/// The settings that name other nodes to a node.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Named {
    /// Nothing, or a registry that also tells which of them live: the first node waits for others.
    #[default]
    Nothing,
    /// Seed addresses.
    Seeds(Vec<String>),
    /// A file or a service that lists addresses.
    List(String),
}

impl Named {
    pub(super) fn of(membership: &MembershipSection) -> Self {
        match (&membership.file, &membership.kubernetes) {
            (Some(file), _) => Self::List(file.display().to_string()),
            (None, Some(service)) => Self::List(format!("the service {service}")),
            (None, None) if membership.seeds.is_empty() => Self::Nothing,
            (None, None) => Self::Seeds(membership.seeds.clone()),
        }
    }
}

/// Explains why a node to which others are named, or that hears others, knows none; `None` if it knows one,
/// or waits for others.
pub(super) fn isolation(status: &Status, named: &Named) -> Option<Isolation> {
    if !status.peers.is_empty() {
        return None;
    }
    if let Some(foreign) = foreign(status) {
        return Some(foreign);
    }
    if let Some((registry, why)) = status.registry.as_ref().and_then(|all| Some((all, all.error.as_ref()?))) {
        return Some(Isolation {
            what: format!("expected the members from {}, saw: {why}", registry.kind),
            remedy: "check the addresses in the section [membership], and that the service runs",
        });
    }
    match named {
        Named::Nothing => None,
        // A node that is listed alone has nobody to send to.
        Named::List(_) if status.membership.get("sent").is_none_or(|&sent| sent == 0) => None,
        Named::List(list) => Some(Isolation {
            what: format!("expected an answer from a member that {list} lists, saw none"),
            remedy: "check that nodes run at the addresses and ports that are listed, and the firewalls between \
                     them and this one",
        }),
        Named::Seeds(seeds) => Some(Isolation {
            what: format!("expected an answer from a seed address, saw none from {}", seeds.join(", ")),
            remedy: "name the address and port of a live node, which the node prints when it starts; check the \
                     firewalls between the two",
        }),
    }
}

/// Explains datagrams of nodes that this one cannot take for members, if there were any.
fn foreign(status: &Status) -> Option<Isolation> {
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
    (unread > 0).then(|| Isolation {
        what: format!("expected datagrams of the membership, saw {unread} that cannot be read"),
        remedy: "the other nodes may use a cluster key: give this one the same with `--key` or `key.file`",
    })
}

#[cfg(test)]
mod tests {
    use ricochet::status::RegistryStatus;

    use super::*;

    fn explained(status: &Status, named: &Named) -> String {
        isolation(status, named).map(|isolation| isolation.what).unwrap_or_default()
    }

    #[test]
    fn the_cause_is_named_as_far_as_it_shows() {
        let mut status = Status::default();
        let seeds = Named::Seeds(vec!["10.0.0.7:7900".to_owned()]);
        assert!(explained(&status, &seeds).contains("saw none from 10.0.0.7:7900"));
        assert_eq!(isolation(&status, &Named::Nothing), None, "the first node of a cluster waits for others");
        let error = Some("cannot connect".to_owned());
        status.registry =
            Some(RegistryStatus { kind: "etcd".to_owned(), error, ..RegistryStatus::default() });
        let why = explained(&status, &Named::Nothing);
        assert_eq!(why, "expected the members from etcd, saw: cannot connect");
        status.registry.as_mut().unwrap().error = None;
        assert_eq!(isolation(&status, &Named::Nothing), None, "the first that registers waits for others");
    }

    #[test]
    fn datagrams_of_others_explain_it_wherever_the_members_come_from() {
        let list = Named::List("members.toml".to_owned());
        for named in [Named::Nothing, Named::Seeds(vec!["10.0.0.7:7900".to_owned()]), list] {
            let mut status = Status::default();
            status.membership.insert("malformed_too_long".to_owned(), 3);
            assert!(explained(&status, &named).contains("saw 3 that cannot be read"), "{named:?}");
            status.dropped.insert("unauthentic".to_owned(), 5);
            assert!(explained(&status, &named).contains("saw 5 that are not"), "{named:?}");
            status.registry = Some(RegistryStatus::default());
            assert!(explained(&status, &named).contains("saw 5 that are not"), "{named:?}");
        }
    }

    #[test]
    fn members_that_a_list_names_and_that_are_silent_are_missed() {
        let section = |file: Option<&str>, kubernetes: Option<&str>| MembershipSection {
            file: file.map(Into::into),
            kubernetes: kubernetes.map(Into::into),
            ..MembershipSection::default()
        };
        for (section, expected) in [
            (section(Some("members.toml"), None), "a member that members.toml lists"),
            (section(None, Some("default/undrop")), "a member that the service default/undrop lists"),
        ] {
            let (named, mut status) = (Named::of(&section), Status::default());
            assert_eq!(isolation(&status, &named), None, "it lists this node alone");
            status.membership.insert("sent".to_owned(), 4);
            assert!(explained(&status, &named).contains(expected), "{}", explained(&status, &named));
        }
        assert_eq!(Named::of(&section(None, None)), Named::Nothing);
    }
}
