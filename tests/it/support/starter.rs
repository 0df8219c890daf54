//! The starter assistant at the root of the repository, with its real MCP server (`segue demo ferries`) and a model of the test.

use std::{path::Path, sync::Arc};

use segue::{
    Assistant, Llm,
    clock::{Clock, Timestamp},
    project::{LoadOptions, McpTransport, Project},
    runtime::AssistantBuilder,
    tools::mcp::{McpEnvironment, McpServer},
};

/// The root of the repository.
pub(crate) const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The environment of an MCP client whose servers run this program.
pub(crate) fn mcp_environment(clock: Arc<dyn Clock>) -> McpEnvironment {
    McpEnvironment::new(clock, env!("CARGO_BIN_EXE_segue"))
}

/// A time in RFC 3339.
pub(crate) fn timestamp(text: &str) -> Timestamp {
    Timestamp::from_micros(chrono::DateTime::parse_from_rfc3339(text).unwrap().timestamp_micros())
}

/// The starter. `today` is the date of the server's timetable, `bookings` the file in which the server keeps its bookings; `change`
/// edits the loaded project.
pub(crate) fn starter(
    clock: Arc<dyn Clock>,
    model: Arc<dyn Llm>,
    (today, bookings): (&str, &Path),
    change: impl FnOnce(&mut Project),
) -> Assistant {
    let mut loaded = segue::project::load(Path::new(ROOT), &LoadOptions::default()).unwrap();
    assert!(loaded.findings.is_empty(), "{:?}", loaded.findings);
    let project = loaded.project.as_mut().unwrap();
    change(project);
    let server = project.endpoints.mcp_servers.get_mut("ferries").unwrap();
    let args = ["demo", "ferries", "--data", &bookings.display().to_string(), "--today", today].map(str::to_owned);
    server.transport = McpTransport::Stdio { command: "segue".into(), args: args.to_vec(), env: Vec::new() };
    let ferries = Arc::new(McpServer::new(server, mcp_environment(clock.clone())));
    AssistantBuilder::new(Arc::new(loaded.project.unwrap()), ROOT.into())
        .clock(clock)
        .seeds(|| 7)
        .model(model)
        .source(ferries)
        .build()
        .unwrap()
}
