//! Forms in which the metrics of a gateway or node are printed.

use std::borrow::Cow;

use daemon::openmetrics;

/// A form of metrics as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// OpenMetrics 1.0, which Prometheus asks for
    #[default]
    Openmetrics,
    /// The older text format of Prometheus, for the textfile collector of node_exporter
    Prometheus,
}

impl Format {
    /// Returns a text of the OpenMetrics format in this form.
    pub(crate) fn of(self, text: &str) -> Cow<'_, str> {
        match self {
            Self::Openmetrics => text.into(),
            Self::Prometheus => openmetrics::in_prometheus_text(text).into(),
        }
    }
}
