//! Sources in an answer: `[2]` stands for the second passage that was shown. A number that stands for none never leaves.

use std::collections::BTreeSet;

/// Longest mark that is waited for, in bytes; anything longer is text.
const LONGEST: usize = 32;

/// Reads an answer as it comes.
#[derive(Debug)]
pub(super) struct Citations {
    /// How many passages were shown; 0 where no sources are wanted: then marks are taken out.
    shown: usize,
    /// The beginning of what may be a mark.
    held: String,
    cited: BTreeSet<usize>,
}

impl Citations {
    pub(super) fn new(shown: usize) -> Self {
        Self { shown, held: String::new(), cited: BTreeSet::new() }
    }

    /// Takes a piece; gives what may leave.
    pub(super) fn push(&mut self, piece: &str) -> String {
        let mut out = String::with_capacity(piece.len());
        for c in piece.chars() {
            if self.held.is_empty() {
                if c == '[' {
                    self.held.push(c)
                } else {
                    out.push(c)
                }
                continue;
            }
            if c == '[' {
                out.push_str(&std::mem::take(&mut self.held));
            }
            self.held.push(c);
            match c {
                ']' => self.close(&mut out),
                '[' | '0'..='9' | ',' | ' ' if self.held.len() < LONGEST => {}
                _ => out.push_str(&std::mem::take(&mut self.held)),
            }
        }
        out
    }

    /// The end of the answer; gives what was held back.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// The passages that the answer names, by number.
    pub(super) fn cited(&self) -> &BTreeSet<usize> {
        &self.cited
    }

    fn close(&mut self, out: &mut String) {
        let held = std::mem::take(&mut self.held);
        let inside = held.trim_start_matches('[').trim_end_matches(']');
        let numbers: Option<Vec<usize>> = inside.split(',').map(|number| number.trim().parse().ok()).collect();
        let Some(numbers) = numbers else {
            out.push_str(&held); // `[]` and the like
            return;
        };
        let known: Vec<usize> = numbers.into_iter().filter(|number| (1..=self.shown).contains(number)).collect();
        if known.is_empty() {
            return;
        }
        let text: Vec<String> = known.iter().map(ToString::to_string).collect();
        out.push_str(&format!("[{}]", text.join(", ")));
        self.cited.extend(known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(shown: usize, pieces: &[&str]) -> (String, Vec<usize>) {
        let mut citations = Citations::new(shown);
        let mut text: String = pieces.iter().map(|piece| citations.push(piece)).collect();
        text += &citations.finish();
        (text, citations.cited().iter().copied().collect())
    }

    #[test]
    fn only_passages_that_were_shown_are_named() {
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
