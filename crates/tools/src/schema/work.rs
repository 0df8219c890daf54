//! How much work a schema makes: an upper bound of the schema nodes that a check visits, computed before the check.
//!
//! A schema of a few kilobytes can make a check visit millions of nodes, because references may double with each level, and
//! because each element of a value may meet all of them. Schemas come from servers and models, and values too, so both
//! are bounded: [`SchemaGraph::build`] rejects a schema that is too large with its references expanded, and
//! [`SchemaGraph::is_within`] says whether a check of one value stays within a number of steps. A step is one node that
//! meets one value; keywords with lists, patterns and comparisons count as more.

use std::collections::{HashMap, HashSet};

use regex::RegexBuilder;
use serde_json::{Map, Value as Json};

use super::SchemaError;
use segue_base::limits;

/// A schema as nodes, each of which applies others to the same value or to its parts.
pub(super) struct SchemaGraph {
    nodes: Vec<Node>,
}

#[derive(Default)]
struct Node {
    /// Steps for any value: one, and one for each entry of its keywords.
    steps: u64,
    /// Nodes that apply to the same value.
    same: Vec<usize>,
    /// How often a check may visit the nodes in `same`: twice if it must also know which parts they evaluated.
    visits: usize,
    /// Nodes that apply to one property.
    properties: HashMap<String, usize>,
    /// Nodes that may apply to each property or element.
    every: Vec<usize>,
    /// Nodes that apply to each name of a property.
    names: Vec<usize>,
    /// The cost of its patterns for a text, and for the name of each property.
    text: PatternCost,
    name: PatternCost,
    /// Whether elements are compared with each other.
    compares_elements: bool,
    /// Whether it contains itself. A check remembers its result for such a node and a value.
    is_recursive: bool,
}

/// What it costs to search a text for patterns.
#[derive(Clone, Copy, Default)]
struct PatternCost {
    per_byte: u64,
    /// Whether some pattern has lookaround or back-references, which may search the text again at each position.
    is_quadratic: bool,
}

impl PatternCost {
    fn add(&mut self, other: Self) {
        self.per_byte += other.per_byte;
        self.is_quadratic |= other.is_quadratic;
    }

    fn steps(self, text: &str) -> u64 {
        let bytes = text.len() as u64;
        let quadratic = if self.is_quadratic { bytes * bytes / 128 } else { 0 };
        (bytes / 64).saturating_add(self.per_byte.saturating_mul(bytes)).saturating_add(quadratic)
    }
}

/// Keywords whose schemas apply to the same value.
const SAME: [&str; 9] = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"];
/// Keywords whose schemas apply to properties or elements that are not named.
const EVERY: [&str; 8] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "items",
    "patternProperties",
    "prefixItems",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// References. Without other documents and nested bases, all of them are resolved like `$ref`.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

impl SchemaGraph {
    /// Reads a schema.
    ///
    /// # Errors
    /// It has a reference to another document, a cycle of references, a pattern that is too large, or too many nodes or
    /// levels with its references expanded.
    pub(super) fn build(root: &Json) -> Result<Self, SchemaError> {
        let mut builder =
            Builder { root, nodes: vec![Node::default()], ids: HashMap::new(), work: vec![(0, root)], patterns: 0 };
        builder.ids.insert(std::ptr::from_ref(root), 0);
        while let Some((id, schema)) = builder.work.pop() {
            let node = builder.read(schema, id == 0)?;
            if let Some(place) = builder.nodes.get_mut(id) {
                *place = node;
            }
        }
        let mut graph = Self { nodes: builder.nodes };
        let mut sizes = vec![Size::New; graph.nodes.len()];
        let (nodes, _) = graph.expand(0, 0, &mut sizes)?;
        if nodes > limits::SCHEMA_NODES {
            return Err(SchemaError::TooManyNodes);
        }
        graph.reject_cycles()?;
        Ok(graph)
    }

    /// The nodes of the subtree with its references expanded, and its levels. A node inside itself counts as one.
    fn expand(&mut self, id: usize, depth: usize, sizes: &mut [Size]) -> Result<(u64, usize), SchemaError> {
        match sizes.get(id).copied() {
            Some(Size::Known { nodes, levels }) if depth + levels <= limits::SCHEMA_LEVELS => {
                return Ok((nodes, levels));
            }
            Some(Size::Open) => {
                if let Some(node) = self.nodes.get_mut(id) {
                    node.is_recursive = true;
                }
                return Ok((1, 1));
            }
            Some(Size::New) if depth < limits::SCHEMA_LEVELS => {}
            _ => return Err(SchemaError::TooDeep),
        }
        let Some(node) = self.nodes.get(id) else { return Ok((0, 0)) };
        let same = std::iter::repeat_n(&node.same, node.visits).flatten();
        let children: Vec<usize> =
            same.chain(node.properties.values()).chain(&node.every).chain(&node.names).copied().collect();
        if let Some(size) = sizes.get_mut(id) {
            *size = Size::Open;
        }
        let (mut nodes, mut levels) = (1_u64, 0);
        for child in children {
            let (more, deeper) = self.expand(child, depth + 1, sizes)?;
            (nodes, levels) = (nodes.saturating_add(more), levels.max(deeper));
        }
        if let Some(size) = sizes.get_mut(id) {
            *size = Size::Known { nodes, levels: levels + 1 };
        }
        Ok((nodes, levels + 1))
    }

    /// Rejects nodes that apply to the same value again and again without end.
    fn reject_cycles(&self) -> Result<(), SchemaError> {
        // The number of nodes that apply each node to the same value. Nodes of a cycle never reach zero.
        let mut users = vec![0_usize; self.nodes.len()];
        for child in self.nodes.iter().flat_map(|node| &node.same) {
            if let Some(count) = users.get_mut(*child) {
                *count += 1;
            }
        }
        let mut free: Vec<usize> = (0..users.len()).filter(|id| users.get(*id) == Some(&0)).collect();
        let mut done = 0;
        while let Some(id) = free.pop() {
            done += 1;
            for child in self.nodes.get(id).into_iter().flat_map(|node| &node.same) {
                if let Some(count) = users.get_mut(*child) {
                    *count -= 1;
                    if *count == 0 {
                        free.push(*child);
                    }
                }
            }
        }
        if done == self.nodes.len() { Ok(()) } else { Err(SchemaError::ReferenceCycle) }
    }

    /// Whether a check of `value` that only says yes or no stays within `limit` steps.
    pub(super) fn is_within(&self, value: &Json, limit: u64) -> bool {
        let mut count = Count { graph: self, left: limit, seen: Some(HashSet::new()) };
        count.visit(0, value, Place::default()).is_some()
    }

    /// Whether a check of `value` that collects all problems stays within `limit` steps. Such a check remembers no results,
    /// and each problem holds its place.
    pub(super) fn problems_are_within(&self, value: &Json, limit: u64) -> bool {
        Count { graph: self, left: limit, seen: None }.visit(0, value, Place::default()).is_some()
    }
}

/// What is known of the size of a subtree.
#[derive(Clone, Copy)]
enum Size {
    New,
    /// It is being counted.
    Open,
    Known {
        nodes: u64,
        levels: usize,
    },
}

/// Reads schemas until all that can be reached have become nodes.
struct Builder<'a> {
    root: &'a Json,
    nodes: Vec<Node>,
    /// The nodes of the schemas seen so far.
    ids: HashMap<*const Json, usize>,
    /// Schemas that are still to be read.
    work: Vec<(usize, &'a Json)>,
    /// Bytes of all patterns, compiled.
    patterns: usize,
}

impl<'a> Builder<'a> {
    fn id(&mut self, schema: &'a Json) -> usize {
        *self.ids.entry(std::ptr::from_ref(schema)).or_insert_with(|| {
            self.nodes.push(Node::default());
            self.work.push((self.nodes.len() - 1, schema));
            self.nodes.len() - 1
        })
    }

    /// The schemas in the value of a keyword: one, a list of them, or one per name. Lists of names are none.
    fn ids(&mut self, keyword: &str, value: &'a Json) -> Vec<usize> {
        let by_name = ["patternProperties", "dependentSchemas", "dependencies"].contains(&keyword);
        match value {
            Json::Object(schemas) if by_name => {
                schemas.values().filter(|schema| !schema.is_array()).map(|schema| self.id(schema)).collect()
            }
            Json::Array(schemas) => schemas.iter().map(|schema| self.id(schema)).collect(),
            schema => vec![self.id(schema)],
        }
    }

    fn read(&mut self, schema: &'a Json, is_root: bool) -> Result<Node, SchemaError> {
        let mut node = Node { steps: 1, visits: 1, ..Node::default() };
        let Json::Object(map) = schema else { return Ok(node) };
        let is_old =
            self.root.get("$schema").and_then(Json::as_str).is_some_and(|dialect| dialect.contains("draft-04"));
        if !is_root
            && (map.get("$id").is_some_and(Json::is_string) || (is_old && map.get("id").is_some_and(Json::is_string)))
        {
            return Err(SchemaError::NestedId);
        }
        for (keyword, value) in map {
            node.steps += entries(keyword, value);
            match (keyword.as_str(), value) {
                (keyword, Json::String(reference)) if REFERENCES.contains(&keyword) => {
                    let target = self.target(reference)?;
                    node.same.push(target);
                }
                ("properties", Json::Object(properties)) => {
                    node.properties = properties.iter().map(|(name, schema)| (name.clone(), self.id(schema))).collect();
                }
                ("propertyNames", _) => node.names.push(self.id(value)),
                ("pattern", Json::String(pattern)) => node.text.add(self.pattern(pattern)?),
                ("format", _) => node.text.add(PatternCost { per_byte: 1, is_quadratic: false }),
                ("uniqueItems", _) => node.compares_elements = true,
                (keyword, _) if SAME.contains(&keyword) => node.same.extend(self.ids(keyword, value)),
                (keyword, _) if EVERY.contains(&keyword) => {
                    if let ("patternProperties", Json::Object(patterns)) = (keyword, value) {
                        for pattern in patterns.keys() {
                            node.name.add(self.pattern(pattern)?);
                        }
                    }
                    if keyword.starts_with("unevaluated") {
                        node.visits = 2;
                    }
                    node.every.extend(self.ids(keyword, value));
                }
                _ => {}
            }
        }
        Ok(node)
    }

    /// The node that a reference names.
    fn target(&mut self, reference: &str) -> Result<usize, SchemaError> {
        let remote = || SchemaError::RemoteReference { reference: reference.to_owned() };
        let pointer = reference.strip_prefix('#').ok_or_else(remote)?;
        let pointer = percent_encoding::percent_decode_str(pointer).decode_utf8().map_err(|_| remote())?;
        match self.root.pointer(&pointer) {
            Some(schema) => Ok(self.id(schema)),
            None => Err(remote()),
        }
    }

    /// The cost of a pattern, by the size of its automaton.
    fn pattern(&mut self, pattern: &str) -> Result<PatternCost, SchemaError> {
        for (bytes, per_byte) in [(4 << 10, 1), (64 << 10, 16), (512 << 10, 128)] {
            let (size, cost) = match RegexBuilder::new(pattern).size_limit(bytes).build() {
                Ok(_) => (bytes, PatternCost { per_byte, is_quadratic: false }),
                Err(regex::Error::CompiledTooBig(_)) => continue,
                // It has lookaround or back-references, or is written for another dialect.
                Err(_) => (64 << 10, PatternCost { per_byte: 1, is_quadratic: true }),
            };
            self.patterns += size;
            return if self.patterns <= limits::SCHEMA_PATTERNS { Ok(cost) } else { break };
        }
        Err(SchemaError::PatternsTooLarge)
    }
}

/// The entries in the value of a keyword, which a check may have to go through.
fn entries(keyword: &str, value: &Json) -> u64 {
    let count = match value {
        // Values are compared with them byte by byte.
        _ if matches!(keyword, "enum" | "const") => value.to_string().len() / 16,
        Json::Array(items) => items.len(),
        Json::Object(map) if keyword != "$defs" && keyword != "definitions" => map.len(),
        _ => 0,
    };
    count as u64
}

/// Counts the steps of one check.
struct Count<'a> {
    graph: &'a SchemaGraph,
    left: u64,
    /// Recursive nodes with the values they have met, if the check remembers their results.
    seen: Option<HashSet<(usize, *const Json)>>,
}

/// A place in a value: the bytes of its pointer, and the nodes above.
#[derive(Clone, Copy, Default)]
struct Place {
    bytes: usize,
    depth: usize,
}

impl Place {
    fn below(self, name: usize) -> Self {
        Self { bytes: self.bytes + 1 + name, depth: self.depth + 1 }
    }
}

impl Count<'_> {
    /// Counts steps; `None` if there are too many.
    fn add(&mut self, steps: u64) -> Option<()> {
        self.left = self.left.checked_sub(steps)?;
        Some(())
    }

    fn visit(&mut self, id: usize, value: &Json, at: Place) -> Option<()> {
        let node = self.graph.nodes.get(id)?;
        // A check is as deep as this count, and its stack is limited.
        if at.depth > limits::SCHEMA_CHECK_DEPTH {
            return None;
        }
        match &mut self.seen {
            Some(seen) if node.is_recursive && (value.is_array() || value.is_object()) => {
                let is_new = seen.insert((id, std::ptr::from_ref(value)));
                self.add(16)?;
                if !is_new {
                    return Some(());
                }
            }
            Some(_) => {}
            None => self.add(at.bytes as u64 / 64)?,
        }
        self.add(node.steps)?;
        for child in std::iter::repeat_n(&node.same, node.visits).flatten() {
            self.visit(*child, value, at.below(0))?;
        }
        match value {
            Json::String(text) => self.add(node.text.steps(text)),
            Json::Array(items) => self.elements(node, items, at),
            Json::Object(map) => self.entries(node, map, at),
            Json::Null | Json::Bool(_) | Json::Number(_) => Some(()),
        }
    }

    fn elements(&mut self, node: &Node, items: &[Json], at: Place) -> Option<()> {
        if node.compares_elements {
            // Few elements are compared in pairs, many by their hash.
            let times = if items.len() <= 16 { items.len() as u64 } else { 2 };
            items.iter().try_for_each(|item| self.compare(item, times))?;
        }
        self.add(items.len() as u64 * node.every.len() as u64)?;
        for item in items {
            for child in &node.every {
                self.visit(*child, item, at.below(7))?;
            }
        }
        Some(())
    }

    fn entries(&mut self, node: &Node, map: &Map<String, Json>, at: Place) -> Option<()> {
        for (name, value) in map {
            self.add(1 + node.name.steps(name))?;
            let property = node.properties.get(name);
            for child in property.into_iter().chain(&node.every) {
                self.visit(*child, value, at.below(name.len()))?;
            }
            if !node.names.is_empty() {
                let name = Json::String(name.clone());
                for child in &node.names {
                    self.visit(*child, &name, at.below(0))?;
                }
            }
        }
        Some(())
    }

    /// Counts the comparisons of one element.
    fn compare(&mut self, value: &Json, times: u64) -> Option<()> {
        let own = match value {
            Json::String(text) => text.len() / 64,
            Json::Object(map) => map.keys().map(|name| 1 + name.len() / 64).sum(),
            _ => 0,
        };
        self.add(times * (1 + own as u64))?;
        match value {
            Json::Array(items) => items.iter().try_for_each(|item| self.compare(item, times)),
            Json::Object(map) => map.values().try_for_each(|value| self.compare(value, times)),
            _ => Some(()),
        }
    }
}
