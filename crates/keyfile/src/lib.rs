//! Shared secrets of a pair of gateways, or of the nodes of a cluster: 32 bytes, as text and in key files. No
//! other crate handles a secret as text.
#![forbid(unsafe_code)]

pub mod base64;

use std::fmt;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::Path;

use nix::libc;
use nix::sys::prctl::set_dumpable;
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::geteuid;
use ring::rand::{SecureRandom as _, SystemRandom};
use zeroize::Zeroizing;

/// Length in characters of a key as text: 32 bytes in base64, padded.
pub const KEY_TEXT_BYTES: usize = 44;

/// Maximum number of keys in a file.
pub const KEYS_MAX: usize = 8;

/// Maximum number of bytes that are read from a key file: one line, with blanks around it.
const FILE_BYTES_MAX: u64 = 256;
/// Maximum number of bytes that are read from a file of several keys, comments included.
const FILE_OF_KEYS_BYTES_MAX: u64 = 4_096;

/// 32 secret bytes, wiped from memory when dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<[u8; 32]>);

impl Secret {
    /// The bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A key as base64 text, wiped from memory when dropped: its `Display` is the secret, its `Debug` is not.
#[derive(Clone)]
pub struct KeyText(Zeroizing<String>);

impl KeyText {
    /// Generates a key from the operating system's random source.
    ///
    /// # Errors
    /// The random source failed.
    pub fn generate() -> io::Result<Self> {
        let mut bytes = Zeroizing::new([0; 32]);
        SystemRandom::new()
            .fill(&mut *bytes)
            .map_err(|_| io::Error::other("the operating system's random source failed"))?;
        Ok(Self::new(&bytes))
    }

    /// The text of the key `bytes`.
    pub fn new(bytes: &[u8; 32]) -> Self {
        Self(encode(bytes))
    }

    /// The text, without a line end.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Adds the key as the last line of a file that has keys already. The file is replaced as a whole, so
    /// that no reader sees a part of it.
    ///
    /// # Errors The file has no usable keys or as many as it may have, or it cannot be written.
    pub fn append(&self, path: &Path) -> Result<(), KeyError> {
        let (bytes, keys) = read_bytes(path, FILE_OF_KEYS_BYTES_MAX).and_then(|bytes| {
            let keys = parse_all(text_of(&bytes)?)?;
            Ok((bytes, keys))
        })?;
        if keys.len() >= KEYS_MAX {
            return Err(KeyError::TooMany { seen: keys.len() + 1 });
        }
        let mut text = Zeroizing::new(Vec::with_capacity(bytes.len() + KEY_TEXT_BYTES + 2));
        text.extend_from_slice(&bytes);
        if !text.ends_with(b"\n") {
            text.push(b'\n');
        }
        text.extend_from_slice(self.0.as_bytes());
        text.push(b'\n');
        // A service that reads the file goes on doing so, whoever adds the key.
        let present = std::fs::symlink_metadata(path)?;
        let fill = |file: &mut File| {
            if file.metadata().map(|new| (new.uid(), new.gid()))? != (present.uid(), present.gid()) {
                fchown(&*file, Some(present.uid()), Some(present.gid()))?;
            }
            file.set_permissions(Permissions::from_mode(present.mode() & 0o7777))?;
            file.write_all(&text)
        };
        place(path, fill, |beside| std::fs::rename(beside, path))?;
        Ok(())
    }

    /// Writes the key to a new file that only its owner may read (mode 0600). The file appears as a whole or
    /// not at all.
    ///
    /// # Errors
    /// The file exists already or cannot be written.
    pub fn write_new(&self, path: &Path) -> io::Result<()> {
        let fill = |file: &mut File| {
            file.write_all(self.0.as_bytes())?;
            file.write_all(b"\n")
        };
        place(path, fill, |beside| appear(beside, path))
    }
}

/// Writes a file beside `path`, and lets `publish` give it that name. It is removed if a step fails.
fn place(
    path: &Path,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
    publish: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = Path::new(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(beside)?;
    let written = fill(&mut file).and_then(|()| file.sync_all());
    written.and_then(|()| publish(beside)).inspect_err(|_| {
        let _ = std::fs::remove_file(beside);
    })
}

/// Gives a file a name that no file has.
fn appear(beside: &Path, path: &Path) -> io::Result<()> {
    match std::fs::hard_link(beside, path) {
        Ok(()) => std::fs::remove_file(beside),
        // Some file systems have no links.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EOPNOTSUPP)) => {
            if std::fs::symlink_metadata(path).is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            std::fs::rename(beside, path)
        }
        Err(error) => Err(error),
    }
}

impl fmt::Display for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyText(secret)")
    }
}

/// Parses a key from base64 text as [`KeyText`] writes it. Blanks around it are allowed.
///
/// # Errors
/// [`KeyError::Length`], [`KeyError::Character`] or [`KeyError::Zero`].
pub fn parse(text: &str) -> Result<Secret, KeyError> {
    let mut bytes = Zeroizing::new([0; 32]);
    decode(text.trim(), &mut bytes)?;
    if bytes.iter().all(|&byte| byte == 0) {
        return Err(KeyError::Zero);
    }
    Ok(Secret(bytes))
}

/// Why a key file has no usable key. The error text never contains the contents of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The file is absent or cannot be opened.
    #[error("cannot read the file: {0}")]
    Unreadable(#[from] io::Error),
    /// The path is a directory, a device or a pipe.
    #[error("expected a regular file, saw a directory, a device or a pipe")]
    NotAFile,
    /// The path is a symbolic link.
    #[error("expected a regular file, saw a symbolic link")]
    Link,
    /// The file belongs to another user, who could replace the key.
    #[error("expected a file of root or of this process' user {expected}, saw a file of user {seen}")]
    Owner {
        /// User id of the owner.
        seen: u32,
        /// Effective user id of this process.
        expected: u32,
    },
    /// Others may read the file or somebody but its owner may write it, or a group may read a file that does
    /// not belong to root.
    #[error("expected a mode without access for group and others, such as 0600, saw {mode:04o}")]
    Mode {
        /// The permission bits seen.
        mode: u32,
    },
    /// The text has another length than 44 characters.
    #[error("expected {KEY_TEXT_BYTES} characters of base64, saw {seen}")]
    Length {
        /// Number of characters, up to the limit of what is read.
        seen: usize,
    },
    /// The text is not base64 of 32 bytes.
    #[error("expected 32 bytes in base64, saw a wrong character at position {at}")]
    Character {
        /// Position of the first wrong character, from 1.
        at: usize,
    },
    /// The key is 32 zero bytes, which is a placeholder.
    #[error("expected a secret, saw 32 zero bytes")]
    Zero,
    /// The file has too many keys.
    #[error("expected at most {KEYS_MAX} keys, seen {seen}")]
    TooMany {
        /// Number of keys.
        seen: usize,
    },
    /// The file has the same key twice.
    #[error("expected different keys, seen one twice")]
    Repeated,
}

/// Reads a key file: a regular file of one base64 line that belongs to root or to the user of this process,
/// without access for group and others. A group may read a file of root (mode 0640), which is how a service
/// gets the keys that it must not replace.
///
/// # Errors
/// [`KeyError`].
pub fn read(path: &Path) -> Result<Secret, KeyError> {
    parse(text_of(&read_bytes(path, FILE_BYTES_MAX)?)?)
}

/// Reads a file of one or more keys, one in a line, with the owner and the mode that [`read`] expects. Blank
/// lines and lines that begin with `#` are skipped.
///
/// # Errors [`KeyError`].
pub fn read_all(path: &Path) -> Result<Vec<Secret>, KeyError> {
    parse_all(text_of(&read_bytes(path, FILE_OF_KEYS_BYTES_MAX)?)?)
}

/// Parses one or more keys, one in a line. Blank lines and lines that begin with `#` are skipped.
///
/// # Errors
/// [`KeyError`].
pub fn parse_all(text: &str) -> Result<Vec<Secret>, KeyError> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut keys: Vec<Secret> = Vec::new();
    for line in lines {
        let key = parse(line)?;
        if keys.iter().any(|other| other.bytes() == key.bytes()) {
            return Err(KeyError::Repeated);
        }
        keys.push(key);
        if keys.len() > KEYS_MAX {
            return Err(KeyError::TooMany { seen: keys.len() });
        }
    }
    if keys.is_empty() { Err(KeyError::Length { seen: 0 }) } else { Ok(keys) }
}

fn read_bytes(path: &Path, bytes_max: u64) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let mut file = open_regular(path)?;
    let metadata = file.metadata()?;
    check_owner(metadata.uid(), geteuid().as_raw())?;
    check_mode(metadata.permissions().mode() & 0o7777, metadata.uid())?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(bytes_max as usize));
    (&mut file).take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn text_of(bytes: &[u8]) -> Result<&str, KeyError> {
    std::str::from_utf8(bytes).map_err(|error| KeyError::Character { at: error.valid_up_to() + 1 })
}

/// Opens the file without following a link or waiting for the other end of a pipe, and checks the type of the
/// open file, so that it cannot be replaced between the check and the read.
fn open_regular(path: &Path) -> Result<File, KeyError> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|error| {
        // Linux reports a link at the end of the path as a loop, as it reports a loop of links within the
        // path.
        match error.raw_os_error() {
            Some(libc::ELOOP) if path.is_symlink() => KeyError::Link,
            _ => KeyError::Unreadable(error),
        }
    })?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(KeyError::NotAFile) }
}

fn check_owner(seen: u32, expected: u32) -> Result<(), KeyError> {
    if seen == expected || seen == 0 { Ok(()) } else { Err(KeyError::Owner { seen, expected }) }
}

/// Only root can let a group read a file of root, so that such a group is one that root has chosen.
fn check_mode(mode: u32, owner: u32) -> Result<(), KeyError> {
    let forbidden = if owner == 0 { 0o037 } else { 0o077 };
    if mode & forbidden == 0 { Ok(()) } else { Err(KeyError::Mode { mode }) }
}

/// Forbids that the kernel writes the memory of this process, which holds keys, to a core file or pipes it to
/// a program. It also keeps other processes of the same user, unless they are privileged, from tracing this
/// one and reading its memory.
///
/// # Errors
/// The kernel's error.
pub fn forbid_dumps() -> io::Result<()> {
    // A limit of 0 does not stop the kernel from piping a dump to a program; the attribute stops it. The
    // attribute is reset when the program executes another; the limit stays.
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    Ok(set_dumpable(false)?)
}

fn encode(bytes: &[u8; 32]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(KEY_TEXT_BYTES));
    base64::encode(bytes, &mut text);
    text
}

/// Decodes strictly, so that each key has one spelling only.
fn decode(text: &str, bytes: &mut [u8; 32]) -> Result<(), KeyError> {
    if text.len() != KEY_TEXT_BYTES {
        return Err(KeyError::Length { seen: text.len() });
    }
    // With room for all, so that nothing of the key stays behind in memory that is given back.
    let mut decoded = Zeroizing::new(Vec::with_capacity(KEY_TEXT_BYTES));
    base64::decode(text, &mut decoded).map_err(|at| KeyError::Character { at })?;
    if decoded.len() != bytes.len() {
        // One padding character too few or too many.
        let at = if decoded.len() > bytes.len() { KEY_TEXT_BYTES } else { KEY_TEXT_BYTES - 1 };
        return Err(KeyError::Character { at });
    }
    bytes.copy_from_slice(&decoded);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_key_survives_conversion_to_text_and_back(bytes: [u8; 32]) {
            prop_assume!(bytes != [0; 32]);
            let text = KeyText::new(&bytes);
            prop_assert_eq!(text.as_str().len(), KEY_TEXT_BYTES);
            let secret = parse(text.as_str()).unwrap();
            prop_assert_eq!(secret.bytes(), &bytes);
        }

        #[test]
        fn a_text_that_is_accepted_is_the_only_spelling_of_its_key(text in "[A-Za-z0-9+/]{43}=") {
            let mut bytes = [0; 32];
            if decode(&text, &mut bytes).is_ok() {
                let again = KeyText::new(&bytes);
                prop_assert_eq!(again.as_str(), text);
            }
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = parse(&text);
        }
    }

    #[test]
    fn base64_agrees_with_a_known_vector() {
        let mut bytes = [0; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = index as u8;
        }
        let text = KeyText::new(&bytes);
        assert_eq!(text.as_str(), "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");
    }

    #[test]
    fn wrong_texts_have_different_errors() {
        let zero = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        assert!(matches!(parse(zero), Err(KeyError::Zero)));
        assert!(matches!(parse("short"), Err(KeyError::Length { seen: 5 })));
        let spoiled = zero.replacen("AAA", "A!A", 1);
        assert!(matches!(parse(&spoiled), Err(KeyError::Character { at: 2 })));
        let loose_bits = zero.replace("A=", "B=");
        assert!(matches!(parse(&loose_bits), Err(KeyError::Character { at: 43 })));
        let early_padding = zero.replace("AA=", "A==");
        assert!(matches!(parse(&early_padding), Err(KeyError::Character { at: 43 })));
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_nothing_and_no_file_is_replaced() {
        let directory = std::env::temp_dir().join(format!("undrop-key-new-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("peer.key");
        let full = |file: &mut File| {
            file.write_all(b"half")?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        };
        let error = place(&path, full, |beside| appear(beside, &path)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        let key = KeyText::new(&[1; 32]);
        key.write_new(&path).unwrap();
        let again = KeyText::new(&[2; 32]).write_new(&path).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(read(&path).unwrap().bytes(), &[1; 32]);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_key_is_added_without_a_change_of_owner_and_mode() {
        let path = std::env::temp_dir().join(format!("undrop-key-owner-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        KeyText::new(&[1; 32]).write_new(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        // Only root can give files away.
        let group = if geteuid().is_root() { 4_711 } else { fs::metadata(&path).unwrap().gid() };
        fchown(File::open(&path).unwrap(), None, Some(group)).unwrap();
        KeyText::new(&[2; 32]).append(&path).unwrap();
        let seen = fs::metadata(&path).unwrap();
        assert_eq!((seen.gid(), seen.mode() & 0o777), (group, 0o400));
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_may_have_several_keys_and_a_key_is_added_at_its_end() {
        let directory = std::env::temp_dir().join(format!("undrop-keys-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("cluster.key");
        let _ = fs::remove_file(&path);
        let keys = [1, 2, 3].map(|byte| KeyText::new(&[byte; 32]));
        keys[0].write_new(&path).unwrap();
        keys[1].append(&path).unwrap();
        let text = format!("# the old one\n{}\n# the new one\n", fs::read_to_string(&path).unwrap());
        fs::write(&path, text).unwrap();
        keys[2].append(&path).unwrap();
        let firsts: Vec<u8> = read_all(&path).unwrap().iter().map(|key| key.bytes()[0]).collect();
        assert_eq!(firsts, [1, 2, 3]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(keys[0].append(&path), Ok(())), "a key is checked when the file is read");
        assert!(matches!(read_all(&path), Err(KeyError::Repeated)));
        assert!(matches!(keys[0].append(&directory.join("absent")), Err(KeyError::Unreadable(_))));
        let many: String = (1..=9).map(|byte| format!("{}\n", KeyText::new(&[byte; 32]).as_str())).collect();
        assert!(matches!(parse_all(&many), Err(KeyError::TooMany { seen: 9 })));
        assert!(matches!(parse_all("# nothing\n\n"), Err(KeyError::Length { seen: 0 })));
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn debug_output_hides_the_secret() {
        let text = KeyText::new(&[7; 32]);
        assert_eq!(format!("{text:?}"), "KeyText(secret)");
        let shown = format!("{:?}", parse(text.as_str()).unwrap());
        assert!(!shown.contains('7') && !shown.contains(text.as_str()), "{shown}");
    }

    #[test]
    fn two_generated_keys_differ() {
        assert_ne!(KeyText::generate().unwrap().as_str(), KeyText::generate().unwrap().as_str());
    }

    #[test]
    fn each_kind_of_bad_key_file_has_its_error() {
        let directory = std::env::temp_dir().join(format!("undrop-keyfile-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let key = KeyText::generate().unwrap();
        let good = directory.join("good.key");
        let _ = fs::remove_file(&good);
        key.write_new(&good).unwrap();
        assert_eq!(fs::metadata(&good).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(key.write_new(&good).is_err(), "an existing key is never overwritten");
        assert_eq!(read(&good).unwrap().bytes(), parse(key.as_str()).unwrap().bytes());

        for mode in [0o604, 0o620, 0o660, 0o644] {
            fs::set_permissions(&good, Permissions::from_mode(mode)).unwrap();
            assert!(matches!(read(&good), Err(KeyError::Mode { mode: seen }) if seen == mode), "{mode:o}");
        }
        fs::set_permissions(&good, Permissions::from_mode(0o640)).unwrap();
        assert_eq!(read(&good).is_ok(), geteuid().is_root(), "a group may read a file of root alone");
        fs::set_permissions(&good, Permissions::from_mode(0o600)).unwrap();
        fs::write(&good, b"\xff\xfe").unwrap();
        assert!(matches!(read(&good), Err(KeyError::Character { at: 1 })));
        fs::write(&good, "x".repeat(100_000)).unwrap();
        assert!(matches!(read(&good), Err(KeyError::Length { .. })));
        assert!(matches!(read(&directory), Err(KeyError::NotAFile)));
        assert!(matches!(read(&directory.join("none")), Err(KeyError::Unreadable(_))));
        // The read must not wait for a writer of the pipe.
        let pipe = directory.join("pipe");
        let _ = fs::remove_file(&pipe);
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        assert!(matches!(read(&pipe), Err(KeyError::NotAFile)));
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_link_to_a_key_file_is_refused() {
        let directory = std::env::temp_dir().join(format!("undrop-keylink-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (good, link) = (directory.join("good.key"), directory.join("link.key"));
        for path in [&good, &link] {
            let _ = fs::remove_file(path);
        }
        KeyText::generate().unwrap().write_new(&good).unwrap();
        std::os::unix::fs::symlink(&good, &link).unwrap();
        assert!(matches!(read(&link), Err(KeyError::Link)));
        assert!(read(&good).is_ok());
        // A link among the directories of the path is allowed.
        let around = directory.join("around");
        let _ = fs::remove_file(&around);
        std::os::unix::fs::symlink(&directory, &around).unwrap();
        assert!(read(&around.join("good.key")).is_ok());
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_group_may_read_a_file_of_root_and_nobody_may_write_one() {
        for (mode, owner) in [(0o600, 0), (0o400, 7), (0o640, 0), (0o440, 0), (0o600, 7)] {
            check_mode(mode, owner).unwrap();
        }
        for (mode, owner) in [(0o640, 7), (0o660, 0), (0o650, 0), (0o644, 0), (0o604, 0), (0o610, 7)] {
            assert!(matches!(check_mode(mode, owner), Err(KeyError::Mode { mode: seen }) if seen == mode));
        }
    }

    #[test]
    fn a_key_file_belongs_to_root_or_to_the_user_of_the_process() {
        for (seen, expected) in [(0, 0), (7, 7), (0, 7)] {
            check_owner(seen, expected).unwrap();
        }
        for (seen, expected) in [(7, 0), (7, 8)] {
            assert!(matches!(check_owner(seen, expected), Err(KeyError::Owner { .. })));
        }
        // Only root can give a file away.
        if geteuid().is_root() {
            let path = std::env::temp_dir().join(format!("undrop-keyowner-{}.key", std::process::id()));
            let _ = fs::remove_file(&path);
            KeyText::generate().unwrap().write_new(&path).unwrap();
            if std::os::unix::fs::chown(&path, Some(7), None).is_ok() {
                assert!(matches!(read(&path), Err(KeyError::Owner { seen: 7, expected: 0 })));
            }
            fs::remove_file(&path).unwrap();
        }
    }
}
