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

use super::{COULD_NOT_RUN, Done, FINDINGS, USAGE, mcp, out, place::Place};

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    /// Only this server, by its name in endpoints.yml, pinned or not; may be repeated
    #[arg(long = "server", value_name = "NAME")]
    servers: Vec<String>,
    /// Pin what the servers list now
    #[arg(long)]
    write: bool,
}

pub(super) async fn pins(args: Args) -> Done {
    let Some(opened) = args.place.open()? else { return Ok(FINDINGS) };
    let mut defs: Vec<&McpServerDef> = Vec::new();
    for name in &args.servers {
        let Some(def) = mcp::found(&opened.project, name) else { return Ok(USAGE) };
        defs.push(def);
    }
    if args.servers.is_empty() {
        defs.extend(opened.project.endpoints.mcp_servers.values().filter(|def| def.pin));
    }
    if defs.is_empty() {
        out::note("no server of endpoints.yml has `pin: true`; name one with --server");
        return Ok(0);
    }
    let pins = PinFile::of(&args.place.project);
    let (mut differs, mut lost) = (false, false);
    for def in defs {
        let name = def.name.as_str();
        let catalog = match listed(def, &opened.project, &args.place).await {
            Ok(catalog) => catalog,
            Err(error) => {
                out::note(&format!("{error} [T0101]"));
                lost = true;
                continue;
            }
        };
        let standings = pins.compare(name, &catalog).map_err(anyhow::Error::msg)?;
        out::raw(&shown(name, &standings, &catalog))?;
        let is_other = standings.iter().any(|(_, standing)| *standing != PinStatus::Same);
        if args.write && is_other {
            pins.pin(name, &catalog).map_err(anyhow::Error::msg)?;
            out::note(&format!("{name}: pinned in {FILE}"));
        }
        differs |= is_other && !args.write;
    }
    if differs {
        out::note("look at what is new or changed; `segue mcp pins --write` accepts it");
    }
    Ok(if lost { COULD_NOT_RUN } else { u8::from(differs) * FINDINGS })
}

async fn listed(def: &McpServerDef, project: &Project, place: &Place) -> Result<ToolCatalog, SourceError> {
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
    out::plain(&text).into_owned()
}
