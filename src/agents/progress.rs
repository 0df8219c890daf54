//! Progress of a slow tool call for the user: a percentage in a response of the project, or the message of the MCP server if
//! `progress_messages` allows it.
//!
//! The message of a server is not trusted: it is shown on one line, shortened, under the name of the server. It is dropped if it
//! contains a link or claims that something was done.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value as Json};

use super::{AgentRequest, grounding};
use crate::{delegation, tools::Progress};

/// The response with the progress: `{percent}`.
const PROGRESS_RESPONSE: &str = "utter_agent_progress";
/// The response with the message of a server: `{server}` and `{message}`.
const PROGRESS_MESSAGE_RESPONSE: &str = "utter_agent_progress_message";

/// The response with the description of a sub-agent: `{message}`.
const PROGRESS_TASK_RESPONSE: &str = "utter_agent_progress_task";

/// The newest progress of the one running call. Cheap to clone; clones share their state.
#[derive(Clone, Default)]
pub(super) struct ProgressFeed(Arc<Mutex<Option<ProgressUpdate>>>);

/// The source of the tool, and its progress.
type ProgressUpdate = (Arc<str>, Progress);

impl ProgressFeed {
    /// A callback for the progress of a tool of `source`.
    pub(super) fn listen(&self, source: Arc<str>) -> Arc<dyn Fn(Progress) + Send + Sync> {
        let feed = self.clone();
        Arc::new(move |update| {
            *feed.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((source.clone(), update));
        })
    }
    fn take(&self) -> Option<ProgressUpdate> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Chooses the progress messages of the current batch of calls.
#[derive(Default)]
pub(super) struct ProgressReporter {
    pub(super) feed: ProgressFeed,
    /// The percentage that was sent last.
    percent: Option<u8>,
}

impl ProgressReporter {
    /// Forgets the previous calls.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// The next message, if there is progress that was not sent yet.
    pub(super) fn next(&mut self, request: &AgentRequest<'_>, seed: u64) -> Option<Arc<str>> {
        let (source, update) = self.feed.take()?;
        if &*source == delegation::SOURCE {
            let message = presentable_message(&update)?;
            return render(request, PROGRESS_TASK_RESPONSE, [("message", Json::from(message))], seed);
        }
        let message = allows_messages(request, &source).then(|| presentable_message(&update)).flatten();
        if let Some(message) = message {
            let values = [("server", Json::from(&*source)), ("message", Json::from(message))];
            return render(request, PROGRESS_MESSAGE_RESPONSE, values, seed);
        }
        let percent = percent(&update).filter(|percent| self.percent.is_none_or(|before| *percent > before))?;
        self.percent = Some(percent);
        render(request, PROGRESS_RESPONSE, [("percent", Json::from(percent))], seed)
    }
}

fn render<const N: usize>(
    request: &AgentRequest<'_>,
    response: &str,
    values: [(&str, Json); N],
    seed: u64,
) -> Option<Arc<str>> {
    let values: Map<String, Json> = values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    request.host.render_response(response, &values, seed)
}

fn allows_messages(request: &AgentRequest<'_>, source: &str) -> bool {
    request.project.endpoints.mcp_servers.get(source).is_some_and(|server| server.progress_messages)
}

/// The progress in percent, from 1 to 99; `None` if the numbers are not usable.
fn percent(update: &Progress) -> Option<u8> {
    let total = update.total.filter(|total| total.is_finite() && *total > 0.0)?;
    let share = update.current / total * 100.0;
    (1.0..100.0).contains(&share).then_some(share as u8)
}

fn presentable_message(update: &Progress) -> Option<String> {
    let has_link = |line: &str| ["://", "www.", "](", "<"].iter().any(|mark| line.contains(mark));
    update.message_line().filter(|line| !has_link(line) && !grounding::is_claim(line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits;

    #[test]
    fn only_usable_numbers_give_a_percentage() {
        let percent_of = |current, total| {
            let mut progress = Progress::new(current);
            progress.total = total;
            percent(&progress)
        };
        assert_eq!(percent_of(2.0, Some(5.0)), Some(40));
        assert_eq!(percent_of(999.0, Some(1000.0)), Some(99));
        for (current, total) in [
            (2.0, None),
            (0.0, Some(5.0)),
            (5.0, Some(5.0)),
            (7.0, Some(5.0)),
            (-1.0, Some(5.0)),
            (f64::NAN, Some(5.0)),
            (1.0, Some(0.0)),
            (1.0, Some(f64::NAN)),
            (1.0, Some(-3.0)),
            (f64::INFINITY, Some(f64::INFINITY)),
        ] {
            assert_eq!(percent_of(current, total), None, "{current} of {total:?}");
        }
    }

    #[test]
    fn messages_of_servers_are_one_short_line_without_links_and_claims() {
        let presentable_message = |words: &str| presentable_message(&Progress::new(1.0).message(words));
        assert_eq!(presentable_message(" reading\n page\u{200b} 3 ").as_deref(), Some("reading  page 3"));
        assert_eq!(
            presentable_message(&"x".repeat(900)).unwrap_or_default().chars().count(),
            limits::TOOL_PROGRESS_TEXT
        );
        for wrong in
            ["", " \n ", "see https://example.org", "www.example.org", "[here](x)", "<b>now</b>", "I've booked it."]
        {
            assert_eq!(presentable_message(wrong), None, "{wrong}");
        }
    }
}
