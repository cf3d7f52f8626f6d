//! The sections `[[multicast]]`.

use maelstrom_core::Wanted;

use super::*;

/// A good file with a tunnel and two sections.
fn with_groups() -> String {
    let sections = "[[multicast]]\ninterface = \"lan0\"\ngroups = [\"239.1.0.0/16\", \"ff15::/16\"]\n\
                    max_rate = \"20Mbit/s\"\nwanted = \"all\"\n[[multicast]]\ninterface = \"lan1\"\ngroups = [\"239.2.0.0/16\"]\n\
                    [[peer]]";
    GOOD.replace("mode = \"passive\"", "mode = \"tunnel\"").replace("[[peer]]", sections)
}

/// The codes of what is found about that file with `from` replaced by `to`.
fn codes(from: &str, to: &str) -> Vec<&'static str> {
    let text = with_groups().replacen(from, to, 1);
    assert_ne!(text, with_groups(), "{from} is not in the file");
    examined(&text).1.diagnostics().iter().map(|finding| finding.code).collect()
}

#[test]
fn sections_of_groups_are_read_and_a_file_without_has_none() {
    let config = configuration(&with_groups());
    let [first, second] = &config.multicast[..] else { panic!("two sections") };
    assert_eq!((first.interface.as_str(), first.groups.len(), first.bps_max), ("lan0", 2, 20_000_000));
    assert_eq!((second.interface.as_str(), second.bps_max), ("lan1", 10_000_000));
    assert_eq!((first.wanted, second.wanted), (Wanted::All, Wanted::Members));
    assert!(configuration(GOOD).multicast.is_empty());
}

#[test]
fn groups_that_cannot_cross_are_refused() {
    assert_eq!(codes("239.1.0.0/16", "10.1.0.0/16"), ["bad-value"]);
    assert_eq!(codes("239.1.0.0/16", "239.1.0.1/16"), ["bad-value"]);
    assert_eq!(codes("239.1.0.0/16", "224.0.0.0/24"), ["bad-value"]);
    assert_eq!(codes("ff15::/16", "ff02::/16"), ["bad-value"]);
    assert_eq!(codes("239.1.0.0/16", "192.0.0.0/2"), ["bad-value"]);
    assert_eq!(codes("239.2.0.0/16", "239.1.7.0/24"), ["overlapping-groups"]);
    assert_eq!(codes("20Mbit/s", "20"), ["bad-value"]);
    assert_eq!(codes("\"all\"", "\"some\""), ["bad-value"]);
    assert_eq!(codes("[\"239.2.0.0/16\"]", "[]"), ["out-of-range"]);
    assert_eq!(codes("lan1", "wan0"), ["same-interface"]);
    assert_eq!(codes("lan1", "undrop1"), ["same-interface"]);
    assert_eq!(codes("mode = \"tunnel\"", "mode = \"passive\""), ["multicast-without-tunnel"]);
    // A wide network has groups of one link too, which stay at home.
    let none: [&str; 0] = [];
    assert_eq!(codes("[\"239.1.0.0/16\", \"ff15::/16\"]", "[\"224.0.0.0/8\", \"ff00::/8\"]"), none);
}
