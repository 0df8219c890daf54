//! How far a slow tool is, as far as the user may hear it: a share of the whole in our own words, or, where the entry of the
//! server allows it, the server's.
//!
//! What a server says is text of others: it is said on one line, short, under the server's name, without links, and
//! never when it sounds as if something were done, for that is what results are for.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value as Json};

use super::{AgentRequest, claims};
use crate::tools::Progress;

/// The response that says how far it is: `{percent}`.
const SHARE: &str = "utter_agent_progress";
/// The response that says what the server said: `{server}` and `{message}`.
const WORDS: &str = "utter_agent_progress_message";

/// The newest piece of news of the one call that runs. Cheap to clone: clones hear the same.
#[derive(Clone, Default)]
pub(super) struct News(Arc<Mutex<Option<Piece>>>);

/// Who told, and what.
type Piece = (Arc<str>, Progress);

impl News {
    /// Listens to a call of a tool of `source`.
    pub(super) fn listen(&self, source: Arc<str>) -> Arc<dyn Fn(Progress) + Send + Sync> {
        let news = self.clone();
        Arc::new(move |piece| {
            *news.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((source.clone(), piece));
        })
    }
    fn take(&self) -> Option<Piece> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What was said of the present calls.
#[derive(Default)]
pub(super) struct Told {
    pub(super) news: News,
    /// The share that was said last.
    percent: Option<u8>,
}

impl Told {
    /// Forgets the calls before.
    pub(super) fn anew(&mut self) {
        *self = Self::default();
    }

    /// What there is to say that was not said before.
    pub(super) fn next(&mut self, task: &AgentRequest<'_>, lot: u64) -> Option<Arc<str>> {
        let (source, piece) = self.news.take()?;
        let message = may_speak(task, &source).then(|| fit_to_say(&piece)).flatten();
        if let Some(message) = message {
            let values = [("server", Json::from(&*source)), ("message", Json::from(message))];
            return said(task, WORDS, values, lot);
        }
        let percent = percent(&piece).filter(|percent| self.percent.is_none_or(|before| *percent > before))?;
        self.percent = Some(percent);
        said(task, SHARE, [("percent", Json::from(percent))], lot)
    }
}

fn said<const N: usize>(
    task: &AgentRequest<'_>,
    response: &str,
    values: [(&str, Json); N],
    lot: u64,
) -> Option<Arc<str>> {
    let values: Map<String, Json> = values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    task.desk.words(response, &values, lot)
}

fn may_speak(task: &AgentRequest<'_>, source: &str) -> bool {
    task.project.endpoints.mcp_servers.get(source).is_some_and(|server| server.progress_messages)
}

/// The share of the whole, where the numbers make sense. A call that runs is never at its end.
fn percent(news: &Progress) -> Option<u8> {
    let total = news.total.filter(|total| total.is_finite() && *total > 0.0)?;
    let share = news.done / total * 100.0;
    (1.0..100.0).contains(&share).then_some(share as u8)
}

fn fit_to_say(news: &Progress) -> Option<String> {
    let links = |line: &str| ["://", "www.", "](", "<"].iter().any(|mark| line.contains(mark));
    news.line().filter(|line| !links(line) && !claims::is_claim(line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits;

    #[test]
    fn only_numbers_that_make_sense_are_a_share() {
        let of = |done, total| percent(&Progress { done, total, message: None });
        assert_eq!(of(2.0, Some(5.0)), Some(40));
        assert_eq!(of(999.0, Some(1000.0)), Some(99));
        for (done, total) in [
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
            assert_eq!(of(done, total), None, "{done} of {total:?}");
        }
    }

    #[test]
    fn words_of_others_are_one_short_line_without_links_and_claims() {
        let fit_to_say =
            |words: &str| fit_to_say(&Progress { done: 1.0, total: None, message: Some(words.to_owned()) });
        assert_eq!(fit_to_say(" reading\n page\u{200b} 3 ").as_deref(), Some("reading  page 3"));
        assert_eq!(fit_to_say(&"x".repeat(900)).unwrap_or_default().chars().count(), limits::TOOL_PROGRESS_TEXT);
        for wrong in
            ["", " \n ", "see https://example.org", "www.example.org", "[here](x)", "<b>now</b>", "I've booked it."]
        {
            assert_eq!(fit_to_say(wrong), None, "{wrong}");
        }
    }
}
