//! Texts of project files that many tests use, for `Assistant::builder_from_texts`, and the projects of `tests/projects`.

/// A `config.yml` whose command generator is a model.
pub(crate) const CONFIG: (&str, &str) = (
    "config.yml",
    "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n",
);

/// An `endpoints.yml` with the MCP server `boats`. Tests replace its tools with their own; nothing listens at the address.
pub(crate) const BOATS_ENDPOINT: (&str, &str) =
    ("endpoints.yml", "mcp_servers: [{name: boats, type: http, url: \"http://127.0.0.1:9/mcp\"}]\n");

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
