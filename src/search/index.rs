//! An index of texts in memory that ranks them by BM25, or by BM25 and vectors together (hybrid search).

use std::{cmp::Ordering, sync::Arc};

use super::bm25::Bm25Index;

/// An embedding vector, normalised to length 1.
pub type Vector = Arc<[f32]>;

/// The constant k of reciprocal rank fusion: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and
/// individual Rank Learning Methods", SIGIR 2009.
const RRF_K: f32 = 60.0;

/// An index of texts. Clones share the lexical index and copy the list of vectors.
#[derive(Clone, Debug, Default)]
pub struct HybridIndex {
    lexical: Arc<Bm25Index>,
    vectors: Option<Vec<Vector>>,
    count: usize,
}

/// One text of a ranking.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// The position of the text in the index.
    pub at: usize,
    /// The cosine similarity where vectors were compared; else the share of the query's weight that the text covers, 0 to 1.
    pub score: f32,
    /// The BM25 score divided by the best BM25 score of the ranking: 0 to 1.
    pub relative_lexical_score: f32,
}

impl HybridIndex {
    /// A lexical index of texts.
    pub fn new<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        let mut count = 0;
        let lexical = Bm25Index::new(texts.into_iter().inspect(|_| count += 1));
        Self { lexical: Arc::new(lexical), vectors: None, count }
    }

    /// Adds a vector for each text. If their number differs from that of the texts, they are ignored.
    #[must_use]
    pub fn with_vectors(mut self, vectors: Vec<Vector>) -> Self {
        self.vectors = Some(vectors).filter(|vectors| vectors.len() == self.count);
        self
    }

    /// The number of texts.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the texts have vectors.
    pub fn has_vectors(&self) -> bool {
        self.vectors.is_some()
    }

    /// All texts, best first; texts with equal scores keep their order. `query` is a list of parts with their weights. `vector`
    /// is compared only if the texts have vectors of its length.
    pub fn ranked(&self, query: &[(&str, f32)], vector: Option<&[f32]>) -> Vec<Hit> {
        let lexical_scores = self.lexical.scores(query);
        let lexical_order = descending_order(&lexical_scores.iter().map(|lexical| lexical.score).collect::<Vec<_>>());
        let cosines: Option<Vec<f32>> = self.vectors.as_ref().zip(vector).and_then(|(vectors, vector)| {
            vectors.iter().map(|one| (one.len() == vector.len()).then(|| dot_product(one, vector))).collect()
        });
        let best_lexical = lexical_scores.iter().map(|lexical| lexical.score).fold(0.0, f32::max);
        let hit = |at: usize| {
            let lexical = lexical_scores.get(at).copied().unwrap_or_default();
            let score = cosines.as_ref().and_then(|cosines| cosines.get(at).copied()).unwrap_or(lexical.share);
            let relative_lexical_score = if best_lexical > 0.0 { lexical.score / best_lexical } else { 0.0 };
            Hit { at, score, relative_lexical_score }
        };
        let Some(cosines) = &cosines else { return lexical_order.into_iter().map(hit).collect() };
        let mut fused = vec![0.0_f32; self.count];
        // A text that shares no word with the query has no lexical rank.
        let lexical_order =
            lexical_order.into_iter().filter(|at| lexical_scores.get(*at).is_some_and(|lexical| lexical.score > 0.0));
        for ranked in [descending_order(cosines), lexical_order.collect()] {
            for (rank, at) in ranked.into_iter().enumerate() {
                if let Some(sum) = fused.get_mut(at) {
                    *sum += 1.0 / (RRF_K + rank as f32 + 1.0);
                }
            }
        }
        descending_order(&fused).into_iter().map(hit).collect()
    }
}

/// The positions of the scores, largest score first.
fn descending_order(scores: &[f32]) -> Vec<usize> {
    let mut ranked: Vec<usize> = (0..scores.len()).collect();
    let score = |at: usize| scores.get(at).copied().unwrap_or(f32::MIN);
    ranked.sort_by(|a, b| score(*b).partial_cmp(&score(*a)).unwrap_or(Ordering::Equal).then(a.cmp(b)));
    ranked
}

fn dot_product(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;

    fn vector(numbers: [f32; 2]) -> Vector {
        numbers.into()
    }

    #[test]
    fn lexical_ranking_without_vectors() {
        let index = HybridIndex::new(["a boat", "a train", "a train and a boat"]);
        let hits = index.ranked(&[("train", 1.0)], None);
        assert_eq!(hits.iter().map(|hit| hit.at).collect::<Vec<_>>(), [1, 2, 0]);
        assert_eq!(hits[0].score, 1.0, "the text has every word of the query");
        assert!(hits[2].relative_lexical_score == 0.0 && hits[2].score == 0.0);
    }

    #[test]
    fn vectors_find_texts_without_common_words_and_bm25_breaks_ties() {
        let texts = ["ferry times", "railway times", "weather"];
        let vectors = vec![vector([0.0, 1.0]), vector([1.0, 0.0]), vector([0.1, 0.9])];
        let index = HybridIndex::new(texts).with_vectors(vectors);
        let hits = index.ranked(&[("train", 1.0)], Some(&[1.0, 0.0]));
        assert_eq!((hits[0].at, hits[0].score), (1, 1.0));
        let hits = index.ranked(&[("ferry", 1.0)], Some(&[0.0, 1.0]));
        assert_eq!(hits[0].at, 0);
        let other_length = index.ranked(&[("weather", 1.0)], Some(&[1.0]));
        assert_eq!((other_length[0].at, other_length[0].score), (2, 1.0), "vectors of another model are not compared");
    }

    #[test]
    fn vectors_are_ignored_when_their_number_differs_from_that_of_the_texts() {
        assert!(!HybridIndex::new(["a", "b"]).with_vectors(vec![vector([1.0, 0.0])]).has_vectors());
    }
}
