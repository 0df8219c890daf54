//! Keys of flow files.

use super::{
    Key, MapSchema, REJECTION,
    UnknownKeys::*,
    ValueType::{self, *},
    key,
};

/// A flow file.
pub(crate) static FLOW_FILE: MapSchema = MapSchema::new("flow file", "data/**/*.yml", Refused).keys(&[
    key("version", Any, "The format's version; conventional and not needed.").accepted(""),
    key("flows", Map(&Section(&FLOW)), "Flows by id."),
    key("nlu", Any, "Training data for an NLU pipeline.")
        .warned("There is no NLU pipeline here; messages are understood by the language model"),
    key("rules", Any, "Rules of the older dialogue engine.").warned("Only flows run here; write a flow instead"),
    key("stories", Any, "Stories of the older dialogue engine.").warned("Only flows run here; write a flow instead"),
]);

const NO_DIGRESSIONS: &str = "It has no effect; `force_slot_filling: true` keeps a question open, and after a digression the user \
                              is asked whether to go on";

/// A flow.
pub(crate) static FLOW: MapSchema = MapSchema::new("flow", "data/**/*.yml", Refused).keys(&[
    key("name", Text, "Readable name; the id with blanks unless set."),
    key("description", Text, "What the flow does; the model chooses flows by it.").required(),
    key("if", Condition, "When a command may start it; `false` leaves only calls and links."),
    key("always_include_in_prompt", Bool, "Shown to the model whatever retrieval says, while `if` holds.")
        .default("false"),
    key("run_pattern_completed", Bool, "Whether `pattern_completed` may follow it.").default("true"),
    key("nlu_trigger", List(&Section(&TRIGGER)), "Intents that start it."),
    key("persisted_slots", Texts, "Slots that keep their value when it ends."),
    key("translation", Map(&AnyOf(&[Text, Section(&FLOW_TRANSLATION)])), "Readable names by language."),
    key("steps", List(&Section(&STEP)), "What it does, at least one step.").required(),
    key("file_path", Text, "Written by tools.").accepted(""),
    key("ask_confirm_digressions", Any, "Of a release that never came.").warned(NO_DIGRESSIONS),
    key("block_digressions", Any, "Of a release that never came.").warned(NO_DIGRESSIONS),
]);

/// One language of a flow's `translation`; a text alone is the name.
pub(crate) static FLOW_TRANSLATION: MapSchema =
    MapSchema::new("translation of a flow", "data/**/*.yml", Warned).keys(&[
        key("name", Text, "The readable name in that language."),
        key("description", Text, "What it does, in that language; the model reads the flow's own.").accepted(""),
    ]);

/// `dtmf` of a collect step.
pub(crate) static DTMF: MapSchema = MapSchema::new("`dtmf`", "data/**/*.yml", Warned).keys(&[
    key("length", Whole, "How many keys are pressed."),
    key("finish_on_key", Text, "The key that ends the entry."),
    key("allow_audio_input", Bool, "Whether the answer may be spoken as well.").default("true"),
]);

/// An item of `nlu_trigger`.
pub(crate) static TRIGGER: MapSchema = MapSchema::new("nlu_trigger item", "data/**/*.yml", Refused).keys(&[key(
    "intent",
    AnyOf(&[Text, Section(&TRIGGER_INTENT)]),
    "The intent's name, or a map with `name` and `confidence_threshold`.",
)
.required()]);

/// The long form of an intent.
pub(crate) static TRIGGER_INTENT: MapSchema = MapSchema::new("intent", "data/**/*.yml", Refused).keys(&[
    key("name", Text, "The intent's name.").required(),
    key("confidence_threshold", Number, "The least confidence.").default("0"),
]);

/// The keys that say what a step does; each step has exactly one.
pub(crate) const STEP_KINDS: [&str; 6] = ["action", "collect", "link", "call", "set_slots", "noop"];

/// What follows a step.
static NEXT: [ValueType; 2] = [Text, List(&AnyOf(&[Section(&BRANCH), Section(&STEP)]))];
/// Where a branch goes.
static TARGET: [ValueType; 2] = [Text, List(&Section(&STEP))];

const BRANCHES_STAND_UNDER_NEXT: &str = "Branches stand in a list under `next` of the step before";
const OLD_COLLECT: &str = "Questions are `collect` steps; write `collect: <slot>`";

/// A step of any kind.
pub(crate) static STEP: MapSchema = MapSchema::new("step", "data/**/*.yml", Refused).keys(&[
        key("id", Text, "A name for `next` to jump to, unique in the flow."),
        key(
            "next",
            AnyOf(&NEXT),
            "A step id, `END`, a list of branches or a list of steps; the following step unless set.",
        ),
        key(
            "on_error",
            AnyOf(&NEXT),
            "What follows when an action, a call or a question's action fails, in the forms of `next`; `context.error` says why.",
        ),
        key("metadata", Map(&Any), "Anything; kept for editors.").accepted(""),
        key("description", Text, "What the step or the value is about; for `collect` the model reads it."),
        key("action", Text, "A response, a custom action or a built-in action."),
        key("collect", Text, "The slot that the user is asked for."),
        key("ask_before_filling", Bool, "Always ask, even if the value is known.").default("false"),
        RESET,
        key("utter", Text, "The question; `utter_ask_<slot>` unless set."),
        key("rejections", List(&Section(&REJECTION)), "Values that are refused at this step."),
        key("force_slot_filling", Bool, "While it is asked, only a value for this slot counts.").default("false"),
        key(
            "silence_timeout",
            AnyOf(&[Number, Map(&Number)]),
            "Voice: seconds of silence, or a map from channel to seconds.",
        ),
        key("dtmf", Section(&DTMF), "Voice: entry by keys of the phone."),
        key("ask_confirm_digressions", Any, "Of a release that never came.").warned(NO_DIGRESSIONS),
        key("block_digressions", Any, "Of a release that never came.").warned(NO_DIGRESSIONS),
        key("call", Text, "A flow, an agent, or with `mcp_server` a tool."),
        key("mcp_server", Text, "The server of the tool that `call` names."),
        key("mapping", Section(&TOOL_MAPPING), "Which slots go into the tool and which come out."),
        key("exit_if", List(&Condition), "Conditions that together end an agent's task."),
        key("link", Text, "The flow that goes on instead of this one."),
        key("set_slots", AnyOf(&[Map(&Any), List(&Map(&Any))]), "Slots and their values."),
        key("noop", Any, "Does nothing; only `next` counts."),
        key("if", Any, "A branch.").refused(BRANCHES_STAND_UNDER_NEXT),
        key("then", Any, "A branch.").refused(BRANCHES_STAND_UNDER_NEXT),
        key("else", Any, "A branch.").refused(BRANCHES_STAND_UNDER_NEXT),
        key("generation_prompt", Any, "A step of older projects.")
            .refused("Texts are written by an agent or a rephrased response; use `call` or `action`"),
        key("intent", Any, "A step of older projects.")
            .refused("A flow is started by its description or by `nlu_trigger` of the flow"),
        key("question", Any, "A step of older projects.").refused(OLD_COLLECT),
        key("collect_information", Any, "A step of older projects.").refused(OLD_COLLECT),
    ]);

const RESET: Key = key("reset_after_flow_ends", Bool, "Whether the slot is emptied at the end.")
    .default("true")
    .warned("It works, but is going away; list the slot under `persisted_slots` of the flow instead");

/// Whether `key` belongs to a step of this kind.
pub(crate) fn belongs(key: &str, kind: &str) -> bool {
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
    key("if", Condition, "When this branch is taken."),
    key("then", AnyOf(&TARGET), "A step id, `END` or a list of steps."),
    key("else", AnyOf(&TARGET), "A step id, `END` or a list of steps, taken when no `if` holds."),
    key("next", Any, "Where steps go on.")
        .warned("It has no effect beside `then` or `else`; write it at the last step of the branch"),
]);

/// `mapping` of a tool call.
pub(crate) static TOOL_MAPPING: MapSchema = MapSchema::new("mapping", "data/**/*.yml", Refused).keys(&[
    key("input", List(&Section(&TOOL_INPUT)), "Parameters and the slots they are filled from."),
    key("output", List(&Section(&TOOL_OUTPUT)), "Slots and the expressions over `result` that fill them."),
]);

/// An item of `mapping.input`.
pub(crate) static TOOL_INPUT: MapSchema = MapSchema::new("input of a tool", "data/**/*.yml", Refused).keys(&[
    key("param", Text, "The tool's parameter.").required(),
    key("slot", Text, "The slot whose value it gets.").required(),
]);

/// An item of `mapping.output`.
pub(crate) static TOOL_OUTPUT: MapSchema = MapSchema::new("output of a tool", "data/**/*.yml", Refused).keys(&[
    key("slot", Text, "The slot that is filled.").required(),
    key("value", Text, "An expression over `result`, such as `result.structuredContent.id`.").required(),
]);
