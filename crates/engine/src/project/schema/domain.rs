//! Keys of the domain.

use super::{MapSchema, UnknownKeys::*, ValueType::*, key};

const FILE: &str = "domain.yml";
const NLU_ONLY: &str = "Stories, rules and forms are not supported; use flows and `collect` steps";

/// A domain file.
pub(crate) static DOMAIN: MapSchema = MapSchema::new("domain", FILE, Refused).keys(&[
    key("version", Any, "The version of the format. Not needed.").accepted(""),
    key("slots", Map(&Section(&SLOT)), "Slots by name."),
    key(
        "responses",
        Map(&AnyOf(&[Text, Section(&VARIATION), List(&AnyOf(&[Text, Section(&VARIATION)]))])),
        "Responses by name.",
    ),
    key(
        "actions",
        List(&AnyOf(&[Text, Map(&AnyOf(&[Null, Section(&ACTION)]))])),
        "The names of custom actions, each optionally with settings.",
    ),
    key("intents", List(&AnyOf(&[Text, Map(&Any)])), "Intents for `/intent` messages and `nlu_trigger`."),
    key("entities", List(&Any), "Entities of intent messages."),
    key("session_config", Section(&SESSION), "When sessions expire and what a new session keeps."),
    key("forms", Map(&Any), "Forms of NLU-based assistants.").accepted_with_warning(NLU_ONLY),
    key("e2e_actions", List(&Any), "End-to-end actions of stories.").accepted_with_warning(NLU_ONLY),
    key("config", Map(&Any), "Settings of NLU-based assistants.").accepted(""),
]);

/// Settings of a custom action.
pub(crate) static ACTION: MapSchema = MapSchema::new("action", FILE, IgnoredWithWarning).keys(&[
    key("send_domain", Bool, "Whether requests to the action server contain the domain.").default("false"),
    key(
        "inputs",
        TextList,
        "The slots that it reads. It runs again after a correction only if one of them has changed. Default: all slots of the flow.",
    ),
]);

/// A slot.
pub(crate) static SLOT: MapSchema = MapSchema::new("slot", FILE, Refused).keys(&[
        key(
            "type",
            OneOfUnchecked(&["text", "bool", "categorical", "float", "list", "any"]),
            "`text`, `bool`, `categorical`, `float`, `list` or `any`.",
        )
        .required(),
        key("initial_value", Any, "The initial value. Default: null."),
        key("values", List(&Text), "The values of a `categorical` slot."),
        key("min_value", Number, "The minimum of a `float` slot. Agents see it in their tool schema."),
        key("max_value", Number, "The maximum of a `float` slot. Agents see it in their tool schema."),
        key("mappings", List(&Section(&MAPPING)), "What may fill the slot. Default: the language model."),
        key(
            "fill",
            OneOf(&["any_time", "when_asked", "once"]),
            "When the model may fill it: at `any_time` (the default), only `when_asked`, or `once`: not with a value that the same message also gives to another slot.",
        ),
        key("validation", Section(&VALIDATION), "Checks of every new value."),
        key("influence_conversation", Bool, "Whether trained policies use the slot as a feature.").accepted(""),
        key(
            "write_once",
            Bool,
            "Whether only custom actions, tool results and `set_slots` steps fill it, and none of them changes a value that it has, as for the identity of the caller. Models, agents, buttons and messages never fill it.",
        )
        .default("false"),
        key(
            "public",
            Bool,
            "Whether clients get its values: each change is among the events of a turn. The values of all other slots stay in the server.",
        )
        .default("false"),
        key("shared_for_coexistence", Bool, "Whether `action_reset_routing` keeps its value.").default("false"),
        key("auto_fill", Bool, "Filling by an entity of the same name, before Rasa 3.").accepted_with_warning("It has no effect; write `mappings` instead"),
    ]);

/// A slot mapping.
pub(crate) static MAPPING: MapSchema = MapSchema::new("mapping", FILE, Refused).keys(&[
    key(
        "type",
        OneOfUnchecked(&["from_llm", "controlled", "from_entity", "from_intent", "from_text"]),
        "`from_llm`, `controlled`, `from_entity`, `from_intent` or `from_text`.",
    )
    .required(),
    key("allow_nlu_correction", Bool, "Whether the model may change a value that an intent message has set.")
        .default("false"),
    key(
        "conditions",
        List(&Section(&MAPPING_CONDITION)),
        "The mapping applies only while one of these flows is active: `active_flow: <flow>`.",
    ),
    key("run_action_every_turn", Text, "A custom action that runs in every turn.").aliases(&["action"]),
    key("entity", Text, "The entity that fills the slot."),
    key("role", Text, "The role the entity must have."),
    key("group", Text, "The group the entity must have."),
    key("intent", TextOrList, "The mapping applies only to messages with one of these intents."),
    key("not_intent", TextOrList, "The mapping does not apply to messages with one of these intents."),
    key("value", Any, "The value that the intent sets."),
    key("coexistence_system", Text, "Which of two coexisting systems fills the slot.").accepted(""),
]);

/// An item of `conditions` of a slot mapping.
pub(crate) static MAPPING_CONDITION: MapSchema = MapSchema::new("condition of a mapping", FILE, IgnoredWithWarning)
    .keys(&[
        key("active_flow", Text, "The flow that must be active."),
        key("active_loop", Any, "The form that must be active.").accepted_with_warning(
            "Forms are not supported, so this condition is never true; write `active_flow: <flow>`",
        ),
        key("requested_slot", Any, "The slot that the form requests.").accepted(""),
    ]);

/// `validation` of a slot.
pub(crate) static VALIDATION: MapSchema = MapSchema::new("validation", FILE, Refused).keys(&[
    key("rejections", List(&Section(&REJECTION)), "The rejections. The first whose condition is true applies.")
        .required(),
    key("refill_utter", Text, "The response that asks again after a rejection. Default: `utter_ask_<slot>`."),
]);

/// A rejection, of a slot or of a collect step.
pub(crate) static REJECTION: MapSchema = MapSchema::new("rejection", FILE, Refused).keys(&[
    key("if", Condition, "The condition under which the value is rejected.").required(),
    key("utter", Text, "The response that is sent in that case.").required(),
]);

/// A variation of a response.
pub(crate) static VARIATION: MapSchema = MapSchema::new("response", FILE, Allowed).keys(&[
    key("id", Text, "An id of the variation for response servers."),
    key("text", Text, "The text. `{slot}` is replaced by the value of the slot."),
    key(
        "condition",
        AnyOf(&[Condition, List(&Section(&SLOT_CONDITION))]),
        "When the variation may be used: a condition, or a list of `{type: slot, name, value}`.",
    ),
    key("channel", Text, "The only channel on which the variation is used."),
    key("buttons", List(&Section(&BUTTON)), "The buttons below the text."),
    key("image", Text, "The URL of an image."),
    key("attachment", Any, "An attachment in the format of the channel."),
    key("custom", Any, "A payload in the format of the channel."),
    key("elements", List(&Any), "The elements of a carousel."),
    key("quick_replies", List(&Any), "Buttons that disappear after a click."),
    key("translation", Map(&Text), "The text in further languages, by language code."),
    key(
        "metadata",
        Section(&RESPONSE_METADATA),
        "Settings of the variation (`rephrase`, `rephrase_prompt`, `template`) and arbitrary values.",
    ),
    key("button_type", Text, "How some channels display buttons.").accepted(""),
    key("allow_interruptions", Bool, "Voice: whether the user may interrupt it.").accepted(""),
]);

/// An item of `condition` of a response, in the list form.
pub(crate) static SLOT_CONDITION: MapSchema = MapSchema::new("condition on a slot", FILE, Allowed).keys(&[
    key("type", OneOfUnchecked(&["slot"]), "Always `slot`."),
    key("name", Text, "The slot.").required(),
    key("value", Any, "The value that the slot must have."),
]);

/// `metadata` of a response.
pub(crate) static RESPONSE_METADATA: MapSchema = MapSchema::new("`metadata` of a response", FILE, Allowed).keys(&[
    key("rephrase", Bool, "Whether a model rephrases it, if `nlg` has a rephraser."),
    key("rephrase_prompt", Text, "A prompt template for rephrasing this response."),
    key("template", Text, "`jinja`: the texts are Jinja templates instead of texts with `{slot}`."),
    key("allow_interruptions", Any, "Voice: whether the user may interrupt it.").accepted(""),
]);

/// A button.
pub(crate) static BUTTON: MapSchema = MapSchema::new("button", FILE, Allowed).keys(&[
    key("title", Text, "The label.").required(),
    key("payload", Text, "The message that it sends. Default: the title."),
    key("type", Text, "The kind of button, for channels that have several."),
    key("url", Text, "The URL that it opens, on channels that support this."),
]);

/// `session_config`.
pub(crate) static SESSION: MapSchema = MapSchema::new("session_config", FILE, Refused).keys(&[
    key("session_expiration_time", Number, "Minutes without a message after which the session expires. 0: never."),
    key("carry_over_slots_to_new_session", Bool, "Whether a new session keeps the slots of the previous one."),
    key("start_session_after_expiry", Bool, "Whether a new session starts after expiry."),
]);
