//! JUnit's XML, as build servers read it: one suite for each file.

use std::fmt::Write as _;

use super::{
    super::{CaseResult, Outcome, Results},
    text,
};

/// The results as XML; times in seconds.
pub fn junit(results: &Results) -> String {
    let mut files: Vec<&str> = Vec::new();
    for case in &results.cases {
        if !files.contains(&case.file.as_str()) {
            files.push(&case.file);
        }
    }
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let all: Vec<&CaseResult> = results.cases.iter().collect();
    let _ = writeln!(out, "<testsuites{}>", counts(&all));
    for file in files {
        let cases: Vec<&CaseResult> = results.cases.iter().filter(|case| case.file == file).collect();
        let _ = writeln!(out, "  <testsuite name=\"{}\"{}>", escaped(file), counts(&cases));
        for case in cases {
            one(&mut out, case);
        }
        out.push_str("  </testsuite>\n");
    }
    out.push_str("</testsuites>\n");
    out
}

fn counts(cases: &[&CaseResult]) -> String {
    let of = |outcome| cases.iter().filter(|case| case.outcome == outcome).count();
    let time: f64 = cases.iter().map(|case| case.took.as_secs_f64()).sum();
    format!(
        " tests=\"{}\" failures=\"{}\" errors=\"{}\" time=\"{time:.3}\"",
        cases.len(),
        of(Outcome::Failed),
        of(Outcome::NotRun)
    )
}

fn one(out: &mut String, case: &CaseResult) {
    let class = case.file.trim_end_matches(".yml").replace('/', ".");
    let _ = write!(
        out,
        "    <testcase classname=\"{}\" name=\"{}\" file=\"{}\" line=\"{}\" time=\"{:.3}\"",
        escaped(&class),
        escaped(&case.name),
        escaped(&case.file),
        case.place.line,
        case.took.as_secs_f64()
    );
    let element = match case.outcome {
        Outcome::Passed => {
            out.push_str("/>\n");
            return;
        }
        Outcome::Failed => "failure",
        Outcome::NotRun => "error",
    };
    let kind = case.misses.first().map_or("", |miss| miss.what);
    let message = case.misses.first().map(|miss| miss.expected.join(", ")).unwrap_or_default();
    let body = escaped(&text(case));
    let _ = writeln!(
        out,
        ">\n      <{element} type=\"{}\" message=\"{}\">{body}</{element}>\n    </testcase>",
        escaped(kind),
        escaped(&message)
    );
}

/// Text for XML: what has a meaning there is written otherwise, what may not stand there at all becomes a blank.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn nothing_that_xml_forbids_is_written() {
        assert_eq!(escaped("a<b>&\"c\"\u{1b}[2J\n\u{ffff}ü"), "a&lt;b&gt;&amp;&quot;c&quot; [2J\n ü");
    }
}
