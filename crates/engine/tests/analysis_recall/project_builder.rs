//! Builds a project: its parts as YAML trees, and functions that add to them.

use segue_engine::project::{SourceFile, Sources};

use crate::{
    rng::Rng,
    yaml::{Yaml, list, map, plain, text, write},
};

/// A flow.
pub struct Flow {
    pub id: String,
    /// Everything but the steps.
    pub keys: Vec<(String, Yaml)>,
    pub steps: Vec<Yaml>,
    /// The flow file that contains it.
    pub file: usize,
    /// Whether the mistake is the whole flow.
    pub marked: bool,
}

/// A project.
pub struct ProjectBuilder {
    pub rng: Rng,
    pub config: Yaml,
    pub endpoints: Yaml,
    pub slots: Vec<(String, Yaml)>,
    pub responses: Vec<(String, Yaml)>,
    pub actions: Vec<Yaml>,
    pub intents: Vec<Yaml>,
    pub flows: Vec<Flow>,
    pub agents: Vec<(String, Yaml)>,
    /// Parts of the domain that are in a second file.
    pub more_domain: Vec<(String, Yaml)>,
    /// Complete files as text, with the line of the mistake.
    pub raw: Vec<(String, String, u32)>,
    /// Whether custom actions are allowed: they may set any slot, so the analysis knows less.
    pub custom: bool,
    fresh: usize,
}

/// Types of slots that fragments ask for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    Float,
    Bool,
    /// With the values `low`, `middle`, `high` in words of the project.
    Choice,
}

pub const CHOICES: [&str; 3] = ["basic", "standard", "premium"];

impl ProjectBuilder {
    /// `custom`: whether the project may have actions of its own; `None` leaves it to chance.
    pub fn new(seed: u64, custom: Option<bool>) -> Self {
        let mut rng = Rng::scrambled(seed);
        let custom = custom.unwrap_or_else(|| rng.percent(50));
        let generator =
            map([("name", text("CompactLLMCommandGenerator")), ("llm", map([("model_group", text("main_model"))]))]);
        let config = map([
            ("recipe", text("default.v1")),
            ("language", text("en")),
            ("pipeline", list([generator])),
            ("policies", list([map([("name", text("FlowPolicy"))])])),
        ]);
        let model = map([("provider", text("openai")), ("model", text("gpt-4o")), ("api_key", plain("${KEY}"))]);
        let endpoints = map([
            ("model_groups", list([map([("id", text("main_model")), ("models", list([model]))])])),
            (
                "mcp_servers",
                list([map([
                    ("name", text("depot")),
                    ("url", text("http://localhost:8000/mcp")),
                    ("type", text("http")),
                ])]),
            ),
            ("action_endpoint", map([("url", text("http://localhost:5055/webhook"))])),
        ]);
        Self {
            rng,
            config,
            endpoints,
            slots: Vec::new(),
            responses: Vec::new(),
            actions: Vec::new(),
            intents: Vec::new(),
            flows: Vec::new(),
            agents: Vec::new(),
            more_domain: Vec::new(),
            raw: Vec::new(),
            custom,
            fresh: 0,
        }
    }

    /// A number that no name uses yet.
    pub fn number(&mut self) -> usize {
        self.fresh += 1;
        self.fresh
    }

    /// A slot of this kind, with a response that asks for it.
    pub fn slot(&mut self, stem: &str, kind: Kind) -> String {
        let name = format!("{stem}_{}", self.number());
        let mut pairs = match kind {
            Kind::Text => vec![("type", text("text"))],
            Kind::Float => vec![("type", text("float"))],
            Kind::Bool => vec![("type", text("bool"))],
            Kind::Choice => vec![("type", text("categorical")), ("values", list(CHOICES.map(text)))],
        };
        if self.rng.percent(40) {
            pairs.push(("mappings", list([map([("type", text("from_llm"))])])));
        }
        self.slots.push((name.clone(), map(pairs)));
        let mut variation = map([("text", text(format!("Which {}?", stem.replace('_', " "))))]);
        let values: &[&str] = match kind {
            Kind::Bool => &["true", "false"],
            Kind::Choice => &CHOICES,
            _ => &[],
        };
        if !values.is_empty() && self.rng.percent(60) {
            let button =
                |value: &&str| map([("title", text(*value)), ("payload", text(format!("/SetSlots({name}={value})")))]);
            variation.set("buttons", list(values.iter().map(button)));
        }
        self.responses.push((format!("utter_ask_{name}"), list([variation])));
        name
    }

    /// A slot that only flows, tools and actions set.
    pub fn held(&mut self, stem: &str, kind: &str) -> String {
        let name = format!("{stem}_{}", self.number());
        let mut pairs = vec![("type", text(kind))];
        if kind == "categorical" {
            pairs.push(("values", list(CHOICES.map(text))));
        }
        pairs.push(("mappings", list([map([("type", text("controlled"))])])));
        self.slots.push((name.clone(), map(pairs)));
        name
    }

    /// A response with this text; its name.
    pub fn says(&mut self, words: &str) -> String {
        let name = format!("utter_line_{}", self.number());
        self.responses.push((name.clone(), list([map([("text", text(words))])])));
        name
    }

    /// A response that prints these slots.
    pub fn prints<'s>(&mut self, slots: impl IntoIterator<Item = &'s String>) -> String {
        let shown: Vec<String> = slots.into_iter().map(|slot| format!("{{{slot}}}")).collect();
        self.says(&format!("So far: {}.", shown.join(", ")))
    }

    /// Adds a flow.
    pub fn flow(&mut self, id: &str, description: &str, steps: Vec<Yaml>) -> usize {
        let file = self.rng.below(2);
        let keys = vec![("description".to_owned(), text(description))];
        self.flows.push(Flow { id: id.to_owned(), keys, steps, file, marked: false });
        self.flows.len() - 1
    }

    /// A flow and a position among its steps that is reachable.
    pub fn place(&mut self) -> (usize, usize) {
        let flows: Vec<usize> =
            (0..self.flows.len()).filter(|at| !self.flows[*at].id.starts_with("pattern_")).collect();
        let flow = flows[self.rng.below(flows.len())];
        let steps = &self.flows[flow].steps;
        let open: Vec<usize> = (0..=steps.len())
            .filter(|at| *at == 0 || !(steps[at - 1].has("next") || steps[at - 1].has("link")))
            .collect();
        (flow, open[self.rng.below(open.len())])
    }

    /// Inserts steps at a random position; returns the index of the flow.
    pub fn insert(&mut self, fragment: Vec<Yaml>) -> usize {
        let (flow, at) = self.place();
        self.flows[flow].steps.splice(at..at, fragment);
        flow
    }

    pub fn response(&mut self, name: &str) -> &mut Yaml {
        &mut self.responses.iter_mut().find(|(key, _)| key == name).unwrap().1
    }

    pub fn slot_keys(&mut self, name: &str) -> &mut Yaml {
        &mut self.slots.iter_mut().find(|(key, _)| key == name).unwrap().1
    }

    /// The files as trees.
    fn files(&self) -> Vec<(String, Yaml)> {
        let mut files =
            vec![("config.yml".to_owned(), self.config.clone()), ("endpoints.yml".into(), self.endpoints.clone())];
        let mut domain = vec![("version".to_owned(), text("3.1"))];
        let mut add = |key: &str, node: Yaml| domain.push((key.to_owned(), node));
        if !self.intents.is_empty() {
            add("intents", list(self.intents.clone()));
        }
        add("slots", Yaml::Map(self.slots.clone()));
        add("responses", Yaml::Map(self.responses.clone()));
        if !self.actions.is_empty() {
            add("actions", list(self.actions.clone()));
        }
        files.push(("domain/main.yml".into(), Yaml::Map(domain)));
        if !self.more_domain.is_empty() {
            files.push(("domain/more.yml".into(), Yaml::Map(self.more_domain.clone())));
        }
        for file in 0..3 {
            let flows = self.flows.iter().filter(|flow| flow.file == file);
            let flows: Vec<(String, Yaml)> = flows
                .map(|flow| {
                    let mut pairs = flow.keys.clone();
                    pairs.push(("steps".to_owned(), list(flow.steps.clone())));
                    // A mark on a flow as a whole means its first line.
                    (flow.id.clone(), if flow.marked { Yaml::Map(pairs).marked() } else { Yaml::Map(pairs) })
                })
                .collect();
            if !flows.is_empty() {
                files.push((format!("data/flows_{file}.yml"), map([("flows", Yaml::Map(flows))])));
            }
        }
        for (name, agent) in &self.agents {
            files.push((format!("sub_agents/{name}/config.yml"), agent.clone()));
        }
        files
    }

    /// The project in the form of the loader, and every marked place: file, first and last line.
    pub fn sources(&self) -> (Sources, Vec<(String, u32, u32)>) {
        let mut sources = Sources::default();
        let mut marks = Vec::new();
        let mut put = |path: &str, text: String| {
            let file = SourceFile { path: path.into(), text: text.into() };
            match path.split('/').next().unwrap() {
                "config.yml" => sources.config = Some(file),
                "endpoints.yml" => sources.endpoints = Some(file),
                "domain" => sources.domain.push(file),
                "sub_agents" => sources.agents.push(file),
                _ => sources.data.push(file),
            }
        };
        for (path, tree) in self.files() {
            let written = write(&tree);
            let lines: Vec<&str> = written.text.lines().collect();
            for (first, last) in &written.marks {
                marks.push((path.clone(), *first, head_of_flow(&lines, *first).unwrap_or(*last)));
            }
            put(&path, written.text);
        }
        for (path, text, line) in &self.raw {
            marks.push((path.clone(), *line, *line));
            put(path, text.clone());
        }
        sources.patterns = patterns();
        sources.environment.insert("KEY".into(), "secret".into());
        (sources, marks)
    }
}

/// For a mark on a whole flow: the last line before its steps.
fn head_of_flow(lines: &[&str], first: u32) -> Option<u32> {
    let at = first as usize - 1;
    let is_flow = lines[at].starts_with("  ") && !lines[at].starts_with("   ") && lines[0] == "flows:";
    let steps = lines[at..].iter().position(|line| line.starts_with("    steps:"))?;
    is_flow.then(|| first + u32::try_from(steps).unwrap())
}

/// The built-in patterns, as the runtime passes them.
fn patterns() -> Vec<SourceFile> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../flows/patterns");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let file = |path: &std::path::PathBuf| SourceFile {
        path: format!("(built in)/{}", path.file_name().unwrap().to_str().unwrap()).as_str().into(),
        text: std::fs::read_to_string(path).unwrap().into(),
    };
    paths.iter().map(file).collect()
}

// ---- steps ----

pub fn act(name: &str) -> Yaml {
    map([("action", text(name))])
}

pub fn ask(slot: &str) -> Yaml {
    map([("collect", text(slot))])
}

pub fn described(slot: &str) -> Yaml {
    ask(slot).with("description", text(format!("what the user says about {}", slot.replace('_', " "))))
}

pub fn fill(slot: &str, value: Yaml) -> Yaml {
    map([("set_slots", list([map([(slot, value)])]))])
}

pub fn rule(condition: &str, utter: &str) -> Yaml {
    map([("if", text(condition)), ("utter", text(utter))])
}

/// `next` with branches; the last is `else`.
pub fn ways(branches: Vec<(Yaml, Yaml)>, otherwise: Yaml) -> Yaml {
    let mut items: Vec<Yaml> =
        branches.into_iter().map(|(condition, then)| map([("if", condition), ("then", then)])).collect();
    items.push(map([("else", otherwise)]));
    list(items)
}

/// A list of steps that ends the flow.
pub fn ending(mut steps: Vec<Yaml>) -> Yaml {
    steps.last_mut().unwrap().set("next", text("END"));
    list(steps)
}

/// A list of steps that continues at a step.
pub fn going(mut steps: Vec<Yaml>, to: &str) -> Yaml {
    steps.last_mut().unwrap().set("next", text(to));
    list(steps)
}

/// With an id.
pub fn named(id: &str, step: Yaml) -> Yaml {
    let Yaml::Map(pairs) = step else { panic!("no step") };
    Yaml::Map(std::iter::once(("id".to_owned(), text(id))).chain(pairs).collect())
}
