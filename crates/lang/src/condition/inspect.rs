//! Static inspection of a condition, for checkers. A template or a constant yields nothing.

use std::fmt::Write as _;

use super::{
    Condition,
    parser::quote,
    syntax::{Compare, Connective, NameRoot, Node},
};

/// A comparison of a slot with a literal, turned so that the slot is on the left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison<'a> {
    /// The slot's name, without `slots.`.
    pub slot: &'a str,
    /// The operator.
    pub operator: Operator,
    /// The literal.
    pub literal: Literal<'a>,
}

/// The operator of a [`Comparison`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `=`, `==`, `is`.
    Equal,
    /// `!=`, `is not`.
    NotEqual,
    /// `<`.
    Less,
    /// `<=`.
    LessOrEqual,
    /// `>`.
    Greater,
    /// `>=`.
    GreaterOrEqual,
    /// `slots.name contains literal`.
    Contains,
    /// `{literal …} contains slots.name`; one comparison for each literal.
    OneOf,
    /// `slots.name matches literal`.
    Matches,
}

impl Operator {
    /// Whether it compares by order, so that operands of different kinds are an error.
    pub fn is_order(self) -> bool {
        matches!(self, Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual)
    }

    fn mirrored(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            other => other,
        }
    }
}

impl From<Compare> for Operator {
    fn from(compare: Compare) -> Self {
        match compare {
            Compare::Equal => Self::Equal,
            Compare::NotEqual => Self::NotEqual,
            Compare::Less => Self::Less,
            Compare::LessOrEqual => Self::LessOrEqual,
            Compare::Greater => Self::Greater,
            Compare::GreaterOrEqual => Self::GreaterOrEqual,
        }
    }
}

/// A value written in the condition itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Literal<'a> {
    /// A quoted string, or the regular expression after `matches`.
    Text(&'a str),
    /// A number.
    Number(f64),
    /// `true` or `false`.
    Bool(bool),
    /// `null`.
    Null,
    /// `undefined`.
    Undefined,
    /// `empty`.
    Empty,
}

impl Condition {
    /// The names of the slots it reads, each once, in order of appearance, without `slots.`.
    pub fn slots(&self) -> impl Iterator<Item = &str> {
        self.names(|root, text| if root == NameRoot::InSlots { text.split('.').nth(1) } else { None })
    }

    /// The properties of `context` it reads, each once, without `context.`.
    pub fn context_properties(&self) -> impl Iterator<Item = &str> {
        self.names(|root, text| if root == NameRoot::InContext { text.split('.').nth(1) } else { None })
    }

    /// Names that are always undefined, because they begin with neither `slots` nor `context`.
    pub fn bare_names(&self) -> impl Iterator<Item = &str> {
        self.names(|root, text| if root == NameRoot::Bare { Some(text) } else { None })
    }

    /// Whether it mixes `and` and `or` in one chain without parentheses. Such a chain groups to the right, which is unusual;
    /// [`Condition::normalized`] shows how.
    pub fn mixes_and_or_without_parentheses(&self) -> bool {
        let mut mixed = false;
        self.visit(&mut |node| {
            if let Node::Chain { operands, .. } = node {
                let has = |wanted| operands.iter().any(|(_, connective)| *connective == wanted);
                mixed |= has(Connective::And) && has(Connective::Or);
            }
        });
        mixed
    }

    /// All comparisons of a slot with a literal, in order of appearance.
    pub fn comparisons(&self) -> impl Iterator<Item = Comparison<'_>> {
        let mut found = Vec::new();
        self.visit(&mut |node| compare(node, &mut found));
        found.into_iter()
    }

    /// Comparisons of one slot with another by `=` or by order.
    pub fn slot_pairs(&self) -> impl Iterator<Item = (&str, Operator, &str)> {
        let mut found = Vec::new();
        self.visit(&mut |node| {
            if let Node::Compare { left, operator, right } = node
                && let (Some(left), Some(right)) = (slot_of(left), slot_of(right))
            {
                found.push((left, Operator::from(*operator), right));
            }
        });
        found.into_iter()
    }

    /// Slots whose value matters and not only whether it is set: those compared with a literal other than `null`, `undefined` and
    /// `empty`.
    pub fn compared_slots(&self) -> impl Iterator<Item = &str> {
        let mut found = Vec::new();
        for comparison in self.comparisons() {
            let is_presence = matches!(comparison.literal, Literal::Null | Literal::Undefined | Literal::Empty);
            if !is_presence && !found.contains(&comparison.slot) {
                found.push(comparison.slot);
            }
        }
        found.into_iter()
    }

    /// The condition in normal form: one spelling for each operator, and parentheses where `and` meets `or`. `None` for a template.
    pub fn normalized(&self) -> Option<String> {
        let Some(node) = self.node() else { return self.as_constant().map(|holds| holds.to_string()) };
        let mut out = String::new();
        write_node(node, &mut out);
        Some(out)
    }

    fn visit<'a>(&'a self, visitor: &mut dyn FnMut(&'a Node)) {
        if let Some(node) = self.node() {
            walk(node, visitor);
        }
    }

    fn names<'a>(&'a self, pick: impl Fn(NameRoot, &'a str) -> Option<&'a str>) -> std::vec::IntoIter<&'a str> {
        let mut names = Vec::new();
        self.visit(&mut |node| {
            if let Node::Name(name) = node
                && let Some(picked) = pick(name.root, &name.text)
                && !names.contains(&picked)
            {
                names.push(picked);
            }
        });
        names.into_iter()
    }
}

pub(super) fn walk<'a>(node: &'a Node, visitor: &mut dyn FnMut(&'a Node)) {
    visitor(node);
    match node {
        Node::Chain { operands, last } => {
            for (operand, _) in operands {
                walk(operand, visitor);
            }
            walk(last, visitor);
        }
        Node::Not(inner) | Node::Matches { subject: inner, .. } => walk(inner, visitor),
        Node::Compare { left: a, right: b, .. } | Node::Contains { container: a, item: b } => {
            walk(a, visitor);
            walk(b, visitor);
        }
        Node::Set(items) => {
            for item in items {
                walk(item, visitor);
            }
        }
        _ => {}
    }
}

fn compare<'a>(node: &'a Node, found: &mut Vec<Comparison<'a>>) {
    let mut add = |slot: &'a Node, operator: Operator, other: &'a Node| {
        if let (Some(slot), Some(literal)) = (slot_of(slot), literal_of(other)) {
            found.push(Comparison { slot, operator, literal });
        }
    };
    match node {
        Node::Compare { left, operator, right } => {
            let operator = Operator::from(*operator);
            add(left, operator, right);
            add(right, operator.mirrored(), left);
        }
        Node::Contains { container, item } => {
            if let Node::Set(items) = &**container {
                for literal in items {
                    add(item, Operator::OneOf, literal);
                }
            }
            add(container, Operator::Contains, item);
        }
        Node::Matches { subject, operand } => {
            if let Some(slot) = slot_of(subject) {
                let literal = Literal::Text(operand.regex.source());
                found.push(Comparison { slot, operator: Operator::Matches, literal });
            }
        }
        _ => {}
    }
}

/// The name of the slot, if the node is a whole slot and not a part of one.
fn slot_of(node: &Node) -> Option<&str> {
    match node {
        Node::Name(name) if name.root == NameRoot::InSlots => {
            let mut path = name.path();
            path.next().filter(|_| path.next().is_none())
        }
        _ => None,
    }
}

pub(super) fn literal_of(node: &Node) -> Option<Literal<'_>> {
    Some(match node {
        Node::Text(text) => Literal::Text(text),
        Node::Number(number) => Literal::Number(*number),
        Node::Bool(b) => Literal::Bool(*b),
        Node::Null => Literal::Null,
        Node::Undefined => Literal::Undefined,
        Node::Empty => Literal::Empty,
        _ => return None,
    })
}

fn write_node(node: &Node, out: &mut String) {
    match node {
        Node::Chain { operands, last } => write_chain(operands, last, out),
        Node::Not(inner) => {
            out.push_str("not ");
            write_operand(inner, out);
        }
        Node::Compare { left, operator, right } => {
            write_factor(left, out);
            // Writing into a String cannot fail.
            let _ = write!(out, " {} ", operator.sign());
            write_factor(right, out);
        }
        Node::Contains { container, item } => {
            write_factor(container, out);
            out.push_str(" contains ");
            write_factor(item, out);
        }
        Node::Matches { subject, operand } => {
            write_factor(subject, out);
            let _ = write!(out, " matches {}", operand.spelling);
        }
        Node::Name(name) => out.push_str(&name.text),
        Node::Text(text) => out.push_str(&quote(text)),
        Node::Number(number) if number.is_infinite() => {
            // The literal was too large for a float, so its spelling must be too.
            out.push_str(if *number < 0.0 { "-1" } else { "1" });
            out.push_str(&"0".repeat(400));
        }
        Node::Number(number) => _ = write!(out, "{number}"),
        Node::Bool(b) => _ = write!(out, "{b}"),
        Node::Null => out.push_str("null"),
        Node::Undefined => out.push_str("undefined"),
        Node::Empty => out.push_str("empty"),
        Node::Set(items) => {
            out.push('{');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { " " } else { "" });
                write_factor(item, out);
            }
            out.push('}');
        }
        Node::RegexItem(text) => _ = write!(out, "(null matches {})", quote(text)),
    }
}

/// Opens a parenthesis wherever the connective changes.
fn write_chain(operands: &[(Node, Connective)], last: &Node, out: &mut String) {
    let mut open = 0;
    let mut before = None;
    for (operand, connective) in operands {
        if before.is_some_and(|before| before != *connective) {
            out.push('(');
            open += 1;
        }
        before = Some(*connective);
        write_operand(operand, out);
        out.push_str(if *connective == Connective::And { " and " } else { " or " });
    }
    write_operand(last, out);
    out.push_str(&")".repeat(open));
}

fn write_operand(node: &Node, out: &mut String) {
    if matches!(node, Node::Chain { .. }) { in_parentheses(node, out) } else { write_node(node, out) }
}

fn write_factor(node: &Node, out: &mut String) {
    match node {
        Node::Chain { .. } | Node::Not(_) | Node::Compare { .. } | Node::Contains { .. } | Node::Matches { .. } => {
            in_parentheses(node, out);
        }
        _ => write_node(node, out),
    }
}

fn in_parentheses(node: &Node, out: &mut String) {
    out.push('(');
    write_node(node, out);
    out.push(')');
}
