//! A member that reloads its file, and that hands over to another process, under traffic.

use testkit::wait_until;

use super::load::under_load;
use super::*;
use crate::upgrade::{Successors, upgrade_by};

impl Lab {
    /// Says to a process that its file has changed, and waits until it has read it.
    fn reload(&self, process: usize) {
        let count = || self.logs().matches("reloaded").count();
        let before = count();
        self.processes.borrow_mut()[process].as_mut().unwrap().signal(Signal::SIGHUP).unwrap();
        wait_until("the gateway reads its file", || count() > before);
    }

    fn wait_until_it_recovers(&self, member: usize) {
        let before = self.recovered()[member - 1];
        wait_until("packets are recovered", || self.recovered()[member - 1] > before + 20);
    }
}

#[test]
fn a_member_reloads_and_hands_over_under_traffic_and_the_others_notice_nothing() {
    let test = "a_member_reloads_and_hands_over_under_traffic_and_the_others_notice_nothing";
    if !privilege::available_or_skip(test) {
        return;
    }
    let lab = Lab::start("upgraded", TWO);
    let mut successors = Successors::default();
    lab.lose(LOSS);
    let (fates, ()) = under_load(lab.there(0), || {
        lab.wait_until_it_recovers(1);
        let file = fs::read_to_string(lab.file(1)).unwrap();
        let changed = file.replace("[gateway]", "[gateway]\nmetrics = \"127.0.0.1:9469\"");
        fs::write(lab.file(1), changed).unwrap();
        lab.reload(1);
        lab.wait_until_it_recovers(1);
        for _ in 0..2 {
            successors.add(upgrade_by(&lab.file(1)).unwrap_or_else(|said| panic!("{said}\n{}", lab.logs())));
            let rack = lab.rack(1).unwrap();
            assert!(rack.parts[0].held && !rack.parts[1].held, "{rack:?}\n{}", lab.logs());
            lab.wait_until_it_recovers(1);
        }
    });
    lab.wait_for_owners();
    let logs = lab.logs();
    lab.assert_once(fates.duplicates, fates.altered, 0);
    let lost = (fates.sent() as f64 * LOSS) as usize;
    let sessions: Vec<u64> = lab.status(FAR).unwrap().peers.iter().map(|peer| peer.sessions).collect();
    // A gateway that stood still discards what it captured meanwhile, and the others do not hear it.
    if !logs.contains("stood still") {
        assert!(fates.missing < lost / 2, "{} missing, of which the link lost {lost}\n{logs}", fates.missing);
        assert!(!logs.contains("not heard any more"), "{logs}");
        assert_eq!(sessions, [1, 1], "{logs}");
    }
    // A file with another rack is refused, and changes nothing.
    let file = fs::read_to_string(lab.file(1)).unwrap();
    fs::write(lab.file(1), file.replace("10.81.5.2:4702", "10.81.5.2:4703")).unwrap();
    let said = upgrade_by(&lab.file(1)).unwrap_err();
    assert!(said.contains("expected a file with the rack that this process is in"), "{said}");
    assert!(lab.rack(1).unwrap().parts[0].held);
    successors.stop();
    lab.wait_for_parts(&[2], &[2, 2]);
}
