//! The smallest HTTP server that a scraper of metrics needs: one document at `/metrics`, over TCP.
//!
//! It runs beside the main loop, on threads of its own. Each connection has one thread, a deadline, and one
//! answer.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::socket::{Shutdown, shutdown};

/// Maximum number of connections at a time. Further ones are closed.
const CONNECTIONS_MAX: usize = 8;
/// Longest time for a request and its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause after a connection could not be accepted, for example because no descriptors are left.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest request in bytes.
const REQUEST_MAX: usize = 8 << 10;

/// Makes the document, with its content type.
type Make = dyn Fn() -> io::Result<(String, &'static str)> + Send + Sync;

/// A running server. Dropping it ends it, and frees its address.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    listener: Arc<TcpListener>,
    ends: Arc<AtomicBool>,
    /// The thread that accepts connections.
    acceptor: Option<JoinHandle<()>>,
}

impl Server {
    /// Answers requests for `/metrics` at `address` with the document of `make`.
    ///
    /// # Errors
    /// The address cannot be used, or the system refused a thread.
    pub fn start(
        address: SocketAddr,
        make: impl Fn() -> io::Result<(String, &'static str)> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = Arc::new(TcpListener::bind(address)?);
        let address = listener.local_addr()?;
        let ends = Arc::new(AtomicBool::new(false));
        let (seen, make) = (Arc::clone(&ends), Arc::new(make) as Arc<Make>);
        let own = Arc::clone(&listener);
        let accept = move || accept(&own, &seen, &make);
        let acceptor = thread::Builder::new().name("metrics".to_owned()).spawn(accept)?;
        Ok(Self { address, listener, ends, acceptor: Some(acceptor) })
    }

    /// The address in use.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        // On Linux this wakes a thread in `accept`. A connection of our own would not reach a server whose
        // address the machine has lost, and the caller would wait for it.
        let is_woken = shutdown(self.listener.as_raw_fd(), Shutdown::Read).is_ok();
        // The thread ends at once, because connections have threads of their own, and the listener is closed.
        // Another server, which follows this one at the same port, could not listen before.
        if let Some(acceptor) = self.acceptor.take().filter(|_| is_woken) {
            acceptor.thread().unpark();
            let _ = acceptor.join();
        }
    }
}

fn accept(listener: &TcpListener, ends: &AtomicBool, make: &Arc<Make>) {
    let connections = Arc::new(());
    loop {
        let accepted = listener.accept();
        if ends.load(Ordering::Acquire) {
            return;
        }
        let Ok((stream, _)) = accepted else {
            thread::park_timeout(PAUSE);
            continue;
        };
        if Arc::strong_count(&connections) > CONNECTIONS_MAX {
            continue;
        }
        let (make, connection) = (Arc::clone(make), Arc::clone(&connections));
        let answer = move || {
            // A client that leaves or hangs gets no answer, and nobody else notices.
            let _ = answer(stream, &*make);
            drop(connection);
        };
        let _ = thread::Builder::new().name("metrics".to_owned()).spawn(answer);
    }
}

#[allow(clippy::disallowed_methods, reason = "this is no core")]
fn answer(mut stream: TcpStream, make: &Make) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    let left = || match end.saturating_duration_since(Instant::now()) {
        left if left.is_zero() => Err(io::Error::from(io::ErrorKind::TimedOut)),
        left => Ok(Some(left)),
    };
    let (mut request, mut piece) = (Vec::new(), [0; 1024]);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        stream.set_read_timeout(left()?)?;
        let length = stream.read(&mut piece)?;
        if length == 0 || request.len() + length > REQUEST_MAX {
            return Ok(());
        }
        request.extend_from_slice(&piece[..length]);
    }
    let response = respond(&request, make);
    let mut rest = response.as_bytes();
    while !rest.is_empty() {
        stream.set_write_timeout(left()?)?;
        let length = stream.write(rest)?;
        rest = &rest[length..];
    }
    Ok(())
}

/// Returns the whole response to a request.
fn respond(request: &[u8], make: &Make) -> String {
    let line = request.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split(|&byte| byte == b'?').next().unwrap_or_default();
    let plain = "text/plain; charset=utf-8";
    let (status, kind, body) = match (method, path) {
        (b"GET" | b"HEAD", b"/metrics") => match make() {
            Ok((body, kind)) => ("200 OK", kind, body),
            Err(error) => ("503 Service Unavailable", plain, format!("{error}\n")),
        },
        (b"GET" | b"HEAD", _) => ("404 Not Found", plain, "the metrics are at /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", plain, "expected GET\n".to_owned()),
    };
    let length = body.len();
    let body = if method == b"HEAD" { "" } else { &body };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Server {
        let document = || Ok(("undrop_up 1\n# EOF\n".to_owned(), "text/plain"));
        Server::start(SocketAddr::from(([127, 0, 0, 1], 0)), document).unwrap()
    }

    fn ask(server: &Server, request: &str) -> String {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    #[test]
    fn metrics_are_answered_and_nothing_else() {
        let server = server();
        let good = ask(&server, "GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(
            good.starts_with("HTTP/1.1 200 OK\r\n") && good.ends_with("\r\n\r\nundrop_up 1\n# EOF\n"),
            "{good}"
        );
        assert!(good.contains("Content-Length: 18\r\n"), "{good}");
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("\r\n\r\n", "405"),
        ] {
            assert!(ask(&server, request).starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}");
        }
        let head = ask(&server, "HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(head.ends_with("\r\n\r\n") && head.contains("Content-Length: 18"), "{head}");
    }

    #[test]
    fn clients_that_say_nothing_or_too_much_keep_nobody_waiting() {
        let server = server();
        let silent: Vec<_> = (0..4).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
        let mut chatty = TcpStream::connect(server.address()).unwrap();
        let _ = chatty.write_all(&[b'a'; 2 * REQUEST_MAX]);
        let good = ask(&server, "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(good.starts_with("HTTP/1.1 200"), "{good}");
        drop(silent);
    }

    #[test]
    fn a_server_that_is_dropped_frees_its_address_at_once() {
        let server = server();
        let address = server.address();
        // A client that says nothing holds nobody up.
        let silent = TcpStream::connect(address).unwrap();
        drop(server);
        let any = SocketAddr::from(([0, 0, 0, 0], address.port()));
        for address in [address, any] {
            TcpListener::bind(address).unwrap();
        }
        drop(silent);
    }

    #[test]
    fn a_server_whose_address_leads_to_another_machine_is_dropped_without_a_connection_to_it() {
        let mut server = server();
        let elsewhere = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
        let own = std::mem::replace(&mut server.address, elsewhere.local_addr().unwrap());
        drop(server);
        elsewhere.set_nonblocking(true).unwrap();
        assert_eq!(elsewhere.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        TcpListener::bind(own).expect("the thread that accepts connections has ended");
    }
}
