//! Separates what a model thinks from what it says, where a server leaves both in one text: `<think>…</think>Which city?`.
//!
//! Servers of open models do so unless they run a parser for the model. Some chat templates write the opening mark themselves, so that
//! the text has only the closing one: everything before it is a thought.

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// The marks around a thought, in lower case.
const MARKS: [(&str, &str); 10] = [
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<seed:think>", "</seed:think>"),
    ("[think]", "[/think]"),
    ("◁think▷", "◁/think▷"),
    ("<|think|>", "<|/think|>"),
    ("<|start_thinking|>", "<|end_thinking|>"),
    ("<|channel>thought", "<channel|>"),
    ("<|channel|>analysis", "<|channel|>final<|message|>"),
];

/// The characters with which marks begin.
const BEGINNINGS: [char; 3] = ['<', '[', '◁'];

/// Parts of the names of models whose templates often write the opening mark themselves.
const OPENED_BY_TEMPLATE: [&str; 4] = ["thinking", "qwq", "-r1", "reasoner"];

/// Whether a model has sent a closing mark without an opening one: its next text is shown only when it is known that no thought precedes
/// it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThoughtHistory(Arc<AtomicBool>);

impl ThoughtHistory {
    /// For a model that has sent nothing yet.
    pub(crate) fn of_model(model: &str) -> Self {
        let model = model.to_lowercase();
        Self(Arc::new(AtomicBool::new(OPENED_BY_TEMPLATE.iter().any(|part| model.contains(part)))))
    }
}

/// Takes the thoughts out of one text that comes in parts.
#[derive(Debug, Default)]
pub(crate) struct ThoughtFilter {
    history: ThoughtHistory,
    /// Text that is not shown yet: the beginning of a mark perhaps, or all text while a thought may precede it.
    held: String,
    /// The closing mark of the thought that the text is in.
    inside: Option<&'static str>,
    /// Whether a thought has ended: then a closing mark alone means nothing.
    has_thought: bool,
}

/// What became of a part of the text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Filtered<'t> {
    /// The text to show.
    pub(crate) text: Cow<'t, str>,
    /// Whether all text before it was a thought.
    pub(crate) retracts: bool,
}

impl ThoughtFilter {
    /// A filter for one response of a model.
    pub(crate) fn new(history: ThoughtHistory) -> Self {
        Self { history, ..Self::default() }
    }

    /// Adds a part of the text.
    pub(crate) fn add<'t>(&mut self, part: &'t str) -> Filtered<'t> {
        let may_begin_in_thought = |filter: &Self| !filter.has_thought && filter.history.0.load(Ordering::Relaxed);
        if self.held.is_empty() && self.inside.is_none() && !may_begin_in_thought(self) && !part.contains(BEGINNINGS) {
            return Filtered { text: part.into(), retracts: false };
        }
        self.held.push_str(part);
        let (mut text, mut retracts) = (String::new(), false);
        loop {
            let found = match self.inside {
                Some(close) => find(&self.held, |mark| mark == close),
                None => find(&self.held, |_| true),
            };
            let Some((at, mark)) = found else { break };
            let before: String = self.held.drain(..at).collect();
            self.held.drain(..mark.len());
            let opened = MARKS.iter().find(|(open, _)| *open == mark);
            match (self.inside.take(), opened) {
                (Some(_), _) => self.has_thought = true,
                (None, Some((_, close))) => {
                    text.push_str(&before);
                    self.inside = Some(close);
                }
                // Of a thought whose opening mark the template has written.
                (None, None) if !self.has_thought => {
                    (self.has_thought, retracts) = (true, true);
                    text.clear();
                    self.history.0.store(true, Ordering::Relaxed);
                }
                (None, None) => text.push_str(&before),
            }
        }
        let known = match self.inside {
            Some(close) => self.held.len() - partial_mark(&self.held, |mark| mark == close),
            None if may_begin_in_thought(self) => 0,
            None => self.held.len() - partial_mark(&self.held, |_| true),
        };
        let known = self.held.drain(..known);
        if self.inside.is_none() {
            text.push_str(known.as_str());
        }
        drop(known);
        Filtered { text: text.into(), retracts }
    }

    /// The bytes that are not shown yet.
    pub(crate) fn held_back(&self) -> usize {
        self.held.len()
    }

    /// The rest of the text, at its end. A thought that was not closed stays one.
    pub(crate) fn end(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        if self.inside.is_some() { String::new() } else { held }
    }
}

/// The first of the marks in a text, whatever its case.
fn find(text: &str, is_wanted: impl Fn(&str) -> bool) -> Option<(usize, &'static str)> {
    let mut starts = text.match_indices(BEGINNINGS);
    starts.find_map(|(at, _)| {
        let mark = all_marks().find(|mark| is_wanted(mark) && begins_with(text.get(at..), mark))?;
        Some((at, mark))
    })
}

/// The number of bytes at the end of a text with which one of the marks may begin.
fn partial_mark(text: &str, is_wanted: impl Fn(&str) -> bool) -> usize {
    let mut starts = text.match_indices(BEGINNINGS);
    let begins =
        |end: &str| all_marks().any(|mark| is_wanted(mark) && end.len() < mark.len() && begins_with(Some(mark), end));
    starts.find_map(|(at, _)| text.get(at..).filter(|end| begins(end))).map_or(0, str::len)
}

fn all_marks() -> impl Iterator<Item = &'static str> {
    MARKS.iter().flat_map(|(open, close)| [*open, *close])
}

fn begins_with(text: Option<&str>, mark: &str) -> bool {
    text.and_then(|text| text.get(..mark.len())).is_some_and(|text| text.eq_ignore_ascii_case(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shown text, if the text comes in parts of so many characters.
    fn shown(text: &str, size: usize, history: &ThoughtHistory) -> String {
        let mut filter = ThoughtFilter::new(history.clone());
        let mut shown = String::new();
        let characters: Vec<char> = text.chars().collect();
        for part in characters.chunks(size) {
            let part: String = part.iter().collect();
            let Filtered { text, retracts } = filter.add(&part);
            if retracts {
                shown.clear();
            }
            shown.push_str(&text);
        }
        shown + &filter.end()
    }

    #[test]
    fn thoughts_are_taken_out_however_the_text_is_split() {
        for (text, expected) in [
            ("Which city?", "Which city?"),
            ("<think>code 1234</think>Which city?", "Which city?"),
            ("I must not tell the code 1234</think>Which city?", "Which city?"),
            ("<THINK>\ncode\n</Think>\n\nWhich city?", "\n\nWhich city?"),
            ("One.<think>code</think> Two.<thinking>more</thinking> Three.", "One. Two. Three."),
            ("[THINK]hm[/THINK]Well.", "Well."),
            ("◁think▷hm◁/think▷Well.", "Well."),
            ("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Well.", "Well."),
            ("<think>never closed", ""),
            ("a < b, [b] and <thin ice>", "a < b, [b] and <thin ice>"),
            ("<think>a</think>It is </think> here.", "It is  here."),
            ("It ends with <thi", "It ends with <thi"),
            ("", ""),
        ] {
            for size in 1..=text.chars().count().max(1) {
                assert_eq!(shown(text, size, &ThoughtHistory::default()), expected, "{text} by {size}");
            }
        }
    }

    #[test]
    fn a_model_that_closes_thoughts_it_has_not_opened_shows_nothing_before_that() {
        let history = ThoughtHistory::default();
        let mut first = ThoughtFilter::new(history.clone());
        assert_eq!(first.add("code 1234").text, "code 1234", "nothing is known about this model yet");
        assert_eq!(first.add("</think>Hi"), Filtered { text: "Hi".into(), retracts: true });
        for history in [history, ThoughtHistory::of_model("Qwen/Qwen3-4B-Thinking-2507")] {
            let mut second = ThoughtFilter::new(history.clone());
            assert_eq!(second.add("code 5678").text, "");
            assert_eq!(second.add("</think>Hi").text, "Hi");
            let mut plain = ThoughtFilter::new(history);
            assert_eq!((&*plain.add("No thought.").text, plain.end().as_str()), ("", "No thought."));
        }
    }
}
