//! nf_tables, without the program `nft`: messages and the socket that sends them.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | attributes, batches, the socket |
//! | `expressions.rs` | expressions of rules |
//! | `table.rs` | a table that belongs to this process |

pub(crate) mod expressions;
mod table;

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::interface::{check, check_len};
use crate::netlink::word;
pub(crate) use table::{Chain, Table};
pub use table::{Ownership, probe};

/// `nlmsghdr`: length, kind, flags, sequence, port.
const HEADER: usize = 16;
/// `nfgenmsg`: family, version, resource.
const GENERAL: usize = 4;
// linux/netfilter/nfnetlink.h
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const NF_TABLES: u16 = 10;
// linux/netfilter.h
const INET: u8 = 1;
/// Flag of an attribute that contains others.
const NESTED: u16 = 0x8000;
/// Size of the buffer for one datagram of an answer. The kernel's are shorter.
const ANSWER_MAX: usize = 1 << 16;
/// Maximum number of datagrams in an answer: more than the largest table has.
const DATAGRAMS_MAX: usize = 4_096;

/// Attributes one after another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bytes(Vec<u8>);

impl Bytes {
    /// Appends an attribute with these bytes.
    pub(crate) fn bytes(mut self, kind: u16, data: &[u8]) -> Self {
        self.0.extend(((data.len() + 4) as u16).to_ne_bytes()); // in range: tables have short names
        self.0.extend(kind.to_ne_bytes());
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Appends a text, which ends with a zero byte.
    pub(crate) fn text(self, kind: u16, text: &str) -> Self {
        self.bytes(kind, &[text.as_bytes(), &[0]].concat())
    }

    /// Appends a number. Those of nf_tables are in network byte order.
    pub(crate) fn number(self, kind: u16, number: u32) -> Self {
        self.bytes(kind, &number.to_be_bytes())
    }

    /// Appends an attribute that contains others.
    pub(crate) fn nest(self, kind: u16, inner: &Self) -> Self {
        self.bytes(kind | NESTED, &inner.0)
    }

    /// Returns the attributes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// Appends other attributes.
    pub(crate) fn chain(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }
}

/// Messages that the kernel carries out together, or not at all.
#[derive(Debug)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// Place of the last message.
    last: usize,
}

impl Default for Batch {
    fn default() -> Self {
        let mut bytes = Vec::new();
        put_message(&mut bytes, BATCH_BEGIN, 0, 0, NF_TABLES, &[]);
        Self { bytes, last: 0 }
    }
}

impl Batch {
    /// Appends a message about the family inet.
    pub(crate) fn add(&mut self, kind: u16, flags: libc::c_int, attributes: &Bytes) {
        self.last = self.bytes.len();
        put_message(&mut self.bytes, NF_TABLES << 8 | kind, flags, INET, 0, &attributes.0);
    }

    /// The bytes of the batch, whose last message asks for an acknowledgement.
    fn finish(&self) -> Vec<u8> {
        let mut bytes = self.unfinished();
        put_message(&mut bytes, BATCH_END, 0, 0, NF_TABLES, &[]);
        bytes
    }

    /// The bytes of the batch without its end: the kernel judges such a batch and carries nothing of it out.
    fn unfinished(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let flags = (libc::NLM_F_ACK as u16) | word(bytes.get(self.last + 6..self.last + 8)).unwrap_or(0);
        bytes[self.last + 6..self.last + 8].copy_from_slice(&flags.to_ne_bytes());
        bytes
    }
}

/// Appends a message to netfilter.
pub(crate) fn put_message(
    to: &mut Vec<u8>,
    kind: u16,
    flags: libc::c_int,
    family: u8,
    resource: u16,
    attributes: &[u8],
) {
    let length = (HEADER + GENERAL + attributes.len()) as u32;
    to.extend(length.to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
    to.extend([0; 8]);
    to.extend([family, 0]);
    to.extend(resource.to_be_bytes());
    to.extend_from_slice(attributes);
}

/// A socket to nf_tables, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

impl Socket {
    pub(crate) fn open() -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers are passed.
        let fd = check(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_NETFILTER) })?;
        // SAFETY: the descriptor was just opened and has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sends a batch, and returns the kernel's first error.
    pub(crate) fn commit(&self, batch: &Batch) -> io::Result<()> {
        self.carry_out(&batch.finish())
    }

    /// Returns the kernel's first error about a batch, and changes nothing.
    pub(crate) fn rehearse(&self, batch: &Batch) -> io::Result<()> {
        self.carry_out(&batch.unfinished())
    }

    fn carry_out(&self, batch: &[u8]) -> io::Result<()> {
        self.send(batch)?;
        let mut acknowledged = false;
        self.receive(|kind, body| {
            if kind == libc::NLMSG_ERROR as u16 {
                acknowledged = true;
                verdict(body)?;
            }
            Ok(())
        })?;
        let silent = || io::Error::other("expected an acknowledgement from nf_tables, saw none");
        acknowledged.then_some(()).ok_or_else(silent)
    }

    /// Sends a request without attributes that changes nothing.
    pub(crate) fn ask(&self, kind: u16) -> io::Result<()> {
        let mut request = Vec::new();
        put_message(&mut request, NF_TABLES << 8 | kind, 0, INET, 0, &[]);
        self.send(&request)?;
        self.receive(|kind, body| if kind == libc::NLMSG_ERROR as u16 { verdict(body) } else { Ok(()) })
    }

    /// Counts the objects that the kernel lists.
    pub(crate) fn count(&self, kind: u16, attributes: &Bytes) -> io::Result<usize> {
        let mut request = Vec::new();
        put_message(&mut request, NF_TABLES << 8 | kind, libc::NLM_F_DUMP, INET, 0, &attributes.0);
        self.send(&request)?;
        let mut count = 0;
        let listed = self.receive(|kind, body| {
            if kind == libc::NLMSG_ERROR as u16 {
                return verdict(body);
            }
            count += usize::from(kind >> 8 == NF_TABLES);
            Ok(())
        });
        match listed {
            // There is no such table.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(0),
            other => other.map(|()| count),
        }
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let size = bytes.len() as libc::c_int * 2;
        let fd = self.0.as_raw_fd();
        // A small batch fits without this, and sending a large one fails without it.
        // SAFETY: the option's value outlives the call, and its size is given.
        let _ = unsafe {
            let len = size_of_val(&size) as libc::socklen_t;
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, (&raw const size).cast(), len)
        };
        // Without an address, the message goes to the kernel.
        // SAFETY: the bytes are readable memory of that length.
        check_len(unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), 0) }).map(drop)
    }

    /// Passes kind and body of each message that waits to `take`, and returns its first error.
    fn receive(&self, mut take: impl FnMut(u16, &[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut answer = vec![0_u8; ANSWER_MAX];
        let mut result = Ok(());
        for _ in 0..DATAGRAMS_MAX {
            let fd = self.0.as_raw_fd();
            // The kernel answers before `send` returns, and continues a list with each call, so that no call
            // waits.
            // SAFETY: the answer is writable memory of that length.
            let received = check_len(unsafe {
                libc::recv(fd, answer.as_mut_ptr().cast(), answer.len(), libc::MSG_DONTWAIT)
            });
            let length = match received {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return result,
                Err(error) => return result.and(Err(error)),
            };
            for (kind, body) in messages(&answer[..length]) {
                let taken = take(kind, body);
                result = result.and(taken);
            }
        }
        result
    }
}

/// Iterates over kind and body of the messages in a datagram.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let header = bytes.first_chunk::<HEADER>()?;
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let body = bytes.get(HEADER..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    })
}

/// The result that an acknowledgement states.
pub(crate) fn verdict(body: &[u8]) -> io::Result<()> {
    match body.first_chunk::<4>().map_or(0, |bytes| i32::from_ne_bytes(*bytes)) {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error.wrapping_neg())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attributes;

    #[test]
    fn attributes_are_read_as_they_were_written() {
        let inner = Bytes::default().number(1, 0x0102_0304);
        let bytes = Bytes::default().text(1, "ab").nest(4, &inner).bytes(7, &[9]);
        let read: Vec<_> = attributes(&bytes.0).collect();
        assert_eq!(read, [(1, &b"ab\0"[..]), (4, &[8, 0, 1, 0, 1, 2, 3, 4]), (7, &[9])]);
    }

    #[test]
    fn a_batch_asks_for_one_acknowledgement_and_its_messages_are_whole() {
        let mut batch = Batch::default();
        for kind in [0, 3] {
            batch.add(kind, libc::NLM_F_CREATE, &Bytes::default().text(1, "undrop"));
        }
        let bytes = batch.finish();
        let kinds: Vec<u16> = messages(&bytes).map(|(kind, _)| kind).collect();
        assert_eq!(kinds, [BATCH_BEGIN, 0xa00, 0xa03, BATCH_END]);
        let mut rest = &bytes[..];
        let mut asking = Vec::new();
        while let Some(flags) = word(rest.get(6..8)) {
            asking.push(flags & libc::NLM_F_ACK as u16 != 0);
            let length = u32::from_ne_bytes(rest[..4].try_into().unwrap()) as usize;
            rest = &rest[length..];
        }
        assert_eq!(asking, [false, false, true, false]);
    }

    #[test]
    fn answers_cut_short_end_the_iteration() {
        let mut bytes = Vec::new();
        put_message(&mut bytes, 2, 0, INET, 0, &(-libc::EPERM).to_ne_bytes());
        assert_eq!(messages(&bytes).count(), 1);
        assert!((0..bytes.len()).all(|len| messages(&bytes[..len]).count() == 0));
        assert_eq!(verdict(&(-libc::EPERM).to_ne_bytes()).unwrap_err().raw_os_error(), Some(libc::EPERM));
        assert!(verdict(&[]).is_ok() && verdict(&[0; 4]).is_ok());
        assert!(verdict(&i32::MIN.to_ne_bytes()).is_err());
    }
}
