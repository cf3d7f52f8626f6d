//! Random bytes of the kernel.

use std::io;

use maelstrom_core::Entropy;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::error::StartError;

/// Draws random bytes from the kernel's random source.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], StartError> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| {
        StartError::new("read random bytes", io::Error::other("the kernel's random source failed"))
    })?;
    Ok(bytes)
}

/// Returns the kernel's random source, which is asked again for each token and nonce: clones of a virtual
/// machine get different bytes.
pub(crate) fn entropy() -> Result<Entropy, StartError> {
    random::<32>()?;
    let source = SystemRandom::new();
    Ok(Entropy::new(move |bytes| {
        source.fill(bytes).expect("the kernel's random source does not fail once it has worked");
    }))
}
