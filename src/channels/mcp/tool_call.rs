//! Runs a tool call: a turn, then the flow's question to the user as an elicitation, their answer as the next turn, and so on until
//! no question is left that a form can show.
//!
//! A host that speaks MCP 2025-11-25 or older is asked during the call. From 2026-07-28 on the call ends with the question as its
//! result, and the host calls again with the answers and the [`RequestState`].

use rmcp::{
    ErrorData,
    model::{CallToolResponse, CallToolResult, InputRequiredResult, InputResponses},
};
use segue_engine::conversation::Conversation;
use serde_json::{Map, Value as Json};

use super::{
    call_result::{CallReplies, TurnReplies},
    form::{self, ElicitationForm, FormResponse},
    question::{self, Question},
    request_state::RequestState,
    session::{IncomingToolCall, Session, ToolRequest, error_result, is_sessionless_revision},
    texts::text,
};
use crate::{limits, runtime::ReceiveError};

/// The user's answers to the forms of one call.
pub(super) struct FormAnswers {
    /// What the host sent with the call, by the step of the question; not read yet.
    responses: InputResponses,
    /// Values from accepted forms, by slot.
    values: Map<String, Json>,
    /// Number of elicitation requests that may still be sent.
    requests_left: usize,
    /// Whether the user saw the first question before the call.
    was_shown: bool,
}

/// What a call does after a turn.
enum NextAction {
    /// Runs a turn with this message.
    SendMessage(String),
    /// Ends with a request for input; the host calls again.
    RequireInput(InputRequiredResult),
    /// Ends with the result.
    Finish,
}

impl FormAnswers {
    /// Takes the `inputResponses` of a call.
    ///
    /// # Errors
    /// One of them is not an object.
    pub(super) fn new(responses: Option<InputResponses>) -> Result<Self, ErrorData> {
        let responses = responses.unwrap_or_default();
        if let Some((key, _)) = responses.iter().find(|(_, response)| !response.is_object()) {
            return Err(ErrorData::invalid_params(format!("`inputResponses.{key}` must be an object"), None));
        }
        Ok(Self { responses, values: Map::new(), requests_left: limits::MCP_SERVED_QUESTIONS, was_shown: false })
    }

    /// Removes the answer to a question, and returns it as a message of the user.
    fn take_message(&mut self, question: &Question) -> Option<String> {
        let value = self.values.shift_remove(&question.slot)?;
        let message = match question.is_free_text {
            true => value.as_str().map(|text| text.trim().to_owned()),
            false => form::message_of(&question.slot, &value),
        };
        message.filter(|message| !message.is_empty())
    }

    /// Stores the values of an accepted form, for its own fields only. An empty field removes the earlier value: it is asked later.
    fn store(&mut self, question: &Question, values: &Map<String, Json>) {
        let slots = question.follow_ups.iter().map(|next| &next.slot).chain([&question.slot]);
        for slot in slots {
            let value = values.get(slot).filter(|value| value.as_str().is_none_or(|text| !text.trim().is_empty()));
            match value {
                Some(value) => _ = self.values.insert(slot.clone(), value.clone()),
                None => _ = self.values.shift_remove(slot),
            }
        }
    }
}

impl Session {
    /// Runs a new call.
    pub(super) async fn start(
        &self,
        call: &IncomingToolCall<'_>,
        request: ToolRequest,
        answers: FormAnswers,
    ) -> Result<CallToolResponse, ReceiveError> {
        let assistant = &self.shared.assistant;
        let report = self.run_turn(call, request, 0, false).await?;
        if let Some(flow) = call.tool.flow.as_ref().filter(|_| report.replies.is_empty()) {
            let conversation = assistant.conversation(&call.conversation).await?;
            if !assistant.may_start(&conversation, flow) {
                return Ok(error_result(text("no_start", &[("flow", flow.as_str())])).into());
            }
        }
        self.ask_until_done(call, report.into(), answers).await
    }

    /// Runs a call that comes with a request state. The answers count only if the conversation is unchanged since the question. The
    /// replies of the last turn are returned again if nothing was answered.
    pub(super) async fn resume(
        &self,
        call: &IncomingToolCall<'_>,
        state: &RequestState,
        mut answers: FormAnswers,
    ) -> Result<CallToolResponse, ReceiveError> {
        let assistant = &self.shared.assistant;
        let conversation = assistant.conversation(&call.conversation).await?;
        let events = assistant.store().latest_events(&call.conversation, limits::MCP_SERVED_EVENTS).await?;
        let has_changed = conversation.events != state.events;
        if has_changed {
            answers.responses.clear();
        }
        answers.was_shown = true;
        let last_turn = TurnReplies {
            replies: form::last_replies(&events),
            has_failures: false,
            session_ended: conversation.session.ended,
            is_repeated: has_changed,
        };
        self.ask_until_done(call, last_turn, answers).await
    }

    async fn ask_until_done(
        &self,
        call: &IncomingToolCall<'_>,
        mut turn: TurnReplies,
        mut answers: FormAnswers,
    ) -> Result<CallToolResponse, ReceiveError> {
        let assistant = &self.shared.assistant;
        let mut replies = CallReplies::new(&call.conversation);
        for round in 1.. {
            let conversation = assistant.conversation(&call.conversation).await?;
            let was_shown = answers.was_shown || !answers.values.is_empty();
            let next = self.next_action(call, &turn, &conversation, &mut answers).await;
            // A question that a form has shown, and that is answered, is not part of the result.
            replies.add(&turn, !(was_shown && matches!(next, NextAction::SendMessage(_))));
            match next {
                NextAction::SendMessage(message) => {
                    let is_silent = !answers.values.is_empty();
                    turn = self.run_turn(call, ToolRequest::SendMessage(message), round, is_silent).await?.into();
                }
                NextAction::RequireInput(required) => return Ok(required.into()),
                NextAction::Finish => {
                    let was_cancelled = call.context.ct.is_cancelled();
                    return Ok(replies.result(&assistant.project(), &conversation, was_cancelled).into());
                }
            }
        }
        Ok(CallToolResult::default().into())
    }

    async fn next_action(
        &self,
        call: &IncomingToolCall<'_>,
        turn: &TurnReplies,
        conversation: &Conversation,
        answers: &mut FormAnswers,
    ) -> NextAction {
        let is_sessionless = is_sessionless_revision(call.context);
        let can_ask = self.shared.settings.elicits && form::is_supported(call.context);
        if call.context.ct.is_cancelled() || (turn.is_repeated && !is_sessionless) {
            return NextAction::Finish;
        }
        let Some(question) = question::for_form(&self.shared.assistant.project(), conversation) else {
            return NextAction::Finish;
        };
        if let Some(message) = answers.take_message(&question) {
            return NextAction::SendMessage(message);
        }
        // An answer to a question that the user has not seen counts as much as an argument. A confirmation is no argument.
        let counts = answers.was_shown || call.tool.accepts_slot(&question.slot);
        answers.was_shown = false;
        match answers.responses.remove(&question.step).filter(|_| counts).map(|answer| form::parse_response(&answer)) {
            Some(FormResponse::Accepted(values)) => answers.store(&question, &values),
            Some(FormResponse::Declined) => return NextAction::Finish,
            None => {}
        }
        if let Some(message) = answers.take_message(&question) {
            return NextAction::SendMessage(message);
        }
        if !can_ask || answers.requests_left == 0 {
            return NextAction::Finish;
        }
        let version = call.context.protocol_version();
        let Some(form) = ElicitationForm::new(&question, &turn.replies, &answers.values, version) else {
            return NextAction::Finish;
        };
        if is_sessionless {
            let state = RequestState { conversation: call.conversation.clone(), events: conversation.events };
            let state = state.encode(call.tool_name);
            let requests = [(question.step.clone(), form.into_request())].into();
            return NextAction::RequireInput(InputRequiredResult::new(Some(requests), Some(state)));
        }
        answers.requests_left -= 1;
        match form.ask(call.context, self.shared.assistant.clock()).await {
            Some(FormResponse::Accepted(values)) => {
                answers.store(&question, &values);
                answers.take_message(&question).map_or(NextAction::Finish, NextAction::SendMessage)
            }
            _ => NextAction::Finish,
        }
    }
}

/// The request state of a call to this tool.
///
/// # Errors
/// It is damaged, or was issued for another tool or by another server.
pub(super) fn request_state(encoded: Option<&str>, tool: &str) -> Result<Option<RequestState>, ErrorData> {
    let Some(encoded) = encoded else { return Ok(None) };
    let state = RequestState::decode(encoded, tool);
    state.map(Some).ok_or_else(|| ErrorData::invalid_params("this server did not issue this requestState", None))
}
