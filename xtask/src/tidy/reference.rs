//! Pages that are made from the source are as the source makes them.

use super::{Breach, Breaches, Tree};
use crate::reference::{KEYS, keys};

pub fn check(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Breaches::new("reference");
    let written = tree.texts.get(KEYS).map_or("", String::as_str);
    let made = keys();
    if written != made {
        let same = written.lines().zip(made.lines()).take_while(|(a, b)| a == b).count();
        breaches.add(KEYS, same + 1, "the page is stale: run `cargo xtask reference`");
    }
    breaches.found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_page_is_told() {
        assert!(check(&Tree::of(&[(KEYS, &keys())])).is_empty());
        let stale = keys().replacen("supported", "refused", 1);
        assert_eq!(check(&Tree::of(&[(KEYS, &stale)])).len(), 1);
        assert_eq!(check(&Tree::of(&[])).len(), 1);
    }
}
