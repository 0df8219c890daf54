//! Keys of the domain.

use super::{Shape, Takes, Unknown, key};

const FILE: &str = "domain.yml";
const NLU_ONLY: &str = "It belongs to the older dialogue engine; flows collect slots instead";

/// A domain file.
pub(crate) static DOMAIN: Shape = Shape {
    name: "domain",
    file: FILE,
    keys: &[
        key("version", Takes::Any, "The format's version; conventional and not needed.").quiet(),
        key("slots", Takes::Map, "Slots by name."),
        key("responses", Takes::Map, "Responses by name."),
        key("actions", Takes::List, "Custom actions."),
        key("intents", Takes::List, "Intents, for `/intent` messages and `nlu_trigger`."),
        key("entities", Takes::List, "Entities of intent messages."),
        key("session_config", Takes::Map, "Rules of sessions."),
        key("forms", Takes::Map, "Forms of the older dialogue engine.").warned(NLU_ONLY),
        key("e2e_actions", Takes::List, "Texts of older stories.").warned(NLU_ONLY),
        key("config", Takes::Map, "Settings of older domains.").quiet(),
    ],
    unknown: Unknown::Refused,
};

/// Settings of a custom action.
pub(crate) static ACTION: Shape = Shape {
    name: "action",
    file: FILE,
    keys: &[
        key("send_domain", Takes::Bool, "Whether the action server gets the domain with it."),
        key(
            "inputs",
            Takes::Texts,
            "The slots it reads; a correction that changes none of them does not run it again. All of the flow unless set.",
        ),
    ],
    unknown: Unknown::Warned,
};

/// A slot.
pub(crate) static SLOT: Shape = Shape {
    name: "slot",
    file: FILE,
    keys: &[
        key("type", Takes::Text, "`text`, `bool`, `categorical`, `float`, `list` or `any`.").required(),
        key("initial_value", Takes::Any, "Its value before anything is known; null unless set."),
        key("values", Takes::List, "The values of a `categorical` slot."),
        key("min_value", Takes::Number, "Least number; told to agents."),
        key("max_value", Takes::Number, "Greatest number; told to agents."),
        key("mappings", Takes::List, "Who may fill it; the language model unless set."),
        key(
            "fill",
            Takes::OneOf(&["any_time", "when_asked", "once"]),
            "When the model may fill it: at `any_time` (as usual), only `when_asked`, or `once`: not with a value that the same message gives to another slot.",
        ),
        key("validation", Takes::Map, "Checks at the moment a value comes in."),
        key("influence_conversation", Takes::Bool, "Featurization for trained policies.").quiet(),
        key("shared_for_coexistence", Takes::Bool, "Whether `action_reset_routing` leaves its value alone."),
        key("auto_fill", Takes::Bool, "From before version 3.").warned("It has no effect; list `mappings` instead"),
    ],
    unknown: Unknown::Refused,
};

/// A slot mapping.
pub(crate) static MAPPING: Shape = Shape {
    name: "mapping",
    file: FILE,
    keys: &[
        key("type", Takes::Text, "`from_llm`, `controlled`, `from_entity`, `from_intent` or `from_text`.").required(),
        key("allow_nlu_correction", Takes::Bool, "Whether the model may change what an intent message filled."),
        key("conditions", Takes::List, "Only while one of these is active: `active_flow: <flow>`."),
        key("run_action_every_turn", Takes::Text, "A custom action that runs at every message."),
        key("action", Takes::Text, "Older name of `run_action_every_turn`."),
        key("entity", Takes::Text, "The entity that fills it."),
        key("role", Takes::Text, "The role the entity must have."),
        key("group", Takes::Text, "The group the entity must have."),
        key("intent", Takes::TextOrTexts, "Intents it must come with."),
        key("not_intent", Takes::TextOrTexts, "Intents it must not come with."),
        key("value", Takes::Any, "The value that an intent gives."),
        key("coexistence_system", Takes::Text, "For assistants with two engines.").quiet(),
    ],
    unknown: Unknown::Refused,
};

/// `validation` of a slot.
pub(crate) static VALIDATION: Shape = Shape {
    name: "validation",
    file: FILE,
    keys: &[
        key("rejections", Takes::List, "Values that are refused.").required(),
        key("refill_utter", Takes::Text, "The question after a refusal; `utter_ask_<slot>` unless set."),
    ],
    unknown: Unknown::Refused,
};

/// A rejection, of a slot or of a collect step.
pub(crate) static REJECTION: Shape = Shape {
    name: "rejection",
    file: FILE,
    keys: &[
        key("if", Takes::Condition, "When the value is refused.").required(),
        key("utter", Takes::Text, "What is said then.").required(),
    ],
    unknown: Unknown::Refused,
};

/// One variation of a response.
pub(crate) static VARIATION: Shape = Shape {
    name: "response",
    file: FILE,
    keys: &[
        key("id", Takes::Text, "A name for response servers."),
        key("text", Takes::Text, "The text, with `{slot}`."),
        key("condition", Takes::Any, "When it may be used: a condition, or a list of `{type: slot, name, value}`."),
        key("channel", Takes::Text, "The only channel it is for."),
        key("buttons", Takes::List, "Buttons below the text."),
        key("image", Takes::Text, "Address of an image."),
        key("attachment", Takes::Any, "An attachment, as the channel wants it."),
        key("custom", Takes::Any, "Anything, as the channel wants it."),
        key("elements", Takes::List, "Elements of a carousel."),
        key("quick_replies", Takes::List, "Buttons that go away."),
        key("translation", Takes::Map, "Texts by language."),
        key("metadata", Takes::Map, "`rephrase`, `rephrase_prompt`, `template: jinja` and anything else."),
        key("button_type", Takes::Text, "How some channels show buttons.").quiet(),
        key("allow_interruptions", Takes::Bool, "Voice: whether the user may speak over it.").quiet(),
    ],
    unknown: Unknown::Kept,
};

/// `metadata` of a response.
pub(crate) static RESPONSE_METADATA: Shape = Shape {
    name: "`metadata` of a response",
    file: FILE,
    keys: &[
        key("rephrase", Takes::Bool, "Whether a model says it in other words, where `nlg` has a rephraser."),
        key("rephrase_prompt", Takes::Text, "A template for that."),
        key("template", Takes::Text, "`jinja`: texts are templates, not texts with `{slot}`."),
        key("allow_interruptions", Takes::Any, "Voice: whether the user may speak over it.").quiet(),
    ],
    unknown: Unknown::Kept,
};

/// A button.
pub(crate) static BUTTON: Shape = Shape {
    name: "button",
    file: FILE,
    keys: &[
        key("title", Takes::Text, "What stands on it.").required(),
        key("payload", Takes::Text, "What it sends; the title unless set."),
        key("type", Takes::Text, "How some channels treat it."),
        key("url", Takes::Text, "An address it opens, on channels that can."),
    ],
    unknown: Unknown::Kept,
};

/// `session_config`.
pub(crate) static SESSION: Shape = Shape {
    name: "session_config",
    file: FILE,
    keys: &[
        key(
            "session_expiration_time",
            Takes::Number,
            "Minutes without a message after which a session is over; 0 = never.",
        ),
        key("carry_over_slots_to_new_session", Takes::Bool, "Whether a new session begins with the old slots."),
        key("start_session_after_expiry", Takes::Bool, "Whether a new session begins at all."),
    ],
    unknown: Unknown::Refused,
};
