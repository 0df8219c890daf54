//! Protected inputs: `${secrets.NAME}` is replaced in the arguments that a tool gets, and their values are masked in what it returns.

use std::sync::Arc;

use async_trait::async_trait;
use segue_engine::project::missions::MissionDef;
use serde_json::Value as Json;

use crate::tools::{CallWrapper, ToolCallContext, ToolHandler, ToolOutcome, WrappedTool};

/// What models read instead of a secret.
const MASK: &str = "[secret]";

/// The secrets of a mission: names and values.
#[derive(Clone, Default)]
pub(super) struct Secrets(Arc<[(Arc<str>, Arc<str>)]>);

impl Secrets {
    pub(super) fn of(def: &MissionDef) -> Self {
        let value = |(name, input): (&Arc<str>, &segue_engine::project::missions::InputDef)| {
            let secret = input.secret.clone().filter(|secret| input.protected && !secret.is_empty())?;
            Some((name.clone(), secret))
        };
        Self(def.inputs.iter().filter_map(value).collect())
    }
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    fn insert(&self, value: Json) -> Json {
        texts(value, &|text| {
            let mut text = text;
            for (name, secret) in self.0.iter() {
                text = text.replace(&format!("${{secrets.{name}}}"), secret);
            }
            text
        })
    }
    fn mask(&self, value: Json) -> Json {
        texts(value, &|text| {
            let mut text = text;
            for (_, secret) in self.0.iter() {
                text = text.replace(&**secret, MASK);
            }
            text
        })
    }
    /// The first name in the arguments, as in `${secrets.NAME}`, that is not a protected input.
    pub(super) fn unknown(&self, arguments: &Json) -> Option<String> {
        match arguments {
            Json::String(text) => {
                let names = text.split("${secrets.").skip(1).filter_map(|rest| Some(rest.split_once('}')?.0));
                names.into_iter().find(|name| !self.0.iter().any(|(known, _)| **known == **name)).map(str::to_owned)
            }
            Json::Array(values) => values.iter().find_map(|value| self.unknown(value)),
            Json::Object(fields) => fields.values().find_map(|value| self.unknown(value)),
            _ => None,
        }
    }
    /// A tool that gets the secrets and does not return them.
    pub(super) fn wrap(&self, tool: Arc<dyn ToolHandler>) -> Arc<dyn ToolHandler> {
        if self.is_empty() { tool } else { Arc::new(WrappedTool::new(tool, self.clone())) }
    }
}

/// A value with every text in it changed, names of fields included.
fn texts(value: Json, change: &dyn Fn(String) -> String) -> Json {
    match value {
        Json::String(text) => Json::String(change(text)),
        Json::Array(values) => values.into_iter().map(|value| texts(value, change)).collect(),
        Json::Object(fields) => {
            Json::Object(fields.into_iter().map(|(name, value)| (change(name), texts(value, change))).collect())
        }
        other => other,
    }
}

#[async_trait]
impl CallWrapper for Secrets {
    async fn call(&self, inner: &dyn ToolHandler, arguments: Json, cx: &ToolCallContext) -> ToolOutcome {
        let outcome = inner.call(self.insert(arguments), cx).await;
        let masked = serde_json::to_value(&outcome).map(|value| self.mask(value));
        masked.and_then(serde_json::from_value).unwrap_or(outcome)
    }
    fn replayed(&self, inner: &dyn ToolHandler, arguments: &Json, outcome: &ToolOutcome, cx: &ToolCallContext) {
        inner.replayed(&self.insert(arguments.clone()), outcome, cx);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_is_inserted_into_arguments_and_masked_in_results() {
        let secrets = Secrets(Arc::new([("key".into(), "s3cret".into())]));
        let sent = secrets.insert(json!({"header": ["Bearer ${secrets.key}"], "other": "${secrets.none}"}));
        assert_eq!(sent, json!({"header": ["Bearer s3cret"], "other": "${secrets.none}"}));
        assert_eq!(secrets.unknown(&json!({"header": ["Bearer ${secrets.key}"], "at": "${secrets"})), None);
        assert_eq!(secrets.unknown(&json!([{"x": "${secrets.key} ${secrets.none}"}])).as_deref(), Some("none"));
        assert_eq!(secrets.mask(json!({"text": "you sent s3cret"})), json!({"text": "you sent [secret]"}));
    }
}
