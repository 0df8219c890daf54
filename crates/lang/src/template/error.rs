//! What went wrong in a template, with the place and the cure.

use std::sync::Arc;

use minijinja::{Error, ErrorKind};

use super::engine::TemplateSource;
use crate::{
    finding::SourceLocation,
    limits::{TEMPLATE_FUEL, TEMPLATE_OUTPUT_BYTES, TEMPLATE_RECURSION},
};

/// The class of a template failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateErrorKind {
    /// The text is no template.
    Syntax,
    /// A value that is not there was needed.
    Undefined,
    /// A filter, test, function or method that does not exist.
    Unknown,
    /// Too many steps, too deep, or too much output.
    TooLarge,
    /// Anything else that failed while rendering, such as adding a number to a text.
    Failed,
}

/// A template that could not be compiled or rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}:{line}: {message} ({help})")]
pub struct TemplateError {
    /// The class.
    pub kind: TemplateErrorKind,
    /// The file the template stands in, from the project's folder.
    pub name: Arc<str>,
    /// The line in that file, from 1.
    pub line: u32,
    /// The column in characters, from 1, where the engine knows it.
    pub column: Option<u32>,
    /// What is wrong, without a final stop.
    pub message: String,
    /// The cure.
    pub help: String,
}

impl TemplateError {
    /// The place as a finding wants it.
    pub fn place(&self) -> SourceLocation {
        SourceLocation { file: self.name.clone(), line: self.line, column: self.column.unwrap_or(1), width: 1 }
    }

    pub(super) fn from_engine(error: &Error, source: &TemplateSource) -> Self {
        let kind = match error.kind() {
            ErrorKind::SyntaxError | ErrorKind::BadEscape | ErrorKind::InvalidDelimiter => TemplateErrorKind::Syntax,
            ErrorKind::UndefinedError => TemplateErrorKind::Undefined,
            ErrorKind::UnknownFilter
            | ErrorKind::UnknownTest
            | ErrorKind::UnknownFunction
            | ErrorKind::UnknownMethod
            | ErrorKind::TemplateNotFound => TemplateErrorKind::Unknown,
            ErrorKind::OutOfFuel | ErrorKind::WriteFailure => TemplateErrorKind::TooLarge,
            _ if error.detail().is_some_and(|d| d.contains("recursion limit")) => TemplateErrorKind::TooLarge,
            _ => TemplateErrorKind::Failed,
        };
        let (line, column) = position(error, source);
        Self { kind, name: source.name().clone(), line, column, message: message(error), help: help(error, kind) }
    }

    /// A filter that does not exist, whose name begins at byte `at`.
    pub(super) fn unknown_filter(source: &TemplateSource, filter: &str, at: usize) -> Self {
        let (line, column) = place_of(source, at);
        Self {
            kind: TemplateErrorKind::Unknown,
            name: source.name().clone(),
            line,
            column,
            message: format!("there is no filter `{filter}`"),
            help: "use one of Jinja's own, listed in the guide on templates".to_owned(),
        }
    }

    /// A failure of our own making, at the start of the template.
    pub(super) fn at_start(source: &TemplateSource, kind: TemplateErrorKind, message: &str, help: &str) -> Self {
        let name = source.name().clone();
        Self { kind, name, line: source.first_line(), column: None, message: message.into(), help: help.into() }
    }
}

fn position(error: &Error, source: &TemplateSource) -> (u32, Option<u32>) {
    if let Some(range) = error.range() {
        return place_of(source, range.start);
    }
    let line = u32::try_from(error.line().unwrap_or(1)).unwrap_or(1);
    (source.first_line().saturating_add(line.saturating_sub(1)), None)
}

/// Line in the file and column of a byte of the template. On its first line the column counts from the template's start.
fn place_of(source: &TemplateSource, at: usize) -> (u32, Option<u32>) {
    let before = source.text().get(..at).unwrap_or_default();
    let line = u32::try_from(before.matches('\n').count()).unwrap_or(0);
    let column = before.rsplit('\n').next().map_or(0, |text| text.chars().count());
    (source.first_line().saturating_add(line), u32::try_from(column + 1).ok())
}

fn message(error: &Error) -> String {
    match error.kind() {
        ErrorKind::OutOfFuel => format!("the template needs more than {TEMPLATE_FUEL} steps"),
        ErrorKind::WriteFailure => format!("the template prints more than {TEMPLATE_OUTPUT_BYTES} bytes"),
        ErrorKind::UndefinedError => "a value that is not defined was used".to_owned(),
        kind => error.detail().map_or_else(|| kind.to_string(), str::to_owned),
    }
}

fn help(error: &Error, kind: TemplateErrorKind) -> String {
    match kind {
        TemplateErrorKind::Syntax => "correct the Jinja syntax at this place".to_owned(),
        TemplateErrorKind::Undefined => "define it, or test it first with `is defined`".to_owned(),
        TemplateErrorKind::TooLarge => {
            format!("loop over less, print less, and nest no deeper than {TEMPLATE_RECURSION}")
        }
        TemplateErrorKind::Unknown if error.kind() == ErrorKind::TemplateNotFound => {
            "write the text into this template: include, import and extends are not available".to_owned()
        }
        TemplateErrorKind::Unknown => "use one of Jinja's own, listed in the guide on templates".to_owned(),
        TemplateErrorKind::Failed => "check the types of the values used here".to_owned(),
    }
}
