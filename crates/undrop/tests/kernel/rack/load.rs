//! A member of three that is killed under load, and returns.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use netlab::traffic::now_us;
use testkit::wait_until;

use super::*;

const THREE: Parts =
    &[("10.81.2.0/26", "10.81.2.2"), ("10.81.2.64/26", "10.81.2.70"), ("10.81.2.128/25", "10.81.2.130")];

/// Fates of the packets of several streams.
#[derive(Clone, Debug, Default)]
pub(super) struct Fates {
    /// Sending time of each packet.
    sent_us: Vec<u64>,
    pub(super) missing: usize,
    pub(super) duplicates: u64,
    pub(super) altered: u64,
}

impl Fates {
    pub(super) fn sent(&self) -> usize {
        self.sent_us.len()
    }

    /// Number of packets that were sent in this time, and what became of all, as text.
    fn told(&self, gap: &Range<u64>) -> String {
        let unprotected = self.sent_us.iter().filter(|time| gap.contains(time)).count();
        let Self { missing, duplicates, .. } = self;
        let (sent, gap_ms) = (self.sent(), (gap.end - gap.start) / 1_000);
        format!(
            "{sent} sent, {unprotected} unprotected in {gap_ms} ms, {missing} missing, {duplicates} twice"
        )
    }
}

/// Sends packets, a stream after the other, while `work` is done.
pub(super) fn under_load<T>(between: Between<'_>, work: impl FnOnce() -> T) -> (Fates, T) {
    let plan = UdpStream {
        pace: Pace::Packets(500.0),
        payload_bytes: 600,
        duration: Duration::from_secs(2),
        patience: Duration::from_millis(500),
        ..UdpStream::default()
    };
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let mut fates = Fates::default();
            while !is_over.load(Ordering::Relaxed) {
                let begun_us = now_us();
                let report = udp_stream(between, &plan, &mut unwatched).unwrap();
                fates.sent_us.extend(report.sent_us.iter().map(|time| begun_us + time));
                fates.missing += report.missing();
                fates.duplicates += report.duplicates;
                fates.altered += report.altered;
            }
            fates
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        is_over.store(true, Ordering::Relaxed);
        let fates = traffic.join().unwrap();
        match done {
            Ok(done) => (fates, done),
            Err(failure) => std::panic::resume_unwind(failure),
        }
    })
}

impl Lab {
    /// The member that protects a part, as all of these members know it.
    fn protector(&self, part: usize, members: &[usize]) -> Option<usize> {
        let known = |member: &usize| self.rack(*member).map(|rack| rack.parts[part].protected_by.clone());
        let known: Vec<_> = members.iter().map(known).collect::<Option<_>>()?;
        let is_it = |member: &&usize| known.iter().all(|names| *names == [format!("east-{member}")]);
        members.iter().find(is_it).copied()
    }

    /// Packets of a part that its member has protected, and those that were recovered by means of it.
    fn progress(&self, member: usize) -> u64 {
        self.status(member).map_or(0, |status| status.peers[0].egress.source_packets)
    }

    fn wait_until_it_protects(&self, member: usize) {
        let before = self.progress(member);
        wait_until(&format!("member {member} protects packets"), || self.progress(member) > before + 100);
    }

    /// Kills the first member, leads its part past the one that takes it, and back when it has returned.
    /// Returns the time without protection, as far as the test sees it.
    fn fail_over(&self) -> Range<u64> {
        self.wait_until_it_protects(1);
        self.kill(1);
        let killed_us = now_us();
        let mut deputy = None;
        wait_until("another member protects the part", || {
            deputy = self.protector(0, &[2, 3]);
            deputy.is_some()
        });
        let deputy = deputy.unwrap();
        self.lead(0, deputy);
        let gap = killed_us..now_us();
        self.wait_until_it_protects(deputy);
        self.launch(1);
        self.wait_for_owners();
        self.lead(0, 1);
        self.wait_until_it_protects(1);
        gap
    }
}

#[test]
fn of_three_members_one_is_killed_under_load_and_returns() {
    if !privilege::available_or_skip("of_three_members_one_is_killed_under_load_and_returns") {
        return;
    }
    let lab = Lab::start("load", THREE);
    // Without losses: nothing is lost because of it, or comes twice.
    let (fates, gap) = under_load(lab.there(0), || lab.fail_over());
    println!("without losses: {}", fates.told(&gap));
    assert_eq!(fates.missing, 0, "{}", lab.logs());
    lab.assert_once(fates.duplicates, fates.altered, 0);
    // With losses: those that the dead gateway would have recovered stay lost, and nothing comes twice.
    lab.lose(LOSS);
    let late = lab.late();
    let (fates, gap) = under_load(lab.there(0), || lab.fail_over());
    println!("at {LOSS}: {}", fates.told(&gap));
    lab.assert_once(fates.duplicates, fates.altered, late);
    let lost = (fates.sent() as f64 * LOSS) as usize;
    assert!(fates.missing < lost / 2, "{}, of which the link lost {lost}\n{}", fates.told(&gap), lab.logs());
    let far = lab.status(FAR).unwrap();
    assert_eq!([far.peers[1].sessions, far.peers[2].sessions], [1, 1], "the others' sessions go on");
}
