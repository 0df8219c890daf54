//! Rust source as tokens, with the line of each: enough to tell code from comments, strings and tests.

use std::ops::RangeInclusive;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// One scanned file.
#[derive(Default)]
pub struct Scan {
    /// Words, single marks and `::`, each with its line; without comments and without the insides of literals.
    pub tokens: Vec<(usize, String)>,
    /// Every string literal with its line.
    pub strings: Vec<(usize, String)>,
    /// The lines of each test.
    tests: Vec<RangeInclusive<usize>>,
}

impl Scan {
    /// Reads a file. `path` says whether the whole file is a test. A file that is no Rust has no tokens: the compiler reports it.
    pub fn new(path: &str, text: &str) -> Self {
        let mut scan = Self::default();
        if is_test_path(path) {
            scan.tests.push(0..=usize::MAX);
        }
        scan.read(text.parse().unwrap_or_default());
        scan
    }

    /// Whether the line (from 1) belongs to a test.
    pub fn in_test(&self, line: usize) -> bool {
        self.tests.iter().any(|test| test.contains(&line))
    }

    /// The code line by line: its number, and the tokens without spaces, except one between two words.
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
                if attribute.marks_a_test() {
                    let whole_file = 0..=usize::MAX;
                    let item = line..=last_line_of_item(&trees, attribute.brackets);
                    self.tests.push(if attribute.inner { whole_file } else { item });
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
                TokenTree::Punct(mark) => {
                    let doubled = mark.as_char() == ':'
                        && mark.spacing() == Spacing::Joint
                        && matches!(trees.get(at + 1), Some(TokenTree::Punct(next)) if next.as_char() == ':');
                    self.tokens.push((line, if doubled { "::".to_owned() } else { mark.as_char().to_string() }));
                    at += usize::from(doubled);
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

/// Whether everything in a file is a test.
pub fn is_test_path(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("/tests.rs") || path.ends_with("_tests.rs")
}

/// Whether a token is a name or a keyword.
pub fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// `#[…]` or `#![…]`; comments of documentation are attributes too.
struct Attribute {
    /// Whether it is about what it stands in.
    inner: bool,
    /// Where its brackets are.
    brackets: usize,
    /// What is between them, without spaces.
    content: String,
}

impl Attribute {
    /// The attribute whose `#` is at `at`.
    fn at(trees: &[TokenTree], at: usize) -> Option<Self> {
        let is = |at: usize, mark| matches!(trees.get(at), Some(TokenTree::Punct(found)) if found.as_char() == mark);
        let inner = is(at + 1, '!');
        let brackets = at + 1 + usize::from(inner);
        match trees.get(brackets) {
            Some(TokenTree::Group(group)) if is(at, '#') && group.delimiter() == Delimiter::Bracket => {
                Some(Self { inner, brackets, content: group.stream().to_string().replace([' ', '\n'], "") })
            }
            _ => None,
        }
    }

    fn marks_a_test(&self) -> bool {
        let starts = ["cfg(test)", "cfg(all(test,", "tokio::test"];
        self.content == "test" || starts.iter().any(|start| self.content.starts_with(start))
    }
}

/// Where the item ends whose attribute is at `at`: at its `;`, or at the brace that closes its body.
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

    fn words(scan: &Scan) -> Vec<&str> {
        scan.tokens.iter().map(|(_, token)| token.as_str()).filter(|token| is_word(token)).collect()
    }

    #[test]
    fn comments_and_literals_are_no_code() {
        let text =
            "/// no\nlet a = \"x // no\"; // no\n/* no /* no */ no */ let e = 'f'; let g: &'static str = r#\"h\"i\"#;";
        let scan = Scan::new("src/a.rs", text);
        assert_eq!(words(&scan), ["let", "a", "let", "e", "let", "g", "static", "str"]);
        assert_eq!(scan.strings, [(2, "x // no".to_owned()), (3, "h\"i".to_owned())]);
        assert_eq!(scan.lines()[0], (2, "let a=\"\";".to_owned()));
    }

    #[test]
    fn quotes_as_characters_open_no_string() {
        let scan = Scan::new("src/a.rs", "let q = '\"'; let b = '\\''; let s = \"text\"; let r#type = 1;");
        assert_eq!(scan.strings, [(1, "text".to_owned())]);
    }

    #[test]
    fn a_test_module_ends_at_its_brace() {
        let scan = Scan::new("src/a.rs", "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { \"}\"; }\n}\nfn c() {}\n");
        let marked: Vec<usize> = (1..=6).filter(|&line| scan.in_test(line)).collect();
        assert_eq!(marked, [2, 3, 4, 5]);
    }

    #[test]
    fn a_folder_of_tests_is_a_test_as_a_whole() {
        assert!(Scan::new("tests/it/main.rs", "fn a() {}").in_test(1));
        assert!(Scan::new("crates/llm/src/tests.rs", "fn a() {}").in_test(1));
        assert!(!Scan::new("src/testing/world.rs", "fn a() {}").in_test(1));
    }
}
