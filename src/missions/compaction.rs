//! Compaction of the sessions of a unit: when it happens, what stays known, and its event.

use minijinja::{Value, context};
use segue_engine::{
    mission::{event::RunEventKind, learnings::Learnings, state::RunState, unit::UnitView},
    project::missions::ContextLimits,
};

use super::slice::UnitRun;
use crate::{
    context::CallContext,
    journal::Journal,
    react::{CompactionReport, CompactionRules, KeptFacts},
};

/// The rules of a session; `None` if its history is never compacted.
pub(super) fn compaction_rules(limits: &ContextLimits) -> Option<CompactionRules> {
    let keep_turns = usize::try_from(limits.turn_retention).unwrap_or(usize::MAX);
    limits.compact_above.map(|limit| CompactionRules { token_limit: u64::from(limit), keep_turns })
}

impl UnitRun {
    /// What a summary contains: computed now and recorded, or recorded before, so that a repetition after a crash has the same summary.
    /// The facts are `None` if they cannot be read. The second value: whether they were recorded before.
    pub(super) async fn recorded_facts(
        &self,
        cx: &CallContext,
        facts: impl Future<Output = Option<KeptFacts>>,
    ) -> (Option<KeptFacts>, bool) {
        let is_repeated = self.journal.recorded(&cx.key).is_some();
        (self.journal.once(&cx.key, facts).await, is_repeated)
    }

    /// Stores the event of a compaction with the next write.
    pub(super) fn note_compaction(&self, entity: &str, report: &CompactionReport) {
        self.journal.note(RunEventKind::Compaction {
            entity: entity.into(),
            input_tokens: report.input_tokens,
            token_limit: report.token_limit,
            messages_compacted: report.messages as u64,
            turn_retention: u32::try_from(report.kept_turns).unwrap_or(u32::MAX),
        });
    }

    /// What the summary of a commander's session contains: plan, cursor, outputs, open questions and learnings. Its objective is not part
    /// of the history.
    pub(super) fn commander_facts(&self, state: &RunState, learned: Option<&Learnings>) -> Option<KeptFacts> {
        let unit = UnitView::new(&self.def, state, &self.id)?;
        let fact = |variables: Value| self.render(&self.parts.prompts.mission_facts, variables);
        let plan = unit.state.plan.iter().flat_map(|plan| {
            let status = |at: usize| plan.status(u32::try_from(at).unwrap_or(u32::MAX));
            plan.subtasks.iter().enumerate().map(move |(at, title)| (status(at), title))
        });
        let plan = plan.map(|(status, title)| fact(context! { fact => "subtask", status, title => &**title }));
        let mut progress = Vec::new();
        if unit.sequential().is_some() {
            let total = unit.dataset_items().len();
            if let Some((index, item)) = unit.item() {
                progress.push(fact(context! { fact => "item", index, total, id => &*item.item_id }));
            }
            let outputs = unit.task_state.items.values().filter(|item| item.output.is_some()).count();
            progress.push(fact(context! { fact => "items", next => unit.next_index(), total, outputs }));
        } else if !unit.task.output.is_empty() {
            progress.push(fact(context! { fact => "output", submitted => unit.has_output() }));
        }
        let agents = unit.state.agents.iter().filter_map(|(name, agent)| Some((name, agent.question.as_deref()?)));
        let agents = agents.map(|(name, question)| fact(context! { fact => "agent", name => name.as_str(), question }));
        let people = state.human_inputs.values().filter(|input| input.open && input.unit == self.id);
        let people = people.map(|input| fact(context! { fact => "person", question => &*input.question.question }));
        Some(KeptFacts {
            // The objective stays before the history.
            assignment: Some("".into()),
            plan: plan.collect(),
            progress,
            questions: agents.chain(people).collect(),
            learnings: self.learned(&unit.task_state.learnings, learned),
            skills: Vec::new(),
        })
    }

    /// What the items before have shown, and what was learned about the current one.
    fn learned(&self, before: &Learnings, now: Option<&Learnings>) -> Vec<String> {
        let fact = |variables: Value| self.render(&self.parts.prompts.mission_facts, variables);
        let mut all = before.clone();
        if let Some(now) = now {
            all.merge(now);
        }
        let insights = all.key_insights.iter().map(|insight| insight.to_string());
        let failures = all.failures.iter();
        let failures = failures
            .map(|one| fact(context! { fact => "failure", problem => &*one.problem, solution => &*one.solution }));
        let advice = Some(all.recommendations.to_string()).filter(|text| !text.is_empty());
        insights.chain(failures).chain(advice).collect()
    }
}
