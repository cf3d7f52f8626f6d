//! A folder of outcomes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::StoreError;
use crate::kept::Kept;
use crate::outcome::{Outcome, Panel};
use crate::picture::picture;
use crate::plan::{Figure, Scale};

/// A folder with a JSON file and a picture for each figure, and the finished runs of a figure that was
/// stopped.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// Returns the store in this folder, which need not exist.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    fn path(&self, slug: &str, ending: &str) -> PathBuf {
        self.folder.join(format!("{slug}.{ending}"))
    }

    /// Returns the outcome of this figure in the folder, if its fingerprint is that of the present set-up.
    /// The claim is judged again, and all texts and labels are the present ones.
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
            title: figure.prose.title.clone(),
            source: figure.prose.source.clone(),
            setup: figure.prose.setup.clone(),
            runs: plan.runs(scale),
            claim: figure.claim(&panels),
            panels,
            ..outcome
        })
    }

    /// Returns the outcome of this figure in the folder, of either scale. If set-up or code have changed
    /// since, its claim and texts are the stored ones.
    pub fn held(&self, figure: &Figure) -> Option<Outcome> {
        let fresh = [Scale::Full, Scale::Quick].into_iter().find_map(|scale| self.load(figure, scale));
        fresh.or_else(|| self.read(figure))
    }

    fn read(&self, figure: &Figure) -> Option<Outcome> {
        serde_json::from_slice(&fs::read(self.path(&figure.slug(), "json")).ok()?).ok()
    }

    /// Returns the finished runs of a figure that is not whole, and a place for more.
    pub fn kept(&self, figure: &Figure, scale: Scale) -> Kept {
        Kept::open(self.runs_path(figure, scale), figure.fingerprint(scale))
    }

    /// Removes the finished runs of a figure that is not whole.
    ///
    /// # Errors
    /// If their file exists and cannot be removed.
    pub fn forget(&self, figure: &Figure, scale: Scale) -> Result<(), StoreError> {
        let path = self.runs_path(figure, scale);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io(&path, error)),
            _ => Ok(()),
        }
    }

    /// Each scale has its own file, so that a quick run does not remove the runs of a full one.
    fn runs_path(&self, figure: &Figure, scale: Scale) -> PathBuf {
        self.path(&figure.slug(), scale.pick("quick.runs.jsonl", "runs.jsonl"))
    }

    /// Writes an outcome and its picture.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn save(&self, figure: &Figure, outcome: &Outcome) -> Result<(), StoreError> {
        let mut json = serde_json::to_string_pretty(outcome)?;
        json.push('\n');
        self.write(&self.path(&figure.slug(), "svg"), &picture(outcome)?)?;
        // Renamed last, so that a run that is stopped leaves no half of a file.
        let (part, whole) = (self.path(&figure.slug(), "part"), self.path(&figure.slug(), "json"));
        self.write(&part, &json)?;
        fs::rename(&part, &whole).map_err(|error| StoreError::io(&whole, error))
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), StoreError> {
        let written = fs::create_dir_all(&self.folder).and_then(|()| fs::write(path, text));
        written.map_err(|error| StoreError::io(path, error))
    }
}
