//! A folder of outcomes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::kept::Kept;
use crate::outcome::{Outcome, Panel};
use crate::picture::{PictureError, picture};
use crate::plan::{Figure, Scale};

/// Why an outcome cannot be kept.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A file cannot be written.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// It cannot be written as JSON.
    #[error("expected an outcome that JSON can hold: {0}")]
    Json(#[from] serde_json::Error),
    /// It cannot be drawn.
    #[error(transparent)]
    Picture(#[from] PictureError),
}

impl StoreError {
    pub(crate) fn io(path: &Path, error: io::Error) -> Self {
        Self::Io { path: path.to_owned(), error }
    }
}

/// Where outcomes are kept: a JSON file and a picture for each figure, and the runs of one that was stopped midway.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// In this folder, which need not be there yet.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    fn path(&self, slug: &str, ending: &str) -> PathBuf {
        self.folder.join(format!("{slug}.{ending}"))
    }

    /// The outcome that the folder holds of this figure, if its fingerprint is that of the present set-up. The claim is judged
    /// again, and all texts and labels are the present ones.
    #[must_use]
    pub fn load(&self, figure: &Figure, scale: Scale) -> Option<Outcome> {
        let outcome = self.read(figure)?;
        if outcome.fingerprint != figure.fingerprint(scale) {
            return None;
        }
        let plan = (figure.plan)(scale);
        let points = |panel: Panel| panel.series.into_iter().map(|series| series.points);
        let panels = plan.panels.iter().zip(outcome.panels);
        let panels: Vec<Panel> = panels.map(|(plan, panel)| plan.filled(points(panel))).collect();
        Some(Outcome {
            title: figure.title.to_owned(),
            source: figure.source.to_owned(),
            setup: figure.setup.to_owned(),
            runs: plan.runs(scale),
            claim: figure.claim(&panels),
            panels,
            ..outcome
        })
    }

    /// What the folder holds of this figure, of either scale, and also if set-up or code have changed since; then the claim is
    /// as it was judged.
    #[must_use]
    pub fn held(&self, figure: &Figure) -> Option<Outcome> {
        let fresh = [Scale::Full, Scale::Quick].into_iter().find_map(|scale| self.load(figure, scale));
        fresh.or_else(|| self.read(figure))
    }

    fn read(&self, figure: &Figure) -> Option<Outcome> {
        serde_json::from_slice(&fs::read(self.path(&figure.slug(), "json")).ok()?).ok()
    }

    /// The runs of a figure that is not whole: those that are there, and a place for more.
    #[must_use]
    pub fn kept(&self, figure: &Figure, scale: Scale) -> Kept {
        Kept::open(self.runs_path(figure, scale), figure.fingerprint(scale))
    }

    /// Forgets the runs of a figure that is not whole.
    ///
    /// # Errors
    /// If there is a file of them that cannot be removed.
    pub fn forget(&self, figure: &Figure, scale: Scale) -> Result<(), StoreError> {
        let path = self.runs_path(figure, scale);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io(&path, error)),
            _ => Ok(()),
        }
    }

    /// Of either scale one: a quick look does not cost what a full run has done.
    fn runs_path(&self, figure: &Figure, scale: Scale) -> PathBuf {
        self.path(&figure.slug(), scale.pick("quick.runs.jsonl", "runs.jsonl"))
    }

    /// Keeps an outcome and draws it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn save(&self, figure: &Figure, outcome: &Outcome) -> Result<(), StoreError> {
        let mut json = serde_json::to_string_pretty(outcome)?;
        json.push('\n');
        self.write(&self.path(&figure.slug(), "svg"), &picture(outcome)?)?;
        // Last, and by its name only when whole: a run that is stopped leaves no half of it.
        let (part, whole) = (self.path(&figure.slug(), "part"), self.path(&figure.slug(), "json"));
        self.write(&part, &json)?;
        fs::rename(&part, &whole).map_err(|error| StoreError::io(&whole, error))
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), StoreError> {
        let written = fs::create_dir_all(&self.folder).and_then(|()| fs::write(path, text));
        written.map_err(|error| StoreError::io(path, error))
    }
}
