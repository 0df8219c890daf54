//! The parser of conditions: tokens to syntax tree.
//!
//! ```text
//! chain  := unary (("and" | "or") unary)*          equal precedence, groups to the right
//! unary  := "not" unary | term
//! term   := factor [operator factor]
//! factor := name | string | number | constant | "(" chain ")" | "{" factor* "}"
//! ```

use super::{
    ConditionError,
    lexer::{self, Kind, Token},
    syntax::{Compare, Connective, Name, Node, RegexOperand},
};
use crate::{
    limits::CONDITION_DEPTH,
    regex_dialect::{Flags, PythonRegex, PythonRegexError},
};

/// Parses a whole condition.
pub(super) fn parse(text: &str) -> Result<Node, ConditionError> {
    let tokens = lexer::tokens(text)?;
    let mut parser = Parser { text, tokens: &tokens, next: 0, depth: 0, in_sets: 0 };
    let node = parser.chain()?;
    if parser.next < tokens.len() {
        return Err(parser.unexpected("`and`, `or` or the end"));
    }
    let operand_only = match &node {
        Node::Undefined => Some("undefined"),
        Node::Empty => Some("empty"),
        Node::Set(items) if items.is_empty() => Some("{}"),
        _ => None,
    };
    match operand_only {
        Some(value) => Err(ConditionError::new(
            0,
            format!("`{value}` alone is not a condition"),
            format!("Compare something with it: `slots.name is {value}`."),
        )),
        None => Ok(node),
    }
}

struct Parser<'t> {
    text: &'t str,
    tokens: &'t [Token<'t>],
    next: usize,
    depth: usize,
    /// How many sets are open. Expressions inside a set are not checked further, because they are errors when evaluated.
    in_sets: usize,
}

impl<'t> Parser<'t> {
    fn peek(&self) -> Option<Kind<'t>> {
        self.tokens.get(self.next).map(|token| token.kind)
    }

    fn eat(&mut self, wanted: Kind<'_>) -> bool {
        let found = self.peek() == Some(wanted);
        self.next += usize::from(found);
        found
    }

    fn offset_of(&self, token: usize) -> usize {
        lexer::char_offset(self.text, self.tokens.get(token).map_or(self.text.len(), |token| token.at))
    }

    fn unexpected(&self, wanted: &str) -> ConditionError {
        let offset = self.offset_of(self.next);
        let Some(token) = self.tokens.get(self.next) else {
            return ConditionError::new(
                offset,
                format!("the condition ends where {wanted} was expected"),
                "Complete the condition.",
            );
        };
        let end = self.tokens.get(self.next + 1).map_or(self.text.len(), |next| next.at);
        let found: String = self.text.get(token.at..end).unwrap_or_default().trim_end().chars().take(40).collect();
        let help = match token.kind {
            Kind::Word(word) if word.eq_ignore_ascii_case("in") => lexer::ONE_OF_SEVERAL,
            Kind::Not => "For inequality write `is not` or `!=`.",
            Kind::Word(_) | Kind::Quoted(_) => {
                "Put strings of several words in quotes, and join comparisons with `and` or `or`."
            }
            Kind::Number(_) => "Put strings that begin with a digit in quotes.",
            Kind::Regex(_) => "A regular expression in slashes is allowed only after `matches`.",
            Kind::CloseSet | Kind::Close => "Check the parentheses and braces.",
            _ => "Join comparisons with `and` or `or`, and put a comparison of a comparison in parentheses.",
        };
        ConditionError::new(offset, format!("{wanted} was expected, not `{found}`"), help)
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, ConditionError>) -> Result<T, ConditionError> {
        if self.depth >= CONDITION_DEPTH {
            let message = format!("parentheses, sets and `not` are nested more than {CONDITION_DEPTH} deep");
            let offset = self.offset_of(self.next);
            return Err(ConditionError::new(offset, message, "Split the condition over several links."));
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    fn chain(&mut self) -> Result<Node, ConditionError> {
        let mut operands = Vec::new();
        loop {
            let operand = self.unary()?;
            let connective = match self.peek() {
                Some(Kind::And) => Connective::And,
                Some(Kind::Or) => Connective::Or,
                _ if operands.is_empty() => return Ok(operand),
                _ => return Ok(Node::Chain { operands: operands.into(), last: Box::new(operand) }),
            };
            self.next += 1;
            operands.push((operand, connective));
        }
    }

    fn unary(&mut self) -> Result<Node, ConditionError> {
        if self.eat(Kind::Not) {
            return self.nested(|parser| Ok(Node::Not(Box::new(parser.unary()?))));
        }
        self.term()
    }

    fn term(&mut self) -> Result<Node, ConditionError> {
        let left = Box::new(self.factor()?);
        let operator = match self.peek() {
            Some(Kind::Equal) => Compare::Equal,
            Some(Kind::NotEqual) => Compare::NotEqual,
            Some(Kind::Less) => Compare::Less,
            Some(Kind::LessOrEqual) => Compare::LessOrEqual,
            Some(Kind::Greater) => Compare::Greater,
            Some(Kind::GreaterOrEqual) => Compare::GreaterOrEqual,
            Some(Kind::Is) => {
                self.next += 1;
                let operator = if self.eat(Kind::Not) { Compare::NotEqual } else { Compare::Equal };
                return Ok(Node::Compare { left, operator, right: Box::new(self.factor()?) });
            }
            Some(Kind::Contains) => return self.contains(left),
            Some(Kind::Matches) => return self.matches(left),
            _ => return Ok(*left),
        };
        self.next += 1;
        Ok(Node::Compare { left, operator, right: Box::new(self.factor()?) })
    }

    fn contains(&mut self, container: Box<Node>) -> Result<Node, ConditionError> {
        self.next += 1;
        let offset = self.offset_of(self.next);
        let item = Box::new(self.factor()?);
        let is_item = matches!(*item, Node::Name(_) | Node::Text(_) | Node::Number(_) | Node::Bool(_) | Node::Null);
        if is_item || self.in_sets > 0 {
            return Ok(Node::Contains { container, item });
        }
        Err(ConditionError::new(
            offset,
            "the right side of `contains` must be a name, a string, a number, true, false or null",
            "Write the container on the left: `{\"a\" \"b\"} contains slots.name`.",
        ))
    }

    fn matches(&mut self, subject: Box<Node>) -> Result<Node, ConditionError> {
        self.next += 1;
        let at = self.next;
        let (text, flags) = match self.regex()? {
            Some(found) => found,
            None => {
                return Err(ConditionError::new(
                    self.offset_of(at),
                    "the right side of `matches` must be a regular expression",
                    "Write it in quotes or as `/…/i`.",
                ));
            }
        };
        let end = self.tokens.get(self.next).map_or(self.text.len(), |token| token.at);
        match PythonRegex::new(&text, flags) {
            Ok(regex) => {
                let start = self.tokens.get(at).map_or(end, |token| token.at);
                let written = self.text.get(start..end).unwrap_or_default();
                let spelling = if written.starts_with('/') { in_slashes(&text, flags) } else { quote(&text) };
                Ok(Node::Matches { subject, operand: RegexOperand { regex, spelling } })
            }
            Err(_) if self.in_sets > 0 => Ok(Node::RegexItem(text.into())),
            Err(error) => {
                let inner = if let PythonRegexError::Syntax { offset, .. } = error { offset + 1 } else { 0 };
                let help = "Use the syntax of Python's `re` module.";
                Err(ConditionError::new(self.offset_of(at) + inner, error.to_string(), help))
            }
        }
    }

    /// The regular expression and flags after `matches`. As in pypred, a word needs no quotes here, the expression may be in any
    /// number of parentheses, and all quotes at both ends are stripped.
    fn regex(&mut self) -> Result<Option<(String, Flags)>, ConditionError> {
        let strip = |text: &str| text.trim_matches(['"', '\'']).to_owned();
        let found = match self.peek() {
            Some(Kind::Open) => {
                self.next += 1;
                let found = self.nested(Self::regex)?;
                if found.is_some() && !self.eat(Kind::Close) {
                    return Err(self.unexpected("`)`"));
                }
                return Ok(found);
            }
            Some(Kind::Word(word)) => (word.to_owned(), Flags::default()),
            Some(Kind::Quoted(quoted)) => (strip(quoted), Flags::default()),
            Some(Kind::Regex(written)) => {
                let (inside, letters) = written.get(1..).and_then(|rest| rest.rsplit_once('/')).unwrap_or_default();
                (inside.replace("\\/", "/"), Flags::from_letters(letters).unwrap_or_default())
            }
            Some(_) => return Ok(None),
            None => return Err(self.unexpected("a regular expression")),
        };
        self.next += 1;
        Ok(Some(found))
    }

    fn factor(&mut self) -> Result<Node, ConditionError> {
        let Some(kind) = self.peek() else { return Err(self.unexpected("a value")) };
        let node = match kind {
            Kind::Open => {
                self.next += 1;
                let node = self.nested(Self::chain)?;
                if !self.eat(Kind::Close) {
                    return Err(self.unexpected("`)`"));
                }
                return Ok(node);
            }
            Kind::OpenSet => {
                self.next += 1;
                self.in_sets += 1;
                let set = self.nested(Self::set)?;
                self.in_sets -= 1;
                return Ok(set);
            }
            Kind::Word(word) => Node::Name(Name::new(word)),
            Kind::Quoted(quoted) => Node::Text(quoted.get(1..quoted.len() - 1).unwrap_or_default().into()),
            Kind::Number(number) => Node::Number(number),
            Kind::True => Node::Bool(true),
            Kind::False => Node::Bool(false),
            Kind::Undefined => Node::Undefined,
            Kind::Null => Node::Null,
            Kind::Empty => Node::Empty,
            _ => return Err(self.unexpected("a value")),
        };
        self.next += 1;
        Ok(node)
    }

    fn set(&mut self) -> Result<Node, ConditionError> {
        let mut items = Vec::new();
        while !self.eat(Kind::CloseSet) {
            if self.peek().is_none() {
                return Err(self.unexpected("`}`"));
            }
            let offset = self.offset_of(self.next);
            match self.factor()? {
                Node::Set(_) => {
                    let help = "List all items in one pair of braces.";
                    return Err(ConditionError::new(offset, "a set cannot contain a set", help));
                }
                item => items.push(item),
            }
        }
        Ok(Node::Set(items.into()))
    }
}

/// A string in the kind of quotes that it does not contain. It never contains both, because quoted strings have no escapes.
pub(super) fn quote(text: &str) -> Box<str> {
    if text.contains('"') { format!("'{text}'").into() } else { format!("\"{text}\"").into() }
}

fn in_slashes(text: &str, flags: Flags) -> Box<str> {
    let mut spelling = format!("/{}/", text.replace('/', "\\/"));
    for (on, letter) in [(flags.ignore_case, 'i'), (flags.multi_line, 'm'), (flags.dot_all, 's')] {
        if on {
            spelling.push(letter);
        }
    }
    spelling.into()
}
