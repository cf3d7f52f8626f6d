//! Files and the code that they choose.

use super::*;

#[test]
fn a_window_reaches_from_one_repair_to_the_next() {
    let of = |rate: &str, packets: u16| {
        window().replace("rate = 0.375\nwindow = 160", &format!("rate = \"{rate}\"\nwindow = {packets}"))
    };
    let one = |text: &str| {
        let (_, report) = examined(text);
        assert_eq!(report.diagnostics().len(), 1, "{report}");
        report.diagnostics()[0].clone()
    };
    for (rate, least, named) in [("1/64", 64, 64), ("1/16", 16, 16), ("3/8", 3, 9), ("2/43", 22, 22)] {
        let short = one(&of(rate, least - 1));
        assert_eq!((short.severity, short.code), (Severity::Error, "window-too-short"), "{rate}");
        assert!(short.expected.is_some_and(|expected| expected.contains(&format!("at least {least},"))));
        assert_eq!(short.seen, Some((least - 1).to_string()));
        assert!(short.help[0].contains(&format!("to {named} or more")), "{:?}", short.help);
        configuration(&of(rate, named));
        if least < named {
            for packets in [least, named - 1] {
                let warning = one(&of(rate, packets));
                assert_eq!((warning.severity, warning.code), (Severity::Warning, "window-short"), "{rate}");
                configuration(&of(rate, packets));
            }
        }
    }
}

#[test]
fn the_documentation_of_window_states_how_often_packets_are_named() {
    let doc = keys_of("code").iter().find(|key| key.name == "window").unwrap().doc;
    assert!(doc.contains("at least 1 / R, rounded up,"), "{doc}");
    assert!(
        doc.contains(
            "If W is at least three times that number, and R at least 1/8, three repairs name each packet."
        ),
        "{doc}"
    );
    for (rate, least, named) in [("3/8", 3, 3 * 3), ("1/8", 8, 3 * 8), ("1/9", 9, 9)] {
        let schedule = Schedule::Sliding { rate: rate.parse().unwrap(), window: 512, density: 15 };
        assert_eq!((schedule.window_min(), schedule.names()), (least, named), "{rate}");
    }
}

#[test]
fn interleaves_are_different_numbers_in_range() {
    for (wrong, code) in [
        ("[]", "out-of-range"),
        ("[0]", "out-of-range"),
        ("[1025]", "out-of-range"),
        ("[1, 2, 3, 4, 5, 6, 7, 8, 9]", "out-of-range"),
        ("[1, 11, 1]", "duplicate-value"),
        ("[1, \"11\"]", "wrong-type"),
        ("11", "wrong-type"),
    ] {
        assert_eq!(code_of("[1, 11, 19]", wrong), code, "{wrong}");
    }
}

#[test]
fn interleaves_that_repeat_each_other_are_a_warning() {
    let warning = finding("[1, 11, 19]", "[10, 20]");
    assert_eq!((warning.severity, warning.code), (Severity::Warning, "interleaves-overlap"));
    // Maelstrom §4.4: (1,10,20) is worse than (1,11,19).
    configuration(&GOOD.replace("[1, 11, 19]", "[1, 19, 41]"));
    let one = configuration(&GOOD.replace("[1, 11, 19]", "[1]")).code.schedule;
    assert_eq!(one, Schedule::Layered { r: 8, interleaves: vec![1] });
    // With r this large the default layers would repeat each other, but blocks have no layers.
    assert!(examined(&blocks().replace("r = 8", "r = 64")).1.diagnostics().is_empty());
}

#[test]
fn blocks_are_as_large_as_the_file_says() {
    let code = configuration(&blocks().replace("max_delay_ms", "delayed = true\nmax_delay_ms")).code;
    assert_eq!(code.schedule, Schedule::ReedSolomon { r: 8, c: 3, interleave: 20 });
    assert!(code.delayed);
}

#[test]
fn a_window_has_the_rate_that_the_file_says() {
    for (text, repairs, sources) in [
        ("0.375", 3, 8),
        ("\"3/8\"", 3, 8),
        ("\"37.5%\"", 3, 8),
        ("2", 2, 1),
        ("\"1/64\"", 1, 64),
        ("8.0", 8, 1),
    ] {
        let code = configuration(&window().replace("rate = 0.375", &format!("rate = {text}"))).code;
        let Schedule::Sliding { rate, window: 160, density: 15 } = code.schedule else {
            panic!("{}", code.schedule);
        };
        assert_eq!((rate.repairs(), rate.sources()), (repairs, sources), "{text}");
    }
    for (text, code) in [
        ("0", "out-of-range"),
        ("0.0156", "out-of-range"),
        ("9", "out-of-range"),
        ("\"1/0\"", "out-of-range"),
        ("-0.5", "bad-value"),
        ("inf", "bad-value"),
        ("1e-1", "bad-value"),
        ("\"much\"", "bad-value"),
        ("true", "wrong-type"),
        ("[1]", "wrong-type"),
    ] {
        let (_, report) = examined(&window().replace("rate = 0.375", &format!("rate = {text}")));
        let found: Vec<_> = report.diagnostics().iter().map(|found| found.code).collect();
        assert_eq!(found, [code], "{text}");
    }
}

#[test]
fn a_setting_of_another_scheme_is_refused() {
    let one = |text: &str| {
        let (_, report) = examined(text);
        assert_eq!(report.diagnostics().len(), 1, "{report}");
        report.diagnostics()[0].clone()
    };
    for (key, value) in [("c", "3"), ("interleave", "1")] {
        let found = one(&GOOD.replace("r = 8", &format!("r = 8\n{key} = {value}")));
        assert_eq!((found.severity, found.code), (Severity::Error, "foreign-setting"), "{key}");
        assert!(found.message.starts_with(&format!("`{key}` belongs to `scheme = \"reed-solomon\"`")));
        assert!(found.expected.is_some_and(|expected| expected.contains("`interleaves`")));
        assert_eq!(found.help, ["leave it out, or set `scheme = \"reed-solomon\"`"]);
    }
    let found = one(&blocks().replace("c = 3", "interleaves = [1, 11, 19]"));
    assert_eq!(found.code, "foreign-setting");
    assert!(found.expected.is_some_and(|expected| expected.contains("`r`, `c`, `interleave`, `delayed`")));
    for line in ["r = 8", "delayed = true", "c = 3"] {
        let found = one(&window().replace("rate = 0.375", line));
        assert_eq!(found.code, "foreign-setting");
        assert!(found.expected.is_some_and(|expected| expected.contains("`rate`, `window`, `density`")));
        assert!(found.help[0].contains("\"reed-solomon\""), "{:?}", found.help);
    }
    // Without `scheme`, the default counts, which has no parameters.
    for (line, owner) in [("c = 3", "reed-solomon"), ("rate = 0.125", "sliding"), ("r = 8", "layered")] {
        let found = one(&auto().replace("scheme = \"auto\"", line));
        assert_eq!(found.code, "foreign-setting");
        assert!(found.message.ends_with("but the scheme is \"auto\""), "{}", found.message);
        assert!(found.help[0].contains(owner), "{:?}", found.help);
    }
    // The settings of an unknown scheme are not judged.
    assert_eq!(one(&blocks().replace("reed-solomon", "reed-salmon")).code, "bad-value");
}

#[test]
fn the_targets_of_auto_are_those_of_the_file() {
    let with = |lines: &str| auto().replace("scheme = \"auto\"", &format!("scheme = \"auto\"\n{lines}"));
    let targets = configuration(&with(
        "residual = 1e-4\nlate_ms = 200\noverhead_max = \"20%\"\nmax_repair_rate = \"1.5 Mbit/s\"",
    ))
    .code
    .targets;
    assert_eq!((targets.residual, targets.late_us), (1e-4, Some(200_000)));
    assert_eq!((targets.rate_max.to_string(), targets.repair_bps_max), ("1/5".to_owned(), Some(1_500_000)));
    assert_eq!(targets.overhead_max, Some(targets.rate_max), "a stated cap holds for everything");
    for (line, code) in [
        ("residual = 1", "out-of-range"),
        ("residual = 0.0", "out-of-range"),
        ("residual = nan", "out-of-range"),
        ("residual = \"few\"", "bad-value"),
        ("residual = true", "wrong-type"),
        ("overhead_max = 9", "out-of-range"),
        ("overhead_max = \"much\"", "bad-value"),
        ("max_repair_rate = 1000000", "wrong-type"),
        ("max_repair_rate = \"1000000\"", "bad-value"),
        ("max_repair_rate = \"x Mbit/s\"", "bad-value"),
        ("max_repair_rate = \"0.5kbit/s\"", "out-of-range"),
        ("max_repair_rate = \"-1Mbit/s\"", "out-of-range"),
        ("max_repair_rate = \"0\"", "out-of-range"),
        ("max_repair_rate = \"0 Mbit/s\"", "out-of-range"),
        ("overhead_max = 0", "out-of-range"),
        ("late_ms = 0", "out-of-range"),
    ] {
        let (_, report) = examined(&with(line));
        let found: Vec<_> = report.diagnostics().iter().map(|found| found.code).collect();
        assert_eq!(found, [code], "{line}");
    }
}

#[test]
fn a_cap_of_nothing_and_one_that_leaves_packets_without_repairs_are_told() {
    let with = |line: &str| auto().replace("scheme = \"auto\"", &format!("scheme = \"auto\"\n{line}"));
    let one = |text: &str| {
        let (_, report) = examined(text);
        assert_eq!(report.diagnostics().len(), 1, "{report}");
        report.diagnostics()[0].clone()
    };
    for line in [
        "max_repair_rate = \"0\"",
        "max_repair_rate = \"0kbit/s\"",
        "overhead_max = \"0\"",
        "overhead_max = 0",
    ] {
        let found = one(&with(line));
        assert_eq!(found.code, "out-of-range");
        assert!(found.help[0].contains("recovers nothing"), "{line}: {:?}", found.help);
    }
    for (line, said) in [
        ("overhead_max = \"1/64\"", "at most 62 % of the repairs"),
        ("overhead_max = \"1/41\"", "at most 98 % of the repairs"),
        ("max_repair_rate = \"1kbit/s\"", "enough for 3 such packets"),
        ("max_repair_rate = \"90kbit/s\"", "enough for 300 such packets"),
    ] {
        let found = one(&with(line));
        assert_eq!((found.code, found.severity), ("low-cap", Severity::Warning), "{line}");
        assert!(found.notes[0].contains(said), "{line}: {:?}", found.notes);
    }
    for line in ["overhead_max = \"1/40\"", "max_repair_rate = \"96kbit/s\""] {
        assert_eq!(examined(&with(line)).1.diagnostics().len(), 0, "{line}");
    }
}

/// The good file with a class.
fn with_class(lines: &str) -> String {
    GOOD.replace("[[peer]]", &format!("[[class]]\nname = \"x\"\n{lines}\n[[peer]]"))
}

#[test]
fn classes_match_by_conditions() {
    let text = with_class(
        "match = { dscp = [46], ports = [5060, \"10000-20000\"], protocol = [\"udp\", 47], networks = [\"10.81.2.0/24\"], length = [60, 300] }\n\
         protect = \"off\"",
    );
    let class = configuration(&text).classes.remove(0);
    assert_eq!(
        class.matches,
        maelstrom_core::Match {
            dscp: vec![46],
            ports: vec![5_060..=5_060, 10_000..=20_000],
            protocol: vec![17, 47],
            networks: vec!["10.81.2.0/24".parse().unwrap()],
            length: Some(60..=300),
        }
    );
    assert_eq!((class.name.as_str(), class.protect), ("x", maelstrom_core::Protect::Off));
    let rate = with_class("match = { dscp = [46] }\nprotect = \"1/4\"");
    let auto = rate.replace("scheme = \"layered\"\nr = 8\ninterleaves = [1, 11, 19]", "scheme = \"auto\"");
    assert_eq!(
        configuration(&auto).classes[0].protect,
        maelstrom_core::Protect::AtLeast("1/4".parse().unwrap())
    );
}

#[test]
fn numbers_of_conditions_have_their_value_in_any_base() {
    let text = with_class("match = { dscp = [0x2e], ports = [0x1F90, 0b11], protocol = [0x11, 0o57] }");
    let matches = configuration(&text).classes.remove(0).matches;
    assert_eq!((matches.dscp, matches.protocol), (vec![46], vec![17, 47]));
    assert_eq!(matches.ports, [8_080..=8_080, 3..=3]);
    let text = GOOD.replace("[code]", "[code]\nrepair_dscp = 0x2e");
    assert_eq!(configuration(&text).code.repair_dscp, maelstrom_core::RepairDscp::Fixed(46));
}

#[test]
fn mistakes_in_a_class_are_named() {
    for (lines, code, said) in [
        ("match = { dscp = [64] }", "out-of-range", "a table of conditions"),
        ("match = { ports = [\"9-8\"] }", "bad-value", "ends before it begins"),
        ("match = { ports = [70000] }", "bad-value", "not a port"),
        ("match = { protocol = [\"upd\"] }", "bad-value", "not a protocol"),
        ("match = { networks = [\"10.0.0.1/8\"] }", "bad-value", "host bits"),
        ("match = { length = [9] }", "out-of-range", "too few"),
        ("match = { length = [9, 8] }", "bad-value", "ends before it begins"),
        ("match = { dcsp = [1] }", "unknown-key", "did you mean `dscp`"),
        ("match = {}", "bad-value", "no condition"),
        ("match = 7", "wrong-type", "wrong type"),
        ("match = { dscp = [46] }\nprotect = \"on\"", "bad-value", "or a rate"),
        ("match = { dscp = [46] }\nprotect = 2", "out-of-range", "up to 1"),
        ("match = { dscp = [46] }\nprotect = 0.5", "foreign-setting", "the scheme is"),
        ("protect = \"off\"", "missing-key", "match"),
    ] {
        let (_, report) = examined(&with_class(lines));
        assert_eq!(report.diagnostics().len(), 1, "{lines}: {report}");
        assert_eq!(report.diagnostics()[0].code, code, "{lines}");
        assert!(report.to_string().contains(said), "{lines}: {report}");
    }
    let nine = "[[class]]\nname = \"x\"\nmatch = { dscp = [1] }\n".repeat(9);
    let codes =
        |text: &str| examined(text).1.diagnostics().iter().map(|found| found.code).collect::<Vec<_>>();
    assert_eq!(codes(&GOOD.replace("[[peer]]", &format!("{nine}[[peer]]"))), ["out-of-range"]);
    let two = "[[class]]\nname = \"x\"\nmatch = { dscp = [1] }\n".repeat(2);
    assert_eq!(codes(&GOOD.replace("[[peer]]", &format!("{two}[[peer]]"))), ["duplicate-class"]);
}
