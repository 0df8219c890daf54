//! What the rephraser and the NLG server see of a conversation.

use segue_engine::{
    conversation::{BotKind, Conversation, HistoryItem},
    project::{LANGUAGE, Project},
    text::{ELLIPSIS, TextLimit, truncate},
};
use serde_json::{Map, Value as Json, json};

use crate::limits;

/// The last turns as lines `USER: …` and `AI: …`, oldest first, and the newest message of the user. That message is not among
/// the lines if the assistant has not replied to it; otherwise it is, and the second value is empty.
pub(super) fn transcript(conversation: &Conversation, turns: usize) -> (String, String) {
    let mut lines: Vec<String> = Vec::new();
    let (mut current, mut users, mut replied) = (String::new(), 0, false);
    for item in conversation.history.iter().rev() {
        match item {
            HistoryItem::User { text, .. } if !replied && current.is_empty() => current = line("USER: ", text),
            HistoryItem::User { text, .. } => {
                lines.push(line("USER: ", text));
                replied = true;
                users += 1;
            }
            HistoryItem::Bot { text, kind, .. } if *kind != BotKind::Intermediate => {
                lines.push(line("AI: ", text));
                replied = true;
            }
            _ => {}
        }
        if users >= turns || lines.len() >= limits::REPHRASE_LINES {
            break;
        }
    }
    lines.reverse();
    (lines.join("\n"), current)
}

/// One utterance on one line.
fn line(who: &str, text: &str) -> String {
    let text = truncate(text, TextLimit::Chars(limits::COMMAND_UTTERANCE), ELLIPSIS);
    let words: Vec<&str> = text.split_whitespace().collect();
    format!("{who}{}", words.join(" "))
}

/// The language of the conversation.
pub(super) fn language(project: &Project, conversation: &Conversation) -> String {
    let set = conversation.set_value(LANGUAGE).and_then(Json::as_str);
    set.unwrap_or(&project.config.language).to_owned()
}

/// The value of every slot.
pub(super) fn slots(project: &Project, conversation: &Conversation) -> Map<String, Json> {
    let value = |name: &str, initial: &Json| conversation.slots.get(name).unwrap_or(initial).clone();
    project
        .domain
        .slots
        .values()
        .map(|slot| (slot.name.to_string(), value(slot.name.as_str(), &slot.initial)))
        .collect()
}

/// The state of the conversation as the tracker state of Rasa, without its events.
pub(super) fn tracker(project: &Project, conversation: &Conversation) -> Json {
    let latest = conversation.latest_message.as_ref();
    json!({
        "sender_id": conversation.id.as_str(),
        "slots": slots(project, conversation),
        "latest_message": {
            "text": latest.map(|message| &*message.text),
            "message_id": latest.map(|message| message.message_id.as_str()),
            "metadata": latest.map(|message| &message.metadata),
            "intent": {},
            "entities": [],
        },
        "latest_input_channel": latest.map(|message| &*message.input_channel),
        "stack": serde_json::to_value(conversation.stack.frames()).unwrap_or_default(),
        "paused": false,
        "active_loop": {},
    })
}
