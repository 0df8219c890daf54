//! Checks across files: everything that needs more than one file to be seen.

use super::{
    Project, Sources,
    uses::{ConditionUse, Use},
};
use crate::finding::Findings;

/// Runs every check.
pub(crate) fn run(
    _project: &Project,
    _sources: &Sources,
    _uses: &[Use],
    _conditions: &[ConditionUse],
    _findings: &mut Findings,
) {
}
