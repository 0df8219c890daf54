//! Errors of templates, with location and fix.

use std::sync::Arc;

use minijinja::{Error, ErrorKind};

use super::{engine::TemplateSource, name_scan::NameKind};
use crate::{
    finding::SourceLocation,
    limits::{TEMPLATE_FUEL, TEMPLATE_OUTPUT_BYTES, TEMPLATE_RECURSION},
};

/// The kind of a template error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateErrorKind {
    /// The text is not a valid template.
    Syntax,
    /// An undefined value was used where one is required.
    Undefined,
    /// A filter, test, function, method or template does not exist.
    Unknown,
    /// Too many steps, too deep nesting, or too much output.
    TooLarge,
    /// Any other failure of rendering, such as adding a number to a string.
    Failed,
}

/// A template that could not be compiled or rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}:{line}: {message} ({help})")]
pub struct TemplateError {
    /// The kind.
    pub kind: TemplateErrorKind,
    /// The file that contains the template, relative to the project folder.
    pub name: Arc<str>,
    /// The line in that file, from 1.
    pub line: u32,
    /// The column in characters, from 1, if known.
    pub column: Option<u32>,
    /// What is wrong, without a full stop.
    pub message: String,
    /// How to fix it.
    pub help: String,
}

impl TemplateError {
    /// The location, in the form of a finding.
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

    /// The error of a name that does not exist and begins at byte `at`.
    pub(super) fn unknown_name(
        source: &TemplateSource,
        kind: NameKind,
        name: &str,
        near: Option<&str>,
        at: usize,
    ) -> Self {
        let (line, column) = line_and_column(source, at);
        let what = match kind {
            NameKind::Filter => "filter",
            NameKind::Test => "test",
            NameKind::Method => "method",
            NameKind::Function => "function",
        };
        let help = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => "use what Jinja provides: https://jinja.palletsprojects.com/en/stable/templates/".to_owned(),
        };
        Self {
            kind: TemplateErrorKind::Unknown,
            name: source.name().clone(),
            line,
            column,
            message: format!("there is no {what} `{name}`"),
            help,
        }
    }

    /// An error that Segue itself raises, located at the start of the template.
    pub(super) fn at_start(source: &TemplateSource, kind: TemplateErrorKind, message: &str, help: &str) -> Self {
        let name = source.name().clone();
        Self { kind, name, line: source.first_line(), column: None, message: message.into(), help: help.into() }
    }
}

fn position(error: &Error, source: &TemplateSource) -> (u32, Option<u32>) {
    if let Some(range) = error.range() {
        return line_and_column(source, range.start);
    }
    let line = u32::try_from(error.line().unwrap_or(1)).unwrap_or(1);
    (source.first_line().saturating_add(line.saturating_sub(1)), None)
}

/// The line in the file and the column of a byte of the template. On its first line the column counts from the start of the template.
fn line_and_column(source: &TemplateSource, at: usize) -> (u32, Option<u32>) {
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
        TemplateErrorKind::Syntax => "correct the Jinja syntax at this location".to_owned(),
        TemplateErrorKind::Undefined => "define it, or test it first with `is defined`".to_owned(),
        TemplateErrorKind::TooLarge => {
            format!("loop over fewer items, print less, and nest at most {TEMPLATE_RECURSION} levels")
        }
        TemplateErrorKind::Unknown if error.kind() == ErrorKind::TemplateNotFound => {
            "put the text into this template: include, import and extends are not available".to_owned()
        }
        TemplateErrorKind::Unknown => {
            "use what Jinja provides: https://jinja.palletsprojects.com/en/stable/templates/".to_owned()
        }
        TemplateErrorKind::Failed => "check the types of the values used here".to_owned(),
    }
}
