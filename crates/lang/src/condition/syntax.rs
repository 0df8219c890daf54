//! The syntax tree of a condition.

use crate::regex_dialect::PythonRegex;

/// A node. The tree is at most [`CONDITION_DEPTH`](crate::limits::CONDITION_DEPTH) deep.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    /// `a and b or c` as a flat list. Because it groups to the right, evaluation from left to right stops at a false operand before
    /// `and` and at a true operand before `or`, with that result.
    Chain {
        operands: Box<[(Node, Connective)]>,
        last: Box<Node>,
    },
    Not(Box<Node>),
    Compare {
        left: Box<Node>,
        operator: Compare,
        right: Box<Node>,
    },
    Contains {
        container: Box<Node>,
        item: Box<Node>,
    },
    Matches {
        subject: Box<Node>,
        operand: RegexOperand,
    },
    Name(Name),
    Text(Box<str>),
    Number(f64),
    Bool(bool),
    Null,
    Undefined,
    Empty,
    Set(Box<[Node]>),
    /// An invalid regular expression in an item of a set: the grammar allows it, evaluating the set is an error.
    RegexItem(Box<str>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connective {
    And,
    Or,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compare {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Compare {
    pub(super) fn sign(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }
}

/// The right side of `matches`: the compiled expression and its spelling with quotes or slashes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RegexOperand {
    pub(super) regex: PythonRegex,
    pub(super) spelling: Box<str>,
}

/// An unquoted word, which is looked up in the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) text: Box<str>,
    pub(super) root: NameRoot,
}

/// Where the lookup of a name starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameRoot {
    /// `slots` itself.
    Slots,
    /// `slots.…`.
    InSlots,
    /// `context` itself.
    Context,
    /// `context.…`.
    InContext,
    /// Any other name; it is undefined.
    Bare,
}

impl Name {
    pub(super) fn new(text: &str) -> Self {
        let root = match text.split_once('.') {
            None if text == "slots" => NameRoot::Slots,
            None if text == "context" => NameRoot::Context,
            Some(("slots", _)) => NameRoot::InSlots,
            Some(("context", _)) => NameRoot::InContext,
            _ => NameRoot::Bare,
        };
        Self { text: text.into(), root }
    }

    /// The parts of the name after its root.
    pub(super) fn path(&self) -> std::str::Split<'_, char> {
        let mut parts = self.text.split('.');
        parts.next();
        parts
    }
}
