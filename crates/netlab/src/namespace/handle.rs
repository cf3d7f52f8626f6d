//! Handle of a network namespace and its keeper thread.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use netio::interface::Interface;
use nix::sched::{CloneFlags, setns, unshare};

use crate::error::LabError;

/// Path of the calling thread's namespace; `/proc/self` would be that of the first thread.
const OWN_NAMESPACE: &str = "/proc/thread-self/ns/net";

/// A network namespace. Clones are handles of the same one; it vanishes with the last.
///
/// ```
/// # fn main() -> Result<(), netlab::LabError> {
/// # if !netlab::privilege::namespaces_or_skip("Namespace example") { return Ok(()); }
/// use netlab::Namespace;
/// let (a, b) = (Namespace::create("a")?, Namespace::create("b")?);
/// a.add_veth("eth0", &b, "eth0", 1500)?;
/// a.add_address("eth0", "10.0.0.1/24".parse().unwrap())?;
/// b.add_address("eth0", "10.0.0.2/24".parse().unwrap())?;
/// let socket = b.run(|| std::net::UdpSocket::bind("10.0.0.2:0")).unwrap();
/// # drop(socket); Ok(()) }
/// ```
#[derive(Clone)]
pub struct Namespace {
    inner: Arc<Inner>,
}

struct Inner {
    label: String,
    file: File,
    keeper: Option<Keeper>,
}

/// Thread that stays inside. It starts the children, because a child dies with the thread that started it.
struct Keeper {
    jobs: mpsc::Sender<Job>,
    thread: JoinHandle<()>,
}

type Job = Box<dyn FnOnce() + Send>;

impl Namespace {
    /// Makes a new, empty namespace with its loopback device up. `label` is for messages only.
    ///
    /// # Errors
    /// Without `CAP_SYS_ADMIN` (see [`crate::privilege`]), or if the kernel's limit of namespaces is reached.
    pub fn create(label: &str) -> Result<Self, LabError> {
        let enter = || {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Interface::open("lo")?.set_up(true)
        };
        let namespace = Self::keep(label, enter)
            .map_err(|e| LabError::system(format!("cannot create the network namespace {label:?}"), e))?;
        // A new namespace has no duplicates of our addresses, and detecting them would delay IPv6 by two
        // seconds. A kernel without IPv6 lacks this setting.
        let _ = namespace.sysctl("net.ipv6.conf.default.accept_dad", "0");
        Ok(namespace)
    }

    /// Opens an existing namespace: a name below `/run/netns`, `pid:N` for that of a process, `self` for our
    /// own, or a path (anything with a `/`).
    ///
    /// # Errors
    /// If there is no such namespace, or this process must not enter it.
    pub fn open(spec: &str) -> Result<Self, LabError> {
        let path = path_of(spec)?;
        let what = || format!("cannot enter the network namespace {spec:?} ({path})");
        let file = File::open(&path).map_err(|e| LabError::system(what(), e))?;
        Self::keep(spec, move || Ok(setns(file, CloneFlags::CLONE_NEWNET)?))
            .map_err(|e| LabError::system(what(), e))
    }

    fn keep(label: &str, enter: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<Self> {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let (sender, receiver) = mpsc::sync_channel(1);
        let thread = thread::Builder::new().name(thread_name("ns", label)).spawn(move || {
            let entered = enter().and_then(|()| File::open(OWN_NAMESPACE));
            let failed = entered.is_err();
            if sender.send(entered).is_err() || failed {
                return;
            }
            for job in inbox {
                job();
            }
        })?;
        let file =
            receiver.recv().unwrap_or_else(|_| Err(io::Error::other("the keeper thread ended early")))?;
        Ok(Self {
            inner: Arc::new(Inner { label: label.to_owned(), file, keeper: Some(Keeper { jobs, thread }) }),
        })
    }

    /// Runs `work` on a thread inside the namespace and returns its result. Sockets made there belong to the
    /// namespace.
    ///
    /// # Panics
    /// With the panic of `work`, or if the system is out of threads. The keeper has entered this namespace,
    /// so entering it again cannot be refused.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            setns(&self.inner.file, CloneFlags::CLONE_NEWNET).unwrap_or_else(|e| {
                panic!("cannot enter the network namespace {:?} again: {e}", self.inner.label)
            });
            work()
        };
        let result = thread::scope(|scope| {
            thread::Builder::new()
                .name(thread_name("in", &self.inner.label))
                .spawn_scoped(scope, inside)
                .map(thread::ScopedJoinHandle::join)
        });
        match result {
            Ok(Ok(value)) => value,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(e) => panic!("cannot start a thread in the network namespace {:?}: {e}", self.inner.label),
        }
    }

    /// Runs `work` on the keeper thread, which lives as long as the namespace, and waits for its result.
    pub(super) fn run_on_keeper<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let job: Job = Box::new(move || {
            // The caller waits for this answer, so the receiver exists.
            let _ = sender.send(work());
        });
        let ended = || io::Error::other("the keeper thread has ended");
        let keeper = self.inner.keeper.as_ref().expect("the keeper ends with the last handle");
        keeper.jobs.send(job).map_err(|_| ended())?;
        receiver.recv().map_err(|_| ended())
    }

    /// Sets a kernel parameter of this namespace, e.g. `net.ipv4.ip_forward` to `1`.
    ///
    /// # Errors
    /// If the kernel has no such parameter or refuses the value.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<(), LabError> {
        // The kernel resolves /proc/sys/net by the network namespace of the opening thread.
        let path = sysctl_path(key);
        self.run(|| std::fs::write(&path, value)).map_err(|e| {
            LabError::system(format!("cannot set {key} to {value:?} in {:?}", self.inner.label), e)
        })
    }

    /// Returns a kernel parameter of this namespace, without the line end.
    ///
    /// # Errors
    /// If the kernel has no such parameter.
    pub fn read_sysctl(&self, key: &str) -> Result<String, LabError> {
        let path = sysctl_path(key);
        self.run(|| std::fs::read_to_string(&path))
            .map(|text| text.trim_end().to_owned())
            .map_err(|e| LabError::system(format!("cannot read {key} in {:?}", self.inner.label), e))
    }

    /// Returns the label given at creation, or the specification by which it was opened.
    pub fn label(&self) -> &str {
        &self.inner.label
    }

    /// Returns the kernel's number of the namespace, as in `net:[4026531840]`.
    pub fn inode(&self) -> u64 {
        self.inner.file.metadata().map_or(0, |metadata| metadata.ino())
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.file.as_fd()
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Namespace({:?}, net:[{}])", self.inner.label, self.inode())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(Keeper { jobs, thread }) = self.keeper.take() {
            drop(jobs);
            // The keeper only starts programs; a panic has already been printed.
            let _ = thread.join();
        }
    }
}

fn path_of(spec: &str) -> Result<String, LabError> {
    if spec == "self" {
        return Ok(OWN_NAMESPACE.to_owned());
    }
    if let Some(pid) = spec.strip_prefix("pid:") {
        let pid: u32 = pid
            .parse()
            .map_err(|_| LabError::Invalid(format!("expected pid:NUMBER for a namespace, saw {spec:?}")))?;
        return Ok(format!("/proc/{pid}/ns/net"));
    }
    if spec.contains('/') {
        return Ok(spec.to_owned());
    }
    if spec.is_empty() {
        return Err(LabError::Invalid(
            "expected a namespace (NAME, pid:NUMBER, self or a path), saw nothing".to_owned(),
        ));
    }
    Ok(format!("/run/netns/{spec}"))
}

fn sysctl_path(key: &str) -> String {
    // An interface name may contain a dot; such a key must be written with slashes.
    let key = if key.contains('/') { key.to_owned() } else { key.replace('.', "/") };
    format!("/proc/sys/{key}")
}

/// Returns a name of at most 15 bytes, the kernel's limit, without breaking a character.
fn thread_name(role: &str, label: &str) -> String {
    label.chars().filter(char::is_ascii_graphic).take(12).fold(format!("{role}-"), |mut name, letter| {
        name.push(letter);
        name
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_specification_names_a_file() {
        assert_eq!(path_of("blue").unwrap(), "/run/netns/blue");
        assert_eq!(path_of("pid:17").unwrap(), "/proc/17/ns/net");
        assert_eq!(path_of("/proc/3/ns/net").unwrap(), "/proc/3/ns/net");
        assert_eq!(path_of("self").unwrap(), OWN_NAMESPACE);
        assert!(path_of("pid:x").unwrap_err().to_string().contains("pid:NUMBER"));
        assert!(path_of("").is_err());
    }

    #[test]
    fn a_sysctl_key_with_slashes_may_name_an_interface_with_a_dot() {
        assert_eq!(sysctl_path("net.ipv4.ip_forward"), "/proc/sys/net/ipv4/ip_forward");
        assert_eq!(sysctl_path("net/ipv4/conf/eth0.7/rp_filter"), "/proc/sys/net/ipv4/conf/eth0.7/rp_filter");
    }
}
