//! The table of cells: links, losses, workloads, codes and targets, from TOML (`cells.toml`).
//!
//! A *cell* is a link, a course of losses and a workload; a *variant* is a setting of the gateways. A
//! *group* of cells becomes a table: its cells are all combinations of the group's links, losses and
//! workloads.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use simnet::units;

use super::figure::Figure;
use super::target::{Bound, Reference, Scale, Target};
use super::vendor::Threshold;
use super::workload::Workload;
use crate::course::Course;

/// Variant without gateways.
pub(super) const BARE: &str = "bare";
/// Group of the cells that only serve as the baseline of others.
const LOSSLESS: &str = "lossless";
/// Word in a course that stands for the path of the recording given on the command line.
const RECORDING: &str = "$RECORDING";
/// Bytes of a repair relative to the packets in it: by this factor, shares of packets become shares of bytes.
const REPAIR_LENGTH: f64 = 1.085;
/// Share of the time that `--quick` leaves, and the least that it leaves.
const QUICK: f64 = 0.25;
const QUICK_SECONDS_MIN: f64 = 4.0;

/// All cells.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// Number of rounds of each cell.
    pub(super) rounds: u32,
    pub(super) variants: BTreeMap<String, Variant>,
    pub(super) groups: Vec<Group>,
    /// Cells that are left out because they need a recording.
    pub(super) omitted: Vec<String>,
}

/// A setting of the gateways.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Variant {
    /// Text for headings.
    pub(super) title: String,
    pub(super) code: Code,
}

/// Codes of a variant.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Code {
    /// Lines of the section `[code]`.
    Lines(String),
    /// Thresholds of loss, by which the code is changed once a second.
    Thresholds(Vec<Threshold>),
}

/// Cells that become a table.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) cells: Vec<Cell>,
    /// Variants that run in each cell, in turn, after a run without gateways.
    pub(super) variants: Vec<String>,
    pub(super) columns: Vec<(String, Figure)>,
    pub(super) targets: Vec<Target>,
}

/// A link, a course of losses and a workload.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    /// `LINK/LOSS/WORKLOAD`.
    pub(super) id: String,
    pub(super) link_name: String,
    pub(super) loss_name: String,
    pub(super) workload_name: String,
    pub(super) link: Link,
    pub(super) course: Course,
    pub(super) workload: Workload,
    pub(super) seconds: f64,
    /// Seconds in which the same traffic passes before the measured one, so that gateways know the link.
    pub(super) learn: f64,
    /// Bytes of repairs per hundred bytes that the controller's model needs for this loss, if it is known.
    pub(super) expected_percent: Option<f64>,
}

/// A link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Link {
    /// Bits per second; `None`: unlimited.
    pub(super) rate_bps: Option<u64>,
    pub(super) delay_us: u64,
    /// Size of the queue; `None`: one bandwidth-delay product of the round trip.
    pub(super) queue_bytes: Option<u64>,
}

impl Cell {
    /// Returns the id of a cell.
    pub(super) fn id_of(link: &str, loss: &str, workload: &str) -> String {
        format!("{link}/{loss}/{workload}")
    }

    /// Returns whether runs of this cell with a variant can have a figure.
    fn can_have(&self, figure: Figure, variant: &str) -> bool {
        let is_of_changes = matches!(figure, Figure::WorstPhase | Figure::React);
        self.workload.can_have(figure, variant != BARE) && !(is_of_changes && self.course.is_constant())
    }

    /// Returns the id of the cell with the same link and workload that loses nothing.
    pub(super) fn lossless_id(&self) -> String {
        Self::id_of(&self.link_name, "none", &self.workload_name)
    }
}

impl Table {
    /// Returns the table of this program.
    pub(super) fn standard(recording: Option<&Path>) -> anyhow::Result<Self> {
        Self::parse(include_str!("cells.toml"), recording).context("in the table of cells of this program")
    }

    /// Reads a table.
    ///
    /// # Errors
    /// If the text is not a table, or names something that it does not define.
    pub(super) fn parse(text: &str, recording: Option<&Path>) -> anyhow::Result<Self> {
        let file: FileForm = toml::from_str(text)?;
        let variants = file.variants.iter().map(|(name, form)| {
            ensure!(
                name != BARE,
                "variants: expected another name than {BARE}, which means without gateways"
            );
            Ok((name.clone(), form.variant().with_context(|| format!("variants.{name}"))?))
        });
        let variants = variants.collect::<anyhow::Result<BTreeMap<_, _>>>()?;
        let mut table = Self { rounds: file.rounds, variants, groups: Vec::new(), omitted: Vec::new() };
        ensure!(table.rounds >= 1, "rounds: expected at least 1, saw {}", table.rounds);
        for form in &file.group {
            let group =
                table.group(&file, form, recording).with_context(|| format!("group {:?}", form.id))?;
            table.groups.push(group);
        }
        table.add_lossless(&file)?;
        Ok(table)
    }

    fn group(
        &mut self,
        file: &FileForm,
        form: &GroupForm,
        recording: Option<&Path>,
    ) -> anyhow::Result<Group> {
        let mut cells = Vec::new();
        let omitted = self.omitted.len();
        for link in &form.links {
            for loss in &form.losses {
                for workload in &form.workloads {
                    match file.cell([link, loss, workload], [form.seconds, form.learn], recording)? {
                        Some(cell) => cells.push(cell),
                        None => self.omitted.push(Cell::id_of(link, loss, workload)),
                    }
                }
            }
        }
        let known = |name: &str| -> anyhow::Result<()> {
            ensure!(
                name == BARE || self.variants.contains_key(name),
                "expected a defined variant, saw {name:?}"
            );
            Ok(())
        };
        form.variants.iter().try_for_each(|name| known(name))?;
        // Of cells that are left out nothing is known.
        let is_whole = self.omitted.len() == omitted;
        let can_have = |variant: &str, figure: Figure| -> anyhow::Result<()> {
            known(variant)?;
            ensure!(
                !is_whole || cells.iter().any(|cell: &Cell| cell.can_have(figure, variant)),
                "expected a figure that a cell of the group can have, saw {variant}.{figure}"
            );
            Ok(())
        };
        let column = |text: &String| -> anyhow::Result<(String, Figure)> {
            let (variant, figure) = text.split_once('.').context("columns: expected VARIANT.FIGURE")?;
            let figure = figure.parse()?;
            can_have(variant, figure).context("columns")?;
            Ok((variant.to_owned(), figure))
        };
        let columns = form.columns.iter().map(column).collect::<anyhow::Result<_>>()?;
        let targets = form.targets.iter().map(|form| {
            let target = form.target()?;
            can_have(&target.variant, target.figure).context("targets")?;
            target.reference().map_or(Ok(()), |other| known(&other.variant)).context("targets")?;
            Ok(target)
        });
        let targets = targets.collect::<anyhow::Result<_>>()?;
        let (id, title, variants) = (form.id.clone(), form.title.clone(), form.variants.clone());
        Ok(Group { id, title, cells, variants, columns, targets })
    }

    /// Adds the cells without loss that shares are relative to.
    fn add_lossless(&mut self, file: &FileForm) -> anyhow::Result<()> {
        let mut cells: Vec<Cell> = Vec::new();
        for cell in self.groups.iter().flat_map(|group| &group.cells) {
            let id = cell.lossless_id();
            let exists =
                self.cells().any(|(_, cell)| cell.id == id) || cells.iter().any(|cell| cell.id == id);
            if !exists && cell.workload.has_share() {
                let parts = [cell.link_name.as_str(), "none", &cell.workload_name];
                cells.extend(file.cell(parts, [cell.seconds, cell.learn], None)?);
            }
        }
        if !cells.is_empty() {
            let columns = vec![(BARE.to_owned(), Figure::Goodput)];
            let title = "Links without loss, without gateways".to_owned();
            let (variants, targets) = (Vec::new(), Vec::new());
            self.groups
                .insert(0, Group { id: LOSSLESS.to_owned(), title, cells, variants, columns, targets });
        }
        Ok(())
    }

    /// Returns all cells with their groups.
    pub(super) fn cells(&self) -> impl Iterator<Item = (&Group, &Cell)> {
        self.groups.iter().flat_map(|group| group.cells.iter().map(move |cell| (group, cell)))
    }

    /// Keeps the cells whose group has one of the names, or whose id contains one of them, and the lossless
    /// cells that they need; and of the variants those that are named, if any are.
    ///
    /// # Errors
    /// If nothing has such a name.
    pub(super) fn keep(&mut self, cells: &[String], variants: &[String]) -> anyhow::Result<()> {
        for name in cells {
            let found =
                self.cells().any(|(group, cell)| group.id == *name || cell.id.contains(name.as_str()));
            ensure!(found, "--cells: expected a group or a part of a cell's id, saw {name:?}; see --list");
        }
        for name in variants {
            let found = name == BARE || self.variants.contains_key(name);
            ensure!(found, "--variants: expected a variant of the table, saw {name:?}; see --list");
        }
        if !cells.is_empty() {
            let is_wanted = |group: &str, cell: &Cell| {
                cells.iter().any(|name| group == name || cell.id.contains(name.as_str()))
            };
            let needed: Vec<String> = self
                .cells()
                .filter(|(group, cell)| is_wanted(&group.id, cell) && cell.workload.has_share())
                .map(|(_, cell)| cell.lossless_id())
                .collect();
            for group in &mut self.groups {
                let id = group.id.clone();
                group.cells.retain(|cell| is_wanted(&id, cell) || needed.contains(&cell.id));
            }
            self.groups.retain(|group| !group.cells.is_empty());
        }
        if !variants.is_empty() {
            self.groups.iter_mut().for_each(|group| group.variants.retain(|name| variants.contains(name)));
        }
        Ok(())
    }

    /// Makes all runs shorter, and one round.
    pub(super) fn make_quick(&mut self) {
        self.rounds = 1;
        for cell in self.groups.iter_mut().flat_map(|group| &mut group.cells) {
            let seconds = (cell.seconds * QUICK).max(QUICK_SECONDS_MIN).min(cell.seconds);
            cell.course = cell.course.scaled(seconds / cell.seconds);
            cell.seconds = seconds;
            cell.learn = cell.learn.min(seconds);
        }
    }
}

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileForm {
    rounds: u32,
    links: BTreeMap<String, LinkForm>,
    workloads: BTreeMap<String, Workload>,
    variants: BTreeMap<String, VariantForm>,
    /// Courses with a name; other losses are written as they are.
    #[serde(default)]
    courses: BTreeMap<String, CourseForm>,
    /// Repairs per hundred packets by loss, as the controller's model has them.
    #[serde(default)]
    expected: BTreeMap<String, f64>,
    group: Vec<GroupForm>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkForm {
    rate: Option<String>,
    delay: String,
    queue: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CourseForm {
    loss: String,
    seconds: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VariantForm {
    title: String,
    code: Option<String>,
    thresholds: Option<Vec<Threshold>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupForm {
    id: String,
    title: String,
    links: Vec<String>,
    losses: Vec<String>,
    workloads: Vec<String>,
    variants: Vec<String>,
    seconds: f64,
    #[serde(default)]
    learn: f64,
    columns: Vec<String>,
    #[serde(default)]
    targets: Vec<TargetForm>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetForm {
    #[serde(default = "auto")]
    variant: String,
    figure: String,
    at_least: Option<f64>,
    at_most: Option<f64>,
    /// `expected`, or a variant: the bound is a multiple of its figure.
    times: Option<String>,
    /// A variant: the bound is a difference from its figure.
    above: Option<String>,
    /// Workload of the variant that the bound refers to, if it is another one.
    workload: Option<String>,
    /// Whether the variant's figure is divided by 1 + overhead first.
    #[serde(default)]
    after_overhead: bool,
}

fn auto() -> String {
    "auto".to_owned()
}

impl FileForm {
    /// Returns a cell; `None` if it needs a recording and there is none.
    fn cell(
        &self,
        [link_name, loss_name, workload_name]: [&str; 3],
        [seconds, learn]: [f64; 2],
        recording: Option<&Path>,
    ) -> anyhow::Result<Option<Cell>> {
        let link =
            self.links.get(link_name).with_context(|| format!("expected a link, saw {link_name:?}"))?;
        let workload = self.workloads.get(workload_name);
        let workload = workload.with_context(|| format!("expected a workload, saw {workload_name:?}"))?;
        workload.check().with_context(|| format!("workloads.{workload_name}"))?;
        let (mut loss, mut seconds) = (loss_name.to_owned(), seconds);
        if let Some(course) = self.courses.get(loss_name) {
            (loss, seconds) = (course.loss.clone(), course.seconds);
        }
        ensure!((1.0..=3600.0).contains(&seconds), "expected 1 to 3600 seconds, saw {seconds}");
        ensure!((0.0..=3600.0).contains(&learn), "learn: expected 0 to 3600 seconds, saw {learn}");
        if loss.contains(RECORDING) {
            let Some(path) = recording else { return Ok(None) };
            loss = loss.replace(RECORDING, &path.display().to_string());
        }
        Ok(Some(Cell {
            id: Cell::id_of(link_name, loss_name, workload_name),
            link_name: link_name.to_owned(),
            loss_name: loss_name.to_owned(),
            workload_name: workload_name.to_owned(),
            link: link.link().with_context(|| format!("links.{link_name}"))?,
            course: loss.parse().with_context(|| format!("loss {loss_name:?}"))?,
            workload: workload.clone(),
            seconds,
            learn,
            expected_percent: self.expected.get(loss_name).map(|percent| percent * REPAIR_LENGTH),
        }))
    }
}

impl LinkForm {
    fn link(&self) -> anyhow::Result<Link> {
        Ok(Link {
            rate_bps: self.rate.as_deref().map(units::parse_bit_rate).transpose()?,
            delay_us: units::parse_duration_us(&self.delay)?,
            queue_bytes: self.queue.as_deref().map(units::parse_size).transpose()?,
        })
    }
}

impl VariantForm {
    fn variant(&self) -> anyhow::Result<Variant> {
        let code = match (&self.code, &self.thresholds) {
            (Some(lines), None) => Code::Lines(lines.trim().to_owned()),
            (None, Some(thresholds)) => {
                let starts = thresholds.first().is_some_and(|first| first.from_percent == 0.0);
                let ascends = thresholds.is_sorted_by(|a, b| a.from_percent < b.from_percent);
                ensure!(starts && ascends, "expected thresholds that ascend from 0");
                Code::Thresholds(thresholds.clone())
            }
            _ => bail!("expected either `code` or `thresholds`"),
        };
        Ok(Variant { title: self.title.clone(), code })
    }
}

impl TargetForm {
    fn target(&self) -> anyhow::Result<Target> {
        let bound = match (self.at_least, self.at_most) {
            (Some(least), None) => Bound::AtLeast(least),
            (None, Some(most)) => Bound::AtMost(most),
            _ => bail!("targets: expected either `at_least` or `at_most`"),
        };
        let reference = |variant: &String| Reference {
            variant: variant.clone(),
            workload: self.workload.clone(),
            after_overhead: self.after_overhead,
        };
        let scale = match (&self.times, &self.above) {
            (None, None) => Scale::Absolute,
            (Some(word), None) if word == "expected" => Scale::TimesExpected,
            (Some(variant), None) => Scale::Times(reference(variant)),
            (None, Some(variant)) => Scale::Above(reference(variant)),
            (Some(_), Some(_)) => bail!("targets: expected only one of `times` and `above`"),
        };
        Ok(Target { variant: self.variant.clone(), figure: self.figure.parse()?, bound, scale })
    }
}
