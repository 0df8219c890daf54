//! Escapes and character classes, which Python's dialect and the matchers write differently.

use std::fmt::Write as _;

use super::{
    PythonRegexError,
    translate::{Translator, Width},
};

/// A member of a character class.
enum Member {
    Char(char),
    /// A set such as `\d`, in the syntax of the matchers, without brackets.
    Set(String),
}

/// Writes a character so that no matcher interprets it as syntax.
pub(super) fn push_literal(out: &mut String, c: char) {
    if c.is_ascii() && !c.is_ascii_alphanumeric() {
        // Writing into a String cannot fail.
        let _ = write!(out, "\\x{{{:X}}}", u32::from(c));
    } else {
        out.push(c);
    }
}

/// The content of a bracketed class for `\d`, `\w`, `\s` and their negations. Python's word characters are letters, numbers and `_`,
/// without combining marks; its white space includes the four separators `\x1c` to `\x1f`.
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
    /// Parses an escape outside brackets after its backslash.
    pub(super) fn escape(&mut self) -> Result<Escaped, PythonRegexError> {
        let Some(letter) = self.next() else {
            return Err(self.syntax_error("the expression ends with a single backslash"));
        };
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

    /// Parses `\1` to `\99`, a backreference, or three octal digits, a character.
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

    /// Reads up to two more octal digits after the first.
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
        u8::from_str_radix(digits, 8)
            .map(char::from)
            .map_err(|_| self.syntax_error("an octal escape may be \\377 at most"))
    }

    /// An escape that means the same inside and outside brackets.
    fn simple_escape(&mut self, letter: char) -> Result<char, PythonRegexError> {
        if let Some(c) = control(letter) {
            return Ok(c);
        }
        match letter {
            'x' => self.hex(2),
            'u' => self.hex(4),
            'U' => self.hex(8),
            'N' => Err(self.syntax_error("characters by name (\\N{…}) are not supported; write the character itself")),
            c if c.is_ascii_alphanumeric() => Err(self.syntax_error(&format!("\\{c} has no meaning"))),
            c => Ok(c),
        }
    }

    fn hex(&mut self, count: usize) -> Result<char, PythonRegexError> {
        let mut value: u32 = 0;
        for _ in 0..count {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(16)) else {
                return Err(self.syntax_error(&format!("{count} hexadecimal digits were expected")));
            };
            self.next();
            value = value.wrapping_mul(16).wrapping_add(digit);
        }
        char::from_u32(value).ok_or_else(|| self.syntax_error("this number is not a character"))
    }

    /// Parses a character class after its opening bracket.
    pub(super) fn class(&mut self) -> Result<Width, PythonRegexError> {
        self.out.push('[');
        if self.eat('^') {
            self.out.push('^');
        }
        let mut first = true;
        loop {
            let Some(c) = self.next() else { return Err(self.syntax_error("a `[` is not closed")) };
            if c == ']' && !first {
                break;
            }
            first = false;
            let low = self.member(c)?;
            if !self.eat('-') {
                self.push_member(&low);
                continue;
            }
            let Some(c) = self.next() else { return Err(self.syntax_error("a `[` is not closed")) };
            if c == ']' {
                self.push_member(&low);
                push_literal(&mut self.out, '-');
                break;
            }
            match (low, self.member(c)?) {
                (Member::Char(low), Member::Char(high)) if low <= high => {
                    push_literal(&mut self.out, low);
                    self.out.push('-');
                    push_literal(&mut self.out, high);
                }
                _ => return Err(self.syntax_error("this is not a range of characters")),
            }
        }
        self.out.push(']');
        Ok(Width::ONE)
    }

    fn member(&mut self, c: char) -> Result<Member, PythonRegexError> {
        if c != '\\' {
            return Ok(Member::Char(c));
        }
        let Some(letter) = self.next() else {
            return Err(self.syntax_error("the expression ends with a single backslash"));
        };
        if let Some(inside) = category(letter, self.flags.ascii) {
            return Ok(Member::Set(inside));
        }
        Ok(Member::Char(match letter {
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
            Member::Char(c) => push_literal(&mut self.out, *c),
            Member::Set(inside) => self.out.push_str(inside),
        }
    }
}

/// The meaning of an escape.
pub(super) enum Escaped {
    /// An item that matches this width and may be repeated.
    Plain(Width),
    /// A position between characters, which may not be repeated.
    Anchor,
}
