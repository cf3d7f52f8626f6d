//! The size of a terminal, which only the kernel knows.

use std::os::fd::{AsFd, AsRawFd as _};

use crate::interface::check;

/// Returns the width of a terminal in columns; `None` if the descriptor is no terminal, or one without a
/// size.
pub fn columns(terminal: &impl AsFd) -> Option<u16> {
    Some(size(terminal)?.ws_col).filter(|&columns| columns > 0)
}

/// Returns the height of a terminal in rows; `None` as for [`columns`].
pub fn rows(terminal: &impl AsFd) -> Option<u16> {
    Some(size(terminal)?.ws_row).filter(|&rows| rows > 0)
}

fn size(terminal: &impl AsFd) -> Option<libc::winsize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    let descriptor = terminal.as_fd().as_raw_fd();
    // SAFETY: the kernel writes one `winsize`, and `size` lives through the call.
    check(unsafe { libc::ioctl(descriptor, libc::TIOCGWINSZ, &raw mut size) }).ok()?;
    Some(size)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{FromRawFd as _, OwnedFd};
    use std::ptr::null_mut;

    use super::*;

    #[test]
    fn a_terminal_has_a_size_and_a_file_has_none() {
        let size = libc::winsize { ws_row: 24, ws_col: 83, ws_xpixel: 0, ws_ypixel: 0 };
        let mut ends = [-1; 2];
        let [program, screen] = &mut ends;
        // SAFETY: both descriptors and the size live through the call, and the name is not asked for.
        check(unsafe { libc::openpty(program, screen, null_mut(), null_mut(), &raw const size) }).unwrap();
        // SAFETY: the descriptors were just opened and have no other owner.
        let [_program, screen] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        assert_eq!((rows(&screen), columns(&screen)), (Some(24), Some(83)));
        let file = File::open("/dev/null").unwrap();
        assert_eq!((rows(&file), columns(&file)), (None, None));
        let unknown = libc::winsize { ws_row: 0, ws_col: 0, ..size };
        // SAFETY: the kernel reads one `winsize`, which lives through the call.
        check(unsafe { libc::ioctl(screen.as_raw_fd(), libc::TIOCSWINSZ, &raw const unknown) }).unwrap();
        assert_eq!((rows(&screen), columns(&screen)), (None, None), "a terminal that states no size");
    }
}
