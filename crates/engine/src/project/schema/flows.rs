//! Keys of flow files.

use super::{
    Key, MapSchema, REJECTION,
    UnknownKeys::*,
    ValueType::{self, *},
    key,
};

/// A flow file.
pub(crate) static FLOW_FILE: MapSchema = MapSchema::new("flow file", "data/**/*.yml", Refused).keys(&[
    key("version", Any, "The version of the format. Not needed.").accepted(""),
    key("flows", Map(&Section(&FLOW)), "Flows by id."),
    key("nlu", Any, "Training data for an NLU pipeline.")
        .accepted_with_warning("There is no NLU pipeline; the language model understands messages"),
    key("rules", Any, "Rules of NLU-based assistants.")
        .accepted_with_warning("Rules and stories are not supported; write a flow instead"),
    key("stories", Any, "Stories of NLU-based assistants.")
        .accepted_with_warning("Rules and stories are not supported; write a flow instead"),
]);

const NO_DIGRESSIONS: &str = "It has no effect; `force_slot_filling: true` accepts only a value for the slot that is asked for, \
                              and after a digression the user is asked whether to continue";

/// A flow.
pub(crate) static FLOW: MapSchema = MapSchema::new("flow", "data/**/*.yml", Refused).keys(&[
    key("name", Text, "The readable name. Default: the id with spaces for `_` and `-`."),
    key("description", Text, "What the flow does. The model chooses flows by their descriptions.").required(),
    key("if", Condition, "A condition for commands that start the flow. With `false` only calls and links start it."),
    key(
        "always_include_in_prompt",
        Bool,
        "Whether the flow is in the prompt whenever `if` is true, regardless of retrieval.",
    )
    .default("false"),
    key("run_pattern_completed", Bool, "Whether `pattern_completed` may be triggered after it.").default("true"),
    key("nlu_trigger", List(&Section(&TRIGGER)), "Intents that start it."),
    key("persisted_slots", TextList, "Slots that keep their value when the flow ends."),
    key(
        "translation",
        Map(&AnyOf(&[Text, Section(&FLOW_TRANSLATION)])),
        "The readable name in further languages, by language code.",
    ),
    key("steps", List(&Section(&STEP)), "The steps, at least one.").required(),
    key("file_path", Text, "The path of the file, written by Rasa tools.").accepted(""),
    key("ask_confirm_digressions", Any, "Reserved by Rasa; no release uses it.").accepted_with_warning(NO_DIGRESSIONS),
    key("block_digressions", Any, "Reserved by Rasa; no release uses it.").accepted_with_warning(NO_DIGRESSIONS),
]);

/// One language of a flow's `translation`; a text alone is the name.
pub(crate) static FLOW_TRANSLATION: MapSchema =
    MapSchema::new("translation of a flow", "data/**/*.yml", IgnoredWithWarning).keys(&[
        key("name", Text, "The readable name in that language."),
        key(
            "description",
            Text,
            "The description in that language. The model always reads the description of the flow itself.",
        )
        .accepted(""),
    ]);

/// `dtmf` of a collect step.
pub(crate) static DTMF: MapSchema = MapSchema::new("`dtmf`", "data/**/*.yml", IgnoredWithWarning).keys(&[
    key("length", Integer, "The number of keys to press."),
    key("finish_on_key", Text, "The key that ends the input."),
    key("allow_audio_input", Bool, "Whether the user may also speak the answer.").default("true"),
]);

/// An item of `nlu_trigger`.
pub(crate) static TRIGGER: MapSchema = MapSchema::new("nlu_trigger item", "data/**/*.yml", Refused).keys(&[key(
    "intent",
    AnyOf(&[Text, Section(&TRIGGER_INTENT)]),
    "The name of the intent, or a map with `name` and `confidence_threshold`.",
)
.required()]);

/// The map form of an intent.
pub(crate) static TRIGGER_INTENT: MapSchema = MapSchema::new("intent", "data/**/*.yml", Refused).keys(&[
    key("name", Text, "The name of the intent.").required(),
    key("confidence_threshold", Number, "The minimum confidence.").default("0"),
]);

/// The keys that determine the kind of a step. Each step has exactly one of them.
pub(crate) const STEP_KINDS: [&str; 6] = ["action", "collect", "link", "call", "set_slots", "noop"];

/// The values of `next`.
static NEXT: [ValueType; 2] = [Text, List(&AnyOf(&[Section(&BRANCH), Section(&STEP)]))];
/// The values of `then` and `else`.
static TARGET: [ValueType; 2] = [Text, List(&Section(&STEP))];

const BRANCHES_BELONG_UNDER_NEXT: &str = "Write branches as a list under `next` of the previous step";
const OLD_COLLECT: &str = "Write `collect: <slot>`";

/// A step of any kind.
pub(crate) static STEP: MapSchema = MapSchema::new("step", "data/**/*.yml", Refused).keys(&[
        key("id", Text, "An id that `next` can refer to, unique in the flow."),
        key(
            "next",
            AnyOf(&NEXT),
            "A step id, `END`, a list of branches or a list of steps. Default: the following step.",
        ),
        key(
            "on_error",
            AnyOf(&NEXT),
            "The next step after the action, the call or the action of the collect step failed, written like `next`. `context.error` holds the error.",
        ),
        key("metadata", Map(&Any), "Arbitrary values for editors.").accepted(""),
        key("description", Text, "What the step does or the slot means. In a collect step the model reads it."),
        key("action", Text, "A response, a custom action or a built-in action."),
        key("collect", Text, "The slot that the step asks the user for."),
        key("ask_before_filling", Bool, "Whether the step asks even if the slot has a value.").default("false"),
        RESET,
        key("utter", Text, "The response that asks the question. Default: `utter_ask_<slot>`."),
        key("rejections", List(&Section(&REJECTION)), "Rejections of values at this step."),
        key("force_slot_filling", Bool, "Whether only a value for this slot is accepted while the step waits for an answer.").default("false"),
        key(
            "silence_timeout",
            AnyOf(&[Number, Map(&Number)]),
            "Voice: seconds of silence before the silence pattern is triggered, or a map from channel to seconds.",
        ),
        key("dtmf", Section(&DTMF), "Voice: input with the keys of a telephone (DTMF)."),
        key("ask_confirm_digressions", Any, "Reserved by Rasa; no release uses it.").accepted_with_warning(NO_DIGRESSIONS),
        key("block_digressions", Any, "Reserved by Rasa; no release uses it.").accepted_with_warning(NO_DIGRESSIONS),
        key("call", Text, "The flow or agent to call, or with `mcp_server` the tool."),
        key("mcp_server", Text, "The server of the tool that `call` names."),
        key("mapping", Section(&TOOL_MAPPING), "The slots that fill the tool's parameters and the slots that its result fills."),
        key("exit_if", List(&Condition), "Conditions that end the agent's task when all of them are true."),
        key("link", Text, "The flow that continues in place of this one."),
        key("set_slots", AnyOf(&[Map(&Any), List(&Map(&Any))]), "Slots and the values that they get."),
        key("noop", Any, "Does nothing. Only `next` matters."),
        key("if", Any, "A key of a branch.").refused(BRANCHES_BELONG_UNDER_NEXT),
        key("then", Any, "A key of a branch.").refused(BRANCHES_BELONG_UNDER_NEXT),
        key("else", Any, "A key of a branch.").refused(BRANCHES_BELONG_UNDER_NEXT),
        key("generation_prompt", Any, "A step kind of older versions.")
            .refused("Use `call` with an agent, or `action` with a rephrased response"),
        key("intent", Any, "A step kind of older versions.")
            .refused("Use the `description` or the `nlu_trigger` of the flow to start it"),
        key("question", Any, "A step kind of older versions.").refused(OLD_COLLECT),
        key("collect_information", Any, "A step kind of older versions.").refused(OLD_COLLECT),
    ]);

const RESET: Key = key("reset_after_flow_ends", Bool, "Whether the slot is reset when the flow ends.")
    .default("true")
    .accepted_with_warning("It works but is deprecated; write the slot under `persisted_slots` of the flow");

/// Whether a step of this kind may have `key`.
pub(crate) fn is_key_of_kind(key: &str, kind: &str) -> bool {
    match key {
        "id" | "next" | "metadata" | "description" => true,
        "ask_before_filling"
        | "reset_after_flow_ends"
        | "utter"
        | "rejections"
        | "force_slot_filling"
        | "silence_timeout"
        | "dtmf" => kind == "collect",
        "on_error" => matches!(kind, "action" | "call" | "collect"),
        "mcp_server" | "mapping" | "exit_if" => kind == "call",
        _ => key == kind || !STEP_KINDS.contains(&key),
    }
}

/// A branch under `next`.
pub(crate) static BRANCH: MapSchema = MapSchema::new("branch", "data/**/*.yml", Refused).keys(&[
    key("if", Condition, "The condition of the branch."),
    key("then", AnyOf(&TARGET), "A step id, `END` or a list of steps."),
    key("else", AnyOf(&TARGET), "A step id, `END` or a list of steps, for the case that no `if` is true."),
    key("next", Any, "The step after the branch.")
        .accepted_with_warning("It has no effect next to `then` or `else`; write it in the last step of the branch"),
]);

/// `mapping` of a tool call.
pub(crate) static TOOL_MAPPING: MapSchema = MapSchema::new("mapping", "data/**/*.yml", Refused).keys(&[
    key("input", List(&Section(&TOOL_INPUT)), "Parameters and the slots that fill them."),
    key("output", List(&Section(&TOOL_OUTPUT)), "Slots and the expressions over `result` that fill them."),
]);

/// An item of `mapping.input`.
pub(crate) static TOOL_INPUT: MapSchema = MapSchema::new("input of a tool", "data/**/*.yml", Refused).keys(&[
    key("param", Text, "The tool's parameter.").required(),
    key("slot", Text, "The slot whose value the parameter gets.").required(),
]);

/// An item of `mapping.output`.
pub(crate) static TOOL_OUTPUT: MapSchema = MapSchema::new("output of a tool", "data/**/*.yml", Refused).keys(&[
    key("slot", Text, "The slot that is filled.").required(),
    key("value", Text, "An expression over `result`, such as `result.structuredContent.id`.").required(),
]);
