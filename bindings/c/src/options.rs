//! Settings of a node that has not started yet.

use std::ffi::c_char;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ricochet::{Builder, ClusterKey, Config};

use crate::outcome::{Failure, guard, ricochet_result};
use crate::pointers::{give, handle_mut, take_back, text};

/// Settings of a node to be started.
pub struct ricochet_options {
    config: Config,
    keys: Vec<ClusterKey>,
}

impl ricochet_options {
    fn new(config: Config) -> Self {
        Self { config, keys: Vec::new() }
    }

    pub(crate) fn builder(&self) -> Builder {
        self.keys.iter().cloned().fold(Builder::from(self.config.clone()), Builder::key)
    }
}

/// Creates the default settings of a node that uses an interface, such as `eth0`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_options_new(
    interface: *const c_char,
    options: *mut *mut ricochet_options,
) -> ricochet_result {
    guard(|| {
        // SAFETY: the caller ensures what the header says of pointers.
        unsafe {
            let mut config = Config::default();
            text("interface", interface)?.clone_into(&mut config.node.interface);
            give("options", options, ricochet_options::new(config))
        }
    })
}

/// Reads settings from a TOML file, `node.toml` of the manual.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_options_load(
    file: *const c_char,
    options: *mut *mut ricochet_options,
) -> ricochet_result {
    guard(|| {
        // SAFETY: the caller ensures what the header says of pointers.
        unsafe {
            let config = Config::load(Path::new(text("file", file)?)).map_err(Failure::invalid)?;
            give("options", options, ricochet_options::new(config))
        }
    })
}

/// Reads settings from a text in the format of that file. Every setting of the manual can be made so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_options_parse(
    toml: *const c_char,
    options: *mut *mut ricochet_options,
) -> ricochet_result {
    guard(|| {
        // SAFETY: the caller ensures what the header says of pointers.
        unsafe {
            let config = Config::parse(text("toml", toml)?).map_err(Failure::invalid)?;
            give("options", options, ricochet_options::new(config))
        }
    })
}

/// Frees settings. Nodes that were started with them continue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_options_free(options: *mut ricochet_options) {
    guard(|| {
        // SAFETY: the caller ensures what the header says of pointers.
        unsafe { take_back(options) };
        Ok(())
    });
}

/// Changes settings.
///
/// # Safety
/// As for [`handle_mut`].
unsafe fn change(
    options: *mut ricochet_options,
    change: impl FnOnce(&mut ricochet_options) -> Result<(), Failure>,
) -> ricochet_result {
    // SAFETY: as this function.
    guard(|| change(unsafe { handle_mut("options", options) }?))
}

/// Sets the interface.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_options_interface(
    options: *mut ricochet_options,
    interface: *const c_char,
) -> ricochet_result {
    // SAFETY: the caller ensures what the header says of pointers.
    unsafe {
        change(options, |options| {
            text("interface", interface)?.clone_into(&mut options.config.node.interface);
            Ok(())
        })
    }
}

/// Sets the IP address to send from and to be reached at; by default the first of the interface.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_options_address(
    options: *mut ricochet_options,
    address: *const c_char,
) -> ricochet_result {
    // SAFETY: the caller ensures what the header says of pointers.
    unsafe {
        change(options, |options| {
            let given = text("address", address)?;
            let wrong = |_| Failure::invalid(format_args!("address: expected an IP address, saw {given:?}"));
            options.config.node.address = Some(given.parse::<IpAddr>().map_err(wrong)?);
            Ok(())
        })
    }
}

/// Sets the UDP port of the node; 0 for any free port. By default it is 7900 if that is free, otherwise any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_options_port(options: *mut ricochet_options, port: u16) -> ricochet_result {
    // SAFETY: the caller ensures what the header says of pointers.
    unsafe {
        change(options, |options| {
            options.config.node.port = Some(port);
            Ok(())
        })
    }
}

/// Sets whether the node sends a copy of each message to each member instead of using IP multicast.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_options_unicast(
    options: *mut ricochet_options,
    unicast: bool,
) -> ricochet_result {
    // SAFETY: the caller ensures what the header says of pointers.
    unsafe {
        change(options, |options| {
            options.config.node.unicast = unicast;
            Ok(())
        })
    }
}

/// Adds a seed address, `ADDRESS:PORT` of any live node of the cluster.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_options_seed(
    options: *mut ricochet_options,
    seed: *const c_char,
) -> ricochet_result {
    // SAFETY: the caller ensures what the header says of pointers.
    unsafe {
        change(options, |options| {
            options.config.membership.seeds.push(text("seed", seed)?.to_owned());
            Ok(())
        })
    }
}

/// Adds a cluster key, as text. The node signs with the first and accepts all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_options_key(
    options: *mut ricochet_options,
    key: *const c_char,
) -> ricochet_result {
    // SAFETY: the caller ensures what the header says of pointers.
    unsafe {
        change(options, |options| {
            options.keys.push(ClusterKey::parse(text("key", key)?).map_err(Failure::invalid)?);
            Ok(())
        })
    }
}

/// Sets the file with the cluster keys, of mode 0600, or 0640 if it belongs to root. The node reads it again
/// when it changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_options_key_file(
    options: *mut ricochet_options,
    file: *const c_char,
) -> ricochet_result {
    // SAFETY: the caller ensures what the header says of pointers.
    unsafe {
        change(options, |options| {
            options.config.key.file = Some(PathBuf::from(text("file", file)?));
            Ok(())
        })
    }
}

/// Sets the path of a Unix socket that `undrop multicast status` reads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_options_control(
    options: *mut ricochet_options,
    path: *const c_char,
) -> ricochet_result {
    // SAFETY: the caller ensures what the header says of pointers.
    unsafe {
        change(options, |options| {
            options.config.node.control = Some(PathBuf::from(text("path", path)?));
            Ok(())
        })
    }
}
