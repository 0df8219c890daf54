//! One text, several messages: a blank line is where people would have pressed "send".

/// The parts of a text between blank lines, trimmed, without empty ones.
pub fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split("\n\n").map(str::trim).filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn blank_lines_split_and_single_breaks_do_not() {
        let cases: [(&str, &[&str]); 5] = [
            ("one", &["one"]),
            ("  one\ntwo \n\nthree\n", &["one\ntwo", "three"]),
            ("a\n\n\n\nb", &["a", "b"]),
            (" \n\n ", &[]),
            ("a\n\n- b\n- c", &["a", "- b\n- c"]),
        ];
        for (text, expected) in cases {
            assert_eq!(parts(text).collect::<Vec<_>>(), expected, "{text:?}");
        }
    }
}
