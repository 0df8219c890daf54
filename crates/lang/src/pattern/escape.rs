//! Escapes and character classes: the parts of Python's dialect whose letters mean something else to our matchers.

use std::fmt::Write as _;

use super::{
    PythonRegexError,
    dialect::{Translator, Width},
};

/// One escape or class member, read.
enum Member {
    One(char),
    /// A set such as `\d`, already written in the matcher's words, to stand inside brackets.
    Many(String),
}

/// Writes one literal character so that no matcher sees a meaning in it.
pub(super) fn push_literal(out: &mut String, c: char) {
    if c.is_ascii() && !c.is_ascii_alphanumeric() {
        // Writing into a String cannot fail.
        let _ = write!(out, "\\x{{{:X}}}", u32::from(c));
    } else {
        out.push(c);
    }
}

/// The inside of brackets for `\d \w \s` and their opposites. Python's word characters are letters, numbers and `_`, without
/// combining marks; its blanks include the four separators `\x1c` to `\x1f`.
fn category(letter: char, ascii: bool) -> Option<String> {
    let inside = match (letter.to_ascii_lowercase(), ascii) {
        ('d', false) => r"\p{Nd}",
        ('d', true) => "0-9",
        ('w', false) => r"\p{L}\p{N}_",
        ('w', true) => "0-9A-Za-z_",
        ('s', false) => r"\s\x{1C}-\x{1F}",
        ('s', true) => r"\x{9}-\x{D}\x{20}",
        _ => return None,
    };
    Some(if letter.is_ascii_uppercase() { format!("[^{inside}]") } else { inside.to_owned() })
}

fn control(letter: char) -> Option<char> {
    Some(match letter {
        'a' => '\x07',
        'f' => '\x0c',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\x0b',
        _ => return None,
    })
}

impl Translator<'_> {
    /// An escape outside brackets; the backslash is read.
    pub(super) fn escape(&mut self) -> Result<Escaped, PythonRegexError> {
        let Some(letter) = self.next() else { return Err(self.wrong("a backslash stands at the end")) };
        if let Some(inside) = category(letter, self.flags.ascii) {
            let _ = write!(self.out, "[{inside}]");
            return Ok(Escaped::Plain(Width::ONE));
        }
        let anchor = match letter {
            'A' => Some(r"\A"),
            'Z' => Some(r"\z"),
            'b' => Some(r"\b"),
            'B' => Some(r"\B"),
            _ => None,
        };
        if let Some(anchor) = anchor {
            self.out.push_str(anchor);
            return Ok(Escaped::Anchor);
        }
        if ('1'..='9').contains(&letter) {
            return self.number_escape(letter);
        }
        let c = match letter {
            '0' => self.octal(0)?,
            _ => self.simple_escape(letter)?,
        };
        push_literal(&mut self.out, c);
        Ok(Escaped::Plain(Width::ONE))
    }

    /// `\1` to `\99` refer to groups; three octal digits are a character.
    fn number_escape(&mut self, first: char) -> Result<Escaped, PythonRegexError> {
        let mut digits = String::from(first);
        if let Some(second) = self.peek().filter(char::is_ascii_digit) {
            self.next();
            digits.push(second);
            let third = self.peek().filter(|c| ('0'..='7').contains(c));
            if let (true, Some(third)) = (digits.chars().all(|c| ('0'..='7').contains(&c)), third) {
                self.next();
                digits.push(third);
                let c = self.octal_value(&digits)?;
                push_literal(&mut self.out, c);
                return Ok(Escaped::Plain(Width::ONE));
            }
        }
        let group = digits.parse().unwrap_or(usize::MAX);
        Ok(Escaped::Plain(self.reference(group)?))
    }

    /// Up to two more octal digits after the first.
    fn octal(&mut self, first: u32) -> Result<char, PythonRegexError> {
        let mut digits = first.to_string();
        while digits.len() < 3
            && let Some(c) = self.peek().filter(|c| ('0'..='7').contains(c))
        {
            self.next();
            digits.push(c);
        }
        self.octal_value(&digits)
    }

    fn octal_value(&self, digits: &str) -> Result<char, PythonRegexError> {
        u8::from_str_radix(digits, 8).map(char::from).map_err(|_| self.wrong("an octal escape may be \\377 at most"))
    }

    /// Escapes that mean the same inside and outside brackets.
    fn simple_escape(&mut self, letter: char) -> Result<char, PythonRegexError> {
        if let Some(c) = control(letter) {
            return Ok(c);
        }
        match letter {
            'x' => self.hex(2),
            'u' => self.hex(4),
            'U' => self.hex(8),
            'N' => Err(self.wrong("characters by name (\\N{…}) are not supported; write the character itself")),
            c if c.is_ascii_alphanumeric() => Err(self.wrong(&format!("\\{c} has no meaning"))),
            c => Ok(c),
        }
    }

    fn hex(&mut self, count: usize) -> Result<char, PythonRegexError> {
        let mut value: u32 = 0;
        for _ in 0..count {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(16)) else {
                return Err(self.wrong(&format!("{count} hexadecimal digits were expected")));
            };
            self.next();
            value = value.wrapping_mul(16).wrapping_add(digit);
        }
        char::from_u32(value).ok_or_else(|| self.wrong("this number is not a character"))
    }

    /// A class; the opening bracket is read.
    pub(super) fn class(&mut self) -> Result<Width, PythonRegexError> {
        self.out.push('[');
        if self.eat('^') {
            self.out.push('^');
        }
        let mut first = true;
        loop {
            let Some(c) = self.next() else { return Err(self.wrong("a `[` is not closed")) };
            if c == ']' && !first {
                break;
            }
            first = false;
            let low = self.member(c)?;
            if !self.eat('-') {
                self.push_member(&low);
                continue;
            }
            let Some(c) = self.next() else { return Err(self.wrong("a `[` is not closed")) };
            if c == ']' {
                self.push_member(&low);
                push_literal(&mut self.out, '-');
                break;
            }
            match (low, self.member(c)?) {
                (Member::One(low), Member::One(high)) if low <= high => {
                    push_literal(&mut self.out, low);
                    self.out.push('-');
                    push_literal(&mut self.out, high);
                }
                _ => return Err(self.wrong("this is not a range of characters")),
            }
        }
        self.out.push(']');
        Ok(Width::ONE)
    }

    fn member(&mut self, c: char) -> Result<Member, PythonRegexError> {
        if c != '\\' {
            return Ok(Member::One(c));
        }
        let Some(letter) = self.next() else { return Err(self.wrong("a backslash stands at the end")) };
        if let Some(inside) = category(letter, self.flags.ascii) {
            return Ok(Member::Many(inside));
        }
        Ok(Member::One(match letter {
            'b' => '\x08',
            '0'..='7' => {
                let first = letter.to_digit(8).unwrap_or(0);
                self.octal(first)?
            }
            _ => self.simple_escape(letter)?,
        }))
    }

    fn push_member(&mut self, member: &Member) {
        match member {
            Member::One(c) => push_literal(&mut self.out, *c),
            Member::Many(inside) => self.out.push_str(inside),
        }
    }
}

/// What an escape stands for.
pub(super) enum Escaped {
    /// Something that takes this much text and may be repeated.
    Plain(Width),
    /// A place between characters, which may not be repeated.
    Anchor,
}
