//! Clients that are answered when their servers have been reached.

use std::io;
use std::net::Ipv4Addr;

use super::flood::first_packet;
use super::*;

impl Lab {
    fn start_late(test: &str) -> Option<Self> {
        Self::start_with(test, "uniform:0", |text| text.replace("accept = \"early\"\n", ""))
    }

    fn try_connect(&self, port: u16) -> io::Result<TcpStream> {
        let to = self.server(port);
        self.sites.a.hosts[0].run(|| TcpStream::connect_timeout(&to, PATIENCE))
    }
}

#[test]
fn a_client_is_answered_as_its_server_answers() {
    let Some(mut lab) = Lab::start_late("a_client_is_answered_as_its_server_answers") else { return };
    // Nobody listens there: the client learns it as it would from the server.
    let error = lab.try_connect(CLOSED).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    lab.wait_for_counts([("refused", 1), ("refused_here", 1)]);
    let listener = lab.serve();
    for seed in 0..3 {
        converse(&lab, &listener, 300_000, seed);
    }
    // The attempt at the closed port counts there too.
    lab.wait_for_counts([("taken", 3), ("opened", 4)]);
    lab.wait_for_counts([("finished", 3), ("finished", 3)]);
    // A server that speaks first, and ends at once.
    let client = lab.connect(PORT);
    let (server, _) = accept(&listener);
    (&server).write_all(b"welcome").unwrap();
    drop(server);
    let mut seen = Vec::new();
    (&client).read_to_end(&mut seen).unwrap();
    assert_eq!(seen, b"welcome");
    drop(client);
    wait_until("no memory is held", || {
        (0..2).all(|side| lab.split(side).connections == 0 && lab.split(side).promised_bytes == 0)
    });
    // Without the gateway, connections flow unsplit.
    lab.pair.kill(0).unwrap();
    converse(&lab, &listener, 100_000, 4);
    lab.pair.stop().unwrap();
}

#[test]
fn a_client_whose_server_does_not_answer_waits_and_holds_up_nobody() {
    let test = "a_client_whose_server_does_not_answer_waits_and_holds_up_nobody";
    let Some(lab) = Lab::start_late(test) else { return };
    let listener = lab.serve();
    // A backlog of one, which nobody empties: the third connection gets no answer.
    let busy = lab.sites.b.hosts[0].run(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&lab.server(CLOSED).into()).unwrap();
        socket.listen(0).unwrap();
        socket
    });
    let _queued = lab.connect(CLOSED);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| lab.try_connect(CLOSED));
        wait_until("it waits for the server", || lab.count(1, "opened") == 2);
        assert!(!waiting.is_finished());
        // Others do not wait for it.
        converse(&lab, &listener, 50_000, 5);
        drop(busy);
        // The server refuses it at last, or its kernel lets it in and resets it.
        let answer = waiting.join().unwrap();
        assert!(answer.is_ok() || answer.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused));
    });
    lab.pair.stop().unwrap();
}

#[test]
fn many_connections_wait_for_their_server_and_none_is_lost() {
    let test = "many_connections_wait_for_their_server_and_none_is_lost";
    let Some(lab) = Lab::start_late(test) else { return };
    let listener = lab.serve();
    // Of one client 192 may wait at once, and a busy machine lets all of these wait.
    let all = 150;
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..all {
                let (stream, _) = accept(&listener);
                scope.spawn(move || {
                    let mut seen = Vec::new();
                    (&stream).read_to_end(&mut seen).unwrap();
                    (&stream).write_all(&seen).unwrap();
                });
            }
        });
        for seed in 0..all {
            let lab = &lab;
            scope.spawn(move || {
                let bytes = Random(seed).bytes(5_000 + 100 * seed as usize);
                assert!(transfer(&lab.connect(PORT), &bytes) == bytes, "connection {seed}");
            });
        }
    });
    lab.wait_for_counts([("finished", all), ("finished", all)]);
    assert_eq!([lab.count(0, "taken"), lab.count(1, "opened")], [all, all]);
    assert_eq!([lab.count(0, "failed"), lab.count(1, "failed")], [0, 0]);
    lab.pair.stop().unwrap();
}

#[test]
fn first_packets_that_wait_as_a_gateway_dies_reach_their_server_unsplit() {
    let test = "first_packets_that_wait_as_a_gateway_dies_reach_their_server_unsplit";
    let Some(mut lab) = Lab::start_late(test) else { return };
    let listener = lab.serve();
    for killed in [0, 1] {
        let asked = |pair: &GatewayPair| pair.status(1).unwrap().split.unwrap().counters["opened"];
        let before = asked(&lab.pair);
        // The server does not answer for a while.
        let host = &lab.sites.b.hosts[0];
        let rule = format!(
            "table inet deaf {{ chain input {{ type filter hook input priority 0; tcp dport {PORT} drop; }}; }}"
        );
        nft(host, &rule);
        let (to, from) = (lab.server(PORT), &lab.sites.a.hosts[0]);
        let (client, (server, _)) = thread::scope(|scope| {
            let waiting = scope.spawn(|| from.run(|| TcpStream::connect_timeout(&to, PATIENCE)));
            wait_until("the first packet waits", || asked(&lab.pair) > before);
            lab.pair.kill(killed).unwrap();
            nft(host, "delete table inet deaf");
            let client =
                waiting.join().unwrap().unwrap_or_else(|error| panic!("{error}, {killed} was killed"));
            (patient(client), accept(&listener))
        });
        let mut stream = &client;
        stream.write_all(b"question").unwrap();
        let mut seen = [0; 8];
        (&server).read_exact(&mut seen).unwrap();
        assert_eq!(&seen, b"question");
        let end = [&lab.sites.a.gateway, &lab.sites.b.gateway][killed];
        lab.pair.launch(killed, end).unwrap();
        wait_until("the gateway answers", || {
            lab.pair.status(killed).is_ok_and(|status| status.split.is_some())
        });
        lab.wait_until_splitting(0);
        lab.wait_until_splitting(1);
    }
    lab.pair.stop().unwrap();
}

#[test]
fn first_packets_to_a_silent_server_leave_room_for_those_to_others() {
    let test = "first_packets_to_a_silent_server_leave_room_for_those_to_others";
    let patient = |text: String| text.replace("accept = \"early\"\n", "connect = \"60s\"\n");
    let Some(lab) = Lab::start_with(test, "uniform:0", patient) else { return };
    let listener = lab.serve();
    let (server, host) = (&lab.sites.b.hosts[0], &lab.sites.a.hosts[0]);
    nft(
        server,
        &format!(
            "table inet deaf {{ chain input {{ type filter hook input priority 0; tcp dport {CLOSED} drop; }}; }}"
        ),
    );
    let raw = host.run(|| Socket::new(Domain::IPV4, Type::RAW, Some(255.into())).unwrap());
    let to = Ipv4Addr::new(10, 81, 2, 2);
    let mut random = Random(6);
    // More than the kernel's queue holds, of hosts of which each has more than it may.
    for number in 0..2_000_u16 {
        let from = Ipv4Addr::new(10, 81, 1, 90 + (number % 8) as u8);
        let packet = first_packet(from, (to, CLOSED), &mut random);
        raw.send_to(&packet, &SocketAddr::from((to, 0)).into()).unwrap();
        if number.is_multiple_of(20) {
            thread::sleep(Duration::from_millis(5));
        }
    }
    wait_until("they wait", || lab.split(1).connections >= 500);
    converse(&lab, &listener, 100_000, 6);
    let waiting = lab.split(1).connections;
    assert!((500..=768).contains(&waiting), "{waiting} wait");
    lab.pair.stop().unwrap();
}

fn nft(host: &netlab::Namespace, command: &str) {
    let output = host.run(|| std::process::Command::new("nft").arg(command).output()).unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}
