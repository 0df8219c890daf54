//! Rust text, read just far enough to tell code from comments, strings and tests.

/// One scanned file.
pub struct Scan {
    /// The text with comments and the insides of literals blanked; lines and columns stay where they were.
    pub code: String,
    /// Every string literal as written (escapes kept), with its line.
    pub strings: Vec<(usize, String)>,
    /// Per line from 0: whether it belongs to a test.
    tests: Vec<bool>,
}

impl Scan {
    /// Reads a file. `path` says whether the whole file is a test.
    pub fn new(path: &str, text: &str) -> Self {
        let (code, strings) = blank(text);
        let mut tests = vec![is_test_path(path); text.lines().count() + 1];
        mark_tests(&code, &mut tests);
        Self { code, strings, tests }
    }

    /// Whether the line (from 1) belongs to a test.
    pub fn in_test(&self, line: usize) -> bool {
        line.checked_sub(1).and_then(|index| self.tests.get(index)).copied().unwrap_or(false)
    }
}

/// Whether everything in a file is a test.
pub fn is_test_path(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("/tests.rs") || path.ends_with("_tests.rs")
}

/// Blanks comments and literals, and collects the string literals.
fn blank(text: &str) -> (String, Vec<(usize, String)>) {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut strings = Vec::new();
    let mut line = 1;
    let mut at = 0;
    while at < chars.len() {
        let end = match chars[at] {
            '/' if chars.get(at + 1) == Some(&'/') => {
                (at..chars.len()).find(|&i| chars[i] == '\n').unwrap_or(chars.len())
            }
            '/' if chars.get(at + 1) == Some(&'*') => comment_end(&chars, at),
            '"' => string_end(&chars, at),
            'r' if !follows_word(&chars, at) => raw_end(&chars, at).unwrap_or(at),
            '\'' => char_end(&chars, at).unwrap_or(at),
            _ => at,
        };
        if end == at {
            line += usize::from(chars[at] == '\n');
            code.push(chars[at]);
            at += 1;
            continue;
        }
        let token = &chars[at..end];
        if token[0] != '/' && token[0] != '\'' {
            let open = token.iter().position(|&c| c == '"').unwrap_or(0) + 1;
            let hashes = if token[0] == 'r' { open - 2 } else { 0 };
            strings.push((line, token[open..token.len().saturating_sub(1 + hashes).max(open)].iter().collect()));
            // The quotes stay, so that a literal can still be told from nothing.
            code.push('"');
        } else {
            code.push(' ');
        }
        for &c in &token[1..] {
            line += usize::from(c == '\n');
            code.push(if c == '\n' { '\n' } else { ' ' });
        }
        at = end;
    }
    (code, strings)
}

/// Whether the character before is part of a word, other than the `b` or `c` of a byte or C string.
fn follows_word(chars: &[char], at: usize) -> bool {
    let word = |i: usize| chars.get(i).is_some_and(|c| c.is_alphanumeric() || *c == '_');
    match at.checked_sub(1) {
        None => false,
        Some(before) if matches!(chars[before], 'b' | 'c') => before.checked_sub(1).is_some_and(word),
        Some(before) => word(before),
    }
}

fn comment_end(chars: &[char], at: usize) -> usize {
    let (mut depth, mut i) = (0_usize, at);
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('*')) => (depth, i) = (depth + 1, i + 2),
            ('*', Some('/')) => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            return i;
        }
    }
    chars.len()
}

fn string_end(chars: &[char], at: usize) -> usize {
    let mut i = at + 1;
    while i < chars.len() {
        match chars[i] {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    chars.len()
}

fn raw_end(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[at + 1..].iter().take_while(|&&c| c == '#').count();
    if chars.get(at + 1 + hashes) != Some(&'"') {
        return None;
    }
    let closes =
        |i: usize| chars[i] == '"' && chars[i + 1..].iter().take(hashes).filter(|&&c| c == '#').count() == hashes;
    let close = (at + 2 + hashes..chars.len()).find(|&i| closes(i))?;
    Some(close + 1 + hashes)
}

/// The end of a character literal; `None` for a lifetime.
fn char_end(chars: &[char], at: usize) -> Option<usize> {
    if chars.get(at + 1) == Some(&'\\') {
        return (at + 3..chars.len()).find(|&i| chars[i] == '\'').map(|i| i + 1);
    }
    (chars.get(at + 2) == Some(&'\'')).then_some(at + 3)
}

/// Marks the lines of items under `#[cfg(test)]`, and of `#[test]` functions outside such a module.
fn mark_tests(code: &str, tests: &mut [bool]) {
    if code.contains("#![cfg(test)]") {
        tests.fill(true);
    }
    for attribute in ["#[cfg(test)]", "#[cfg(all(test,", "#[test]", "#[tokio::test"] {
        for (start, _) in code.match_indices(attribute) {
            let first = code[..start].matches('\n').count();
            let last = first + code[start..item_end(code, start)].matches('\n').count();
            tests.iter_mut().take(last + 1).skip(first).for_each(|line| *line = true);
        }
    }
}

/// Where the item ends that has an attribute at `start`: at its `;`, or at the brace that closes its body.
fn item_end(code: &str, start: usize) -> usize {
    let (mut round, mut curly) = (0_i32, 0_i32);
    for (i, c) in code[start..].char_indices() {
        match c {
            '(' | '[' => round += 1,
            ')' | ']' => round -= 1,
            '{' => curly += 1,
            '}' => {
                curly -= 1;
                if curly <= 0 {
                    return start + i + 1;
                }
            }
            ';' if round == 0 && curly == 0 => return start + i + 1,
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_in_place() {
        let text = "let a = \"x // no\"; // yes\n/* b /* c */ d */ let e = 'f'; let g: &'static str = r#\"h\"i\"#;";
        let scan = Scan::new("src/a.rs", text);
        assert_eq!(scan.code.len(), text.len());
        assert!(!scan.code.contains("yes") && !scan.code.contains('d') && scan.code.contains("let e"));
        assert_eq!(scan.strings, [(1, "x // no".to_owned()), (2, "h\"i".to_owned())]);
        assert!(scan.code.contains("&'static str"));
    }

    #[test]
    fn quotes_as_characters_open_no_string() {
        let scan = Scan::new("src/a.rs", "let q = '\"'; let b = '\\''; let s = b\"bytes\"; let r#type = 1;");
        assert_eq!(scan.strings, [(1, "bytes".to_owned())]);
        assert!(scan.code.contains("r#type"));
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
        assert!(Scan::new("src/llm/tests.rs", "fn a() {}").in_test(1));
        assert!(!Scan::new("src/testing/world.rs", "fn a() {}").in_test(1));
    }
}
