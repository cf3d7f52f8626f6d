//! Why a gateway cannot start.

use std::io;

/// What was attempted when starting, and why it failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The kernel refused a step.
    #[error("cannot {step}: {error}{}", remedy(.error))]
    Step {
        /// What was attempted.
        step: String,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// The core refused the configuration.
    #[error(transparent)]
    Core(#[from] maelstrom_core::ConfigError),
    /// Another gateway answers on the control socket.
    #[error("another gateway runs with control socket {0}; stop it or set another gateway.control")]
    Running(String),
}

impl StartError {
    pub(crate) fn new(step: impl Into<String>, error: io::Error) -> Self {
        Self::Step { step: step.into(), error }
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; a gateway needs CAP_NET_ADMIN, CAP_NET_RAW and, for the eBPF tap, CAP_BPF: run it as root or see \
             `undrop gateway check`"
        }
        io::ErrorKind::AddrInUse => "; another program uses that address",
        io::ErrorKind::AddrNotAvailable => "; no interface of this machine has that address",
        _ => "",
    }
}
