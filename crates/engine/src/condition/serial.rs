//! A condition travels as its text; a YAML boolean as a boolean.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Condition;

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.as_constant() {
            Some(holds) => serializer.serialize_bool(holds),
            None => serializer.serialize_str(self.text()),
        }
    }
}

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl de::Visitor<'_> for Reader {
            type Value = Condition;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a condition, written as a text or a boolean")
            }
            fn visit_bool<E: de::Error>(self, holds: bool) -> Result<Condition, E> {
                Ok(Condition::constant(holds))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Condition, E> {
                Condition::parse(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Reader)
    }
}
