//! Errors that say which step failed.

use std::io;

/// Returns an error that says which step failed, with all its causes, and keeps the kind of the deepest.
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
