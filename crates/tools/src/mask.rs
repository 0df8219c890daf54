//! Masks secrets and host paths in the results of tools.

mod view;

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD},
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use segue_base::secret::Secret;
use segue_engine::{limits::SHORTEST_SECRET, text::strip_hidden};
use serde_json::{Map, Value as Json};

use self::view::View;
use crate::{ToolFailure, ToolOutcome, workspace::VIRTUAL_ROOT};

/// Lines of secrets of several lines, such as keys, that are masked one by one.
const SHORTEST_LINE: usize = 16;
/// Encoded forms shorter than this are not masked: they would hide ordinary text.
const SHORTEST_ENCODED: usize = 8;
const SECRET_MARK: &str = "[secret]";
const HOST_MARK: &str = "[host path]";

/// Characters that RFC 3986 (section 2.3) leaves as they are.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The same with `/`, as in paths.
const PATH: &AsciiSet = &UNRESERVED.remove(b'/');
/// The same for `encodeURIComponent` of JavaScript.
const COMPONENT: &AsciiSet = &UNRESERVED.remove(b'!').remove(b'\'').remove(b'(').remove(b')').remove(b'*');

/// How often escapes within escapes are undone, as in JSON in a text of JSON.
const ESCAPE_LEVELS: usize = 8;

/// Texts to be replaced, the longest first.
pub struct Masks {
    pairs: Vec<(Secret, &'static str)>,
    /// The secrets that are also searched in the text as it reads after decoding.
    decoded: Vec<DecodedForms>,
    longest: usize,
}

/// The forms of a secret in decoded texts.
struct DecodedForms {
    plain: Secret,
    /// In base64, without line ends.
    base64: Vec<Secret>,
    /// In lower-case hexadecimal, without separators.
    hexadecimal: Secret,
}

impl Masks {
    /// `root`: the folder of a run, shown as its virtual path. `hidden`: other host paths.
    pub(crate) fn new(root: &Path, hidden: &[PathBuf], secrets: &[Secret]) -> Self {
        let mut pairs: Vec<(Secret, &'static str)> = Vec::new();
        for path in both_forms(root) {
            pairs.push((Secret::new(path), VIRTUAL_ROOT));
        }
        for path in hidden.iter().flat_map(|path| both_forms(path)) {
            pairs.push((Secret::new(path), HOST_MARK));
        }
        pairs.extend(secrets.iter().flat_map(forms).map(|form| (Secret::new(form), SECRET_MARK)));
        pairs.sort_by_key(|(text, _)| std::cmp::Reverse(text.expose().len()));
        let decoded: Vec<DecodedForms> = secrets.iter().flat_map(parts).map(DecodedForms::of).collect();
        let longest = pairs.first().map_or(0, |(text, _)| text.expose().len());
        let references = decoded.iter().map(|forms| forms.plain.expose().len() * LONGEST_REFERENCE).max();
        Self { pairs, decoded, longest: longest.max(references.unwrap_or(0)) }
    }

    /// Without a folder that has a virtual path.
    pub(crate) fn hiding(hidden: &[PathBuf], secrets: &[Secret]) -> Self {
        Self::new(Path::new("/"), hidden, secrets)
    }

    /// Masks these secrets, as they are and in the forms in which servers usually return a value: JSON and HTML escapes, percent encoding,
    /// base64, hexadecimal; also divided into lines or bytes, or escaped several times. Secrets of less than [`SHORTEST_SECRET`] characters stay.
    pub fn of_secrets(secrets: &[Secret]) -> Self {
        Self::hiding(&[], secrets)
    }

    /// The length of the longest text that is replaced. A text that was cut may have a part of one at its edges.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// The marks for masked texts that are more often in `new` than in `old`.
    pub(crate) fn new_marks(&self, old: &str, new: &str) -> Vec<&'static str> {
        let is_used = |mark: &str| self.pairs.iter().any(|(_, used)| *used == mark);
        let is_new = |mark: &&str| new.matches(mark).count() > old.matches(mark).count();
        [SECRET_MARK, HOST_MARK].into_iter().filter(|mark| is_used(mark)).filter(is_new).collect()
    }

    /// Removes invisible characters, which could divide a secret, and replaces what must not be seen.
    pub fn apply(&self, text: &str) -> String {
        let mut text = strip_hidden(text).into_owned();
        for (hidden, mark) in &self.pairs {
            if text.contains(hidden.expose()) {
                text = text.replace(hidden.expose(), mark);
            }
        }
        if self.decoded.is_empty() { text } else { self.apply_decoded(text) }
    }

    /// Replaces what reads as a secret after decoding.
    fn apply_decoded(&self, mut text: String) -> String {
        let mut found: Vec<(usize, usize)> = Vec::new();
        let mut level = View::of(&text);
        for _ in 0..=ESCAPE_LEVELS {
            let Some(view) = level else { break };
            let references = view.without_references();
            for forms in &self.decoded {
                for view in references.iter().chain([&view]) {
                    found.extend(view.find(forms.plain.expose()));
                }
            }
            if let Some(compact) = view.without_space() {
                let forms = self.decoded.iter().flat_map(|forms| &forms.base64);
                forms.for_each(|form| found.extend(compact.find(form.expose())));
            }
            if let Some(compact) = view.without_separators() {
                self.decoded.iter().for_each(|forms| found.extend(compact.find(forms.hexadecimal.expose())));
            }
            level = view.without_escapes();
        }
        found.sort_unstable();
        let mut merged: Vec<(usize, usize)> = Vec::new();
        for (from, to) in found {
            match merged.last_mut() {
                Some(last) if from < last.1 => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        for (from, to) in merged.into_iter().rev() {
            text.replace_range(from..to, SECRET_MARK);
        }
        text
    }

    /// Masks every text and number of an outcome, names of fields included. What the outcome is, does not change.
    pub fn mask_outcome(&self, mut outcome: ToolOutcome) -> ToolOutcome {
        match &mut outcome {
            ToolOutcome::Done(output) => {
                output.structured.iter_mut().chain(&mut output.content).for_each(|value| self.mask_json(value));
                self.mask_map(&mut output.meta);
                output.unusable.iter_mut().for_each(|text| *text = self.apply(text));
            }
            ToolOutcome::Failed(failure) | ToolOutcome::Unknown(failure) => self.mask_failure(failure),
            ToolOutcome::Pending(_) => {}
        }
        outcome
    }

    fn mask_failure(&self, failure: &mut ToolFailure) {
        let ToolFailure { kind: _, fatal: _, message, missing_fields, code, detail, meta } = failure;
        for text in std::iter::once(message).chain(missing_fields).chain(code).chain(detail) {
            *text = self.apply(text);
        }
        self.mask_map(meta);
    }

    fn mask_json(&self, value: &mut Json) {
        match value {
            Json::String(text) => *text = self.apply(text),
            Json::Array(items) => items.iter_mut().for_each(|item| self.mask_json(item)),
            Json::Object(map) => self.mask_map(map),
            Json::Number(number) => {
                let number = number.to_string();
                let masked = self.apply(&number);
                if masked != number || self.has_number(&number) {
                    *value = Json::String(if masked == number { SECRET_MARK.to_owned() } else { masked });
                }
            }
            Json::Null | Json::Bool(_) => {}
        }
    }

    fn mask_map(&self, map: &mut Map<String, Json>) {
        for (name, mut value) in std::mem::take(map) {
            self.mask_json(&mut value);
            map.insert(self.apply(&name), value);
        }
    }

    /// Whether a number is a secret in another notation, such as `4711.0` of `4711`.
    fn has_number(&self, number: &str) -> bool {
        let Ok(number) = number.parse::<f64>() else { return false };
        let is_same = |text: &str| text.parse::<f64>().is_ok_and(|secret| secret.total_cmp(&number).is_eq());
        self.pairs.iter().any(|(text, mark)| *mark == SECRET_MARK && is_same(text.expose()))
    }
}

/// The texts of a secret that are masked: the whole of it, and its long lines.
fn parts(secret: &Secret) -> impl Iterator<Item = &str> {
    let whole = secret.expose().trim();
    let lines = whole.lines().map(str::trim).filter(|line| line.len() >= SHORTEST_LINE);
    std::iter::once(whole).chain(lines).filter(|part| part.chars().count() >= SHORTEST_SECRET)
}

/// Bytes of the longest usual reference to a character: `&#x10FFFF;`.
const LONGEST_REFERENCE: usize = 10;

impl DecodedForms {
    fn of(plain: &str) -> Self {
        let secret = |text: String| Secret::new(text);
        let mut base64 = base64_forms(plain);
        base64.retain(|form| form.len() >= SHORTEST_ENCODED);
        Self {
            plain: secret(plain.to_owned()),
            base64: base64.into_iter().map(secret).collect(),
            hexadecimal: secret(hexadecimal(plain)),
        }
    }
}

/// The texts by which a secret is recognised.
fn forms(secret: &Secret) -> HashSet<String> {
    let mut forms: HashSet<String> = HashSet::new();
    for part in parts(secret) {
        forms.insert(part.to_owned());
        forms.extend(encoded(part).into_iter().filter(|form| form.len() >= SHORTEST_ENCODED));
    }
    forms
}

/// The encoded forms of a text. The whole of it is encoded; of base64 also the characters that do not depend on what is before and behind
/// it, as in the header of a login.
fn encoded(text: &str) -> Vec<String> {
    let mut forms = Vec::new();
    let json = serde_json::to_string(text).unwrap_or_default();
    let json = json.trim_start_matches('"');
    let json = json.strip_suffix('"').unwrap_or(json);
    forms.extend([json.to_owned(), json.replace('/', "\\/"), ascii_json(json)]);
    let html = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    forms.extend([html.replace('\'', "&#39;"), html.replace('\'', "&#x27;"), html]);
    for set in [UNRESERVED, PATH, COMPONENT, NON_ALPHANUMERIC] {
        let percent = utf8_percent_encode(text, set).to_string();
        let percent = [percent.replace("%20", "+"), percent];
        forms.extend(percent.iter().map(|form| lower_percent(form)));
        forms.extend(percent);
    }
    let hexadecimal = hexadecimal(text);
    forms.extend([hexadecimal.to_uppercase(), hexadecimal]);
    forms.extend(base64_forms(text));
    forms
}

fn hexadecimal(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn base64_forms(text: &str) -> Vec<String> {
    let mut forms = vec![STANDARD.encode(text), URL_SAFE.encode(text)];
    for before in 0..3_usize {
        let bytes: Vec<u8> = std::iter::repeat_n(0, before).chain(text.bytes()).collect();
        // Six bits for each character: those that have bits of other bytes are left out.
        let (start, end) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
        let core = |text: String| text.get(start..end).map(str::to_owned);
        forms.extend([STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)].into_iter().filter_map(core));
    }
    forms
}

/// JSON text in which every character beyond ASCII is escaped.
fn ascii_json(json: &str) -> String {
    let mut units = [0; 2];
    let escape = |c: char| match c.is_ascii() {
        true => c.to_string(),
        false => c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
    };
    json.chars().map(escape).collect()
}

/// Percent encoding with lower-case digits.
fn lower_percent(text: &str) -> String {
    let mut parts = text.split('%');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| match part.split_at_checked(2) {
        Some((digits, rest)) => format!("{text}%{}{rest}", digits.to_ascii_lowercase()),
        None => format!("{text}%{part}"),
    })
}

/// A path as given and with its links resolved; it need not exist yet. The root of the file system is left out: every path starts with it.
fn both_forms(path: &Path) -> Vec<String> {
    let mut forms = vec![path.to_path_buf()];
    let resolved = path.ancestors().find_map(|above| {
        let rest = path.strip_prefix(above).ok()?;
        let above = above.canonicalize().ok()?;
        // Joining nothing would add a separator.
        Some(if rest.as_os_str().is_empty() { above } else { above.join(rest) })
    });
    forms.extend(resolved);
    let mut texts: Vec<String> = forms.iter().map(|form| form.to_string_lossy().into_owned()).collect();
    texts.retain(|text| text.len() > 1);
    texts.dedup();
    texts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::{FailureKind, ToolOutput};

    fn masked(secret: &str, structured: &Json) -> Json {
        let outcome = ToolOutcome::Done(ToolOutput::structured(structured.clone()));
        match Masks::of_secrets(&[Secret::new(secret)]).mask_outcome(outcome) {
            ToolOutcome::Done(output) => output.structured.unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_secret_that_is_a_word_of_the_outcome_is_masked_and_the_outcome_stays_what_it_is() {
        for word in
            ["done", "failed", "unknown", "text", "content", "structured", "message", "kind", "type", "tool_error"]
        {
            let masks = Masks::of_secrets(&[Secret::new(word)]);
            let mut output = ToolOutput::structured(json!({"a": format!("<{word}>")}));
            output.content = vec![json!({"type": "note", "x": word})];
            output.unusable = Some(word.to_owned());
            output.meta.insert("m".to_owned(), json!([word]));
            let ToolOutcome::Done(output) = masks.mask_outcome(ToolOutcome::Done(output)) else { panic!("{word}") };
            assert_eq!(output.structured, Some(json!({"a": "<[secret]>"})));
            assert_eq!(
                output.content.first().unwrap().as_object().unwrap().values().next_back(),
                Some(&json!("[secret]"))
            );
            assert_eq!((output.unusable.as_deref(), &output.meta["m"]), (Some("[secret]"), &json!(["[secret]"])));
            let mut failure = ToolFailure::new(FailureKind::ToolError, format!("a {word}"));
            failure.detail = Some(word.to_owned());
            failure.missing_fields = vec![word.to_owned()];
            failure.meta.insert(word.to_owned(), json!(1));
            for outcome in [ToolOutcome::Failed(failure.clone()), ToolOutcome::Unknown(failure)] {
                let is_failed = matches!(outcome, ToolOutcome::Failed(_));
                match (is_failed, masks.mask_outcome(outcome)) {
                    (true, ToolOutcome::Failed(failure)) | (false, ToolOutcome::Unknown(failure)) => {
                        let texts =
                            [&failure.message, failure.detail.as_ref().unwrap(), &failure.missing_fields.join("")];
                        assert!(texts.iter().all(|text| text.ends_with("[secret]")), "{failure:?}");
                        assert!(failure.meta.contains_key("[secret]") && failure.kind == FailureKind::ToolError);
                    }
                    (_, other) => panic!("{word}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn numbers_and_names_of_fields_are_masked() {
        let value = json!({"n": 4711, "f": 4711.0, "in": [147112], "other": 17, "pin4711": true, "t": "4711"});
        let expected = json!({"n": "[secret]", "f": "[secret].0", "in": ["1[secret]2"], "other": 17, "pin[secret]": true, "t": "[secret]"});
        assert_eq!(masked("4711", &value), expected);
        assert_eq!(masked("4.711e3", &json!([4711, 4712])), json!(["[secret]", 4712]));
    }

    #[test]
    fn usual_encodings_of_a_secret_are_masked() {
        let secret = "p@ss w\"ö/rd+'<1>";
        let json_text = json!({ "x": secret }).to_string();
        let escaped = r#"p@ss w\"\u00f6/rd+'<1>"#;
        let login = STANDARD.encode(format!("user:{secret}"));
        for text in [
            json_text.as_str(),
            escaped,
            "p%40ss%20w%22%C3%B6%2Frd%2B%27%3C1%3E",
            "p%40ss+w%22%c3%b6%2frd%2b%27%3c1%3e",
            "p%40ss%20w%22%C3%B6/rd%2B%27%3C1%3E",
            "p%40ss%20w%22%C3%B6%2Frd%2B'%3C1%3E",
            "p@ss w&quot;ö/rd+&#39;&lt;1&gt;",
            &secret.bytes().map(|byte| format!("{byte:02X}")).collect::<String>(),
            &STANDARD.encode(secret),
            &STANDARD.encode(format!("a{secret}bc")),
            &login,
        ] {
            let masked = masked(secret, &json!(text));
            assert!(masked.as_str().unwrap().contains("[secret]"), "{text}: {masked}");
        }
        assert_eq!(masked("pass-w0rd", &json!("a pass-word")), json!("a pass-word"));
    }

    #[test]
    fn an_encoded_secret_is_masked_when_it_is_divided_or_encoded_several_times() {
        let secret = "p@ss w\"ö/rd+'<1>\\é";
        let lines = |text: &str, every: usize, end: &str| {
            let parts: Vec<&str> =
                text.as_bytes().chunks(every).map(|part| std::str::from_utf8(part).unwrap()).collect();
            parts.join(end)
        };
        let bytes = |format: fn(u8) -> String, join: &str| secret.bytes().map(format).collect::<Vec<_>>().join(join);
        let characters = |format: fn(u32) -> String| secret.chars().map(|c| format(c as u32)).collect::<String>();
        let long = STANDARD.encode(format!("{}{secret}{}", "a".repeat(71), "b".repeat(80)));
        let nested = json!({"x": json!({"y": json!({"z": secret}).to_string()}).to_string()}).to_string();
        let texts = [
            lines(&long, 76, "\r\n"),
            lines(&long, 64, "\n"),
            lines(&long, 64, "\\n"),
            lines(&STANDARD.encode(secret), 4, "\n "),
            json!({"body": lines(&long, 76, "\r\n")}).to_string(),
            bytes(|byte| format!("{byte:02x}"), " "),
            bytes(|byte| format!("{byte:02X}"), ":"),
            bytes(|byte| format!("{byte:02X}"), "-"),
            bytes(|byte| format!("0x{byte:02x}"), ", "),
            bytes(|byte| format!("\\x{byte:02x}"), ""),
            lines(&bytes(|byte| format!("{byte:02x}"), ""), 6, "\n"),
            characters(|code| format!("&#{code};")),
            characters(|code| format!("&#x{code:x};")),
            characters(|code| format!("&#X{code:04X};")),
            secret.replace('@', "&#64;").replace('ö', "&#xf6;").replace('<', "&lt;"),
            json!({"html": characters(|code| format!("&#{code};"))}).to_string().replace('&', "\\u0026"),
            nested.clone(),
            json!(nested).to_string(),
        ];
        for text in texts {
            let shown = masked(secret, &json!(format!("before {text} after")));
            let shown = shown.as_str().unwrap();
            assert!(
                shown.contains("[secret]") && shown.starts_with("before ") && shown.ends_with(" after"),
                "{text}: {shown}"
            );
            assert!(!shown.contains("rd+") && !shown.contains("72642b"), "{text}: {shown}");
        }
        for text in ["at 70: 40, then 73", "cGFz cw", "&#112;&#97;ss", r#"{"x":"{\"y\":1}"}"#, "&amp; é\\n"] {
            assert_eq!(masked("pass-w0rd", &json!(text)), json!(text));
        }
    }
}
