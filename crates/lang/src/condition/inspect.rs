//! What a checker may ask about a condition without evaluating it. A template or a constant tells nothing.

use std::fmt::Write as _;

use super::{
    Condition,
    parser::quote,
    syntax::{Compare, Link, Node, Root},
};

/// A slot against a literal, turned so that the slot stands on the left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison<'a> {
    /// The slot's name, without `slots.`.
    pub slot: &'a str,
    /// How it is compared.
    pub operator: Operator,
    /// With what.
    pub literal: Literal<'a>,
}

/// How a slot is compared with a literal.
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
    /// Whether it needs an order, so that mixed kinds are an exception.
    pub fn is_order(self) -> bool {
        matches!(self, Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual)
    }

    fn turned(self) -> Self {
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

/// A value that stands in the condition itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Literal<'a> {
    /// A quoted text, or the expression after `matches`.
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
    /// The slots it reads, each once, in order of appearance, without `slots.`.
    pub fn slots(&self) -> impl Iterator<Item = &str> {
        self.names(|root, text| if root == Root::InSlots { text.split('.').nth(1) } else { None })
    }

    /// The properties of `context` it reads, each once, without `context.`.
    pub fn context_properties(&self) -> impl Iterator<Item = &str> {
        self.names(|root, text| if root == Root::InContext { text.split('.').nth(1) } else { None })
    }

    /// Words that are looked up but can never be found, because they begin with neither `slots` nor `context`.
    pub fn bare_names(&self) -> impl Iterator<Item = &str> {
        self.names(|root, text| if root == Root::Bare { Some(text) } else { None })
    }

    /// Whether somewhere `and` and `or` stand side by side, which groups to the right, against habit.
    /// [`Condition::reading`] shows how.
    pub fn mixes_and_or_without_parentheses(&self) -> bool {
        let mut mixed = false;
        self.visit(&mut |node| {
            if let Node::Chain { links, .. } = node {
                let has = |wanted| links.iter().any(|(_, link)| *link == wanted);
                mixed |= has(Link::And) && has(Link::Or);
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

    /// Slots whose value counts, not just whether there is one: those that are compared with a literal other than null, matched,
    /// or looked through.
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

    /// The condition as it is understood: comparisons spelled plainly, parentheses where `and` meets `or`. `None` for a template.
    pub fn reading(&self) -> Option<String> {
        let Some(node) = self.node() else { return self.as_constant().map(|holds| holds.to_string()) };
        let mut out = String::new();
        write_node(node, &mut out);
        Some(out)
    }

    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Node)) {
        if let Some(node) = self.node() {
            walk(node, see);
        }
    }

    fn names<'a>(&'a self, pick: impl Fn(Root, &'a str) -> Option<&'a str>) -> std::vec::IntoIter<&'a str> {
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

pub(super) fn walk<'a>(node: &'a Node, see: &mut dyn FnMut(&'a Node)) {
    see(node);
    match node {
        Node::Chain { links, last } => {
            for (operand, _) in links {
                walk(operand, see);
            }
            walk(last, see);
        }
        Node::Not(inner) | Node::Matches { subject: inner, .. } => walk(inner, see),
        Node::Compare { left: a, right: b, .. } | Node::Contains { container: a, item: b } => {
            walk(a, see);
            walk(b, see);
        }
        Node::Set(items) => {
            for item in items {
                walk(item, see);
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
            add(right, operator.turned(), left);
        }
        Node::Contains { container, item } => {
            if let Node::Set(items) = &**container {
                for one in items {
                    add(item, Operator::OneOf, one);
                }
            }
            add(container, Operator::Contains, item);
        }
        Node::Matches { subject, pattern } => {
            if let Some(slot) = slot_of(subject) {
                let literal = Literal::Text(pattern.pattern.source());
                found.push(Comparison { slot, operator: Operator::Matches, literal });
            }
        }
        _ => {}
    }
}

/// The slot, if the node is a slot as a whole and not a part of one.
fn slot_of(node: &Node) -> Option<&str> {
    match node {
        Node::Name(name) if name.root == Root::InSlots => {
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
        Node::Chain { links, last } => write_chain(links, last, out),
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
        Node::Matches { subject, pattern } => {
            write_factor(subject, out);
            let _ = write!(out, " matches {}", pattern.spelling);
        }
        Node::Name(name) => out.push_str(&name.text),
        Node::Text(text) => out.push_str(&quote(text)),
        Node::Number(number) if number.is_infinite() => {
            // Only a literal too large for a float comes to this; so must its spelling.
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
        Node::Valueless(text) => _ = write!(out, "(null matches {})", quote(text)),
    }
}

/// The rest of a chain stands in parentheses from where the link changes.
fn write_chain(links: &[(Node, Link)], last: &Node, out: &mut String) {
    let mut open = 0;
    let mut before = None;
    for (operand, link) in links {
        if before.is_some_and(|before| before != *link) {
            out.push('(');
            open += 1;
        }
        before = Some(*link);
        write_operand(operand, out);
        out.push_str(if *link == Link::And { " and " } else { " or " });
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
