//! Questions to commanders of completed tasks: a copy of the session answers, remembers what its asker asked before, and may ask agents.

use segue::{ChatRequest, llm::ReasoningEffort, missions::RunEnd};
use serde_json::json;

use super::{HEAD, calls, done, finish, is_agent, last, says};

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
