//! The lexical score: Okapi BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009).

use std::collections::{BTreeMap, HashMap};

use super::tokenizer::terms;

/// The parameter k1 of BM25: saturation of the term frequency. The usual value.
const K1: f32 = 1.2;
/// The parameter b of BM25: normalisation by the length of a text. The usual value.
const B: f32 = 0.75;

/// An inverted index of texts.
#[derive(Debug, Default)]
pub(super) struct Bm25Index {
    /// For each term, the texts that contain it and how often they do.
    postings: HashMap<Box<str>, Vec<(u32, f32)>>,
    lengths: Vec<f32>,
    average: f32,
}

/// The score of one text for a query.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct LexicalScore {
    /// The BM25 score; comparable only between texts of one query.
    pub(super) score: f32,
    /// The share of the query's weight whose terms the text contains: 0 to 1.
    pub(super) share: f32,
}

impl Bm25Index {
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

    /// The scores of all texts for a query. The query is a list of parts with weights; the weight of a part does not depend on
    /// its length.
    pub(super) fn scores(&self, query: &[(&str, f32)]) -> Vec<LexicalScore> {
        let mut scores = vec![LexicalScore::default(); self.lengths.len()];
        // Sorted, so that floating-point sums are the same every time.
        let mut wanted: BTreeMap<String, f32> = BTreeMap::new();
        for (part, weight) in query {
            let mut part_terms: BTreeMap<String, f32> = BTreeMap::new();
            for term in terms(part) {
                let importance = term.weight * self.idf(self.postings.get(term.text.as_str()).map_or(0, Vec::len));
                part_terms.insert(term.text, importance);
            }
            let total: f32 = part_terms.values().sum();
            for (term, importance) in part_terms {
                *wanted.entry(term).or_default() += weight * importance / total;
            }
        }
        let total: f32 = wanted.values().sum();
        for (term, weight) in wanted {
            let postings = self.postings.get(term.as_str()).map(Vec::as_slice).unwrap_or_default();
            for (at, count) in postings {
                let at = *at as usize;
                let Some((lexical, length)) = scores.get_mut(at).zip(self.lengths.get(at)) else { continue };
                lexical.score += weight * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length / self.average));
                lexical.share += weight / total;
            }
        }
        scores
    }

    /// The inverse document frequency of a term that `texts` texts contain; always above 0.
    fn idf(&self, texts: usize) -> f32 {
        let (all, texts) = (self.lengths.len() as f32, texts as f32);
        (1.0 + (all - texts + 0.5) / (texts + 0.5)).ln()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn rare_words_weigh_more_and_the_share_is_of_the_whole_query() {
        let texts = ["send money to a friend", "show the money on the account", "block a lost card"];
        let index = Bm25Index::new(texts);
        let scores = index.scores(&[("I lost my money card", 1.0)]);
        let best = (0..3).max_by(|a, b| scores[*a].score.total_cmp(&scores[*b].score)).unwrap();
        assert_eq!(best, 2, "{scores:?}");
        assert!(scores.iter().all(|lexical| (0.0..=1.0).contains(&lexical.share)), "{scores:?}");
        assert!(scores[2].share > 0.3 && scores[2].share < 1.0, "no text contains `my`: {scores:?}");
        assert!(scores[2].share > 2.0 * scores[0].share, "{scores:?}");
        assert_eq!(index.scores(&[("zzz", 1.0)]), vec![LexicalScore::default(); 3]);
        assert!(Bm25Index::new([]).scores(&[("money", 1.0)]).is_empty());
    }

    #[test]
    fn parts_of_a_query_have_their_given_weights() {
        let index = Bm25Index::new(["about cats", "about dogs"]);
        let scores = index.scores(&[("cats", 0.2), ("dogs", 1.0)]);
        assert!(scores[1].score > scores[0].score, "{scores:?}");
    }
}
