//! Clients that are answered when their servers have been reached.

use std::io;

use super::*;

impl Lab {
    fn start_late(test: &str) -> Option<Self> {
        Self::start_with(test, "uniform:0", |text| text.replace("\"early\"", "\"late\""))
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
fn hundreds_of_clients_wait_for_their_servers_and_none_is_lost() {
    let test = "hundreds_of_clients_wait_for_their_servers_and_none_is_lost";
    let Some(lab) = Lab::start_late(test) else { return };
    let listener = lab.serve();
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..200 {
                let (stream, _) = accept(&listener);
                scope.spawn(move || {
                    let mut seen = Vec::new();
                    (&stream).read_to_end(&mut seen).unwrap();
                    (&stream).write_all(&seen).unwrap();
                });
            }
        });
        for seed in 0..200 {
            let lab = &lab;
            scope.spawn(move || {
                let bytes = Random(seed).bytes(5_000 + 100 * seed as usize);
                assert!(transfer(&lab.connect(PORT), &bytes) == bytes, "connection {seed}");
            });
        }
    });
    lab.wait_for_counts([("finished", 200), ("finished", 200)]);
    assert_eq!([lab.count(0, "taken"), lab.count(1, "opened")], [200, 200]);
    assert_eq!([lab.count(0, "failed"), lab.count(1, "failed")], [0, 0]);
    lab.pair.stop().unwrap();
}
