//! The Rust code blocks of the documentation are copies of the examples, which compile and run.

use std::{fs, path::Path};

#[test]
fn code_on_pages_is_code_of_the_examples() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for page in
        ["how-to/rust-api.md", "concepts/agents.md", "how-to/custom-agent-in-rust.md", "how-to/hooks-in-python.md"]
    {
        let text = fs::read_to_string(root.join("docs").join(page)).unwrap();
        let mut blocks = 0;
        for part in text.split("<!-- examples/").skip(1) {
            let (name, rest) = part.split_once(" -->\n```rust\n").unwrap_or_else(|| panic!("{page}: {part}"));
            let code = rest.split("```").next().unwrap();
            let example = fs::read_to_string(root.join("examples").join(name)).unwrap();
            assert!(example.contains(code), "{page}: not in examples/{name}:\n{code}");
            blocks += 1;
        }
        assert!(blocks > 0, "{page}");
    }
}
