//! One parent with scripted delegates.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use futures::stream;
use segue_engine::{
    ids::ConversationId,
    project::{AdmissionDef, AgentSkills, SubagentType},
    time::Timestamp,
};
use serde_json::{Value as Json, json};

use crate::{
    context::CallContext,
    delegation::{
        DelegationParent, DelegationSettings, Delegations, RunCounts, TaskEvent, TaskEventSink, with_delegation,
    },
    journal::{EffectJournal, JournaledModel, JournaledTool, NoObserver, TurnClock, TurnJournal},
    llm::{
        ChatMessage, ChatRequest, ChatResponse, ChatStream, Delta, Llm, LlmError, LlmErrorKind, ModelProfile, Purpose,
        ToolArguments, ToolCall, Usage,
    },
    prompts::PromptSet,
    react::Budget,
    react::ToolNarrowing,
    store::{JournalRecord, MemoryStore, Store, TurnNumber, contract},
    testing::ManualClock,
    tools::{
        EffectClass, Tool, ToolCallContext, ToolHandler, ToolInfo, ToolOutcome, ToolOutput, invoke, tool_set::ToolSet,
    },
};

/// A model whose responses depend on the purpose and on the first message of the user.
pub(super) struct Script {
    profile: ModelProfile,
    scenes: Mutex<BTreeMap<String, VecDeque<Result<ChatResponse, LlmErrorKind>>>>,
    pub(super) requests: Mutex<Vec<ChatRequest>>,
}

impl Script {
    /// A scene is `purpose: text of the user` with the responses to it, in order.
    pub(super) fn new<'a>(
        scenes: impl IntoIterator<Item = (&'a str, Vec<Result<ChatResponse, LlmErrorKind>>)>,
    ) -> Arc<Self> {
        let scenes = scenes.into_iter().map(|(name, responses)| (name.to_owned(), responses.into())).collect();
        Arc::new(Self {
            profile: ModelProfile::for_model("openai", "scripted"),
            scenes: Mutex::new(scenes),
            requests: Mutex::default(),
        })
    }
    /// Adds a scene.
    pub(super) fn add(&self, scene: &str, responses: Vec<Result<ChatResponse, LlmErrorKind>>) {
        self.scenes.lock().unwrap().insert(scene.to_owned(), responses.into());
    }
    /// The requests for a scene.
    pub(super) fn requests(&self, scene: &str) -> Vec<ChatRequest> {
        self.requests.lock().unwrap().iter().filter(|request| scene_of(request) == scene).cloned().collect()
    }
    fn answer(&self, request: ChatRequest) -> Result<ChatStream, LlmError> {
        let scene = scene_of(&request);
        self.requests.lock().unwrap().push(request);
        let next = self.scenes.lock().unwrap().get_mut(&scene).and_then(VecDeque::pop_front);
        let mut answer = next.unwrap_or_else(|| panic!("no response left for `{scene}`"))?;
        if answer.usage == Usage::default() {
            answer.usage = Usage { input: 10, output: 5, ..Usage::default() };
        }
        let text = answer.text.clone();
        let deltas = (!text.is_empty()).then_some(Ok(Delta::Text(text)));
        Ok(ChatStream::new(stream::iter(deltas.into_iter().chain([Ok(Delta::Done(Arc::new(answer)))]))))
    }
}

fn scene_of(request: &ChatRequest) -> String {
    let user = |message: &&Arc<ChatMessage>| matches!(&***message, ChatMessage::User { .. });
    let text = match request.purpose == Purpose::DELEGATE {
        true => request.messages.iter().find(user),
        false => request.messages.iter().rfind(user),
    };
    let text = match request.purpose == Purpose::COMMANDS {
        true => "",
        false => text.map_or("", |message| message.text()),
    };
    format!("{}: {text}", request.purpose)
}

#[async_trait]
impl Llm for Script {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }
    async fn chat(&self, request: ChatRequest, _: &CallContext) -> Result<ChatStream, LlmError> {
        self.answer(request)
    }
}

/// A response of text.
pub(super) fn say(text: &str) -> Result<ChatResponse, LlmErrorKind> {
    Ok(ChatResponse::text(text))
}

/// A response with calls.
pub(super) fn call(text: &str, calls: &[(&str, Json)]) -> Result<ChatResponse, LlmErrorKind> {
    let calls = calls.iter().enumerate().map(|(at, (name, arguments))| ToolCall {
        id: format!("c{at}").into(),
        name: (*name).into(),
        arguments: ToolArguments::json(arguments.clone()),
    });
    Ok(ChatResponse { text: text.into(), ..ChatResponse::calls(calls.collect()) })
}

/// The arguments of a call of `task` for the general type.
pub(super) fn task(prompt: &str) -> Json {
    json!({"description": format!("look at {prompt}"), "prompt": prompt, "subagent_type": "general-purpose"})
}

/// A sink that collects its events as JSON.
#[derive(Default)]
pub(super) struct Collected(pub(super) Mutex<Vec<Json>>);

impl TaskEventSink for Collected {
    fn emit(&self, _: &str, event: &TaskEvent) {
        self.0.lock().unwrap().push(serde_json::to_value(event).unwrap());
    }
}

impl Collected {
    pub(super) fn all(&self) -> Vec<Json> {
        self.0.lock().unwrap().clone()
    }
    /// The types of the events in order, without `task_running`.
    pub(super) fn types(&self) -> Vec<String> {
        let all = self.all();
        let types = all.iter().map(|event| event["type"].as_str().unwrap().to_owned());
        types.filter(|kind| kind != "task_running").collect()
    }
}

/// Tools: `find` answers at once, `hang` answers after an hour, `write` changes something.
pub(super) fn plain_tools(called: &Arc<Mutex<Vec<String>>>) -> Vec<Arc<dyn ToolHandler>> {
    let tool = |name: &'static str, class: EffectClass| {
        let called = called.clone();
        let info = ToolInfo::new(name, "does").effect(class);
        let run = move |_: Json, cx: ToolCallContext| {
            called.lock().unwrap().push(name.to_owned());
            async move {
                assert!(name != "boom", "the tool breaks");
                if name == "hang" {
                    let until = cx.cx.clock.deadline(Duration::from_secs(3_600));
                    cx.cx.clock.sleep(until).await;
                }
                ToolOutcome::Done(ToolOutput::structured(json!({"found": name})))
            }
        };
        Tool::from_fn(info, run).timeout(Duration::from_secs(3_600))
    };
    let (read, write) = (EffectClass::Read, EffectClass::Write);
    let classes = [("boom", read), ("find", read), ("hang", read), ("write", write)];
    classes.into_iter().map(|(name, class)| Arc::new(tool(name, class)) as Arc<dyn ToolHandler>).collect()
}

/// A world with one conversation and its journal.
pub(super) struct World {
    pub(super) clock: ManualClock,
    pub(super) model: Arc<Script>,
    pub(super) settings: DelegationSettings,
    pub(super) delegations: Arc<Delegations>,
    pub(super) events: Arc<Collected>,
    pub(super) called: Arc<Mutex<Vec<String>>>,
    pub(super) store: Arc<MemoryStore>,
    pub(super) replayed: Arc<Mutex<Vec<u64>>>,
    /// The skills of the parent.
    pub(super) skills: Option<Arc<AgentSkills>>,
    pub(super) narrowing: ToolNarrowing,
    /// Further tools of the parent.
    pub(super) extra_tools: Vec<Arc<dyn ToolHandler>>,
}

impl World {
    pub(super) async fn new<'a>(
        scenes: impl IntoIterator<Item = (&'a str, Vec<Result<ChatResponse, LlmErrorKind>>)>,
    ) -> Self {
        let store = Arc::new(MemoryStore::new());
        store.accept(contract::message("c", "m", 1)).await.unwrap();
        let events = Arc::new(Collected::default());
        let admission = AdmissionDef { max_running: 3, max_queued: 8, queue_timeout: Duration::from_secs(60) };
        Self {
            clock: ManualClock::new(),
            model: Script::new(scenes),
            settings: DelegationSettings::default(),
            delegations: Arc::new(Delegations::new(admission, events.clone())),
            events,
            called: Arc::default(),
            store,
            replayed: Arc::default(),
            skills: None,
            narrowing: ToolNarrowing::default(),
            extra_tools: Vec::new(),
        }
    }

    /// The general type.
    pub(super) fn kind(&mut self) -> &mut SubagentType {
        self.settings.types.get_mut("general-purpose").unwrap()
    }

    /// What a new process finds in the store.
    pub(super) async fn recorded(&self) -> Vec<JournalRecord> {
        self.store.unfinished_turns(&ConversationId::from("c")).await.unwrap()[0].journal.clone()
    }

    /// A parent with these tools, whose effects are recorded in `conversation` after what is stored.
    pub(super) async fn parent(&self, conversation: &str) -> Parent {
        let store: Arc<dyn Store> = self.store.clone();
        let clock = Arc::new(self.clock.clone());
        let recorded = self.recorded().await;
        let records = Arc::new(TurnJournal::new(store, "c".into(), TurnNumber(1), 7, clock.clone(), recorded));
        let turn_clock = Arc::new(TurnClock::new(clock, Timestamp::from_micros(0)));
        let journal = EffectJournal::new(records, turn_clock, Arc::new(NoObserver));
        let tools = plain_tools(&self.called).into_iter().chain(self.extra_tools.iter().cloned()).map(|tool| {
            let (spec, journal) = (tool.info().clone(), journal.clone());
            Arc::new(JournaledTool { spec, inner: Some(tool), journal }) as Arc<dyn ToolHandler>
        });
        let tools = tools.fold(ToolSet::builder(), |set, tool| set.tool(tool)).build();
        let replayed = self.replayed.clone();
        let parent = DelegationParent {
            delegations: self.delegations.clone(),
            settings: Arc::new(self.settings.clone()),
            prompts: Arc::new(PromptSet::new(|_| None).unwrap()),
            conversation: conversation.into(),
            turn: 1,
            llm: Arc::new(JournaledModel::new(self.model.clone(), journal.clone())),
            models: Arc::default(),
            tools: tools.clone(),
            tool_timeout: None,
            fails_on_tool_error: false,
            mcp_meta: Arc::default(),
            skills: self.skills.clone(),
            narrowing: self.narrowing.clone(),
            journal,
            count_replayed: Arc::new(move |usage| {
                if !usage.is_empty() {
                    replayed.lock().unwrap().push(usage.answers);
                }
            }),
            background: None,
            budget: Budget::new(self.settings.budget),
            shared: None,
            counts: Arc::new(RunCounts::new(&self.settings, 0)),
            lost: Default::default(),
            depth: self.settings.depth,
        };
        let cx = self.clock.context(Duration::from_secs(7_200));
        Parent { tools: with_delegation(tools, parent), cx, conversation: conversation.into() }
    }

    /// Waits for `work` and advances the clock second by second.
    pub(super) async fn driving<T>(&self, work: impl Future<Output = T>) -> T {
        let seconds = async {
            for _ in 0..4_000 {
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
                self.clock.advance(Duration::from_secs(1));
            }
            panic!("the work does not end");
        };
        tokio::select! { biased; done = work => done, () = seconds => unreachable!() }
    }
}

/// A run that may delegate.
#[derive(Clone)]
pub(super) struct Parent {
    pub(super) tools: ToolSet,
    pub(super) cx: CallContext,
    conversation: Arc<str>,
}

impl Parent {
    /// Calls a tool at the step `key`.
    pub(super) async fn invoke(&self, key: &str, name: &str, arguments: Json) -> ToolOutcome {
        let cx = self.cx.step(key);
        let idempotency_key = invoke::idempotency_key(&self.conversation, 1, &cx);
        let context = ToolCallContext::new(cx, self.conversation.clone(), idempotency_key);
        invoke::invoke(&self.tools, name, arguments, &context, None).await
    }
    /// Calls `task`.
    pub(super) async fn task(&self, key: &str, arguments: Json) -> ToolOutcome {
        self.invoke(key, "task", arguments).await
    }
}

/// The text that the parent's model reads.
pub(super) fn text_of(outcome: &ToolOutcome) -> String {
    crate::delegation::replacement_text(outcome).unwrap_or_else(|| outcome.for_model())
}

/// The metadata of a result.
pub(super) fn meta_of(outcome: &ToolOutcome) -> Json {
    Json::Object(match outcome {
        ToolOutcome::Done(output) => output.meta.clone(),
        ToolOutcome::Failed(failure) => failure.meta.clone(),
        other => panic!("{other:?}"),
    })
}
