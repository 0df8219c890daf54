//! Texts as they read after decoding, so that a value is found whichever encoding hides it and however that is divided.

/// A decoded text, and for each of its bytes the bytes of the original that it comes from.
pub(super) struct View {
    text: String,
    spans: Vec<(u32, u32)>,
}

/// What the beginning of a text stands for: a character or nothing, and its length in bytes.
type Token = (Option<char>, usize);

impl View {
    /// The text as it is; `None` if it is too long to be decoded.
    pub(super) fn of(text: &str) -> Option<Self> {
        let length = u32::try_from(text.len()).ok()?;
        Some(Self { text: text.to_owned(), spans: (0..length).map(|at| (at, at + 1)).collect() })
    }

    /// The view after another decoding; `None` if it changes nothing.
    fn decoded(&self, token: impl Fn(&str) -> Option<Token>) -> Option<Self> {
        let mut view =
            Self { text: String::with_capacity(self.text.len()), spans: Vec::with_capacity(self.spans.len()) };
        let (mut rest, mut at, mut is_changed) = (self.text.as_str(), 0, false);
        while let Some(first) = rest.chars().next() {
            let found = token(rest).filter(|(_, length)| *length > 0);
            is_changed |= found.is_some();
            let (character, length) = found.unwrap_or((Some(first), first.len_utf8()));
            if let (Some(character), Some(source)) = (character, self.spans.get(at..at + length)) {
                let from = source.first().map_or(0, |span| span.0);
                let to = source.last().map_or(0, |span| span.1);
                view.text.push(character);
                view.spans.extend(std::iter::repeat_n((from, to), character.len_utf8()));
            }
            at += length;
            rest = rest.get(length..).unwrap_or_default();
        }
        is_changed.then_some(view)
    }

    /// Escapes of JSON undone, once.
    pub(super) fn without_escapes(&self) -> Option<Self> {
        self.text.contains('\\').then(|| self.decoded(escape)).flatten()
    }
    /// Character references of HTML undone.
    pub(super) fn without_references(&self) -> Option<Self> {
        self.text.contains('&').then(|| self.decoded(reference)).flatten()
    }
    /// Without white space, escaped or not: base64 is divided into lines.
    pub(super) fn without_space(&self) -> Option<Self> {
        self.decoded(space)
    }
    /// Without what divides hexadecimal bytes, in lower case.
    pub(super) fn without_separators(&self) -> Option<Self> {
        self.decoded(separator)
    }

    /// The bytes of the original that each occurrence of `needle` comes from.
    pub(super) fn find<'a>(&'a self, needle: &'a str) -> impl Iterator<Item = (usize, usize)> + 'a {
        self.text.match_indices(needle).filter_map(|(at, found)| {
            let spans = self.spans.get(at..at + found.len())?;
            Some((spans.first()?.0 as usize, spans.last()?.1 as usize))
        })
    }
}

/// An escape of JSON (RFC 8259, section 7).
fn escape(text: &str) -> Option<Token> {
    let rest = text.strip_prefix('\\')?;
    let plain = match rest.chars().next()? {
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'b' => '\u{8}',
        'f' => '\u{c}',
        same @ ('"' | '\\' | '/') => same,
        'u' => {
            let unit = |text: &str| u32::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok();
            let first = unit(text)?;
            if let Some(character) = char::from_u32(first) {
                return Some((Some(character), 6));
            }
            let second = unit(text.get(6..)?)?;
            let pair = [u16::try_from(first).ok()?, u16::try_from(second).ok()?];
            return Some((char::decode_utf16(pair).next()?.ok(), 12));
        }
        _ => return None,
    };
    Some((Some(plain), 2))
}

/// A character reference (<https://html.spec.whatwg.org/multipage/syntax.html#character-references>): the numeric ones, and the
/// names of the characters that must be escaped.
fn reference(text: &str) -> Option<Token> {
    let named = [("&amp;", '&'), ("&lt;", '<'), ("&gt;", '>'), ("&quot;", '"'), ("&apos;", '\''), ("&nbsp;", '\u{a0}')];
    if let Some((name, character)) = named.into_iter().find(|(name, _)| text.starts_with(name)) {
        return Some((Some(character), name.len()));
    }
    let rest = text.strip_prefix("&#")?;
    let (digits, radix, before) = match rest.strip_prefix(['x', 'X']) {
        Some(digits) => (digits, 16, 3),
        None => (rest, 10, 2),
    };
    let length = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    let character = char::from_u32(u32::from_str_radix(digits.get(..length)?, radix).ok()?)?;
    let end = usize::from(digits.get(length..).is_some_and(|rest| rest.starts_with(';')));
    Some((Some(character), before + length + end))
}

fn space(text: &str) -> Option<Token> {
    let first = text.chars().next()?;
    if first.is_whitespace() {
        return Some((None, first.len_utf8()));
    }
    // Escaped white space, and the escape of a slash, which base64 contains.
    match text.strip_prefix('\\')?.chars().next()? {
        'n' | 'r' | 't' => Some((None, 2)),
        '/' => Some((Some('/'), 2)),
        _ => None,
    }
}

fn separator(text: &str) -> Option<Token> {
    if ["0x", "0X", "\\x", "\\n", "\\r", "\\t"].iter().any(|prefix| text.starts_with(prefix)) {
        return Some((None, 2));
    }
    let first = text.chars().next()?;
    match first {
        'A'..='F' => Some((Some(first.to_ascii_lowercase()), 1)),
        ':' | '-' | ',' | ';' | '.' | '_' | '|' => Some((None, 1)),
        first if first.is_whitespace() => Some((None, first.len_utf8())),
        _ => None,
    }
}
