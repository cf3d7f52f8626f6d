//! The finished runs of a figure that is not whole, in a file: a run that was stopped continues with them.

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::plan::Sample;

/// The first line, by which runs of another set-up are rejected.
#[derive(Serialize, Deserialize)]
struct Head {
    fingerprint: String,
}

/// Each other line.
#[derive(Serialize, Deserialize)]
struct Line {
    job: usize,
    seed: u64,
    samples: Vec<Sample>,
}

type Runs = HashMap<(usize, u64), Vec<Sample>>;

/// Finished runs, by job and random seed.
#[derive(Debug)]
pub struct Kept {
    path: PathBuf,
    fingerprint: String,
    runs: Runs,
    /// Created with the first run to keep.
    file: Mutex<Option<File>>,
}

impl Kept {
    /// Reads the runs of this set-up from the file, to which more are added.
    ///
    /// A line that is not whole, because its writer was killed, is ignored. One command at a time can add
    /// runs.
    pub(crate) fn open(path: PathBuf, fingerprint: String) -> Self {
        let runs = read(&path, &fingerprint);
        Self { path, fingerprint, runs, file: Mutex::new(None) }
    }

    /// Returns the number of runs in the file when it was opened.
    pub fn count(&self) -> usize {
        self.runs.len()
    }

    pub(crate) fn find(&self, job: usize, seed: u64) -> Option<Vec<Sample>> {
        self.runs.get(&(job, seed)).cloned()
    }

    pub(crate) fn keep(&self, job: usize, seed: u64, samples: &[Sample]) -> Result<(), StoreError> {
        let line = line(&Line { job, seed, samples: samples.to_vec() })?;
        let mut file = self.file.lock().expect("nothing panics with the lock held");
        let mut write = || {
            if file.is_none() {
                *file = Some(self.rewrite()?);
            }
            let file = file.as_mut().expect("it was just made");
            // A single write: a process that is killed leaves the whole line, or a part that is ignored.
            file.write_all(line.as_bytes())
        };
        write().map_err(|error| StoreError::io(&self.path, error))
    }

    /// Writes the known runs in place of the file, so that no part of a line precedes the next one.
    ///
    /// # Errors
    /// If another command adds runs to the file.
    fn rewrite(&self) -> io::Result<File> {
        // Stays locked until the new file is in its place.
        let present = File::open(&self.path).ok();
        present.as_ref().map_or(Ok(()), lock)?;
        // Another command may have added runs since the file was read, and ended.
        let mut runs = read(&self.path, &self.fingerprint);
        runs.extend(self.runs.clone());
        let mut text = line(&Head { fingerprint: self.fingerprint.clone() })?;
        for ((job, seed), samples) in runs {
            text += &line(&Line { job, seed, samples })?;
        }
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let part = self.path.with_extension("part");
        fs::write(&part, text)?;
        let file = File::options().append(true).open(&part)?;
        lock(&file)?;
        fs::rename(&part, &self.path)?;
        Ok(file)
    }
}

/// Locks the file for as long as it is open. The kernel takes the lock from a process that ends.
fn lock(file: &File) -> io::Result<()> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => io::Error::new(
            io::ErrorKind::WouldBlock,
            "another command runs this figure; wait for it or choose another --out",
        ),
        TryLockError::Error(error) => error,
    })
}

/// Reads the runs of a file; none if it is missing or of another set-up.
fn read(path: &Path, fingerprint: &str) -> Runs {
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut lines = text.lines();
    let head = lines.next().and_then(|line| serde_json::from_str::<Head>(line).ok());
    if head.is_none_or(|head| head.fingerprint != fingerprint) {
        return HashMap::new();
    }
    let runs = lines.filter_map(|line| serde_json::from_str::<Line>(line).ok());
    runs.map(|line| ((line.job, line.seed), line.samples)).collect()
}

fn line(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(serde_json::to_string(value)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("undrop-kept-{}-{name}.jsonl", std::process::id())))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn samples(y: f64) -> Vec<Sample> {
        vec![Sample { panel: 1, series: 2, x: 0.1 + 0.2, y }]
    }

    #[test]
    fn runs_are_read_back_to_the_last_bit_and_those_of_another_set_up_are_not() {
        let file = Scratch::new("bits");
        let kept = Kept::open(file.0.clone(), "a".to_owned());
        assert_eq!(kept.count(), 0);
        kept.keep(3, 1, &samples(1.0 / 3.0)).unwrap();
        kept.keep(3, 2, &samples(1e-300)).unwrap();
        let again = Kept::open(file.0.clone(), "a".to_owned());
        assert_eq!(again.find(3, 1).unwrap(), samples(1.0 / 3.0));
        assert_eq!(again.find(3, 2).unwrap(), samples(1e-300));
        assert_eq!((again.find(3, 3), again.find(2, 1)), (None, None));
        assert_eq!(Kept::open(file.0.clone(), "b".to_owned()).count(), 0);
    }

    #[test]
    fn a_truncated_line_is_run_again_and_harms_no_other() {
        let file = Scratch::new("cut");
        let kept = Kept::open(file.0.clone(), "a".to_owned());
        kept.keep(0, 1, &samples(1.0)).unwrap();
        kept.keep(0, 2, &samples(2.0)).unwrap();
        drop(kept);
        let text = fs::read_to_string(&file.0).unwrap();
        fs::write(&file.0, &text[..text.len() - 9]).unwrap();
        let again = Kept::open(file.0.clone(), "a".to_owned());
        assert_eq!((again.count(), again.find(0, 2)), (1, None));
        again.keep(0, 2, &samples(2.0)).unwrap();
        assert_eq!(Kept::open(file.0.clone(), "a".to_owned()).count(), 2);
    }

    #[test]
    fn a_second_writer_is_refused_and_loses_no_run_of_the_first_one() {
        let file = Scratch::new("writers");
        let open = || Kept::open(file.0.clone(), "a".to_owned());
        let (first, second) = (open(), open());
        first.keep(0, 1, &samples(1.0)).unwrap();
        let error = second.keep(0, 2, &samples(2.0)).unwrap_err().to_string();
        assert!(error.contains("another command runs this figure"), "{error}");
        first.keep(0, 3, &samples(3.0)).unwrap();
        drop(first);
        second.keep(0, 2, &samples(2.0)).unwrap();
        let all = open();
        assert_eq!([1, 2, 3].map(|seed| all.find(0, seed).is_some()), [true; 3]);
    }
}
