//! Random model answers with an assistant that checks and confirms every write: no write is executed unless its exact
//! values were shown and confirmed after their last change, in the same turn or without an interruption since then, no
//! check is skipped, and no turn ends without a reply.
//!
//! The checker is independent of the engine: it reads the shown texts, the answers, and the calls with their
//! arguments. Each flow has its own look-up and write, and every confirmation starts with the name of the write and its
//! arguments. `SEGUE_FULL=1` runs the full number of turns, `SEGUE_SEED` sets another seed.

use std::{env, fmt::Write as _, sync::Arc};

use segue_engine::{
    conversation::{AgentOutcome, AgentStatus, BotKind, BotMessage, Event, EventKind, FlowToolCall, Reply, ToolResult},
    dialogue::{InputKind, Next},
    ids::AgentName,
    project::Project,
    time::Timestamp,
};
use serde_json::{Map, Value as Json, json};

use crate::{driver::Driver, project, random::rng::Rng};

const SEED: u64 = 20_261_124;
const SAMPLE: usize = 3_000;
const FULL: usize = 50_000;
/// Turns of one conversation.
const LENGTH: usize = 40;

const CONFIG: &str =
    "recipe: default.v1\npipeline: [{name: CompactLLMCommandGenerator}]\npolicies: [{name: FlowPolicy}]\n";
const DOMAIN: &str = r#"
slots:
  order: {type: text}
  item: {type: text}
  address: {type: text}
  note: {type: text}
  owner: {type: text, mappings: [{type: controlled}]}
  state: {type: text, mappings: [{type: controlled}]}
  items: {type: text, mappings: [{type: controlled}]}
  confirmed: {type: bool}
  agreed: {type: categorical, values: [go, stop]}
  stars: {type: float}
responses:
  utter_ask_order: [{text: "Which order?"}]
  utter_ask_item: [{text: "Which item?"}]
  utter_ask_address: [{text: "Which address?"}]
  utter_ask_note: [{text: "Any note?"}]
  utter_ask_stars: [{text: "How many stars?"}]
  utter_sure_change:
    - text: "change|{order}|{item}| instead of {items}. Shall I?"
      buttons: [{title: "Yes", payload: "/SetSlots(confirmed=true)"}, {title: "No", payload: "/SetSlots(confirmed=false)"}]
  utter_sure_cancel: [{text: "cancel|{order}| with {items}. Shall I?"}]
  utter_sure_early: [{text: "early|{order}| with {items}. Shall I?"}]
  utter_sure_double: [{text: "double|{order}| with {items}. Shall I?"}]
  utter_sure_again: [{text: "Is double right?"}]
  utter_sum_up: [{text: "move|{order}|{address}| is what I have."}]
  utter_sure_move: [{text: "Is that right?"}]
  utter_not_yours: [{text: "That is not your order."}]
  utter_closed: [{text: "It has been shipped."}]
  utter_left: [{text: "Left as it is."}]
  utter_done: [{text: "Done."}]
  utter_tracked: [{text: "{order} is on its way."}]
"#;
const ENDPOINTS: &str = "mcp_servers:\n  - name: shop\n    url: http://localhost:1/mcp\n    type: http\n    effects: {look_change: read, look_cancel: read, look_early: read, look_move: read}\n";
const AGENT: &str =
    "agent: {name: NAME, protocol: RASA, description: finds out}\nconnections: {mcp_servers: [{name: shop}]}\n";

/// The steps of a look-up with its two checks; then `next`.
fn look(name: &str, next: &str) -> String {
    format!(
        r#"
      - id: look
        call: look_{name}
        mcp_server: shop
        mapping:
          input: [{{param: id, slot: order}}]
          output:
            - {{slot: owner, value: result.structuredContent.owner}}
            - {{slot: state, value: result.structuredContent.state}}
            - {{slot: items, value: result.structuredContent.items}}
        next:
          - if: slots.owner is "me"
            then: mine
          - else:
              - action: utter_not_yours
                next: END
      - id: mine
        noop: true
        next:
          - if: slots.state is "open"
            then: {next}
          - else:
              - action: utter_closed
                next: END"#
    )
}

/// The steps of a confirmation and its write.
fn write(name: &str, slot: &str, yes: &str, input: &str, then: &str) -> String {
    format!(
        r#"
      - id: ask
        collect: {slot}
        utter: utter_sure_{name}
        ask_before_filling: true
        next:
          - if: {yes}
            then: write
          - else:
              - action: utter_left
                next: END
      - id: write
        call: {name}
        mcp_server: shop
        mapping:
          input: [{input}]
      - action: utter_done{then}"#
    )
}

fn flows() -> String {
    let order = "{param: order, slot: order}";
    let mut text = String::from("flows:");
    let mut flow = |id: &str, keys: &str, steps: String| {
        write!(text, "\n  {id}:\n    name: {id} it\n    description: does {id}\n{keys}    steps:{steps}").unwrap();
    };
    let clerk = "\n      - call: clerk\n        exit_if: [slots.order is not null, slots.item is not null]";
    let item = format!("{order}, {{param: item, slot: item}}");
    flow(
        "change",
        "",
        clerk.to_owned()
            + &look("change", "ask")
            + &write("change", "confirmed", "slots.confirmed", &item, "\n      - collect: stars"),
    );
    let finder = "\n      - call: finder\n        exit_if: [slots.order is not null]\n      - collect: order\n      - collect: note";
    flow(
        "cancel",
        "",
        finder.to_owned()
            + &look("cancel", "ask")
            + &write("cancel", "agreed", "slots.agreed is \"go\"", order, "\n      - collect: stars"),
    );
    // The look-up precedes the question for its input.
    flow(
        "early",
        "    if: slots.order is not null\n",
        look("early", "which")
            + "\n      - id: which\n        collect: order"
            + &write("early", "confirmed", "slots.confirmed", order, ""),
    );
    let address = format!("{order}, {{param: address, slot: address}}");
    flow(
        "move",
        "",
        "\n      - collect: order\n      - call: where".to_owned()
            + &look("move", "sum_up")
            + "\n      - id: sum_up\n        action: utter_sum_up"
            + &write("move", "confirmed", "slots.confirmed", &address, ""),
    );
    // Two confirmations, with a question between them.
    let again = "\n      - id: first\n        collect: confirmed\n        utter: utter_sure_double\n        ask_before_filling: true\n        next:\n          - if: slots.confirmed\n            then: more\n          - else: END\n      - id: more\n        collect: note";
    flow(
        "double",
        "",
        "\n      - collect: order".to_owned()
            + &look("double", "first")
            + again
            + &write("double", "agreed", "slots.agreed is \"go\"", order, "")
                .replace("utter_sure_double", "utter_sure_again"),
    );
    flow("where", "    if: false\n", "\n      - collect: address".to_owned());
    flow(
        "track",
        "    persisted_slots: [order]\n    run_pattern_completed: false\n",
        "\n      - collect: order\n      - action: utter_tracked\n      - collect: note\n      - action: utter_done"
            .to_owned(),
    );
    text
}

fn shop() -> Arc<Project> {
    let agent = |name: &str| AGENT.replace("NAME", name);
    let (clerk, finder, flows) = (agent("clerk"), agent("finder"), flows());
    project::of_files([
        ("config.yml", CONFIG),
        ("domain.yml", DOMAIN),
        ("endpoints.yml", ENDPOINTS),
        ("agent_clerk.yml", clerk.as_str()),
        ("agent_finder.yml", finder.as_str()),
        ("flows.yml", flows.as_str()),
    ])
}

/// The record of an order; the third of each four belongs to another customer, the fourth has been shipped.
fn record(id: &str) -> Option<Json> {
    let number: usize = id.parse().ok()?;
    let owner = if number % 4 == 3 { "somebody" } else { "me" };
    let state = if number.is_multiple_of(4) { "shipped" } else { "open" };
    Some(json!({"owner": owner, "state": state, "items": format!("things of {id}")}))
}

fn may_be_written(id: &str) -> bool {
    record(id).is_some_and(|record| record["owner"] == "me" && record["state"] == "open")
}

const WRITES: [&str; 5] = ["change", "cancel", "early", "move", "double"];
/// The second confirmation of the write `double`.
const AGAIN: &str = "double again";

/// What was shown, answered and called so far, by write.
#[derive(Default)]
struct Checker {
    /// The values of each write as they were last shown.
    shown: Map<String, Json>,
    /// The write that the last text asks to confirm.
    open: Option<String>,
    /// The confirmed values that no later text has replaced.
    agreed: Map<String, Json>,
    /// The order that each write's look-up last queried.
    checked: Map<String, Json>,
    writes: usize,
}

impl Checker {
    /// A text was shown.
    fn on_text_shown(&mut self, text: &str) {
        let write = WRITES.iter().find(|write| text.starts_with(&format!("{write}|")));
        if let Some(write) = write {
            let values: Vec<&str> = text.split('|').skip(1).collect();
            let values = json!(values[..values.len() - 1]);
            // What is shown again is not confirmed yet, unless it is the same summary once more, because the user has said yes and asked
            // to repeat it.
            let is_repeated = self.shown.get(*write) == Some(&values) && !text.ends_with("Shall I?");
            if !is_repeated {
                self.agreed.remove(*write);
            }
            self.shown.insert((*write).to_owned(), values);
        }
        self.open = match text {
            "Is that right?" => Some("move".to_owned()),
            "Is double right?" => Some(AGAIN.to_owned()),
            _ => write.filter(|_| text.ends_with("Shall I?")).map(|write| (*write).to_owned()),
        };
    }

    /// The turn is over: a yes in it no longer counts, unless the flow itself has asked something before its write.
    fn on_turn_end(&mut self) {
        self.agreed.retain(|write, _| write == "double");
        if let Some(write) = &self.open {
            self.agreed.remove(write);
        }
    }

    /// The flow of a write is interrupted: a yes before that no longer counts.
    fn on_interruption(&mut self, flow: &str) {
        self.agreed.remove(flow);
    }

    /// The user answers; `yes` says whether the answer confirms the slot of that question.
    fn on_answer(&mut self, yes: impl Fn(&str) -> bool) {
        if let Some(write) = self.open.take().filter(|write| yes(write))
            && let Some(values) = self.shown.get(if write == AGAIN { "double" } else { &write })
        {
            self.agreed.insert(write, values.clone());
        }
    }

    /// A tool is called.
    fn on_call(&mut self, call: &FlowToolCall) -> Result<(), String> {
        let name = call.tool.as_str();
        let argument = |key: &str| call.arguments.get(key).and_then(Json::as_str).unwrap_or("None").to_owned();
        if let Some(write) = name.strip_prefix("look_") {
            self.checked.insert(write.to_owned(), json!(argument("id")));
            return Ok(());
        }
        self.writes += 1;
        let wanted = match name {
            "change" => json!([argument("order"), argument("item")]),
            "move" => json!([argument("order"), argument("address")]),
            _ => json!([argument("order")]),
        };
        if name == "double" && self.agreed.remove(AGAIN).is_none_or(|agreed| agreed != wanted) {
            return Err(format!("`{name}` of {wanted} without a second yes"));
        }
        match self.agreed.remove(name) {
            None => return Err(format!("`{name}` of {wanted} without a yes")),
            Some(agreed) if agreed != wanted => {
                return Err(format!("`{name}` of {wanted}, and the yes was to {agreed}"));
            }
            Some(_) => {}
        }
        match self.checked.get(name) {
            Some(order) if *order == wanted[0] && may_be_written(&argument("order")) => Ok(()),
            looked => Err(format!("`{name}` of {wanted}, and what was looked up is {looked:?}")),
        }
    }
}

/// A user message and its commands.
struct Message {
    text: String,
    commands: Vec<String>,
}

const ORDERS: [&str; 7] = ["1", "2", "3", "4", "5", "6", "77x"];
const ITEMS: [&str; 3] = ["socks", "shoes", "hat"];
const STREETS: [&str; 3] = ["Oak Avenue", "Elm Road", "Main Street"];
const FLOWS: [&str; 6] = ["change", "cancel", "early", "move", "double", "track"];

fn command(rng: &mut Rng) -> String {
    match rng.below(40) {
        0..=4 => format!("set slot order \"{}\"", rng.of(&ORDERS)),
        5 => "set slot order null".to_owned(),
        6..=7 => format!("set slot item {}", rng.of(&ITEMS)),
        8..=9 => format!("set slot address {}", rng.of(&STREETS)),
        10 => "set slot address null".to_owned(),
        11..=12 => format!("set slot note {}", rng.of(&ITEMS)),
        13..=15 => "set slot confirmed true".to_owned(),
        16..=17 => "set slot agreed go".to_owned(),
        18 => "set slot confirmed false".to_owned(),
        19..=22 => "restart agent clerk".to_owned(),
        23..=25 => "restart agent finder".to_owned(),
        26..=27 => "continue agent".to_owned(),
        28..=32 => format!("start flow {}", rng.of(&FLOWS)),
        33 => "cancel flow".to_owned(),
        34 => "set slot stars 3".to_owned(),
        35 => (*rng.of(&["repeat", "chitchat", "skip", "search", "handoff"])).to_owned(),
        36 => (*rng.of(&["clarify change cancel", "cannot handle x", "clarify"])).to_owned(),
        37 => (*rng.of(&["start flow nowhere", "set slot nothing 1", "set slot owner me", "set slot state open"]))
            .to_owned(),
        38 => "set slot continue_interrupted_flow_confirmation true".to_owned(),
        _ => format!("set slot interrupted_flow_to_continue {} it", rng.of(&FLOWS)),
    }
}

/// A message that mostly answers the last text.
fn message(rng: &mut Rng, last: &str) -> Message {
    let words = |text: &str, commands: Vec<String>| Message { text: text.to_owned(), commands };
    let obliging = |rng: &mut Rng| -> Message {
        let yes = if says_go(last) { "set slot agreed go" } else { "set slot confirmed true" };
        let mut one = match last {
            "Which order?" => words("that one", vec![format!("set slot order \"{}\"", rng.of(&ORDERS))]),
            "Which item?" => words("that one", vec![format!("set slot item {}", rng.of(&ITEMS))]),
            "Which address?" => words("there", vec![format!("set slot address {}", rng.of(&STREETS))]),
            "Any note?" => words("none", vec![format!("set slot note {}", rng.of(&ITEMS))]),
            "How many stars?" => words("3", Vec::new()),
            "Yes, what?" => words("hm", vec!["continue agent".to_owned()]),
            _ if last.starts_with("Shall we go on") => words(*rng.of(&["yes", "yes", "no"]), Vec::new()),
            _ if last.starts_with("What shall we go on") => {
                words("that", vec![format!("set slot interrupted_flow_to_continue {} it", rng.of(&FLOWS))])
            }
            _ if last.ends_with("Shall I?") || last == "Is that right?" || last == "Is double right?" => {
                match rng.below(4) {
                    0 => words("yes", vec![yes.to_owned()]),
                    1 => words("Yes", vec![yes.to_owned()]),
                    2 => words("/SetSlots(confirmed=true)", Vec::new()),
                    _ => words("fine", vec![yes.to_owned()]),
                }
            }
            _ => words("I want", vec![format!("start flow {}", rng.of(&FLOWS))]),
        };
        if says_go(last) && one.text != "fine" && one.text != "I want" && rng.percent(70) {
            one = words("go", vec![yes.to_owned()]);
        }
        if one.text.is_empty() || rng.percent(12) {
            one.text = "well".to_owned();
            one.commands.push(command(rng));
        }
        one
    };
    match rng.below(100) {
        0..=49 => obliging(rng),
        50..=89 => {
            let many = rng.between(1, 3);
            words("well", (0..many).map(|_| command(rng)).collect())
        }
        90..=94 => {
            let pairs = ["confirmed=true", "order=5", "order=6", "item=hat", "address=Elm Road", "agreed=go", "note=x"];
            let many = rng.between(1, 3);
            let pairs: Vec<&str> = (0..many).map(|_| *rng.of(&pairs)).collect();
            words(&format!("/SetSlots({})", pairs.join(", ")), Vec::new())
        }
        95 => words("well", Vec::new()),
        96 => words("/restart", Vec::new()),
        _ => words(*rng.of(&["yes", "no", "ok", "go", "3", "hat"]), vec![command(rng)]),
    }
}

/// Whether the question is confirmed by `go`.
fn says_go(question: &str) -> bool {
    question.starts_with("cancel|") || question == "Is double right?"
}

/// Whether an answer confirms this write.
fn says_yes(message: &Message, write: &str) -> bool {
    let (slot, value, words) = match write {
        "cancel" | AGAIN => ("agreed", "go", &["go"][..]),
        _ => ("confirmed", "true", &["yes", "ok"][..]),
    };
    let text = message.text.to_lowercase();
    words.contains(&text.as_str())
        || text.starts_with("/setslots(") && text.contains(&format!("{slot}={value}"))
        || !text.starts_with('/') && message.commands.iter().any(|line| *line == format!("set slot {slot} {value}"))
}

fn agent(rng: &mut Rng, name: &str) -> AgentOutcome {
    let slot = |name: &str, value: &str| EventKind::Slot {
        name: name.into(),
        value: json!(value),
        filled_by: None,
        reset: false,
    };
    let (mut kinds, luck) = (Vec::new(), rng.below(100));
    let order = *rng.of(&ORDERS[..6]);
    let status = match luck {
        0..=59 => {
            kinds.push(slot("order", order));
            if name == "clerk" {
                kinds.push(slot("item", *rng.of(&ITEMS)));
            }
            AgentStatus::Finished
        }
        60..=94 => {
            if rng.percent(30) {
                kinds.push(slot("order", order));
            }
            let reply = Reply::text("Yes, what?");
            let agent = Some(AgentName::from(name));
            kinds.push(EventKind::bot(BotMessage {
                reply,
                kind: BotKind::InputRequired,
                agent,
                ..BotMessage::default()
            }));
            AgentStatus::AwaitingUser
        }
        _ => AgentStatus::Failed { code: "A0001".to_owned(), reason: "broken".to_owned() },
    };
    let at = Timestamp::from_micros(1);
    let events = kinds.into_iter().map(|kind| Event { at, kind, location: Default::default() }).collect();
    AgentOutcome { status, events, data: Json::Null, metadata: Map::new() }
}

fn tool(rng: &mut Rng, call: &FlowToolCall) -> ToolResult {
    match rng.below(40) {
        0 => return ToolResult::Failed { reason: "refused".to_owned() },
        1 => return ToolResult::Unknown { reason: "no answer".to_owned() },
        _ => {}
    }
    if !call.tool.as_str().starts_with("look_") {
        return ToolResult::done(json!({"text": "done"}));
    }
    match call.arguments.get("id").and_then(Json::as_str).and_then(record) {
        Some(record) => ToolResult::done(json!({"structuredContent": record})),
        None => ToolResult::done(json!({"text": "there is no such order", "isError": true})),
    }
}

/// Runs one conversation; the error contains the violation and the transcript.
fn converse(project: &Arc<Project>, seed: u64, turns: usize) -> Result<usize, String> {
    let mut rng = Rng::new(seed);
    let mut driver = Driver::new(project.clone());
    driver.seed = rng.next();
    let (mut checker, mut transcript, mut last) = (Checker::default(), String::new(), String::new());
    for turn in 0..turns {
        let message = message(&mut rng, &last);
        writeln!(transcript, "user: {} {:?}", message.text, message.commands).unwrap();
        checker.on_answer(|write| says_yes(&message, write));
        let mut wrong = None;
        let mut seen = driver.all.len();
        driver.user(&message.text);
        let mut cut = rng.percent(3).then(|| rng.between(1, 3));
        let mut answers = 0;
        loop {
            for event in &driver.all[seen..] {
                if let EventKind::FlowInterrupted { flow_id, .. } = &event.kind {
                    checker.on_interruption(flow_id.as_str());
                }
                if let EventKind::Bot(bot) = &event.kind {
                    let text = bot.reply.text.as_deref().unwrap_or_default();
                    writeln!(transcript, "  bot: {text}").unwrap();
                    checker.on_text_shown(text);
                    last = text.to_owned();
                }
            }
            seen = driver.all.len();
            if matches!(driver.next, Next::Listen | Next::EndSession) || cut.is_some_and(|cut| answers >= cut) {
                break;
            }
            answers += 1;
            let input = match driver.next.clone() {
                Next::Understand => {
                    InputKind::Commands(message.commands.iter().map(|line| crate::driver::command(line)).collect())
                }
                // The turn is interrupted before the call begins.
                Next::Tool(_) if rng.percent(5) => {
                    cut = Some(answers);
                    InputKind::Interrupted
                }
                Next::Tool(call) => {
                    writeln!(transcript, "  call: {} {}", call.tool, json!(call.arguments)).unwrap();
                    wrong = wrong.or(checker.on_call(&call).err());
                    InputKind::ToolResult(tool(&mut rng, &call))
                }
                Next::Agent(call) => {
                    let outcome = agent(&mut rng, call.agent.as_str());
                    writeln!(transcript, "  agent: {} {:?}", call.agent, outcome.status).unwrap();
                    InputKind::Agent(outcome)
                }
                other => return Err(format!("unexpected request {other:?}\n{transcript}")),
            };
            driver.input(input);
        }
        checker.on_turn_end();
        let silent = cut.is_none() && driver.texts().is_empty();
        // A payload without slots is not a user message.
        if silent && !message.text.starts_with('/') {
            wrong = wrong.or_else(|| Some("there is no reply".to_owned()));
        }
        if let Some(wrong) = wrong {
            let why = serde_json::to_string_pretty(&driver.reasons).unwrap();
            return Err(format!("turn {turn} of seed {seed}: {wrong}\n{transcript}\n{:?}\n{why}", driver.stack()));
        }
    }
    Ok(checker.writes)
}

#[test]
fn writes_need_a_check_and_a_confirmation_of_shown_values() {
    let full = env::var_os("SEGUE_FULL").is_some();
    let turns = if full { FULL } else { SAMPLE };
    let seed = env::var("SEGUE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(SEED);
    let project = shop();
    let mut seeds = Rng::new(seed);
    let (mut writes, mut failed) = (0, Vec::new());
    for _ in 0..turns.div_ceil(LENGTH) {
        match converse(&project, seeds.next(), LENGTH) {
            Ok(count) => writes += count,
            Err(wrong) => failed.push(wrong),
        }
    }
    failed.sort_by_key(String::len);
    let shortest = failed.iter().take(4).map(String::as_str).collect::<Vec<_>>().join("\n\n");
    assert!(failed.is_empty(), "with seed {seed} {} conversations go wrong:\n{shortest}", failed.len());
    println!("{turns} turns with seed {seed}: {writes} writes, each checked and confirmed");
    assert!(writes > turns / 100, "too few writes to prove anything: {writes}");
}
