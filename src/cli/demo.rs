//! `segue demo`: MCP servers that come with the binary.

use std::{path::PathBuf, time::Duration};

use clap::ValueEnum;
use segue::demo;

use super::{CommandResult, EXIT_USAGE, output};

/// The demonstrations.
#[derive(Clone, Copy, ValueEnum)]
enum DemoServer {
    /// Timetable and bookings of Northwater Ferries
    Ferries,
}

#[derive(clap::Args)]
pub(super) struct Args {
    /// Which server
    #[arg(value_enum)]
    which: DemoServer,
    /// The file with the bookings
    #[arg(long, value_name = "FILE", default_value = demo::DATA)]
    data: PathBuf,
    /// Keep bookings in memory alone, for tests
    #[arg(long)]
    forget: bool,
    /// How long every tool waits before it answers, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    slow: u64,
    /// The day that counts as today, as in 2026-07-01
    #[arg(long, value_name = "DATE")]
    today: Option<String>,
}

/// Serves until the client hangs up.
pub(super) async fn demo(args: Args) -> CommandResult {
    let Args { which: DemoServer::Ferries, data, forget, slow, today } = args;
    let today = match today.map(|day| day.parse()).transpose() {
        Ok(today) => today,
        Err(_) => {
            output::status("--today: expected a day such as 2026-07-01");
            return Ok(EXIT_USAGE);
        }
    };
    demo::serve(demo::Options { data: Some(data), forget, slow: Duration::from_millis(slow), today }).await?;
    Ok(0)
}
