//! The record of losses in a file, so that it survives a restart: written each minute by a thread of its own.
//!
//! The file is replaced as a whole. Whatever is wrong with it, the gateway works all the same.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use maelstrom_core::{Gateway, PeerStatus};
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use tracing::{debug, info, warn};

use crate::config::GatewayConfig;
use crate::losses::{Losses, PeerLosses};

/// Interval between two writes.
const SAVE_US: u64 = 60_000_000;
/// Largest file that is read, in bytes.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 26;
/// Version of the file.
const VERSION: u32 = 1;
/// Maximum number of records with the same ending that are kept beside the file.
const KEPT_MAX: usize = 10;

/// Mistake of a path that leads to a directory, a device or a pipe.
const NO_FILE: &str = "expected a file, saw a directory, a device or a pipe";

/// The contents of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    version: u32,
    /// Time of writing in seconds since 1970.
    saved_s: u64,
    /// The minute of the gateway's clock then, from some origin.
    #[serde(default)]
    minute: Option<u64>,
    losses: Losses,
}

/// Reason why a file holds no record.
#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error(transparent)]
    System(#[from] io::Error),
    #[error("expected a record of losses, saw {0}")]
    Content(String),
    #[error("{NO_FILE}")]
    NoFile,
}

/// Writes the record now and then.
#[derive(Debug, Default)]
pub(crate) struct Store {
    next_us: u64,
    /// The thread that writes at present, with its file.
    writer: Option<(PathBuf, JoinHandle<io::Result<()>>)>,
    /// Whether the last write failed.
    is_failing: bool,
    /// Number of records that were not written.
    unwritten: u64,
    /// The thread that keeps a record with peers that are gone.
    keeper: Option<JoinHandle<()>>,
    /// The thread that writes a record into memory, for another process.
    packer: Option<JoinHandle<io::Result<File>>>,
}

impl Store {
    /// Reads the record that the configuration names, if there is one, into the gateway.
    pub(crate) fn open(config: &GatewayConfig, gateway: &mut Gateway, now_us: u64) -> Self {
        // The first write shows soon whether there can be any.
        let store = Self { next_us: now_us, ..Self::default() };
        let Some(path) = &config.gateway.loss_record else { return store };
        match read(path) {
            Ok(Some(saved)) => {
                let gone = saved.recall(config, gateway, now_us);
                if !gone.is_empty() {
                    tell_gone(&gone.join(", "), &keep_copy(path, ".former"));
                } else if saved.is_past(gateway) {
                    // The clock may be ahead until it is set.
                    let kept = keep_copy(path, ".former");
                    warn!(
                        "the record of losses {} is {} days old by the time of day, so that none of its spans counts; {kept}; \
                         if the clock was wrong, stop the gateway, copy that file back and start the gateway again",
                        path.display(),
                        saved.elapsed_minutes() / (24 * 60)
                    );
                }
            }
            // Each try to write it tells why there is no record.
            Ok(None) | Err(Unreadable::NoFile) => {}
            Err(error) => {
                let kept = set_aside(path, ".unreadable");
                warn!(
                    "cannot read the record of losses {}: {error}; {kept}, and the record begins again",
                    path.display()
                );
            }
        }
        store
    }

    /// Continues the record that another process has handed over. `file`: its `loss_record`, which has the
    /// record too.
    pub(crate) fn take_over(
        record: File,
        file: Option<&str>,
        config: &GatewayConfig,
        gateway: &mut Gateway,
        now_us: u64,
    ) -> Self {
        let saved = match parse(record) {
            Ok(saved) => saved,
            Err(error) => {
                warn!("cannot read the record of losses of the other process: {error}");
                return Self::open(config, gateway, now_us);
            }
        };
        let mut store = Self { next_us: now_us, ..Self::default() };
        let path = config.gateway.loss_record.as_deref();
        let is_same = path.map(Path::to_string_lossy).as_deref() == file;
        let gone = saved.recall(config, gateway, now_us);
        if !gone.is_empty() {
            let kept = match (path, file) {
                (Some(path), _) => in_words(keep(path, ".former", |free| write(free, &saved))),
                (None, Some(file)) => format!("the other process has written them to {file}"),
                (None, None) => "there is no `loss_record` to keep theirs".to_owned(),
            };
            tell_gone(&gone.join(", "), &kept);
        }
        if !is_same {
            store.begin_at(config);
        }
        store
    }

    /// Continues in the file that another configuration names. A file that is there already is of another
    /// time.
    pub(crate) fn begin_at(&mut self, config: &GatewayConfig) {
        self.next_us = 0;
        let Some(path) = &config.gateway.loss_record else { return };
        if fs::metadata(path).is_ok_and(|found| found.is_file()) {
            let kept = set_aside(path, ".former");
            warn!("there is a file {} already: {kept}, and the record goes on there", path.display());
        }
    }

    /// Makes the next call write the record.
    pub(crate) fn save_soon(&mut self) {
        self.next_us = 0;
    }

    /// Keeps a record with peers that are gone, which have these names, beside the one that goes on without
    /// them.
    pub(crate) fn keep_former(
        &mut self,
        gateway: &Gateway,
        config: &GatewayConfig,
        losses: Losses,
        names: String,
    ) {
        let Some(path) = config.gateway.loss_record.clone() else { return };
        let saved = Saved { losses, ..Saved::of(gateway, config) };
        let keep = move || {
            let kept = keep(&path, ".former", |free| write(free, &saved));
            tell_gone(&names, &in_words(kept));
        };
        self.finish_keeper();
        self.keeper = std::thread::Builder::new().name("record".to_owned()).spawn(keep).ok();
    }

    fn finish_keeper(&mut self) {
        // A thread that has failed has told nothing, and there is nothing to undo.
        let _ = self.keeper.take().map(JoinHandle::join);
    }

    /// Begins to write the record into memory, for another process.
    pub(crate) fn pack(&mut self, gateway: &Gateway, config: &GatewayConfig) {
        let saved = Saved::of(gateway, config);
        let pack = move || {
            let mut file = File::from(memfd_create("losses", MFdFlags::MFD_CLOEXEC)?);
            file.write_all(&serde_json::to_vec(&saved)?)?;
            file.rewind()?;
            Ok(file)
        };
        self.packer = std::thread::Builder::new().name("record".to_owned()).spawn(pack).ok();
    }

    /// Returns the record in memory, if it is written.
    pub(crate) fn take_packed(&mut self) -> Option<File> {
        let packed = self.packer.take_if(|packer| packer.is_finished())?.join();
        let packed = packed.unwrap_or_else(|_| Err(io::Error::other("the writing thread failed")));
        packed.inspect_err(|error| debug!(%error, "the next process reads the record from the file")).ok()
    }

    /// Writes the record if a minute has passed since the last time.
    pub(crate) fn save_if_due(&mut self, now_us: u64, gateway: &Gateway, config: &GatewayConfig) {
        if now_us < self.next_us {
            return;
        }
        self.next_us = now_us + SAVE_US;
        if self.writer.as_ref().is_some_and(|(_, writer)| !writer.is_finished()) {
            // The disk is slow.
            self.unwritten += u64::from(config.gateway.loss_record.is_some());
            return;
        }
        self.finish();
        let Some(path) = &config.gateway.loss_record else { return };
        let (saved, to) = (Saved::of(gateway, config), path.clone());
        let started = std::thread::Builder::new().name("record".to_owned()).spawn(move || write(&to, &saved));
        match started {
            Ok(writer) => self.writer = Some((path.clone(), writer)),
            Err(error) => self.note(path, Err(error)),
        }
    }

    /// Writes the record at the end of the process.
    pub(crate) fn close(&mut self, gateway: &Gateway, config: &GatewayConfig) {
        self.finish();
        self.finish_keeper();
        if let Some(path) = &config.gateway.loss_record {
            let written = write(path, &Saved::of(gateway, config));
            self.note(path, written);
        }
    }

    /// Number of records that were not written.
    pub(crate) fn unwritten(&self) -> u64 {
        self.unwritten
    }

    /// Waits for the thread that writes.
    fn finish(&mut self) {
        if let Some((path, writer)) = self.writer.take() {
            let written =
                writer.join().unwrap_or_else(|_| Err(io::Error::other("the writing thread failed")));
            self.note(&path, written);
        }
    }

    /// Logs a failure, and its end.
    fn note(&mut self, path: &Path, written: io::Result<()>) {
        let path = path.display();
        self.unwritten += u64::from(written.is_err());
        match written {
            Err(error) if !self.is_failing => {
                self.is_failing = true;
                warn!(
                    "cannot write the record of losses {path}: {error}; the gateway goes on and tries again each minute; \
                     free space there, or set `loss_record` to a file in a directory that the gateway may write to"
                );
            }
            Ok(()) if self.is_failing => {
                self.is_failing = false;
                info!("the record of losses {path} is written again");
            }
            _ => {}
        }
    }
}

impl Saved {
    fn of(gateway: &Gateway, config: &GatewayConfig) -> Self {
        let minute = gateway.peers().next().map(|peer| peer.record.minute());
        Self { version: VERSION, saved_s: since_1970_s(), minute, losses: Losses::of(gateway, config) }
    }

    /// Adds this record to those of the gateway's peers; returns the labels of others that it has.
    fn recall(&self, config: &GatewayConfig, gateway: &mut Gateway, now_us: u64) -> Vec<String> {
        let since = (self.elapsed_minutes(), self.minute);
        self.losses.recall(gateway, &config.peers, now_us, since)
    }

    /// Whether a gateway that continues this record has found all its spans too old.
    fn is_past(&self, gateway: &Gateway) -> bool {
        let has_spans = |peer: PeerStatus<'_>| peer.record.history().iter().any(|spans| !spans.is_empty());
        self.losses.peers.iter().any(PeerLosses::has_spans) && !gateway.peers().any(has_spans)
    }

    /// Number of minutes since it was written, by the time of day.
    fn elapsed_minutes(&self) -> u64 {
        since_1970_s().saturating_sub(self.saved_s) / 60
    }
}

/// Logs that the record goes on without these peers.
fn tell_gone(names: &str, kept: &str) {
    warn!(
        "the record of losses has peers that the configuration lacks by address and by name, and goes on \
         without them: {names}; {kept}"
    );
}

#[expect(clippy::disallowed_methods, reason = "a driver: the age of a file is that of the calendar")]
fn since_1970_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Renames a file, so that nothing overwrites it. Says in words where it is.
fn set_aside(path: &Path, ending: &str) -> String {
    match keep(path, ending, |free| fs::rename(path, free)) {
        Ok(aside) => format!("it is kept as {}", aside.display()),
        Err(error) => format!("it will be overwritten, because it cannot be renamed: {error}"),
    }
}

/// Copies a file that will be replaced. Says in words where the copy is.
fn keep_copy(path: &Path, ending: &str) -> String {
    in_words(keep(path, ending, |free| fs::copy(path, free).map(|_| ())))
}

/// Makes a file beside the record under the first free name: earlier ones may hold what is nowhere else.
fn keep(path: &Path, ending: &str, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<PathBuf> {
    let free = claim(path, ending)?;
    make(&free).inspect_err(|_| {
        // An empty file would take the name for nothing.
        let _ = fs::remove_file(&free);
    })?;
    Ok(free)
}

/// Creates an empty file under the first free name with this ending, which then belongs to this caller.
fn claim(path: &Path, ending: &str) -> io::Result<PathBuf> {
    for number in 0..KEPT_MAX {
        let ending = if number == 0 { ending.to_owned() } else { format!("{ending}.{number}") };
        let name = with_ending(path, &ending);
        match File::create_new(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created.map(|_| name),
        }
    }
    let first = with_ending(path, ending);
    Err(io::Error::other(format!("{} and {} more are there; move them away", first.display(), KEPT_MAX - 1)))
}

fn in_words(kept: io::Result<PathBuf>) -> String {
    match kept {
        Ok(copy) => format!("the whole record is kept as {}", copy.display()),
        Err(error) => format!("it cannot be kept: {error}"),
    }
}

/// Reads the record; `None` if there is no file.
fn read(path: &Path) -> Result<Option<Saved>, Unreadable> {
    // A pipe would hold up whoever opens it.
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(Unreadable::NoFile);
    }
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    parse(file).map(Some)
}

fn parse(file: File) -> Result<Saved, Unreadable> {
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Unreadable::Content(format!("more than {FILE_BYTES_MAX} bytes")));
    }
    let saved: Saved =
        serde_json::from_slice(&bytes).map_err(|error| Unreadable::Content(error.to_string()))?;
    if saved.version != VERSION {
        return Err(Unreadable::Content(format!("version {}, not {VERSION}", saved.version)));
    }
    Ok(saved)
}

/// Replaces the record. A failure leaves the last one in place.
fn write(path: &Path, saved: &Saved) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::other(NO_FILE));
    }
    let bytes = serde_json::to_vec(saved)?;
    let new = with_ending(path, ".new");
    let written = File::create(&new).and_then(|mut file| {
        file.write_all(&bytes)?;
        file.sync_all()
    });
    let replaced = written.and_then(|()| fs::rename(&new, path));
    if replaced.is_err() {
        // It would take the space that others lack.
        let _ = fs::remove_file(&new);
    }
    replaced
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::losses::tests::{configured, gateway_with_losses, lost};
    use crate::ports::core_config;

    /// A directory that is removed with its contents.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("undrop-record-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn file(&self) -> PathBuf {
            self.0.join("losses.json")
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn saved(saved_s: u64) -> Saved {
        Saved { version: VERSION, saved_s, minute: Some(7), losses: Losses::default() }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let place = Place::new("round");
        assert!(read(&place.file()).unwrap().is_none());
        write(&place.file(), &saved(77)).unwrap();
        write(&place.file(), &saved(78)).unwrap();
        assert_eq!(read(&place.file()).unwrap().unwrap().saved_s, 78);
        assert_eq!(fs::read_dir(&place.0).unwrap().count(), 1);
    }

    #[test]
    fn a_full_disk_or_a_missing_directory_leaves_the_last_record_in_place_and_is_reported_once() {
        let place = Place::new("full");
        write(&place.file(), &saved(77)).unwrap();
        // Whatever is written to this device finds it full.
        std::os::unix::fs::symlink("/dev/full", with_ending(&place.file(), ".new")).unwrap();
        let full = write(&place.file(), &saved(78)).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        assert_eq!(read(&place.file()).unwrap().unwrap().saved_s, 77);
        assert_eq!(fs::read_dir(&place.0).unwrap().count(), 1, "nothing is left behind");
        let nowhere = write(&place.0.join("none/losses.json"), &saved(78)).unwrap_err();
        let mut store = Store::default();
        for (error, is_failing) in [(Some(full), true), (Some(nowhere), true), (None, false)] {
            store.note(&place.file(), error.map_or(Ok(()), Err));
            assert_eq!(store.is_failing, is_failing);
        }
        assert_eq!(store.unwritten(), 2, "each is counted");
    }

    #[test]
    fn other_contents_are_refused() {
        let place = Place::new("corrupt");
        let good = serde_json::to_string(&saved(77)).unwrap();
        let other_version = good.replace("\"version\":1", "\"version\":2");
        for contents in ["", "{}", "\0\0\0", "[1,2]", &good[..good.len() - 3], &other_version] {
            fs::write(place.file(), contents).unwrap();
            assert!(matches!(read(&place.file()), Err(Unreadable::Content(_))), "{contents}");
        }
        let long = File::create(place.file()).unwrap();
        long.set_len(FILE_BYTES_MAX + 1).unwrap();
        assert!(read(&place.file()).unwrap_err().to_string().contains("more than"));
    }

    #[test]
    fn what_is_no_file_stays_as_it_is() {
        let place = Place::new("other");
        let (directory, pipe, device) = (place.0.join("d"), place.0.join("p"), place.0.join("n"));
        fs::create_dir_all(&directory).unwrap();
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::os::unix::fs::symlink("/dev/null", &device).unwrap();
        for path in [&directory, &pipe, &device] {
            assert!(matches!(read(path), Err(Unreadable::NoFile)), "{}", path.display());
            assert!(write(path, &saved(1)).unwrap_err().to_string().contains("a pipe"));
        }
        assert!(directory.is_dir() && !fs::metadata(&device).unwrap().is_file());
        assert_eq!(fs::read_dir(&place.0).unwrap().count(), 3, "nothing is renamed or left behind");
    }

    #[test]
    fn a_record_with_a_peer_that_is_gone_is_kept_beside_its_successor() {
        let place = Place::new("gone");
        fs::write(place.file(), "of a peer that is gone").unwrap();
        assert!(keep_copy(&place.file(), ".former").starts_with("the whole record is kept as"));
        // A start that fails before the first write leaves the record in place.
        assert!(place.file().exists());
        write(&place.file(), &saved(77)).unwrap();
        let kept = fs::read_to_string(with_ending(&place.file(), ".former")).unwrap();
        assert_eq!(kept, "of a peer that is gone");
        assert!(keep_copy(&place.0.join("none"), ".former").starts_with("it cannot be kept: "));
    }

    #[test]
    fn another_process_continues_a_record_with_or_without_a_file() {
        let place = Place::new("handed");
        let mut config = configured(&[(Some("osaka"), "203.0.113.2:4700")]);
        let mut store = Store::default();
        store.pack(&gateway_with_losses(&config), &config);
        let record = testkit::wait_for(|| store.take_packed()).unwrap();
        let take = |file: Option<&str>, config: &GatewayConfig| {
            let mut record = record.try_clone().unwrap();
            record.rewind().unwrap();
            let mut gateway = Gateway::new(core_config(config, 1_500).unwrap(), [7; 32]).unwrap();
            Store::take_over(record, file, config, &mut gateway, 0);
            lost(&gateway)
        };
        assert_eq!(take(None, &config), [1], "no file");
        config.gateway.loss_record = Some(place.file());
        fs::write(place.file(), "of this time").unwrap();
        let file = place.file().to_str().unwrap().to_owned();
        assert_eq!((take(Some(&file), &config), place.file().exists()), (vec![1], true));
        // The file of the next process is another one, which was there before.
        assert_eq!((take(None, &config), place.file().exists()), (vec![1], false));
        assert_eq!(fs::read_to_string(with_ending(&place.file(), ".former")).unwrap(), "of this time");
        // Without what was passed, the file counts.
        write(&place.file(), &Saved::of(&gateway_with_losses(&config), &config)).unwrap();
        record.set_len(9).unwrap();
        assert_eq!(take(Some(&file), &config), [1], "of the file");
    }

    /// Collects what a thread logs.
    struct Log(Arc<Mutex<String>>);

    impl tracing::field::Visit for Log {
        fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn std::fmt::Debug) {
            *self.0.lock().unwrap() += &format!("{value:?}\n");
        }
    }

    impl tracing::Subscriber for Log {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

        fn event(&self, event: &tracing::Event<'_>) {
            event.record(&mut Self(self.0.clone()));
        }

        fn enter(&self, _: &tracing::span::Id) {}

        fn exit(&self, _: &tracing::span::Id) {}
    }

    /// Returns what a step logs.
    fn logged(step: impl FnOnce()) -> String {
        let text = Arc::new(Mutex::new(String::new()));
        tracing::subscriber::with_default(Log(text.clone()), step);
        text.lock().unwrap().clone()
    }

    #[test]
    fn another_process_tells_of_peers_that_it_lacks_and_keeps_their_record_where_it_can() {
        let place = Place::new("lacking");
        let config = configured(&[(Some("osaka"), "203.0.113.2:4700"), (Some("kobe"), "203.0.113.3:4700")]);
        let saved = serde_json::to_vec(&Saved::of(&gateway_with_losses(&config), &config)).unwrap();
        let (mine, theirs) = (place.file(), place.0.join("theirs.json"));
        let take = |file: Option<&Path>, path: Option<&PathBuf>| {
            let mut config = configured(&[(Some("osaka"), "203.0.113.2:4700")]);
            config.gateway.loss_record = path.cloned();
            let mut record = File::from(memfd_create("losses", MFdFlags::MFD_CLOEXEC).unwrap());
            record.write_all(&saved).unwrap();
            record.rewind().unwrap();
            let mut gateway = Gateway::new(core_config(&config, 1_500).unwrap(), [7; 32]).unwrap();
            let file = file.map(|file| file.to_str().unwrap());
            let told = logged(|| drop(Store::take_over(record, file, &config, &mut gateway, 0)));
            assert_eq!(lost(&gateway), [1]);
            assert!(told.contains("goes on without them: kobe; "), "{told}");
            told
        };
        assert!(take(None, None).contains("there is no `loss_record` to keep theirs"));
        assert!(take(Some(&theirs), None).contains(&format!("has written them to {}", theirs.display())));
        let former = with_ending(&mine, ".former");
        for file in [None, Some(&theirs), Some(&mine)] {
            let told = take(file.map(PathBuf::as_path), Some(&mine));
            assert!(told.contains(&format!("is kept as {}", former.display())), "{told}");
            assert_eq!(read(&former).unwrap().unwrap().losses.peers.len(), 2);
            fs::remove_file(&former).unwrap();
        }
    }

    #[test]
    fn no_kept_record_overwrites_another_one() {
        let place = Place::new("kept");
        let kept = |name: &str| fs::read_to_string(place.0.join(name)).unwrap_or_default();
        for number in 0..KEPT_MAX {
            fs::write(place.file(), format!("damaged {number}")).unwrap();
            let said = set_aside(&place.file(), ".unreadable");
            let ending = if number == 0 { String::new() } else { format!(".{number}") };
            let name = format!("losses.json.unreadable{ending}");
            assert!(said.ends_with(&name) && kept(&name) == format!("damaged {number}"), "{said}");
        }
        fs::write(place.file(), "one more").unwrap();
        let said = set_aside(&place.file(), ".unreadable");
        assert!(said.contains("losses.json.unreadable and 9 more are there; move them away"), "{said}");
        assert!(kept("losses.json") == "one more" && kept("losses.json.unreadable") == "damaged 0");
        assert!(keep_copy(&place.file(), ".former").ends_with("losses.json.former"), "of another ending");
        // A name that nothing was written to stays free.
        let failed = keep(&place.file(), ".former", |_| Err(io::Error::other("full")));
        assert!(failed.is_err() && !place.0.join("losses.json.former.1").exists());
    }

    #[test]
    fn a_record_that_is_too_old_by_the_clock_is_kept() {
        let place = Place::new("old");
        let mut config = configured(&[(Some("osaka"), "203.0.113.2:4700")]);
        config.gateway.loss_record = Some(place.file());
        let former = with_ending(&place.file(), ".former");
        let opened = |saved: &Saved| {
            write(&place.file(), saved).unwrap();
            let mut gateway = Gateway::new(core_config(&config, 1_500).unwrap(), [7; 32]).unwrap();
            let told = logged(|| drop(Store::open(&config, &mut gateway, 0)));
            (told, lost(&gateway))
        };
        let days_ago = |days: u64| Saved {
            saved_s: since_1970_s() - days * 86_400,
            ..Saved::of(&gateway_with_losses(&config), &config)
        };
        assert_eq!(opened(&days_ago(2)), (String::new(), vec![1]));
        let nothing = Saved { losses: Losses::default(), ..days_ago(40) };
        assert_eq!(opened(&nothing), (String::new(), vec![0]));
        assert!(!former.exists());
        let (told, recalled) = opened(&days_ago(40));
        assert!(told.contains("is 40 days old by the time of day"), "{told}");
        assert_eq!(recalled, [0]);
        assert!(told.contains(&format!("is kept as {}", former.display())), "{told}");
        assert_eq!(read(&former).unwrap().unwrap().losses.peers[0].label(), "osaka");
    }

    #[test]
    fn a_file_that_a_reload_names_is_kept() {
        let place = Place::new("former");
        fs::write(place.file(), "of last month").unwrap();
        assert!(set_aside(&place.file(), ".former").starts_with("it is kept as"));
        let kept = fs::read_to_string(with_ending(&place.file(), ".former")).unwrap();
        assert!(kept == "of last month" && !place.file().exists());
    }
}
