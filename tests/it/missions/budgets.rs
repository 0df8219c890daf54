//! Budgets of missions whose agents let sub-agents work.

use segue::llm::Usage;
use segue_engine::mission::event::{RunEvent, RunEventKind};

use super::{writes::Payments, *};

/// The sub-agents would work on for ever.
fn works_on(request: &ChatRequest) -> ChatResponse {
    let answer = match (request.purpose.as_str(), last(request)) {
        ("commander", text) if text.contains("agent.") => calls(&[("task_complete", json!({"summary": "looked"}))]),
        ("commander", _) => calls(&[("call_agent", json!({"name": "payer", "task": "look"}))]),
        ("agent", text) if text.contains("<NEW_TASK>") => {
            let task = json!({"description": "look", "prompt": "Look.", "subagent_type": "general-purpose"});
            calls(&[("task", task)])
        }
        ("agent", _) => says("<ANSWER>looked</ANSWER>"),
        _ => return ChatResponse { usage: Usage { input: 900, output: 100, ..Usage::default() }, ..looks(request) },
    };
    ChatResponse { usage: Usage { input: 9, output: 1, ..Usage::default() }, ..answer }
}

fn looks(request: &ChatRequest) -> ChatResponse {
    calls(&[("pay", json!({"amount": request.messages.len()}))])
}

#[tokio::test]
async fn sub_agents_of_parallel_items_share_what_is_left_of_the_budget_of_the_run() {
    let tasks = "  budget: {tokens: 20000, warn_at: 0.5}\n  datasets: {d: {items: [{n: 1}, {n: 2}, {n: 3}, {n: 4}]}}\n  tasks:\n    look: {objective: Look., iterator: {dataset: d, parallel: true, concurrency_limit: 4}}\n";
    let run = Payments::start("{}\ndelegation: {types: [general-purpose]}", tasks, works_on).await;
    let mut events = Vec::new();
    let mut keep = |event: &RunEvent| events.push(event.clone());
    let end = run.engine.drive(&run.run, &CancellationToken::new(), &mut keep).await;
    assert_eq!(end.unwrap(), RunEnd::Failed);
    let state = run.engine.status(&run.run).await.unwrap().state;
    assert_eq!(&*state.failure.unwrap().code, "budget.exceeded");
    // Each of the four loops may go beyond it by one response.
    let used = state.usage.usage.input + state.usage.usage.output;
    assert!((20_000..24_200).contains(&used), "{used}");
    let issue = |of: &str| {
        events.iter().position(
            |event| matches!(&event.event.kind, RunEventKind::MissionIssue { category, .. } if &**category == of),
        )
    };
    let (warned, breached) = (issue("budget_warning").expect("a warning"), issue("budget_exceeded").expect("a breach"));
    let works =
        |event: &RunEvent| matches!(&event.event.kind, RunEventKind::SessionTurn { usage, .. } if usage.input == 900);
    assert!(events[warned..breached].iter().any(works), "the warning comes while sub-agents work");
}
