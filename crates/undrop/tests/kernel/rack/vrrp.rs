//! Routes that follow the parts by VRRP: keepalived moves the next hop of each part to the member that has
//! taken it.

use std::io::{self, Write as _};

use testkit::wait_until;

use super::*;

/// Address of a part's next hop on the LAN, or on the side of the WAN.
fn next_hop(part: usize, is_lan: bool) -> String {
    format!("10.81.{}.{}", if is_lan { 5 } else { 1 }, 101 + part)
}

/// The running keepalived of each member.
struct Vrrp(Vec<Child>);

impl Vrrp {
    fn start(lab: &Lab) -> Self {
        let start = |member: usize| {
            let file = lab.directory.join(format!("keepalived-{member}.conf"));
            fs::write(&file, lab.keepalived(member)).unwrap();
            let mut command = Command::new("keepalived");
            command.args(["--dont-fork", "--log-console", "--vrrp", "--use-file"]).arg(&file);
            for (option, kind) in [("--pid", "main"), ("--vrrp_pid", "vrrp")] {
                command.arg(option).arg(lab.directory.join(format!("{kind}-{member}.pid")));
            }
            let log = fs::File::create(file.with_extension("log")).unwrap();
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
            lab.namespace(member).spawn(command).unwrap()
        };
        Self(lab.members().map(start).collect())
    }
}

impl Drop for Vrrp {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It ends its own child, and takes its addresses away.
            let _ = child.signal(Signal::SIGTERM);
            let _ = wait_for(|| child.try_wait().ok().flatten());
        }
    }
}

impl Lab {
    /// The file of a member's keepalived, as docs/book/racks.md describes it.
    fn keepalived(&self, member: usize) -> String {
        let mut text = "global_defs {\n  script_user root\n  vrrp_version 3\n}\n".to_owned();
        for part in 0..self.parts.len() {
            let (owner, priority) = (part + 1, if part + 1 == member { 120 } else { 100 });
            let file = self.file(member);
            text += &format!(
                "vrrp_script {owner}_taken {{\n  script \"{PROGRAM} gateway health --part east-{owner} --config {}\"\n  \
                 interval 1\n  fall 1\n  rise 1\n  weight 60\n}}\n",
                file.display()
            );
            text += &format!(
                "vrrp_instance part_{owner} {{\n  interface lan0\n  virtual_router_id {}\n  priority {priority}\n  \
                 advert_int 0.2\n  virtual_ipaddress {{\n    {}/24 dev lan0\n    {}/24 dev eth0\n  }}\n  \
                 track_script {{\n    {owner}_taken\n  }}\n}}\n",
                50 + owner,
                next_hop(part, true),
                next_hop(part, false)
            );
        }
        text
    }

    /// Leads the packets of all parts past their next hops, whoever has these.
    fn lead_by_vrrp(&self) {
        for (part, (network, _)) in self.parts.iter().enumerate() {
            ip(&self.inside, &format!("route replace {network} via {}", next_hop(part, true)));
            let (hop, table) = (next_hop(part, false), 101 + part);
            ip(&self.sites.a.gateway, &format!("route replace 10.81.5.0/24 via {hop} table {table}"));
        }
    }

    fn wait_until_next_hop(&self, part: usize, member: usize) {
        let shown = || {
            let list = || Command::new("ip").args(["-4", "-oneline", "address"]).output();
            String::from_utf8(self.namespace(member).run(list).unwrap().stdout).unwrap()
        };
        let found = wait_for(|| {
            let shown = shown();
            let has = |is_lan: bool| shown.contains(&format!(" {}/24 ", next_hop(part, is_lan)));
            (has(true) && has(false)).then_some(())
        });
        let log = |member: usize| {
            let log = self.directory.join(format!("keepalived-{member}.log"));
            fs::read_to_string(log).unwrap_or_default()
        };
        let logs: Vec<String> = self.members().map(log).collect();
        assert!(found.is_some(), "part {part} not at {member}: {}\n{logs:#?}\n{}", shown(), self.logs());
    }

    /// Exit code of the script of a part.
    fn script(&self, part: &str, member: usize) -> Option<i32> {
        let mut command = Command::new(PROGRAM);
        command.args(["gateway", "health", "--part", part, "--config"]).arg(self.file(member));
        command.output().unwrap().status.code()
    }
}

#[test]
fn keepalived_leads_each_part_past_the_member_that_has_taken_it() {
    let test = "keepalived_leads_each_part_past_the_member_that_has_taken_it";
    if !privilege::available_or_skip(test) {
        return;
    }
    if let Err(error) = Command::new("keepalived").arg("--version").output() {
        // Past the capture of the harness, so that the line is counted.
        let reason = format!("cannot start keepalived: {error} (apt-get install keepalived)");
        let _ = writeln!(io::stderr(), "SKIPPED: {test}: {reason}");
        return;
    }
    let lab = Lab::start("vrrp", TWO);
    assert_eq!([1, 2].map(|member| lab.script("east-1", member)), [Some(0), Some(2)]);
    assert_eq!([lab.script("east-3", 1), lab.script("east-1", FAR)], [Some(3); 2]);
    let _vrrp = Vrrp::start(&lab);
    lab.wait_until_next_hop(0, 1);
    lab.wait_until_next_hop(1, 2);
    lab.lead_by_vrrp();
    lab.assert_recovered(0, 1);
    lab.assert_recovered(1, 2);
    lab.kill(1);
    assert_eq!(lab.script("east-1", 1), Some(2), "nobody answers");
    lab.wait_for_parts(&[2], &[2, 2]);
    lab.wait_until_next_hop(0, 2);
    lab.assert_recovered(0, 2);
    lab.assert_recovered(1, 2);
    lab.launch(1);
    lab.wait_for_owners();
    lab.wait_until_next_hop(0, 1);
    wait_until("the other member has let the address go", || lab.script("east-1", 2) == Some(2));
    lab.assert_recovered(0, 1);
    lab.assert_recovered(1, 2);
    // Without the far gateway nobody takes a part, and its own member leads its packets all the same. The
    // member that misses it last may take the parts in the moment between, and keeps them; hence both start
    // again.
    lab.kill(FAR);
    lab.members().for_each(|member| lab.kill(member));
    lab.members().for_each(|member| lab.launch(member));
    let hears_all =
        |member: usize| lab.rack(member).is_some_and(|rack| rack.members.iter().all(|member| member.present));
    wait_until("the members hear each other", || lab.members().all(hears_all));
    lab.wait_until_next_hop(0, 1);
    lab.wait_until_next_hop(1, 2);
    for part in ["east-1", "east-2"] {
        let codes = [1, 2].map(|member| lab.script(part, member));
        assert_eq!(codes, [Some(2); 2], "somebody has {part}:\n{}", lab.logs());
    }
}
