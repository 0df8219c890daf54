//! Groups: captures, references to them, looks, choices and switches.

use super::{
    PythonRegexError,
    dialect::{Last, Translator, Width},
};

/// A capturing group, as far as it is read.
pub(super) enum Group {
    /// Its end is not reached; nothing may refer to it yet.
    Open(Option<String>),
    /// Complete, with the width of what it captures.
    Closed(Option<String>, Width),
}

impl Translator<'_> {
    /// A group; the parenthesis is read. `None` where nothing that takes part in matching was written.
    pub(super) fn group(&mut self, switches_allowed: bool) -> Result<Option<Last>, PythonRegexError> {
        let start = self.out.len();
        if !self.eat('?') {
            return self.capture(None, start).map(Some);
        }
        let Some(kind) = self.next() else { return Err(self.wrong("this group is not finished")) };
        match kind {
            'P' if self.eat('<') => {
                let name = self.name('>')?;
                self.capture(Some(name), start).map(Some)
            }
            'P' if self.eat('=') => {
                let name = self.name(')')?;
                let group = self.named(&name)?;
                Ok(Some(Last::Plain(start, self.reference(group)?)))
            }
            ':' => self.inner("(?:", start).map(Some),
            '>' => self.inner("(?>", start).map(Some),
            '=' => self.look("(?=", false).map(Some),
            '!' => self.look("(?!", false).map(Some),
            '<' if self.eat('=') => self.look("(?<=", true).map(Some),
            '<' if self.eat('!') => self.look("(?<!", true).map(Some),
            '#' => loop {
                match self.next() {
                    None => return Err(self.wrong("this comment is not closed")),
                    Some(')') => return Ok(None),
                    Some(_) => {}
                }
            },
            '(' => self.choice(start).map(Some),
            c if c == '-' || c.is_ascii_alphabetic() => self.switches(c, switches_allowed, start),
            _ => Err(self.wrong("Python has no group that begins like this")),
        }
    }

    fn name(&mut self, end: char) -> Result<String, PythonRegexError> {
        let mut name = String::new();
        loop {
            match self.next() {
                None => return Err(self.wrong("the name of a group is not finished")),
                Some(c) if c == end => break,
                Some(c) => name.push(c),
            }
        }
        let identifier =
            name.chars().enumerate().all(|(i, c)| c == '_' || c.is_alphabetic() || i > 0 && c.is_numeric());
        if name.is_empty() || !identifier { Err(self.wrong("this is not a name for a group")) } else { Ok(name) }
    }

    fn named(&self, wanted: &str) -> Result<usize, PythonRegexError> {
        let position = self.groups.iter().position(|group| match group {
            Group::Open(name) | Group::Closed(name, _) => name.as_deref() == Some(wanted),
        });
        position.map(|at| at + 1).ok_or_else(|| self.wrong("no group of this name stands before"))
    }

    /// Writes a reference to a group, counted from 1.
    pub(super) fn reference(&mut self, group: usize) -> Result<Width, PythonRegexError> {
        match group.checked_sub(1).and_then(|at| self.groups.get(at)) {
            None => Err(self.wrong("no group of this number stands before")),
            Some(Group::Open(_)) => Err(self.wrong("a group cannot refer to itself")),
            Some(&Group::Closed(_, width)) => {
                self.out.push_str(&format!("(?:\\{group})"));
                Ok(width)
            }
        }
    }

    fn capture(&mut self, name: Option<String>, start: usize) -> Result<Last, PythonRegexError> {
        if let Some(name) = &name
            && self.named(name).is_ok()
        {
            return Err(self.wrong("two groups have the same name"));
        }
        let at = self.groups.len();
        self.groups.push(Group::Open(name.clone()));
        let last = self.inner("(", start)?;
        if let (Some(group), Last::Plain(_, width)) = (self.groups.get_mut(at), last) {
            *group = Group::Closed(name, width);
        }
        Ok(last)
    }

    /// The inside of a group and its end. Switches set inside do not leave it.
    fn inner(&mut self, opening: &str, start: usize) -> Result<Last, PythonRegexError> {
        self.out.push_str(opening);
        let width = self.alternatives(false)?;
        self.close()?;
        Ok(Last::Plain(start, width))
    }

    fn close(&mut self) -> Result<(), PythonRegexError> {
        if !self.eat(')') {
            return Err(self.wrong("a `(` is not closed"));
        }
        self.out.push(')');
        Ok(())
    }

    fn look(&mut self, opening: &str, behind: bool) -> Result<Last, PythonRegexError> {
        let start = self.out.len();
        self.out.push_str(opening);
        let width = self.alternatives(false)?;
        self.close()?;
        if behind && width.min != width.max {
            return Err(self.wrong("a lookbehind must have a fixed width"));
        }
        Ok(Last::Plain(start, Width::ZERO))
    }

    /// `(?(1)yes|no)`; the second parenthesis is read.
    fn choice(&mut self, start: usize) -> Result<Last, PythonRegexError> {
        let mut asked = String::new();
        loop {
            match self.next() {
                None => return Err(self.wrong("this group is not finished")),
                Some(')') => break,
                Some(c) => asked.push(c),
            }
        }
        let group = match asked.parse::<usize>() {
            Ok(0) => return Err(self.wrong("groups count from 1")),
            Ok(number) => number,
            Err(_) => self.named(&asked)?,
        };
        self.highest_asked = self.highest_asked.max(group);
        self.out.push_str(&format!("(?({group})"));
        self.deeper()?;
        let mut width = self.sequence(false)?;
        if self.eat('|') {
            self.out.push('|');
            width = width.or(self.sequence(false)?);
            if self.peek() == Some('|') {
                return Err(self.wrong("a choice has two branches at most"));
            }
        } else {
            width = width.or(Width::ZERO);
        }
        self.depth -= 1;
        self.close()?;
        Ok(Last::Plain(start, width))
    }

    /// `(?i)` or `(?i-s:…)`; the first letter or the minus is read.
    fn switches(&mut self, first: char, allowed: bool, start: usize) -> Result<Option<Last>, PythonRegexError> {
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
                ')' if on && any => return Err(self.wrong("switches for the whole expression must stand at its start")),
                ':' if any => break,
                _ => return Err(self.wrong("this is not a switch")),
            }
            any |= c != '-';
            let Some(next) = self.next() else { return Err(self.wrong("this group is not finished")) };
            c = next;
        }
        self.flags = now;
        let last = self.inner(if now.ignore_case { "(?i:" } else { "(?-i:" }, start);
        self.flags = before;
        last.map(Some)
    }
}
