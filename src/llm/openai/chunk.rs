//! The JSON of one event, or of a whole answer, as far as anything is read of it. All of it borrows from the event's bytes.

use std::{borrow::Cow, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// A string that borrows where it can; serde's derive does not see through `Option<Cow>`.
#[derive(Deserialize, Default)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// A list of hardly ever more than one: a list on the heap would be made for every event, with room for four.
pub(super) struct Few<T> {
    first: Option<T>,
    others: Vec<T>,
}

impl<T> Few<T> {
    /// Its item, where it has no other.
    fn only(&self) -> Option<&T> {
        self.first.as_ref().filter(|_| self.others.is_empty())
    }
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self { first: None, others: Vec::new() }
    }
}

impl<T> IntoIterator for Few<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.others)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Items<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
            type Value = Few<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Few<T>, A::Error> {
                let mut few = Few { first: items.next_element()?, others: Vec::new() };
                while let Some(item) = items.next_element()? {
                    few.others.push(item);
                }
                Ok(few)
            }
        }

        from.deserialize_seq(Items(PhantomData))
    }
}

#[derive(Deserialize)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) model: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) choices: Option<Few<Choice<'a>>>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

impl Chunk<'_> {
    /// Its text, where it brings nothing else and the text stands in its bytes as it is.
    pub(super) fn only_text(&self) -> Option<&str> {
        let Choice { index: None | Some(0), delta: Some(piece), message: None, finish_reason: None } =
            self.choices.as_ref()?.only()?
        else {
            return None;
        };
        let alone =
            self.usage.is_none() && self.error.is_none() && piece.refusal.is_none() && piece.tool_calls.is_none();
        match &piece.content {
            Some(Text(Cow::Borrowed(text))) if alone => Some(text),
            _ => None,
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Choice<'a> {
    pub(super) index: Option<u64>,
    #[serde(borrow)]
    pub(super) delta: Option<Piece<'a>>,
    /// Where a whole answer has its delta.
    #[serde(borrow)]
    pub(super) message: Option<Piece<'a>>,
    #[serde(borrow)]
    pub(super) finish_reason: Option<Text<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Piece<'a> {
    #[serde(borrow)]
    pub(super) content: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) refusal: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) tool_calls: Option<Few<Call<'a>>>,
}

#[derive(Deserialize)]
pub(super) struct Call<'a> {
    pub(super) index: Option<u64>,
    #[serde(borrow)]
    pub(super) id: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) function: Option<Function<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Function<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    /// A string of JSON by the rules; some servers send the object itself.
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct WireUsage {
    pub(super) prompt_tokens: u64,
    #[serde(default)]
    pub(super) completion_tokens: u64,
    pub(super) prompt_tokens_details: Option<InputDetails>,
    pub(super) completion_tokens_details: Option<OutputDetails>,
}
#[derive(Deserialize)]
pub(super) struct InputDetails {
    pub(super) cached_tokens: Option<u64>,
}
#[derive(Deserialize)]
pub(super) struct OutputDetails {
    pub(super) reasoning_tokens: Option<u64>,
}
