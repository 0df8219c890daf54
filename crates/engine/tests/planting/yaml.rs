//! A small writer of YAML that knows on which lines it put what was marked.

/// A node. `Text` is quoted where it must be, `Plain` never.
#[derive(Clone, Debug)]
pub enum Y {
    Text(String),
    Plain(String),
    List(Vec<Y>),
    Map(Vec<(String, Y)>),
    /// The defect is here.
    Marked(Box<Y>),
}

pub fn text(text: impl Into<String>) -> Y {
    Y::Text(text.into())
}

pub fn plain(text: impl ToString) -> Y {
    Y::Plain(text.to_string())
}

pub fn list(items: impl IntoIterator<Item = Y>) -> Y {
    Y::List(items.into_iter().collect())
}

pub fn map<K: Into<String>>(pairs: impl IntoIterator<Item = (K, Y)>) -> Y {
    Y::Map(pairs.into_iter().map(|(key, value)| (key.into(), value)).collect())
}

impl Y {
    pub fn marked(self) -> Y {
        Y::Marked(Box::new(self))
    }

    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    pub fn get(&self, key: &str) -> Option<&Y> {
        match self {
            Y::Map(pairs) => pairs.iter().find(|(k, _)| k == key).map(|(_, value)| value),
            Y::Marked(inner) => inner.get(key),
            _ => None,
        }
    }

    /// Puts a pair into a map, in place of one with the same key.
    pub fn set(&mut self, key: &str, value: Y) {
        match self {
            Y::Map(pairs) => match pairs.iter_mut().find(|(k, _)| k == key) {
                Some(pair) => pair.1 = value,
                None => pairs.push((key.to_owned(), value)),
            },
            Y::Marked(inner) => inner.set(key, value),
            _ => panic!("no map"),
        }
    }

    pub fn with(mut self, key: &str, value: Y) -> Y {
        self.set(key, value);
        self
    }
}

/// A file as written: its text, and from which line to which each marked node goes, from 1.
pub struct Written {
    pub text: String,
    pub marks: Vec<(u32, u32)>,
}

pub fn write(root: &Y) -> Written {
    let mut pen = Pen { lines: Vec::new(), marks: Vec::new() };
    pen.block(root, 0);
    Written { text: pen.lines.join("\n") + "\n", marks: pen.marks }
}

struct Pen {
    lines: Vec<String>,
    marks: Vec<(u32, u32)>,
}

impl Pen {
    fn block(&mut self, node: &Y, indent: usize) {
        match node {
            Y::Marked(inner) => {
                let first = self.lines.len() + 1;
                self.block(inner, indent);
                self.mark(first);
            }
            Y::Map(pairs) => pairs.iter().for_each(|(key, value)| self.pair(key, value, indent)),
            Y::List(items) => items.iter().for_each(|item| self.item(item, indent)),
            Y::Text(_) | Y::Plain(_) => self.lines.push(format!("{}{}", " ".repeat(indent), scalar(node))),
        }
    }

    fn mark(&mut self, first: usize) {
        self.marks.push((u32::try_from(first).unwrap(), u32::try_from(self.lines.len()).unwrap()));
    }

    fn pair(&mut self, key: &str, value: &Y, indent: usize) {
        let pad = " ".repeat(indent);
        match value {
            Y::Marked(inner) => {
                let first = self.lines.len() + 1;
                self.pair(key, inner, indent);
                self.mark(first);
            }
            Y::Map(pairs) if pairs.is_empty() => self.lines.push(format!("{pad}{key}: {{}}")),
            Y::List(items) if items.is_empty() => self.lines.push(format!("{pad}{key}: []")),
            Y::Map(_) | Y::List(_) => {
                self.lines.push(format!("{pad}{key}:"));
                self.block(value, indent + 2);
            }
            Y::Text(_) | Y::Plain(_) => self.lines.push(format!("{pad}{key}: {}", scalar(value)).trim_end().to_owned()),
        }
    }

    fn item(&mut self, item: &Y, indent: usize) {
        let pad = " ".repeat(indent);
        match item {
            Y::Marked(inner) => {
                let first = self.lines.len() + 1;
                self.item(inner, indent);
                self.mark(first);
            }
            Y::Map(pairs) if !pairs.is_empty() => {
                let at = self.lines.len();
                self.block(item, indent + 2);
                let first = self.lines[at][indent + 2..].to_owned();
                self.lines[at] = format!("{pad}- {first}");
            }
            Y::Map(_) => self.lines.push(format!("{pad}- {{}}")),
            Y::List(_) => panic!("no list in a list"),
            Y::Text(_) | Y::Plain(_) => self.lines.push(format!("{pad}- {}", scalar(item))),
        }
    }
}

fn scalar(node: &Y) -> String {
    match node {
        Y::Plain(text) => text.clone(),
        Y::Text(text) if is_safe(text) => text.clone(),
        Y::Text(text) => format!("'{}'", text.replace('\'', "''")),
        _ => panic!("no scalar"),
    }
}

fn is_safe(text: &str) -> bool {
    let words = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && !words.contains(&text.to_ascii_lowercase().as_str())
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.ends_with([':', ' '])
        && !text.contains('\n')
}

#[test]
fn marks_know_their_lines() {
    let root = map([
        ("a", list([map([("x", text("1")), ("y", list([text("yes")]))]).marked(), text("b").marked()])),
        ("c", map([("d", text("slots.x > 5").marked())])),
    ]);
    let written = write(&root);
    assert_eq!(written.text, "a:\n  - x: '1'\n    y:\n      - 'yes'\n  - b\nc:\n  d: slots.x > 5\n");
    assert_eq!(written.marks, [(2, 4), (5, 5), (7, 7)]);
}
