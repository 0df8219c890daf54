//! Keys of the domain.

use super::{MapSchema, UnknownKeys::*, ValueType::*, key};

const FILE: &str = "domain.yml";
const NLU_ONLY: &str = "It belongs to the older dialogue engine; flows collect slots instead";

/// A domain file.
pub(crate) static DOMAIN: MapSchema = MapSchema::new("domain", FILE, Refused).keys(&[
    key("version", Any, "The format's version; conventional and not needed.").accepted(""),
    key("slots", Map(&Section(&SLOT)), "Slots by name."),
    key(
        "responses",
        Map(&AnyOf(&[Text, Section(&VARIATION), List(&AnyOf(&[Text, Section(&VARIATION)]))])),
        "Responses by name.",
    ),
    key("actions", List(&AnyOf(&[Text, Map(&AnyOf(&[Null, Section(&ACTION)]))])), "Custom actions."),
    key("intents", List(&AnyOf(&[Text, Map(&Any)])), "Intents, for `/intent` messages and `nlu_trigger`."),
    key("entities", List(&Any), "Entities of intent messages."),
    key("session_config", Section(&SESSION), "Rules of sessions."),
    key("forms", Map(&Any), "Forms of the older dialogue engine.").warned(NLU_ONLY),
    key("e2e_actions", List(&Any), "Texts of older stories.").warned(NLU_ONLY),
    key("config", Map(&Any), "Settings of older domains.").accepted(""),
]);

/// Settings of a custom action.
pub(crate) static ACTION: MapSchema = MapSchema::new("action", FILE, Warned).keys(&[
    key("send_domain", Bool, "Whether the action server gets the domain with it.").default("false"),
    key(
        "inputs",
        Texts,
        "The slots it reads; a correction that changes none of them does not run it again. All of the flow unless set.",
    ),
]);

/// A slot.
pub(crate) static SLOT: MapSchema = MapSchema::new("slot", FILE, Refused).keys(&[
        key(
            "type",
            Known(&["text", "bool", "categorical", "float", "list", "any"]),
            "`text`, `bool`, `categorical`, `float`, `list` or `any`.",
        )
        .required(),
        key("initial_value", Any, "Its value before anything is known; null unless set."),
        key("values", List(&Text), "The values of a `categorical` slot."),
        key("min_value", Number, "Least number; told to agents."),
        key("max_value", Number, "Greatest number; told to agents."),
        key("mappings", List(&Section(&MAPPING)), "Who may fill it; the language model unless set."),
        key(
            "fill",
            OneOf(&["any_time", "when_asked", "once"]),
            "When the model may fill it: at `any_time` (as usual), only `when_asked`, or `once`: not with a value that the same message gives to another slot.",
        ),
        key("validation", Section(&VALIDATION), "Checks at the moment a value comes in."),
        key("influence_conversation", Bool, "Featurization for trained policies.").accepted(""),
        key("shared_for_coexistence", Bool, "Whether `action_reset_routing` leaves its value alone.").default("false"),
        key("auto_fill", Bool, "From before version 3.").warned("It has no effect; list `mappings` instead"),
    ]);

/// A slot mapping.
pub(crate) static MAPPING: MapSchema = MapSchema::new("mapping", FILE, Refused).keys(&[
    key(
        "type",
        Known(&["from_llm", "controlled", "from_entity", "from_intent", "from_text"]),
        "`from_llm`, `controlled`, `from_entity`, `from_intent` or `from_text`.",
    )
    .required(),
    key("allow_nlu_correction", Bool, "Whether the model may change what an intent message filled.").default("false"),
    key("conditions", List(&Section(&MAPPING_CONDITION)), "Only while one of these is active: `active_flow: <flow>`."),
    key("run_action_every_turn", Text, "A custom action that runs at every message.").older(&["action"]),
    key("entity", Text, "The entity that fills it."),
    key("role", Text, "The role the entity must have."),
    key("group", Text, "The group the entity must have."),
    key("intent", TextOrTexts, "Intents it must come with."),
    key("not_intent", TextOrTexts, "Intents it must not come with."),
    key("value", Any, "The value that an intent gives."),
    key("coexistence_system", Text, "For assistants with two engines.").accepted(""),
]);

/// An item of `conditions` of a slot mapping.
pub(crate) static MAPPING_CONDITION: MapSchema = MapSchema::new("condition of a mapping", FILE, Warned).keys(&[
    key("active_flow", Text, "The flow that must be active."),
    key("active_loop", Any, "A form of the older dialogue engine.")
        .warned("Forms are not run here, so this condition never holds; write `active_flow: <flow>`"),
    key("requested_slot", Any, "The slot that such a form asks for.").accepted(""),
]);

/// `validation` of a slot.
pub(crate) static VALIDATION: MapSchema = MapSchema::new("validation", FILE, Refused).keys(&[
    key("rejections", List(&Section(&REJECTION)), "Values that are refused.").required(),
    key("refill_utter", Text, "The question after a refusal; `utter_ask_<slot>` unless set."),
]);

/// A rejection, of a slot or of a collect step.
pub(crate) static REJECTION: MapSchema = MapSchema::new("rejection", FILE, Refused).keys(&[
    key("if", Condition, "When the value is refused.").required(),
    key("utter", Text, "What is said then.").required(),
]);

/// One variation of a response.
pub(crate) static VARIATION: MapSchema = MapSchema::new("response", FILE, Kept).keys(&[
    key("id", Text, "A name for response servers."),
    key("text", Text, "The text, with `{slot}`."),
    key(
        "condition",
        AnyOf(&[Condition, List(&Section(&SLOT_CONDITION))]),
        "When it may be used: a condition, or a list of `{type: slot, name, value}`.",
    ),
    key("channel", Text, "The only channel it is for."),
    key("buttons", List(&Section(&BUTTON)), "Buttons below the text."),
    key("image", Text, "Address of an image."),
    key("attachment", Any, "An attachment, as the channel wants it."),
    key("custom", Any, "Anything, as the channel wants it."),
    key("elements", List(&Any), "Elements of a carousel."),
    key("quick_replies", List(&Any), "Buttons that go away."),
    key("translation", Map(&Text), "Texts by language."),
    key("metadata", Section(&RESPONSE_METADATA), "`rephrase`, `rephrase_prompt`, `template: jinja` and anything else."),
    key("button_type", Text, "How some channels show buttons.").accepted(""),
    key("allow_interruptions", Bool, "Voice: whether the user may speak over it.").accepted(""),
]);

/// An item of `condition` of a response, in its older form.
pub(crate) static SLOT_CONDITION: MapSchema = MapSchema::new("condition on a slot", FILE, Kept).keys(&[
    key("type", Known(&["slot"]), "Always `slot`."),
    key("name", Text, "The slot.").required(),
    key("value", Any, "The value it must have."),
]);

/// `metadata` of a response.
pub(crate) static RESPONSE_METADATA: MapSchema = MapSchema::new("`metadata` of a response", FILE, Kept).keys(&[
    key("rephrase", Bool, "Whether a model says it in other words, where `nlg` has a rephraser."),
    key("rephrase_prompt", Text, "A template for that."),
    key("template", Text, "`jinja`: texts are templates, not texts with `{slot}`."),
    key("allow_interruptions", Any, "Voice: whether the user may speak over it.").accepted(""),
]);

/// A button.
pub(crate) static BUTTON: MapSchema = MapSchema::new("button", FILE, Kept).keys(&[
    key("title", Text, "What stands on it.").required(),
    key("payload", Text, "What it sends; the title unless set."),
    key("type", Text, "How some channels treat it."),
    key("url", Text, "An address it opens, on channels that can."),
]);

/// `session_config`.
pub(crate) static SESSION: MapSchema = MapSchema::new("session_config", FILE, Refused).keys(&[
    key("session_expiration_time", Number, "Minutes without a message after which a session is over; 0 = never."),
    key("carry_over_slots_to_new_session", Bool, "Whether a new session begins with the old slots."),
    key("start_session_after_expiry", Bool, "Whether a new session begins at all."),
]);
