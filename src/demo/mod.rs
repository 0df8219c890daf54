//! The MCP server of the starter assistant, `segue demo ferries`: timetable and bookings of a fictional ferry company.
//!
//! It is part of the binary, so that the starter runs without other programs. [`serve`] serves it over standard input and output. It
//! does not know flows, models or conversations: the assistant connects to it as to any other MCP server.

mod arguments;
mod bookings;
mod ferries;
mod timetable;
mod tools;

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context;
use chrono::NaiveDate;
use rmcp::{ServiceExt, transport::io::stdio_pipes};

use crate::clock::{Clock, SystemClock};

/// The default of [`DemoOptions::data`], relative to the current directory of the server.
pub const DEFAULT_DATA_FILE: &str = ".segue/ferries.json";

/// Options of the server.
#[derive(Clone, Debug, Default)]
pub struct DemoOptions {
    /// The file with the bookings; [`DEFAULT_DATA_FILE`] unless set. The first booking creates it.
    pub data: Option<PathBuf>,
    /// Whether bookings are kept in memory only. They end with the process.
    pub in_memory: bool,
    /// The delay of every tool call, to show what an assistant says while a tool works.
    pub delay: Duration,
    /// A fixed current date, from its midnight in UTC; the system clock unless set.
    pub today: Option<NaiveDate>,
}

/// Serves the tools of Northwater Ferries over standard input and output until the client closes the connection.
///
/// # Errors
/// The MCP handshake failed, or the task of the server panicked.
///
/// # Cancellation
/// Dropping the future ends the server. The file with the bookings is replaced atomically, so it is never incomplete.
pub async fn serve(options: DemoOptions) -> anyhow::Result<()> {
    let server = ferries::Ferries::new(options, Arc::new(SystemClock) as Arc<dyn Clock>);
    let running = server.serve(stdio_pipes()).await.context("the MCP handshake on standard input failed")?;
    running.waiting().await.context("the task of the MCP server failed")?;
    Ok(())
}
