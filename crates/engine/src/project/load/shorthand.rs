//! The short form of a field: a type name, or a call as in HCL, such as `list(string, "Facts with source", true)`.

use serde_json::{Map, Value as Json, json};

use super::super::missions::ValueKind;

/// Nesting of types in a short form.
const DEPTH: u32 = 16;

/// A declared field, before its name and its role are known.
#[derive(Clone, Debug)]
pub(super) struct FieldShape {
    /// Its type.
    pub(super) kind: ValueKind,
    /// The JSON Schema of its values.
    pub(super) schema: Map<String, Json>,
    /// What it is.
    pub(super) description: String,
    /// Whether it must be present; `None`: not written.
    pub(super) required: Option<bool>,
    /// Whether it, or a part of it, is a secret.
    pub(super) protected: bool,
    /// Its default, from the options of a short form.
    pub(super) default: Option<Json>,
}

impl FieldShape {
    /// A field of the type with this name.
    pub(super) fn of_type(name: &str) -> Option<Self> {
        let (kind, schema) = match name {
            "string" => (ValueKind::String, json!({"type": "string"})),
            "number" => (ValueKind::Number, json!({"type": "number"})),
            "integer" => (ValueKind::Integer, json!({"type": "integer"})),
            "bool" | "boolean" => (ValueKind::Boolean, json!({"type": "boolean"})),
            "list" | "array" => (ValueKind::List, json!({"type": "array", "items": {}})),
            "map" => (ValueKind::Map, json!({"type": "object"})),
            "object" => (ValueKind::Object, json!({"type": "object"})),
            "any" => (ValueKind::Any, json!({})),
            "file" => (ValueKind::File, json!({"type": "string"})),
            "any_primitive" => (ValueKind::Any, json!({"type": ["string", "number", "boolean"]})),
            _ => return None,
        };
        let schema = schema.as_object().cloned().unwrap_or_default();
        Some(Self { kind, schema, description: String::new(), required: None, protected: false, default: None })
    }

    /// The schema, with the description.
    pub(super) fn described(&self) -> Json {
        let mut schema = self.schema.clone();
        if !self.description.is_empty() {
            schema.insert("description".into(), self.description.as_str().into());
        }
        Json::Object(schema)
    }

    /// Sets the type of the items of a list.
    pub(super) fn set_items(&mut self, item: &Self) {
        self.schema.insert("items".into(), item.described());
        self.protected |= item.protected;
    }

    /// Sets the type of the values of a map.
    pub(super) fn set_values(&mut self, value: &Self) {
        self.schema.insert("additionalProperties".into(), value.described());
        self.protected |= value.protected;
    }

    /// Sets the fields of an object.
    pub(super) fn set_properties<'s>(&mut self, fields: impl IntoIterator<Item = (&'s str, &'s Self)>) {
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for (name, field) in fields {
            properties.insert(name.to_owned(), field.described());
            required.extend(field.required.unwrap_or(false).then(|| Json::from(name)));
            self.protected |= field.protected;
        }
        self.schema.insert("properties".into(), Json::Object(properties));
        if !required.is_empty() {
            self.schema.insert("required".into(), Json::Array(required));
        }
    }
}

/// Reads a short form. The error is the part that is not understood.
pub(super) fn parse(text: &str) -> Result<FieldShape, String> {
    let mut parser = Parser { rest: text.trim() };
    let shape = parser.shape(DEPTH)?;
    if parser.rest.is_empty() { Ok(shape) } else { Err(parser.unexpected()) }
}

struct Parser<'t> {
    rest: &'t str,
}

impl<'t> Parser<'t> {
    fn unexpected(&self) -> String {
        match self.rest.chars().take(20).collect::<String>() {
            end if end.is_empty() => "the end of the text".to_owned(),
            found => format!("`{found}`"),
        }
    }

    /// Takes a punctuation mark, if it is next.
    fn take(&mut self, mark: char) -> bool {
        match self.rest.trim_start().strip_prefix(mark) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, mark: char) -> Result<(), String> {
        if self.take(mark) { Ok(()) } else { Err(self.unexpected()) }
    }

    /// Takes a name, if one is next.
    fn word(&mut self) -> Option<&'t str> {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at_checked(end).filter(|(word, _)| !word.is_empty())?;
        self.rest = rest.trim_start();
        Some(word)
    }

    /// Takes a JSON value: a text in double quotes, a number, `true`, `false`, a list.
    fn value(&mut self) -> Result<Json, String> {
        // A number or a word ends at the next mark; the stream would want a blank there.
        let is_scalar = !self.rest.starts_with(['"', '[', '{']);
        let end = if is_scalar { self.rest.find([',', ')', '}', ' ']) } else { None };
        let (part, _) = self.rest.split_at_checked(end.unwrap_or(self.rest.len())).unwrap_or_default();
        let mut values = serde_json::Deserializer::from_str(part).into_iter::<Json>();
        let value = values.next().and_then(Result::ok).ok_or_else(|| self.unexpected())?;
        self.rest = self.rest.get(values.byte_offset()..).unwrap_or_default().trim_start();
        Ok(value)
    }

    fn shape(&mut self, depth: u32) -> Result<FieldShape, String> {
        let depth = depth.checked_sub(1).ok_or_else(|| self.unexpected())?;
        let start = Self { rest: self.rest };
        let mut shape = self.word().and_then(FieldShape::of_type).ok_or_else(|| start.unexpected())?;
        if shape.kind == ValueKind::File && depth + 1 < DEPTH {
            return Err(start.unexpected());
        }
        if !self.take('(') {
            return Ok(shape);
        }
        let mut first = true;
        while !self.take(')') {
            if !first {
                self.expect(',')?;
            }
            self.argument(&mut shape, first, depth)?;
            first = false;
        }
        Ok(shape)
    }

    fn argument(&mut self, shape: &mut FieldShape, first: bool, depth: u32) -> Result<(), String> {
        match (self.rest.chars().next(), shape.kind) {
            (Some('"'), _) => shape.description = self.value()?.as_str().unwrap_or_default().to_owned(),
            (Some('{'), ValueKind::Object) if first => {
                let fields = self.fields(depth)?;
                shape.set_properties(fields.iter().map(|(name, field)| (*name, field)));
            }
            (Some('{'), _) => self.options(shape)?,
            (Some('t' | 'f'), _) => shape.required = Some(self.value()?.as_bool().ok_or_else(|| self.unexpected())?),
            (_, ValueKind::List) if first => shape.set_items(&self.shape(depth)?),
            (_, ValueKind::Map) if first => shape.set_values(&self.shape(depth)?),
            _ => return Err(self.unexpected()),
        }
        Ok(())
    }

    /// `{name = type, …}`
    fn fields(&mut self, depth: u32) -> Result<Vec<(&'t str, FieldShape)>, String> {
        let mut fields = Vec::new();
        self.expect('{')?;
        while !self.take('}') {
            let name = self.word().ok_or_else(|| self.unexpected())?;
            if !self.take('=') {
                self.expect(':')?;
            }
            fields.push((name, self.shape(depth)?));
            self.take(',');
        }
        Ok(fields)
    }

    /// `{default = …, protected = true, required = true}`
    fn options(&mut self, shape: &mut FieldShape) -> Result<(), String> {
        self.expect('{')?;
        while !self.take('}') {
            let start = Self { rest: self.rest };
            let name = self.word().ok_or_else(|| start.unexpected())?;
            if !self.take('=') {
                self.expect(':')?;
            }
            let value = self.value()?;
            match (name, value.as_bool()) {
                ("default", _) => shape.default = Some(value),
                ("protected", Some(flag)) => shape.protected = flag,
                ("required", Some(flag)) => shape.required = Some(flag),
                _ => return Err(start.unexpected()),
            }
            self.take(',');
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

    use super::*;

    #[test]
    fn a_short_form_is_a_type_or_a_call() {
        assert_eq!(parse("integer").unwrap().described(), json!({"type": "integer"}));
        let facts = parse(r#"list(string, "Facts, with source", true)"#).unwrap();
        assert_eq!(
            facts.described(),
            json!({"type": "array", "items": {"type": "string"}, "description": "Facts, with source"})
        );
        assert_eq!((facts.kind, facts.required), (ValueKind::List, Some(true)));
        assert_eq!(
            parse("map(number)").unwrap().described(),
            json!({"type": "object", "additionalProperties": {"type": "number"}})
        );
        let object = parse(r#"object({ url = string("Address", true), rank: integer }, "Page")"#).unwrap();
        assert_eq!(object.schema["required"], json!(["url"]));
        assert_eq!(object.schema["properties"]["url"], json!({"type": "string", "description": "Address"}));
        let depth = parse(r#"integer("Depth", { default = 2 })"#).unwrap();
        assert_eq!((depth.default, depth.required), (Some(json!(2)), None));
        assert!(parse(r#"string("Key", {protected = true})"#).unwrap().protected);
        assert!(parse("object({key = string({protected = true})})").unwrap().protected, "protection of a part");
    }

    #[test]
    fn other_text_is_refused_with_the_part_that_is_not_understood() {
        let deep = "list(".repeat(40);
        for (text, part) in [
            ("text", "`text`"),
            ("string x", "`x`"),
            ("list(strin)", "`strin)`"),
            ("list(string", "the end of the text"),
            ("string(string)", "`string)`"),
            ("string(\"a\", {hidden = true})", "`hidden = true})`"),
            ("object({a})", "`})`"),
            (deep.as_str(), "`list(list(list(list(`"),
            ("", "the end of the text"),
        ] {
            assert_eq!(parse(text).map(|shape| shape.described()), Err(part.to_owned()), "{text}");
        }
    }
}
