//! Checks knowledge search (steps that trigger it and the policy that answers) and flow retrieval.

use super::super::{ActionReference, DocumentStore, Project, StepKind, builtin::TRIGGER_SEARCH};
use crate::finding::{Findings, SourceLocation};

/// The number of flows above which a prompt with all of them is a warning.
const MANY_FLOWS: usize = 25;

pub(super) fn check(project: &Project, findings: &mut Findings) {
    let triggers = triggers(project);
    match &project.config.search {
        None => {
            let answers = project.lists_action(TRIGGER_SEARCH);
            for place in triggers.iter().filter(|_| !answers) {
                let message = "the step triggers a search, but there is no `EnterpriseSearchPolicy`";
                let help = "Add `- name: EnterpriseSearchPolicy` under `policies` of `config.yml`.";
                findings.warning("F0721", place, message, help);
            }
        }
        Some(search) => {
            if search.store == DocumentStore::Qdrant && project.endpoints.qdrant.is_none() {
                let message = "the policy searches Qdrant, but `endpoints.yml` does not configure it";
                let help = "Add `vector_store: {type: qdrant, collection: …, host: …}` to `endpoints.yml`.";
                findings.error("F0722", &search.place, message, help);
            }
            if search.store == DocumentStore::Qdrant && search.embeddings.is_none() {
                let message = "the policy has no `embeddings`; OpenAI's `text-embedding-3-large` is used";
                let help = "Set the model that the collection was filled with: `embeddings: {model_group: …}`.";
                findings.note("F0726", &search.place, message, help);
            }
            if triggers.is_empty() {
                let message = "nothing triggers the policy: no flow runs `action_trigger_search`";
                let help = "Add a flow `pattern_search` with the step `- action: action_trigger_search`.";
                findings.warning("F0723", &search.place, message, help);
            }
        }
    }
    let retrieval = project.config.generator.as_ref().map(|generator| &generator.retrieval);
    let flows = project.user_flows().filter(|flow| !flow.is_link_only()).count();
    if retrieval.is_some_and(|retrieval| !retrieval.active) && flows > MANY_FLOWS {
        let place = SourceLocation { file: "config.yml".into(), line: 0, column: 0, width: 1 };
        let message = format!("every prompt contains all {flows} flows, because `flow_retrieval` is off");
        let help = "Set `active: true`, so that prompts contain only flows similar to the message.";
        findings.warning("F0724", &place, message, help);
    }
}

/// The steps that trigger a search.
fn triggers(project: &Project) -> Vec<SourceLocation> {
    let asks =
        |kind: &StepKind| matches!(kind, StepKind::Action(ActionReference::Plain(name)) if *name == *TRIGGER_SEARCH);
    let steps = project.flows.values().flat_map(|flow| &flow.steps);
    steps.filter(|step| asks(&step.kind)).map(|step| step.place.clone()).collect()
}
