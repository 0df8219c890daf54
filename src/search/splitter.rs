//! Splits documents into passages: parts on one subject that fit into a prompt.

use std::sync::Arc;

use segue_engine::text::{TextLimit, truncate};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::limits;

/// A part of a document, the unit that is searched and shown to the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Passage {
    /// The text.
    pub text: Arc<str>,
    /// Metadata: `source`, `title`, `answer`, and any other keys of an external vector store.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Json>,
}

/// A passage of a search result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScoredPassage {
    /// The passage.
    #[serde(flatten)]
    pub passage: Passage,
    /// Its similarity to the query: see [`Hit::score`](super::Hit::score), or the score of the vector store.
    pub score: f32,
}

impl Passage {
    fn new(source: &str, title: &str, text: &str) -> Self {
        let mut metadata = Map::new();
        metadata.insert("source".into(), source.into());
        if !title.is_empty() {
            metadata.insert("title".into(), title.into());
        }
        Self { text: text.into(), metadata }
    }

    /// The name of its source, for people: a path, an address or a title.
    pub fn source(&self) -> &str {
        let known = ["source", "url", "file", "title"].iter().find_map(|key| self.metadata.get(*key)?.as_str());
        known.unwrap_or("document")
    }

    /// The answer, when the passage is an entry of a list of questions and answers.
    pub fn answer(&self) -> Option<&str> {
        self.metadata.get("answer")?.as_str().map(str::trim).filter(|answer| !answer.is_empty())
    }

    /// The text that is compared with a query: the headings above the passage and its text.
    pub fn search_text(&self) -> String {
        match self.metadata.get("title").and_then(Json::as_str) {
            Some(title) => format!("{title}\n{}", self.text),
            None => self.text.to_string(),
        }
    }
}

/// Splits a document. Each question with its answer (lines `Q: …` and `A: …`) becomes a passage; all other text is split at
/// headings and paragraphs. A passage has at most [`limits::KNOWLEDGE_PASSAGE`] characters; an answer of a list has at most
/// four times as many.
pub fn split(source: &str, text: &str) -> Vec<Passage> {
    let mut found = Vec::new();
    let mut titles: Vec<(usize, String)> = Vec::new();
    let mut open = String::new();
    for part in parts(text) {
        let text = match part {
            Part::Text(text) => text,
            Part::Pair(question, answer) => {
                push_passage(source, &titles, &mut open, &mut found);
                found.push(question_passage(source, &question, &answer));
                continue;
            }
        };
        for block in blocks(text) {
            if let Some((level, title)) = heading(block) {
                push_passage(source, &titles, &mut open, &mut found);
                titles.retain(|(above, _)| *above < level);
                titles.push((level, title.to_owned()));
                continue;
            }
            for piece in pieces(block) {
                if !open.is_empty() && open.chars().count() + piece.chars().count() + 1 > limits::KNOWLEDGE_PASSAGE {
                    push_passage(source, &titles, &mut open, &mut found);
                }
                if !open.is_empty() {
                    open.push('\n');
                }
                open.push_str(piece);
            }
        }
    }
    push_passage(source, &titles, &mut open, &mut found);
    found
}

fn push_passage(source: &str, titles: &[(usize, String)], open: &mut String, found: &mut Vec<Passage>) {
    if !open.trim().is_empty() {
        let title = titles.iter().map(|(_, title)| title.as_str()).collect::<Vec<_>>().join(" / ");
        found.push(Passage::new(source, &title, open.trim()));
    }
    open.clear();
}

fn question_passage(source: &str, question: &str, answer: &str) -> Passage {
    let answer = truncate(answer, TextLimit::Chars(limits::KNOWLEDGE_PASSAGE * 4), "");
    let mut passage = Passage::new(source, "", &format!("{question}\n{answer}"));
    passage.metadata.insert("answer".into(), Json::from(&*answer));
    passage
}

/// Blocks between empty lines and around headings.
fn blocks(text: &str) -> Vec<&str> {
    let mut blocks = Vec::new();
    let (mut begins, mut at) = (None, 0);
    for line in text.split_inclusive('\n') {
        let ends = line.trim().is_empty() || heading(line).is_some();
        if ends {
            blocks.extend(begins.take().and_then(|begins: usize| text.get(begins..at)));
            if !line.trim().is_empty() {
                blocks.push(line);
            }
        } else {
            begins.get_or_insert(at);
        }
        at += line.len();
    }
    blocks.extend(begins.and_then(|begins| text.get(begins..)));
    blocks
}

/// Level and text of a heading in Markdown.
fn heading(block: &str) -> Option<(usize, &str)> {
    let line = block.trim();
    let rest = line.trim_start_matches('#');
    let level = line.len() - rest.len();
    let is_heading = (1..=6).contains(&level) && rest.starts_with([' ', '\t']) && !line.contains('\n');
    is_heading.then(|| (level, rest.trim().trim_end_matches('#').trim_end()))
}

/// Splits a block into pieces that fit into a passage: at a sentence or line if possible, else at a word, else anywhere.
fn pieces(block: &str) -> Vec<&str> {
    let most = limits::KNOWLEDGE_PASSAGE;
    let mut pieces = Vec::new();
    let mut rest = block.trim();
    while let Some((limit, _)) = rest.char_indices().nth(most) {
        let head = rest.get(..limit).unwrap_or(rest);
        let sentence = [". ", "! ", "? ", "\n", "。"].iter().filter_map(|end| Some(head.rfind(end)? + end.len())).max();
        let word = head.rfind(char::is_whitespace).map(|at| at + 1);
        let cut = sentence.filter(|at| *at > limit / 3).or(word.filter(|at| *at > limit / 3)).unwrap_or(limit);
        let (piece, tail) = rest.split_at_checked(cut).unwrap_or((rest, ""));
        pieces.push(piece.trim());
        rest = tail.trim_start();
    }
    if !rest.is_empty() {
        pieces.push(rest);
    }
    pieces
}

/// A part of a document.
enum Part<'t> {
    /// Text outside of questions and answers.
    Text(&'t str),
    /// A question and its answer.
    Pair(String, String),
}

/// A question whose end is not found yet.
struct OpenPair {
    begins: usize,
    question: String,
    answer: Option<String>,
}

/// Splits a document at its questions. An answer ends at the next question or heading. A question without an `A:` line is
/// text.
fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut open: Option<OpenPair> = None;
    let (mut from, mut at) = (0, 0);
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        let begins = |mark: &str| trimmed.strip_prefix(mark).map(|rest| rest.trim().to_owned());
        if let Some(question) = begins("Q:") {
            from = end_pair(text, open.take(), (from, at), &mut parts);
            open = Some(OpenPair { begins: at, question, answer: None });
        } else if heading(line).is_some() {
            from = end_pair(text, open.take(), (from, at), &mut parts);
        } else if let Some(pair) = &mut open {
            match (begins("A:"), &mut pair.answer) {
                (Some(answer), none @ None) => *none = Some(answer),
                (_, answer) => {
                    let target = answer.as_mut().unwrap_or(&mut pair.question);
                    target.push('\n');
                    target.push_str(trimmed);
                }
            }
        }
        at += line.len();
    }
    from = end_pair(text, open, (from, at), &mut parts);
    parts.extend(text.get(from..).map(Part::Text));
    parts
}

/// Ends a question at `at`: the text between `from` and the question becomes a part, and so does the question with its answer.
/// Returns where the next text part begins: at `from` if the question has no answer, because it is text then.
fn end_pair<'t>(text: &'t str, pair: Option<OpenPair>, (from, at): (usize, usize), parts: &mut Vec<Part<'t>>) -> usize {
    let Some(OpenPair { begins, question, answer: Some(answer) }) = pair else { return from };
    parts.extend(text.get(from..begins).map(Part::Text));
    let (question, answer) = (question.trim(), answer.trim());
    if !question.is_empty() && !answer.is_empty() {
        parts.push(Part::Pair(question.to_owned(), answer.to_owned()));
    }
    at
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn headings_separate_passages_and_are_part_of_the_search_text() {
        let text = "Intro.\n\n# Luggage\n\nTwo bags.\n\n## Bikes\nA bike costs 5.\n# Pets\nDogs travel free.\n";
        let found = split("docs/faq.md", text);
        let seen: Vec<(&str, String)> = found.iter().map(|one| (&*one.text, one.search_text())).collect();
        let expected = [
            ("Intro.", "Intro."),
            ("Two bags.", "Luggage\nTwo bags."),
            ("A bike costs 5.", "Luggage / Bikes\nA bike costs 5."),
            ("Dogs travel free.", "Pets\nDogs travel free."),
        ];
        assert_eq!(seen, expected.map(|(text, searched)| (text, searched.to_owned())));
        assert!(found.iter().all(|one| one.source() == "docs/faq.md" && one.answer().is_none()));
    }

    #[test]
    fn passages_are_limited_in_length_and_lose_no_text() {
        let sentence = "Every boat of ours carries bikes at a price. ";
        for text in [sentence.repeat(200), "x".repeat(5_000), "\u{1F6F3} ".repeat(3_000), "a line\n".repeat(900)] {
            let found = split("d.txt", &text);
            assert!(found.len() > 1);
            for one in &found {
                assert!(one.text.chars().count() <= limits::KNOWLEDGE_PASSAGE, "{}", one.text.chars().count());
                assert!(!one.text.trim().is_empty());
            }
            let kept: usize = found.iter().map(|one| one.text.chars().filter(|c| !c.is_whitespace()).count()).sum();
            assert_eq!(kept, text.chars().filter(|c| !c.is_whitespace()).count(), "nothing is lost");
        }
        assert!(split("d.txt", &sentence.repeat(200))[0].text.ends_with("price."), "it is split at a sentence");
    }

    #[test]
    fn a_question_and_its_answer_are_one_passage() {
        let text = "Our list\nQ: May I bring a dog?\nA: Yes,\non a lead.\n\nQ: And a horse?\nA:\nQ: A cat?\nA: Yes.";
        let found = split("faq.txt", text);
        assert_eq!(found.len(), 3, "a question without an answer is skipped: {found:?}");
        assert_eq!((&*found[0].text, found[0].answer()), ("Our list", None));
        assert_eq!(found[1].answer(), Some("Yes,\non a lead."));
        assert_eq!(&*found[2].text, "A cat?\nYes.");
    }

    #[test]
    fn text_around_questions_and_answers_is_kept() {
        let text = "# Luggage\n\nTwo bags are free.\n\n# FAQ\nQ: A cat?\nA: Yes.\n\n# Pets\nDogs travel free.\n\nQ: So what?\n";
        let found = split("d.md", text);
        let seen: Vec<(String, Option<&str>)> = found.iter().map(|one| (one.search_text(), one.answer())).collect();
        let expected = [
            ("Luggage\nTwo bags are free.", None),
            ("A cat?\nYes.", Some("Yes.")),
            ("Pets\nDogs travel free.\nQ: So what?", None),
        ];
        assert_eq!(seen, expected.map(|(text, answer)| (text.to_owned(), answer)));
    }
}
