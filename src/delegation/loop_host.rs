//! The host of a delegate's loop: one system prompt, the assignment as the only message of the user, and no control tools, except
//! `submit_result` if the result has a schema.

use std::sync::Arc;

use async_trait::async_trait;
use minijinja::context;
use segue_engine::{
    conversation::{AgentStatus, BotKind, ModelUsage},
    project::SubagentType,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::{
    executor::TaskHandle,
    parent::DelegationParent,
    report::{self, StopReason},
};
use crate::{
    context::CallContext,
    conversation::DiscardReplies,
    journal::{Step, StepResult},
    limits,
    llm::{ChatMessage, ChatRequest, ChatResponse, FinishReason, Llm, LlmErrorKind, Purpose, ToolCall, ToolSpec},
    prompts::PromptSet,
    react::{
        self, BareText, BatchSummary, Budget, ControlEffect, ControlResult, FinishedCall, LoopHost, LoopProfile,
        LoopState, Messages, ModelTurn, StreamedText,
    },
    tools::{ArgumentCheck, EffectClass, ToolCallContext, ToolOutcome, invoke, schema::SchemaError, tool_set::ToolSet},
};

/// The control tool that submits a result with a schema.
pub(super) const SUBMIT_RESULT: &str = "submit_result";

/// The error of a delegate whose result does not match its schema.
pub(super) const CODE_INVALID_RESULT: &str = "A0531";
/// The error of a delegate without a result.
pub(super) const CODE_NO_RESULT: &str = "A0504";
/// The error of a delegate whose token budget is spent.
pub(super) const CODE_BUDGET: &str = "A0534";

/// The profile of a delegate's loop.
pub(super) fn profile(parent: &DelegationParent, max_turns: u32, has_schema: bool) -> LoopProfile {
    LoopProfile {
        purpose: Purpose::DELEGATE,
        bare_text: if has_schema { BareText::Correct { most: 1 } } else { BareText::Final },
        closing_message: false,
        max_model_calls: max_turns,
        max_failed_answers: limits::AGENT_FAILURES,
        fails_on_tool_error: parent.fails_on_tool_error,
        tool_timeout: parent.tool_timeout,
        text_beside_calls: BotKind::Intermediate,
    }
}

/// The schema of a result. Arguments of tools are objects; a result of another type is wrapped.
pub(super) struct ResultSchema {
    check: ArgumentCheck,
    parameters: Arc<Json>,
    is_wrapped: bool,
}

impl ResultSchema {
    /// # Errors
    /// Why it cannot be used.
    pub(super) fn compile(schema: Json) -> Result<Self, String> {
        match ArgumentCheck::compile(&schema) {
            Ok(check) => return Ok(Self { check, parameters: Arc::new(schema), is_wrapped: false }),
            Err(SchemaError::NotAnObject) => {}
            Err(error) => return Err(error.to_string()),
        }
        // What is wrong with it is said of the schema itself, not of the wrapped one.
        ArgumentCheck::compile_any(&schema).map_err(|error| error.to_string())?;
        let wrapped = json!({"type": "object", "properties": {"result": schema}, "required": ["result"]});
        let check = ArgumentCheck::compile(&wrapped).map_err(|error| error.to_string())?;
        Ok(Self { check, parameters: Arc::new(wrapped), is_wrapped: true })
    }
    /// The control tool.
    pub(super) fn tool(&self, description: &str) -> ToolSpec {
        ToolSpec {
            name: SUBMIT_RESULT.into(),
            description: description.into(),
            parameters: self.parameters.clone(),
            strict: false,
        }
    }
    fn result(&self, arguments: &Json) -> Json {
        match arguments.get("result").filter(|_| self.is_wrapped) {
            Some(result) => result.clone(),
            None => arguments.clone(),
        }
    }
}

/// What a delegate knows about its budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct BudgetCheck {
    /// Nothing is left: for itself, or for the run that started it.
    pub(crate) is_spent: bool,
    /// It is time to finish.
    pub(crate) is_near: bool,
    /// The tokens that are left; `None` without a limit of tokens.
    pub(crate) tokens_left: Option<u64>,
}

impl BudgetCheck {
    fn of(budget: &Budget) -> Self {
        Self { is_spent: budget.is_spent(), is_near: budget.is_near(), tokens_left: budget.tokens_left() }
    }

    /// Both together: what either of them limits.
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            is_spent: self.is_spent || other.is_spent,
            is_near: self.is_near || other.is_near,
            tokens_left: self.tokens_left.into_iter().chain(other.tokens_left).min(),
        }
    }

    /// Checks a budget, and those that are shared with loops elsewhere. What is left of a shared one depends on what others did meanwhile:
    /// then the result is recorded at the step `budget` of `cx`, so that a run that is repeated after a crash makes the same requests.
    pub(super) async fn recorded(budget: &Budget, parent: &DelegationParent, cx: &CallContext) -> Self {
        if !parent.budget.is_limited() && parent.shared.is_none() {
            return Self::of(budget);
        }
        let key = cx.step("budget").key;
        let step = Step { key: &key, kind: "note", class: EffectClass::Read, request: "" };
        let check = async {
            let shared = match &parent.shared {
                Some(shared) => shared.check().await,
                None => None,
            };
            Self::of(budget).with(shared.unwrap_or_default())
        };
        let checked = parent.journal.once(step, check).await.and_then(StepResult::into_outcome);
        // A journal that failed stops the run by itself.
        checked.unwrap_or_else(|_| Self::of(budget))
    }
}

/// Why a delegate failed, if the loop itself cannot say.
pub(super) enum HostFailure {
    /// It gave two empty responses.
    Empty,
    /// Its budget is spent, and there is no result.
    Budget,
    /// Its second result did not match the schema either.
    InvalidResult(String),
}

/// The host of one delegate.
pub(super) struct DelegateHost<'a> {
    pub(super) parent: &'a DelegationParent,
    pub(super) prompts: &'a PromptSet,
    pub(super) kind: &'a SubagentType,
    pub(super) llm: &'a dyn Llm,
    pub(super) tools: &'a ToolSet,
    /// The context of the call of `task`.
    pub(super) call: &'a ToolCallContext,
    pub(super) task: &'a TaskHandle,
    pub(super) max_turns: u32,
    /// System prompt and assignment.
    pub(super) head: [Arc<ChatMessage>; 2],
    pub(super) schema: Option<ResultSchema>,
    /// Its budget: a slice of that of its parent.
    pub(super) budget: Arc<Budget>,
    /// The budget after the last response.
    pub(super) checked: BudgetCheck,
    /// The responses of its model.
    pub(super) responses: u32,
    /// What its own model calls used, and those of its delegates.
    pub(super) usage: ModelUsage,
    /// The last text of its model.
    pub(super) last_text: Arc<str>,
    pub(super) submitted: Option<Json>,
    pub(super) stop_reason: Option<StopReason>,
    pub(super) failure: Option<HostFailure>,
    pub(super) invalid_results: u32,
    pub(super) is_empty_corrected: bool,
}

impl DelegateHost<'_> {
    fn has_schema(&self) -> bool {
        self.schema.is_some()
    }
    fn turn_text(&self, variables: minijinja::Value) -> String {
        self.prompts.render(&self.prompts.delegate_turn, variables).unwrap_or_default().trim().to_owned()
    }

    /// The request to finish, from 80 % of the responses or the threshold of the token budget on. It is not part of the state: it comes
    /// last in each further request.
    fn wrap_up(&self, state: &LoopState) -> Option<String> {
        let made = state.model_calls.saturating_sub(1);
        let left = self.max_turns.saturating_sub(made);
        let by_turns = made > 0 && (left == 1 || u64::from(made) * 5 >= u64::from(self.max_turns) * 4);
        let by_budget = self.checked.is_near;
        let tokens = self.checked.tokens_left.filter(|_| by_budget);
        let has_schema = self.has_schema();
        (by_turns || by_budget)
            .then(|| self.turn_text(context! { outcome => "wrap_up", turns => left, tokens, has_schema }))
    }

    /// The status with which a run without budget ends: its last text is the result, if that is a text.
    fn budget_is_spent(&mut self) -> AgentStatus {
        self.stop_reason = Some(StopReason::TokenCapped);
        if self.last_text.is_empty() || self.has_schema() {
            self.failure = Some(HostFailure::Budget);
        }
        AgentStatus::Finished
    }

    /// A response beyond the budget ends the run: its tool calls are dropped.
    fn without_calls(&mut self, answer: &ChatResponse, cx: &CallContext) -> ModelTurn {
        self.budget_is_spent();
        let text = self.last_text.clone();
        if self.failure.is_some() {
            return ModelTurn::Failed(LlmErrorKind::Truncated.into(), StreamedText::complete(cx, "".into()));
        }
        let answer = ChatResponse {
            text: text.clone(),
            tool_calls: Vec::new(),
            truncated_calls: Vec::new(),
            finish: FinishReason::Stop,
            ..answer.clone()
        };
        ModelTurn::Answer(Arc::new(answer), StreamedText::complete(cx, text))
    }
}

#[async_trait]
impl LoopHost for DelegateHost<'_> {
    async fn messages(&mut self, state: &LoopState, _: &CallContext) -> Result<Messages, AgentStatus> {
        if self.checked.is_spent {
            return Err(self.budget_is_spent());
        }
        let mut messages = Vec::with_capacity(state.messages.len() + 3);
        messages.extend(self.head.iter().cloned());
        messages.extend(state.messages.iter().cloned());
        messages.extend(self.wrap_up(state).map(ChatMessage::system));
        Ok(messages)
    }

    async fn call_model(&mut self, request: ChatRequest, cx: &CallContext) -> ModelTurn {
        let source: Arc<str> = "delegate".into();
        let turn = react::stream_answer(self.llm, &source, request, None, &mut DiscardReplies, cx).await;
        if let ModelTurn::Answer(answer, streamed) = &turn {
            self.responses += 1;
            self.usage += ModelUsage::single(answer.usage);
            self.budget.spend(&answer.usage);
            if !streamed.text.is_empty() {
                self.last_text = streamed.text.clone();
            }
            self.task.message(&answer.to_message(), &self.usage, &self.last_text);
        }
        turn
    }

    async fn review_answer(&mut self, turn: ModelTurn, state: &mut LoopState, cx: &CallContext) -> Option<ModelTurn> {
        let ModelTurn::Answer(answer, _) = &turn else { return Some(turn) };
        let submits = answer.tool_calls.iter().any(|call| self.is_control(call));
        self.checked = BudgetCheck::recorded(&self.budget, self.parent, cx).await;
        if self.checked.is_spent && !answer.tool_calls.is_empty() && !submits {
            return Some(self.without_calls(answer, cx));
        }
        let is_empty = answer.is_blank() && answer.truncated_calls.is_empty();
        if !is_empty || answer.finish == FinishReason::ContentFilter {
            return Some(turn);
        }
        if self.is_empty_corrected {
            self.failure = Some(HostFailure::Empty);
            return Some(ModelTurn::Failed(LlmErrorKind::Truncated.into(), StreamedText::complete(cx, "".into())));
        }
        self.is_empty_corrected = true;
        let text = self.turn_text(context! { outcome => "empty", has_schema => self.has_schema() });
        state.messages.push(ChatMessage::system(text));
        None
    }

    fn correction(&self) -> String {
        self.turn_text(context! { outcome => "no_result" })
    }

    fn is_control(&self, call: &ToolCall) -> bool {
        self.has_schema() && &*call.name == SUBMIT_RESULT
    }

    async fn control(&mut self, call: &ToolCall, _: &BatchSummary, _: &CallContext) -> ControlResult {
        let Some(schema) = &self.schema else {
            return ControlResult { text: String::new(), effect: ControlEffect::None };
        };
        let problems = match call.arguments.as_json() {
            Some(arguments) => schema.check.problems(arguments).join(" "),
            None => "The arguments are not valid JSON.".to_owned(),
        };
        if problems.is_empty() {
            self.submitted = call.arguments.as_json().map(|arguments| schema.result(arguments));
            return ControlResult {
                text: self.turn_text(context! { outcome => "accepted" }),
                effect: ControlEffect::Completed,
            };
        }
        self.invalid_results += 1;
        let text = self.turn_text(context! { outcome => "invalid", problems => &*problems });
        if self.invalid_results > 1 {
            self.failure = Some(HostFailure::InvalidResult(problems));
            return ControlResult { text, effect: ControlEffect::Completed };
        }
        ControlResult { text, effect: ControlEffect::Failed }
    }

    fn tool_context(&self, at: usize, call: &ToolCall, cx: &CallContext) -> ToolCallContext {
        let cx = cx.step(format!("tool.{at}"));
        let source = self.tools.get(&call.name).map(|entry| entry.info.source.clone()).unwrap_or_default();
        self.task.writes.begin(call, self.tools.get(&call.name).map(|entry| &entry.info), &cx.key);
        let meta = self.parent.mcp_meta.get(&*source).and_then(Json::as_object).cloned().unwrap_or_default();
        let key = invoke::idempotency_key(&self.parent.conversation, self.parent.turn, &cx);
        ToolCallContext::new(cx, self.parent.conversation.clone(), key)
            // It has read nothing that its parent or its siblings have read.
            .with_caller(self.call.caller.clone().session(self.task.id().clone()))
            .with_metadata(self.call.metadata.clone())
            .with_meta(meta)
    }

    fn result_text(&mut self, _: &ToolCall, outcome: &ToolOutcome) -> Option<String> {
        report::replacement_text(outcome)
    }

    fn skill_called(&mut self, call: &ToolCall, text: &str, _: bool, _: &CallContext) {
        self.task.message(&ChatMessage::tool(call, text), &self.usage, &self.last_text);
    }

    fn call_finished(&mut self, finished: FinishedCall<'_>, _: &LoopState, _: &CallContext) {
        self.usage += report::usage_of(&finished.outcome);
        self.task.writes.finish(finished.call, &finished.outcome, finished.text);
        self.task.message(&ChatMessage::tool(finished.call, finished.text), &self.usage, &self.last_text);
    }
}
