//! Searching: who asks for knowledge, who answers, and whether there is anything to choose flows from.

use super::super::{ActionReference, DocumentStore, Project, StepKind, builtin::TRIGGER_SEARCH};
use crate::finding::{Findings, SourceLocation};

/// More flows than this make a prompt that no model reads with care.
const MANY_FLOWS: usize = 25;

pub(super) fn check(project: &Project, findings: &mut Findings) {
    let triggers = triggers(project);
    match &project.config.search {
        None => {
            let answers = project.lists_action(TRIGGER_SEARCH);
            for place in triggers.iter().filter(|_| !answers) {
                let message = "the step asks for knowledge, but no `EnterpriseSearchPolicy` is listed to find any";
                let help = "Add `- name: EnterpriseSearchPolicy` under `policies` of `config.yml`.";
                findings.warning("F0721", place, message, help);
            }
        }
        Some(search) => {
            if search.store == DocumentStore::Qdrant && project.endpoints.qdrant.is_none() {
                let message = "the policy searches a Qdrant, and `endpoints.yml` has none";
                let help = "Add `vector_store: {type: qdrant, collection: …, host: …}` to `endpoints.yml`.";
                findings.error("F0722", &search.place, message, help);
            }
            if search.store == DocumentStore::Qdrant && search.embeddings.is_none() {
                let message = "the policy names no `embeddings`; `text-embedding-3-large` of OpenAI is taken";
                let help = "Name the model that the collection was filled with, as in `embeddings: {model_group: …}`.";
                findings.note("F0726", &search.place, message, help);
            }
            if triggers.is_empty() {
                let message = "nothing ever asks the policy: no flow runs `action_trigger_search`";
                let help = "Add a flow `pattern_search` with the step `- action: action_trigger_search`.";
                findings.warning("F0723", &search.place, message, help);
            }
        }
    }
    let retrieval = project.config.generator.as_ref().map(|generator| &generator.retrieval);
    let flows = project.user_flows().filter(|flow| !flow.is_link_only()).count();
    if retrieval.is_some_and(|retrieval| !retrieval.active) && flows > MANY_FLOWS {
        let place = SourceLocation { file: "config.yml".into(), line: 0, column: 0, width: 1 };
        let message = format!("all {flows} flows stand in every prompt, since `flow_retrieval` is off");
        let help = "Set `active: true`: then the flows that fit the message are shown.";
        findings.warning("F0724", &place, message, help);
    }
}

/// The author's steps that ask for knowledge.
fn triggers(project: &Project) -> Vec<SourceLocation> {
    let asks =
        |kind: &StepKind| matches!(kind, StepKind::Action(ActionReference::Plain(name)) if *name == *TRIGGER_SEARCH);
    let steps = project.flows.values().flat_map(|flow| &flow.steps);
    steps.filter(|step| asks(&step.kind)).map(|step| step.place.clone()).collect()
}
