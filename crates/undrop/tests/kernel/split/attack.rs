//! Split connections over a link that fails for a moment.

use std::sync::atomic::{AtomicBool, Ordering};

use netlab::Direction;

use super::*;

/// Bytes of each piece that is sent while the link fails.
const PIECE: usize = 1_000_000;
/// Length of the failure: connections must survive it (docs/book/split.md).
const FLAP: Duration = Duration::from_secs(3);

impl Lab {
    fn lose(&self, loss: &str) {
        for direction in Direction::BOTH {
            self.sites.link.set_loss(direction, &loss.parse().unwrap());
        }
    }
}

/// Sends pieces of random bytes until told to end, at least one; returns their number.
fn send_pieces(mut stream: &TcpStream, seed: u64, is_over: &AtomicBool) -> u64 {
    let mut random = Random(seed);
    let mut pieces = 0;
    loop {
        stream.write_all(&random.bytes(PIECE)).unwrap();
        pieces += 1;
        if is_over.load(Ordering::Relaxed) {
            stream.shutdown(Shutdown::Write).unwrap();
            return pieces;
        }
    }
}

/// Compares what arrives with these pieces; returns their number.
fn compare_pieces(mut stream: &TcpStream, seed: u64) -> u64 {
    let (mut random, mut seen, mut pieces) = (Random(seed), vec![0; PIECE], 0);
    loop {
        let mut filled = 0;
        while filled < PIECE {
            match stream.read(&mut seen[filled..]).unwrap() {
                0 if filled == 0 => return pieces,
                0 => panic!("{filled} bytes of the last piece"),
                bytes => filled += bytes,
            }
        }
        assert!(seen == random.bytes(PIECE), "piece {pieces} of seed {seed} differs");
        pieces += 1;
    }
}

#[test]
fn every_byte_arrives_both_ways_although_the_link_fails_and_a_gateway_reloads() {
    let test = "every_byte_arrives_both_ways_although_the_link_fails_and_a_gateway_reloads";
    let Some(mut lab) = Lab::start(test, "uniform:0.01") else { return };
    let listener = lab.serve();
    let client = lab.connect(PORT);
    let (server, _) = accept(&listener);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let ways = [(&client, &server, 21), (&server, &client, 22)].map(|(from, to, seed)| {
            let is_over = &is_over;
            (
                scope.spawn(move || send_pieces(from, seed, is_over)),
                scope.spawn(move || compare_pieces(to, seed)),
            )
        });
        let flowed = |lab: &Lab, bytes: u64| (0..2).all(|side| lab.split(side).bytes_to_hosts >= bytes);
        let now = |lab: &Lab| (0..2).map(|side| lab.split(side).bytes_to_hosts).max().unwrap();
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until("bytes flow both ways", || flowed(&lab, 2_000_000));
            lab.lose("uniform:1");
            thread::sleep(FLAP);
            lab.lose("uniform:0.01");
            let after = now(&lab) + 2_000_000;
            wait_until("bytes flow after the failure", || flowed(&lab, after));
            reload(&mut lab.pair, 0, |text| text.replace("max_delay_ms = 20", "max_delay_ms = 30"));
            let after = now(&lab) + 2_000_000;
            wait_until("bytes flow after the reload", || flowed(&lab, after));
        }));
        is_over.store(true, Ordering::Relaxed);
        for (sent, compared) in ways {
            assert_eq!(sent.join().unwrap(), compared.join().unwrap());
        }
        if let Err(failure) = done {
            std::panic::resume_unwind(failure);
        }
    });
    lab.wait_for_counts([("finished", 1), ("finished", 1)]);
    assert_eq!([0, 1].map(|side| lab.count(side, "reset_with_carrier")), [0, 0]);
    lab.pair.stop().unwrap();
}
