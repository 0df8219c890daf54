//! Layers: a module imports from lower layers and its own insides, never upwards, sideways only where the table says so.
//! The table is in ARCHITECTURE.md, so that what people read is what is checked.

use std::collections::BTreeSet;

use super::table::{Plan, plan};
use super::{Breach, Breaches, Tree};
use crate::scan::{Scan, is_word};

const MAP: &str = "ARCHITECTURE.md";

/// One of the two packages that have layers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Package {
    Root,
    Engine,
}

struct Plans {
    root: Plan,
    engine: Plan,
    /// Names that `lib.rs` takes from packages below, for each of the two: cargo proves that those packages see nothing above.
    root_below: BTreeSet<String>,
    engine_below: BTreeSet<String>,
}

impl Plans {
    fn of(&self, package: Package) -> &Plan {
        match package {
            Package::Root => &self.root,
            Package::Engine => &self.engine,
        }
    }

    fn below(&self, package: Package) -> &BTreeSet<String> {
        match package {
            Package::Root => &self.root_below,
            Package::Engine => &self.engine_below,
        }
    }

    /// Whether a module may import another; the error says why not.
    fn allow(&self, from: (Package, &str), to: (Package, &str)) -> Result<(), String> {
        if from == to || self.below(to.0).contains(to.1) {
            return Ok(());
        }
        let Some(source) = self.of(from.0).get(from.1) else {
            return Ok(()); // Reported once for the file.
        };
        let Some(target) = self.of(to.0).get(to.1) else {
            return Err(format!(
                "`{}` is no module of the layer table: import from the module where it is defined",
                to.1
            ));
        };
        match (source.layer, target.layer) {
            (None, _) => Ok(()),
            (_, None) => Err(format!("`{}` is outside the layers: nothing may import it", to.1)),
            (Some(here), Some(there)) if there < here => Ok(()),
            (Some(here), Some(there)) if there == here => {
                // A module of the root package may also stand for its namesake in the engine.
                let namesake = from.0 != to.0 && from.1 == to.1;
                let listed = (from.0 == to.0 || namesake) && source.also.iter().any(|also| also == to.1);
                if listed || (source.open && target.open) {
                    return Ok(());
                }
                Err(format!("`{}` may not import `{}`: both are in layer {here}", from.1, to.1))
            }
            (Some(here), Some(there)) => {
                Err(format!("`{}` in layer {here} may not import `{}` in layer {there}", from.1, to.1))
            }
        }
    }
}

pub fn check(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Breaches::new("layers");
    let text = tree.texts.get(MAP).map_or("", String::as_str);
    let plans = match (plan(text, "layer of the root package"), plan(text, "layer of the engine")) {
        (Ok(root), Ok(engine)) => {
            let below = |lib: &str| tree.rust.get(lib).map(names_from_below).unwrap_or_default();
            Plans { root, engine, root_below: below("src/lib.rs"), engine_below: below("crates/engine/src/lib.rs") }
        }
        (Err((line, message)), _) | (_, Err((line, message))) => {
            breaches.add(MAP, line, message);
            return breaches.found;
        }
    };
    for (path, scan) in &tree.rust {
        let (package, inner) = match (path.strip_prefix("src/"), path.strip_prefix("crates/engine/src/")) {
            (Some(inner), _) => (Package::Root, inner),
            (_, Some(inner)) => (Package::Engine, inner),
            _ => continue,
        };
        let place = module_of(inner);
        // `lib.rs` and `main.rs` are above all layers.
        let Some(module) = place.first().cloned() else { continue };
        if !plans.of(package).contains_key(&module) {
            breaches.add(path, 1, format!("the module `{module}` is in no layer: add it to one in the table of {MAP}"));
            continue;
        }
        for import in imports(scan, &place) {
            if scan.in_test(import.line) {
                continue;
            }
            let to = if import.engine { Package::Engine } else { package };
            let allowed = match import.target.as_deref() {
                None => Err("importing the whole package hides what is seen: name the module".to_owned()),
                Some(target) => plans.allow((package, &module), (to, target)),
            };
            if let Err(message) = allowed {
                breaches.add(path, import.line, message);
            }
        }
    }
    breaches.found
}

/// The names in statements such as `pub use segue_base::{clock, limits};` and `pub use segue_llm as llm;`, but for those of the engine,
/// which has a table of its own.
fn names_from_below(lib: &Scan) -> BTreeSet<String> {
    let words: Vec<&str> = lib.tokens.iter().map(|(_, token)| token.as_str()).collect();
    let statements = words.split(|word| *word == ";").filter_map(|words| words.split(|word| *word == "use").nth(1));
    let below = |name: &str| name.starts_with("segue_") && name != "segue_engine";
    let named = statements.filter(|names| names.iter().any(|name| below(name)));
    named.flatten().filter(|name| is_word(name)).map(|name| (*name).to_owned()).collect()
}

/// The module path of a file below `src/`.
fn module_of(inner: &str) -> Vec<String> {
    let mut module: Vec<String> = inner.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| last == "mod") || matches!(inner, "lib.rs" | "main.rs") {
        module.pop();
    }
    module
}

/// A path in the code that leaves the file's module.
struct Import {
    line: usize,
    /// Whether it names the engine's package.
    engine: bool,
    /// The module; `None` if it takes the whole package.
    target: Option<String>,
}

/// Every path that starts at a package, or climbs out of its module by `super`.
fn imports(scan: &Scan, module: &[String]) -> Vec<Import> {
    let tokens = &scan.tokens;
    let text = |i: usize| tokens.get(i).map_or("", |token| token.1.as_str());
    let mut found = Vec::new();
    let (mut depth, mut inline) = (0_usize, Vec::<(usize, &str)>::new());
    let mut at = 0;
    while at < tokens.len() {
        match text(at) {
            "mod" if text(at + 2) == "{" => inline.push((depth, text(at + 1))),
            "{" => depth += 1,
            "}" => {
                depth = depth.saturating_sub(1);
                inline.pop_if(|(outer, _)| *outer == depth);
            }
            "segue_engine" if text(at + 1) == "as" => {
                found.push(Import { line: tokens[at].0, engine: true, target: None });
            }
            first @ ("crate" | "super" | "self" | "segue_engine")
                if text(at + 1) == "::" && (at == 0 || text(at - 1) != "::") =>
            {
                let mut here = module.to_vec();
                here.extend(inline.iter().map(|(_, name)| (*name).to_owned()));
                let mut paths = Vec::new();
                at = leaves(tokens, at, &mut Vec::new(), &mut paths);
                let engine = first == "segue_engine";
                found.extend(paths.into_iter().filter_map(|(line, path)| resolve(&path, &here, engine, line)));
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Where a path leads, if it names a module of a package.
fn resolve(path: &[&str], here: &[String], engine: bool, line: usize) -> Option<Import> {
    let mut module: Vec<&str> = match path.first()? {
        &"crate" | &"segue_engine" => Vec::new(),
        _ => here.iter().map(String::as_str).collect(),
    };
    let rooted = matches!(path.first(), Some(&"crate" | &"segue_engine"));
    for segment in path.iter().skip(usize::from(rooted)) {
        match *segment {
            "self" => {}
            "super" => {
                module.pop();
            }
            name => module.push(name),
        }
    }
    let target = module.first().filter(|name| **name != "*").map(|name| (*name).to_owned());
    // A macro of the package has no module in its path.
    (!target.as_deref().is_some_and(|name| name.ends_with('!'))).then_some(Import { line, engine, target })
}

/// Reads one path or tree of paths from `at`; returns where it ends.
fn leaves<'a>(
    tokens: &'a [(usize, String)],
    at: usize,
    prefix: &mut Vec<&'a str>,
    paths: &mut Vec<(usize, Vec<&'a str>)>,
) -> usize {
    let text = |i: usize| tokens.get(i).map_or("", |token| token.1.as_str());
    let (mut at, outer) = (at, prefix.len());
    loop {
        match text(at) {
            "{" => {
                at += 1;
                while !matches!(text(at), "}" | "") {
                    at = if text(at) == "," { at + 1 } else { leaves(tokens, at, prefix, paths).max(at + 1) };
                }
                at += 1;
                break;
            }
            word if word == "*" || is_word(word) => {
                prefix.push(word);
                at += 1;
            }
            _ => {
                paths.push((tokens[at.min(tokens.len()) - 1].0, prefix.clone()));
                break;
            }
        }
        if text(at) == "::" && (matches!(text(at + 1), "{" | "*") || is_word(text(at + 1))) {
            at += 1;
            continue;
        }
        let line = tokens[at - 1].0;
        if text(at) == "!" && text(at + 1) != "=" {
            // Only the name of a macro directly in the package is told apart; deeper ones have their module in front.
            if prefix.len() == 2 {
                prefix.pop();
                prefix.push("!");
            }
        }
        paths.push((line, prefix.clone()));
        if text(at) == "as" {
            at += 2;
        }
        break;
    }
    prefix.truncate(outer);
    at
}

#[cfg(test)]
mod tests;
