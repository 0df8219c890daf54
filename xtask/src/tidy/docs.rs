//! Pages that are made from the source are as the source makes them.

use super::{Breach, Breaches, Tree};
use crate::docs::PAGES;

pub fn check(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Breaches::new("docs");
    for page in &PAGES {
        let text = |path: &str| tree.texts.get(path).map_or("", String::as_str);
        let sources: Vec<&str> = page.sources.iter().map(|source| text(source)).collect();
        match (page.make)(&sources) {
            Ok(made) if made != text(page.path) => {
                let same = text(page.path).lines().zip(made.lines()).take_while(|(a, b)| a == b).count();
                breaches.add(page.path, same + 1, "the page is stale: run `cargo xtask docs`");
            }
            Ok(_) => {}
            Err(error) => breaches.add(page.path, 1, format!("{error:#}")),
        }
    }
    breaches.found
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
        assert_eq!(check(&Tree::of(&files[..1])).len(), 1);
        assert_eq!(check(&Tree::of(&[])).len(), 2);
    }
}
