//! Valid projects: several flows of typical blocks, without unused names or findings.

use crate::{
    project_builder::{CHOICES, Kind, ProjectBuilder, act, described, ending, fill, going, named, rule, ways},
    yaml::{Yaml, list, map, plain, text},
};

const THINGS: [&str; 24] = [
    "invoice", "parcel", "ticket", "meter", "boiler", "scooter", "garden", "museum", "tariff", "recipe", "locker",
    "printer", "bicycle", "passport", "licence", "mattress", "piano", "windmill", "lantern", "orchard", "kayak",
    "canteen", "harbour", "library",
];
const DEEDS: [(&str, &str); 8] = [
    ("order", "wants to order a new"),
    ("report", "reports that something is wrong with their"),
    ("renew", "asks to renew the contract of a"),
    ("return", "would like to give back a borrowed"),
    ("inspect", "needs somebody to look at the"),
    ("insure", "asks about insurance for a"),
    ("sell", "thinks about selling their"),
    ("move", "wants to have moved a heavy"),
];

/// A valid project by seed.
pub fn valid_project(seed: u64, custom: Option<bool>) -> ProjectBuilder {
    let mut project = ProjectBuilder::new(seed, custom);
    let mut things = THINGS;
    project.rng.shuffle(&mut things);
    let flows = project.rng.between(4, 7);
    if project.rng.percent(60) {
        login(&mut project);
    }
    for thing in things.iter().take(flows) {
        let (deed, says) = *project.rng.pick(&DEEDS.each_ref());
        whole_flow(&mut project, &format!("{deed}_{thing}"), thing, &format!("The user {says} {thing}."));
    }
    if project.rng.percent(50) {
        overrides(&mut project);
    }
    if project.rng.percent(50) {
        let mut links = Vec::new();
        let last = project.flows.iter().rposition(|flow| !flow.id.starts_with("pattern_")).unwrap();
        links.push(map([("link", text(project.flows[last].id.clone()))]));
        project.flow("other_wishes", "The user has a wish but does not say which one.", links);
    }
    project
}

/// One flow: questions, rules, effects, and a summary that uses everything.
fn whole_flow(project: &mut ProjectBuilder, id: &str, thing: &str, description: &str) {
    let mut steps = Vec::new();
    let mut shown = Vec::new();
    let blocks = project.rng.between(2, 4);
    for _ in 0..blocks {
        steps.extend(block(project, thing, &mut shown));
    }
    let summary = project.prints(&shown);
    steps.push(act(&summary));
    let flow = project.flow(id, description, steps);
    if project.rng.percent(25) {
        let words = id.replace('_', " ");
        project.flows[flow].keys.insert(0, ("name".into(), text(format!("to {words}"))));
    }
    if project.rng.percent(25) {
        let intent = format!("{id}_intent");
        project.intents.push(text(intent.clone()));
        project.flows[flow].keys.push(("nlu_trigger".into(), list([map([("intent", text(intent))])])));
    }
    if project.rng.percent(20) {
        project.flows[flow].keys.push(("run_pattern_completed".into(), plain(false)));
    }
}

fn block(project: &mut ProjectBuilder, thing: &str, shown: &mut Vec<String>) -> Vec<Yaml> {
    match project.rng.below(14) {
        0 => open_question(project, thing, shown),
        1 => number(project, thing, shown),
        2 => choice(project, thing, shown),
        3 => yes_or_no(project, thing, shown),
        4 => tool(project, thing, shown),
        5 if project.custom => custom_action(project, thing, shown),
        5 | 6 => task_agent(project, thing, shown),
        7 => child(project, thing, shown),
        8 => marked_state(project, thing),
        9 => confirmation(project, thing, shown),
        10 => router(project, thing, shown),
        11 => two_at_once(project, thing, shown),
        12 => open_agent(project, thing),
        _ => nested(project, thing, shown),
    }
}

fn open_question(project: &mut ProjectBuilder, thing: &str, shown: &mut Vec<String>) -> Vec<Yaml> {
    let slot = project.slot(&format!("{thing}_owner"), Kind::Text);
    let mut step = described(&slot);
    if project.rng.percent(30) {
        let bad = project.says("A name has at least two letters.");
        step.set("rejections", list([rule(&format!("not (slots.{slot} matches \"^[A-Za-z].+\")"), &bad)]));
    }
    if project.rng.percent(20) {
        step.set("ask_before_filling", plain(true));
    }
    shown.push(slot);
    vec![step]
}

fn number(project: &mut ProjectBuilder, thing: &str, shown: &mut Vec<String>) -> Vec<Yaml> {
    let slot = project.slot(&format!("{thing}_count"), Kind::Float);
    let most = project.rng.between(20, 90);
    let bad = project.says("That number is out of range.");
    let many = project.says("That is quite a lot.");
    let mut step = described(&slot);
    if project.rng.percent(70) {
        step.set("rejections", list([rule(&format!("slots.{slot} < 1 or slots.{slot} > {most}"), &bad)]));
    } else {
        project
            .slot_keys(&slot)
            .set("validation", map([("rejections", list([rule(&format!("not (slots.{slot} > 0)"), &bad)]))]));
    }
    let on = format!("after_{slot}");
    let limit = project.rng.between(5, 15);
    step.set(
        "next",
        ways(vec![(text(format!("slots.{slot} > {limit}")), going(vec![act(&many)], &on))], text(on.clone())),
    );
    let ok = project.prints([&slot]);
    shown.push(slot);
    vec![step, named(&on, act(&ok))]
}

fn choice(project: &mut ProjectBuilder, thing: &str, shown: &mut Vec<String>) -> Vec<Yaml> {
    let slot = project.slot(&format!("{thing}_plan"), Kind::Choice);
    let on = format!("after_{slot}");
    let (a, b) = (project.says("The basic plan it is."), project.says("A fine choice."));
    let branches = vec![
        (text(format!("slots.{slot} is \"{}\"", CHOICES[0])), going(vec![act(&a)], &on)),
        (text(format!("slots.{slot} == '{}'", CHOICES[1])), text(on.clone())),
    ];
    let step = described(&slot).with("next", ways(branches, going(vec![act(&b)], &on)));
    let last = project.says("The plan is written down.");
    shown.push(slot);
    vec![step, named(&on, act(&last))]
}

fn yes_or_no(project: &mut ProjectBuilder, thing: &str, shown: &mut Vec<String>) -> Vec<Yaml> {
    let slot = project.slot(&format!("{thing}_urgent"), Kind::Bool);
    let on = format!("after_{slot}");
    let (yes, no) = (project.says("We hurry."), project.says("We take our time."));
    let condition = match project.rng.below(3) {
        0 => format!("slots.{slot}"),
        1 => format!("slots.{slot} = true"),
        _ => format!("slots.{slot} is true"),
    };
    let step = described(&slot)
        .with("next", ways(vec![(text(condition), going(vec![act(&yes)], &on))], going(vec![act(&no)], &on)));
    let last = project.says("Noted.");
    shown.push(slot);
    vec![step, named(&on, act(&last))]
}

fn tool(project: &mut ProjectBuilder, thing: &str, shown: &mut Vec<String>) -> Vec<Yaml> {
    let key = project.slot(&format!("{thing}_number"), Kind::Text);
    let (found, price) =
        (project.held(&format!("{thing}_found"), "bool"), project.held(&format!("{thing}_price"), "any"));
    let missing = project.says("I find nothing under that number.");
    let on = format!("after_{found}");
    let input = map([("param", text("number")), ("slot", text(key.clone()))]);
    let output = |slot: &str, path: &str| {
        map([("slot", text(slot)), ("value", text(format!("result.structuredContent.{path}")))])
    };
    let call = map([("call", text(format!("look_up_{thing}"))), ("mcp_server", text("depot"))]).with(
        "mapping",
        map([("input", list([input])), ("output", list([output(&found, "found"), output(&price, "price")]))]),
    );
    let again = format!("ask_{key}");
    let retry = vec![act(&missing), fill(&key, plain("null"))];
    let branches = vec![(text(format!("not slots.{found}")), going(retry, &again))];
    let ok = project.prints(&[price]);
    shown.push(key.clone());
    let call = match project.rng.below(4) {
        0 => call.with("on_error", text("END")),
        1 => {
            let sorry = project.says("The depot does not answer.");
            call.with("on_error", ending(vec![act(&sorry)]))
        }
        _ => call,
    };
    vec![named(&again, described(&key)), call.with("next", ways(branches, text(on.clone()))), named(&on, act(&ok))]
}

fn custom_action(project: &mut ProjectBuilder, thing: &str, shown: &mut Vec<String>) -> Vec<Yaml> {
    let action = format!("action_check_{thing}_{}", project.number());
    project.actions.push(text(action.clone()));
    let state = project.held(&format!("{thing}_state"), "categorical");
    let on = format!("after_{state}");
    let no = project.says("This cannot be done today.");
    let branches = vec![(text(format!("slots.{state} is \"{}\"", CHOICES[2])), ending(vec![act(&no)]))];
    let ok = project.says("It can be done.");
    shown.push(state);
    vec![act(&action).with("next", ways(branches, text(on.clone()))), named(&on, act(&ok))]
}

fn task_agent(project: &mut ProjectBuilder, thing: &str, shown: &mut Vec<String>) -> Vec<Yaml> {
    let name = format!("{thing}_helper_{}", project.number());
    let agent = map([
        ("agent", map([("name", text(name.clone())), ("description", text(format!("Finds the right {thing}")))])),
        ("connections", map([("mcp_servers", list([map([("name", text("depot"))])]))])),
    ]);
    project.agents.push((name.clone(), agent));
    let (which, price) =
        (project.held(&format!("{thing}_chosen"), "text"), project.held(&format!("{thing}_limit"), "float"));
    let exit = [text(format!("slots.{which} is not null")), text(format!("slots.{price} > 0"))];
    shown.extend([which, price]);
    vec![map([("call", text(name))]).with("exit_if", list(exit))]
}

fn open_agent(project: &mut ProjectBuilder, thing: &str) -> Vec<Yaml> {
    let name = format!("{thing}_talker_{}", project.number());
    let agent = map([
        ("agent", map([("name", text(name.clone())), ("description", text(format!("Talks about every {thing}")))])),
        ("connections", map([("mcp_servers", list([map([("name", text("depot"))])]))])),
    ]);
    project.agents.push((name.clone(), agent));
    vec![map([("call", text(name))])]
}

fn child(project: &mut ProjectBuilder, thing: &str, shown: &mut Vec<String>) -> Vec<Yaml> {
    let slot = project.slot(&format!("{thing}_street"), Kind::Text);
    let city = project.slot(&format!("{thing}_city"), Kind::Text);
    let id = format!("address_of_{thing}_{}", project.number());
    let steps = vec![described(&slot), described(&city)];
    let flow = project.flow(&id, &format!("Asks where the {thing} stands; a part of other flows."), steps);
    project.flows[flow].keys.push(("if".into(), plain("false")));
    shown.extend([slot, city]);
    vec![map([("call", text(id))])]
}

fn marked_state(project: &mut ProjectBuilder, thing: &str) -> Vec<Yaml> {
    let state = project.held(&format!("{thing}_stage"), "categorical");
    let value = CHOICES[project.rng.below(3)];
    let name = format!("utter_stage_{}", project.number());
    let variations = [
        map([
            ("condition", text(format!("slots.{state} is \"{}\"", CHOICES[0]))),
            ("text", text("At the very start.")),
        ]),
        map([("channel", text("rest")), ("text", text("Under way, over the wire."))]),
        map([("text", text("Under way."))]),
    ];
    project.responses.push((name.clone(), list(variations)));
    vec![fill(&state, text(value)), act(&name)]
}

fn confirmation(project: &mut ProjectBuilder, thing: &str, shown: &mut Vec<String>) -> Vec<Yaml> {
    let what = project.slot(&format!("{thing}_day"), Kind::Text);
    let sure = project.slot(&format!("{thing}_sure"), Kind::Bool);
    let (back, on) = (format!("ask_{what}"), format!("after_{sure}"));
    let other = list([fill(&what, plain("null")).with("next", text(back.clone()))]);
    let step = described(&sure)
        .with("ask_before_filling", plain(true))
        .with("next", ways(vec![(text(format!("slots.{sure}")), text(on.clone()))], other));
    let ok = project.prints([&what]);
    shown.push(what.clone());
    vec![named(&back, described(&what)), step, named(&on, act(&ok))]
}

fn router(project: &mut ProjectBuilder, thing: &str, shown: &mut Vec<String>) -> Vec<Yaml> {
    let slot = project.slot(&format!("{thing}_mail"), Kind::Text);
    let on = format!("after_{slot}");
    let step = map([("noop", plain(true))]).with(
        "next",
        ways(vec![(text(format!("slots.{slot} is null")), going(vec![described(&slot)], &on))], text(on.clone())),
    );
    let ok = project.prints([&slot]);
    shown.push(slot);
    vec![step, named(&on, act(&ok))]
}

fn two_at_once(project: &mut ProjectBuilder, thing: &str, shown: &mut Vec<String>) -> Vec<Yaml> {
    let (a, b) =
        (project.slot(&format!("{thing}_size"), Kind::Float), project.slot(&format!("{thing}_gift"), Kind::Bool));
    let on = format!("after_{b}");
    let (one, two) = (project.says("A big one, well packed."), project.says("A small gift."));
    let branches = vec![
        (text(format!("slots.{b} and (slots.{a} > 10 or slots.{a} = 7)")), going(vec![act(&one)], &on)),
        (text(format!("slots.{b} and not (slots.{a} > 10)")), going(vec![act(&two)], &on)),
    ];
    let last = project.says("Packed.");
    let step = described(&b).with("next", ways(branches, text(on.clone())));
    shown.extend([a.clone(), b]);
    vec![described(&a), step, named(&on, act(&last))]
}

fn nested(project: &mut ProjectBuilder, thing: &str, shown: &mut Vec<String>) -> Vec<Yaml> {
    let (a, b) =
        (project.slot(&format!("{thing}_age"), Kind::Float), project.slot(&format!("{thing}_kind"), Kind::Choice));
    let on = format!("after_{b}");
    let (old, new, mid) = (project.says("Quite old."), project.says("Brand new."), project.says("Well kept."));
    let inner = described(&b).with(
        "next",
        ways(
            vec![(text(format!("slots.{b} is \"{}\"", CHOICES[2])), going(vec![act(&old)], &on))],
            list(
                [act(&mid).with("next", ways(vec![(text(format!("slots.{a} > 50")), text("END"))], text(on.clone())))],
            ),
        ),
    );
    let step = described(&a)
        .with("next", ways(vec![(text(format!("slots.{a} >= 10")), list([inner]))], going(vec![act(&new)], &on)));
    let last = project.says("Its age is known.");
    shown.push(a);
    vec![step, named(&on, act(&last))]
}

/// A log-in whose slot persists, and flows with a guard on it.
fn login(project: &mut ProjectBuilder) {
    let pin = project.slot("member_pin", Kind::Text);
    let inside = project.held("logged_in", "bool");
    let hello = project.says("You are in.");
    let flow = project.flow(
        "log_in",
        "The user identifies themselves with a PIN.",
        vec![described(&pin), fill(&inside, plain(true)), act(&hello)],
    );
    project.flows[flow].keys.push(("persisted_slots".into(), list([text(inside.clone()), text(pin.clone())])));
    project.flows[flow].keys.push(("if".into(), text(format!("not slots.{inside}"))));
    let secret = project.says("Your bonus is 12 points.");
    let shown = project.prints(&[pin]);
    let flow = project.flow(
        "bonus_points",
        "The user asks for the points on their bonus account.",
        vec![act(&secret), act(&shown)],
    );
    project.flows[flow].keys.push(("if".into(), text(format!("slots.{inside} is true"))));
}

/// Patterns of the project's own.
fn overrides(project: &mut ProjectBuilder) {
    let stopped = project.says("Stopped. What else?");
    project.flow(
        "pattern_cancel_flow",
        "what happens when something is cancelled",
        vec![act("action_cancel_flow"), act(&stopped)],
    );
    if project.rng.percent(50) {
        project.flow("pattern_chitchat", "small talk", vec![act("utter_free_chitchat_response")]);
    }
    if project.rng.percent(50) {
        let person = project.says("Somebody will call you.");
        project.flow("pattern_human_handoff", "a person takes over", vec![act(&person)]);
    }
}
