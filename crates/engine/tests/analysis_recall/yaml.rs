//! A small YAML writer that records the lines of marked nodes.

/// A node. `Text` is quoted where it must be, `Plain` never.
#[derive(Clone, Debug)]
pub enum Yaml {
    Text(String),
    Plain(String),
    List(Vec<Yaml>),
    Map(Vec<(String, Yaml)>),
    /// The mistake is here.
    Marked(Box<Yaml>),
}

pub fn text(text: impl Into<String>) -> Yaml {
    Yaml::Text(text.into())
}

pub fn plain(text: impl ToString) -> Yaml {
    Yaml::Plain(text.to_string())
}

pub fn list(items: impl IntoIterator<Item = Yaml>) -> Yaml {
    Yaml::List(items.into_iter().collect())
}

pub fn map<K: Into<String>>(pairs: impl IntoIterator<Item = (K, Yaml)>) -> Yaml {
    Yaml::Map(pairs.into_iter().map(|(key, value)| (key.into(), value)).collect())
}

impl Yaml {
    pub fn marked(self) -> Yaml {
        Yaml::Marked(Box::new(self))
    }

    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    pub fn get(&self, key: &str) -> Option<&Yaml> {
        match self {
            Yaml::Map(pairs) => pairs.iter().find(|(k, _)| k == key).map(|(_, value)| value),
            Yaml::Marked(inner) => inner.get(key),
            _ => None,
        }
    }

    /// Sets a key of a map.
    pub fn set(&mut self, key: &str, value: Yaml) {
        match self {
            Yaml::Map(pairs) => match pairs.iter_mut().find(|(k, _)| k == key) {
                Some(pair) => pair.1 = value,
                None => pairs.push((key.to_owned(), value)),
            },
            Yaml::Marked(inner) => inner.set(key, value),
            _ => panic!("no map"),
        }
    }

    pub fn with(mut self, key: &str, value: Yaml) -> Yaml {
        self.set(key, value);
        self
    }
}

/// The text of a file, and the first and last line of each marked node, from 1.
pub struct WrittenYaml {
    pub text: String,
    pub marks: Vec<(u32, u32)>,
}

pub fn write(root: &Yaml) -> WrittenYaml {
    let mut pen = YamlWriter { lines: Vec::new(), marks: Vec::new() };
    pen.block(root, 0);
    WrittenYaml { text: pen.lines.join("\n") + "\n", marks: pen.marks }
}

struct YamlWriter {
    lines: Vec<String>,
    marks: Vec<(u32, u32)>,
}

impl YamlWriter {
    fn block(&mut self, node: &Yaml, indent: usize) {
        match node {
            Yaml::Marked(inner) => {
                let first = self.lines.len() + 1;
                self.block(inner, indent);
                self.mark(first);
            }
            Yaml::Map(pairs) => pairs.iter().for_each(|(key, value)| self.pair(key, value, indent)),
            Yaml::List(items) => items.iter().for_each(|item| self.item(item, indent)),
            Yaml::Text(_) | Yaml::Plain(_) => self.lines.push(format!("{}{}", " ".repeat(indent), scalar(node))),
        }
    }

    fn mark(&mut self, first: usize) {
        self.marks.push((u32::try_from(first).unwrap(), u32::try_from(self.lines.len()).unwrap()));
    }

    fn pair(&mut self, key: &str, value: &Yaml, indent: usize) {
        let pad = " ".repeat(indent);
        match value {
            Yaml::Marked(inner) => {
                let first = self.lines.len() + 1;
                self.pair(key, inner, indent);
                self.mark(first);
            }
            Yaml::Map(pairs) if pairs.is_empty() => self.lines.push(format!("{pad}{key}: {{}}")),
            Yaml::List(items) if items.is_empty() => self.lines.push(format!("{pad}{key}: []")),
            Yaml::Map(_) | Yaml::List(_) => {
                self.lines.push(format!("{pad}{key}:"));
                self.block(value, indent + 2);
            }
            Yaml::Text(_) | Yaml::Plain(_) => {
                self.lines.push(format!("{pad}{key}: {}", scalar(value)).trim_end().to_owned())
            }
        }
    }

    fn item(&mut self, item: &Yaml, indent: usize) {
        let pad = " ".repeat(indent);
        match item {
            Yaml::Marked(inner) => {
                let first = self.lines.len() + 1;
                self.item(inner, indent);
                self.mark(first);
            }
            Yaml::Map(pairs) if !pairs.is_empty() => {
                let at = self.lines.len();
                self.block(item, indent + 2);
                let first = self.lines[at][indent + 2..].to_owned();
                self.lines[at] = format!("{pad}- {first}");
            }
            Yaml::Map(_) => self.lines.push(format!("{pad}- {{}}")),
            Yaml::List(_) => panic!("no list in a list"),
            Yaml::Text(_) | Yaml::Plain(_) => self.lines.push(format!("{pad}- {}", scalar(item))),
        }
    }
}

fn scalar(node: &Yaml) -> String {
    match node {
        Yaml::Plain(text) => text.clone(),
        Yaml::Text(text) if is_safe(text) => text.clone(),
        Yaml::Text(text) => format!("'{}'", text.replace('\'', "''")),
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
fn marked_nodes_have_their_lines() {
    let root = map([
        ("a", list([map([("x", text("1")), ("y", list([text("yes")]))]).marked(), text("b").marked()])),
        ("c", map([("d", text("slots.x > 5").marked())])),
    ]);
    let written = write(&root);
    assert_eq!(written.text, "a:\n  - x: '1'\n    y:\n      - 'yes'\n  - b\nc:\n  d: slots.x > 5\n");
    assert_eq!(written.marks, [(2, 4), (5, 5), (7, 7)]);
}
