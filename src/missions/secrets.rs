//! Protected inputs: `${secrets.NAME}` is replaced in the arguments of tools that leave the program, and the values are masked in what
//! every tool returns. Other tools do not get them: what a model can read, search or run would tell it the value.

use std::{collections::HashSet, sync::Arc};

use async_trait::async_trait;
use minijinja::context;
use segue_engine::{
    ids::ServerName,
    project::{
        HTTP_TOOLS,
        missions::{InputDef, MissionDef, ValueKind},
    },
};
use serde_json::Value as Json;

use super::parts::MissionParts;
use crate::{
    delegation,
    prompts::PromptSet,
    secret::Secret,
    tools::{
        CallWrapper, FailureKind, Progress, REGISTERED_SOURCE, ToolCallContext, ToolHandler, ToolInfo, ToolOutcome,
        WrappedTool, builtin, mask::Masks, script, workspace,
    },
};

/// Sources of tools of this program. A server of such a name gets no secrets.
const OWN_SOURCES: [&str; 5] =
    [workspace::SOURCE, workspace::SLOT_SOURCE, script::SOURCE, delegation::SOURCE, REGISTERED_SOURCE];

/// The secrets of a mission.
#[derive(Clone)]
pub(super) struct Secrets(Arc<Parts>);

struct Parts {
    secrets: Vec<ProtectedInput>,
    masks: Masks,
    servers: HashSet<ServerName>,
    prompts: Arc<PromptSet>,
}

/// A secret that has a value.
struct ProtectedInput {
    name: Arc<str>,
    value: Secret,
    /// The tools that get it; `None`: all that leave the program.
    tools: Option<Vec<Arc<str>>>,
}

/// Why a call with a secret is not sent.
enum Problem {
    /// There is no secret of this name.
    Unknown(String),
    /// The tool does not get it.
    Closed(Arc<str>),
}

impl Secrets {
    pub(super) fn of(def: &MissionDef, parts: &MissionParts) -> Self {
        Self::new(def, parts.sources.keys().cloned().collect(), parts.prompts.clone())
    }
    fn new(def: &MissionDef, servers: HashSet<ServerName>, prompts: Arc<PromptSet>) -> Self {
        let of_input = |(name, input): (&Arc<str>, &InputDef)| {
            let value = input.secret.as_ref().filter(|secret| input.protected && !secret.is_empty())?;
            Some(ProtectedInput { name: name.clone(), value: Secret::new(&**value), tools: input.secret_tools.clone() })
        };
        let masked: Vec<Secret> = def.inputs.values().filter(|input| input.protected).flat_map(masked_values).collect();
        Self(Arc::new(Parts {
            secrets: def.inputs.iter().filter_map(of_input).collect(),
            masks: Masks::of_secrets(&masked),
            servers,
            prompts,
        }))
    }
    fn get(&self, name: &str) -> Option<&ProtectedInput> {
        self.0.secrets.iter().find(|secret| *secret.name == *name)
    }
    fn insert(&self, value: Json) -> Json {
        match value {
            Json::String(text) => Json::String(self.0.secrets.iter().fold(text, |text, secret| {
                text.replace(&format!("${{secrets.{}}}", secret.name), secret.value.expose())
            })),
            Json::Array(values) => values.into_iter().map(|value| self.insert(value)).collect(),
            Json::Object(fields) => {
                Json::Object(fields.into_iter().map(|(name, value)| (name, self.insert(value))).collect())
            }
            other => other,
        }
    }
    /// The first name in the arguments, as in `${secrets.NAME}`, that is not a protected input.
    pub(super) fn unknown(&self, arguments: &Json) -> Option<String> {
        names(arguments).into_iter().find(|name| self.get(name).is_none()).map(str::to_owned)
    }
    /// Whether a tool leaves the program, so that no other tool of a model can read what it gets.
    fn leaves_program(&self, tool: &ToolInfo) -> bool {
        match &*tool.source {
            builtin::SOURCE => HTTP_TOOLS.contains(&&*tool.name),
            source if OWN_SOURCES.contains(&source) => false,
            source => self.0.servers.contains(source),
        }
    }
    fn problem(&self, tool: &ToolInfo, arguments: &Json) -> Option<Problem> {
        names(arguments).into_iter().find_map(|name| match self.get(name) {
            None => Some(Problem::Unknown(name.to_owned())),
            Some(secret) if self.leaves_program(tool) && secret.is_for(tool) => None,
            Some(secret) => Some(Problem::Closed(secret.name.clone())),
        })
    }
    fn text(&self, problem: &Problem, tool: &ToolInfo) -> String {
        let variables = match problem {
            Problem::Unknown(name) => context! { envelope => "unknown_secret", text => name },
            Problem::Closed(name) => {
                let tools = self.get(name).and_then(|secret| secret.tools.as_ref());
                let tools =
                    tools.map(|tools| tools.iter().map(|tool| format!("`{tool}`")).collect::<Vec<_>>().join(", "));
                context! { envelope => "closed_secret", text => &**name, tool => &*tool.name, tools }
            }
        };
        let text = self.0.prompts.render(&self.0.prompts.mission_envelopes, variables);
        text.map(|text| text.trim().to_owned()).unwrap_or_else(|error| {
            tracing::error!("a prompt of missions cannot be rendered: {error}");
            String::new()
        })
    }
    /// A tool that gets the secrets that are for it, and returns none.
    pub(super) fn wrap(&self, tool: Arc<dyn ToolHandler>) -> Arc<dyn ToolHandler> {
        if self.0.secrets.is_empty() { tool } else { Arc::new(WrappedTool::new(tool, self.clone())) }
    }
    /// The context of a call, with masked progress.
    fn masked_context(&self, cx: &ToolCallContext) -> ToolCallContext {
        let mut cx = cx.clone();
        if let Some(report) = cx.progress.take() {
            let secrets = self.clone();
            cx.progress = Some(Arc::new(move |progress: Progress| {
                let mut masked = progress;
                masked.message = masked.message.map(|text| secrets.0.masks.apply(&text));
                report(masked);
            }));
        }
        cx
    }
}

impl ProtectedInput {
    fn is_for(&self, tool: &ToolInfo) -> bool {
        let (source, name) = (&*tool.source, &*tool.name);
        let is_named = |named: &Arc<str>| match named.split_once('.') {
            Some((server, tool)) => (server, tool) == (source, name),
            None => **named == *source || (source == builtin::SOURCE && **named == *name),
        };
        self.tools.as_ref().is_none_or(|tools| tools.iter().any(is_named))
    }
}

/// The value of a protected input; of a list or an object also its parts, which a server may return one by one.
fn masked_values(input: &InputDef) -> Vec<Secret> {
    let Some(value) = input.secret.as_deref() else { return Vec::new() };
    let mut values = vec![Secret::new(value)];
    if matches!(input.field.kind, ValueKind::List | ValueKind::Object | ValueKind::Map)
        && let Ok(json) = serde_json::from_str::<Json>(value)
    {
        collect_parts(&json, &mut values);
    }
    values
}

fn collect_parts(value: &Json, parts: &mut Vec<Secret>) {
    match value {
        Json::String(text) => parts.push(Secret::new(text.as_str())),
        Json::Number(number) => parts.push(Secret::new(number.to_string())),
        Json::Array(values) => values.iter().for_each(|value| collect_parts(value, parts)),
        Json::Object(fields) => fields.values().for_each(|value| collect_parts(value, parts)),
        Json::Null | Json::Bool(_) => {}
    }
}

/// The names in `${secrets.NAME}` in all texts of a value, names of fields included.
fn names(value: &Json) -> Vec<&str> {
    match value {
        Json::String(text) => names_in(text),
        Json::Array(values) => values.iter().flat_map(names).collect(),
        Json::Object(fields) => {
            fields.iter().flat_map(|(name, value)| names_in(name).into_iter().chain(names(value))).collect()
        }
        _ => Vec::new(),
    }
}

fn names_in(text: &str) -> Vec<&str> {
    text.split("${secrets.").skip(1).filter_map(|rest| Some(rest.split_once('}')?.0)).collect()
}

#[async_trait]
impl CallWrapper for Secrets {
    async fn call(&self, inner: &dyn ToolHandler, arguments: Json, cx: &ToolCallContext) -> ToolOutcome {
        if let Some(problem) = self.problem(inner.info(), &arguments) {
            return ToolOutcome::failed(FailureKind::Refused, self.text(&problem, inner.info()));
        }
        let outcome = inner.call(self.insert(arguments), &self.masked_context(cx)).await;
        self.0.masks.mask_outcome(outcome)
    }
    fn replayed(&self, inner: &dyn ToolHandler, arguments: &Json, outcome: &ToolOutcome, cx: &ToolCallContext) {
        if self.problem(inner.info(), arguments).is_none() {
            inner.replayed(&self.insert(arguments.clone()), outcome, cx);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Mutex;

    use serde_json::json;

    use super::*;
    use crate::{
        context::CallContext,
        http::HttpClients,
        testing::ManualClock,
        tools::{
            Tool, ToolOutput,
            workspace::{FILE_TOOLS, Slot, SlotSettings, Slots, Workspace, WorkspaceSettings, WorkspaceTools},
        },
    };

    fn secrets(tools: Option<&[&str]>) -> Secrets {
        let tools = tools.map(|tools| tools.iter().map(|tool| Arc::from(*tool)).collect());
        let value = Secret::new("s3cret");
        Secrets(Arc::new(Parts {
            masks: Masks::of_secrets(std::slice::from_ref(&value)),
            secrets: vec![ProtectedInput { name: "key".into(), value, tools }],
            // Also a server with the source of tools of this program, and one with the name of an HTTP tool.
            servers: ["shop", "crm", "workspace", "skill", "http_get"].map(ServerName::from).into_iter().collect(),
            prompts: Arc::new(PromptSet::new(|_| None).unwrap()),
        }))
    }

    /// Calls a tool that is described like this one with a placeholder: the arguments that it gets, and what the model reads.
    async fn call(secrets: &Secrets, info: &ToolInfo, arguments: Json) -> (Option<Json>, String) {
        let seen = Arc::new(Mutex::new(None));
        let record = seen.clone();
        let tool = Tool::from_fn(info.clone(), move |arguments: Json, context: ToolCallContext| {
            *record.lock().unwrap() = Some(arguments.clone());
            context.report(Progress::new(1.0).message(arguments.to_string()));
            std::future::ready(ToolOutcome::Done(ToolOutput::structured(json!({"got": arguments}))))
        });
        let told = Arc::new(Mutex::new(String::new()));
        let progress = told.clone();
        let clock = Arc::new(ManualClock::default());
        let mut cx = ToolCallContext::new(CallContext::new(clock, std::time::Duration::from_secs(9)), "r", "k");
        cx.progress = Some(Arc::new(move |one: Progress| progress.lock().unwrap().extend(one.message)));
        let outcome = secrets.wrap(Arc::new(tool)).call(arguments, &cx).await;
        let text = format!("{} {}", serde_json::to_string(&outcome).unwrap(), told.lock().unwrap());
        assert!(!text.contains("s3cret"), "{text}");
        (seen.lock().unwrap().clone(), text)
    }

    fn built_in_tools() -> Vec<ToolInfo> {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::new(WorkspaceSettings::for_run(folder.path(), "r").unwrap());
        let slots = SlotSettings {
            project: folder.path().into(),
            runs: folder.path().into(),
            max_bytes: 1,
            secrets: Vec::new(),
        };
        let slots = Slots::new(vec![Slot::scratchpad(), Slot::shared("facts", "")], slots).tools();
        assert_eq!(slots.len(), FILE_TOOLS.len());
        let http = builtin::HttpTools::new(Arc::default(), &HttpClients::new()).tools();
        let all = WorkspaceTools::new(workspace).tools().into_iter().chain(slots).chain(http).chain(builtin::utils());
        let mut infos: Vec<ToolInfo> = all.map(|tool| tool.info().clone()).collect();
        for (name, source) in
            [("task", delegation::SOURCE), ("run_script", script::SOURCE), ("book", REGISTERED_SOURCE)]
        {
            infos.push(ToolInfo::new(name, "").source(source));
        }
        infos
    }

    #[tokio::test]
    async fn of_all_built_in_tools_only_http_requests_get_a_secret() {
        let arguments = json!({"path": "k", "content": ["Bearer ${secrets.key}"]});
        let infos = built_in_tools();
        assert!(infos.len() > 20 && infos.iter().any(|info| &*info.name == "bash"));
        for info in &infos {
            let (got, text) = call(&secrets(None), info, arguments.clone()).await;
            if HTTP_TOOLS.contains(&&*info.name) {
                assert_eq!(got, Some(json!({"path": "k", "content": ["Bearer s3cret"]})), "{}", info.name);
            } else {
                assert_eq!(got, None, "{}", info.name);
                assert!(text.contains(&format!("`{}` does not get the secret `key`", info.name)), "{text}");
            }
            let (got, _) = call(&secrets(None), info, json!({"path": "k"})).await;
            assert!(got.is_some(), "{}: a call without a placeholder is not changed", info.name);
        }
        let http: Vec<&str> = infos.iter().map(|info| &*info.name).filter(|name| HTTP_TOOLS.contains(name)).collect();
        assert_eq!(http, HTTP_TOOLS);
    }

    #[tokio::test]
    async fn a_secret_goes_to_all_servers_or_exactly_to_the_tools_that_the_author_names() {
        let of = |name: &str, source: &str| ToolInfo::new(name, "").source(source);
        let tools = [
            of("pay", "shop"),
            of("look", "shop"),
            of("pay", "crm"),
            of("http_get", "builtin"),
            of("http_put", "builtin"),
        ];
        for (named, expected) in [
            (None, [true, true, true, true, true]),
            (Some(&["shop"][..]), [true, true, false, false, false]),
            (Some(&["shop.pay", "http_get"][..]), [true, false, false, true, false]),
            (Some(&[][..]), [false, false, false, false, false]),
        ] {
            for (tool, expected) in tools.iter().zip(expected) {
                let (got, text) = call(&secrets(named), tool, json!({"x": "${secrets.key}"})).await;
                assert_eq!(got.is_some(), expected, "{named:?} {} {}: {text}", tool.source, tool.name);
            }
        }
        let (got, text) =
            call(&secrets(Some(&["shop.pay"])), &of("http_get", "builtin"), json!("${secrets.key}")).await;
        assert!(got.is_none() && text.contains("Only these get it: `shop.pay`."), "{text}");
        let (got, text) = call(&secrets(None), &of("pay", "shop"), json!({"${secrets.none}": 1})).await;
        assert!(got.is_none() && text.contains("there is no secret `none`"), "{text}");
    }
}
