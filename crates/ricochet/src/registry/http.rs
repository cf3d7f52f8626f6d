//! A client of HTTP/1.1 over TCP (RFC 9112), as far as a registry needs it: one connection for each request,
//! answers of bounded length, and answers without an end that are read line by line.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};

use super::body::{Body, Framing};
use super::failure::Failure;
use crate::clock;

/// Longest time to connect to one address.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);
/// Longest time for an answer that has an end, and for the beginning of one that has none.
const PATIENCE_US: u64 = 5_000_000;
/// Longest head of an answer in bytes.
const HEAD_MAX: usize = 16 << 10;
/// Longest answer, and longest line of an answer without an end, in bytes.
const ANSWER_MAX: usize = 64 << 20;
/// Longest text of an error that is shown.
const SHOWN_MAX: usize = 300;

/// The address of a service, `http://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// Name or address, an IPv6 address without brackets.
    host: String,
    port: u16,
}

/// Mistake in the address of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndpointMistake {
    /// It begins with `https://`.
    Tls,
    /// It is no address of this form.
    Form,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    /// Header lines of the service, each with its end.
    pub(super) headers: &'a str,
    pub(super) body: &'a str,
}

impl<'a> Request<'a> {
    /// Makes a request for what a path stands for.
    pub(super) fn get(path: &'a str) -> Self {
        Self { method: "GET", path, headers: "", body: "" }
    }

    /// Returns the bytes that ask a server.
    fn text(self, authority: &str) -> String {
        let Self { method, path, headers, body } = self;
        let length = body.len();
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {authority}\r\nAccept: application/json\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}\r\n{body}"
        )
    }
}

impl Endpoint {
    /// Parses an address. A slash at its end is allowed.
    pub(crate) fn parse(text: &str) -> Result<Self, EndpointMistake> {
        if text.starts_with("https://") {
            return Err(EndpointMistake::Tls);
        }
        let rest = text.strip_prefix("http://").ok_or(EndpointMistake::Form)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = rest.rsplit_once(':').ok_or(EndpointMistake::Form)?;
        let port: u16 = port.parse().map_err(|_| EndpointMistake::Form)?;
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_valid = match inner {
            Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
                !host.is_empty() && host.len() <= 253 && host.bytes().all(is_part)
            }
        };
        if !is_valid || port == 0 {
            return Err(EndpointMistake::Form);
        }
        Ok(Self { host: inner.unwrap_or(host).to_owned(), port })
    }

    /// Returns the host and port as the header `Host` has them.
    fn authority(&self) -> String {
        let Self { host, port } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    fn connect(&self) -> Result<TcpStream, Failure> {
        let failed = |error| Failure::Connect { endpoint: self.to_string(), error };
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (self.host.as_str(), self.port).to_socket_addrs().map_err(failed)? {
            match TcpStream::connect_timeout(&address, CONNECT_PATIENCE) {
                Ok(stream) => {
                    prepare(&stream).map_err(failed)?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }

    /// Sends a request, and returns the response as soon as its head is there. A status other than 200 is a
    /// failure.
    pub(super) fn ask(&self, request: Request<'_>) -> Result<Response, Failure> {
        let mut stream = self.connect()?;
        let text = request.text(&self.authority());
        stream.write_all(text.as_bytes()).map_err(|error| self.broken(error))?;
        let until_us = clock::now_us() + PATIENCE_US;
        let response = Response::read(stream, self.clone(), until_us)?;
        match response.status {
            200 => Ok(response),
            status => Err(response.refusal(status, until_us)),
        }
    }

    /// Sends a request, and returns the whole answer.
    pub(super) fn ask_whole(&self, request: Request<'_>) -> Result<Vec<u8>, Failure> {
        let until_us = clock::now_us() + PATIENCE_US;
        self.ask(request)?.whole(until_us)
    }

    fn broken(&self, error: io::Error) -> Failure {
        Failure::Broken { endpoint: self.to_string(), error }
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}", self.authority())
    }
}

/// Lets the kernel notice within some 12 seconds that the other host is gone.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(Duration::from_micros(PATIENCE_US)))?;
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &5)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &2)?;
    setsockopt(stream, sockopt::TcpKeepCount, &3)?;
    Ok(())
}

/// The next part of an answer without an end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// The next line.
    Text(Vec<u8>),
    /// Nothing came in time.
    Nothing,
    /// The answer has ended.
    End,
}

/// A response whose head has been read.
#[derive(Debug)]
pub(super) struct Response {
    endpoint: Endpoint,
    stream: TcpStream,
    status: u16,
    body: Body,
}

impl Response {
    fn read(mut stream: TcpStream, endpoint: Endpoint, until_us: u64) -> Result<Self, Failure> {
        let mut raw = Vec::new();
        loop {
            if let Some(end) = raw.windows(4).position(|end| end == b"\r\n\r\n") {
                let head = Head::parse(&raw[..end])?;
                raw.drain(..end + 4);
                // Interim responses (RFC 9110 §15.2) precede the one that counts.
                if (100..200).contains(&head.status) {
                    continue;
                }
                let mut body = Body::new(head.framing, ANSWER_MAX);
                body.push(&raw)?;
                return Ok(Self { endpoint, stream, status: head.status, body });
            }
            if raw.len() > HEAD_MAX {
                return Err(Failure::answer(format!(
                    "expected a head of {HEAD_MAX} bytes, saw a longer one"
                )));
            }
            let mut piece = [0; 4_096];
            let length =
                receive(&mut stream, &mut piece, until_us).map_err(|error| endpoint.broken(error))?;
            if length == 0 {
                return Err(Failure::answer("expected a response, saw the end of the connection"));
            }
            raw.extend_from_slice(&piece[..length]);
        }
    }

    /// Reads the rest of the answer.
    fn whole(mut self, until_us: u64) -> Result<Vec<u8>, Failure> {
        while !self.body.has_ended() {
            self.receive(until_us)?;
        }
        Ok(self.body.take_all())
    }

    /// Describes a response with another status than 200.
    fn refusal(mut self, status: u16, until_us: u64) -> Failure {
        while !self.body.has_ended() && self.receive(until_us).is_ok() {}
        let text = String::from_utf8_lossy(&self.body.take_all()).trim().chars().take(SHOWN_MAX).collect();
        Failure::Status { endpoint: self.endpoint.to_string(), status, text }
    }

    /// Returns the next line of an answer without an end. Waits for at most `patience`.
    pub(super) fn next_line(&mut self, patience: Duration) -> Result<Line, Failure> {
        let until_us = clock::now_us() + u64::try_from(patience.as_micros()).unwrap_or(u64::MAX);
        loop {
            if let Some(line) = self.body.take_line() {
                return Ok(Line::Text(line));
            }
            if self.body.has_ended() {
                return Ok(Line::End);
            }
            match self.receive(until_us) {
                Ok(()) => {}
                Err(Failure::Broken { error, .. }) if error.kind() == io::ErrorKind::TimedOut => {
                    return Ok(Line::Nothing);
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    fn receive(&mut self, until_us: u64) -> Result<(), Failure> {
        let mut piece = [0; 16 << 10];
        match receive(&mut self.stream, &mut piece, until_us) {
            Ok(0) => self.body.on_close(),
            Ok(length) => self.body.push(&piece[..length]),
            Err(error) => Err(self.endpoint.broken(error)),
        }
    }
}

/// Reads once. An error of the kind `TimedOut` says that nothing came until the time.
fn receive(stream: &mut TcpStream, piece: &mut [u8], until_us: u64) -> io::Result<usize> {
    let left_us = until_us.saturating_sub(clock::now_us()).max(1_000);
    stream.set_read_timeout(Some(Duration::from_micros(left_us)))?;
    match stream.read(piece) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(io::Error::new(io::ErrorKind::TimedOut, "no answer came in time"))
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => stream.read(piece),
        result => result,
    }
}

/// The head of a response, as far as it matters.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    framing: Framing,
}

impl Head {
    /// Parses a head without the empty line at its end.
    fn parse(raw: &[u8]) -> Result<Self, Failure> {
        let text = std::str::from_utf8(raw).map_err(|_| Failure::answer("expected a head in ASCII"))?;
        let mut lines = text.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let is_http = words.next().is_some_and(|word| word.starts_with("HTTP/1."));
        let status = words.next().and_then(|word| word.parse().ok()).filter(|_| is_http);
        let Some(status) = status else {
            return Err(Failure::answer("expected a status line of HTTP/1.1, saw another protocol"));
        };
        let mut framing = Framing::UntilClose;
        for line in lines {
            let Some((name, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            if name.eq_ignore_ascii_case("transfer-encoding") && value.eq_ignore_ascii_case("chunked") {
                framing = Framing::Chunked;
            } else if name.eq_ignore_ascii_case("content-length") && framing != Framing::Chunked {
                let length = value.parse().map_err(|_| {
                    Failure::answer(format!("expected the length of the answer, saw {value:?}"))
                })?;
                framing = Framing::Length(length);
            }
        }
        if matches!(status, 204 | 304) {
            framing = Framing::Length(0);
        }
        Ok(Self { status, framing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_services_have_a_scheme_a_host_and_a_port() {
        for (text, shown) in [
            ("http://10.0.0.1:2379", "http://10.0.0.1:2379"),
            ("http://etcd-0.example:2379/", "http://etcd-0.example:2379"),
            ("http://[fd00::1]:2379", "http://[fd00::1]:2379"),
        ] {
            assert_eq!(Endpoint::parse(text).unwrap().to_string(), shown);
        }
        for wrong in [
            "",
            "10.0.0.1:2379",
            "http://10.0.0.1",
            "http://:2379",
            "http://a:0",
            "http://a:65536",
            "http://a b:1",
            "http://a:1/path",
            "http://user@a:1",
            "http://[fd00::1:2379",
            "http://fd00::1:2379",
            "http://a\r\nX: y:1",
        ] {
            assert_eq!(Endpoint::parse(wrong), Err(EndpointMistake::Form), "{wrong:?}");
        }
        assert_eq!(Endpoint::parse("https://a:2379"), Err(EndpointMistake::Tls));
    }

    #[test]
    fn the_head_tells_the_status_and_the_length_of_the_body() {
        let head = |text: &str| Head::parse(text.as_bytes()).map(|head| (head.status, head.framing)).ok();
        assert_eq!(head("HTTP/1.1 200 OK\r\ncontent-length: 12"), Some((200, Framing::Length(12))));
        assert_eq!(head("HTTP/1.1 404 Not Found"), Some((404, Framing::UntilClose)));
        let both = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nContent-Length: 7";
        assert_eq!(head(both), Some((200, Framing::Chunked)));
        assert_eq!(head("HTTP/1.1 204 No Content"), Some((204, Framing::Length(0))));
        for wrong in [
            "",
            "SSH-2.0-OpenSSH",
            "HTTP/2 200",
            "HTTP/1.1",
            "HTTP/1.1 x",
            "HTTP/1.1 200\r\nContent-Length: -1",
        ] {
            assert_eq!(head(wrong), None, "{wrong:?}");
        }
    }
}
