//! JSON in protocol buffers: the well-known types `Struct`, `Value`, `ListValue` and `Timestamp`, and helpers for writing other messages as
//! JSON.
//!
//! Field numbers and names are those of `google/protobuf/struct.proto` and `google/protobuf/timestamp.proto`
//! (<https://protobuf.dev/reference/protobuf/google.protobuf/>).

use std::collections::BTreeMap;

use prost::{Message, Oneof};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value as Json};

/// `google.protobuf.Struct`: a JSON object.
#[derive(Clone, PartialEq, Message)]
pub struct Struct {
    /// Its fields.
    #[prost(btree_map = "string, message", tag = "1")]
    pub fields: BTreeMap<String, Value>,
}

/// `google.protobuf.Value`: any JSON value.
#[derive(Clone, PartialEq, Message)]
pub struct Value {
    /// The value; `None` is `null`.
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6")]
    pub kind: Option<Kind>,
}

/// The kind of a value.
#[derive(Clone, PartialEq, Oneof)]
pub enum Kind {
    /// `null`.
    #[prost(int32, tag = "1")]
    Null(i32),
    /// A number; integers have no kind of their own.
    #[prost(double, tag = "2")]
    Number(f64),
    /// A string.
    #[prost(string, tag = "3")]
    Text(String),
    /// A boolean.
    #[prost(bool, tag = "4")]
    Bool(bool),
    /// An object.
    #[prost(message, tag = "5")]
    Struct(Struct),
    /// An array.
    #[prost(message, tag = "6")]
    List(List),
}

/// `google.protobuf.ListValue`: a JSON array.
#[derive(Clone, PartialEq, Message)]
pub struct List {
    /// Its items.
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<Value>,
}

/// `google.protobuf.Timestamp`; in JSON an RFC 3339 string.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 00:00 UTC.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// Nanoseconds of the second.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// 2^53, above which an f64 does not represent every integer.
const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;

impl From<&Json> for Value {
    fn from(json: &Json) -> Self {
        let kind = match json {
            Json::Null => Kind::Null(0),
            Json::Bool(value) => Kind::Bool(*value),
            Json::Number(number) => Kind::Number(number.as_f64().unwrap_or_default()),
            Json::String(text) => Kind::Text(text.clone()),
            Json::Array(items) => Kind::List(List { values: items.iter().map(Self::from).collect() }),
            Json::Object(fields) => Kind::Struct(fields.into()),
        };
        Self { kind: Some(kind) }
    }
}

impl From<&Map<String, Json>> for Struct {
    fn from(fields: &Map<String, Json>) -> Self {
        Self { fields: fields.iter().map(|(key, value)| (key.clone(), value.into())).collect() }
    }
}

impl From<Value> for Json {
    fn from(value: Value) -> Self {
        match value.kind {
            None | Some(Kind::Null(_)) => Self::Null,
            Some(Kind::Bool(value)) => Self::Bool(value),
            // Integers are sent as doubles: 3.0 means 3.
            #[allow(clippy::cast_possible_truncation)] // an integer within range, as the guard checks
            Some(Kind::Number(number)) if number.fract() == 0.0 && number.abs() < MAX_EXACT_INTEGER => {
                Self::from(number as i64)
            }
            Some(Kind::Number(number)) => Self::from(number),
            Some(Kind::Text(text)) => Self::String(text),
            Some(Kind::Struct(inner)) => Self::Object(inner.into()),
            Some(Kind::List(list)) => Self::Array(list.values.into_iter().map(Self::from).collect()),
        }
    }
}

impl From<Struct> for Map<String, Json> {
    fn from(value: Struct) -> Self {
        value.fields.into_iter().map(|(key, value)| (key, value.into())).collect()
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Json::from(self.clone()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Json::deserialize(deserializer).map(|json| Self::from(&json))
    }
}

impl Serialize for Struct {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Map::<String, Json>::from(self.clone()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Struct {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Map::<String, Json>::deserialize(deserializer).map(|fields| Self::from(&fields))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let nanos = u32::try_from(self.nanos).unwrap_or_default();
        let time = chrono::DateTime::from_timestamp(self.seconds, nanos).unwrap_or_default();
        serializer.serialize_str(&time.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true))
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time = chrono::DateTime::parse_from_rfc3339(&text).map_err(de::Error::custom)?;
        let nanos = i32::try_from(time.timestamp_subsec_nanos()).unwrap_or_default();
        Ok(Self { seconds: time.timestamp(), nanos })
    }
}

/// Serialisation of bytes as base64, for `#[serde(with = "…")]`.
pub mod bytes {
    use base64::{Engine as _, engine::general_purpose::STANDARD};

    use super::{Deserialize, Deserializer, Serializer, de};

    /// Serialises bytes as base64.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    /// Deserialises bytes from base64.
    ///
    /// # Errors
    /// The string is not valid base64.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// Deserialises an enum number from its JSON name. `names` has the names in the order of the numbers; `spelling` normalises the name
/// before the lookup. An unknown name is 0.
///
/// # Errors
/// The value is not a string.
pub fn enum_number<'de, D: Deserializer<'de>>(
    deserializer: D,
    names: &[&str],
    spelling: impl FnOnce(String) -> String,
) -> Result<i32, D::Error> {
    let text = spelling(String::deserialize(deserializer)?);
    let at = names.iter().position(|name| *name == text).unwrap_or_default();
    Ok(i32::try_from(at).unwrap_or_default())
}

/// The name of an enum number. An unknown number has the first name.
pub fn enum_name<'a>(number: i32, names: &[&'a str]) -> &'a str {
    let at = usize::try_from(number).unwrap_or_default();
    names.get(at).or_else(|| names.first()).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn json_round_trips() {
        let json = json!({"a": [1, 2.5, -3, null, true, "x", {"b": {}}], "big": 1e300, "zero": 0});
        let bytes = Value::from(&json).encode_to_vec();
        assert_eq!(Json::from(Value::decode(bytes.as_slice()).unwrap()), json);
        assert_eq!(Json::from(Value::default()), Json::Null);
        let odd = Value { kind: Some(Kind::Number(f64::NAN)) };
        assert_eq!(Json::from(odd), Json::Null);
    }

    #[test]
    fn values_nested_too_deeply_are_refused() {
        let mut value = Value::default();
        for _ in 0..200 {
            value = Value { kind: Some(Kind::List(List { values: vec![value] })) };
        }
        assert!(Value::decode(value.encode_to_vec().as_slice()).is_err());
    }

    #[test]
    fn timestamps_are_rfc_3339_strings() {
        let time = Timestamp { seconds: 1_700_000_000, nanos: 5_000_000 };
        let text = serde_json::to_value(time).unwrap();
        assert_eq!(text, json!("2023-11-14T22:13:20.005Z"));
        assert_eq!(serde_json::from_value::<Timestamp>(text).unwrap(), time);
        assert!(serde_json::from_value::<Timestamp>(json!("yesterday")).is_err());
    }
}
