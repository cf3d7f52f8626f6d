//! Errors that name the failed step.

use std::io;

/// Returns an error that names the failed step and all causes, with the kind of the deepest cause.
pub fn step(what: &str, error: &(dyn std::error::Error + 'static)) -> io::Error {
    let mut text = format!("cannot {what}: {error}");
    let mut kind = io::ErrorKind::Other;
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            kind = error.kind();
        }
        cause = error.source();
        if let Some(cause) = cause {
            // some errors repeat their cause in their own text
            let cause = cause.to_string();
            if !text.contains(&cause) {
                text = format!("{text}: {cause}");
            }
        }
    }
    io::Error::new(kind, text)
}
