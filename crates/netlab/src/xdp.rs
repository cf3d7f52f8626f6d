//! An XDP program that passes all packets on (`bpf/pass.c`), for tests of what must notice such programs.

use std::io;

use aya::Ebpf;
use aya::programs::{Xdp, XdpMode};
use netio::bpf::raise_locked_memory;

use crate::error::LabError;
use crate::namespace::Namespace;

/// `bpf/pass.c`, compiled.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/pass.bpf.o");

/// An XDP program at an interface, in the kernel's generic path. Dropping it removes it.
#[derive(Debug)]
pub struct XdpProgram {
    _object: Ebpf,
}

impl XdpProgram {
    /// Attaches the program to an interface.
    ///
    /// # Errors
    /// If there is no such interface, it has an XDP program, or the kernel refuses programs.
    pub fn attach(namespace: &Namespace, interface: &str) -> Result<Self, LabError> {
        let attach = || -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
            raise_locked_memory();
            let mut object = Ebpf::load(OBJECT)?;
            let program = object.program_mut("undrop_pass").ok_or("the object has no program")?;
            let program: &mut Xdp = program.try_into()?;
            program.load()?;
            program.attach(interface, XdpMode::Skb)?;
            Ok(Self { _object: object })
        };
        namespace.run(attach).map_err(|e| {
            let what = format!("cannot attach an XDP program to {interface} in {:?}", namespace.label());
            LabError::system(what, io::Error::other(e))
        })
    }
}
