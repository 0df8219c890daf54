//! How well texts cover the words of a question (BM25: Robertson and Zaragoza, 2009).

use std::collections::{BTreeMap, HashMap};

use super::words::terms;

/// How fast a word that is repeated counts less; the usual value.
const K1: f32 = 1.2;
/// How much long texts are held back; the usual value.
const B: f32 = 0.75;

/// Texts by their words.
#[derive(Debug, Default)]
pub(super) struct Lexical {
    /// For each term the texts that have it, and how often.
    postings: HashMap<Box<str>, Vec<(u32, f32)>>,
    lengths: Vec<f32>,
    average: f32,
}

/// How well one text covers a question.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cover {
    /// For comparing texts with one another.
    pub(super) score: f32,
    /// The share of the question's weight whose words the text has: 0 to 1.
    pub(super) share: f32,
}

impl Lexical {
    pub(super) fn new<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        let mut index = Self::default();
        for (at, text) in texts.into_iter().enumerate() {
            let mut counts: HashMap<String, f32> = HashMap::new();
            let mut length = 0.0;
            for term in terms(text) {
                length += term.weight;
                *counts.entry(term.text).or_default() += 1.0;
            }
            for (term, count) in counts {
                index.postings.entry(term.into()).or_default().push((at as u32, count));
            }
            index.lengths.push(length);
        }
        let sum: f32 = index.lengths.iter().sum();
        index.average = (sum / index.lengths.len().max(1) as f32).max(1.0);
        index
    }

    /// How well each text covers a question, which is parts with their weights: a part counts so much however long it is.
    pub(super) fn covers(&self, question: &[(&str, f32)]) -> Vec<Cover> {
        let mut covers = vec![Cover::default(); self.lengths.len()];
        // In one order, so that sums of numbers are the same every time.
        let mut wanted: BTreeMap<String, f32> = BTreeMap::new();
        for (part, weight) in question {
            let mut own: BTreeMap<String, f32> = BTreeMap::new();
            for term in terms(part) {
                let told = term.weight * self.rarity(self.postings.get(term.text.as_str()).map_or(0, Vec::len));
                own.insert(term.text, told);
            }
            let whole: f32 = own.values().sum();
            for (term, told) in own {
                *wanted.entry(term).or_default() += weight * told / whole;
            }
        }
        let whole: f32 = wanted.values().sum();
        for (term, weight) in wanted {
            let postings = self.postings.get(term.as_str()).map(Vec::as_slice).unwrap_or_default();
            for (at, count) in postings {
                let at = *at as usize;
                let Some((cover, length)) = covers.get_mut(at).zip(self.lengths.get(at)) else { continue };
                cover.score += weight * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length / self.average));
                cover.share += weight / whole;
            }
        }
        covers
    }

    /// The fewer texts have a word, the more it tells; always above 0.
    fn rarity(&self, texts: usize) -> f32 {
        let (all, texts) = (self.lengths.len() as f32, texts as f32);
        (1.0 + (all - texts + 0.5) / (texts + 0.5)).ln()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn rare_words_decide_and_the_share_is_of_the_whole_question() {
        let texts = ["send money to a friend", "show the money on the account", "block a lost card"];
        let index = Lexical::new(texts);
        let covers = index.covers(&[("I lost my money card", 1.0)]);
        let best = (0..3).max_by(|a, b| covers[*a].score.total_cmp(&covers[*b].score)).unwrap();
        assert_eq!(best, 2, "{covers:?}");
        assert!(covers.iter().all(|cover| (0.0..=1.0).contains(&cover.share)), "{covers:?}");
        assert!(covers[2].share > 0.3 && covers[2].share < 1.0, "`my` is nowhere: {covers:?}");
        assert!(covers[2].share > 2.0 * covers[0].share, "{covers:?}");
        assert_eq!(index.covers(&[("zzz", 1.0)]), vec![Cover::default(); 3]);
        assert!(Lexical::new([]).covers(&[("money", 1.0)]).is_empty());
    }

    #[test]
    fn parts_of_a_question_weigh_as_they_are_told() {
        let index = Lexical::new(["about cats", "about dogs"]);
        let covers = index.covers(&[("cats", 0.2), ("dogs", 1.0)]);
        assert!(covers[1].score > covers[0].score, "{covers:?}");
    }
}
