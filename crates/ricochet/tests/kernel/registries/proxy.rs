//! A proxy that holds back requests to watch until a test lets them pass.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use netlab::Namespace;
use nix::sys::socket::{self, shutdown};

/// A proxy in a namespace, in front of one server.
pub(crate) struct Proxy {
    listener: Arc<TcpListener>,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    changed: Condvar,
    /// Number of requests to watch that have come.
    waiting: AtomicU32,
}

impl Proxy {
    /// Starts a proxy at `ip`, any port, in front of the server at `to`.
    pub(crate) fn start(host: &Namespace, ip: &str, to: SocketAddr) -> Self {
        let listener = Arc::new(host.run(|| TcpListener::bind((ip, 0))).unwrap());
        let gate = Arc::new(Gate::default());
        let (accepting, shared) = (Arc::clone(&listener), Arc::clone(&gate));
        // Threads of a thread in the namespace are in it too.
        host.run(|| {
            std::thread::spawn(move || {
                // Until the listener is shut down.
                while let Ok((client, _)) = accepting.accept() {
                    let shared = Arc::clone(&shared);
                    std::thread::spawn(move || drop(carry(client, to, &shared)));
                }
            });
        });
        Self { listener, gate }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.listener.local_addr().unwrap())
    }

    /// Returns the number of requests to watch that have come.
    pub(crate) fn watches(&self) -> u32 {
        self.gate.waiting.load(Ordering::SeqCst)
    }

    /// Lets all requests pass from now on.
    pub(crate) fn open(&self) {
        *self.gate.is_open.lock().unwrap() = true;
        self.gate.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        shutdown(self.listener.as_raw_fd(), socket::Shutdown::Both).unwrap();
        self.open();
    }
}

/// Carries one connection in both directions until one of them ends.
fn carry(mut client: TcpStream, to: SocketAddr, gate: &Gate) -> io::Result<()> {
    let mut piece = vec![0; 64 << 10];
    let length = client.read(&mut piece)?;
    if piece[..length].starts_with(b"POST /v3/watch") {
        gate.waiting.fetch_add(1, Ordering::SeqCst);
        let is_open = gate.is_open.lock().unwrap();
        drop(gate.changed.wait_while(is_open, |is_open| !*is_open).unwrap());
    }
    let mut server = TcpStream::connect(to)?;
    server.write_all(&piece[..length])?;
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    std::thread::spawn(move || {
        let _ = io::copy(&mut from_client, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Write);
    });
    io::copy(&mut server, &mut client)?;
    client.shutdown(Shutdown::Both)
}
