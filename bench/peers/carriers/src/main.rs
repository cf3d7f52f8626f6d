//! Ways from one split-mode gateway to the other, as bare relays: what a byte costs on each.
//!
//! A source sends over TCP to the near relay, that to the far relay in one of several ways, and that over
//! TCP to a sink. All are processes of this program on one machine, over loopback. The relays have no flow
//! control of their own, no frames and no keys of ours, so that a way costs here the least that it can.

mod quic;
mod tcp;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use std::{env, fs};

use anyhow::{Context, bail, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

/// Bytes of one read, write or splice: what the carriers of a gateway use.
const CHUNK_BYTES: usize = 256 << 10;

const USAGE: &str = "\
Usage: carriers [GIGABYTES] [ROUNDS]

Relays gigabytes (default 4) by each way, one way after the other, in several rounds (default 3), and prints
for each way the rate and the processor time of both relays.

  copy     one TCP connection for each, bytes copied into the process and out of it
  splice   the same with splice(2): no byte is copied
  framed   streams of a few TCP connections: as copy, with a header before each chunk
  quic     a stream of a QUIC connection, encrypted (quinn, ring), packets of 1,252 bytes";

/// A way from relay to relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Copy,
    Splice,
    Framed,
    Quic,
}

impl Way {
    const ALL: [Self; 4] = [Self::Copy, Self::Splice, Self::Framed, Self::Quic];

    fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Splice => "splice",
            Self::Framed => "framed",
            Self::Quic => "quic",
        }
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let found = Self::ALL.into_iter().find(|way| way.name() == text);
        found.with_context(|| format!("expected copy, splice, framed or quic, saw {text:?}"))
    }
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["-h" | "--help", ..] => {
            println!("{USAGE}");
            Ok(())
        }
        ["near", way, files, to] => near(Way::parse(way)?, Path::new(files), to.parse()?),
        ["far", way, files, to] => far(Way::parse(way)?, Path::new(files), to.parse()?),
        ["sink"] => sink(),
        [] => compare(4.0, 3),
        [gigabytes] => compare(gigabytes.parse().context(USAGE)?, 3),
        [gigabytes, rounds] => compare(gigabytes.parse().context(USAGE)?, rounds.parse().context(USAGE)?),
        _ => bail!("{USAGE}"),
    }
}

/// Runs all ways in turn, and prints a line for each run.
fn compare(gigabytes: f64, rounds: u32) -> anyhow::Result<()> {
    let files = env::temp_dir().join(format!("carriers-{}", std::process::id()));
    fs::create_dir(&files)?;
    quic::write_certificate(&files)?;
    println!("way,round,gbit_per_s,near_s_per_gb,far_s_per_gb");
    let bytes = (gigabytes * 1e9) as u64;
    let done = (0..rounds).try_for_each(|round| {
        Way::ALL.into_iter().try_for_each(|way| {
            let measured = measure(way, &files, bytes)?;
            let [near, far] = measured.relays_s.map(|seconds| seconds * 1e9 / bytes as f64);
            let rate = bytes as f64 * 8.0 / 1e9 / measured.seconds;
            println!("{},{round},{rate:.2},{near:.3},{far:.3}", way.name());
            anyhow::Ok(())
        })
    });
    fs::remove_dir_all(&files)?;
    done
}

struct Measured {
    seconds: f64,
    /// Processor time of the near and of the far relay, in seconds.
    relays_s: [f64; 2],
}

fn measure(way: Way, files: &Path, bytes: u64) -> anyhow::Result<Measured> {
    let mut sink = Process::start(&["sink".to_owned()])?;
    let words = |role: &str, to: SocketAddr| {
        vec![role.to_owned(), way.name().to_owned(), files.display().to_string(), to.to_string()]
    };
    let mut far = Process::start(&words("far", sink.address))?;
    let mut near = Process::start(&words("near", far.address))?;
    let start = Instant::now();
    let mut stream = TcpStream::connect(near.address)?;
    let chunk = vec![0x5a; CHUNK_BYTES];
    let mut left = bytes;
    while left > 0 {
        let now = left.min(CHUNK_BYTES as u64);
        stream.write_all(&chunk[..now as usize])?;
        left -= now;
    }
    drop(stream);
    let (counted, _) = sink.end()?;
    let seconds = start.elapsed().as_secs_f64();
    ensure!(counted == bytes, "expected {bytes} bytes at the sink, saw {counted}");
    Ok(Measured { seconds, relays_s: [near.end()?.1, far.end()?.1] })
}

/// A process of this program, which has said at which address it listens.
struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    fn start(words: &[String]) -> anyhow::Result<Self> {
        let mut child =
            Command::new(env::current_exe()?).args(words).stdout(Stdio::piped()).spawn()?;
        let line = read_line(&mut child)?;
        let address = line.parse().with_context(|| format!("expected an address, saw {line:?}"))?;
        Ok(Self { child, address })
    }

    /// Waits for its end; returns the bytes that it took and the processor time in seconds.
    fn end(&mut self) -> anyhow::Result<(u64, f64)> {
        let line = read_line(&mut self.child)?;
        let (bytes, seconds) = line.split_once(' ').with_context(|| format!("expected two numbers, saw {line:?}"))?;
        let end = self.child.wait()?;
        ensure!(end.success(), "a relay ended with {end}");
        Ok((bytes.parse()?, seconds.parse()?))
    }
}

fn read_line(child: &mut Child) -> anyhow::Result<String> {
    let output = child.stdout.as_mut().context("expected a pipe")?;
    let (mut line, mut byte) = (Vec::new(), [0]);
    while output.read(&mut byte)? == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    Ok(String::from_utf8(line)?)
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn near(way: Way, files: &Path, to: SocketAddr) -> anyhow::Result<()> {
    let bytes = match way {
        Way::Quic => quic::near(files, to)?,
        _ => {
            let mut out = TcpStream::connect(to)?;
            let mut from = accept_one()?;
            match way {
                Way::Splice => tcp::splice(&from, &out)?,
                Way::Framed => tcp::frame(&mut from, &mut out)?,
                _ => tcp::copy(&mut from, &mut out)?,
            }
        }
    };
    say_end(bytes);
    Ok(())
}

fn far(way: Way, files: &Path, to: SocketAddr) -> anyhow::Result<()> {
    let mut out = TcpStream::connect(to)?;
    let bytes = match way {
        Way::Quic => quic::far(files, out)?,
        _ => {
            let mut from = accept_one()?;
            match way {
                Way::Splice => tcp::splice(&from, &out)?,
                Way::Framed => tcp::unframe(&mut from, &mut out)?,
                _ => tcp::copy(&mut from, &mut out)?,
            }
        }
    };
    say_end(bytes);
    Ok(())
}

fn sink() -> anyhow::Result<()> {
    let mut stream = accept_one()?;
    let (mut bytes, mut chunk) = (0, vec![0; CHUNK_BYTES]);
    loop {
        match stream.read(&mut chunk)? {
            0 => break,
            length => bytes += length as u64,
        }
    }
    say_end(bytes);
    Ok(())
}

fn accept_one() -> anyhow::Result<TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    Ok(listener.accept()?.0)
}

fn say_end(bytes: u64) {
    println!("{bytes} {}", processor_s());
}

/// Returns the processor time of this process, in seconds, of user and kernel.
fn processor_s() -> f64 {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return f64::NAN };
    let of = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    of(usage.user_time()) + of(usage.system_time())
}


/// Files with the certificate and the key of the far relay.
fn certificate_files(files: &Path) -> [PathBuf; 2] {
    [files.join("far.der"), files.join("far.key")]
}
