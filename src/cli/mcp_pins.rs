//! `segue mcp pins`: what pinned servers list now, held against `pins.json`; and taking it for what they shall list.

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
    place: ProjectArgs,
    /// Only this server, by its name in endpoints.yml, pinned or not; may be repeated
    #[arg(long = "server", value_name = "NAME")]
    servers: Vec<String>,
    /// Pin what the servers list now
    #[arg(long)]
    write: bool,
}

pub(super) async fn pins(args: Args) -> CommandResult {
    let Some(opened) = args.place.open()? else { return Ok(EXIT_FINDINGS) };
    let mut defs: Vec<&McpServerDef> = Vec::new();
    for name in &args.servers {
        let Some(def) = mcp::found(&opened.project, name) else { return Ok(EXIT_USAGE) };
        defs.push(def);
    }
    if args.servers.is_empty() {
        defs.extend(opened.project.endpoints.mcp_servers.values().filter(|def| def.pin));
    }
    if defs.is_empty() {
        output::status("no server of endpoints.yml has `pin: true`; name one with --server");
        return Ok(0);
    }
    let pins = PinFile::open(&args.place.project);
    let (mut differs, mut lost) = (false, false);
    for def in defs {
        let name = def.name.as_str();
        let catalog = match listed(def, &opened.project, &args.place).await {
            Ok(catalog) => catalog,
            Err(error) => {
                output::status(&format!("{error} [T0101]"));
                lost = true;
                continue;
            }
        };
        let standings = pins.compare(name, &catalog).map_err(anyhow::Error::msg)?;
        output::print(&shown(name, &standings, &catalog))?;
        let is_other = standings.iter().any(|(_, standing)| *standing != PinStatus::Same);
        if args.write && is_other {
            pins.pin(name, &catalog).map_err(anyhow::Error::msg)?;
            output::status(&format!("{name}: pinned in {FILE}"));
        }
        differs |= is_other && !args.write;
    }
    if differs {
        output::status("look at what is new or changed; `segue mcp pins --write` accepts it");
    }
    Ok(if lost { EXIT_ERROR } else { u8::from(differs) * EXIT_FINDINGS })
}

async fn listed(def: &McpServerDef, project: &Project, place: &ProjectArgs) -> Result<ToolCatalog, SourceError> {
    let server = McpServer::new(def, mcp::around(place, project));
    let cx = CallContext::new(Arc::new(SystemClock), limits::MCP_CONSENT);
    let catalog = server.list(&cx.with_timeout(def.connect_timeout.unwrap_or(limits::MCP_INITIALISE) * 2)).await;
    server.close(&cx.with_timeout(limits::SOURCE_CLOSE_TIMEOUT)).await;
    catalog
}

/// One line a tool; of what is new or changed also what a model would read.
fn shown(server: &str, standings: &[(String, PinStatus)], catalog: &ToolCatalog) -> String {
    let mut text = String::new();
    for (name, standing) in standings {
        let word = match standing {
            PinStatus::Same => "same",
            PinStatus::Changed => "changed",
            PinStatus::New => "new",
            PinStatus::Gone => "gone",
        };
        let _ = writeln!(text, "{word:<8}{server}.{name}");
        if !matches!(standing, PinStatus::Changed | PinStatus::New) {
            continue;
        }
        if let Some(tool) = catalog.tools.iter().find(|tool| *tool.info().name == **name) {
            let _ = writeln!(text, "        {}", tool.info().description.replace('\n', "\n        "));
            let _ = writeln!(text, "        {}", tool.info().parameters);
        }
    }
    for (name, why) in &catalog.excluded {
        let _ = writeln!(text, "{:<8}{server}.{name}: {why}", "left out");
    }
    output::strip_control_characters(&text).into_owned()
}
