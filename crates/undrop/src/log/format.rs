//! The three forms of a log line. One record is one line in each of them.

use std::fmt::{self, Debug, Write as _};

use clap::ValueEnum;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Time, level, module, message and fields, for people
    Text,
    /// One JSON object on each line
    Json,
    /// Priority, message and fields, for the journal of systemd, which adds the time itself
    Journald,
}

/// Writes events in a [`Format`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines(pub(super) Format);

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut record = Record::default();
        event.record(&mut record);
        let (level, target) = (event.metadata().level(), event.metadata().target());
        let time = match self.0 {
            Format::Journald => String::new(),
            _ => time(),
        };
        let line = match self.0 {
            Format::Text => record.text(&time, *level, target, writer.has_ansi_escapes()),
            Format::Json => record.json(&time, *level, target),
            Format::Journald => record.journald(*level, target),
        };
        writeln!(writer, "{line}")
    }
}

/// The time as RFC 3339 writes it.
pub(super) fn time() -> String {
    let mut time = String::new();
    // A clock that cannot be written is left out.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    time.truncate(time.trim_end().len());
    time
}

/// The message and the fields of an event.
#[derive(Debug, Default)]
struct Record {
    message: String,
    fields: Vec<(&'static str, Value)>,
}

impl Record {
    fn add(&mut self, field: &Field, value: Value) {
        self.fields.push((field.name(), value));
    }

    fn text(&self, time: &str, level: Level, target: &str, has_colours: bool) -> String {
        let (dim, colour, end) =
            if has_colours { ("\x1b[2m", colour(level), "\x1b[0m") } else { ("", "", "") };
        format!("{dim}{time}{end} {colour}{level:>5}{end} {dim}{target}:{end} {}", self.words())
    }

    fn json(self, time: &str, level: Level, target: &str) -> String {
        let mut object = Map::new();
        object.insert("time".to_owned(), time.into());
        object.insert("level".to_owned(), level.as_str().to_ascii_lowercase().into());
        object.insert("target".to_owned(), target.into());
        object.insert("message".to_owned(), self.message.into());
        object.extend(self.fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
        Value::Object(object).to_string()
    }

    fn journald(&self, level: Level, target: &str) -> String {
        let priority = match level {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        match priority {
            7 => format!("<7>{target}: {}", self.words()),
            _ => format!("<{priority}>{}", self.words()),
        }
    }

    /// The message and the fields on one line.
    fn words(&self) -> String {
        let mut words = one_line(&self.message);
        for (name, value) in &self.fields {
            // Strings are quoted, with line ends escaped.
            let _ = write!(words, " {name}={value}");
        }
        words
    }
}

/// Escapes line ends and other control characters.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

fn colour(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\x1b[31m",
        Level::WARN => "\x1b[33m",
        Level::INFO => "\x1b[32m",
        Level::DEBUG => "\x1b[34m",
        Level::TRACE => "\x1b[35m",
    }
}

impl Visit for Record {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.add(field, format!("{value:?}").into());
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.add(field, value.into());
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let fields = vec![("peer", "osaka".into()), ("help", "do\nthis".into()), ("count", 7.into())];
        Record { message: "down\nand \"out\" \u{1b}[2J".to_owned(), fields }
    }

    #[test]
    fn a_record_is_one_line_in_each_form() {
        let text = record().text("2026-11-23T00:00:00Z", Level::WARN, "maelstrom::watch", false);
        let words = r#"down\nand "out" \u{1b}[2J peer="osaka" help="do\nthis" count=7"#;
        assert_eq!(text, format!("2026-11-23T00:00:00Z  WARN maelstrom::watch: {words}"));
        assert_eq!(record().journald(Level::WARN, "maelstrom::watch"), format!("<4>{words}"));
        assert_eq!(record().journald(Level::DEBUG, "a"), format!("<7>a: {words}"));
        let json = record().json("2026-11-23T00:00:00Z", Level::WARN, "maelstrom::watch");
        assert!(!json.contains('\n'), "{json}");
        let object: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(object["message"], "down\nand \"out\" \u{1b}[2J");
        assert_eq!((&object["level"], &object["count"]), (&Value::from("warn"), &Value::from(7)));
        assert_eq!(object["time"], "2026-11-23T00:00:00Z");
    }

    #[test]
    fn colours_are_written_only_where_they_are_wanted() {
        let text = |colours| record().text("now", Level::ERROR, "a", colours);
        assert!(text(true).contains("\x1b[31mERROR\x1b[0m"));
        assert!(!text(false).contains('\x1b'));
    }
}
