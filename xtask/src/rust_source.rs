//! The tokens of a Rust file with their lines: enough to distinguish code from comments, string literals and tests.

use std::ops::RangeInclusive;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// The tokens of one file.
#[derive(Default)]
pub struct RustSource {
    /// Identifiers and keywords, punctuation characters, brackets and `::`, each with its line (from 1). Comments are left out; every
    /// literal is `""`.
    pub tokens: Vec<(usize, String)>,
    /// Every string literal with its line, as it is written in the source.
    pub strings: Vec<(usize, String)>,
    /// The line ranges of test code.
    tests: Vec<RangeInclusive<usize>>,
}

impl RustSource {
    /// Tokenises `text`. If `path` is a test path, all of the file is test code. A file that cannot be tokenised has no tokens; the
    /// compiler reports it.
    pub fn new(path: &str, text: &str) -> Self {
        let mut source = Self::default();
        if is_test_path(path) {
            source.tests.push(0..=usize::MAX);
        }
        source.read(text.parse().unwrap_or_default());
        source
    }

    /// Whether the line (from 1) is test code.
    pub fn in_test(&self, line: usize) -> bool {
        self.tests.iter().any(|test| test.contains(&line))
    }

    /// The lines with code: number, and tokens without spaces, except one space between two words.
    pub fn lines(&self) -> Vec<(usize, String)> {
        let mut lines: Vec<(usize, String)> = Vec::new();
        for (line, token) in &self.tokens {
            match lines.last_mut().filter(|(last, _)| last == line) {
                Some((_, code)) => {
                    if is_word(token) && code.ends_with(|c: char| c.is_alphanumeric() || c == '_') {
                        code.push(' ');
                    }
                    code.push_str(token);
                }
                None => lines.push((*line, token.clone())),
            }
        }
        lines
    }

    fn read(&mut self, stream: TokenStream) {
        let trees: Vec<TokenTree> = stream.into_iter().collect();
        let mut at = 0;
        while let Some(tree) = trees.get(at) {
            let line = tree.span().start().line;
            if let Some(attribute) = Attribute::at(&trees, at) {
                if attribute.content.starts_with("doc=") {
                    at = attribute.brackets + 1;
                    continue;
                }
                if attribute.is_test() {
                    let whole_file = 0..=usize::MAX;
                    let item = line..=last_line_of_item(&trees, attribute.brackets);
                    self.tests.push(if attribute.is_inner { whole_file } else { item });
                }
            }
            match tree {
                TokenTree::Group(group) => {
                    let (open, close) = match group.delimiter() {
                        Delimiter::Parenthesis => ("(", ")"),
                        Delimiter::Brace => ("{", "}"),
                        Delimiter::Bracket => ("[", "]"),
                        Delimiter::None => ("", ""),
                    };
                    self.tokens.push((line, open.to_owned()));
                    self.read(group.stream());
                    self.tokens.push((group.span_close().start().line, close.to_owned()));
                }
                TokenTree::Punct(punct) => {
                    let is_path_separator = punct.as_char() == ':'
                        && punct.spacing() == Spacing::Joint
                        && matches!(trees.get(at + 1), Some(TokenTree::Punct(next)) if next.as_char() == ':');
                    let token = if is_path_separator { "::".to_owned() } else { punct.as_char().to_string() };
                    self.tokens.push((line, token));
                    at += usize::from(is_path_separator);
                }
                TokenTree::Ident(word) => self.tokens.push((line, word.to_string())),
                TokenTree::Literal(literal) => {
                    let text = literal.to_string();
                    let quoted = text.split_once('"').and_then(|(_, rest)| rest.rsplit_once('"'));
                    if let Some((text, _)) = quoted.filter(|_| !text.starts_with(['\'', 'b'])) {
                        self.strings.push((line, text.to_owned()));
                    }
                    self.tokens.push((line, "\"\"".to_owned()));
                }
            }
            at += 1;
        }
    }
}

/// Whether all of a file is test code.
pub fn is_test_path(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("/tests.rs") || path.ends_with("_tests.rs")
}

/// Whether a token is an identifier or a keyword.
pub fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// `#[…]` or `#![…]`. Doc comments are attributes too.
struct Attribute {
    /// Whether it is `#![…]`, which applies to the enclosing item.
    is_inner: bool,
    /// The index of the bracket group among the token trees.
    brackets: usize,
    /// The text between the brackets, without white space.
    content: String,
}

impl Attribute {
    /// The attribute whose `#` has the index `at`.
    fn at(trees: &[TokenTree], at: usize) -> Option<Self> {
        let is = |at: usize, c| matches!(trees.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == c);
        let is_inner = is(at + 1, '!');
        let brackets = at + 1 + usize::from(is_inner);
        match trees.get(brackets) {
            Some(TokenTree::Group(group)) if is(at, '#') && group.delimiter() == Delimiter::Bracket => {
                Some(Self { is_inner, brackets, content: group.stream().to_string().replace([' ', '\n'], "") })
            }
            _ => None,
        }
    }

    /// Whether the attribute marks its item as test code.
    fn is_test(&self) -> bool {
        let starts = ["cfg(test)", "cfg(all(test,", "tokio::test"];
        self.content == "test" || starts.iter().any(|start| self.content.starts_with(start))
    }
}

/// The last line of the item whose attribute has the index `at`: the line of its `;`, or of the brace that closes its body.
fn last_line_of_item(trees: &[TokenTree], at: usize) -> usize {
    let ends = |tree: &&TokenTree| match tree {
        TokenTree::Punct(mark) => mark.as_char() == ';',
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        _ => false,
    };
    trees[at..].iter().find(ends).or(trees.last()).map_or(0, |tree| tree.span().end().line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &RustSource) -> Vec<&str> {
        source.tokens.iter().map(|(_, token)| token.as_str()).filter(|token| is_word(token)).collect()
    }

    #[test]
    fn comments_and_literals_are_not_code() {
        let text =
            "/// no\nlet a = \"x // no\"; // no\n/* no /* no */ no */ let e = 'f'; let g: &'static str = r#\"h\"i\"#;";
        let source = RustSource::new("src/a.rs", text);
        assert_eq!(words(&source), ["let", "a", "let", "e", "let", "g", "static", "str"]);
        assert_eq!(source.strings, [(2, "x // no".to_owned()), (3, "h\"i".to_owned())]);
        assert_eq!(source.lines()[0], (2, "let a=\"\";".to_owned()));
    }

    #[test]
    fn character_literal_of_a_quote_opens_no_string() {
        let source = RustSource::new("src/a.rs", "let q = '\"'; let b = '\\''; let s = \"text\"; let r#type = 1;");
        assert_eq!(source.strings, [(1, "text".to_owned())]);
    }

    #[test]
    fn test_module_ends_at_its_closing_brace() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { \"}\"; }\n}\nfn c() {}\n";
        let source = RustSource::new("src/a.rs", text);
        let test_lines: Vec<usize> = (1..=6).filter(|&line| source.in_test(line)).collect();
        assert_eq!(test_lines, [2, 3, 4, 5]);
    }

    #[test]
    fn all_of_a_file_with_a_test_path_is_test_code() {
        assert!(RustSource::new("tests/it/main.rs", "fn a() {}").in_test(1));
        assert!(RustSource::new("crates/llm/src/tests.rs", "fn a() {}").in_test(1));
        assert!(!RustSource::new("src/testing/mod.rs", "fn a() {}").in_test(1));
    }
}
