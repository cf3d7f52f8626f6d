//! TCP connections that end at the gateways and begin again at the far ones.

mod attack;
mod drain;
mod flood;
mod lab;
mod late;
mod spool;

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use keyfile::KeyText;
use loss::LossModel;
use maelstrom::status::SplitStatus;
use netlab::privilege;
use netlab::topology::TwoSites;
use socket2::{Domain, SockRef, Socket, Type};
use stage::gateways::{End, GatewayPair, Setting, sites};
use testkit::{Random, wait_until};

use crate::pair::{PROGRAM, peer, reload};
use lab::*;

#[test]
fn a_connection_is_carried_between_the_gateways_with_the_addresses_of_its_hosts() {
    let test = "a_connection_is_carried_between_the_gateways_with_the_addresses_of_its_hosts";
    let Some(lab) = Lab::start(test, "uniform:0.01") else { return };
    let listener = lab.serve();
    for seed in 0..3 {
        converse(&lab, &listener, 2_000_000, seed);
    }
    lab.wait_for_counts([("finished", 3), ("finished", 3)]);
    assert_eq!([lab.count(0, "taken"), lab.count(1, "taken")], [3, 0]);
    assert_eq!([lab.count(0, "opened"), lab.count(1, "opened")], [0, 3]);
    wait_until("no memory is held", || lab.split(0).connections == 0 && lab.split(1).promised_bytes == 0);
    assert_eq!([0, 1].map(|side| lab.split(side).bytes_from_hosts), [6_000_000; 2]);
    // The carriers are protected like other packets between the sites.
    for side in 0..2 {
        let peer = peer(&lab.pair, side);
        assert!(peer.egress.source_packets > 500, "{:?}", peer.egress);
    }
    wait_until("packets of carriers are recovered", || {
        converse(&lab, &listener, 1_000_000, 3);
        (0..2).all(|side| peer(&lab.pair, side).ingress.injected_packets > 0)
    });
    lab.pair.stop().unwrap();
}

#[test]
fn refusals_and_resets_reach_the_other_side() {
    let Some(lab) = Lab::start("refusals_and_resets_reach_the_other_side", "uniform:0") else { return };
    // Nobody listens there: the client was answered, and is reset.
    assert_reset(&lab.connect(CLOSED));
    lab.wait_for_counts([("refused", 1), ("refused_here", 1)]);
    let listener = lab.serve();
    for is_client in [true, false] {
        let mut client = lab.connect(PORT);
        let (mut server, _) = accept(&listener);
        client.write_all(b"question").unwrap();
        server.read_exact(&mut [0; 8]).unwrap();
        let (resets, sees) = if is_client { (client, server) } else { (server, client) };
        SockRef::from(&resets).set_linger(Some(Duration::ZERO)).unwrap();
        drop(resets);
        assert_reset(&sees);
    }
    lab.wait_for_counts([("reset_here", 1), ("reset_here", 1)]);
    lab.wait_for_counts([("reset_there", 1), ("reset_there", 1)]);
    // One direction ends long before the other.
    let mut client = lab.connect(PORT);
    let (mut server, _) = accept(&listener);
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
    for part in 0..20_u8 {
        server.write_all(&[part; 1_000]).unwrap();
        let mut seen = [0; 1_000];
        client.read_exact(&mut seen).unwrap();
        assert_eq!(seen, [part; 1_000]);
    }
    drop(server);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    lab.pair.stop().unwrap();
}

#[test]
fn when_a_gateway_is_killed_its_connections_are_reset_and_new_ones_flow_unsplit() {
    let test = "when_a_gateway_is_killed_its_connections_are_reset_and_new_ones_flow_unsplit";
    kill_each_gateway(test, "uniform:0");
}

#[test]
fn when_a_gateway_is_killed_on_a_lossy_link_its_connections_are_reset_too() {
    kill_each_gateway(
        "when_a_gateway_is_killed_on_a_lossy_link_its_connections_are_reset_too",
        "uniform:0.01",
    );
}

/// Kills one gateway and then the other. Their connections, of which some carry bytes both ways, are reset at
/// both ends, and new ones flow.
#[expect(clippy::disallowed_methods, reason = "not a core: measures on the real clock")]
fn kill_each_gateway(test: &str, loss: &str) {
    let Some(mut lab) = Lab::start(test, loss) else { return };
    let listener = lab.serve();
    for killed in [0, 1] {
        let held: Vec<[TcpStream; 2]> = (0..8)
            .map(|at| {
                let client = lab.connect(PORT);
                let (server, _) = accept(&listener);
                if at % 2 == 0 {
                    (&client).write_all(&[1; 50_000]).unwrap();
                    (&server).write_all(&[2; 50_000]).unwrap();
                }
                [client, server]
            })
            .collect();
        let since = Instant::now();
        lab.pair.kill(killed).unwrap();
        for side in [0, 1] {
            held.iter().for_each(|ends| assert_reset(&ends[side]));
            println!("{test}: killed {killed}, reset at side {side} after {:?}", since.elapsed());
            assert!(since.elapsed() < RESET_MAX, "side {side}: {:?}", since.elapsed());
        }
        let alive = 1 - killed;
        lab.wait_until_unsplit(alive);
        let before = lab.count(alive, "taken") + lab.count(alive, "opened");
        converse(&lab, &listener, 100_000, 7);
        // It comes back, and connections are split again. Those that flowed unsplit go on.
        let mut unsplit = lab.connect(PORT);
        let (mut unsplit_far, _) = accept(&listener);
        let end = [&lab.sites.a.gateway, &lab.sites.b.gateway][killed];
        lab.pair.launch(killed, end).unwrap();
        wait_until("the gateway answers", || {
            lab.pair.status(killed).is_ok_and(|status| status.split.is_some())
        });
        lab.wait_until_splitting(0);
        lab.wait_until_splitting(1);
        converse(&lab, &listener, 100_000, 8);
        wait_until("the last one alone was split", || {
            lab.count(alive, "taken") + lab.count(alive, "opened") == before + 1
        });
        unsplit.write_all(b"question").unwrap();
        unsplit_far.read_exact(&mut [0; 8]).unwrap();
    }
    lab.pair.stop().unwrap();
}

/// A gateway passes an urgent byte on where it stands among the others, and without its mark.
#[test]
fn an_urgent_byte_arrives_in_its_place_both_ways() {
    let Some(lab) = Lab::start("an_urgent_byte_arrives_in_its_place_both_ways", "uniform:0") else { return };
    let listener = lab.serve();
    let client = lab.connect(PORT);
    let (server, _) = accept(&listener);
    for (mut from, mut to) in [(&client, &server), (&server, &client)] {
        from.write_all(b"before").unwrap();
        SockRef::from(from).send_out_of_band(b"!").unwrap();
        from.write_all(b"behind").unwrap();
        // A host that does not ask for urgent data inline would miss a marked byte here.
        let mut seen = [0; 13];
        to.read_exact(&mut seen).unwrap();
        assert_eq!(&seen, b"before!behind");
        let nothing = SockRef::from(to).recv_out_of_band(&mut [std::mem::MaybeUninit::new(0)]);
        assert!(nothing.is_err(), "no byte is marked");
    }
    lab.pair.stop().unwrap();
}

#[test]
fn a_client_that_reads_nothing_holds_up_its_server_and_nobody_else() {
    let test = "a_client_that_reads_nothing_holds_up_its_server_and_nobody_else";
    let Some(lab) = Lab::start(test, "uniform:0") else { return };
    let listener = lab.serve();
    let slow = lab.connect(PORT);
    let (server, _) = accept(&listener);
    server.set_nonblocking(true).unwrap();
    let mut sent = 0;
    let mut fill = || {
        while let Ok(bytes) = (&server).write(&[7; 65_536]) {
            sent += bytes;
        }
        sent
    };
    // The server sends until nothing takes its bytes any more.
    let mut last = (0, 0);
    wait_until("the server must wait", || {
        let now = fill();
        last = if now == last.0 { (now, last.1 + 1) } else { (now, 0) };
        last.1 > 50
    });
    let held = lab.split(0).waiting_bytes;
    assert!(
        held > 0 && held <= lab.split(0).promised_bytes && held < lab.split(0).buffer_bytes / 4,
        "{held}"
    );
    converse(&lab, &listener, 3_000_000, 9);
    // It reads at last, and nothing is missing.
    server.set_nonblocking(false).unwrap();
    server.shutdown(Shutdown::Write).unwrap();
    let mut seen = Vec::new();
    (&slow).read_to_end(&mut seen).unwrap();
    assert!(seen.len() == sent && seen.iter().all(|&byte| byte == 7), "{} of {sent}", seen.len());
    lab.pair.stop().unwrap();
}

#[test]
fn whoever_has_no_key_gets_nothing_from_the_port_of_carriers() {
    let test = "whoever_has_no_key_gets_nothing_from_the_port_of_carriers";
    let Some(lab) = Lab::start(test, "uniform:0") else { return };
    let port: SocketAddr = "10.81.1.1:4701".parse().unwrap();
    // A host is closed at once; the far gateway's address gets a challenge, but no further without the key.
    let stranger = lab.sites.a.hosts[0].run(|| TcpStream::connect_timeout(&port, PATIENCE).unwrap());
    let ended = patient(stranger).read(&mut [0; 1]);
    assert!(ended.is_err() || ended.is_ok_and(|bytes| bytes == 0));
    let preamble = b"undropsplit\x02";
    // A greeting, a wrong proof, and a frame that asks for an echo.
    let ping = [9, 0, 0, 8, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let liar = [&preamble[..], &[7; 32], &[0; 33], &ping].concat();
    let browser = b"GET / HTTP/1.0\r\n\r\n                                    ";
    for words in [&browser[..], preamble, &[0; 4_000], &liar] {
        let liar = lab.sites.b.gateway.run(|| {
            let from: SocketAddr = "10.81.2.1:0".parse().unwrap();
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.bind(&from.into()).unwrap();
            socket.connect(&port.into()).unwrap();
            patient(TcpStream::from(socket))
        });
        let _ = (&liar).write_all(words);
        let mut seen = Vec::new();
        let _ = (&liar).read_to_end(&mut seen);
        assert!(seen.len() <= CHALLENGE_LEN, "{} bytes", seen.len());
    }
    assert!(lab.count(0, "strangers") >= 1);
    let listener = lab.serve();
    converse(&lab, &listener, 100_000, 10);
    lab.pair.stop().unwrap();
}

#[test]
fn connections_over_ipv6_travel_on_the_same_carriers() {
    let Some(lab) = Lab::start("connections_over_ipv6_travel_on_the_same_carriers", "uniform:0") else {
        return;
    };
    let to = SocketAddr::new(lab.sites.b.host_v6(0), PORT);
    let listener = lab.sites.b.hosts[0].run(|| TcpListener::bind(to).unwrap());
    let client = lab.sites.a.hosts[0].run(|| TcpStream::connect_timeout(&to, PATIENCE).unwrap());
    let mut client = patient(client);
    let (mut server, from) = accept(&listener);
    assert_eq!(from, client.local_addr().unwrap());
    client.write_all(b"question").unwrap();
    server.read_exact(&mut [0; 8]).unwrap();
    drop(server);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    drop(client);
    lab.wait_for_counts([("finished", 1), ("finished", 1)]);
    lab.pair.stop().unwrap();
}

#[test]
fn a_key_is_changed_without_the_end_of_a_connection() {
    let Some(mut lab) = Lab::start("a_key_is_changed_without_the_end_of_a_connection", "uniform:0") else {
        return;
    };
    let listener = lab.serve();
    let mut client = lab.connect(PORT);
    let (mut server, _) = accept(&listener);
    KeyText::generate().unwrap().write_new(&lab.pair.config(0).with_file_name("next.key")).unwrap();
    let (old, new) = ("key_file = \"peer.key\"", "key_file = \"next.key\"");
    let both = format!("{old}\nnext_{new}");
    for side in [0, 1] {
        reload(&mut lab.pair, side, |text| text.replace(old, &both));
    }
    for side in [0, 1] {
        wait_until("the next key is in use", || peer(&lab.pair, side).keys.state == "changed");
    }
    for side in [0, 1] {
        reload(&mut lab.pair, side, |text| text.replace(&both, new));
    }
    client.write_all(b"question").unwrap();
    server.read_exact(&mut [0; 8]).unwrap();
    // Carriers that are dialed from now on prove the new key.
    lab.pair.kill(1).unwrap();
    assert_reset(&client);
    lab.wait_until_unsplit(0);
    lab.pair.launch(1, &lab.sites.b.gateway).unwrap();
    wait_until("the gateway answers", || lab.pair.status(1).is_ok_and(|status| status.split.is_some()));
    lab.wait_until_splitting(0);
    lab.wait_until_splitting(1);
    converse(&lab, &listener, 100_000, 12);
    lab.pair.stop().unwrap();
}

#[test]
fn hundreds_of_connections_at_once_lose_nothing() {
    let Some(lab) = Lab::start("hundreds_of_connections_at_once_lose_nothing", "uniform:0.005") else {
        return;
    };
    let listener = lab.serve();
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..300 {
                let (stream, _) = accept(&listener);
                // An echo, on its own thread.
                scope.spawn(move || {
                    let mut seen = Vec::new();
                    (&stream).read_to_end(&mut seen).unwrap();
                    (&stream).write_all(&seen).unwrap();
                });
            }
        });
        for seed in 0..300 {
            let lab = &lab;
            scope.spawn(move || {
                let bytes = Random(seed).bytes(5_000 + 100 * seed as usize);
                assert!(transfer(&lab.connect(PORT), &bytes) == bytes, "connection {seed}");
            });
        }
    });
    lab.wait_for_counts([("finished", 300), ("finished", 300)]);
    assert_eq!([lab.count(0, "taken"), lab.count(1, "opened")], [300, 300]);
    lab.pair.stop().unwrap();
}

#[test]
fn a_reload_of_other_settings_keeps_connections_and_one_without_split_mode_ends_them() {
    let test = "a_reload_of_other_settings_keeps_connections_and_one_without_split_mode_ends_them";
    let Some(mut lab) = Lab::start(test, "uniform:0") else { return };
    let listener = lab.serve();
    let mut client = lab.connect(PORT);
    let (mut server, _) = accept(&listener);
    reload(&mut lab.pair, 0, |text| text.replace("max_delay_ms = 20", "max_delay_ms = 30"));
    client.write_all(b"question").unwrap();
    server.read_exact(&mut [0; 8]).unwrap();
    reload(&mut lab.pair, 0, |text| {
        text.replace("listen = \"10.81.1.1:4701\"\n", "").replace("ports", "#").replace("accept", "#")
    });
    assert_reset(&client);
    assert_reset(&server);
    assert_eq!(lab.pair.status(0).unwrap().split, None);
    converse(&lab, &listener, 100_000, 11);
    lab.pair.stop().unwrap();
}
