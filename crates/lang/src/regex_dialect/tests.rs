#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
use super::*;
use crate::limits::REGEX_DEPTH;

fn found(regex: &str, haystack: &str) -> bool {
    let regex = PythonRegex::new(regex, Flags::default()).unwrap_or_else(|error| panic!("{regex}: {error}"));
    regex.is_match(haystack) == MatchResult::Match
}

fn refused(regex: &str) -> PythonRegexError {
    PythonRegex::new(regex, Flags::default()).expect_err(regex)
}

#[test]
fn searches_are_unanchored_and_anchors_are_pythons() {
    assert!(found("b+", "aabb"));
    assert!(found(r"a\Z", "ba") && !found(r"a\Z", "a\n"));
    assert!(found("a$", "a\n") && found("a$", "a") && !found("a$", "a\n\n") && found("a$\n", "a\n"));
    assert!(found("(?m)^b$", "a\nb\nc") && !found("^b$", "a\nb\nc"));
    assert!(!found("a.b", "a\nb") && found("(?s)a.b", "a\nb") && found("(?s:a.b)", "a\nb"));
}

#[test]
fn classes_and_escapes_are_pythons() {
    assert!(
        found("[[]", "[") && found("[a&&b]", "&") && found("[]a]", "]") && found("[^]a]", "b") && found("[a-]", "-")
    );
    assert!(found(r"[\b]", "\x08") && found(r"\x41\101\u0042", "AAB") && found(r"\0", "\0"));
    assert!(found(r"\s", "\x1f") && !found(r"\S", "\x1c") && found(r"[^\W\d]", "a") && !found(r"[^\W\d]", "1"));
    // A combining mark is no word character in Python.
    assert!(!found(r"^\w$", "\u{301}") && found(r"^\w$", "é"));
    assert!(found(r"(?a)^\W$", "é"));
    assert!(found("a{", "a{") && found("a{,2}$", "aa") && found("x{a}", "x{a}") && found("<a>", "<a>"));
}

#[test]
fn named_groups_and_lookaround_work() {
    assert!(found(r"(?P<q>['x]).(?P=q)", "xax") && !found(r"(?P<q>['x]).(?P=q)", "xay"));
    assert!(found(r"(a)\1(?#note)0", "aa0"));
    assert!(found(r"^(?=.*\d)(?!.*z)\w+$", "ab1") && !found(r"^(?=.*\d)\w+$", "ab"));
    assert!(
        found("(?<=a)b", "ab") && found("(a)?(?(1)b|c)$", "ab") && found("(?>a+)b", "aab") && !found("a++a", "aaa")
    );
    assert!(found("(?:(?=a))?b", "b") && found("(?=a)*b", "b"));
}

#[test]
fn flags_work_inline_scoped_and_from_outside() {
    assert!(found("(?i)ÄB", "äb") && found("(?i:a)b", "Ab") && !found("(?i:a)b", "AB"));
    assert!(found("(?i)(?-i:a)b", "aB") && !found("(?i)(?-i:a)b", "AB"));
    assert!(found("(?x) a b # note\n c", "abc") && found(r"(?x)a\ b", "a b"));
    let flags = Flags::from_letters("imslu").unwrap();
    assert_eq!(PythonRegex::new("^b.c$", flags).unwrap().is_match("a\nB\nC"), MatchResult::Match);
    assert_eq!(Flags::from_letters("x"), None);
}

#[test]
fn expressions_that_python_refuses_are_refused() {
    for regex in [
        "a**",
        "*a",
        "^*",
        "(",
        ")",
        "[a",
        "[b-a]",
        r"[\d-a]",
        r"\q",
        r"[\A]",
        r"\z",
        "a|(?i)b",
        "(?<n>a)",
        "(?P<1>a)",
        "(?P=n)",
        r"(a\1)",
        r"\2",
        "(?<=a+)b",
        "(?<!a|bc)",
        "a{3,2}",
        "(?P<n>a)(?P<n>b)",
        "(?-i)a",
        "(?L)a",
        r"\x4",
        r"\N{DIGIT ONE}",
        "(?(2)a|b)(c)",
        "(?#",
        "\\",
        "a+?+",
        "(?y)",
    ] {
        assert!(matches!(refused(regex), PythonRegexError::Syntax { .. }), "{regex}: {:?}", refused(regex));
    }
}

#[test]
fn every_limit_has_its_error() {
    assert!(matches!(refused(&"a".repeat(REGEX_BYTES + 1)), PythonRegexError::TooLong { .. }));
    assert_eq!(refused(r"(?:\w{100}){100}"), PythonRegexError::TooLarge);
    assert_eq!(refused(r"(?=a)(?:\w{100}){100}"), PythonRegexError::TooLarge);
    let nested = |levels: usize| format!("{}a{}", "(?:".repeat(levels), ")".repeat(levels));
    assert!(found(&nested(REGEX_DEPTH - 1), "a"));
    let error = refused(&nested(REGEX_DEPTH));
    assert!(matches!(&error, PythonRegexError::Syntax { message, .. } if message.contains("too deeply")), "{error:?}");
    let long = "a".repeat(REGEX_HAYSTACK_BYTES + 1);
    assert_eq!(PythonRegex::new("a", Flags::default()).unwrap().is_match(&long), MatchResult::TooLong);
    let hard = PythonRegex::new(r"^(\w+\s?)*\1$", Flags::default()).unwrap();
    assert!(!hard.is_linear());
    let result = hard.is_match(&format!("{}!", "ab ".repeat(40)));
    assert_eq!(result, MatchResult::BacktrackLimit);
    assert!(result.error().is_some() && !result.is_match());
}

/// The search needs about a million states; when they fill [`REGEX_CACHE_BYTES`] it continues without caching them.
#[test]
fn a_full_cache_does_not_change_the_result() {
    let regex = PythonRegex::new("[ab]*a[ab]{20}c", Flags::default()).unwrap();
    assert!(regex.is_linear());
    let mut random = 1u32;
    let mut letter = || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if random >> 31 == 0 { 'a' } else { 'b' }
    };
    // Nearly every letter leads to a new state, and each state takes more than a byte, so the letters fill the cache.
    let letters: String = (0..REGEX_HAYSTACK_BYTES - 64).map(|_| letter()).collect();
    assert_eq!(regex.is_match(&letters), MatchResult::NoMatch);
    assert_eq!(regex.is_match(&format!("{letters}a{}c", "b".repeat(20))), MatchResult::Match);
}

#[test]
fn common_expressions_stay_linear() {
    for text in [r"^\w[\w.-]{0,63}@[\w-]{1,63}\.\w+$", "(?i)yes|no", r"^\+?\d{6,15}$", r"\bcard\b"] {
        assert!(PythonRegex::new(text, Flags::default()).unwrap().is_linear(), "{text}");
    }
}
