//! Questions to people: time limits, default answers, and tasks that wait.

use segue_engine::mission::{
    event::{NewEvent, RunEventKind},
    state::{MissionStatus, TaskStatus},
    tools::{Arguments, people},
    unit::UnitView,
};
use serde_json::{Value as Json, json};

use crate::driver::{CallOptions, Run};

fn asked(task: &str, arguments: Json) -> (Run, std::sync::Arc<str>) {
    let mut run = Run::of(&format!("{{name: m, tasks: {{a: {{{task}}}, stop: {{}}, b: {{depends_on: [a]}}}}}}"));
    run.call("a", "ask", arguments);
    let id = run.state.human_inputs.keys().next().unwrap().clone();
    (run, id)
}

/// The time of the question is over.
fn time_out(run: &mut Run, id: &std::sync::Arc<str>) {
    let unit = run.unit("a");
    let events = people::timed_out(&UnitView::new(&run.def, &run.state, &unit).unwrap(), id);
    run.append(events);
    run.settle();
}

#[test]
fn a_declared_default_counts_when_nobody_answers_and_is_marked() {
    let question = json!({"question": "Ship?", "choices": ["yes", "no"], "timeout_seconds": 60, "default": "no"});
    let (mut run, id) = asked("", question);
    time_out(&mut run, &id);
    assert_eq!(
        people::answer(&run.state.human_inputs[&id]),
        json!({"status": "ok", "answer": "no", "default": true,
            "message": "No person answered within 60 seconds; the default that was set with the question counts."})
    );
    assert_eq!(run.open(), ["a", "stop"], "the task goes on");
}

#[test]
fn a_default_must_be_an_answer_and_needs_a_time_limit() {
    for (arguments, message) in [
        (json!({"question": "Ship?", "default": "no"}), "`default` needs `timeout_seconds`."),
        (
            json!({"question": "Ship?", "choices": ["yes"], "timeout_seconds": 60, "default": "no"}),
            "`default` is no answer: `no` is none of the choices: yes.",
        ),
    ] {
        let mut run = Run::of("{name: m, tasks: {a: {}}}");
        let answer = run.try_call("a", "ask", Arguments::Json(&arguments), &CallOptions::default());
        assert_eq!((&answer.result["code"], &answer.result["message"]), (&json!("args.invalid"), &json!(message)));
    }
}

#[test]
fn the_settings_of_the_task_hold_for_questions_without_their_own() {
    let settings = "questions: {timeout_seconds: 60, default: later}";
    let (run, id) = asked(settings, json!({"question": "When?"}));
    let question = &run.state.human_inputs[&id].question;
    assert_eq!((question.timeout_seconds, question.default.as_deref()), (Some(60), Some("later")));
    let (mut run, id) = asked(settings, json!({"question": "When?", "timeout_seconds": 5}));
    let question = &run.state.human_inputs[&id].question;
    assert_eq!(
        (question.timeout_seconds, question.default.as_deref()),
        (Some(60), Some("later")),
        "not as the model says"
    );
    time_out(&mut run, &id);
    let message = "No person answered within 60 seconds; the default that the mission declares counts.";
    assert_eq!(people::answer(&run.state.human_inputs[&id])["message"], message);
    let (run, id) = asked("questions: {default: 'yes'}", json!({"question": "May I?", "timeout_seconds": 1}));
    let question = &run.state.human_inputs[&id].question;
    assert_eq!((question.timeout_seconds, question.default.as_deref()), (None, None), "it waits as long as it takes");
}

/// Otherwise a model that asks for a permission gives it to itself.
#[test]
fn a_model_does_not_decide_what_silence_means_where_the_mission_declares_it() {
    for settings in ["{timeout_seconds: 60, default: 'no'}", "{timeout_seconds: 60}"] {
        let mut run = Run::of(&format!("{{name: m, tasks: {{a: {{questions: {settings}}}}}}}"));
        let question = json!({"question": "May I delete it?", "timeout_seconds": 1, "default": "yes"});
        assert_eq!(run.refused("a", "ask", question), "args.invalid", "{settings}");
    }
    for seconds in [json!(0), json!(-1), json!(1e300), json!(1.5e10), json!(0.5), json!(u64::MAX)] {
        for settings in ["{timeout_seconds: 60}", "{}"] {
            let mut run = Run::of(&format!("{{name: m, tasks: {{a: {{questions: {settings}}}}}}}"));
            let question = json!({"question": "May I?", "timeout_seconds": seconds});
            assert_eq!(run.refused("a", "ask", question), "args.invalid", "{seconds} {settings}");
        }
    }
}

/// Nobody's silence is taken for an answer: the task leaves by the route that is declared for it.
#[test]
fn a_question_without_an_answer_takes_the_declared_route() {
    let (mut run, id) = asked(
        "questions: {timeout_seconds: 60}, output: {n: {type: integer, required: true}}, router: [{to: stop, no_answer: true}]",
        json!({"question": "Ship?"}),
    );
    assert_eq!(run.starts(), ["a"], "a task with `no_answer` starts only by it");
    time_out(&mut run, &id);
    let a = &run.state.tasks["a"];
    assert_eq!(a.status, TaskStatus::Completed);
    assert_eq!(a.summary.as_deref(), Some("Nobody answered in time: Ship?"));
    assert_eq!(run.starts(), ["a", "stop", "b"]);
    let chosen = run.of_kind("route_chosen");
    assert_eq!((&chosen[0]["by"], &chosen[0]["values"]), (&json!("no_answer"), &json!({"question": "Ship?"})));
}

#[test]
fn when_the_task_leaves_by_that_route_its_other_questions_are_closed_and_the_agents_that_wait_are_cancelled() {
    let mut run = Run::of(
        "{name: m, agents: [h, w], tasks: {a: {questions: {timeout_seconds: 60, agents: [h, w]}, router: [{to: stop, no_answer: true}]}, stop: {}}}",
    );
    let mut ids = Vec::new();
    for name in ["h", "w"] {
        run.call("a", "call_agent", json!({"name": name, "task": "ask"}));
        let options = CallOptions { agent: Some(name.into()), ..CallOptions::default() };
        let question = json!({"question": format!("{name}?")});
        assert!(!run.try_call("a", "ask", Arguments::Json(&question), &options).is_error());
        ids.push(run.state.human_inputs.keys().last().unwrap().clone());
    }
    let agents = ids.iter().map(|id| run.state.human_inputs[id].question.agent.clone().unwrap());
    assert_eq!(agents.collect::<Vec<_>>(), ["h", "w"]);
    assert!(run.state.is_waiting());
    time_out(&mut run, &ids[0]);
    let closed = run.of_kind("human_input_resolved");
    let closed: Vec<_> = closed.iter().map(|event| (&event["question_id"], &event["timed_out"])).collect();
    assert_eq!(closed, [(&json!(ids[0]), &json!(true)), (&json!(ids[1]), &Json::Null)]);
    let agents = run.of_kind("agent_completed");
    let agents: Vec<_> = agents.iter().map(|event| (&event["agent"], &event["outcome"])).collect();
    assert_eq!(agents, [(&json!("h"), &json!("cancelled")), (&json!("w"), &json!("cancelled"))]);
    assert_eq!((run.state.task_status("a"), run.open()), (TaskStatus::Completed, vec!["stop".to_owned()]));
}

#[test]
fn an_answer_in_time_does_not_take_that_route_and_no_commander_can_choose_it() {
    let (mut run, id) =
        asked("questions: {timeout_seconds: 60}, router: [{to: stop, no_answer: true}]", json!({"question": "Ship?"}));
    let resolved = RunEventKind::HumanInputResolved {
        question_id: id,
        answer: Some("yes".into()),
        timed_out: false,
        responder: None,
    };
    run.append(vec![NewEvent::of_unit(&run.unit("a"), resolved)]);
    run.call("a", "task_complete", json!({"summary": "done"}));
    assert_eq!(run.starts(), ["a", "b"]);
    run.complete("b");
    assert_eq!(run.state.status, MissionStatus::Completed);
}

#[test]
fn a_blocked_task_waits_for_all_its_questions_and_goes_on_once() {
    let mut run = Run::of("{name: m, tasks: {a: {questions: {timeout_seconds: 60, default: skip}}}}");
    let blocked = json!({"succeed": false, "reason": "evidence incomplete", "questions": ["Who?", "When?"]});
    run.call("a", "task_complete", blocked);
    assert_eq!(run.state.task_status("a"), TaskStatus::Blocked);
    assert!(run.state.is_waiting());
    let ids: Vec<_> = run.state.human_inputs.keys().cloned().collect();
    assert_eq!(run.state.human_inputs[&ids[0]].question.default.as_deref(), Some("skip"));
    let unit = run.unit("a");
    let resolved = |id: &std::sync::Arc<str>, answer: &str| {
        let answer = Some(answer.into());
        let kind =
            RunEventKind::HumanInputResolved { question_id: id.clone(), answer, timed_out: false, responder: None };
        NewEvent::of_unit(&unit, kind)
    };
    run.append(vec![resolved(&ids[0], "Ada")]);
    assert_eq!(run.state.task_status("a"), TaskStatus::Blocked);
    run.append(vec![resolved(&ids[0], "Bob")]);
    assert_eq!(run.state.human_inputs[&ids[0]].answer.as_deref(), Some("Ada"), "the first answer stays");
    time_out(&mut run, &ids[1]);
    assert_eq!(run.state.task_status("a"), TaskStatus::Running);
    assert_eq!(run.open(), ["a"]);
    run.call("a", "task_complete", json!({"summary": "done"}));
    assert_eq!(run.state.status, MissionStatus::Completed);
}
