//! The rule `layers`: a module imports from lower layers and from its own submodules, never from a higher layer, and from its own layer
//! only where the table says so. The rule reads the layer tables of ARCHITECTURE.md, so that the page cannot differ from the check.

use std::collections::BTreeSet;

use super::markdown_tables::{LayerTable, layer_table};
use super::{Tree, Violation, Violations};
use crate::rust_source::{RustSource, is_word};

const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// One of the two packages that have layers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Package {
    Root,
    Engine,
}

struct LayerTables {
    root: LayerTable,
    engine: LayerTable,
    /// The names that `lib.rs` re-exports from lower packages. Any module may import them: cargo guarantees that a lower package
    /// imports nothing from a higher one.
    root_reexports: BTreeSet<String>,
    engine_reexports: BTreeSet<String>,
}

impl LayerTables {
    fn of(&self, package: Package) -> &LayerTable {
        match package {
            Package::Root => &self.root,
            Package::Engine => &self.engine,
        }
    }

    fn reexports(&self, package: Package) -> &BTreeSet<String> {
        match package {
            Package::Root => &self.root_reexports,
            Package::Engine => &self.engine_reexports,
        }
    }

    /// Checks whether a module may import another. The error is the message of the violation.
    fn check_import(&self, from: (Package, &str), to: (Package, &str)) -> Result<(), String> {
        if from == to || self.reexports(to.0).contains(to.1) {
            return Ok(());
        }
        let Some(importer) = self.of(from.0).get(from.1) else {
            return Ok(()); // `check` reports it once for the file.
        };
        let Some(target) = self.of(to.0).get(to.1) else {
            return Err(format!(
                "`{}` is not a module of the layer table: import from the module where the item is defined",
                to.1
            ));
        };
        match (importer.layer, target.layer) {
            (None, _) => Ok(()),
            (_, None) => Err(format!("`{}` is outside the layers: no module may import it", to.1)),
            (Some(own), Some(other)) if other < own => Ok(()),
            (Some(own), Some(other)) if other == own => {
                // An entry also allows a module of the root package to import the module of the same name in the engine.
                let is_namesake = from.0 != to.0 && from.1 == to.1;
                let is_listed =
                    (from.0 == to.0 || is_namesake) && importer.also_imports.iter().any(|name| name == to.1);
                if is_listed || (importer.imports_whole_layer && target.imports_whole_layer) {
                    return Ok(());
                }
                Err(format!("`{}` must not import `{}`: both are in layer {own}", from.1, to.1))
            }
            (Some(own), Some(other)) => {
                Err(format!("`{}` (layer {own}) must not import `{}` (layer {other})", from.1, to.1))
            }
        }
    }
}

pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Violations::new("layers");
    let text = tree.texts.get(ARCHITECTURE).map_or("", String::as_str);
    let tables = match (layer_table(text, "layer of the root package"), layer_table(text, "layer of the engine")) {
        (Ok(root), Ok(engine)) => {
            let reexports = |lib: &str| tree.rust.get(lib).map(reexported_names).unwrap_or_default();
            LayerTables {
                root,
                engine,
                root_reexports: reexports("src/lib.rs"),
                engine_reexports: reexports("crates/engine/src/lib.rs"),
            }
        }
        (Err((line, message)), _) | (_, Err((line, message))) => {
            violations.add(ARCHITECTURE, line, message);
            return violations.items;
        }
    };
    for (path, source) in &tree.rust {
        let (package, inner) = match (path.strip_prefix("src/"), path.strip_prefix("crates/engine/src/")) {
            (Some(inner), _) => (Package::Root, inner),
            (_, Some(inner)) => (Package::Engine, inner),
            _ => continue,
        };
        let module_path = module_path(inner);
        // `lib.rs` and `main.rs` are above all layers.
        let Some(module) = module_path.first().cloned() else { continue };
        if !tables.of(package).contains_key(&module) {
            let message = format!("the module `{module}` is in no layer: add it to the layer table of {ARCHITECTURE}");
            violations.add(path, 1, message);
            continue;
        }
        for import in imports(source, &module_path) {
            if source.in_test(import.line) {
                continue;
            }
            let to = if import.is_engine { Package::Engine } else { package };
            let result = match import.target.as_deref() {
                None => Err("an import of the whole package hides which modules are used: name the module".to_owned()),
                Some(target) => tables.check_import((package, &module), (to, target)),
            };
            if let Err(message) = result {
                violations.add(path, import.line, message);
            }
        }
    }
    violations.items
}

/// The names in statements such as `pub use segue_base::{clock, limits};` and `pub use segue_llm as llm;`, except those of the engine,
/// which has its own layer table.
fn reexported_names(lib: &RustSource) -> BTreeSet<String> {
    let tokens: Vec<&str> = lib.tokens.iter().map(|(_, token)| token.as_str()).collect();
    let uses = tokens.split(|token| *token == ";").filter_map(|tokens| tokens.split(|token| *token == "use").nth(1));
    let is_lower_package = |name: &str| name.starts_with("segue_") && name != "segue_engine";
    let reexports = uses.filter(|names| names.iter().any(|name| is_lower_package(name)));
    reexports.flatten().filter(|name| is_word(name)).map(|name| (*name).to_owned()).collect()
}

/// The module path of a file; `inner` is its path below `src/`. Empty for `lib.rs` and `main.rs`.
fn module_path(inner: &str) -> Vec<String> {
    let mut module: Vec<String> = inner.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| last == "mod") || matches!(inner, "lib.rs" | "main.rs") {
        module.pop();
    }
    module
}

/// A path in the code that names a module of a package: in a `use` statement or in an expression.
struct Import {
    line: usize,
    /// Whether the path starts with `segue_engine`.
    is_engine: bool,
    /// The module directly below `src/`; `None` if the path names the whole package.
    target: Option<String>,
}

/// Every path that starts with `crate`, `segue_engine`, `super` or `self`. `module` is the module path of the file.
fn imports(source: &RustSource, module: &[String]) -> Vec<Import> {
    let tokens = &source.tokens;
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
                found.push(Import { line: tokens[at].0, is_engine: true, target: None });
            }
            first @ ("crate" | "super" | "self" | "segue_engine")
                if text(at + 1) == "::" && (at == 0 || text(at - 1) != "::") =>
            {
                let mut current = module.to_vec();
                current.extend(inline.iter().map(|(_, name)| (*name).to_owned()));
                let mut paths = Vec::new();
                at = read_paths(tokens, at, &mut Vec::new(), &mut paths);
                let is_engine = first == "segue_engine";
                found.extend(paths.into_iter().filter_map(|(line, path)| resolve(&path, &current, is_engine, line)));
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// The import that a path in the module `current` makes; `None` for a macro of the package.
fn resolve(path: &[&str], current: &[String], is_engine: bool, line: usize) -> Option<Import> {
    let is_absolute = matches!(path.first()?, &"crate" | &"segue_engine");
    let mut module: Vec<&str> = if is_absolute { Vec::new() } else { current.iter().map(String::as_str).collect() };
    for segment in path.iter().skip(usize::from(is_absolute)) {
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
    (!target.as_deref().is_some_and(|name| name.ends_with('!'))).then_some(Import { line, is_engine, target })
}

/// Reads the path or use tree that starts at the token `at`, and appends each of its paths with a line to `paths`. `prefix` is the path
/// so far. Returns the index of the first token after it.
fn read_paths<'a>(
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
                    at = if text(at) == "," { at + 1 } else { read_paths(tokens, at, prefix, paths).max(at + 1) };
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
            // Only a macro in the root of the package needs the mark; the path of another one contains its module.
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
