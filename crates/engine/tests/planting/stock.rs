//! Clean projects: several flows out of blocks that people really write, every name used, nothing left open.

use crate::{
    world::{CHOICES, Kind, World, act, described, ending, fill, going, named, rule, ways},
    yaml::{Y, list, map, plain, text},
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

/// A clean project by seed.
pub fn clean(seed: u64, custom: Option<bool>) -> World {
    let mut world = World::new(seed, custom);
    let mut things = THINGS;
    world.chance.shuffle(&mut things);
    let flows = world.chance.within(4, 7);
    if world.chance.often(60) {
        login(&mut world);
    }
    for thing in things.iter().take(flows) {
        let (deed, says) = *world.chance.pick(&DEEDS.each_ref());
        whole_flow(&mut world, &format!("{deed}_{thing}"), thing, &format!("The user {says} {thing}."));
    }
    if world.chance.often(50) {
        overrides(&mut world);
    }
    if world.chance.often(50) {
        let mut links = Vec::new();
        let last = world.flows.iter().rposition(|flow| !flow.id.starts_with("pattern_")).unwrap();
        links.push(map([("link", text(world.flows[last].id.clone()))]));
        world.flow("other_wishes", "The user has a wish but does not say which one.", links);
    }
    world
}

/// One flow: questions, rules, effects, and a summary that uses everything.
fn whole_flow(world: &mut World, id: &str, thing: &str, description: &str) {
    let mut steps = Vec::new();
    let mut shown = Vec::new();
    let blocks = world.chance.within(2, 4);
    for _ in 0..blocks {
        steps.extend(block(world, thing, &mut shown));
    }
    let summary = world.prints(&shown);
    steps.push(act(&summary));
    let flow = world.flow(id, description, steps);
    if world.chance.often(25) {
        let words = id.replace('_', " ");
        world.flows[flow].keys.insert(0, ("name".into(), text(format!("to {words}"))));
    }
    if world.chance.often(25) {
        let intent = format!("{id}_intent");
        world.intents.push(text(intent.clone()));
        world.flows[flow].keys.push(("nlu_trigger".into(), list([map([("intent", text(intent))])])));
    }
    if world.chance.often(20) {
        world.flows[flow].keys.push(("run_pattern_completed".into(), plain(false)));
    }
}

fn block(world: &mut World, thing: &str, shown: &mut Vec<String>) -> Vec<Y> {
    match world.chance.below(14) {
        0 => open_question(world, thing, shown),
        1 => number(world, thing, shown),
        2 => choice(world, thing, shown),
        3 => yes_or_no(world, thing, shown),
        4 => tool(world, thing, shown),
        5 if world.custom => custom_action(world, thing, shown),
        5 | 6 => task_agent(world, thing, shown),
        7 => child(world, thing, shown),
        8 => marked_state(world, thing),
        9 => confirmation(world, thing, shown),
        10 => router(world, thing, shown),
        11 => two_at_once(world, thing, shown),
        12 => open_agent(world, thing),
        _ => nested(world, thing, shown),
    }
}

fn open_question(world: &mut World, thing: &str, shown: &mut Vec<String>) -> Vec<Y> {
    let slot = world.slot(&format!("{thing}_owner"), Kind::Text);
    let mut step = described(&slot);
    if world.chance.often(30) {
        let bad = world.says("A name has at least two letters.");
        step.set("rejections", list([rule(&format!("not (slots.{slot} matches \"^[A-Za-z].+\")"), &bad)]));
    }
    if world.chance.often(20) {
        step.set("ask_before_filling", plain(true));
    }
    shown.push(slot);
    vec![step]
}

fn number(world: &mut World, thing: &str, shown: &mut Vec<String>) -> Vec<Y> {
    let slot = world.slot(&format!("{thing}_count"), Kind::Float);
    let most = world.chance.within(20, 90);
    let bad = world.says("That number is out of range.");
    let many = world.says("That is quite a lot.");
    let mut step = described(&slot);
    if world.chance.often(70) {
        step.set("rejections", list([rule(&format!("slots.{slot} < 1 or slots.{slot} > {most}"), &bad)]));
    } else {
        world
            .slot_keys(&slot)
            .set("validation", map([("rejections", list([rule(&format!("not (slots.{slot} > 0)"), &bad)]))]));
    }
    let on = format!("after_{slot}");
    let limit = world.chance.within(5, 15);
    step.set(
        "next",
        ways(vec![(text(format!("slots.{slot} > {limit}")), going(vec![act(&many)], &on))], text(on.clone())),
    );
    let ok = world.prints([&slot]);
    shown.push(slot);
    vec![step, named(&on, act(&ok))]
}

fn choice(world: &mut World, thing: &str, shown: &mut Vec<String>) -> Vec<Y> {
    let slot = world.slot(&format!("{thing}_plan"), Kind::Choice);
    let on = format!("after_{slot}");
    let (a, b) = (world.says("The basic plan it is."), world.says("A fine choice."));
    let branches = vec![
        (text(format!("slots.{slot} is \"{}\"", CHOICES[0])), going(vec![act(&a)], &on)),
        (text(format!("slots.{slot} == '{}'", CHOICES[1])), text(on.clone())),
    ];
    let step = described(&slot).with("next", ways(branches, going(vec![act(&b)], &on)));
    let last = world.says("The plan is written down.");
    shown.push(slot);
    vec![step, named(&on, act(&last))]
}

fn yes_or_no(world: &mut World, thing: &str, shown: &mut Vec<String>) -> Vec<Y> {
    let slot = world.slot(&format!("{thing}_urgent"), Kind::Bool);
    let on = format!("after_{slot}");
    let (yes, no) = (world.says("We hurry."), world.says("We take our time."));
    let condition = match world.chance.below(3) {
        0 => format!("slots.{slot}"),
        1 => format!("slots.{slot} = true"),
        _ => format!("slots.{slot} is true"),
    };
    let step = described(&slot)
        .with("next", ways(vec![(text(condition), going(vec![act(&yes)], &on))], going(vec![act(&no)], &on)));
    let last = world.says("Noted.");
    shown.push(slot);
    vec![step, named(&on, act(&last))]
}

fn tool(world: &mut World, thing: &str, shown: &mut Vec<String>) -> Vec<Y> {
    let key = world.slot(&format!("{thing}_number"), Kind::Text);
    let (found, price) = (world.held(&format!("{thing}_found"), "bool"), world.held(&format!("{thing}_price"), "any"));
    let missing = world.says("I find nothing under that number.");
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
    let ok = world.prints(&[price]);
    shown.push(key.clone());
    let call = match world.chance.below(4) {
        0 => call.with("on_error", text("END")),
        1 => {
            let sorry = world.says("The depot does not answer.");
            call.with("on_error", ending(vec![act(&sorry)]))
        }
        _ => call,
    };
    vec![named(&again, described(&key)), call.with("next", ways(branches, text(on.clone()))), named(&on, act(&ok))]
}

fn custom_action(world: &mut World, thing: &str, shown: &mut Vec<String>) -> Vec<Y> {
    let action = format!("action_check_{thing}_{}", world.number());
    world.actions.push(text(action.clone()));
    let state = world.held(&format!("{thing}_state"), "categorical");
    let on = format!("after_{state}");
    let no = world.says("This cannot be done today.");
    let branches = vec![(text(format!("slots.{state} is \"{}\"", CHOICES[2])), ending(vec![act(&no)]))];
    let ok = world.says("It can be done.");
    shown.push(state);
    vec![act(&action).with("next", ways(branches, text(on.clone()))), named(&on, act(&ok))]
}

fn task_agent(world: &mut World, thing: &str, shown: &mut Vec<String>) -> Vec<Y> {
    let name = format!("{thing}_helper_{}", world.number());
    let agent = map([
        ("agent", map([("name", text(name.clone())), ("description", text(format!("Finds the right {thing}")))])),
        ("connections", map([("mcp_servers", list([map([("name", text("depot"))])]))])),
    ]);
    world.agents.push((name.clone(), agent));
    let (which, price) =
        (world.held(&format!("{thing}_chosen"), "text"), world.held(&format!("{thing}_limit"), "float"));
    let exit = [text(format!("slots.{which} is not null")), text(format!("slots.{price} > 0"))];
    shown.extend([which, price]);
    vec![map([("call", text(name))]).with("exit_if", list(exit))]
}

fn open_agent(world: &mut World, thing: &str) -> Vec<Y> {
    let name = format!("{thing}_talker_{}", world.number());
    let agent = map([
        ("agent", map([("name", text(name.clone())), ("description", text(format!("Talks about every {thing}")))])),
        ("connections", map([("mcp_servers", list([map([("name", text("depot"))])]))])),
    ]);
    world.agents.push((name.clone(), agent));
    vec![map([("call", text(name))])]
}

fn child(world: &mut World, thing: &str, shown: &mut Vec<String>) -> Vec<Y> {
    let slot = world.slot(&format!("{thing}_street"), Kind::Text);
    let city = world.slot(&format!("{thing}_city"), Kind::Text);
    let id = format!("address_of_{thing}_{}", world.number());
    let steps = vec![described(&slot), described(&city)];
    let flow = world.flow(&id, &format!("Asks where the {thing} stands; a part of other flows."), steps);
    world.flows[flow].keys.push(("if".into(), plain("false")));
    shown.extend([slot, city]);
    vec![map([("call", text(id))])]
}

fn marked_state(world: &mut World, thing: &str) -> Vec<Y> {
    let state = world.held(&format!("{thing}_stage"), "categorical");
    let value = CHOICES[world.chance.below(3)];
    let name = format!("utter_stage_{}", world.number());
    let variations = [
        map([
            ("condition", text(format!("slots.{state} is \"{}\"", CHOICES[0]))),
            ("text", text("At the very start.")),
        ]),
        map([("channel", text("rest")), ("text", text("Under way, over the wire."))]),
        map([("text", text("Under way."))]),
    ];
    world.responses.push((name.clone(), list(variations)));
    vec![fill(&state, text(value)), act(&name)]
}

fn confirmation(world: &mut World, thing: &str, shown: &mut Vec<String>) -> Vec<Y> {
    let what = world.slot(&format!("{thing}_day"), Kind::Text);
    let sure = world.slot(&format!("{thing}_sure"), Kind::Bool);
    let (back, on) = (format!("ask_{what}"), format!("after_{sure}"));
    let other = list([fill(&what, plain("null")).with("next", text(back.clone()))]);
    let step = described(&sure)
        .with("ask_before_filling", plain(true))
        .with("next", ways(vec![(text(format!("slots.{sure}")), text(on.clone()))], other));
    let ok = world.prints([&what]);
    shown.push(what.clone());
    vec![named(&back, described(&what)), step, named(&on, act(&ok))]
}

fn router(world: &mut World, thing: &str, shown: &mut Vec<String>) -> Vec<Y> {
    let slot = world.slot(&format!("{thing}_mail"), Kind::Text);
    let on = format!("after_{slot}");
    let step = map([("noop", plain(true))]).with(
        "next",
        ways(vec![(text(format!("slots.{slot} is null")), going(vec![described(&slot)], &on))], text(on.clone())),
    );
    let ok = world.prints([&slot]);
    shown.push(slot);
    vec![step, named(&on, act(&ok))]
}

fn two_at_once(world: &mut World, thing: &str, shown: &mut Vec<String>) -> Vec<Y> {
    let (a, b) = (world.slot(&format!("{thing}_size"), Kind::Float), world.slot(&format!("{thing}_gift"), Kind::Bool));
    let on = format!("after_{b}");
    let (one, two) = (world.says("A big one, well packed."), world.says("A small gift."));
    let branches = vec![
        (text(format!("slots.{b} and (slots.{a} > 10 or slots.{a} = 7)")), going(vec![act(&one)], &on)),
        (text(format!("slots.{b} and not (slots.{a} > 10)")), going(vec![act(&two)], &on)),
    ];
    let last = world.says("Packed.");
    let step = described(&b).with("next", ways(branches, text(on.clone())));
    shown.extend([a.clone(), b]);
    vec![described(&a), step, named(&on, act(&last))]
}

fn nested(world: &mut World, thing: &str, shown: &mut Vec<String>) -> Vec<Y> {
    let (a, b) = (world.slot(&format!("{thing}_age"), Kind::Float), world.slot(&format!("{thing}_kind"), Kind::Choice));
    let on = format!("after_{b}");
    let (old, new, mid) = (world.says("Quite old."), world.says("Brand new."), world.says("Well kept."));
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
    let last = world.says("Its age is known.");
    shown.push(a);
    vec![step, named(&on, act(&last))]
}

/// A log-in whose slot stays, and flows that only those see who have it.
fn login(world: &mut World) {
    let pin = world.slot("member_pin", Kind::Text);
    let inside = world.held("logged_in", "bool");
    let hello = world.says("You are in.");
    let flow = world.flow(
        "log_in",
        "The user identifies themselves with a PIN.",
        vec![described(&pin), fill(&inside, plain(true)), act(&hello)],
    );
    world.flows[flow].keys.push(("persisted_slots".into(), list([text(inside.clone()), text(pin.clone())])));
    world.flows[flow].keys.push(("if".into(), text(format!("not slots.{inside}"))));
    let secret = world.says("Your bonus is 12 points.");
    let shown = world.prints(&[pin]);
    let flow = world.flow(
        "bonus_points",
        "The user asks for the points on their bonus account.",
        vec![act(&secret), act(&shown)],
    );
    world.flows[flow].keys.push(("if".into(), text(format!("slots.{inside} is true"))));
}

/// Patterns of the project's own.
fn overrides(world: &mut World) {
    let stopped = world.says("Stopped. What else?");
    world.flow(
        "pattern_cancel_flow",
        "what happens when something is cancelled",
        vec![act("action_cancel_flow"), act(&stopped)],
    );
    if world.chance.often(50) {
        world.flow("pattern_chitchat", "small talk", vec![act("utter_free_chitchat_response")]);
    }
    if world.chance.often(50) {
        let person = world.says("Somebody will call you.");
        world.flow("pattern_human_handoff", "a person takes over", vec![act(&person)]);
    }
}
