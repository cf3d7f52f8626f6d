//! Connections that a router takes in place of their server.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use netio::divert::{self, Diversion, Divert, Fate, Take};
use netio::queue::Queue;
use netio::transparent;
use netlab::Namespace;
use netlab::namespace::Route;

const TABLE: &str = "undrop_split_test0";
const MARK: u32 = 0x7564_0001;
const MTU: u32 = 1_500;
const QUEUE: u16 = 4_700;
/// Longest wait for bytes that must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// A client, a router and a server.
struct Lab {
    client: Namespace,
    router: Namespace,
    server: Namespace,
}

impl Lab {
    fn build(test: &str) -> Option<Self> {
        if !netlab::privilege::namespaces_or_skip(test) {
            return None;
        }
        let [client, router, server] =
            ["client", "router", "server"].map(|label| Namespace::create(label).unwrap());
        client.add_veth("eth0", &router, "lan0", MTU).unwrap();
        server.add_veth("eth0", &router, "wan0", MTU).unwrap();
        for (host, interface, addresses) in [
            (&client, "eth0", ["10.1.0.2/24", "fd01::2/64"]),
            (&router, "lan0", ["10.1.0.1/24", "fd01::1/64"]),
            (&router, "wan0", ["10.2.0.1/24", "fd02::1/64"]),
            (&server, "eth0", ["10.2.0.2/24", "fd02::2/64"]),
        ] {
            for address in addresses {
                host.add_address(interface, address.parse().unwrap()).unwrap();
            }
        }
        for (key, value) in [("net.ipv4.ip_forward", "1"), ("net.ipv6.conf.all.forwarding", "1")] {
            router.sysctl(key, value).unwrap();
        }
        for (host, gateways) in [(&client, ["10.1.0.1", "fd01::1"]), (&server, ["10.2.0.1", "fd02::1"])] {
            for (gateway, everywhere) in gateways.into_iter().zip(["0.0.0.0/0", "::/0"]) {
                let route = Route::to(everywhere.parse().unwrap()).via(gateway.parse().unwrap());
                host.add_route(&route).unwrap();
            }
        }
        Some(Self { client, router, server })
    }

    fn install(&self, listener: u16) -> Divert {
        self.install_with(listener, None)
    }

    fn install_with(&self, listener: u16, queue: Option<u16>) -> Divert {
        let take = |to: &str| Take { to: to.parse().unwrap(), ports: vec![80, 8_080], listener };
        let diversion = Diversion {
            wan: "wan0".to_owned(),
            mark: MARK,
            from: ["10.1.0.0/24", "fd01::/64"].map(|network| network.parse().unwrap()).to_vec(),
            exempt: vec!["10.2.0.9".parse().unwrap()],
            takes: vec![take("10.2.0.0/24"), take("fd02::/64")],
            queue,
        };
        self.router.run(|| Divert::install(TABLE, &diversion).unwrap())
    }

    fn server_at(&self, v6: bool, port: u16) -> SocketAddr {
        let ip: IpAddr = if v6 { "fd02::2" } else { "10.2.0.2" }.parse().unwrap();
        SocketAddr::new(ip, port)
    }

    fn serve(&self, v6: bool, port: u16) -> TcpListener {
        self.server.run(|| TcpListener::bind(self.server_at(v6, port)).unwrap())
    }

    fn connect(&self, to: SocketAddr) -> TcpStream {
        let stream = self.client.run(|| TcpStream::connect_timeout(&to, PATIENCE).unwrap());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }
}

/// Returns the next connection and its client. The listener must not block.
fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    listener.set_nonblocking(true).unwrap();
    let accepted = testkit::wait_for(|| match listener.accept() {
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        accepted => Some(accepted.unwrap()),
    });
    let (stream, client) = accepted.expect("a connection arrives");
    stream.set_nonblocking(false).unwrap();
    (stream, client)
}

/// Sends bytes both ways.
fn exchange(one: &mut TcpStream, other: &mut TcpStream) {
    one.write_all(b"question").unwrap();
    let mut seen = [0; 8];
    other.set_read_timeout(Some(PATIENCE)).unwrap();
    other.read_exact(&mut seen).unwrap();
    assert_eq!(&seen, b"question");
    other.write_all(b"answer").unwrap();
    let mut seen = [0; 6];
    one.read_exact(&mut seen).unwrap();
    assert_eq!(&seen, b"answer");
}

fn takes_new_connections_only(test: &str, v6: bool) {
    let Some(lab) = Lab::build(test) else { return };
    let to = lab.server_at(v6, 80);
    let server = lab.serve(v6, 80);
    // Older than the table.
    let mut old = lab.connect(to);
    let (mut old_far, _) = accept(&server);
    let listener = lab.router.run(|| transparent::listen(v6, 0).unwrap());
    let divert = lab.install(listener.local_addr().unwrap().port());
    exchange(&mut old, &mut old_far);

    let mut taken = lab.connect(to);
    let (mut here, client) = accept(&listener);
    assert_eq!((here.local_addr().unwrap(), client), (to, taken.local_addr().unwrap()));
    exchange(&mut taken, &mut here);

    // The connection to the server has the client's address and port.
    let onward = lab.router.run(|| transparent::connect(client, to).unwrap());
    let (mut far, from) = accept(&server);
    assert_eq!(from, client);
    onward.set_nonblocking(false).unwrap();
    let mut onward = onward;
    exchange(&mut far, &mut onward);

    // Other ports are left alone, and all are once nobody listens.
    let others = lab.serve(v6, 81);
    let mut other = lab.connect(lab.server_at(v6, 81));
    let (mut other_far, _) = accept(&others);
    exchange(&mut other, &mut other_far);
    drop(listener);
    let mut unsplit = lab.connect(to);
    let (mut unsplit_far, from) = accept(&server);
    assert_eq!(from, unsplit.local_addr().unwrap());
    exchange(&mut unsplit, &mut unsplit_far);
    // Connections that were taken go on.
    exchange(&mut taken, &mut here);
    exchange(&mut old, &mut old_far);

    drop(divert);
    let rules = lab.router.run(|| std::process::Command::new("ip").args(["rule", "show"]).output());
    if let Ok(rules) = rules {
        let rules = String::from_utf8_lossy(&rules.stdout).into_owned();
        assert!(!rules.contains("0x75640001"), "{rules}");
    }
    let again = lab.install(9);
    let mut last = lab.connect(to);
    let (mut last_far, _) = accept(&server);
    exchange(&mut last, &mut last_far);
    drop(again);
}

testkit::cases! { takes_new_connections_only:
    new_connections_are_taken_while_somebody_listens(false);
    new_connections_over_ipv6_are_taken_while_somebody_listens(true);
}

#[test]
fn a_host_that_ends_without_a_word_resets_what_was_taken() {
    let Some(lab) = Lab::build("a_host_that_ends_without_a_word_resets_what_was_taken") else { return };
    let listener = lab.router.run(|| transparent::listen(false, 0).unwrap());
    let _divert = lab.install(listener.local_addr().unwrap().port());
    let mut taken = lab.connect(lab.server_at(false, 8_080));
    let (here, _) = accept(&listener);
    drop(here);
    let error = taken.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    // One that has ended in both directions ends in peace.
    let mut taken = lab.connect(lab.server_at(false, 8_080));
    let (here, _) = accept(&listener);
    transparent::prepare(&here).unwrap();
    transparent::settle(&here).unwrap();
    drop(here);
    assert_eq!(taken.read(&mut [0]).unwrap(), 0);
}

fn first_packets_wait_for_a_decision(test: &str, v6: bool) {
    let Some(lab) = Lab::build(test) else { return };
    let to = lab.server_at(v6, 80);
    let server = lab.serve(v6, 80);
    let listener = lab.router.run(|| transparent::listen(v6, 0).unwrap());
    let mut queue = lab.router.run(|| Queue::open(QUEUE).unwrap());
    let divert = lab.install_with(listener.local_addr().unwrap().port(), Some(QUEUE));
    // Each connection begins on a thread of its own, and waits.
    let begin = || {
        let client = lab.client.clone();
        thread::spawn(move || client.run(|| TcpStream::connect_timeout(&to, PATIENCE)))
    };
    let mut asked = |fate: Fate| {
        let client = begin();
        let packet = testkit::wait_for(|| queue.recv().unwrap()).unwrap();
        assert_eq!(packet.server, to);
        queue.release(packet.id, fate.mark(MARK)).unwrap();
        (client.join().unwrap(), packet.client)
    };
    let (taken, client) = asked(Fate::Taken);
    let (mut here, from) = accept(&listener);
    assert_eq!(from, client);
    exchange(&mut patient(taken.unwrap()), &mut here);
    let (forwarded, client) = asked(Fate::Forwarded);
    let (mut far, from) = accept(&server);
    assert_eq!(from, client);
    exchange(&mut patient(forwarded.unwrap()), &mut far);
    assert_eq!(asked(Fate::Refused).0.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert_eq!(asked(Fate::Unreachable).0.unwrap_err().kind(), ErrorKind::HostUnreachable);
    // Without its process the queue holds up nobody, and without a listener nothing is taken.
    drop((queue, listener));
    let mut unsplit = lab.connect(to);
    let (mut far, _) = accept(&server);
    exchange(&mut unsplit, &mut far);
    drop(divert);
}

testkit::cases! { first_packets_wait_for_a_decision:
    first_packets_wait_until_a_decision_about_them(false);
    first_packets_over_ipv6_wait_until_a_decision_about_them(true);
}

fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn a_kernel_is_asked_whether_it_can_take_connections_without_a_change() {
    let Some(lab) = Lab::build("a_kernel_is_asked_whether_it_can_take_connections_without_a_change") else {
        return;
    };
    lab.router.run(|| [None, Some(7)].map(divert::probe).map(Result::unwrap));
    let tables = lab.router.run(|| std::process::Command::new("nft").args(["list", "tables"]).output());
    if let Ok(tables) = tables {
        assert_eq!(String::from_utf8_lossy(&tables.stdout), "");
    }
}

#[test]
fn a_congestion_control_that_the_kernel_lacks_is_told() {
    assert!(transparent::check_congestion("no-such-one").is_err());
}
