//! Texts in memory, found by words, by vectors, or by one order made of both.

use std::{cmp::Ordering, sync::Arc};

use super::lexical::Lexical;

/// A vector of length 1.
pub type Vector = Arc<[f32]>;

/// How fast a place further down counts less when two orders are made one (reciprocal rank fusion: Cormack and others, 2009).
const PLACES: f32 = 60.0;

/// Texts in memory. Cheap to clone but for the vectors; clones share what is known of words.
#[derive(Clone, Debug, Default)]
pub struct Index {
    lexical: Arc<Lexical>,
    vectors: Option<Vec<Vector>>,
    count: usize,
}

/// One text that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// Its place among the texts.
    pub at: usize,
    /// How near it is: the cosine where vectors were compared, else the share of the question's weight that its words cover.
    pub score: f32,
    /// How well its words fit, beside the text whose words fit best: 0 to 1.
    pub by_words: f32,
}

impl Index {
    /// An index of texts, by their words.
    pub fn new<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        let mut count = 0;
        let lexical = Lexical::new(texts.into_iter().inspect(|_| count += 1));
        Self { lexical: Arc::new(lexical), vectors: None, count }
    }

    /// The same index, by vectors too; vectors that are not one for each text are left out.
    #[must_use]
    pub fn with_vectors(mut self, vectors: Vec<Vector>) -> Self {
        self.vectors = Some(vectors).filter(|vectors| vectors.len() == self.count);
        self
    }

    /// How many texts there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether texts can be found by vectors.
    pub fn has_vectors(&self) -> bool {
        self.vectors.is_some()
    }

    /// Every text, best first; equals in their order. `question` is parts with their weights; `vector` is compared where the
    /// texts have vectors of its length.
    pub fn ranked(&self, question: &[(&str, f32)], vector: Option<&[f32]>) -> Vec<Hit> {
        let covers = self.lexical.covers(question);
        let by_words = order(&covers.iter().map(|cover| cover.score).collect::<Vec<_>>());
        let near: Option<Vec<f32>> = self.vectors.as_ref().zip(vector).and_then(|(vectors, vector)| {
            vectors.iter().map(|one| (one.len() == vector.len()).then(|| inner(one, vector))).collect()
        });
        let most = covers.iter().map(|cover| cover.score).fold(0.0, f32::max);
        let hit = |at: usize| {
            let cover = covers.get(at).copied().unwrap_or_default();
            let score = near.as_ref().and_then(|near| near.get(at).copied()).unwrap_or(cover.share);
            Hit { at, score, by_words: if most > 0.0 { cover.score / most } else { 0.0 } }
        };
        let Some(near) = &near else { return by_words.into_iter().map(hit).collect() };
        let mut fused = vec![0.0_f32; self.count];
        // A text without a word of the question has no place in the order by words.
        let by_words = by_words.into_iter().filter(|at| covers.get(*at).is_some_and(|cover| cover.score > 0.0));
        for places in [order(near), by_words.collect()] {
            for (place, at) in places.into_iter().enumerate() {
                if let Some(sum) = fused.get_mut(at) {
                    *sum += 1.0 / (PLACES + place as f32 + 1.0);
                }
            }
        }
        order(&fused).into_iter().map(hit).collect()
    }
}

/// The places of numbers, largest first.
fn order(scores: &[f32]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..scores.len()).collect();
    let of = |at: usize| scores.get(at).copied().unwrap_or(f32::MIN);
    places.sort_by(|a, b| of(*b).partial_cmp(&of(*a)).unwrap_or(Ordering::Equal).then(a.cmp(b)));
    places
}

fn inner(a: &[f32], b: &[f32]) -> f32 {
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
    fn words_alone() {
        let index = Index::new(["a boat", "a train", "a train and a boat"]);
        let hits = index.ranked(&[("train", 1.0)], None);
        assert_eq!(hits.iter().map(|hit| hit.at).collect::<Vec<_>>(), [1, 2, 0]);
        assert_eq!(hits[0].score, 1.0, "every word of the question is there");
        assert!(hits[2].by_words == 0.0 && hits[2].score == 0.0);
    }

    #[test]
    fn meaning_finds_what_words_do_not_and_words_decide_between_equals() {
        let texts = ["ferry times", "railway times", "weather"];
        let vectors = vec![vector([0.0, 1.0]), vector([1.0, 0.0]), vector([0.1, 0.9])];
        let index = Index::new(texts).with_vectors(vectors);
        let hits = index.ranked(&[("train", 1.0)], Some(&[1.0, 0.0]));
        assert_eq!((hits[0].at, hits[0].score), (1, 1.0));
        let hits = index.ranked(&[("ferry", 1.0)], Some(&[0.0, 1.0]));
        assert_eq!(hits[0].at, 0);
        let other_length = index.ranked(&[("weather", 1.0)], Some(&[1.0]));
        assert_eq!((other_length[0].at, other_length[0].score), (2, 1.0), "vectors of another model are not compared");
    }

    #[test]
    fn vectors_of_other_texts_are_left_out() {
        assert!(!Index::new(["a", "b"]).with_vectors(vec![vector([1.0, 0.0])]).has_vectors());
    }
}
