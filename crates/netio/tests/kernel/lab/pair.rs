//! Two hosts and a cable, for tests that need no recorded wire.

use std::io::{ErrorKind, Write as _};
use std::net::UdpSocket;
use std::time::Duration;

use netio::interface::Interface;
use netio::tap::{Attach, Tap, TapConfig, TapKind};
use netlab::Namespace;
use socket2::{Domain, SockAddr, SockAddrStorage, Socket, Type};

/// Longest wait for a datagram that must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// Two hosts and a cable.
pub(crate) struct Pair {
    pub(crate) a: Namespace,
    pub(crate) b: Namespace,
}

impl Pair {
    pub(crate) fn build(what: &str) -> Option<Self> {
        if !netlab::privilege::namespaces_or_skip(what) {
            return None;
        }
        let [a, b] = ["a", "b"].map(|label| Namespace::create(label).unwrap());
        let pair = Self { a, b };
        pair.lay_cable();
        Some(pair)
    }

    pub(crate) fn lay_cable(&self) {
        self.a.add_veth("eth0", &self.b, "eth0", 1500).unwrap();
        for (host, number) in [(&self.a, 1), (&self.b, 2)] {
            host.add_address("eth0", format!("10.9.0.{number}/24").parse().unwrap()).unwrap();
            host.add_address("eth0", format!("fd09::{number}/64").parse().unwrap()).unwrap();
        }
    }

    pub(crate) fn sockets(&self, version: u8) -> (UdpSocket, UdpSocket) {
        let [a, b] = if version == 4 {
            ["10.9.0.1:7001", "10.9.0.2:7002"]
        } else {
            ["[fd09::1]:7001", "[fd09::2]:7002"]
        };
        let bind = |host: &Namespace, address: &str| {
            let socket = host.run(|| UdpSocket::bind(address).unwrap());
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        };
        let (a, b) = (bind(&self.a, a), bind(&self.b, b));
        a.connect(b.local_addr().unwrap()).unwrap();
        b.connect(a.local_addr().unwrap()).unwrap();
        (a, b)
    }

    /// Opens every supported kind of tap at the cable's near end, one after the other.
    pub(crate) fn taps(&self, change: impl Fn(&mut TapConfig)) -> impl Iterator<Item = Tap> {
        let kinds =
            [(TapKind::Ebpf, Attach::Tcx), (TapKind::Ebpf, Attach::Clsact), (TapKind::Packet, Attach::Auto)];
        let open = move |(kind, attach)| {
            let mut config = TapConfig { kind, attach, ..config() };
            change(&mut config);
            match self.a.run(|| Tap::open(&config)) {
                Ok(tap) => Some(tap),
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    skipped(&format!("{kind} {attach:?}: {error}"));
                    None
                }
                Err(error) => panic!("{kind} {attach:?}: {error}"),
            }
        };
        kinds.into_iter().filter_map(open)
    }
}

pub(crate) fn config() -> TapConfig {
    let networks = vec!["10.9.0.0/24".parse().unwrap(), "fd09::/64".parse().unwrap()];
    TapConfig {
        interface: "eth0".to_owned(),
        outgoing_to: networks.clone(),
        incoming_from: networks,
        ..TapConfig::default()
    }
}

/// Sends a whole Ethernet frame from `eth0` of the calling thread's namespace.
pub(crate) fn send_frame(frame: &[u8]) {
    send_frames(&[frame]);
}

/// Sends whole Ethernet frames, one directly after the other.
pub(crate) fn send_frames(frames: &[impl AsRef<[u8]>]) {
    let interface = Interface::open("eth0").unwrap();
    let socket = Socket::new(Domain::PACKET, Type::RAW, None).unwrap();
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: the storage is larger than a sockaddr_ll, of numbers only, and the family is set to match.
    let address = unsafe {
        let address = storage.view_as::<libc::sockaddr_ll>();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = interface.index().cast_signed();
        SockAddr::new(storage, size_of::<libc::sockaddr_ll>() as libc::socklen_t)
    };
    for frame in frames {
        socket.send_to(frame.as_ref(), &address).unwrap();
    }
}

/// Prints past the harness' capture, so that the line is visible and can be counted.
pub(crate) fn skipped(what: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}
