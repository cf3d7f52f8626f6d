//! Why a gateway cannot start.

use std::io;

use daemon::control::ControlError;

use crate::config::memory::{Excess, Memory, mebibytes};

/// The step of the start that failed, and the reason.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The kernel refused a step.
    #[error("cannot {step}: {error}{}", remedy(.error))]
    Step {
        /// The step.
        step: String,
        /// The kernel's reason.
        #[source]
        error: io::Error,
    },
    /// The core refused the configuration.
    #[error(transparent)]
    Core(#[from] maelstrom_core::ConfigError),
    /// The configuration needs more memory than a gateway may have.
    #[error(
        "{what} would need about {needed}, more than {limit} ({origin}); {}",
        remedies.join("; ")
    )]
    Memory {
        /// The part that needs the memory.
        what: &'static str,
        /// The need, in words.
        needed: String,
        /// The limit, in words.
        limit: String,
        /// The cause of the need.
        origin: String,
        /// Settings that lower it.
        remedies: Vec<&'static str>,
    },
    /// Another gateway answers on the control socket.
    #[error(
        "expected an unused control socket, saw another gateway on {0}; stop that gateway, or set another \
         `gateway.control`"
    )]
    Running(String),
}

impl From<ControlError> for StartError {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::System { path, source } => {
                Self::new(format!("listen on control socket {}", path.display()), source)
            }
            ControlError::Running(path) => Self::Running(path.display().to_string()),
            other => Self::new("open the control socket", io::Error::other(other)),
        }
    }
}

impl StartError {
    pub(crate) fn new(step: impl Into<String>, error: io::Error) -> Self {
        Self::Step { step: step.into(), error }
    }

    pub(crate) fn too_much(memory: &Memory, excess: &Excess) -> Self {
        let (needed, limit) = (mebibytes(excess.bytes), mebibytes(excess.bytes_max));
        Self::Memory {
            what: excess.what,
            needed,
            limit,
            origin: memory.origin(),
            remedies: memory.remedies(),
        }
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; a gateway needs CAP_NET_ADMIN, CAP_NET_RAW and, for the eBPF tap, CAP_BPF: run it as root or see \
             `undrop gateway check`"
        }
        io::ErrorKind::ResourceBusy => "; another program has it: stop that, or choose another name",
        io::ErrorKind::AddrInUse => "; another program uses this address",
        io::ErrorKind::AddrNotAvailable => "; no interface of this machine has this address",
        _ => "",
    }
}
