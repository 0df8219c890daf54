//! Shortens a request that exceeds a model's context window (`docs/reference/failure-handling.md`).
//!
//! System messages, tools and the newest user message stay unchanged. First the older half of the conversation before that
//! message is removed, with tool calls and their results together. Without such a conversation, or if that is not enough, earlier tool
//! results are cut. The newest tool results stay: the loop of the agent, which knows where they are stored, shortens them.

use std::sync::Arc;

use segue_lang::text::{TextLimit, truncate};

use super::{ChatMessage, ChatRequest};

/// Bytes of an earlier tool result that remain.
const TOOL_RESULT_BYTES: usize = 1_000;
/// Marks where a result was cut.
const ELLIPSIS: &str = "…";

/// The same request with less content; `None` when nothing can be removed. `again`: it was shortened before, which was not enough.
pub(super) fn shorten(request: &ChatRequest, again: bool) -> Option<ChatRequest> {
    let newer = without_older_half(&request.messages);
    let messages = match newer {
        Some(newer) if !again => newer,
        Some(newer) => with_cut_tool_results(&newer).unwrap_or(newer),
        None => with_cut_tool_results(&request.messages)?,
    };
    Some(ChatRequest { messages, ..request.clone() })
}

fn without_older_half(messages: &[Arc<ChatMessage>]) -> Option<Vec<Arc<ChatMessage>>> {
    let newest = messages.iter().rposition(|message| matches!(**message, ChatMessage::User { .. }))?;
    let is_conversation = |message: &Arc<ChatMessage>| !matches!(**message, ChatMessage::System { .. });
    let count = messages.iter().take(newest).filter(|message| is_conversation(message)).count();
    let mut to_remove = count.div_ceil(2);
    // Tool results are removed with their calls.
    let rest = messages.iter().take(newest).filter(|message| is_conversation(message)).skip(to_remove);
    to_remove += rest.take_while(|message| matches!(***message, ChatMessage::Tool { .. })).count();
    if to_remove == 0 {
        return None;
    }
    let kept = messages.iter().filter(|message| {
        let remove = is_conversation(message) && to_remove > 0;
        to_remove -= usize::from(remove);
        !remove
    });
    Some(kept.cloned().collect())
}

fn with_cut_tool_results(messages: &[Arc<ChatMessage>]) -> Option<Vec<Arc<ChatMessage>>> {
    // The newest tool results are what the model is about to answer, so they stay whole.
    let newest = messages.iter().rposition(|message| matches!(**message, ChatMessage::Assistant { .. }))?;
    let mut has_cut = false;
    let cut = |(at, message): (usize, &Arc<ChatMessage>)| match &**message {
        ChatMessage::Tool { call_id, name, text } if at < newest && text.len() > TOOL_RESULT_BYTES => {
            has_cut = true;
            let text = truncate(text, TextLimit::Bytes(TOOL_RESULT_BYTES), ELLIPSIS).as_ref().into();
            Arc::new(ChatMessage::Tool { call_id: call_id.clone(), name: name.clone(), text })
        }
        _ => message.clone(),
    };
    let messages = messages.iter().enumerate().map(cut).collect();
    has_cut.then_some(messages)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::{Purpose, ToolArguments, ToolCall};

    fn tool_round(result: &str) -> [Arc<ChatMessage>; 2] {
        let call = ToolCall { id: "c".into(), name: "find".into(), arguments: ToolArguments::json(json!({})) };
        let answer = ChatMessage::Assistant { text: "looks".into(), tool_calls: vec![call.clone()], reasoning: None };
        [Arc::new(answer), ChatMessage::tool(&call, result)]
    }

    fn texts(messages: Vec<Arc<ChatMessage>>) -> Option<Vec<String>> {
        let shorter = shorten(&ChatRequest::new(Purpose::AGENT, messages), false)?;
        Some(shorter.messages.iter().map(|message| message.text().to_owned()).collect())
    }

    #[test]
    fn only_the_older_half_of_the_conversation_is_removed() {
        let (user, bot, note) = (ChatMessage::user, ChatMessage::assistant, ChatMessage::system);
        let messages = vec![
            note("rules"),
            user("1"),
            bot("2"),
            note("mark"),
            user("3"),
            bot("4"),
            note("now"),
            user("5"),
            bot("6"),
        ];
        assert_eq!(texts(messages).unwrap(), ["rules", "mark", "3", "4", "now", "5", "6"]);
    }

    #[test]
    fn tool_calls_are_removed_with_their_results() {
        let mut messages = vec![ChatMessage::user("1")];
        messages.extend(tool_round("found"));
        messages.extend([ChatMessage::assistant("2"), ChatMessage::user("3")]);
        // Half of four is two, but the result of the second message is removed with its call.
        assert_eq!(texts(messages).unwrap(), ["2", "3"]);
    }

    #[test]
    fn without_a_conversation_earlier_tool_results_are_cut() {
        let mut messages = vec![ChatMessage::system("rules"), ChatMessage::user("1")];
        messages.extend(tool_round(&"x".repeat(5_000)));
        messages.extend(tool_round(&"y".repeat(5_000)));
        let texts = texts(messages).unwrap();
        let sizes: Vec<usize> = texts.iter().map(String::len).collect();
        assert!(sizes.get(3).is_some_and(|size| *size <= TOOL_RESULT_BYTES + ELLIPSIS.len()), "{sizes:?}");
        assert_eq!(sizes.last(), Some(&5_000), "the newest result is whole");
    }

    #[test]
    fn requests_without_removable_content_are_not_shortened() {
        assert_eq!(texts(vec![ChatMessage::system("rules"), ChatMessage::user("1")]), None);
        assert_eq!(texts(vec![ChatMessage::system("rules")]), None);
    }
}
