//! The sections `[[class]]`: the form of `match`, and of `protect`.

use std::ops::RangeInclusive;

use diagnostics::quoted;
use diagnostics::settings::{Fault, Faults, Form, Integer, List, Text, Value};
use ipnet::IpNet;
use maelstrom_core::{CLASS_RATE_MAX, Match, Protect, RepairRate};

use super::keys::NETWORKS_MAX;
use super::values;

/// Keys of `match`.
const KEYS: [&str; 5] = ["dscp", "ports", "protocol", "networks", "length"];
/// Maximum number of entries of `dscp`, `ports` and `protocol`.
const ENTRIES_MAX: usize = 16;
/// Protocols by name.
const PROTOCOLS: [(&str, u8); 8] = [
    ("icmp", 1),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("gre", 47),
    ("esp", 50),
    ("icmpv6", 58),
    ("sctp", 132),
];

/// The table of conditions.
pub(super) struct Conditions;

impl Form<Match> for Conditions {
    fn expected(&self) -> String {
        "a table of conditions: `dscp`, `ports`, `protocol`, `networks` and `length`, such as `{ dscp = [46], ports \
         = [5060, \"10000-20000\"], protocol = [\"udp\"], networks = [\"10.81.2.0/24\"], length = [60, 300] }`"
            .to_owned()
    }

    fn parse(&self, value: &Value<'_>, faults: &mut Faults) -> Option<Match> {
        let Some(table) = value.get_ref().as_table() else {
            let fault = Fault::new("wrong-type", "has the wrong type");
            faults.add(value.span(), fault.seen(value.get_ref().type_str()));
            return None;
        };
        if table.is_empty() {
            faults
                .add(value.span(), Fault::bad("has no condition").help("state one, or leave the class out"));
            return None;
        }
        let mut matches = Match::default();
        let mut is_good = true;
        for (key, value) in table.iter() {
            is_good &= match key.get_ref().as_ref() {
                "dscp" => set(&mut matches.dscp, list(Integer::new(0, 63)).parse(value, faults)),
                "ports" => set(&mut matches.ports, list(Text::or_number("", ports)).parse(value, faults)),
                "protocol" => {
                    set(&mut matches.protocol, list(Text::or_number("", protocol)).parse(value, faults))
                }
                "networks" => {
                    let form = List { max: NETWORKS_MAX, ..list(Text::<IpNet>::new("", values::network)) };
                    set(&mut matches.networks, form.parse(value, faults))
                }
                "length" => match length(value, faults) {
                    Some(range) => set(&mut matches.length, Some(Some(range))),
                    None => false,
                },
                unknown => {
                    faults.add(key.span(), Fault::unknown("condition", unknown, KEYS));
                    false
                }
            };
        }
        is_good.then_some(matches)
    }
}

/// Stores a value, if there is one.
fn set<T>(place: &mut T, value: Option<T>) -> bool {
    let is_good = value.is_some();
    value.into_iter().for_each(|value| *place = value);
    is_good
}

fn list<F>(entry: F) -> List<F> {
    List { expected: String::new(), entry, min: 1, max: ENTRIES_MAX }
}

/// A port, or a range of them.
fn ports(text: &str) -> Result<RangeInclusive<u16>, Fault> {
    let port = |text: &str| {
        text.parse::<u16>().map_err(|_| {
            Fault::bad("holds something that is not a port")
                .seen(quoted(text))
                .help("write `5060` or `\"10000-20000\"`")
        })
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = port(first)?..=port(last)?;
    if range.is_empty() {
        return Err(Fault::bad("holds a range of ports that ends before it begins").seen(quoted(text)));
    }
    Ok(range)
}

/// A protocol by name or number.
fn protocol(text: &str) -> Result<u8, Fault> {
    let known = PROTOCOLS.iter().find(|(name, _)| *name == text).map(|&(_, number)| number);
    known.or_else(|| text.parse().ok()).ok_or_else(|| {
        let names: Vec<String> = PROTOCOLS.iter().map(|(name, _)| format!("`\"{name}\"`")).collect();
        let fault = Fault::bad("holds something that is not a protocol").seen(quoted(text));
        fault.help(format!("write a number from 0 to 255, or one of {}", names.join(", ")))
    })
}

/// Shortest and longest length of a packet.
fn length(value: &Value<'_>, faults: &mut Faults) -> Option<RangeInclusive<u16>> {
    let form = List { expected: String::new(), entry: Integer::<u16>::new(0, 65_535), min: 2, max: 2 };
    let bounds: Vec<u16> = form.parse(value, faults)?;
    let range = *bounds.first()?..=*bounds.last()?;
    if range.is_empty() {
        let fault = Fault::bad("holds a range of lengths that ends before it begins");
        faults.add(value.span(), fault.seen(format!("{bounds:?}")));
        return None;
    }
    Some(range)
}

/// The protection of a class.
pub(super) fn protect(text: &str) -> Result<Protect, Fault> {
    match text {
        "off" => return Ok(Protect::Off),
        "auto" => return Ok(Protect::Auto),
        _ => {}
    }
    let rate: RepairRate =
        text.parse().map_err(|_| Fault::bad("is not `\"off\"`, `\"auto\"` or a rate").seen(quoted(text)))?;
    if rate.repairs() == 0 || rate > CLASS_RATE_MAX {
        let fault = Fault::out_of_range(quoted(text));
        return Err(fault.help("write a rate above 0 and up to 1, or `\"off\"` for no repairs"));
    }
    Ok(Protect::AtLeast(rate))
}
