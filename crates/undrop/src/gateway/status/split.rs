//! Split connections as text.

use maelstrom::status::SplitStatus;

use super::table::{bytes, number, row};

/// Appends the state of split mode.
pub(super) fn rows(text: &mut String, split: &SplitStatus) {
    if let Some(fault) = &split.fault {
        row(text, "UNSPLIT", &format!("split mode does not work: {fault}"));
        return;
    }
    let connections = format!(
        "{} connections of up to {}, {} from hosts, {} to hosts, {} waiting for them",
        number(split.connections),
        number(split.connections_max),
        bytes(split.bytes_from_hosts),
        bytes(split.bytes_to_hosts),
        bytes(split.waiting_bytes),
    );
    row(text, "split", &split.verdict);
    row(text, "", &connections);
    for site in &split.sites {
        let rtt = site.rtt_us.map_or(String::new(), |us| format!(", round trip {:.1} ms", us as f64 / 1e3));
        let carriers = format!(
            "{}: {} connections on {} + {} carriers{rtt}, {} segments sent again on them, {} to hosts",
            site.peer,
            number(site.connections),
            site.carriers_out,
            site.carriers_in,
            number(site.retransmits_wan),
            number(site.retransmits_lan),
        );
        row(text, "", &carriers);
    }
    for (name, &count) in split.counters.iter().filter(|&(_, &count)| count > 0) {
        row(text, "", &format!("{:>12}  {}", number(count), name.replace('_', " ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maelstrom::status::FarSiteStatus;

    #[test]
    fn a_fault_and_the_state_of_each_site_are_shown() {
        let mut text = String::new();
        rows(&mut text, &SplitStatus { fault: Some("no".to_owned()), ..SplitStatus::default() });
        assert_eq!(text, "  UNSPLIT           split mode does not work: no\n");
        let site = FarSiteStatus {
            peer: "tokyo".to_owned(),
            carrier: "10.81.2.1:4701".parse().unwrap(),
            is_splitting: true,
            reason: None,
            carriers_out: 4,
            carriers_in: 3,
            connections: 1_200,
            bytes_from_hosts: 0,
            bytes_to_hosts: 0,
            rtt_us: Some(12_340),
            rtt_min_us: None,
            retransmits_wan: 1_001,
            retransmits_lan: 2,
        };
        text.clear();
        let counters = [("refused_here".to_owned(), 7), ("taken".to_owned(), 0)].into();
        let connections_max = 2_048;
        let verdict = "new connections to tokyo are split".to_owned();
        let sites = vec![site];
        rows(&mut text, &SplitStatus { verdict, sites, counters, connections_max, ..SplitStatus::default() });
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(lines[0], "split             new connections to tokyo are split");
        assert!(lines[1].starts_with("0 connections of up to 2,048"), "{text}");
        assert_eq!(
            lines[2..],
            [
                "tokyo: 1,200 connections on 4 + 3 carriers, round trip 12.3 ms, 1,001 segments sent again on them, \
                 2 to hosts",
                "7  refused here"
            ]
        );
    }
}
