//! Citations in an answer: `[2]` cites the second passage that was shown to the model. Citations of passages that were not
//! shown are removed before the text reaches the user.

use std::collections::BTreeSet;

/// The maximal length of a citation in bytes; anything longer is text.
const MAX_CITATION_BYTES: usize = 32;

/// Filters the citations of an answer while it streams.
#[derive(Debug)]
pub(super) struct Citations {
    /// The number of passages that were shown. With 0, all citations are removed.
    shown: usize,
    /// Text that may be the beginning of a citation.
    buffered: String,
    cited: BTreeSet<usize>,
}

impl Citations {
    pub(super) fn new(shown: usize) -> Self {
        Self { shown, buffered: String::new(), cited: BTreeSet::new() }
    }

    /// Adds a delta and returns the text that can be sent.
    pub(super) fn push(&mut self, delta: &str) -> String {
        let mut out = String::with_capacity(delta.len());
        for c in delta.chars() {
            if self.buffered.is_empty() {
                if c == '[' {
                    self.buffered.push(c)
                } else {
                    out.push(c)
                }
                continue;
            }
            if c == '[' {
                out.push_str(&std::mem::take(&mut self.buffered));
            }
            self.buffered.push(c);
            match c {
                ']' => self.end_citation(&mut out),
                '[' | '0'..='9' | ',' | ' ' if self.buffered.len() < MAX_CITATION_BYTES => {}
                _ => out.push_str(&std::mem::take(&mut self.buffered)),
            }
        }
        out
    }

    /// Ends the answer and returns the buffered text.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.buffered)
    }

    /// The numbers of the cited passages, from 1.
    pub(super) fn cited(&self) -> &BTreeSet<usize> {
        &self.cited
    }

    fn end_citation(&mut self, out: &mut String) {
        let buffered = std::mem::take(&mut self.buffered);
        let inside = buffered.trim_start_matches('[').trim_end_matches(']');
        let numbers: Option<Vec<usize>> = inside.split(',').map(|number| number.trim().parse().ok()).collect();
        let Some(numbers) = numbers else {
            out.push_str(&buffered); // `[]` and the like
            return;
        };
        let shown: Vec<usize> = numbers.into_iter().filter(|number| (1..=self.shown).contains(number)).collect();
        if shown.is_empty() {
            return;
        }
        let text: Vec<String> = shown.iter().map(ToString::to_string).collect();
        out.push_str(&format!("[{}]", text.join(", ")));
        self.cited.extend(shown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(shown: usize, deltas: &[&str]) -> (String, Vec<usize>) {
        let mut citations = Citations::new(shown);
        let mut text: String = deltas.iter().map(|delta| citations.push(delta)).collect();
        text += &citations.finish();
        (text, citations.cited().iter().copied().collect())
    }

    #[test]
    fn only_passages_that_were_shown_are_cited() {
        assert_eq!(
            read(3, &["Dogs travel free [2][7], bikes cost 5 [1, 9]."]).0,
            "Dogs travel free [2], bikes cost 5 [1]."
        );
        assert_eq!(read(3, &["a [1", "2] b [", "3", "] c ["]), ("a  b [3] c [".to_owned(), vec![3]));
        assert_eq!(read(2, &["x [0] [a note] [[1]] [] [2"]), ("x  [a note] [[1]] [] [2".to_owned(), vec![1]));
        assert_eq!(read(0, &["no sources [1] wanted"]), ("no sources  wanted".to_owned(), vec![]));
        let long = format!("[{}", "1,".repeat(100));
        assert_eq!(read(1, &[&long]).0, long);
    }
}
