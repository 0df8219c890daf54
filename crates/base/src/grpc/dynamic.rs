//! JSON in protocol buffers: the well-known types `Struct`, `Value` and `Timestamp`, and how other messages are written as JSON.
//!
//! Numbers and names of fields are those of `google/protobuf/struct.proto` and `timestamp.proto`.

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

/// `google.protobuf.Value`: any JSON.
#[derive(Clone, PartialEq, Message)]
pub struct Value {
    /// What it is; nothing is `null`.
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6")]
    pub kind: Option<Kind>,
}

/// What a value is.
#[derive(Clone, PartialEq, Oneof)]
pub enum Kind {
    /// Nothing.
    #[prost(int32, tag = "1")]
    Null(i32),
    /// A number; whole ones have no kind of their own.
    #[prost(double, tag = "2")]
    Number(f64),
    /// A text.
    #[prost(string, tag = "3")]
    Text(String),
    /// True or false.
    #[prost(bool, tag = "4")]
    Bool(bool),
    /// An object.
    #[prost(message, tag = "5")]
    Struct(Struct),
    /// A list.
    #[prost(message, tag = "6")]
    List(List),
}

/// `google.protobuf.ListValue`: a JSON list.
#[derive(Clone, PartialEq, Message)]
pub struct List {
    /// Its items.
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<Value>,
}

/// `google.protobuf.Timestamp`, in JSON a text in the form of RFC 3339.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Timestamp {
    /// Seconds since 1970.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// And billionths of one.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// Above this a floating number is not exact any more.
const EXACT: f64 = 9_007_199_254_740_992.0;

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
            // 3 came as 3.0 and means 3.
            #[allow(clippy::cast_possible_truncation)] // whole and within range, as is seen
            Some(Kind::Number(number)) if number.fract() == 0.0 && number.abs() < EXACT => Self::from(number as i64),
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

/// Bytes, in JSON as base64.
pub mod bytes {
    use base64::{Engine as _, engine::general_purpose::STANDARD};

    use super::{Deserialize, Deserializer, Serializer, de};

    /// Writes them.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    /// Reads them.
    ///
    /// # Errors
    /// It is no base64.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// Reads a number for a name that JSON says, as `spelt` spells it, from a table in the order of the numbers; an unknown name is
/// the first.
///
/// # Errors
/// It is no text.
pub fn number_of<'de, D: Deserializer<'de>>(
    deserializer: D,
    names: &[&str],
    spelt: impl FnOnce(String) -> String,
) -> Result<i32, D::Error> {
    let text = spelt(String::deserialize(deserializer)?);
    let at = names.iter().position(|name| *name == text).unwrap_or_default();
    Ok(i32::try_from(at).unwrap_or_default())
}

/// The name of a number in such a table; an unknown number has the first.
pub fn name_of<'a>(number: i32, names: &[&'a str]) -> &'a str {
    let at = usize::try_from(number).unwrap_or_default();
    names.get(at).or_else(|| names.first()).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn json_goes_there_and_back() {
        let json = json!({"a": [1, 2.5, -3, null, true, "x", {"b": {}}], "big": 1e300, "zero": 0});
        let bytes = Value::from(&json).encode_to_vec();
        assert_eq!(Json::from(Value::decode(bytes.as_slice()).unwrap()), json);
        assert_eq!(Json::from(Value::default()), Json::Null);
        let odd = Value { kind: Some(Kind::Number(f64::NAN)) };
        assert_eq!(Json::from(odd), Json::Null);
    }

    #[test]
    fn what_is_nested_too_deeply_is_not_read() {
        let mut value = Value::default();
        for _ in 0..200 {
            value = Value { kind: Some(Kind::List(List { values: vec![value] })) };
        }
        assert!(Value::decode(value.encode_to_vec().as_slice()).is_err());
    }

    #[test]
    fn times_and_bytes_are_texts() {
        let time = Timestamp { seconds: 1_700_000_000, nanos: 5_000_000 };
        let text = serde_json::to_value(time).unwrap();
        assert_eq!(text, json!("2023-11-14T22:13:20.005Z"));
        assert_eq!(serde_json::from_value::<Timestamp>(text).unwrap(), time);
        assert!(serde_json::from_value::<Timestamp>(json!("yesterday")).is_err());
    }
}
