//! Split connections over a link that fails for a moment, and hosts that scan ports.

use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use netlab::Direction;
use testkit::wait_for;

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

    /// Number of open files of a gateway.
    pub(super) fn open_files(&self, side: usize) -> usize {
        let process = self.pair.status(side).unwrap().gateway.pid;
        fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
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

#[test]
fn a_port_that_is_used_again_at_once_reaches_its_server_and_no_program_of_the_gateway() {
    let test = "a_port_that_is_used_again_at_once_reaches_its_server_and_no_program_of_the_gateway";
    let Some(lab) = Lab::start(test, "uniform:0") else { return };
    let listener = lab.serve();
    // A program of the gateway's machine that listens at all its addresses.
    let own = lab.sites.a.gateway.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap());
    own.set_nonblocking(true).unwrap();
    let port: SocketAddr = SocketAddr::new(lab.sites.a.host_v4(0), 23_456);
    for round in 0..3_u8 {
        let client = lab.sites.a.hosts[0].run(|| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_reuse_address(true).unwrap();
            socket.bind(&port.into()).unwrap();
            socket.connect_timeout(&lab.server(PORT).into(), PATIENCE).unwrap();
            patient(TcpStream::from(socket))
        });
        let (server, _) = accept(&listener);
        (&client).write_all(&[round]).unwrap();
        let mut seen = [0];
        (&server).read_exact(&mut seen).unwrap();
        assert_eq!(seen, [round]);
        // The server ends first, so that its socket at the client's gateway waits for a minute.
        drop(server);
        let mut rest = Vec::new();
        (&client).read_to_end(&mut rest).unwrap();
        drop(client);
        lab.wait_for_counts([("finished", u64::from(round) + 1), ("finished", u64::from(round) + 1)]);
    }
    assert_eq!(own.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(lab.count(0, "taken"), 3);
    lab.pair.stop().unwrap();
}

#[test]
fn a_scan_of_ports_and_hosts_that_do_not_answer_leaves_nothing_behind() {
    let test = "a_scan_of_ports_and_hosts_that_do_not_answer_leaves_nothing_behind";
    let soon = |text: String| text.replace("[split]", "[split]\nconnect = \"1s\"");
    let Some(lab) = Lab::start_with(test, "uniform:0", soon) else { return };
    let listener = lab.serve();
    converse(&lab, &listener, 10_000, 31);
    lab.wait_for_counts([("finished", 1), ("finished", 1)]);
    let calm = [0, 1].map(|side| lab.open_files(side));
    // Ports where nobody listens, split and unsplit, and hosts that are not there.
    let targets: Vec<SocketAddr> = (0..300_u16)
        .map(|n| match n % 3 {
            0 => lab.server(CLOSED),
            1 => lab.server(20_000 + n),
            _ => SocketAddr::new([10, 81, 2, 100 + (n % 100) as u8].into(), PORT),
        })
        .collect();
    let scanning: Vec<Socket> = lab.sites.a.hosts[0].run(|| {
        let scan = |to: &SocketAddr| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            // It goes on by itself, or is refused.
            let _ = socket.connect(&(*to).into());
            // Slower than a flood, which would leave connections unsplit.
            thread::sleep(Duration::from_millis(2));
            socket
        };
        targets.iter().map(scan).collect()
    });
    wait_until("the closed port is seen", || lab.count(1, "refused_here") >= 20);
    let told = |socket: &Socket| SockRef::from(socket).take_error().unwrap().is_some();
    // Connections of others go on meanwhile.
    converse(&lab, &listener, 100_000, 32);
    let waiting = RefCell::new(scanning);
    wait_until("all are told", || {
        waiting.borrow_mut().retain(|socket| !told(socket));
        waiting.borrow().is_empty()
    });
    wait_until("nothing is held", || {
        (0..2).all(|side| lab.split(side).connections == 0 && lab.split(side).promised_bytes == 0)
    });
    let left = wait_for(|| (0..2).all(|side| lab.open_files(side) <= calm[side] + 4).then_some(()));
    assert!(left.is_some(), "{calm:?} before, {:?} after", [0, 1].map(|side| lab.open_files(side)));
    converse(&lab, &listener, 100_000, 33);
    lab.pair.stop().unwrap();
}
