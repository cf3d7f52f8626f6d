//! The table of keys: defaults, ranges, examples, and its description.

use diagnostics::settings::{Fallback, KeyInfo};

use maelstrom_core::controller::Targets;

use super::*;

/// The default of a key in TOML, if it has one.
fn default_of(key: &KeyInfo) -> Option<&'static str> {
    match key.default {
        Fallback::Toml(text) | Fallback::Described(text, _) => Some(text),
        Fallback::Required | Fallback::Absent(_) => None,
    }
}

/// The bounds in "an integer from 1 to 64".
fn bounds(expected: &str) -> Option<(u64, u64)> {
    let (min, max) = expected.strip_prefix("an integer from ")?.split_once(" to ")?;
    Some((min.parse().ok()?, max.parse().ok()?))
}

#[test]
fn an_absent_key_has_the_default_that_the_table_states() {
    let short = "[gateway]\nwan='w'\nlisten='10.0.0.1:1'\n[[peer]]\naddress='10.0.0.2:1'\nnetworks=['10.2.0.0/16']\nkey_file='k'";
    let config = configuration(short);
    // The same file with every default written out.
    let mut long = String::new();
    for section in ["gateway", "code", "peer"] {
        long += if section == "peer" { "[[peer]]\n" } else { "[" };
        long += if section == "peer" { "" } else { section };
        long += if section == "peer" { "" } else { "]\n" };
        for key in keys_of(section) {
            match key.name {
                "wan" if section == "peer" => {}
                "wan" => long += "wan='w'\n",
                "listen" => long += "listen='10.0.0.1:1'\n",
                "address" => long += "address='10.0.0.2:1'\n",
                "networks" => long += "networks=['10.2.0.0/16']\n",
                "key_file" => long += "key_file='k'\n",
                // Their defaults come from elsewhere.
                "lan_mtu" | "wan_mtu" | "listen_interface" | "name" | "local_networks" | "late_ms"
                | "overhead_max" | "max_repair_rate" | "loss_record" | "metrics" | "next_key_file"
                | "carrier" | "rack" | "paths" => {}
                // Of one path there is none.
                "use" => {}
                "mode" if section == "peer" => {}
                // The key belongs to another scheme than the default.
                _ if !key.fits("auto") => {}
                name => long += &format!("{name} = {}\n", default_of(&key).unwrap()),
            }
        }
    }
    assert_eq!(configuration(&long), config);
    let blocks = short.replace("[[peer]]", "[code]\nscheme = \"reed-solomon\"\n[[peer]]");
    let stated = |name| keys_of("code").iter().find(|key| key.name == name).and_then(default_of).unwrap();
    let (r, c, interleave) = (stated("r"), stated("c"), stated("interleave"));
    let code = configuration(&blocks).code;
    assert_eq!(code.schedule.to_string(), format!("reed-solomon ({r},{c}) x{interleave}"));
    assert_eq!((code.delayed, code.max_delay_ms), (config.code.delayed, config.code.max_delay_ms));
    let window = short.replace("[[peer]]", "[code]\nscheme = \"sliding\"\n[[peer]]");
    let (rate, packets) = (stated("rate").trim_matches('"'), stated("window"));
    assert_eq!(stated("density"), "15");
    assert_eq!(configuration(&window).code.schedule.to_string(), format!("sliding ({packets}; {rate})"));
}

#[test]
fn the_defaults_are_those_of_the_core() {
    let scheme = |scheme: &str| {
        let code = format!("[code]\nscheme = \"{scheme}\"\n[[peer]]");
        let text = "[gateway]\nwan='w'\nlisten='10.0.0.1:1'\n[[peer]]\naddress='10.0.0.2:1'\nnetworks=['10.2.0.0/16']\nkey_file='k'";
        configuration(&text.replace("[[peer]]", &code)).code
    };
    let layered = Schedule::Layered { r: Schedule::R, interleaves: Schedule::INTERLEAVES.to_vec() };
    let (r, c, interleave) = (Schedule::R, Schedule::C, Schedule::INTERLEAVE);
    let (rate, window, density) = (Schedule::RATE, Schedule::WINDOW, Schedule::DENSITY);
    assert_eq!(scheme("layered").schedule, layered);
    assert_eq!(scheme("reed-solomon").schedule, Schedule::ReedSolomon { r, c, interleave });
    assert_eq!(scheme("sliding").schedule, Schedule::Sliding { rate, window, density });
    assert_eq!(scheme("auto").schedule, Schedule::Auto);
    assert_eq!(scheme("auto").targets, Targets::default());
    let code = scheme("layered");
    assert_eq!((code.delayed, code.max_delay_ms), (Schedule::DELAYED, Schedule::MAX_DELAY_MS));
}

#[test]
fn every_example_in_the_table_is_correct() {
    for scheme in ["auto", "layered", "reed-solomon", "sliding"] {
        let mut text = String::new();
        for section in ["gateway", "code", "peer"] {
            text += if section == "peer" { "[[peer]]\n" } else { "" };
            text += &if section == "peer" { String::new() } else { format!("[{section}]\n") };
            // A peer that is reached by a tunnel, the example of `mode`, has neither.
            let is_apart = |name| section == "peer" && matches!(name, "rack" | "wan");
            for key in keys_of(section).iter().filter(|key| key.fits(scheme) && !is_apart(key.name)) {
                text += &format!("{}\n", key.example);
            }
        }
        configuration(&text.replace("scheme = \"auto\"", &format!("scheme = \"{scheme}\"")));
    }
}

#[test]
fn every_integer_has_its_range() {
    let mut integers = 0;
    for (_, header, key) in layout().keys() {
        let Some((min, max)) = bounds(&key.expected) else { continue };
        integers += 1;
        let line = |value: &str| {
            let line = format!("{header}\n{} = {value}", key.name);
            // At this rate a window of one packet is long enough.
            let mut good = good_for(key.only.map(|only| only.words)).replace("rate = 0.375", "rate = 1");
            if header == "[[class]]" {
                good += "\n[[class]]\nname = 'voice'\nmatch = { dscp = [46] }\n";
            }
            let text = good.replacen(&format!("\n{} =", key.name), "\n#", 1).replacen(header, &line, 1);
            examined(&text).1
        };
        for right in [min, max] {
            assert_eq!(line(&right.to_string()).errors(), 0, "{} = {right}", key.name);
        }
        let below = min.checked_sub(1).map_or("-2".to_owned(), |below| below.to_string());
        for wrong in [below, (max + 1).to_string(), "-1".into(), "99999999999999999999999".into()] {
            let report = line(&wrong);
            assert_eq!(report.diagnostics().len(), 1, "{report}");
            assert_eq!(report.diagnostics()[0].code, "out-of-range");
            assert_eq!(report.diagnostics()[0].expected.as_ref(), Some(&key.expected));
        }
        assert_eq!(line("\"8\"").diagnostics()[0].code, "wrong-type");
    }
    assert_eq!(integers, 12);
}

#[test]
fn every_choice_refuses_another_word() {
    for (name, words) in [
        ("mode", &["passive"][..]),
        ("tap", &["auto", "ebpf", "packet"]),
        ("injection", &["auto", "wan", "tun"]),
        ("mtu", &["manage", "check"]),
        ("scheme", &["auto", "layered", "reed-solomon", "sliding"]),
        ("requests", &["all", "udp", "off"]),
    ] {
        let header = if matches!(name, "scheme" | "requests") { "[code]" } else { "[gateway]" };
        for word in words {
            let schemes = if name == "scheme" { Some(&[*word][..]) } else { None };
            let plain = good_for(schemes).replacen(&format!("{name} ="), "#", 1);
            let text = plain.replacen(header, &format!("{header}\n{name} = \"{word}\""), 1);
            assert_eq!(examined(&text).1.errors(), 0, "{word}");
        }
        let plain = GOOD.replacen(&format!("{name} ="), "#", 1);
        let text = plain.replacen(header, &format!("{header}\n{name} = \"nonsense\""), 1);
        assert_eq!(examined(&text).1.diagnostics()[0].code, "bad-value");
    }
}

#[test]
fn the_description_names_every_key_once() {
    let text = layout().describe();
    for (_, _, key) in layout().keys() {
        let sections = layout().keys().filter(|(_, _, other)| other.name == key.name).count();
        assert_eq!(text.matches(&format!("\n  {}: ", key.name)).count(), sections, "{}", key.name);
    }
    assert!(text.starts_with("[gateway]\n  mode: "), "{text}");
}

#[test]
fn the_manual_states_the_range_and_the_default_of_every_key() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/maelstrom.md");
    let manual = fs::read_to_string(path).unwrap();
    for (_, header, key) in layout().keys() {
        let (_, section) = manual.split_once(&format!("| **`{header}`** |")).unwrap();
        let row = section.lines().find(|row| row.starts_with(&format!("| `{}` |", key.name)));
        let row = row.unwrap_or_else(|| panic!("{header} {} is not in the manual", key.name));
        let range = bounds(&key.expected).map_or(String::new(), |(min, max)| format!("| {min} to {max} |"));
        let default = default_of(key).unwrap_or("").trim_matches('"');
        assert!(row.contains(&range) && row.contains(default), "{row}\n{key:?}");
    }
}
