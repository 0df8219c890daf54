//! The servers that come with the binary, so that a newcomer needs nothing else: `segue demo ferries`.
//!
//! *For*: something real for the starter assistant to talk to. *Entry*: [`serve`]. *Never*: knows of flows, models or the
//! conversation; it is reached over MCP on standard input and output, like any server of others.

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

/// Where bookings are kept unless [`Options::data`] says otherwise; relative to the folder the server was started in.
pub const DATA: &str = ".segue/ferries.json";

/// How the server of Northwater Ferries is run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The file with the bookings; [`DATA`] unless set. It is made at the first booking.
    pub data: Option<PathBuf>,
    /// Keeps bookings in memory alone: each server has its own, and they end with it.
    pub forget: bool,
    /// How long every tool waits before it answers, so that one sees what an assistant says meanwhile.
    pub slow: Duration,
    /// The day that the server takes for today, at its first minute in UTC; the machine's clock unless set.
    pub today: Option<NaiveDate>,
}

/// Serves the tools of Northwater Ferries over standard input and output until the client hangs up.
///
/// # Errors
/// When the client does not begin with an MCP handshake, or the serving task dies.
///
/// # Cancellation
/// Dropping the future ends the server. A booking that is being written is written whole or not at all.
pub async fn serve(options: Options) -> anyhow::Result<()> {
    let server = ferries::Ferries::new(options, Arc::new(SystemClock) as Arc<dyn Clock>);
    let running = server.serve(stdio_pipes()).await.context("the MCP handshake on standard input failed")?;
    running.waiting().await.context("the MCP server ended badly")?;
    Ok(())
}
