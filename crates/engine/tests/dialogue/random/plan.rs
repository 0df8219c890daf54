//! Plans of random projects, in a form that can be shortened.

use super::rng::Rng;

/// The slots of every project, with valid and invalid answers.
pub(crate) const SLOTS: &[(&str, &[&str], &[&str])] = &[
    ("t0", &["\"x\"", "\"y\"", "\"Joe\""], &["null", "\"undefined\""]),
    ("t1", &["\"x\"", "\"z\""], &["null"]),
    ("t2", &["\"good\"", "\"fair\""], &["\"bad\"", "null"]),
    ("t3", &["\"here\"", "\"there\""], &["null"]),
    ("n0", &["5", "50", "\"7.5\""], &["500", "\"many\"", "null"]),
    ("n1", &["1", "2.5"], &["\"few\"", "null"]),
    ("b0", &["true", "false", "\"yes\""], &["\"maybe\"", "null"]),
    ("b1", &["false", "\"no\"", "true"], &["\"perhaps\""]),
    ("c0", &["\"red\"", "\"Blue\"", "\"none\""], &["\"pink\"", "null"]),
    ("c1", &["\"small\"", "36"], &["\"huge\""]),
    ("i0", &["\"other\"", "\"given\""], &["null"]),
    ("m0", &["\"x\"", "\"y\""], &["null"]),
    ("e0", &["\"Oslo\""], &["null"]),
    ("k0", &["\"x\""], &["null"]),
    ("k1", &["\"x\"", "\"y\""], &["null"]),
    ("p0", &["\"kept\"", "\"kept too\""], &["null"]),
    ("a0", &["\"done\"", "\"found\""], &["null"]),
];

/// Slots that flows ask for.
const ASKED: &[&str] = &["t0", "t1", "t2", "t3", "n0", "n1", "b0", "c0", "c1", "i0", "m0", "e0", "k1", "p0"];
/// The values that steps set.
const LITERALS: &[(&str, &str)] = &[
    ("t0", "null"),
    ("t0", "\"set\""),
    ("n1", "3"),
    ("b0", "true"),
    ("c0", "\"blue\""),
    ("k0", "\"step\""),
    ("p0", "\"step\""),
    ("l0", "\"one\""),
];
const CONDITIONS: &[&str] = &[
    "slots.b0",
    "slots.n0 > 5",
    "slots.n1 >= 2 and slots.b0",
    "slots.t0 is null",
    "slots.c0 is \"Red\"",
    "slots.k0 is not null",
    "not slots.b0",
    "slots.t0 > 5",
    "slots.t3 matches \"^h\"",
];
const GUARDS: &[&str] = &["slots.b0", "slots.p0 is not null", "slots.n1 > 1"];

/// A step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Collect {
        slot: &'static str,
        always: bool,
        forced: bool,
        stays: bool,
    },
    Say(u8),
    Act(u8),
    Set(Vec<(&'static str, &'static str)>),
    /// Calls the flow of this number.
    Call(usize),
    Agent {
        agent: &'static str,
        exit: bool,
    },
    Tool,
    Noop,
    Branch {
        on: &'static str,
        then: Vec<Step>,
        otherwise: Vec<Step>,
    },
    /// Asks whether to repeat, and loops back to the step of this number.
    Again(usize),
    /// Always loops back to the step of this number.
    Round(usize),
    /// Links to the flow of this number; the last step.
    Link(usize),
    /// Links to the human handoff; the last step.
    Handoff,
}

/// A flow.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Flow {
    pub(crate) number: usize,
    pub(crate) steps: Vec<Step>,
    pub(crate) guard: Option<&'static str>,
    pub(crate) persisted: Vec<&'static str>,
    /// Whether it is only called.
    pub(crate) child: bool,
    pub(crate) trigger: bool,
    /// Whether its completion is reported.
    pub(crate) told: bool,
    /// Number of changes of its text.
    pub(crate) edition: u32,
}

/// A project.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) flows: Vec<Flow>,
    /// Patterns that the project replaces, by their index in the table of texts.
    pub(crate) own_patterns: Vec<usize>,
    pub(crate) carry_over: bool,
    pub(crate) every_turn: bool,
    pub(crate) shortcuts: bool,
    pub(crate) compat: Option<&'static str>,
}

/// The kind of random conversations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    /// All features.
    Wild,
    /// Two flows with three agents, started and interrupted in every order.
    Agents,
}

pub(crate) fn plan(rng: &mut Rng, scenario: Scenario) -> Plan {
    if scenario == Scenario::Agents {
        return of_agents(rng);
    }
    let count = rng.between(2, 8);
    let children = if count > 2 { rng.below(3.min(count - 1)) } else { 0 };
    let mains = count - children;
    let mut flows: Vec<Flow> = (0..count).map(|number| flow(rng, number, mains, count)).collect();
    if rng.percent(40) {
        flows[0].trigger = true;
    }
    let own_patterns = if rng.percent(35) {
        let mut own: Vec<usize> =
            (0..rng.between(1, 2)).map(|_| rng.below(super::project_files::PATTERNS.len())).collect();
        own.sort_unstable();
        own.dedup();
        own
    } else {
        Vec::new()
    };
    Plan {
        flows,
        own_patterns,
        carry_over: rng.percent(60),
        every_turn: rng.percent(15),
        shortcuts: rng.percent(90),
        compat: super::project_files::COMPAT.get(rng.below(7)).copied(),
    }
}

fn flow(rng: &mut Rng, number: usize, mains: usize, count: usize) -> Flow {
    let child = number >= mains;
    let length = rng.between(1, 5);
    let mut steps = Vec::new();
    for at in 0..length {
        steps.push(step(rng, number, mains, count, child, at));
    }
    if !child {
        match rng.below(14) {
            // A question that always asks would never end here.
            0 => {
                let calm = |step: &Step| match step {
                    Step::Collect { always, .. } => !always,
                    other => matches!(other, Step::Say(_) | Step::Act(_) | Step::Noop),
                };
                steps.retain(calm);
                if steps.is_empty() {
                    steps.push(Step::Noop);
                }
                steps.push(Step::Round(0));
            }
            // Only to later flows, so that links end.
            1 | 2 if number + 1 < mains => steps.push(Step::Link(rng.between(number + 1, mains - 1))),
            3 => steps.push(Step::Handoff),
            _ => {}
        }
    }
    let stays = steps.iter().any(|step| matches!(step, Step::Collect { stays: true, .. }));
    let own: Vec<&'static str> = steps
        .iter()
        .flat_map(|step| match step {
            Step::Collect { slot, .. } => vec![*slot],
            Step::Set(values) => values.iter().map(|(slot, _)| *slot).collect(),
            _ => Vec::new(),
        })
        .collect();
    let persisted = own.into_iter().filter(|_| !stays && rng.percent(25)).collect();
    Flow {
        number,
        steps,
        guard: if child { Some("false") } else { (number > 0 && rng.percent(12)).then(|| *rng.of(GUARDS)) },
        persisted,
        child,
        trigger: false,
        told: rng.percent(90),
        edition: 0,
    }
}

fn collect(rng: &mut Rng) -> Step {
    Step::Collect { slot: *rng.of(ASKED), always: rng.percent(20), forced: rng.percent(8), stays: rng.percent(8) }
}

fn step(rng: &mut Rng, number: usize, mains: usize, count: usize, child: bool, at: usize) -> Step {
    match rng.below(30) {
        0..=12 => collect(rng),
        13..=15 => Step::Say(rng.below(3) as u8),
        16..=17 => Step::Act(rng.below(2) as u8),
        18..=19 => Step::Set((0..rng.between(1, 2)).map(|_| *rng.of(LITERALS)).collect()),
        // A called flow calls only later ones, so that calls end.
        20..=22 if number.max(mains - 1) + 1 < count => {
            let least = mains.max(number + 1);
            Step::Call(rng.between(least, count - 1))
        }
        23 | 24 => agent(rng),
        25 => Step::Tool,
        26 if at > 0 => Step::Again(rng.below(at)),
        27 | 28 => {
            let mut few = |most: usize| (0..rng.between(1, most)).map(|_| short(rng)).collect::<Vec<_>>();
            let (then, otherwise) = (few(2), few(2));
            Step::Branch { on: *rng.of(CONDITIONS), then, otherwise }
        }
        _ if child => Step::Say(0),
        _ => Step::Noop,
    }
}

fn short(rng: &mut Rng) -> Step {
    match rng.below(8) {
        0..=2 => Step::Collect { slot: *rng.of(ASKED), always: rng.percent(20), forced: false, stays: false },
        3 => Step::Act(rng.below(2) as u8),
        4 => Step::Set(vec![*rng.of(LITERALS)]),
        5 => agent(rng),
        _ => Step::Say(rng.below(3) as u8),
    }
}

fn agent(rng: &mut Rng) -> Step {
    match rng.below(3) {
        0 => Step::Agent { agent: "chooser", exit: true },
        1 => Step::Agent { agent: "researcher", exit: false },
        _ => Step::Agent { agent: "helper", exit: rng.percent(20) },
    }
}

/// Two flows with three agents, a digression, and a flow that is called and has an agent of its own.
fn of_agents(rng: &mut Rng) -> Plan {
    let flow = |number: usize, steps: Vec<Step>, child: bool| Flow {
        number,
        steps,
        guard: child.then_some("false"),
        persisted: Vec::new(),
        child,
        trigger: false,
        told: true,
        edition: 0,
    };
    let ask = |slot| Step::Collect { slot, always: false, forced: false, stays: false };
    let research = || Step::Agent { agent: "researcher", exit: false };
    let choose = || Step::Agent { agent: "chooser", exit: true };
    let help = || Step::Agent { agent: "helper", exit: false };
    let mut first = vec![research(), choose(), Step::Say(0)];
    let mut second = vec![choose(), help()];
    let mut mix = |steps: &mut Vec<Step>| {
        for _ in 0..rng.below(3) {
            let at = rng.below(steps.len() + 1);
            let more = match rng.below(7) {
                0 => ask("t0"),
                1 => ask("n0"),
                2 => research(),
                3 => help(),
                4 => Step::Call(3),
                5 => Step::Again(0),
                _ => Step::Act(0),
            };
            let again = matches!(more, Step::Again(_));
            steps.insert(if again { at.max(1) } else { at }, more);
        }
    };
    mix(&mut first);
    mix(&mut second);
    let flows = vec![
        flow(0, first, false),
        flow(1, second, false),
        flow(2, vec![Step::Say(1)], false),
        flow(3, vec![help(), ask("b0")], true),
    ];
    Plan { flows, own_patterns: Vec::new(), carry_over: true, every_turn: false, shortcuts: true, compat: None }
}

/// A new version of a project, as it is deployed during a conversation.
pub(crate) fn edited(rng: &mut Rng, plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    let at = rng.below(plan.flows.len());
    match rng.below(4) {
        0 if plan.flows.len() > 2 => drop_flow(&mut plan, at),
        1 if plan.flows[at].steps.len() > 1 => {
            let step = rng.below(plan.flows[at].steps.len());
            drop_step(&mut plan, at, step);
        }
        _ => plan.flows[at].edition += 1,
    }
    plan
}

/// Removes a flow with everything that leads to it. The first stays, because mappings name it.
pub(crate) fn drop_flow(plan: &mut Plan, at: usize) {
    let number = plan.flows[at].number;
    if number == 0 {
        plan.flows[at].edition += 1;
        return;
    }
    plan.flows.remove(at);
    let leads = |step: &Step| matches!(step, Step::Call(to) | Step::Link(to) if *to == number);
    for flow in &mut plan.flows {
        flow.steps.iter_mut().filter(|step| leads(step)).for_each(|step| *step = Step::Noop);
    }
}

/// Removes a step; loops back to a later step then lead to the first.
pub(crate) fn drop_step(plan: &mut Plan, flow: usize, step: usize) {
    let flow = &mut plan.flows[flow];
    flow.steps.remove(step);
    for (at, one) in flow.steps.iter_mut().enumerate() {
        match one {
            Step::Again(_) | Step::Round(_) if at == 0 => *one = Step::Noop,
            Step::Again(to) | Step::Round(to) if *to >= at => *to = 0,
            _ => {}
        }
    }
    settle(flow);
}

/// Removes persisted slots that the flow no longer has.
pub(crate) fn settle(flow: &mut Flow) {
    let has = |slot: &str| {
        flow.steps.iter().any(|step| match step {
            Step::Collect { slot: one, .. } => *one == slot,
            Step::Set(values) => values.iter().any(|(one, _)| *one == slot),
            _ => false,
        })
    };
    flow.persisted = flow.persisted.iter().copied().filter(|slot| has(slot)).collect();
    if flow.steps.is_empty() {
        flow.steps.push(Step::Noop);
    }
}
