//! Groups: captures, backreferences, lookaround, conditionals and inline flags.

use super::{
    PythonRegexError,
    translate::{PreviousItem, Translator, Width},
};

/// A capturing group, with its name if it has one.
pub(super) enum Group {
    /// The parser is inside it; no backreference may refer to it yet.
    Open(Option<String>),
    /// It is complete and matches this width.
    Closed(Option<String>, Width),
}

impl Translator<'_> {
    /// Parses a group after its opening parenthesis. `None` for a comment or inline flags, which match nothing.
    pub(super) fn group(&mut self, flags_allowed: bool) -> Result<Option<PreviousItem>, PythonRegexError> {
        let start = self.out.len();
        if !self.eat('?') {
            return self.capture(None, start).map(Some);
        }
        let Some(kind) = self.next() else { return Err(self.syntax_error("this group is not finished")) };
        match kind {
            'P' if self.eat('<') => {
                let name = self.name('>')?;
                self.capture(Some(name), start).map(Some)
            }
            'P' if self.eat('=') => {
                let name = self.name(')')?;
                let group = self.named(&name)?;
                Ok(Some(PreviousItem::Plain(start, self.reference(group)?)))
            }
            ':' => self.inner("(?:", start).map(Some),
            '>' => self.inner("(?>", start).map(Some),
            '=' => self.lookaround("(?=", false).map(Some),
            '!' => self.lookaround("(?!", false).map(Some),
            '<' if self.eat('=') => self.lookaround("(?<=", true).map(Some),
            '<' if self.eat('!') => self.lookaround("(?<!", true).map(Some),
            '#' => loop {
                match self.next() {
                    None => return Err(self.syntax_error("this comment is not closed")),
                    Some(')') => return Ok(None),
                    Some(_) => {}
                }
            },
            '(' => self.conditional(start).map(Some),
            c if c == '-' || c.is_ascii_alphabetic() => self.inline_flags(c, flags_allowed, start),
            _ => Err(self.syntax_error("Python has no group that begins like this")),
        }
    }

    fn name(&mut self, end: char) -> Result<String, PythonRegexError> {
        let mut name = String::new();
        loop {
            match self.next() {
                None => return Err(self.syntax_error("the name of a group is not finished")),
                Some(c) if c == end => break,
                Some(c) => name.push(c),
            }
        }
        let identifier =
            name.chars().enumerate().all(|(i, c)| c == '_' || c.is_alphabetic() || i > 0 && c.is_numeric());
        if name.is_empty() || !identifier { Err(self.syntax_error("this is not a name for a group")) } else { Ok(name) }
    }

    fn named(&self, wanted: &str) -> Result<usize, PythonRegexError> {
        let position = self.groups.iter().position(|group| match group {
            Group::Open(name) | Group::Closed(name, _) => name.as_deref() == Some(wanted),
        });
        position
            .map(|at| at + 1)
            .ok_or_else(|| self.syntax_error("there is no group of this name before this reference"))
    }

    /// Writes a backreference to a group, counted from 1.
    pub(super) fn reference(&mut self, group: usize) -> Result<Width, PythonRegexError> {
        match group.checked_sub(1).and_then(|at| self.groups.get(at)) {
            None => Err(self.syntax_error("there is no group of this number before this reference")),
            Some(Group::Open(_)) => Err(self.syntax_error("a group cannot refer to itself")),
            Some(&Group::Closed(_, width)) => {
                self.out.push_str(&format!("(?:\\{group})"));
                Ok(width)
            }
        }
    }

    fn capture(&mut self, name: Option<String>, start: usize) -> Result<PreviousItem, PythonRegexError> {
        if let Some(name) = &name
            && self.named(name).is_ok()
        {
            return Err(self.syntax_error("two groups have the same name"));
        }
        let at = self.groups.len();
        self.groups.push(Group::Open(name.clone()));
        let last = self.inner("(", start)?;
        if let (Some(group), PreviousItem::Plain(_, width)) = (self.groups.get_mut(at), last) {
            *group = Group::Closed(name, width);
        }
        Ok(last)
    }

    /// Parses the inside of a group and its closing parenthesis.
    fn inner(&mut self, opening: &str, start: usize) -> Result<PreviousItem, PythonRegexError> {
        self.out.push_str(opening);
        let width = self.alternatives(false)?;
        self.close()?;
        Ok(PreviousItem::Plain(start, width))
    }

    fn close(&mut self) -> Result<(), PythonRegexError> {
        if !self.eat(')') {
            return Err(self.syntax_error("a `(` is not closed"));
        }
        self.out.push(')');
        Ok(())
    }

    fn lookaround(&mut self, opening: &str, behind: bool) -> Result<PreviousItem, PythonRegexError> {
        let start = self.out.len();
        self.out.push_str(opening);
        let width = self.alternatives(false)?;
        self.close()?;
        if behind && width.min != width.max {
            return Err(self.syntax_error("a lookbehind must have a fixed width"));
        }
        Ok(PreviousItem::Plain(start, Width::ZERO))
    }

    /// Parses `(?(1)yes|no)` after its second parenthesis.
    fn conditional(&mut self, start: usize) -> Result<PreviousItem, PythonRegexError> {
        let mut condition = String::new();
        loop {
            match self.next() {
                None => return Err(self.syntax_error("this group is not finished")),
                Some(')') => break,
                Some(c) => condition.push(c),
            }
        }
        let group = match condition.parse::<usize>() {
            Ok(0) => return Err(self.syntax_error("groups count from 1")),
            Ok(number) => number,
            Err(_) => self.named(&condition)?,
        };
        self.highest_condition = self.highest_condition.max(group);
        self.out.push_str(&format!("(?({group})"));
        self.enter_level()?;
        let mut width = self.sequence(false)?;
        if self.eat('|') {
            self.out.push('|');
            width = width.or(self.sequence(false)?);
            if self.peek() == Some('|') {
                return Err(self.syntax_error("a conditional has at most two branches"));
            }
        } else {
            width = width.or(Width::ZERO);
        }
        self.depth -= 1;
        self.close()?;
        Ok(PreviousItem::Plain(start, width))
    }

    /// Parses `(?i)` or `(?i-s:…)` after its first letter or minus. `allowed`: global flags are allowed here.
    fn inline_flags(
        &mut self,
        first: char,
        allowed: bool,
        start: usize,
    ) -> Result<Option<PreviousItem>, PythonRegexError> {
        let before = self.flags;
        let mut now = before;
        let (mut on, mut any) = (true, false);
        let mut c = first;
        loop {
            match c {
                'i' => now.ignore_case = on,
                'm' => now.multi_line = on,
                's' => now.dot_all = on,
                'x' => now.verbose = on,
                'a' if on => now.ascii = true,
                'u' if on => now.ascii = false,
                '-' if on => (on, any) = (false, false),
                ')' if on && any && allowed => {
                    self.flags = now;
                    return Ok(None);
                }
                ')' if on && any => {
                    return Err(self.syntax_error("flags for the whole expression must be at its start"));
                }
                ':' if any => break,
                _ => return Err(self.syntax_error("this is not a flag")),
            }
            any |= c != '-';
            let Some(next) = self.next() else { return Err(self.syntax_error("this group is not finished")) };
            c = next;
        }
        self.flags = now;
        let last = self.inner(if now.ignore_case { "(?i:" } else { "(?-i:" }, start);
        self.flags = before;
        last.map(Some)
    }
}
