//! Messages to the service manager that started the process, by the protocol of `sd_notify(3)`.
//!
//! The manager names its socket in `NOTIFY_SOCKET`, and in `WATCHDOG_USEC` the longest time between two signs
//! of life. Without these variables nothing is sent. The loop itself sends the signs, so a loop that hangs
//! sends none.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::time::Duration;

/// Signs of life are sent this many times in the time that the manager allows.
const SIGNS: u64 = 3;

/// Time that a process needs to stop besides its work.
const STOP: Duration = Duration::from_secs(10);

/// The service manager of this process, if there is one.
#[derive(Debug, Default)]
pub struct Supervisor {
    manager: Option<(UnixDatagram, SocketAddr)>,
    limit: Option<Duration>,
    next_sign_us: u64,
    unsent: u64,
    /// Whether another process is the one that the manager hears.
    is_silent: bool,
}

impl Supervisor {
    /// Reads the variables that the manager has set.
    ///
    /// # Errors
    /// `NOTIFY_SOCKET` is not the name of a Unix socket, or the system refused a socket.
    pub fn from_environment() -> io::Result<Self> {
        let Some(name) = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Ok(Self::default());
        };
        let variable = |name| env::var(name).ok();
        let name = name.as_encoded_bytes();
        let limit = limit(variable("WATCHDOG_USEC").as_deref(), variable("WATCHDOG_PID").as_deref());
        Self::connect(name, limit)
    }

    fn connect(name: &[u8], limit: Option<Duration>) -> io::Result<Self> {
        let address = match name {
            [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
            [b'/', ..] => SocketAddr::from_pathname(String::from_utf8_lossy(name).as_ref())?,
            _ => {
                let seen = String::from_utf8_lossy(name);
                let text =
                    format!("NOTIFY_SOCKET: expected a name that begins with `/` or `@`, saw {seen:?}");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        };
        let socket = UnixDatagram::unbound()?;
        // A manager that does not read must not stop the loop.
        socket.set_nonblocking(true)?;
        Ok(Self { manager: Some((socket, address)), limit, ..Self::default() })
    }

    /// Sends nothing until [`Supervisor::speak`], because the manager hears only the process that it takes
    /// for the main one.
    pub fn be_silent(&mut self) {
        self.is_silent = true;
    }

    /// Ends the silence.
    pub fn speak(&mut self) {
        self.is_silent = false;
    }

    /// Reports that another process is the main one from here on, and is silent.
    pub fn name_main_process(&mut self, pid: u32) {
        self.send(&format!("MAINPID={pid}"));
        self.is_silent = true;
    }

    /// Returns the longest time between two signs of life that the manager allows.
    pub fn limit(&self) -> Option<Duration> {
        self.limit
    }

    /// Reports that the process does its work.
    pub fn ready(&mut self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// Reports the present state as a line for people.
    pub fn status(&mut self, status: &str) {
        self.send(&format!("STATUS={}", status.replace('\n', " ")));
    }

    /// Reports that a reload begins; [`Supervisor::ready`] ends it.
    pub fn reloading(&mut self, now_us: u64) {
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}"));
    }

    /// Reports that the process is about to end, after work that may take this long.
    pub fn stopping(&mut self, work: Duration) {
        let us = (work + STOP).as_micros();
        self.send(&format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={us}"));
    }

    /// Sends a sign of life if one is due. The loop calls this at each turn.
    pub fn turn(&mut self, now_us: u64) {
        let Some(limit) = self.limit.filter(|_| now_us >= self.next_sign_us) else { return };
        self.next_sign_us = now_us + limit.as_micros() as u64 / SIGNS;
        self.send("WATCHDOG=1");
    }

    fn send(&mut self, message: &str) {
        let Some((socket, address)) = self.manager.as_ref().filter(|_| !self.is_silent) else { return };
        if socket.send_to_addr(message.as_bytes(), address).is_err() {
            self.unsent += 1;
        }
    }

    /// Returns the number of messages that the manager's socket did not take.
    pub fn unsent(&self) -> u64 {
        self.unsent
    }
}

/// The time that the manager allows, unless it means another process.
fn limit(microseconds: Option<&str>, pid: Option<&str>) -> Option<Duration> {
    if pid.is_some_and(|pid| pid.parse() != Ok(process::id())) {
        return None;
    }
    microseconds?.parse().ok().filter(|&limit| limit > 0).map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(manager: &UnixDatagram) -> Option<String> {
        let mut message = [0; 200];
        let length = manager.recv(&mut message).ok()?;
        Some(String::from_utf8(message[..length].to_vec()).unwrap())
    }

    #[test]
    fn the_manager_is_told_each_step_and_hears_signs_of_life() {
        let path = env::temp_dir().join(format!("undrop-notify-{}", process::id()));
        let abstract_name = format!("undrop-notify-{}", process::id());
        let by_path = UnixDatagram::bind(&path).unwrap();
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let by_name = UnixDatagram::bind_addr(&address).unwrap();
        let names = [path.display().to_string(), format!("@{abstract_name}")];
        for (manager, name) in [by_path, by_name].iter().zip(names) {
            manager.set_nonblocking(true).unwrap();
            let mut supervisor =
                Supervisor::connect(name.as_bytes(), Some(Duration::from_micros(3_000))).unwrap();
            supervisor.ready("working");
            assert_eq!(received(manager).unwrap(), "READY=1\nSTATUS=working");
            for (now_us, sign) in [(5_000, true), (5_999, false), (6_000, true), (6_001, false)] {
                supervisor.turn(now_us);
                assert_eq!(received(manager), sign.then(|| "WATCHDOG=1".to_owned()), "at {now_us}");
            }
            supervisor.status("osaka: protected\nREADY=0");
            assert_eq!(received(manager).unwrap(), "STATUS=osaka: protected READY=0");
            supervisor.reloading(7_000);
            assert_eq!(received(manager).unwrap(), "RELOADING=1\nMONOTONIC_USEC=7000");
            supervisor.stopping(Duration::from_secs(5));
            assert_eq!(received(manager).unwrap(), "STOPPING=1\nEXTEND_TIMEOUT_USEC=15000000");
            supervisor.name_main_process(4_711);
            supervisor.stopping(Duration::from_secs(5));
            assert_eq!(received(manager).unwrap(), "MAINPID=4711");
            assert_eq!(received(manager), None, "it speaks for itself no more");
            supervisor.speak();
            supervisor.be_silent();
            supervisor.ready("working");
            supervisor.speak();
            supervisor.status("works");
            assert_eq!(received(manager).unwrap(), "STATUS=works");
            assert_eq!(supervisor.unsent(), 0);
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_manager_that_is_gone_or_does_not_read_stops_nothing() {
        let name = format!("undrop-notify-silent-{}", process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let mut supervisor =
            Supervisor::connect(format!("@{name}").as_bytes(), Some(Duration::from_micros(3))).unwrap();
        for now_us in 0..100_000 {
            supervisor.turn(now_us);
        }
        assert!(supervisor.unsent() > 0);
        drop(manager);
        let before = supervisor.unsent();
        supervisor.stopping(Duration::ZERO);
        assert_eq!(supervisor.unsent(), before + 1);
    }

    #[test]
    fn a_limit_for_another_process_or_none_is_no_limit() {
        let own = process::id().to_string();
        assert_eq!(limit(Some("2000000"), Some(&own)), Some(Duration::from_secs(2)));
        assert_eq!(limit(Some("2000000"), None), Some(Duration::from_secs(2)));
        for (microseconds, pid) in [
            (None, None),
            (Some("0"), None),
            (Some("soon"), None),
            (Some("7"), Some("1")),
            (Some("7"), Some("x")),
        ] {
            assert_eq!(limit(microseconds, pid), None);
        }
        assert!(Supervisor::connect(b"relative", None).is_err());
    }
}
