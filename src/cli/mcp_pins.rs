//! `segue mcp pins`: compares the tools that pinned servers list with `pins.json`; with `--write`, updates `pins.json`.

use std::{fmt::Write as _, sync::Arc};

use segue::{
    clock::SystemClock,
    context::CallContext,
    limits,
    project::{McpServerDef, Project},
    tools::{
        SourceError, ToolCatalog, ToolSource,
        mcp::McpServer,
        pins::{FILE, PinFile, PinStatus},
    },
};

use super::{CommandResult, EXIT_ERROR, EXIT_FINDINGS, EXIT_USAGE, mcp, output, project_args::ProjectArgs};

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    project: ProjectArgs,
    /// Only this server, by its name in endpoints.yml, even if it has no `pin: true`; may be repeated
    #[arg(long = "server", value_name = "NAME")]
    servers: Vec<String>,
    /// Pin the tools as they are listed now
    #[arg(long)]
    write: bool,
}

pub(super) async fn pins(args: Args) -> CommandResult {
    let Some(opened) = args.project.open()? else { return Ok(EXIT_FINDINGS) };
    let mut defs: Vec<&McpServerDef> = Vec::new();
    for name in &args.servers {
        let Some(def) = mcp::find_server(&opened.project, name) else { return Ok(EXIT_USAGE) };
        defs.push(def);
    }
    if args.servers.is_empty() {
        defs.extend(opened.project.endpoints.mcp_servers.values().filter(|def| def.pin));
    }
    if defs.is_empty() {
        output::status("no MCP server in endpoints.yml has `pin: true`; choose one with --server");
        return Ok(0);
    }
    let pins = PinFile::open(&args.project.folder);
    let (mut has_differences, mut has_failed) = (false, false);
    for def in defs {
        let name = def.name.as_str();
        let catalog = match list_tools(def, &opened.project, &args.project).await {
            Ok(catalog) => catalog,
            Err(error) => {
                output::status(&format!("{error} [T0101]"));
                has_failed = true;
                continue;
            }
        };
        let statuses = pins.compare(name, &catalog).map_err(anyhow::Error::msg)?;
        output::print(&format_pins(name, &statuses, &catalog))?;
        let is_different = statuses.iter().any(|(_, status)| *status != PinStatus::Same);
        if args.write && is_different {
            pins.pin(name, &catalog).map_err(anyhow::Error::msg)?;
            output::status(&format!("{name}: pinned in {FILE}"));
        }
        has_differences |= is_different && !args.write;
    }
    if has_differences {
        output::status("review the new and changed tools; `segue mcp pins --write` accepts them");
    }
    Ok(if has_failed { EXIT_ERROR } else { u8::from(has_differences) * EXIT_FINDINGS })
}

/// Connects to a server, lists its tools and closes the connection.
async fn list_tools(def: &McpServerDef, project: &Project, args: &ProjectArgs) -> Result<ToolCatalog, SourceError> {
    let server = McpServer::new(def, mcp::environment_of(args, project));
    let cx = CallContext::new(Arc::new(SystemClock), limits::MCP_CONSENT);
    let catalog = server.list(&cx.with_timeout(def.connect_timeout.unwrap_or(limits::MCP_INITIALISE) * 2)).await;
    server.close(&cx.with_timeout(limits::SOURCE_CLOSE_TIMEOUT)).await;
    catalog
}

/// One line for each tool. A new or changed tool also has its description and schema, as a model would read them.
fn format_pins(server: &str, statuses: &[(String, PinStatus)], catalog: &ToolCatalog) -> String {
    let mut text = String::new();
    for (name, status) in statuses {
        let word = match status {
            PinStatus::Same => "same",
            PinStatus::Changed => "changed",
            PinStatus::New => "new",
            PinStatus::Gone => "gone",
        };
        let _ = writeln!(text, "{word:<8}{server}.{name}");
        if !matches!(status, PinStatus::Changed | PinStatus::New) {
            continue;
        }
        if let Some(tool) = catalog.tools.iter().find(|tool| *tool.info().name == **name) {
            let _ = writeln!(text, "        {}", tool.info().description.replace('\n', "\n        "));
            let _ = writeln!(text, "        {}", tool.info().parameters);
        }
    }
    for (name, reason) in &catalog.excluded {
        let _ = writeln!(text, "{:<8}{server}.{name}: {reason}", "left out");
    }
    output::strip_control_characters(&text).into_owned()
}
