//! `undrop gateway capture`: what leaves and comes at a gateway, with a comment on each packet.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use maelstrom::capture::{self, Limits};

use super::status::{Socket, remedy};
use crate::failure::Advice as _;
use crate::interrupt::{EXIT_INTERRUPTED, Interrupt};
use crate::output;

const EXAMPLES: &str = "\
Examples:
  undrop gateway capture --out gateway.pcapng
  undrop gateway capture --out gateway.pcapng --seconds 60 --packets 1000000
  wireshark -X lua_script:ops/undrop.lua gateway.pcapng
  tshark -r gateway.pcapng -Y 'frame.comment contains \"lost\"' -T fields -e frame.comment";

/// Kinds of blocks in the file.
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
/// Position of the number of packets that are missing, in a block of statistics.
const DROPPED_AT: usize = 36;
/// Length of a block in bytes, at most: that of a packet, and more.
const BLOCK_MAX: usize = 1 << 20;
/// Interval between looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(200);

/// Write what leaves and comes at the gateway to a file for Wireshark, with a comment on each packet.
///
/// The file has the packets of the sites that leave and arrive, the datagrams of the repair channel, and the
/// packets that were recovered. The comment of a recovered packet names the repair that brought it back, and
/// its delay. The capture ends at the first of its limits, by Ctrl-C, or when the gateway reads another
/// configuration. Packets that the gateway cannot hand over in time are left out and counted. Only root and
/// the user of the gateway may capture, one at a time. A file that exists is replaced once the gateway has
/// granted the capture, and only its owner may read it then.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    socket: Socket,
    /// File of the capture, in the format pcapng
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Length of the capture in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=Limits::MAX.seconds))]
    seconds: u64,
    /// Maximum number of packets
    #[arg(long, value_name = "PACKETS", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=Limits::MAX.packets))]
    packets: u64,
    /// Maximum number of megabytes of packets
    #[arg(long, value_name = "MB", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=4_000))]
    megabytes: u64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let control = args.socket.path()?;
    let interrupt = Interrupt::listen().context("cannot listen for Ctrl-C")?;
    let limits = Limits { packets: args.packets, bytes: args.megabytes * 1_000_000, seconds: args.seconds };
    let stream = capture::begin(&control, &limits).or_else(|error| {
        let remedy = remedy(&error);
        Err(error).advise(remedy)
    })?;
    stream.set_read_timeout(Some(LOOK)).context("cannot wait for packets")?;
    let shown = args.out.display();
    let copied = copy(stream, &args.out, || interrupt.is_requested())
        .with_context(|| format!("cannot copy the capture to `{shown}`"))?;
    if copied.blocks == 0 && interrupt.is_requested() {
        output::note("stopped before the gateway granted the capture");
        return Ok(ExitCode::from(EXIT_INTERRUPTED));
    }
    if copied.blocks == 0 {
        return Err(anyhow!("the gateway grants no capture")).advise(
            "wait until another capture has ended, and run this command as root or as the user of the gateway",
        );
    }
    output::line(&format!("{} packets are in {shown}", copied.packets))?;
    match copied.dropped {
        Some(0) => {}
        Some(dropped) => output::note(format!("{dropped} more were left out, because they came too fast")),
        None if interrupt.is_requested() => {}
        None => output::note("the gateway has ended the capture before its time"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Counts of a copied file.
#[derive(Debug, Default)]
struct Copied {
    blocks: u64,
    packets: u64,
    /// Number of packets that are missing, if the file says so.
    dropped: Option<u64>,
}

/// Copies whole blocks to a file until the stream ends, or until the user stops.
fn copy(mut stream: impl Read, path: &Path, is_over: impl Fn() -> bool) -> io::Result<Copied> {
    let (mut copied, mut waiting, mut room) = (Copied::default(), Vec::new(), vec![0; 1 << 16]);
    let mut file = None;
    while !is_over() {
        match stream.read(&mut room) {
            Ok(0) => break,
            Ok(length) => waiting.extend_from_slice(&room[..length]),
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => continue,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // A gateway that grants nothing does not read the request.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => return Err(error),
        }
        let mut rest = &waiting[..];
        while let Some(block) = first_block(rest) {
            copied.on_block(block);
            rest = &rest[block.len()..];
        }
        let whole = waiting.len() - rest.len();
        if rest.len() > BLOCK_MAX {
            return Err(io::Error::other("expected the blocks of a capture, saw other bytes"));
        }
        // Another process may still write to the file, until a block shows that the gateway grants this one.
        if file.is_none() && whole > 0 {
            file = Some(create(path)?);
        }
        if let Some(file) = &mut file {
            file.write_all(&waiting[..whole])?;
        }
        waiting.drain(..whole);
    }
    Ok(copied)
}

/// Creates the file, or empties the one that exists. The contents of packets are nobody else's business.
fn create(path: &Path) -> io::Result<File> {
    const MODE: u32 = 0o600;
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(MODE).open(path)?;
    // A device keeps its permissions, and so does a file that nobody else can read.
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(MODE))?;
    }
    Ok(file)
}

/// Returns the first block, if it is whole.
fn first_block(bytes: &[u8]) -> Option<&[u8]> {
    let length = u32::from_le_bytes(*bytes.get(4..)?.first_chunk()?) as usize;
    bytes.get(..length.max(12))
}

impl Copied {
    fn on_block(&mut self, block: &[u8]) {
        self.blocks += 1;
        match block.first_chunk().map(|kind| u32::from_le_bytes(*kind)) {
            Some(PACKET) => self.packets += 1,
            Some(STATISTICS) => {
                let dropped = block.get(DROPPED_AT..).and_then(|value| value.first_chunk());
                self.dropped = dropped.map(|value| u64::from_le_bytes(*value));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process};

    use super::*;

    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u32 + 12).to_le_bytes();
        [&kind.to_le_bytes()[..], &length, body, &length].concat()
    }

    #[test]
    fn blocks_are_counted_and_a_part_of_one_waits_for_the_rest() {
        let (mut copied, packet) = (Copied::default(), block(PACKET, &[0; 20]));
        assert_eq!(first_block(&packet[..31]), None);
        assert_eq!(first_block(&[&packet[..], &[1, 2, 3]].concat()), Some(&packet[..]));
        copied.on_block(&packet);
        // Interface and time, then the options: packets seen, and packets missing.
        let options =
            [&[4, 0, 8, 0][..], &12_u64.to_le_bytes(), &[5, 0, 8, 0], &7_u64.to_le_bytes()].concat();
        copied.on_block(&block(STATISTICS, &[&[0; 12][..], &options, &[0; 4]].concat()));
        assert_eq!((copied.blocks, copied.packets, copied.dropped), (2, 1, Some(7)));
    }

    #[test]
    fn a_file_keeps_its_contents_until_the_first_block_and_is_then_private() {
        let path = env::temp_dir().join(format!("undrop-capture-{}.pcapng", process::id()));
        fs::write(&path, "an earlier capture, longer than the next one").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let packet = block(PACKET, &[0; 20]);
        // A gateway that grants nothing closes the stream; one that fails may leave a part of a block.
        for refused in [&[][..], &packet[..31]] {
            assert_eq!(copy(refused, &path, || false).unwrap().blocks, 0);
            assert!(fs::read(&path).unwrap().starts_with(b"an earlier"), "{} bytes", refused.len());
        }
        assert_eq!(copy(&packet[..], &path, || true).unwrap().blocks, 0, "the user has stopped it");
        assert!(fs::read(&path).unwrap().starts_with(b"an earlier"));
        assert_eq!(copy(&packet[..], &path, || false).unwrap().packets, 1);
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!((fs::read(&path).unwrap(), mode), (packet, 0o600));
        fs::remove_file(&path).unwrap();
    }
}
