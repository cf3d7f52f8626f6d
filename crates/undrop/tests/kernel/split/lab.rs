//! Two sites whose gateways split connections, and the hosts that talk through them.

use super::*;

/// Port of servers that is split.
pub(super) const PORT: u16 = 8_080;
/// Port that is split, where no server listens.
pub(super) const CLOSED: u16 = 8_081;
/// Length of the message that a gateway sends before the far end has proven itself.
pub(super) const CHALLENGE_LEN: usize = 108;
/// Longest wait for bytes that must come.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Silence of its far end after which a gateway ends a carrier (docs/book/split.md).
pub(super) const SILENCE: Duration = Duration::from_secs(15);
/// Longest time from the death of a gateway to the reset of its connections at either end. Its kernel ends
/// them and the carriers at once, and the far gateway notices by silence where the link has lost that. As
/// much again is for a machine that is busy.
pub(super) const RESET_MAX: Duration = Duration::from_secs(2 * SILENCE.as_secs());

/// Two sites whose gateways split connections in both directions.
pub(super) struct Lab {
    // Shown before the gateways end.
    #[expect(dead_code, reason = "it acts as it is dropped")]
    logs: Logs,
    // Dropped before its namespaces.
    pub(super) pair: GatewayPair,
    pub(super) sites: TwoSites,
}

/// Shows the logs of the gateways if the test fails.
pub(super) struct Logs([PathBuf; 2]);

impl Drop for Logs {
    fn drop(&mut self) {
        for path in self.0.iter().filter(|_| thread::panicking()) {
            eprintln!("-- {}\n{}", path.display(), fs::read_to_string(path).unwrap_or_default());
        }
    }
}

impl Lab {
    pub(super) fn start(test: &str, loss: &str) -> Option<Self> {
        Self::start_with(test, loss, |text| text)
    }

    /// Starts gateways whose files have a change.
    pub(super) fn start_with(test: &str, loss: &str, change: fn(String) -> String) -> Option<Self> {
        if !privilege::available_or_skip(test) {
            return None;
        }
        let loss: LossModel = loss.parse().unwrap();
        let sites = sites(Some(200_000_000), 5_000, &loss, 18).unwrap();
        let ends = End::of(&sites);
        let mut pair = GatewayPair::prepare(Path::new(PROGRAM), &ends, &Setting::default()).unwrap();
        for (side, end) in ends.iter().enumerate() {
            let text = fs::read_to_string(pair.config(side)).unwrap();
            fs::write(pair.config(side), change(with_split(&text, side))).unwrap();
            pair.launch(side, end.namespace).unwrap();
        }
        pair.wait_until_up(PATIENCE).unwrap();
        let logs = Logs([0, 1].map(|side| pair.config(side).with_extension("log")));
        let lab = Self { logs, pair, sites };
        lab.wait_until_splitting(0);
        lab.wait_until_splitting(1);
        Some(lab)
    }

    pub(super) fn split(&self, side: usize) -> SplitStatus {
        self.pair.status(side).unwrap().split.unwrap()
    }

    pub(super) fn count(&self, side: usize, counter: &str) -> u64 {
        self.split(side).counters[counter]
    }

    /// Waits until the counters of both gateways are these. A status is some milliseconds old.
    pub(super) fn wait_for_counts(&self, counts: [(&str, u64); 2]) {
        wait_until(&format!("{counts:?}"), || {
            counts.iter().enumerate().all(|(side, &(counter, count))| self.count(side, counter) == count)
        });
    }

    pub(super) fn wait_until_splitting(&self, side: usize) {
        wait_until("connections are split", || {
            self.split(side).sites.first().is_some_and(|site| site.is_splitting)
        });
    }

    pub(super) fn wait_until_unsplit(&self, side: usize) {
        wait_until("connections go unsplit", || {
            self.split(side).sites.iter().all(|site| !site.is_splitting && site.carriers_out == 0)
        });
    }

    pub(super) fn server(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.sites.b.host_v4(0), port)
    }

    pub(super) fn serve(&self) -> TcpListener {
        self.sites.b.hosts[0].run(|| TcpListener::bind(self.server(PORT)).unwrap())
    }

    pub(super) fn connect(&self, port: u16) -> TcpStream {
        let to = self.server(port);
        let stream = self.sites.a.hosts[0].run(|| TcpStream::connect_timeout(&to, PATIENCE).unwrap());
        patient(stream)
    }
}

/// The file of one side with split mode.
pub(super) fn with_split(text: &str, side: usize) -> String {
    let (near, far) = (side + 1, 2 - side);
    let local = format!("[gateway]\nlocal_networks = [\"10.81.{near}.0/24\", \"fd81:0:0:{near}::/64\"]");
    let split = format!(
        "[split]\nlisten = \"10.81.{near}.1:4701\"\nports = [{PORT}, {CLOSED}]\naccept = \"early\"\n\n\
         [[peer]]\ncarrier = \"10.81.{far}.1:4701\""
    );
    text.replace("[gateway]", &local).replace("[[peer]]", &split)
}

pub(super) fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

pub(super) fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    let (stream, from) = listener.accept().unwrap();
    (patient(stream), from)
}

/// Sends `bytes`, ends the direction, and returns what the other end sends until it ends its direction.
pub(super) fn transfer(stream: &TcpStream, bytes: &[u8]) -> Vec<u8> {
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = stream;
            stream.write_all(bytes).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        });
        let (mut stream, mut seen) = (stream, Vec::new());
        stream.read_to_end(&mut seen).unwrap();
        seen
    })
}

/// Moves random bytes both ways through a new connection, and ends it in peace.
pub(super) fn converse(lab: &Lab, listener: &TcpListener, bytes: usize, seed: u64) {
    let mut random = Random(seed);
    let (question, answer) = (random.bytes(bytes), random.bytes(bytes));
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let (stream, from) = accept(listener);
            (transfer(&stream, &answer), from)
        });
        let client = lab.connect(PORT);
        let seen = transfer(&client, &question);
        let (heard, from) = server.join().unwrap();
        assert!(seen == answer && heard == question, "{} {} bytes", seen.len(), heard.len());
        assert_eq!(from, client.local_addr().unwrap(), "the server sees the client's own address and port");
    });
}

/// Asserts that the other end has reset a connection.
pub(super) fn assert_reset(mut stream: &TcpStream) {
    let mut buffer = [0; 4_096];
    let error = loop {
        match stream.read(&mut buffer) {
            Ok(0) => panic!("expected a reset, saw a peaceful end"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}
