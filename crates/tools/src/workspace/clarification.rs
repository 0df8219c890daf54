//! The question of `ask_clarification`. The runtime puts it to the user; the tool itself only checks it.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::messages::{ToolMessage, render_message};
use segue_base::limits;

/// A question to the user, as structured content of the result of `ask_clarification`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clarification {
    /// The question.
    pub question: String,
    /// Why it is asked.
    pub clarification_type: ClarificationKind,
    /// What the user should know to answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Answers to choose from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// A form, if several values are asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<ClarificationField>,
}

/// Why a question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClarificationKind {
    /// Something needed is not known.
    MissingInfo,
    /// The request can be read in several ways.
    AmbiguousRequirement,
    /// There are several good ways.
    ApproachChoice,
    /// Something dangerous needs agreement.
    RiskConfirmation,
    /// Something is proposed.
    Suggestion,
}

/// A field of a form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClarificationField {
    /// The name of the value.
    pub name: String,
    /// What the user sees.
    pub label: String,
    /// The kind of the value.
    #[serde(rename = "type")]
    pub kind: FieldKind,
    /// Whether it must be filled in.
    #[serde(default)]
    pub required: bool,
    /// The choices of a selection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// The kind of a value of a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldKind {
    /// One line of text.
    Text,
    /// Several lines of text.
    LongText,
    /// A number.
    Number,
    /// Yes or no.
    Boolean,
    /// A date.
    Date,
    /// One of the options.
    Select,
    /// Any of the options.
    MultiSelect,
}

impl FieldKind {
    fn has_options(self) -> bool {
        matches!(self, Self::Select | Self::MultiSelect)
    }
}

impl Clarification {
    /// What is wrong with the question, for the model.
    pub(super) fn problem(&self) -> Option<String> {
        let too_many = |options: &[String]| options.len() > limits::CLARIFICATION_OPTIONS;
        if self.question.trim().is_empty() {
            return Some(render_message(ToolMessage::QuestionBlank, &[]));
        }
        let fields = self.fields.iter().flat_map(|field| field.options.iter().chain([&field.name, &field.label]));
        let mut texts = self.context.iter().chain([&self.question]).chain(&self.options).chain(fields);
        if texts.any(|text| text.chars().count() > limits::CLARIFICATION_TEXT) {
            return Some(render_message(ToolMessage::QuestionLong, &[("limit", &limits::CLARIFICATION_TEXT)]));
        }
        if self.fields.len() > limits::CLARIFICATION_FIELDS
            || too_many(&self.options)
            || self.fields.iter().any(|field| too_many(&field.options))
        {
            let (fields, options) = (limits::CLARIFICATION_FIELDS, limits::CLARIFICATION_OPTIONS);
            return Some(render_message(ToolMessage::QuestionMany, &[("fields", &fields), ("options", &options)]));
        }
        let mut names = HashSet::new();
        for field in &self.fields {
            let word = match (field.kind.has_options(), field.options.is_empty()) {
                _ if !names.insert(&field.name) => ToolMessage::QuestionNameTwice,
                (true, true) => ToolMessage::QuestionNoOptions,
                (false, false) => ToolMessage::QuestionOptions,
                _ => continue,
            };
            return Some(render_message(word, &[("name", &field.name)]));
        }
        None
    }
}
