//! The messages of one run: the prompt, the visible part of the conversation, and those that last until the next turn.

use std::sync::Arc;

use minijinja::context;
use segue_engine::{
    conversation::{AgentKind, BotKind, HistoryItem},
    template::ZonedTime,
    text::{ELLIPSIS, TextLimit, truncate},
};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::{
    AgentRequest, lead,
    own_prompt::own_prompt,
    profile::Profile,
    prompt_cache::{PromptCache, PromptKey},
    slots::RunSlots,
};
use crate::{
    limits,
    llm::{ChatMessage, ToolArguments},
    prompts::{PromptSet, WritesOf},
};

/// The prompt and the conversation of one run.
pub(super) struct RunTranscript {
    /// The stable prompt.
    system: Arc<ChatMessage>,
    /// What the agent reads about its files, if it has any; stable.
    files: Option<Arc<ChatMessage>>,
    /// What the agent reads about sub-agents: the policy, which is stable, and those so far.
    delegation: (Option<Arc<ChatMessage>>, Option<Arc<ChatMessage>>),
    /// What runs changed that ended before the task was complete.
    unfinished: Option<Arc<ChatMessage>>,
    /// The conversation, oldest first; the context is inserted before its last user message.
    history: Vec<Arc<ChatMessage>>,
    /// The index in `history` at which the context is inserted.
    context_at: usize,
}

impl RunTranscript {
    /// The prompt and the conversation at the start of the run.
    pub(super) fn new(
        request: &AgentRequest<'_>,
        profile: &Profile,
        slots: &RunSlots<'_>,
        prompts: &PromptSet,
        cache: &PromptCache,
    ) -> Result<Self, String> {
        let system = match &request.definition.prompt {
            Some(own) => own_prompt(request, own, profile, slots)?,
            None => cache.get(prompt_key(request, profile), || stable_prompt(request, profile, prompts))?,
        };
        let history = conversation_messages(request, prompts);
        let context_at =
            history.iter().rposition(|message| matches!(**message, ChatMessage::User { .. })).unwrap_or(history.len());
        let files = lead::file_prompt_variables(&request.tools);
        let files = files.map(|variables| prompts.render(&prompts.agent_workspace, variables)).transpose();
        let files = files.map_err(|error| error.to_string())?.map(|text| ChatMessage::system(text.trim()));
        let delegation = request.delegation.as_ref();
        let policy = delegation.map(|lead| ChatMessage::system(lead.policy.clone()));
        let ledger = delegation.and_then(|lead| lead.ledger.render(prompts)).map(ChatMessage::system);
        let record = request.conversation.agents.get(&request.call.agent);
        let unfinished = record.and_then(|record| prompts.writes_text(&record.unfinished, WritesOf::UnfinishedRun));
        let unfinished = unfinished.map(ChatMessage::system);
        Ok(Self { system, files, delegation: (policy, ledger), unfinished, history, context_at })
    }

    /// The messages of the next request; `exchanges` are those that the run added. Texts are shared; only pointers are copied.
    pub(super) fn messages(
        &self,
        request: &AgentRequest<'_>,
        profile: &Profile,
        slots: &RunSlots<'_>,
        prompts: &PromptSet,
        exchanges: &[Arc<ChatMessage>],
    ) -> Result<Vec<Arc<ChatMessage>>, String> {
        let mut messages = Vec::with_capacity(self.history.len() + exchanges.len() + 5);
        messages.push(self.system.clone());
        messages.extend(self.files.clone());
        messages.extend(self.delegation.0.clone());
        let (before, after) = self.history.split_at(self.context_at.min(self.history.len()));
        messages.extend(before.iter().cloned());
        if request.definition.prompt.is_none() {
            messages.push(ChatMessage::system(context_prompt(request, profile, slots, prompts)?));
        }
        messages.extend(self.delegation.1.clone());
        messages.extend(self.unfinished.clone());
        messages.extend(after.iter().cloned());
        messages.extend(exchanges.iter().cloned());
        Ok(messages)
    }

    /// The prompt.
    pub(super) fn prompt(&self) -> Arc<ChatMessage> {
        self.system.clone()
    }
    /// Replaces the prompt.
    pub(super) fn set_prompt(&mut self, prompt: Arc<ChatMessage>) {
        self.system = prompt;
    }

    /// All messages and tool results that this run sees: the possible origins of a value.
    pub(super) fn visible_messages<'m>(
        &'m self,
        exchanges: &'m [Arc<ChatMessage>],
    ) -> impl Iterator<Item = &'m ChatMessage> + Clone {
        self.history.iter().chain(exchanges).map(|message| &**message)
    }
}

/// The exchanges of a run for the next turns of the same task, at most [`limits::AGENT_EXCHANGES`] bytes.
///
/// If they are larger, long texts are shortened first, then the oldest exchanges are excluded. The newest exchange stays, and
/// so does every call of a tool that `changes` something: without it the model would call the tool again.
pub(super) fn lasting_exchanges(messages: &[Arc<ChatMessage>], changes: impl Fn(&str) -> bool) -> Vec<Json> {
    let groups = groups(messages);
    let mut most = limits::TOOL_RESULT;
    // Some providers want the reasoning back for as long as the calls are in the request.
    let (mut kept, mut size) = truncate_texts(&groups, most, true);
    if size > limits::AGENT_EXCHANGES {
        (kept, size) = truncate_texts(&groups, most, false);
    }
    while size > limits::AGENT_EXCHANGES && most > limits::AGENT_EXCHANGE_MIN {
        most = (most / 2).max(limits::AGENT_EXCHANGE_MIN);
        (kept, size) = truncate_texts(&groups, most, false);
    }
    let newest = groups.len().saturating_sub(1);
    for (at, (group, kept)) in groups.iter().zip(&mut kept).enumerate() {
        let stays = at == newest
            || group.iter().any(|message| matches!(&**message, ChatMessage::Tool { name, .. } if changes(name)));
        if size > limits::AGENT_EXCHANGES && !stays {
            size -= std::mem::take(kept).iter().map(length).sum::<usize>();
        }
    }
    kept.into_iter().flatten().collect()
}

/// Model responses with calls, each with its results; other messages are excluded.
fn groups(messages: &[Arc<ChatMessage>]) -> Vec<&[Arc<ChatMessage>]> {
    let mut groups = Vec::new();
    let mut rest = messages;
    while let Some(first) = rest.first() {
        let results = rest.iter().skip(1).take_while(|message| matches!(***message, ChatMessage::Tool { .. })).count();
        let (group, tail) = rest.split_at((1 + results).min(rest.len()));
        if matches!(&**first, ChatMessage::Assistant { tool_calls, .. } if !tool_calls.is_empty()) {
            groups.push(group);
        }
        rest = tail;
    }
    groups
}

/// Exchanges with texts of at most `most` bytes, and their total length in bytes.
fn truncate_texts(groups: &[&[Arc<ChatMessage>]], most: usize, with_reasoning: bool) -> (Vec<Vec<Json>>, usize) {
    let text = |text: &Arc<str>| match text.len() > most {
        true => truncate(text, TextLimit::Bytes(most), ELLIPSIS).into(),
        false => text.clone(),
    };
    let whole = |message: &ChatMessage| if with_reasoning { message.clone() } else { message.without_reasoning() };
    let cut = |message: &Arc<ChatMessage>| match whole(message) {
        ChatMessage::Tool { call_id, name, text: result } => ChatMessage::Tool { call_id, name, text: text(&result) },
        ChatMessage::Assistant { text: said, mut tool_calls, reasoning } => {
            for call in &mut tool_calls {
                let written: Arc<str> = call.arguments.to_string().into();
                if written.len() > most {
                    call.arguments = ToolArguments::json(json!({"cut": text(&written)}));
                }
            }
            ChatMessage::Assistant { text: text(&said), tool_calls, reasoning }
        }
        other => other,
    };
    let kept = |group: &&[Arc<ChatMessage>]| {
        group.iter().filter_map(|message| serde_json::to_value(cut(message)).ok()).collect::<Vec<Json>>()
    };
    let groups: Vec<Vec<Json>> = groups.iter().map(kept).collect();
    let size = groups.iter().flatten().map(length).sum();
    (groups, size)
}

/// The length of a value as JSON text.
fn length(value: &Json) -> usize {
    serde_json::to_string(value).map_or(0, |text| text.len())
}

fn prompt_key(request: &AgentRequest<'_>, profile: &Profile) -> PromptKey {
    PromptKey {
        is_task: profile.kind == AgentKind::Task,
        description: request.definition.description.clone(),
        fillers: profile.fillers,
        slots: profile.exit_slots.clone(),
    }
}

/// A built-in prompt, which depends only on the parts of [`prompt_key`].
fn stable_prompt(request: &AgentRequest<'_>, profile: &Profile, prompts: &PromptSet) -> Result<String, String> {
    let rendered = match profile.kind {
        AgentKind::Open => prompts.render(
            &prompts.agent_open,
            context! { description => &*request.definition.description, enable_filler_messages => profile.fillers },
        ),
        AgentKind::Task => prompts.render(
            &prompts.agent_task,
            context! {
                description => &*request.definition.description,
                enable_filler_messages => profile.fillers,
                slot_names => profile.slot_names(),
            },
        ),
    };
    rendered.map(trimmed_end).map_err(|error| error.to_string())
}

/// Removes the white space at the end, without an allocation.
fn trimmed_end(mut text: String) -> String {
    text.truncate(text.trim_end().len());
    text
}

pub(super) fn now(request: &AgentRequest<'_>) -> Option<ZonedTime> {
    let definition = request.definition;
    definition.include_date_time.then(|| ZonedTime::new(request.call.at, &definition.timezone).ok()).flatten()
}

fn context_prompt(
    request: &AgentRequest<'_>,
    profile: &Profile,
    slots: &RunSlots<'_>,
    prompts: &PromptSet,
) -> Result<String, String> {
    let open: Vec<String> = profile.slot_names().into_iter().filter(|name| slots.value(name).is_null()).collect();
    let (marker_start, marker_end) = if request.call.restarted { markers(prompts) } else { Default::default() };
    let shown = slots.snapshot(&[]);
    let variables = context! {
        current_datetime => now(request).as_ref().map(ZonedTime::to_value),
        slots => (!shown.is_empty()).then(|| shown.into_value()),
        slot_names => profile.slot_names(),
        open_slots => open,
        resumed_after_interruption => request.call.resumed,
        resumed_last_request => request.call.resumed_last_request.as_deref().unwrap_or_default(),
        restarted => request.call.restarted,
        marker_start, marker_end,
    };
    prompts.render(&prompts.agent_context, variables).map(trimmed_end).map_err(|e| e.to_string())
}

/// The two lines around an earlier run, for the prompt and for the transcript.
fn markers(prompts: &PromptSet) -> (String, String) {
    let text = prompts.render(&prompts.agent_markers, context! {}).unwrap_or_default();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned);
    (lines.next().unwrap_or_default(), lines.next().unwrap_or_default())
}

/// The conversation as the agent sees it: the latest utterances, and its own exchanges of the current task.
fn conversation_messages(request: &AgentRequest<'_>, prompts: &PromptSet) -> Vec<Arc<ChatMessage>> {
    let me = request.call.agent.as_str();
    let items: Vec<&HistoryItem> = request.conversation.history.iter().collect();
    let utterance = |item: &&HistoryItem| matches!(item, HistoryItem::User { .. } | HistoryItem::Bot { .. });
    let window = items.iter().enumerate().rev().filter(|(_, item)| utterance(item)).map(|(at, _)| at);
    let first = window.take(limits::AGENT_HISTORY).last().unwrap_or(0);
    let task_began = items
        .iter()
        .rposition(|item| matches!(item, HistoryItem::AgentTask { agent, start: true } if agent == me))
        .unwrap_or(items.len());
    let (marker_start, marker_end) = if request.call.restarted { markers(prompts) } else { Default::default() };
    let earlier = request.call.restarted.then(|| earlier_run(&items, me, task_began)).flatten();
    let mut messages = Vec::new();
    let mut marked = false;
    for (at, item) in items.iter().enumerate().skip(first) {
        let in_earlier = earlier.is_some_and(|(start, end)| (start..end).contains(&at));
        if in_earlier != marked {
            marked = in_earlier;
            messages.push(ChatMessage::system(if marked { marker_start.clone() } else { marker_end.clone() }));
        }
        match item {
            HistoryItem::User { text, .. } => messages.push(ChatMessage::user(text.clone())),
            HistoryItem::Bot { in_exchange: true, agent: Some(agent), .. } if agent == me && at > task_began => {}
            HistoryItem::Bot { text, .. } => messages.push(ChatMessage::assistant(text.clone())),
            HistoryItem::Exchanges { agent, messages: kept } if agent == me && at > task_began => {
                // A message that cannot be read is excluded.
                messages.extend(kept.iter().filter_map(|kept| ChatMessage::deserialize(kept).ok().map(Arc::new)));
            }
            HistoryItem::Interrupted => {
                let text = prompts.render(&prompts.agent_interrupted, context! {}).unwrap_or_default();
                messages.push(ChatMessage::system(text.trim()));
            }
            HistoryItem::Exchanges { .. } | HistoryItem::AgentTask { .. } => {}
        }
    }
    if marked {
        messages.push(ChatMessage::system(marker_end));
    }
    let newest = request.call.user_message.trim();
    if request.user_message_changed
        && let Some(last) = messages.iter_mut().rev().find(|message| matches!(***message, ChatMessage::User { .. }))
    {
        *last = ChatMessage::user(newest);
    }
    let shown = messages.iter().rev().find_map(|message| match &**message {
        ChatMessage::User { text } => Some(text.trim() == newest),
        _ => None,
    });
    if !newest.is_empty() && shown != Some(true) {
        messages.push(ChatMessage::user(newest));
    }
    messages
}

/// The last completed run of this agent before `until`, as a range of items.
fn earlier_run(items: &[&HistoryItem], me: &str, until: usize) -> Option<(usize, usize)> {
    let before = items.get(..until)?;
    let end = before
        .iter()
        .rposition(|item| matches!(item, HistoryItem::AgentTask { agent, start: false } if agent == me))?;
    let start = before
        .get(..end)?
        .iter()
        .rposition(|item| matches!(item, HistoryItem::AgentTask { agent, start: true } if agent == me))
        .unwrap_or(0);
    Some((start, end))
}

/// The latest 20 utterances as lines, for templates.
pub(super) fn readable_history(request: &AgentRequest<'_>) -> String {
    let newest = request.conversation.history.iter().rposition(|item| matches!(item, HistoryItem::User { .. }));
    let newest = newest.filter(|_| request.user_message_changed);
    let lines = request.conversation.history.iter().enumerate().filter_map(|(at, item)| match item {
        HistoryItem::User { .. } if newest == Some(at) => {
            Some(format!("USER: {}", request.call.user_message.replace('\n', " ")))
        }
        HistoryItem::User { text, .. } => Some(format!("USER: {}", text.replace('\n', " "))),
        HistoryItem::Bot { text, kind, .. } if *kind != BotKind::Intermediate => {
            Some(format!("AI: {}", text.replace('\n', " ")))
        }
        _ => None,
    });
    let lines: Vec<String> = lines.collect();
    lines.get(lines.len().saturating_sub(20)..).unwrap_or_default().join("\n")
}
