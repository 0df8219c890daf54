//! The rule `docs`: each generated page is the one that `cargo xtask docs` would write.

use anyhow::Result;

use super::{Tree, Violation, Violations};
use crate::docs::{PAGES, errors};

pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Violations::new("docs");
    for page in &PAGES {
        let text = |path: &str| tree.texts.get(path).map_or("", String::as_str);
        let sources: Vec<&str> = page.sources.iter().map(|source| text(source)).collect();
        compare(&mut violations, page.path, text(page.path), (page.generate)(&sources));
    }
    let pages = tree.texts.range(errors::FOLDER.to_owned()..);
    let pages = pages.map_while(|(path, text)| Some((path.strip_prefix(errors::FOLDER)?, text.as_str())));
    let mut pages = pages.peekable();
    if pages.peek().is_some() {
        let text = tree.texts.get(errors::INDEX).map_or("", String::as_str);
        compare(&mut violations, errors::INDEX, text, errors::index(pages));
    }
    violations.items
}

/// Reports the first line in which `text` differs from the generated text, or the error of generating it.
fn compare(violations: &mut Violations, path: &str, text: &str, generated: Result<String>) {
    match generated {
        Ok(generated) if generated != text => {
            let same = text.lines().zip(generated.lines()).take_while(|(a, b)| a == b).count();
            violations.add(path, same + 1, "the page is out of date: run `cargo xtask docs`");
        }
        Ok(_) => {}
        Err(error) => violations.add(path, 1, format!("{error:#}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The generated pages of a repository whose source files are empty.
    fn generated_pages() -> Vec<(&'static str, String)> {
        PAGES.iter().map(|page| (page.path, (page.generate)(&vec![""; page.sources.len()]).unwrap())).collect()
    }

    #[test]
    fn outdated_page_is_reported() {
        let pages = generated_pages();
        let files: Vec<(&str, &str)> = pages.iter().map(|(path, text)| (*path, text.as_str())).collect();
        assert_eq!(check(&Tree::of(&files)), []);
        assert_eq!(
            check(&Tree::of(&files[..1])).len(),
            PAGES.len() - 2,
            "without links llms.txt is empty, so only docs/limits.md differs"
        );
        assert_eq!(check(&Tree::of(&[])).len(), PAGES.len() - 1);
    }

    #[test]
    fn outdated_index_of_error_codes_is_reported() {
        let page = ("docs/errors/F0203.md", "# F0203: Empty list of steps\n");
        let index = errors::index([("F0203.md", page.1)]).unwrap();
        let mut files = generated_pages();
        files.extend([(page.0, page.1.to_owned()), (errors::INDEX, index)]);
        let tree = |files: &[(&str, String)]| {
            Tree::of(&files.iter().map(|(path, text)| (*path, text.as_str())).collect::<Vec<_>>())
        };
        assert_eq!(check(&tree(&files)), []);
        files.last_mut().unwrap().1 = files.last().unwrap().1.replace("Empty", "An empty");
        assert_eq!(check(&tree(&files)).len(), 1);
    }
}
