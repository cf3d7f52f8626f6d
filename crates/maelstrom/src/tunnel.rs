//! The device of the tunnel: by it packets leave for peers in tunnel mode, and those of their sites come.
//!
//! The device has offloads, so that one system call moves a whole super-packet. It disappears with the
//! process, however that ends, and its routes with it (`routes.rs`). `guard.rs` decides which ones are left.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use maelstrom_core::Schedule;
use netio::Offload;
use netio::coalesce::Coalescer;
use netio::identification::Identifications;
use netio::tun::{BUFFER_LEN, Tun, TunOptions};
use tracing::{debug, info};

use crate::config::{GatewayConfig, Mode};
use crate::error::StartError;
use crate::passive::Passive;

/// Number of packets that wait in the device for this process: those of 40 ms at 1 Gbit/s.
const QUEUE: u32 = 4_096;

/// The open device.
pub(crate) struct Tunnel {
    tun: Tun,
    buffer: Box<[u8]>,
    ids: Identifications,
    coalescer: Coalescer,
    /// Writes that the kernel refused.
    refused: u64,
}

/// Whether the file has a peer in tunnel mode.
pub(crate) fn is_wanted(config: &GatewayConfig) -> bool {
    config.peers.iter().any(|peer| peer.mode == Mode::Tunnel)
}

/// Name of the device, if the file has peers in tunnel mode. Without them, another gateway may have it.
pub(crate) fn device(config: &GatewayConfig) -> Option<String> {
    is_wanted(config).then(|| config.gateway.tunnel.clone())
}

/// Longest packet that travels with its repairs in datagrams of `wan_mtu` bytes at most, over IPv6 or not.
pub(crate) fn inner_mtu(schedule: &Schedule, wan_mtu: usize, ipv6: bool) -> usize {
    wan_mtu.saturating_sub(schedule.overhead_toward(true, ipv6))
}

impl Tunnel {
    /// Creates the device for packets of up to `mtu` bytes, without routes.
    ///
    /// # Errors
    /// The step that failed, with its remedy.
    pub(crate) fn open(config: &GatewayConfig, mtu: usize) -> Result<Self, StartError> {
        let name = &config.gateway.tunnel;
        let mtu = u32::try_from(mtu).unwrap_or(u32::MAX);
        let options = TunOptions { offload: true, mtu: Some(mtu), transmit_queue: Some(QUEUE), up: true };
        let tun = Tun::open(name, &options)
            .map_err(|error| StartError::new(format!("create TUN device {name}"), error))?;
        Ok(Self::of(tun))
    }

    /// Takes the device of another process.
    ///
    /// # Errors
    /// The step that failed, with its remedy.
    pub(crate) fn adopt(file: OwnedFd) -> Result<Self, StartError> {
        let failed = |error| StartError::new("take the device of the tunnel", error);
        let tun = Tun::adopt(file, true).map_err(failed)?;
        Ok(Self::of(tun))
    }

    fn of(tun: Tun) -> Self {
        let coalescer = Coalescer::new(tun.takes_udp_segments()).in_order();
        let buffer = vec![0; BUFFER_LEN].into_boxed_slice();
        Self { tun, buffer, ids: Identifications::new(), coalescer, refused: 0 }
    }

    /// Sets the longest packet that hosts may send by the device, in bytes.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn set_mtu(&self, mtu: usize) -> Result<(), StartError> {
        let (mtu, name) = (u32::try_from(mtu).unwrap_or(u32::MAX), self.tun.name());
        let failed = |error| StartError::new(format!("set the MTU of {name} to {mtu}"), error);
        let present = self.tun.interface().mtu().map_err(failed)?;
        if mtu != present {
            self.tun.interface().set_mtu(mtu).map_err(failed)?;
            info!("the MTU of {name} is {mtu} now, and was {present}");
        }
        Ok(())
    }

    /// Reads a packet or super-packet for a peer; `None` if none waits.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn recv(&mut self) -> io::Result<Option<(Offload, &[u8])>> {
        let Self { tun, buffer, ids, .. } = self;
        let Some((mut offload, packet)) = tun.recv(buffer)? else { return Ok(None) };
        ids.note(packet, &mut offload);
        Ok(Some((offload, packet)))
    }

    /// Hands a packet of a far site to the kernel, at the latest with [`Tunnel::flush`].
    pub(crate) fn send(&mut self, packet: &[u8]) {
        let Self { tun, coalescer, refused, .. } = self;
        coalescer.push(packet, &mut |offload, bytes| write(tun, refused, offload, bytes));
    }

    /// Hands over the packets that wait for others of their flow.
    pub(crate) fn flush(&mut self) {
        let Self { tun, coalescer, refused, .. } = self;
        coalescer.flush(&mut |offload, bytes| write(tun, refused, offload, bytes));
    }

    /// Number of packets and super-packets that the kernel refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    pub(crate) fn tun(&self) -> &Tun {
        &self.tun
    }
}

impl Passive {
    /// Step 3 of the loop, for the tunnel: sends the packets that wait in its device.
    pub(crate) fn drain_tunnel(&mut self) {
        if self.ports.outlets.is_silent {
            // Another process reads it.
            self.fills_tunnel = false;
            return;
        }
        match self.engine.drain_tunnel(&mut self.ports.outlets) {
            Ok(more) => self.fills_tunnel = more,
            Err(error) => {
                // The device is checked regularly (`interfaces.rs`).
                debug!(%error, "cannot read the device of the tunnel");
                self.fills_tunnel = false;
            }
        }
    }
}

impl AsFd for Tunnel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tun.as_fd()
    }
}

fn write(tun: &Tun, refused: &mut u64, offload: &Offload, bytes: &[u8]) {
    let is_taken = tun.send_super(offload, &[IoSlice::new(bytes)]);
    *refused += u64::from(!is_taken.unwrap_or(false));
}
