//! Times as numbers of milliseconds, whole or not.

use std::time::Duration;

use serde::de::{self, Visitor};
use serde::{Deserializer, Serializer};

/// A day: no time here is longer.
const MS_MAX: f64 = 86_400_000.0;

pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time.as_secs_f64() * 1e3)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    from.deserialize_any(Millis)
}

struct Millis;

impl Visitor<'_> for Millis {
    type Value = Duration;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "milliseconds, 0 to {MS_MAX}")
    }

    fn visit_i64<E: de::Error>(self, ms: i64) -> Result<Duration, E> {
        self.visit_f64(ms as f64)
    }

    fn visit_u64<E: de::Error>(self, ms: u64) -> Result<Duration, E> {
        self.visit_f64(ms as f64)
    }

    fn visit_f64<E: de::Error>(self, ms: f64) -> Result<Duration, E> {
        if !(0.0..=MS_MAX).contains(&ms) {
            return Err(E::invalid_value(de::Unexpected::Float(ms), &self));
        }
        Ok(Duration::from_micros((ms * 1e3).round() as u64))
    }
}

/// The same, or nothing.
pub(super) mod option {
    use super::{Deserializer, Duration, Serializer};

    pub(in crate::config) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => super::serialize(time, to),
            None => to.serialize_none(),
        }
    }

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        super::deserialize(from).map(Some)
    }
}
