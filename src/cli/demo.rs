//! `segue demo`: runs an MCP server that is part of the binary.

use std::{path::PathBuf, time::Duration};

use clap::ValueEnum;
use segue::demo;

use super::{CommandResult, EXIT_USAGE, output};

/// The available servers.
#[derive(Clone, Copy, ValueEnum)]
enum DemoServer {
    /// Timetable and bookings of Northwater Ferries
    Ferries,
}

#[derive(clap::Args)]
pub(super) struct Args {
    /// The server
    #[arg(value_enum)]
    server: DemoServer,
    /// The file with the bookings
    #[arg(long, value_name = "FILE", default_value = demo::DEFAULT_DATA_FILE)]
    data: PathBuf,
    /// Keep bookings in memory only
    #[arg(long = "forget")]
    in_memory: bool,
    /// The delay of every tool call, in milliseconds
    #[arg(long = "slow", value_name = "MS", default_value_t = 0)]
    delay_ms: u64,
    /// The current date of the server, such as 2026-07-01; the date of this machine unless set
    #[arg(long, value_name = "DATE")]
    today: Option<String>,
}

/// Serves until the client closes the connection.
pub(super) async fn demo(args: Args) -> CommandResult {
    let Args { server: DemoServer::Ferries, data, in_memory, delay_ms, today } = args;
    let today = match today.map(|day| day.parse()).transpose() {
        Ok(today) => today,
        Err(_) => {
            output::status("--today: expected a date such as 2026-07-01");
            return Ok(EXIT_USAGE);
        }
    };
    demo::serve(demo::DemoOptions { data: Some(data), in_memory, delay: Duration::from_millis(delay_ms), today })
        .await?;
    Ok(0)
}
