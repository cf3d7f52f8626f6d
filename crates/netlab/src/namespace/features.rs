//! Features of a device's driver, by the netlink interface of ethtool.

use std::io;

use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};

use super::handle::Namespace;
use crate::error::LabError;

// linux/genetlink.h, linux/ethtool_netlink.h
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const SET_FEATURES: u8 = 12;
const HEADER: u16 = 1;
const WANTED: u16 = 3;
const DEVICE_NAME: u16 = 2;
const BITS: u16 = 3;
const BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;

const NESTED: u16 = 0x8000;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const ERROR: u16 = 2;
/// Headers of netlink and of generic netlink.
const HEADERS_LEN: usize = 20;

impl Namespace {
    /// Switches a feature of a device on or off, by the name that `ethtool --show-features` shows in the
    /// kernel: for example `rx-gro`.
    ///
    /// # Errors
    /// If there is no such device or feature.
    pub fn set_feature(&self, interface: &str, feature: &str, on: bool) -> Result<(), LabError> {
        let name = attribute(DEVICE_NAME, &terminated(interface));
        let value = if on { attribute(BIT_VALUE, &[]) } else { Vec::new() };
        let bit = [attribute(BIT_NAME, &terminated(feature)), value].concat();
        let bits = attribute(BITS | NESTED, &attribute(BIT | NESTED, &bit));
        let body = [attribute(HEADER | NESTED, &name), attribute(WANTED | NESTED, &bits)].concat();
        self.run(|| {
            let family = family("ethtool")?;
            let answer = talk(family, SET_FEATURES, &body)?;
            verdict(&answer)
        })
        .map_err(|e| {
            LabError::system(format!("cannot set {feature} of {interface} in {:?}", self.label()), e)
        })
    }
}

fn family(name: &str) -> io::Result<u16> {
    let answer = talk(CONTROL, GET_FAMILY, &attribute(FAMILY_NAME, &terminated(name)))?;
    let mut rest = answer.get(HEADERS_LEN..).unwrap_or_default();
    while let Some(&[l0, l1, k0, k1]) = rest.first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        if u16::from_ne_bytes([k0, k1]) == FAMILY_ID
            && let Some(&[i0, i1]) = rest.get(4..6)
        {
            return Ok(u16::from_ne_bytes([i0, i1]));
        }
        rest = rest.get(length.max(4).next_multiple_of(4)..).unwrap_or_default();
    }
    Err(io::Error::new(io::ErrorKind::Unsupported, format!("the kernel has no netlink family {name:?}")))
}

/// Sends a request and returns the first datagram of the answer.
fn talk(family: u16, command: u8, body: &[u8]) -> io::Result<Vec<u8>> {
    let mut socket = Socket::new(NETLINK_GENERIC)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let length = (HEADERS_LEN + body.len()) as u32;
    let mut request = [&length.to_ne_bytes()[..], &family.to_ne_bytes()].concat();
    request.extend((REQUEST | ACKNOWLEDGE).to_ne_bytes());
    request.extend([0; 8]);
    request.extend([command, 1, 0, 0]);
    request.extend_from_slice(body);
    socket.send(&request, 0)?;
    Ok(socket.recv_from_full()?.0)
}

/// Reads an acknowledgement. An answer with content is a success.
fn verdict(answer: &[u8]) -> io::Result<()> {
    match answer {
        [_, _, _, _, k0, k1, ..] if u16::from_ne_bytes([*k0, *k1]) != ERROR => Ok(()),
        _ => match answer.get(16..20).and_then(|code| code.try_into().ok()).map(i32::from_ne_bytes) {
            Some(0) => Ok(()),
            Some(code) => Err(io::Error::from_raw_os_error(-code)),
            None => Err(io::Error::new(io::ErrorKind::InvalidData, "a short answer from the kernel")),
        },
    }
}

fn attribute(kind: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = ((data.len() + 4) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn terminated(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}
