//! Checks across files: everything that needs more than one file to be seen.
//!
//! Entry: [`run`]. The loaders have noted every name that must exist and every condition; the flows tell the rest.

mod calls;
mod collects;
mod conditions;
mod confirmations;
mod names;
mod search;
#[cfg(test)]
mod tests;
mod wording;

pub(crate) use self::calls::with_called;
use super::{
    Project, Sources,
    uses::{ConditionUse, Use},
};
use crate::finding::{Findings, did_you_mean};

/// Runs every check.
pub(crate) fn run(
    project: &Project,
    sources: &Sources,
    uses: &[Use],
    conditions: &[ConditionUse],
    findings: &mut Findings,
) {
    names::check(project, uses, findings);
    conditions::check(project, conditions, findings);
    confirmations::check(project, findings);
    calls::check(project, findings);
    collects::check(project, findings);
    wording::check(project, findings);
    search::check(project, findings);
    if sources.config.is_none() && !sources.data.is_empty() {
        let place = crate::finding::SourceLocation { file: "config.yml".into(), line: 0, column: 0, width: 1 };
        let help = "Add `config.yml` with `recipe: default.v1` and a `pipeline` to choose the model.";
        findings.note("F0711", &place, "there is no `config.yml`; the defaults are used", help);
    }
}

/// "Did you mean …?", or another cure.
fn cure<'a>(name: &str, known: impl IntoIterator<Item = &'a str>, otherwise: impl FnOnce() -> String) -> String {
    did_you_mean(name, known).map_or_else(otherwise, |near| format!("Did you mean `{near}`?"))
}
