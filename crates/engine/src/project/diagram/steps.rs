//! The diagram of a flow: a node for each step, and an edge for each possible next step.

use super::{
    super::{ActionReference, Call, Collect, Flow, NextStep, Project, ResponseText, Step, StepKind, Target},
    DiagramEdge, DiagramNode, EdgeKind, NodeKind, Subgraph,
    labels::{cut, wrap},
};
use crate::limits::PICTURE_LINE;

/// The position of the start node. The steps follow, then the end node.
const START: usize = 0;

pub(super) fn part(project: &Project, flow: &Flow) -> Subgraph {
    let mut notes = vec![format!("“{}”", cut(&flow.description, 2 * PICTURE_LINE))];
    notes.extend(flow.guard.as_ref().map(|guard| format!("only if {guard}")));
    let triggers: Vec<String> = flow.nlu_triggers.iter().map(|trigger| format!("/{}", trigger.intent)).collect();
    notes.extend((!triggers.is_empty()).then(|| format!("started by {}", triggers.join(", "))));
    let mut nodes = vec![DiagramNode { shape: NodeKind::Start, lines: vec![flow.id.to_string()] }];
    nodes.extend(flow.steps.iter().map(|step| node(project, step)));
    let end = nodes.len();
    let mut edges = vec![DiagramEdge { from: START, to: 1.min(end), lines: Vec::new(), line: EdgeKind::Next }];
    for (at, step) in flow.steps.iter().enumerate() {
        ways(flow, step, at + 1, end, &mut edges);
    }
    if edges.iter().any(|edge| edge.to == end) {
        nodes.push(DiagramNode { shape: NodeKind::End, lines: vec!["END".to_owned()] });
    }
    Subgraph { title: format!("{}: {}", flow.id, flow.name), notes, nodes, edges }
}

fn ways(flow: &Flow, step: &Step, from: usize, end: usize, edges: &mut Vec<DiagramEdge>) {
    if matches!(step.kind, StepKind::Link(_)) {
        return;
    }
    let to = |target: &Target| match target {
        Target::Step(id) => flow.index.get(id).map_or(end, |at| at + 1),
        Target::End => end,
    };
    for (next, failed) in std::iter::once((&step.next, false)).chain(step.on_error.iter().map(|next| (next, true))) {
        let mut add = |target: &Target, text: &str| {
            let text = match (failed, text) {
                (false, text) => text.to_owned(),
                (true, "") => "on error".to_owned(),
                (true, text) => format!("on error: {text}"),
            };
            let line = if failed { EdgeKind::Error } else { EdgeKind::Next };
            edges.push(DiagramEdge { from, to: to(target), lines: wrap(&text), line });
        };
        match next {
            NextStep::Go(target) => add(target, ""),
            NextStep::Branch { branches, otherwise } => {
                branches.iter().for_each(|branch| add(&branch.target, branch.condition.text()));
                otherwise.iter().for_each(|otherwise| add(&otherwise.target, "else"));
            }
        }
    }
}

fn node(project: &Project, step: &Step) -> DiagramNode {
    let (shape, lines) = match &step.kind {
        StepKind::Collect(collect) => (NodeKind::Ask, question(collect)),
        StepKind::Action(ActionReference::Plain(name)) => match project.response(name.as_str()) {
            Some(response) => {
                let mut lines = vec![name.to_string()];
                let text = response.variations.first().and_then(|variation| variation.text.as_ref());
                lines.extend(text.and_then(excerpt));
                (NodeKind::Say, lines)
            }
            None => (NodeKind::Run, vec![format!("run {name}")]),
        },
        StepKind::Action(ActionReference::Template(template)) => {
            (NodeKind::Run, vec![format!("run {}", cut(template.source().text(), PICTURE_LINE))])
        }
        StepKind::SetSlots(pairs) => {
            let shown = pairs.iter().take(4).map(|(slot, value)| cut(&format!("{slot} = {value}"), PICTURE_LINE));
            let more = pairs.len().saturating_sub(4);
            (NodeKind::Set, shown.chain((more > 0).then(|| format!("… and {more} more"))).collect())
        }
        StepKind::Call(Call::Flow(flow)) => (NodeKind::Call, vec![format!("call {flow}")]),
        StepKind::Call(Call::Agent { agent, exit_if }) => {
            let until = exit_if.iter().map(|condition| condition.text().to_owned()).collect::<Vec<_>>().join(" and ");
            let mut lines = vec![format!("agent {agent}")];
            lines.extend((!until.is_empty()).then(|| wrap(&format!("until {until}"))).into_iter().flatten());
            (NodeKind::Agent, lines)
        }
        StepKind::Call(Call::Tool { server, tool, .. }) => {
            (NodeKind::Tool, vec![format!("tool {tool}"), format!("of {server}")])
        }
        StepKind::Link(flow) => (NodeKind::Link, vec![format!("link {flow}")]),
        StepKind::Noop => (NodeKind::Fork, vec!["?".to_owned()]),
    };
    DiagramNode { shape, lines }
}

fn question(collect: &Collect) -> Vec<String> {
    let mut lines = vec![format!("ask {}", collect.slot)];
    let refused = collect.rejections.len();
    lines.extend((refused > 0).then(|| format!("{refused} rejection{}", if refused == 1 { "" } else { "s" })));
    lines
}

/// The beginning of the text of a response.
fn excerpt(text: &ResponseText) -> Option<String> {
    let text = match text {
        ResponseText::Braces(text) => text,
        ResponseText::Jinja(template) => template.source().text(),
    };
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    (!line.is_empty()).then(|| format!("“{}”", cut(&line, PICTURE_LINE)))
}
