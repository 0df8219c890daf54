//! Questions to commanders of completed tasks: a copy of the session answers, remembers what its asker asked before, and may ask agents.
//! Questions of agents to people: the run waits, and each answer goes to its asker.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use segue::{
    ChatRequest, ChatResponse,
    ids::RunId,
    llm::ReasoningEffort,
    missions::{RunEnd, RunEngine, StartRun},
    store::runs::{MemoryRunStore, RunStore},
    testing::ManualClock,
};
use segue_engine::mission::event::{PersonQuestion, RunEvent};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{HEAD, assert_pairs, builder_of, calls, done, finish, is_agent, last, says};

fn tool_names(request: &ChatRequest) -> Vec<&str> {
    request.tools.iter().map(|tool| &*tool.name).collect()
}

#[tokio::test]
async fn a_second_question_to_a_commander_builds_on_the_first_and_other_askers_do_not_see_it() {
    let mission = format!(
        "{HEAD}  tasks:\n    gather: {{objective: Gather.}}\n    write: {{objective: Write., depends_on: [gather]}}\n    check: {{objective: Check., depends_on: [write]}}\n"
    );
    let finished = finish(&mission, json!({}), |request| {
        let history: Vec<&str> = request.messages.iter().map(|message| message.text()).collect();
        match last(request) {
            text if text.contains("Which year?") => says("2025."),
            text if text.contains("And the one before?") => match history.contains(&"2025.") {
                true => says("2024."),
                false => says("Before what?"),
            },
            "Gather." => done("gathered"),
            "Write." => calls(&[("ask_commander", json!({"task_name": "gather", "question": "Which year?"}))]),
            "2025." | "Check." => {
                calls(&[("ask_commander", json!({"task_name": "gather", "question": "And the one before?"}))])
            }
            answer => done(answer),
        }
    })
    .await;
    assert_eq!(finished.end, RunEnd::Completed);
    let state = finished.engine.status(&finished.run).await.unwrap().state;
    assert_eq!(state.tasks["write"].summary.as_deref(), Some("2024."));
    assert_eq!(state.tasks["check"].summary.as_deref(), Some("Before what?"));
    assert_eq!(state.usage.answers, 9, "questions count");
}

#[tokio::test]
async fn a_queried_commander_may_ask_its_agents_and_nothing_else() {
    let mission = format!(
        "{HEAD}  tasks:\n    gather: {{objective: Gather.}}\n    write: {{objective: Write., depends_on: [gather]}}\n"
    );
    let finished = finish(&mission, json!({}), |request| {
        let last = last(request);
        if is_agent(request) {
            return match last.contains("<QUESTION>") {
                true => says("<ANSWER>On page 7.</ANSWER>"),
                false => says("<ANSWER>a page</ANSWER>"),
            };
        }
        if last.contains("<QUESTION>") {
            assert_eq!(tool_names(request), ["ask_agent"]);
            return calls(&[
                ("task_complete", json!({"summary": "again"})),
                ("ask_agent", json!({"agent_id": "painter", "question": "Where?"})),
                ("ask_agent", json!({"agent_id": "helper", "question": "Where exactly?"})),
            ]);
        }
        match last {
            "Gather." => calls(&[("call_agent", json!({"name": "helper", "task": "find it"}))]),
            "Write." => calls(&[("ask_commander", json!({"task_name": "gather", "question": "Where?"}))]),
            "On page 7." => {
                let results: Vec<&str> =
                    request.messages.iter().rev().skip(1).take(2).map(|message| message.text()).collect();
                assert!(results[0].contains("agent.unknown") && results[1].contains("ask_agent"), "{results:?}");
                says("It says: on page 7.")
            }
            answer => done(answer),
        }
    })
    .await;
    assert_eq!(finished.end, RunEnd::Completed);
    let state = finished.engine.status(&finished.run).await.unwrap().state;
    assert_eq!(state.tasks["write"].summary.as_deref(), Some("It says: on page 7."));
    assert_eq!(state.tasks["gather"].summary.as_deref(), Some("a page"), "the original is unchanged");
}

#[tokio::test]
async fn the_reasoning_effort_of_a_mission_is_in_the_requests_of_its_commanders() {
    let head = HEAD.replace("commander: {plan: optional}", "commander: {plan: optional, reasoning: low}");
    let mission = format!("{head}  tasks: {{paint: {{objective: Paint.}}}}\n");
    let finished = finish(&mission, json!({}), |request| match (is_agent(request), last(request)) {
        (true, _) => says("<ANSWER>blue</ANSWER>"),
        (false, "Paint.") => calls(&[("call_agent", json!({"name": "helper", "task": "paint it"}))]),
        (false, answer) => done(answer),
    })
    .await;
    assert_eq!(finished.end, RunEnd::Completed);
    let requests = finished.requests.lock().unwrap();
    let efforts: Vec<Option<ReasoningEffort>> = requests.iter().map(|request| request.reasoning_effort).collect();
    assert_eq!(efforts, [Some(ReasoningEffort::Low), None, Some(ReasoningEffort::Low)]);
}

/// A run that waits for people, and is worked on again after each answer.
struct Asked {
    engine: RunEngine,
    run: RunId,
    store: Arc<dyn RunStore>,
    requests: Arc<Mutex<Vec<ChatRequest>>>,
}

impl Asked {
    async fn start(
        mission: &str,
        clock: Arc<ManualClock>,
        respond: impl Fn(&ChatRequest) -> ChatResponse + Send + Sync + 'static,
    ) -> Self {
        let (builder, requests) = builder_of(mission, respond);
        let store: Arc<dyn RunStore> = Arc::new(MemoryRunStore::new());
        let engine = builder.clock(clock).build_missions(store.clone()).unwrap();
        let run = engine.start(StartRun::new("m")).await.unwrap();
        Self { engine, run, store, requests }
    }
    async fn drive(&self) -> RunEnd {
        self.engine.drive(&self.run, &CancellationToken::new(), &mut |_| {}).await.unwrap()
    }
    /// The ids of the open questions, by agent.
    async fn open(&self) -> BTreeMap<String, String> {
        let open = self.engine.control().questions(Some(self.run.clone())).await.unwrap();
        let asked_by = |question: &str| {
            let question: PersonQuestion = serde_json::from_str(question).unwrap();
            question.agent.map_or("commander".to_owned(), |agent| agent.to_string())
        };
        open.iter().map(|open| (asked_by(&open.question), open.key.id.to_string())).collect()
    }
    async fn answer(&self, question: &str, text: &str) -> Result<Arc<str>, String> {
        let answered = self.engine.control().answer(&self.run, question, text, text, None).await;
        answered.map_err(|error| error.to_string())
    }
    async fn events(&self) -> Vec<RunEvent> {
        self.engine.control().events(&self.run, 0).await.unwrap()
    }
    async fn summary(&self, task: &str) -> String {
        let state = self.engine.status(&self.run).await.unwrap().state;
        state.tasks[task].summary.as_deref().unwrap_or_default().to_owned()
    }
    /// What the units keep: nothing of them is in a process while they wait.
    async fn epochs(&self) -> Vec<u64> {
        self.store.units(&self.run).await.unwrap().iter().map(|unit| unit.epoch).collect()
    }
}

/// Agents that ask people: `a` and `b` may, `c` may not.
const ASKING: &str = "mission:\n  name: m\n  description: x\n  agents: [a, b, c]\n  commander: {plan: optional}\n  local_agents: {a: {description: helps}, b: {description: helps}, c: {description: helps}}\n  tasks:\n";

fn name_of(request: &ChatRequest) -> char {
    request.messages[0].text().split("You are the agent `").nth(1).unwrap().chars().next().unwrap()
}

/// Each agent asks a person and answers with what it got. The commander calls `a` and `b` in one response.
fn asking(request: &ChatRequest) -> ChatResponse {
    if is_agent(request) {
        let name = name_of(request);
        return match last(request).contains("<NEW_TASK>") {
            true => calls(&[("ask", json!({"question": format!("Which colour, {name}?")}))]),
            false => says(&format!("<ANSWER>{name} is {}</ANSWER>", last(request))),
        };
    }
    let results: Vec<&str> = request.messages.iter().skip(3).map(|message| message.text()).collect();
    match results.is_empty() {
        true => calls(&["a", "b"].map(|name| ("call_agent", json!({"name": name, "task": "paint it"})))),
        false => done(&results.join(", ")),
    }
}

#[tokio::test]
async fn two_agents_ask_people_at_the_same_time_and_each_answer_goes_to_its_asker() {
    let mission = format!("{ASKING}    paint: {{objective: Paint., questions: {{agents: [a, b]}}}}\n");
    for (first, second) in [("a", "b"), ("b", "a")] {
        let clock = Arc::new(ManualClock::new());
        let asked = Asked::start(&mission, clock, asking).await;
        assert_eq!(asked.drive().await, RunEnd::Waiting);
        let open = asked.open().await;
        assert_eq!(open.keys().collect::<Vec<_>>(), ["a", "b"]);
        // Nothing happens until an answer comes.
        let epochs = asked.epochs().await;
        assert_eq!((asked.drive().await, asked.epochs().await), (RunEnd::Waiting, epochs));
        assert_eq!(asked.answer(&open[first], &format!("{first} red")).await.as_deref(), Ok(&*format!("{first} red")));
        assert_eq!(asked.drive().await, RunEnd::Waiting);
        assert_eq!(asked.open().await.keys().collect::<Vec<_>>(), [second]);
        let again = asked.answer(&open[first], "green").await.unwrap_err();
        assert!(again.contains(&format!("answered before, with: {first} red")), "{again}");
        asked.answer(&open[second], &format!("{second} blue")).await.unwrap();
        assert_eq!(asked.drive().await, RunEnd::Completed);
        let colour = |name: &str| format!("{name} is {name} {}", if name == first { "red" } else { "blue" });
        assert_eq!(asked.summary("paint").await, format!("{}, {}", colour("a"), colour("b")));
        // Each model was asked once for each of its responses, and each question was asked once.
        assert_eq!(asked.requests.lock().unwrap().len(), 6);
        let events = asked.events().await;
        assert_pairs(&events);
        let requested = events.iter().filter(|event| {
            matches!(event.event.kind, segue_engine::mission::event::RunEventKind::HumanInputRequested { .. })
        });
        assert_eq!(requested.count(), 2);
    }
}

#[tokio::test]
async fn an_agent_works_on_while_another_waits_for_a_person_and_only_named_agents_may_ask() {
    let mission = ASKING.replace("  tasks:", "  datasets: {rows: {items: [{n: 1}]}}\n  tasks:")
        + "    paint: {objective: Paint., questions: {agents: [a]}}\n";
    let respond = |request: &ChatRequest| {
        if is_agent(request) && name_of(request) == 'b' {
            // More calls than a slice has, and a question that is refused.
            let count = request.messages.len();
            assert!(!request.tools.iter().any(|tool| &*tool.name == "ask"));
            return match count {
                ..5 => calls(&[("ask", json!({"question": "Which colour?"}))]),
                5..30 => calls(&[("dataset_sample", json!({"name": "rows", "seed": count}))]),
                _ => says("<ANSWER>b worked on</ANSWER>"),
            };
        }
        asking(request)
    };
    let clock = Arc::new(ManualClock::new());
    let asked = Asked::start(&mission, clock, respond).await;
    assert_eq!(asked.drive().await, RunEnd::Waiting);
    let open = asked.open().await;
    asked.answer(&open["a"], "red").await.unwrap();
    assert_eq!(asked.drive().await, RunEnd::Completed);
    let summary = asked.summary("paint").await;
    assert!(summary.starts_with("a is red, "), "{summary}");
    let requests = asked.requests.lock().unwrap();
    let texts: Vec<String> = requests.iter().map(|request| format!("{:?}", request.messages)).collect();
    let distinct: std::collections::BTreeSet<&String> = texts.iter().collect();
    assert_eq!(distinct.len(), texts.len(), "no request was sent twice");
}

#[tokio::test]
async fn a_question_of_an_agent_whose_time_is_over_takes_its_default_or_the_declared_route() {
    let question = |settings: &str, rest: &str| {
        format!(
            "{ASKING}    paint: {{objective: Paint., questions: {{agents: [a, b], timeout_seconds: 60{settings}}}{rest}}}\n    stop: {{objective: Stop., agents: [c]}}\n"
        )
    };
    let route = ", router: [{to: stop, no_answer: true}]";
    for (mission, summary) in [
        (question(", default: green", ""), "\"answer\":\"green\""),
        (question("", route), "Nobody answered in time: Which colour, a?"),
    ] {
        let clock = Arc::new(ManualClock::new());
        let asked = Asked::start(&mission, clock.clone(), |request| match request.messages[1].text() {
            "Stop." => done("stopped"),
            _ => asking(request),
        })
        .await;
        assert_eq!(asked.drive().await, RunEnd::Waiting);
        clock.advance(Duration::from_secs(61));
        let late = asked.answer(&asked.open().await["a"], "red").await.unwrap_err().to_string();
        assert!(late.contains("the time of the question is over"), "{late}");
        assert_eq!(asked.drive().await, RunEnd::Completed, "{summary}");
        let found = asked.summary("paint").await;
        assert!(found.contains(summary), "{found}");
        assert_eq!(asked.open().await, BTreeMap::new());
        assert_pairs(&asked.events().await);
    }
}

/// Each response of a commander costs 60 tokens; a task needs three of them.
fn spending(request: &ChatRequest) -> ChatResponse {
    let response = match request.messages.len() {
        2 | 4 => calls(&[("get_subtasks", json!({}))]),
        _ => done("spent"),
    };
    ChatResponse { usage: segue::llm::Usage { input: 59, output: 1, ..Default::default() }, ..response }
}

#[tokio::test]
async fn a_person_raises_a_used_up_budget_and_no_model_is_called_before() {
    let mission = format!(
        "{ASKING}    one: {{objective: One.}}\n    two: {{objective: Two.}}\n    end: {{objective: End., depends_on: [one, two]}}\n"
    )
    .replace("  tasks:", "  budget: {tokens: 100, on_breach: ask}\n  tasks:");
    let clock = Arc::new(ManualClock::new());
    let asked = Asked::start(&mission, clock.clone(), spending).await;
    let mut questions = 0;
    let end = loop {
        let end = asked.drive().await;
        let open = asked.open().await;
        if end != RunEnd::Waiting {
            break end;
        }
        questions += 1;
        let called = asked.requests.lock().unwrap().len();
        assert_eq!(asked.drive().await, RunEnd::Waiting);
        assert_eq!((asked.requests.lock().unwrap().len(), open.len()), (called, 1), "{open:?}");
        asked.answer(&open["commander"], "continue").await.unwrap();
        clock.advance(Duration::from_secs(1));
    };
    assert_eq!(end, RunEnd::Completed);
    // 540 tokens: 120 used, 220 allowed; and so on.
    assert!((3..=5).contains(&questions), "{questions}");
    assert_eq!(asked.requests.lock().unwrap().len(), 9);
    assert_pairs(&asked.events().await);
}

#[tokio::test]
async fn a_run_fails_if_the_person_does_not_raise_its_budget() {
    for (given, settings) in [(Some("stop"), ""), (None, ", questions: {timeout_seconds: 60}")] {
        let mission = format!(
            "{ASKING}    one: {{objective: One., budget: {{tokens: 100, on_breach: ask}}{settings}}}\n    last: {{objective: Last., always: true}}\n"
        );
        let clock = Arc::new(ManualClock::new());
        let asked = Asked::start(&mission, clock.clone(), spending).await;
        assert_eq!(asked.drive().await, RunEnd::Waiting);
        let open = asked.open().await;
        match given {
            Some(given) => drop(asked.answer(&open["commander"], given).await.unwrap()),
            None => clock.advance(Duration::from_secs(61)),
        }
        assert_eq!(asked.drive().await, RunEnd::Failed);
        let state = asked.engine.status(&asked.run).await.unwrap().state;
        assert_eq!(&*state.failure.unwrap().code, "budget.exceeded");
        assert_eq!(asked.summary("last").await, "spent");
        assert_eq!(asked.requests.lock().unwrap().len(), 2 + 3, "nothing was done after the answer");
        assert_pairs(&asked.events().await);
    }
}
