//! The tree of a condition.

use crate::pattern::PythonRegex;

/// One node. The tree is at most [`CONDITION_DEPTH`](crate::limits::CONDITION_DEPTH) deep.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    /// `a and b or c`, flat. Because it groups to the right, evaluation from left to right may stop at a false operand before
    /// `and` and at a true one before `or`, with that as the answer.
    Chain {
        links: Box<[(Node, Link)]>,
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
        pattern: Search,
    },
    Name(Name),
    Text(Box<str>),
    Number(f64),
    Bool(bool),
    Null,
    Undefined,
    Empty,
    Set(Box<[Node]>),
    /// An expression as item of a set: allowed by the grammar, an exception when the set is evaluated.
    Valueless(Box<str>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
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
pub(super) struct Search {
    pub(super) pattern: PythonRegex,
    pub(super) spelling: Box<str>,
}

/// A word that is looked up in the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) text: Box<str>,
    pub(super) root: Root,
}

/// Where the lookup of a name begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// `slots` itself.
    Slots,
    /// `slots.…`.
    InSlots,
    /// `context` itself.
    Context,
    /// `context.…`.
    InContext,
    /// Anything else is undefined.
    Bare,
}

impl Name {
    pub(super) fn new(text: &str) -> Self {
        let root = match text.split_once('.') {
            None if text == "slots" => Root::Slots,
            None if text == "context" => Root::Context,
            Some(("slots", _)) => Root::InSlots,
            Some(("context", _)) => Root::InContext,
            _ => Root::Bare,
        };
        Self { text: text.into(), root }
    }

    /// The parts after the root.
    pub(super) fn path(&self) -> std::str::Split<'_, char> {
        let mut parts = self.text.split('.');
        parts.next();
        parts
    }
}
