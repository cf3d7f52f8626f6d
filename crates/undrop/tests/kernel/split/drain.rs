//! Gateways that are stopped while they hold connections, and what the status knows of these.

use std::process::ExitStatus;

use nix::sys::signal::Signal;

use super::*;

impl Lab {
    /// Sets the time for connections to end, which resets none.
    fn set_drain(&mut self, time: &str) {
        for side in 0..2 {
            reload(&mut self.pair, side, |text| {
                let before =
                    text.lines().filter(|line| !line.starts_with("drain")).collect::<Vec<_>>().join("\n");
                before.replace("accept = \"early\"", &format!("accept = \"early\"\ndrain = \"{time}\""))
            });
        }
    }

    fn terminate(&mut self, side: usize) {
        self.pair.child(side).unwrap().signal(Signal::SIGTERM).unwrap();
    }

    /// Waits until a gateway has ended.
    fn wait_for_end(&mut self, side: usize) -> ExitStatus {
        let mut ended = None;
        wait_until("the gateway ends", || {
            ended = self.pair.child(side).unwrap().try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }

    fn relaunch(&mut self, side: usize) {
        let namespace = [&self.sites.a.gateway, &self.sites.b.gateway][side];
        self.pair.launch(side, namespace).unwrap();
        wait_until("the gateway answers", || {
            self.pair.status(side).is_ok_and(|status| status.split.is_some())
        });
        self.wait_until_splitting(0);
        self.wait_until_splitting(1);
    }
}

#[test]
fn a_gateway_that_is_stopped_lets_its_connections_end_and_new_ones_flow_unsplit() {
    let test = "a_gateway_that_is_stopped_lets_its_connections_end_and_new_ones_flow_unsplit";
    let Some(mut lab) = Lab::start(test, "uniform:0.005") else { return };
    let listener = lab.serve();
    for stopped in [0, 1] {
        let alive = 1 - stopped;
        let client = lab.connect(PORT);
        let (server, _) = accept(&listener);
        lab.set_drain("60s");
        wait_until("both count it", || [0, 1].iter().all(|&side| lab.split(side).connections == 1));
        let carried = lab.count(alive, "taken") + lab.count(alive, "opened");
        lab.terminate(stopped);
        wait_until("both gateways know", || {
            let reasons = [stopped, alive].map(|side| lab.split(side).sites[0].reason.clone());
            reasons.map(Option::unwrap_or_default) == ["this gateway stops", "the far gateway stops"]
        });
        let split = lab.split(stopped);
        assert!(split.drain_ms.is_some_and(|ms| ms > 0) && split.connections == 1, "{split:?}");
        assert!(split.verdict.starts_with("the gateway stops: 1 connections have "), "{}", split.verdict);
        converse(&lab, &listener, 100_000, 14);
        assert_eq!(lab.count(alive, "taken") + lab.count(alive, "opened"), carried, "it was split");
        // The one that it holds goes on, and ends in peace to the last byte.
        let mut random = Random(15);
        let (question, answer) = (random.bytes(2_000_000), random.bytes(2_000_000));
        thread::scope(|scope| {
            let heard = scope.spawn(|| transfer(&server, &answer));
            assert!(transfer(&client, &question) == answer);
            assert!(heard.join().unwrap() == question);
        });
        assert!(lab.wait_for_end(stopped).success());
        assert_eq!(lab.count(alive, "reset_with_carrier"), 0);
        lab.relaunch(stopped);
    }
    lab.pair.stop().unwrap();
}

#[test]
fn a_host_gets_all_bytes_that_had_come_before_the_far_gateway_stopped() {
    let test = "a_host_gets_all_bytes_that_had_come_before_the_far_gateway_stopped";
    let Some(mut lab) = Lab::start(test, "uniform:0") else { return };
    let listener = lab.serve();
    // A host whose kernel takes little, and that does not read yet.
    let client = lab.sites.a.hosts[0].run(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(16 << 10).unwrap();
        socket.connect_timeout(&lab.server(PORT).into(), PATIENCE).unwrap();
        patient(TcpStream::from(socket))
    });
    let (mut server, _) = accept(&listener);
    client.shutdown(Shutdown::Write).unwrap();
    let mut seen = Vec::new();
    server.read_to_end(&mut seen).unwrap();
    let bytes = Random(8).bytes(3_500_000);
    server.write_all(&bytes).unwrap();
    drop(server);
    wait_until("the far gateway has handed everything over", || lab.split(1).connections == 0);
    lab.terminate(1);
    assert!(lab.wait_for_end(1).success());
    wait_until("its carriers are missed", || lab.split(0).sites[0].carriers_out == 0);
    (&client).read_to_end(&mut seen).unwrap();
    assert!(seen == bytes, "{} of {}", seen.len(), bytes.len());
    assert_eq!(lab.count(0, "reset_with_carrier"), 0);
    lab.pair.stop().unwrap();
}

#[test]
fn connections_that_do_not_end_in_time_are_reset_at_both_ends() {
    let test = "connections_that_do_not_end_in_time_are_reset_at_both_ends";
    let Some(mut lab) = Lab::start(test, "uniform:0") else { return };
    let listener = lab.serve();
    for (time, is_told_twice) in [("500ms", false), ("300s", true)] {
        lab.set_drain(time);
        let client = lab.connect(PORT);
        let (server, _) = accept(&listener);
        lab.terminate(0);
        if is_told_twice {
            wait_until("it waits", || lab.split(0).drain_ms.is_some());
            lab.terminate(0);
        }
        assert_reset(&client);
        assert_reset(&server);
        assert!(lab.wait_for_end(0).success());
        lab.relaunch(0);
    }
    lab.pair.stop().unwrap();
}

#[test]
fn the_status_knows_the_round_trip_of_the_link_and_the_bytes_of_each_site() {
    let test = "the_status_knows_the_round_trip_of_the_link_and_the_bytes_of_each_site";
    let Some(lab) = Lab::start(test, "uniform:0") else { return };
    converse(&lab, &lab.serve(), 500_000, 16);
    lab.wait_for_counts([("finished", 1), ("finished", 1)]);
    for side in 0..2 {
        // 5 ms each way.
        wait_until("the round trip is known", || {
            lab.split(side).sites[0].rtt_min_us.is_some_and(|us| us >= 10_000)
        });
        let split = lab.split(side);
        let site = &split.sites[0];
        assert_eq!([site.bytes_from_hosts, site.bytes_to_hosts], [500_000; 2], "{site:?}");
        assert_eq!(split.verdict, format!("new connections to {} are split", site.peer));
    }
    lab.pair.stop().unwrap();
}
