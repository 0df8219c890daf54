//! Pages that are made from the source are as the source makes them.

use anyhow::Result;

use super::{Breach, Breaches, Tree};
use crate::docs::{PAGES, errors};

pub fn check(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Breaches::new("docs");
    for page in &PAGES {
        let text = |path: &str| tree.texts.get(path).map_or("", String::as_str);
        let sources: Vec<&str> = page.sources.iter().map(|source| text(source)).collect();
        compare(&mut breaches, page.path, text(page.path), (page.make)(&sources));
    }
    let pages = tree.texts.range(errors::FOLDER.to_owned()..);
    let pages = pages.map_while(|(path, text)| Some((path.strip_prefix(errors::FOLDER)?, text.as_str())));
    let mut pages = pages.peekable();
    if pages.peek().is_some() {
        let text = tree.texts.get(errors::INDEX).map_or("", String::as_str);
        compare(&mut breaches, errors::INDEX, text, errors::index(pages));
    }
    breaches.found
}

/// Reports a page whose text is not the one that is made.
fn compare(breaches: &mut Breaches, path: &str, text: &str, made: Result<String>) {
    match made {
        Ok(made) if made != text => {
            let same = text.lines().zip(made.lines()).take_while(|(a, b)| a == b).count();
            breaches.add(path, same + 1, "the page is stale: run `cargo xtask docs`");
        }
        Ok(_) => {}
        Err(error) => breaches.add(path, 1, format!("{error:#}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_page_is_reported() {
        let made: Vec<(&str, String)> =
            PAGES.iter().map(|page| (page.path, (page.make)(&vec![""; page.sources.len()]).unwrap())).collect();
        let files: Vec<(&str, &str)> = made.iter().map(|(path, text)| (*path, text.as_str())).collect();
        assert_eq!(check(&Tree::of(&files)), []);
        assert_eq!(check(&Tree::of(&files[..1])).len(), PAGES.len() - 2, "an index without links makes no llms.txt");
        assert_eq!(check(&Tree::of(&[])).len(), PAGES.len() - 1);
    }

    #[test]
    fn a_stale_index_of_errors_is_reported() {
        let page = ("docs/errors/F0203.md", "# F0203: Empty list of steps\n");
        let index = errors::index([("F0203.md", page.1)]).unwrap();
        let mut files: Vec<(&str, String)> =
            PAGES.iter().map(|page| (page.path, (page.make)(&vec![""; page.sources.len()]).unwrap())).collect();
        files.extend([(page.0, page.1.to_owned()), (errors::INDEX, index)]);
        let tree = |files: &[(&str, String)]| {
            Tree::of(&files.iter().map(|(path, text)| (*path, text.as_str())).collect::<Vec<_>>())
        };
        assert_eq!(check(&tree(&files)), []);
        files.last_mut().unwrap().1 = files.last().unwrap().1.replace("Empty", "An empty");
        assert_eq!(check(&tree(&files)).len(), 1);
    }
}
