//! Texts about tools for models. They are in `prompts/words.txt`; this file fills in their values.

use std::{collections::HashMap, fmt::Display, sync::LazyLock};

const FILE: &str = include_str!("../prompts/words.txt");

macro_rules! words {
    ($($name:ident = $key:literal,)*) => {
        /// A text of the file.
        // Some texts are used by the MCP client only, but the file contains all of them.
        #[cfg_attr(not(feature = "mcp"), allow(dead_code))]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Word { $($name,)* }

        impl Word {
            #[cfg(test)]
            const ALL: &'static [Self] = &[$(Self::$name,)*];
            const fn key(self) -> &'static str {
                match self { $(Self::$name => $key,)* }
            }
        }
    };
}

words! {
    Failed = "failed",
    Unknown = "unknown",
    Pending = "pending",
    Empty = "empty",
    Unusable = "unusable",
    Cut = "cut",
    Image = "image",
    Audio = "audio",
    Link = "link",
    Resource = "resource",
    Part = "part",
    NoTool = "no_tool",
    NoTools = "no_tools",
    Arguments = "arguments",
    Missing = "missing",
    Surplus = "surplus",
    Choice = "choice",
    Misfit = "misfit",
    More = "more",
    Late = "late",
    LateBefore = "late_before",
    Away = "away",
    Lost = "lost",
    NotRun = "not_run",
    Stopped = "stopped",
    StoppedBefore = "stopped_before",
    RefusedCredentials = "refused_credentials",
    TooLarge = "too_large",
    AgainstSchema = "against_schema",
    NoAnswer = "no_answer",
    WantsInput = "wants_input",
    NeedsInput = "needs_input",
    Said = "said",
    SaidNothing = "said_nothing",
    Internal = "internal",
}

static TEXTS: LazyLock<HashMap<&'static str, &'static str>> = LazyLock::new(|| {
    let lines = FILE.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(" = ")).collect()
});

/// Renders a text with its values. Braces within a value are kept.
pub(super) fn say(word: Word, values: &[(&str, &dyn Display)]) -> String {
    let mut rest = TEXTS.get(word.key()).copied().unwrap_or(word.key());
    let mut out = String::with_capacity(rest.len() + 32);
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let Some((name, tail)) = after.split_once('}') else {
            out.push('{');
            rest = after;
            continue;
        };
        if let Some((_, value)) = values.iter().find(|(key, _)| *key == name) {
            out.push_str(&value.to_string());
        }
        rest = tail;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_stands_in_the_file_and_the_file_holds_no_other() {
        for word in Word::ALL {
            assert!(TEXTS.contains_key(word.key()), "{} is missing in prompts/words.txt", word.key());
        }
        assert_eq!(TEXTS.len(), Word::ALL.len());
    }

    #[test]
    fn values_are_data() {
        let said = say(Word::NoTool, &[("name", &"{tools}"), ("tools", &"a, b")]);
        assert_eq!(said, "There is no tool named `{tools}`. The tools are: a, b.");
    }
}
