//! The entry of a node in etcd as text: JSON, so that people can read it with etcd's tools (`docs/wire.md`).

use std::net::SocketAddr;

use membership::Registration;
use membership::wire::GROUPS_MAX;
use ricochet_core::{GroupId, NodeId};
use serde::{Deserialize, Serialize};

/// Version of the format.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Text {
    version: u32,
    id: String,
    life: u64,
    address: SocketAddr,
    groups: Vec<String>,
}

/// Writes an entry.
pub(super) fn write(registration: &Registration) -> String {
    let Registration { address, id, life, groups } = registration;
    let groups = groups.iter().map(GroupId::to_string).collect();
    let text = Text { version: VERSION, id: id.to_string(), life: *life, address: *address, groups };
    serde_json::to_string(&text).expect("its fields are JSON")
}

/// Reads an entry. Says why it is none.
pub(super) fn read(text: &[u8]) -> Result<Registration, String> {
    let Text { version, id, life, address, groups } =
        serde_json::from_slice(text).map_err(|error| format!("expected an entry in JSON, saw: {error}"))?;
    if version != VERSION {
        return Err(format!("expected version {VERSION} of an entry, saw {version}"));
    }
    if groups.len() > GROUPS_MAX {
        return Err(format!("expected at most {GROUPS_MAX} groups, saw {}", groups.len()));
    }
    let hex = |text: &str, digits: usize| {
        let is_hex = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(text, 16).ok().filter(|_| is_hex);
        number.ok_or_else(|| format!("expected {digits} hexadecimal digits, saw {text:.40?}"))
    };
    let id = NodeId(hex(&id, 8)? as u32);
    let groups: Result<Vec<GroupId>, String> =
        groups.iter().map(|group| hex(group, 16).map(GroupId)).collect();
    let mut groups = groups?;
    groups.sort_unstable();
    groups.dedup();
    Ok(Registration { address, id, life, groups: groups.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let registration = Registration {
            address: "[fd00::1]:7900".parse().unwrap(),
            id: NodeId(0xab),
            life: 1_700_000_000_000_000,
            groups: [GroupId(1), GroupId(u64::MAX)].into(),
        };
        let text = write(&registration);
        assert_eq!(
            text,
            r#"{"version":1,"id":"000000ab","life":1700000000000000,"address":"[fd00::1]:7900","groups":["0000000000000001","ffffffffffffffff"]}"#
        );
        assert_eq!(read(text.as_bytes()), Ok(registration));
    }

    #[test]
    fn entries_that_others_wrote_are_read_or_refused_with_a_reason() {
        let valid = r#"{"version":1,"id":"000000ab","life":5,"address":"10.0.0.1:7900","groups":["0000000000000002","0000000000000001","0000000000000002"],"more":0}"#;
        let read_groups = read(valid.as_bytes()).map(|entry| entry.groups.to_vec());
        assert_eq!(read_groups, Ok(vec![GroupId(1), GroupId(2)]), "sorted, and each once");
        for (from, to, said) in [
            ("\"version\":1", "\"version\":2", "expected version 1 of an entry, saw 2"),
            ("000000ab", "0ab", "expected 8 hexadecimal digits, saw \"0ab\""),
            ("000000ab", "+00000ab", "expected 8 hexadecimal digits"),
            ("0000000000000001", "x", "expected 16 hexadecimal digits"),
            ("\"life\":5", "\"life\":-5", "expected an entry in JSON"),
            ("10.0.0.1:7900", "10.0.0.1", "expected an entry in JSON"),
        ] {
            let text = valid.replacen(from, to, 1);
            let why = read(text.as_bytes()).unwrap_err();
            assert!(why.starts_with(said), "{text}: {why}");
        }
        assert!(read(b"").is_err());
        assert!(read(&[0xff; 9]).is_err());
    }
}
