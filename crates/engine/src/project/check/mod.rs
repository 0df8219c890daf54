//! Checks across files. They run after all files are loaded, on the references and conditions that the loaders recorded and
//! on the loaded flows.

mod calls;
mod collects;
mod conditions;
mod confirmations;
pub(crate) mod mission;
mod missions;
mod names;
mod rephrasing;
mod search;
#[cfg(test)]
mod tests;

pub(crate) use self::calls::with_called;
use super::{
    Project, Sources,
    references::{ConditionReference, NameReference},
};
use crate::finding::{Findings, did_you_mean};

/// Runs every check.
pub(crate) fn run(
    project: &Project,
    sources: &Sources,
    references: &[NameReference],
    conditions: &[ConditionReference],
    findings: &mut Findings,
) {
    names::check(project, references, findings);
    conditions::check(project, conditions, findings);
    confirmations::check(project, findings);
    calls::check(project, findings);
    collects::check(project, findings);
    rephrasing::check(project, findings);
    search::check(project, findings);
    missions::check(project, findings);
    if sources.config.is_none() && !sources.data.is_empty() {
        let place = crate::finding::SourceLocation { file: "config.yml".into(), line: 0, column: 0, width: 1 };
        let help = "Add `config.yml` with `recipe: default.v1` and a `pipeline` that sets the model.";
        findings.note("F0711", &place, "there is no `config.yml`; the defaults are used", help);
    }
}

/// The help text for an unknown name: "Did you mean …?", or `otherwise` if no known name is similar.
fn suggestion<'a>(name: &str, known: impl IntoIterator<Item = &'a str>, otherwise: impl FnOnce() -> String) -> String {
    did_you_mean(name, known).map_or_else(otherwise, |near| format!("Did you mean `{near}`?"))
}
