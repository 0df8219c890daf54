//! Texts of project files that many tests use, for `Assistant::builder_from_texts`, and the projects of `tests/projects`.

/// A `config.yml` whose command generator is a model.
pub(crate) const CONFIG: (&str, &str) = (
    "config.yml",
    "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n",
);

/// An `endpoints.yml` with the MCP server `boats`. Tests replace its tools with their own; nothing listens at the address.
pub(crate) const BOATS_ENDPOINT: (&str, &str) =
    ("endpoints.yml", "mcp_servers: [{name: boats, type: http, url: \"http://127.0.0.1:9/mcp\"}]\n");

/// A domain for flows that say what a tool returned: the slot `said`, and a response for each way in which a call may end.
pub(crate) const TOOL_RESULT_DOMAIN: (&str, &str) = (
    "domain/tool_results.yml",
    "
version: '3.1'
slots:
  said: {type: text, mappings: [{type: controlled}]}
responses:
  utter_said: [{text: 'It said {said}.'}]
  utter_internal_error_rasa: [{text: Broken.}]
  utter_outcome_unknown: [{text: 'It may have happened.'}]
",
);

/// A flow that the intent `name` starts. It calls the tool `name` of a server, runs the step `next`, if there is one, and says what
/// the tool returned.
pub(crate) fn tool_flow(name: &str, server: &str, next: &str) -> String {
    format!(
        "
  {name}:
    description: calls {name}
    nlu_trigger: [{{intent: {name}}}]
    steps:
      - call: {name}
        mcp_server: {server}
        mapping: {{input: [], output: [{{slot: said, value: result.text}}]}}
{next}
      - action: utter_said
"
    )
}

/// A replacement of the flow that says that a flow is completed.
pub(crate) const SILENT_COMPLETION: &str =
    "  pattern_completed: {name: done, description: says nothing, steps: [{noop: true, next: END}]}\n";

/// The folder of a project in `tests/projects`.
pub(crate) fn project(name: &str) -> String {
    format!("{}/tests/projects/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// The channels that a `credentials.yml` with this content configures.
pub(crate) fn channels(credentials: &serde_json::Value) -> Vec<std::sync::Arc<dyn segue::Channel>> {
    let text = credentials.to_string();
    let project = segue::project::from_texts([("credentials.yml", text.as_str())]).project.unwrap();
    let (channels, errors) = segue::channels::open(&project, &segue::channels::ChannelOptions::new());
    assert!(errors.is_empty(), "{errors:?}");
    channels
}
