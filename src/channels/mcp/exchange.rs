//! One call as an exchange: a turn, then a question of the flow to the person and their answer as the next turn, until the flow
//! asks nothing that a form can hold. Where the host calls again with the answers, the exchange goes on there.

use rmcp::{
    ErrorData,
    model::{CallToolResponse, CallToolResult, InputRequiredResult, InputResponses},
};
use segue_engine::conversation::Conversation;
use serde_json::{Map, Value as Json};

use super::{
    answer::{Heard, Said},
    form::{self, Filled, Form},
    question::{self, Question},
    session::{Call, Session, Wish, is_newer, refusal},
    state::Waiting,
    words::say,
};
use crate::{limits, runtime::ReceiveError};

/// What is known of the person's answers.
pub(super) struct Answers {
    /// Answers of the host by step, not looked at yet.
    given: InputResponses,
    /// Values by slot, from forms.
    written: Map<String, Json>,
    /// Questions that may still be put.
    left: usize,
    /// Whether the first question was shown to the person before the answers came.
    was_shown: bool,
}

/// How an exchange goes on.
enum Next {
    /// With this as the next message.
    Say(String),
    /// When the host calls again.
    Wait(InputRequiredResult),
    /// Not.
    Over,
}

impl Answers {
    /// Takes what a host sent.
    ///
    /// # Errors
    /// An answer that is none.
    pub(super) fn new(given: Option<InputResponses>) -> Result<Self, ErrorData> {
        let given = given.unwrap_or_default();
        if let Some((key, _)) = given.iter().find(|(_, answer)| !answer.is_object()) {
            return Err(ErrorData::invalid_params(format!("`inputResponses.{key}` must be an object"), None));
        }
        Ok(Self { given, written: Map::new(), left: limits::MCP_SERVED_QUESTIONS, was_shown: false })
    }

    /// The answer to a question, as a message.
    fn take(&mut self, question: &Question) -> Option<String> {
        let value = self.written.shift_remove(&question.slot)?;
        let message = match question.is_talk {
            true => value.as_str().map(|text| text.trim().to_owned()),
            false => form::as_message(&question.slot, &value),
        };
        message.filter(|message| !message.is_empty())
    }

    /// Keeps what a form holds for its own fields. What is left empty is asked later.
    fn keep(&mut self, question: &Question, values: &Map<String, Json>) {
        let slots = question.following.iter().map(|next| &next.slot).chain([&question.slot]);
        for slot in slots {
            let value = values.get(slot).filter(|value| value.as_str().is_none_or(|text| !text.trim().is_empty()));
            match value {
                Some(value) => _ = self.written.insert(slot.clone(), value.clone()),
                None => _ = self.written.shift_remove(slot),
            }
        }
    }
}

impl Session {
    /// The exchange of a call that begins with a wish.
    pub(super) async fn perform(
        &self,
        call: &Call<'_>,
        wish: Wish,
        answers: Answers,
    ) -> Result<CallToolResponse, ReceiveError> {
        let assistant = &self.shared.assistant;
        let report = self.turn(call, wish, 0, false).await?;
        if let Some(flow) = call.offered.flow.as_ref().filter(|_| report.replies.is_empty()) {
            let talk = assistant.conversation(&call.id).await?;
            if !assistant.may_start(&talk, flow) {
                return Ok(refusal(say("no_start", &[("flow", flow.as_str())])).into());
            }
        }
        self.exchange(call, report.into(), answers).await
    }

    /// The exchange of a call that waited: with the answers, if the talk stands where it did. If not, or nothing was answered,
    /// what was said last is told again.
    pub(super) async fn resume(
        &self,
        call: &Call<'_>,
        waiting: &Waiting,
        mut answers: Answers,
    ) -> Result<CallToolResponse, ReceiveError> {
        let assistant = &self.shared.assistant;
        let talk = assistant.conversation(&call.id).await?;
        let events = assistant.store().latest_events(&call.id, limits::MCP_SERVED_EVENTS).await?;
        let has_moved = talk.events != waiting.at;
        if has_moved {
            answers.given.clear();
        }
        answers.was_shown = true;
        let replies = form::last_said(&events);
        let heard = Heard { replies, has_failures: false, ended: talk.session.ended, repeated: has_moved };
        self.exchange(call, heard, answers).await
    }

    async fn exchange(
        &self,
        call: &Call<'_>,
        mut heard: Heard,
        mut answers: Answers,
    ) -> Result<CallToolResponse, ReceiveError> {
        let assistant = &self.shared.assistant;
        let mut said = Said::new(&call.id);
        for round in 1.. {
            let talk = assistant.conversation(&call.id).await?;
            let was_shown = answers.was_shown || !answers.written.is_empty();
            let next = self.next(call, &heard, &talk, &mut answers).await;
            // A question that stood in a form before, and has its answer, is no news.
            said.hear(&heard, !(was_shown && matches!(next, Next::Say(_))));
            match next {
                Next::Say(message) => {
                    heard = self.turn(call, Wish::Say(message), round, !answers.written.is_empty()).await?.into();
                }
                Next::Wait(required) => return Ok(required.into()),
                Next::Over => {
                    let was_cut = call.context.ct.is_cancelled();
                    return Ok(said.result(assistant.project(), &talk, was_cut).into());
                }
            }
        }
        Ok(CallToolResult::default().into())
    }

    async fn next(&self, call: &Call<'_>, heard: &Heard, talk: &Conversation, answers: &mut Answers) -> Next {
        let newer = is_newer(call.context);
        let can_ask = self.shared.settings.elicits && form::can_be_shown(call.context);
        if call.context.ct.is_cancelled() || (heard.repeated && !newer) {
            return Next::Over;
        }
        let Some(question) = question::for_form(self.shared.assistant.project(), talk) else { return Next::Over };
        if let Some(message) = answers.take(&question) {
            return Next::Say(message);
        }
        // Without having been shown its question an answer is worth as much as an argument: a confirmation is neither.
        let counts = answers.was_shown || call.offered.takes(&question.slot);
        answers.was_shown = false;
        match answers.given.remove(&question.step).filter(|_| counts).map(|answer| form::filled(&answer)) {
            Some(Filled::Values(values)) => answers.keep(&question, &values),
            Some(Filled::Declined) => return Next::Over,
            None => {}
        }
        if let Some(message) = answers.take(&question) {
            return Next::Say(message);
        }
        if !can_ask || answers.left == 0 {
            return Next::Over;
        }
        let version = call.context.protocol_version();
        let Some(form) = Form::of(&question, &heard.replies, &answers.written, version) else { return Next::Over };
        if newer {
            let waiting = Waiting { talk: call.id.clone(), at: talk.events };
            let state = waiting.written(call.tool);
            let asked = [(question.step.clone(), form.into_request())].into();
            return Next::Wait(InputRequiredResult::new(Some(asked), Some(state)));
        }
        answers.left -= 1;
        match form.put(call.context, self.shared.assistant.clock()).await {
            Some(Filled::Values(values)) => {
                answers.keep(&question, &values);
                answers.take(&question).map_or(Next::Over, Next::Say)
            }
            _ => Next::Over,
        }
    }
}

/// The state that a retry carries, for this tool.
///
/// # Errors
/// What was carried is not what was given.
pub(super) fn waiting(state: Option<&str>, tool: &str) -> Result<Option<Waiting>, ErrorData> {
    let Some(state) = state else { return Ok(None) };
    let waiting = Waiting::read(state, tool);
    waiting.map(Some).ok_or_else(|| ErrorData::invalid_params("this requestState is none of ours", None))
}
