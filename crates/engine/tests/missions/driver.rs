//! A run without a runtime: it performs the decisions of the scheduler at once, and calls tools as commanders would.

use std::sync::Arc;

use indexmap::IndexMap;
use segue_engine::{
    ids::AgentName,
    mission::{
        event::{NewEvent, RunEvent, RunEventKind},
        handed_over::SourceRun,
        inputs::{self, NewRunOptions},
        learnings::Learnings,
        scheduler::{self, Action},
        state::{FollowUp, RunState},
        tools::{self, Arguments, Caller, ResultLookup, ResultProblem, ToolAnswer, ToolContext},
        unit::{UnitId, UnitView},
    },
    project::missions::MissionDef,
    template::TemplateEngine,
    time::Timestamp,
};
use serde_json::{Map, Value as Json};

use crate::definitions;

pub(crate) struct Run {
    pub(crate) def: Arc<MissionDef>,
    pub(crate) missions: IndexMap<Arc<str>, Arc<MissionDef>>,
    pub(crate) state: RunState,
    pub(crate) events: Vec<RunEvent>,
    /// After how many events a transaction ended.
    pub(crate) transactions: Vec<usize>,
    pub(crate) now: Timestamp,
    /// Whether the time is `now` until the test changes it; otherwise it passes until the next item may start.
    pub(crate) clock_stands: bool,
    /// The units in the order of their start, with its time in milliseconds.
    pub(crate) started: Vec<(String, i64)>,
    pub(crate) cancelled: Vec<String>,
    pub(crate) launched: Vec<FollowUp>,
    /// Whether cancelled units end at once.
    pub(crate) cancels: bool,
    pub(crate) templates: TemplateEngine,
    /// The run before in the chain.
    pub(crate) source: Option<(Arc<MissionDef>, RunState)>,
}

/// What a call may read beside the state.
#[derive(Clone, Default)]
pub(crate) struct CallOptions {
    pub(crate) agent: Option<AgentName>,
    pub(crate) busy: Vec<AgentName>,
    pub(crate) results: IndexMap<String, Json>,
    pub(crate) learnings: Option<Learnings>,
    pub(crate) call: Option<String>,
}

struct Results<'a>(&'a IndexMap<String, Json>);

impl ResultLookup for Results<'_> {
    fn items(&self, id: &str) -> Result<Vec<Json>, ResultProblem> {
        let result = self.0.get(id).ok_or(ResultProblem::Unknown)?;
        result.as_array().cloned().ok_or(ResultProblem::NotAList)
    }
}

impl Run {
    pub(crate) fn new(def: MissionDef) -> Self {
        Self {
            def: Arc::new(def),
            missions: IndexMap::new(),
            state: RunState::default(),
            events: Vec::new(),
            transactions: Vec::new(),
            now: Timestamp::from_micros(0),
            started: Vec::new(),
            clock_stands: false,
            cancelled: Vec::new(),
            launched: Vec::new(),
            cancels: true,
            templates: TemplateEngine::new(),
            source: None,
        }
    }

    /// A run that has just been started.
    pub(crate) fn of(yaml: &str) -> Self {
        Self::new(definitions::mission(yaml)).started(&Json::Null, NewRunOptions::default())
    }

    pub(crate) fn started(mut self, given: &Json, options: NewRunOptions) -> Self {
        let given = given.as_object().cloned().unwrap_or_default();
        let start = inputs::start(&self.def, &"r1".into(), &given, options).unwrap();
        self.append(vec![start.event]);
        self.settle();
        self
    }

    /// Continues with a state that is computed from the first events alone.
    pub(crate) fn cut(&self, events: usize) -> Self {
        let mut run = Self::new(definitions::mission("name: empty"));
        run.def = self.def.clone();
        run.missions = self.missions.clone();
        run.source = self.source.clone();
        run.events = self.events[..events].to_vec();
        run.state = RunState::from_events(&run.events);
        run.now = run.events.last().map_or(run.now, |event| event.at);
        run
    }

    pub(crate) fn append(&mut self, events: Vec<NewEvent>) {
        for event in events {
            let event = event.at(self.state.sequence + 1, self.now);
            let text = serde_json::to_string(&event).unwrap();
            assert_eq!(serde_json::from_str::<RunEvent>(&text).unwrap(), event, "{text}");
            self.state.apply(&event);
            self.events.push(event);
        }
        self.transactions.push(self.events.len());
    }

    /// Performs decisions until nothing more follows.
    pub(crate) fn settle(&mut self) {
        for _ in 0..10_000 {
            let decisions = scheduler::next(&self.def, &self.state, &self.templates, self.now);
            let mut progress = false;
            for mut decision in decisions {
                match decision.action {
                    Action::Start { unit, .. } => {
                        self.started.push((unit.to_string(), self.now.as_micros() / 1000));
                    }
                    Action::Cancel { unit } if self.cancels => {
                        self.cancelled.push(unit.to_string());
                        decision.events.extend(scheduler::cancelled(&self.state, &unit));
                    }
                    Action::Launch { follow_up } => self.launched.push(follow_up),
                    Action::Cancel { .. } | Action::Record | Action::Finish { .. } => {}
                }
                progress |= !decision.events.is_empty();
                if !decision.events.is_empty() {
                    self.append(decision.events);
                }
            }
            if !progress
                && !self.clock_stands
                && let Some(at) = scheduler::next_wake(&self.def, &self.state, &self.templates, self.now)
            {
                self.now = at;
                continue;
            }
            if !progress && self.events.len() > 300 {
                return; // writing a large state after each call takes long, and the small ones show the same
            }
            if !progress {
                let text = serde_json::to_string(&self.state).unwrap();
                assert_eq!(serde_json::from_str::<RunState>(&text).unwrap(), self.state, "{text}");
                return;
            }
        }
        panic!("the scheduler never comes to rest");
    }

    /// The latest unit with this name: `write`, `read[3]`.
    pub(crate) fn unit(&self, name: &str) -> UnitId {
        let round = |task: &str| self.state.tasks.get(task).map_or(1, |task| task.round());
        let Some((task, index)) = name.split_once('[') else {
            let attempt = self.state.tasks.get(name).and_then(|task| task.unit.as_ref()).map_or(1, |unit| unit.attempt);
            return UnitId::task(name, attempt).in_round(round(name));
        };
        let index = index.trim_end_matches(']').parse().unwrap();
        let item = self.state.tasks.get(task).and_then(|task| task.items.get(&index));
        let attempt = item.and_then(|item| item.unit.as_ref()).map_or(1, |unit| unit.attempt);
        UnitId::item(task, index, attempt).in_round(round(task))
    }

    pub(crate) fn context<T>(&self, unit: &str, options: &CallOptions, f: impl FnOnce(&ToolContext<'_>) -> T) -> T {
        let id = self.unit(unit);
        let view = UnitView::new(&self.def, &self.state, &id).unwrap_or_else(|| panic!("no unit {unit}"));
        let call = options.call.clone().unwrap_or_else(|| format!("c{}", self.state.sequence));
        f(&ToolContext {
            unit: view,
            caller: options.agent.clone().map_or(Caller::Commander, Caller::Agent),
            call: &call,
            templates: &self.templates,
            missions: &self.missions,
            results: &Results(&options.results),
            busy: &options.busy,
            learnings: options.learnings.clone(),
            source: self.source.as_ref().map(|(def, state)| SourceRun { def, state }),
            seed: 7,
        })
    }

    pub(crate) fn try_call(
        &mut self,
        unit: &str,
        tool: &str,
        arguments: Arguments<'_>,
        options: &CallOptions,
    ) -> ToolAnswer {
        let answer = self.context(unit, options, |cx| tools::call(tool, arguments, cx));
        if answer.is_error() {
            assert!(answer.events.is_empty(), "a refused call stores nothing: {answer:?}");
        }
        if !answer.events.is_empty() {
            self.append(answer.events.clone());
        }
        self.settle();
        answer
    }

    /// A call that must be accepted.
    pub(crate) fn call(&mut self, unit: &str, tool: &str, arguments: Json) -> ToolAnswer {
        let answer = self.try_call(unit, tool, Arguments::Json(&arguments), &CallOptions::default());
        assert!(!answer.is_error(), "{unit} {tool} {arguments}: {}", answer.result);
        answer
    }

    /// The code of a call that must be refused.
    pub(crate) fn refused(&mut self, unit: &str, tool: &str, arguments: Json) -> String {
        let answer = self.try_call(unit, tool, Arguments::Json(&arguments), &CallOptions::default());
        assert!(answer.is_error(), "{unit} {tool} {arguments}: {}", answer.result);
        answer.result["code"].as_str().unwrap().to_owned()
    }

    pub(crate) fn complete(&mut self, unit: &str) {
        self.call(unit, "task_complete", serde_json::json!({"summary": format!("{unit} is done")}));
    }

    /// The loop of the unit ends with an error.
    pub(crate) fn fail(&mut self, unit: &str, error: &str) {
        let id = self.unit(unit);
        self.append(vec![scheduler::failed(&id, "model.failed", error)]);
        self.settle();
    }

    pub(crate) fn record(&mut self, kind: RunEventKind) {
        self.append(vec![NewEvent::of_run(kind)]);
        self.settle();
    }

    pub(crate) fn starts(&self) -> Vec<&str> {
        self.started.iter().map(|(unit, _)| unit.as_str()).collect()
    }

    pub(crate) fn open(&self) -> Vec<String> {
        self.state.open_units().iter().map(ToString::to_string).collect()
    }

    /// The events of this kind, as JSON.
    pub(crate) fn of_kind(&self, kind: &str) -> Vec<Json> {
        let events = self.events.iter().map(|event| serde_json::to_value(event).unwrap());
        events.filter(|event| event["event"] == kind).collect()
    }
}

pub(crate) fn object(json: Json) -> Map<String, Json> {
    json.as_object().cloned().unwrap()
}
