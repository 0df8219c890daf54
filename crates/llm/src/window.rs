//! A request that does not fit into the model's window, made smaller by rule (`docs/faults.md` L4).
//!
//! Instructions, notes, tools and the newest message of the user stay as they are. First the older half of the conversation
//! before that message goes, whole rounds of tools at a time; where there is none, earlier results of tools are cut.

use std::sync::Arc;

use segue_lang::text::{TextLimit, truncate};

use super::{ChatMessage, ChatRequest};

/// Bytes of an earlier tool result that are left.
const LEFT: usize = 1_000;
/// What stands where a result was cut.
const MARK: &str = "…";

/// The same request with less in it; `None` when nothing may be left out.
pub(super) fn shrunk(request: &ChatRequest) -> Option<ChatRequest> {
    let messages = without_older_half(&request.messages).or_else(|| with_cut_results(&request.messages))?;
    Some(ChatRequest { messages, ..request.clone() })
}

fn without_older_half(messages: &[Arc<ChatMessage>]) -> Option<Vec<Arc<ChatMessage>>> {
    let newest = messages.iter().rposition(|message| matches!(**message, ChatMessage::User { .. }))?;
    let is_said = |message: &Arc<ChatMessage>| !matches!(**message, ChatMessage::System { .. });
    let said = messages.iter().take(newest).filter(|message| is_said(message)).count();
    let mut left_out = said.div_ceil(2);
    // Results stay with the calls they answer.
    let rest = messages.iter().take(newest).filter(|message| is_said(message)).skip(left_out);
    left_out += rest.take_while(|message| matches!(***message, ChatMessage::Tool { .. })).count();
    if left_out == 0 {
        return None;
    }
    let kept = messages.iter().filter(|message| {
        let goes = is_said(message) && left_out > 0;
        left_out -= usize::from(goes);
        !goes
    });
    Some(kept.cloned().collect())
}

fn with_cut_results(messages: &[Arc<ChatMessage>]) -> Option<Vec<Arc<ChatMessage>>> {
    // The newest round is what the model is about to answer.
    let newest = messages.iter().rposition(|message| matches!(**message, ChatMessage::Assistant { .. }))?;
    let mut has_cut = false;
    let cut = |(at, message): (usize, &Arc<ChatMessage>)| match &**message {
        ChatMessage::Tool { call_id, name, text } if at < newest && text.len() > LEFT => {
            has_cut = true;
            let text = truncate(text, TextLimit::Bytes(LEFT), MARK).as_ref().into();
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

    fn round(result: &str) -> [Arc<ChatMessage>; 2] {
        let call = ToolCall { id: "c".into(), name: "find".into(), arguments: ToolArguments::json(json!({})) };
        let answer = ChatMessage::Assistant { text: "looks".into(), tool_calls: vec![call.clone()], thoughts: None };
        [Arc::new(answer), ChatMessage::tool(&call, result)]
    }

    fn texts(messages: Vec<Arc<ChatMessage>>) -> Option<Vec<String>> {
        let smaller = shrunk(&ChatRequest::new(Purpose::AGENT, messages))?;
        Some(smaller.messages.iter().map(|message| message.text().to_owned()).collect())
    }

    #[test]
    fn the_older_half_of_the_conversation_goes_and_nothing_else() {
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
    fn rounds_of_tools_go_as_a_whole() {
        let mut messages = vec![ChatMessage::user("1")];
        messages.extend(round("found"));
        messages.extend([ChatMessage::assistant("2"), ChatMessage::user("3")]);
        // Half of four is two, but the result of the second stays with its call.
        assert_eq!(texts(messages).unwrap(), ["2", "3"]);
    }

    #[test]
    fn without_a_conversation_earlier_results_are_cut() {
        let mut messages = vec![ChatMessage::system("rules"), ChatMessage::user("1")];
        messages.extend(round(&"x".repeat(5_000)));
        messages.extend(round(&"y".repeat(5_000)));
        let texts = texts(messages).unwrap();
        let sizes: Vec<usize> = texts.iter().map(String::len).collect();
        assert!(sizes.get(3).is_some_and(|size| *size <= LEFT + MARK.len()), "{sizes:?}");
        assert_eq!(sizes.last(), Some(&5_000), "the newest result is whole");
    }

    #[test]
    fn what_may_not_be_left_out_stays() {
        assert_eq!(texts(vec![ChatMessage::system("rules"), ChatMessage::user("1")]), None);
        assert_eq!(texts(vec![ChatMessage::system("rules")]), None);
    }
}
