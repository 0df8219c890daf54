//! Keys of flow files.

use super::{Key, Shape, Takes, Unknown, key};

/// A flow file.
pub(crate) static FLOW_FILE: Shape = Shape {
    name: "flow file",
    file: "data/**/*.yml",
    keys: &[
        key("version", Takes::Any, "The format's version; conventional and not needed.").quiet(),
        key("flows", Takes::Map, "Flows by id."),
        key("nlu", Takes::Any, "Training data for an NLU pipeline.")
            .warned("There is no NLU pipeline here; messages are understood by the language model"),
        key("rules", Takes::Any, "Rules of the older dialogue engine.")
            .warned("Only flows run here; write a flow instead"),
        key("stories", Takes::Any, "Stories of the older dialogue engine.")
            .warned("Only flows run here; write a flow instead"),
    ],
    unknown: Unknown::Refused,
};

const NO_DIGRESSIONS: &str = "It has no effect; `force_slot_filling: true` keeps a question open, and after a digression the user \
                              is asked whether to go on";

/// A flow.
pub(crate) static FLOW: Shape = Shape {
    name: "flow",
    file: "data/**/*.yml",
    keys: &[
        key("name", Takes::Text, "Readable name; the id with blanks unless set."),
        key("description", Takes::Text, "What the flow does; the model chooses flows by it.").required(),
        key("if", Takes::Condition, "When a command may start it; `false` leaves only calls and links."),
        key("always_include_in_prompt", Takes::Bool, "Shown to the model whatever retrieval says, while `if` holds."),
        key("run_pattern_completed", Takes::Bool, "Whether `pattern_completed` may follow it; `true` unless set."),
        key("nlu_trigger", Takes::List, "Intents that start it."),
        key("persisted_slots", Takes::Texts, "Slots that keep their value when it ends."),
        key("translation", Takes::Map, "Readable names by language."),
        key("steps", Takes::List, "What it does, at least one step.").required(),
        key("file_path", Takes::Text, "Written by tools.").quiet(),
        key("ask_confirm_digressions", Takes::Any, "Of a release that never came.").warned(NO_DIGRESSIONS),
        key("block_digressions", Takes::Any, "Of a release that never came.").warned(NO_DIGRESSIONS),
    ],
    unknown: Unknown::Refused,
};

/// One language of a flow's `translation`; a text alone is the name.
pub(crate) static FLOW_TRANSLATION: Shape = Shape {
    name: "translation of a flow",
    file: "data/**/*.yml",
    keys: &[
        key("name", Takes::Text, "The readable name in that language."),
        key("description", Takes::Text, "What it does, in that language; the model reads the flow's own.").quiet(),
    ],
    unknown: Unknown::Warned,
};

/// `dtmf` of a collect step.
pub(crate) static DTMF: Shape = Shape {
    name: "`dtmf`",
    file: "data/**/*.yml",
    keys: &[
        key("length", Takes::Whole, "How many keys are pressed."),
        key("finish_on_key", Takes::Text, "The key that ends the entry."),
        key("allow_audio_input", Takes::Bool, "Whether the answer may be spoken as well; `true` unless set."),
    ],
    unknown: Unknown::Warned,
};

/// An item of `nlu_trigger`.
pub(crate) static TRIGGER: Shape = Shape {
    name: "nlu_trigger item",
    file: "data/**/*.yml",
    keys: &[key("intent", Takes::Any, "The intent's name, or a map with `name` and `confidence_threshold`.").required()],
    unknown: Unknown::Refused,
};

/// The long form of an intent.
pub(crate) static TRIGGER_INTENT: Shape = Shape {
    name: "intent",
    file: "data/**/*.yml",
    keys: &[
        key("name", Takes::Text, "The intent's name.").required(),
        key("confidence_threshold", Takes::Number, "The least confidence; 0 unless set."),
    ],
    unknown: Unknown::Refused,
};

/// The keys that say what a step does; each step has exactly one.
pub(crate) const STEP_KINDS: [&str; 6] = ["action", "collect", "link", "call", "set_slots", "noop"];

const BRANCHES_STAND_UNDER_NEXT: &str = "Branches stand in a list under `next` of the step before";
const OLD_COLLECT: &str = "Questions are `collect` steps; write `collect: <slot>`";

/// A step of any kind.
pub(crate) static STEP: Shape = Shape {
    name: "step",
    file: "data/**/*.yml",
    keys: &[
        key("id", Takes::Text, "A name for `next` to jump to, unique in the flow."),
        key(
            "next",
            Takes::Any,
            "A step id, `END`, a list of branches or a list of steps; the following step unless set.",
        ),
        key(
            "on_error",
            Takes::Any,
            "What follows when an action, a call or a question's action fails, in the forms of `next`; `context.error` says why.",
        ),
        key("metadata", Takes::Map, "Anything; kept for editors.").quiet(),
        key("description", Takes::Text, "What the step or the value is about; for `collect` the model reads it."),
        key("action", Takes::Text, "A response, a custom action or a built-in action."),
        key("collect", Takes::Text, "The slot that the user is asked for."),
        key("ask_before_filling", Takes::Bool, "Always ask, even if the value is known; `false` unless set."),
        RESET,
        key("utter", Takes::Text, "The question; `utter_ask_<slot>` unless set."),
        key("rejections", Takes::List, "Values that are refused at this step."),
        key("force_slot_filling", Takes::Bool, "While it is asked, only a value for this slot counts."),
        key("silence_timeout", Takes::Any, "Voice: seconds of silence, or a map from channel to seconds."),
        key("dtmf", Takes::Map, "Voice: entry by keys of the phone."),
        key("ask_confirm_digressions", Takes::Any, "Of a release that never came.").warned(NO_DIGRESSIONS),
        key("block_digressions", Takes::Any, "Of a release that never came.").warned(NO_DIGRESSIONS),
        key("call", Takes::Text, "A flow, an agent, or with `mcp_server` a tool."),
        key("mcp_server", Takes::Text, "The server of the tool that `call` names."),
        key("mapping", Takes::Map, "Which slots go into the tool and which come out."),
        key("exit_if", Takes::List, "Conditions that together end an agent's task."),
        key("link", Takes::Text, "The flow that goes on instead of this one."),
        key("set_slots", Takes::Any, "Slots and their values."),
        key("noop", Takes::Any, "Does nothing; only `next` counts."),
        key("if", Takes::Any, "A branch.").refused(BRANCHES_STAND_UNDER_NEXT),
        key("then", Takes::Any, "A branch.").refused(BRANCHES_STAND_UNDER_NEXT),
        key("else", Takes::Any, "A branch.").refused(BRANCHES_STAND_UNDER_NEXT),
        key("generation_prompt", Takes::Any, "A step of older projects.")
            .refused("Texts are written by an agent or a rephrased response; use `call` or `action`"),
        key("intent", Takes::Any, "A step of older projects.")
            .refused("A flow is started by its description or by `nlu_trigger` of the flow"),
        key("question", Takes::Any, "A step of older projects.").refused(OLD_COLLECT),
        key("collect_information", Takes::Any, "A step of older projects.").refused(OLD_COLLECT),
    ],
    unknown: Unknown::Refused,
};

const RESET: Key =
    key("reset_after_flow_ends", Takes::Bool, "Whether the slot is emptied at the end; `true` unless set.")
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
pub(crate) static BRANCH: Shape = Shape {
    name: "branch",
    file: "data/**/*.yml",
    keys: &[
        key("if", Takes::Condition, "When this branch is taken."),
        key("then", Takes::Any, "A step id, `END` or a list of steps."),
        key("else", Takes::Any, "A step id, `END` or a list of steps, taken when no `if` holds."),
        key("next", Takes::Any, "Where steps go on.")
            .warned("It has no effect beside `then` or `else`; write it at the last step of the branch"),
    ],
    unknown: Unknown::Refused,
};

/// `mapping` of a tool call.
pub(crate) static TOOL_MAPPING: Shape = Shape {
    name: "mapping",
    file: "data/**/*.yml",
    keys: &[
        key("input", Takes::List, "Parameters and the slots they are filled from."),
        key("output", Takes::List, "Slots and the expressions over `result` that fill them."),
    ],
    unknown: Unknown::Refused,
};

/// An item of `mapping.input`.
pub(crate) static TOOL_INPUT: Shape = Shape {
    name: "input of a tool",
    file: "data/**/*.yml",
    keys: &[
        key("param", Takes::Text, "The tool's parameter.").required(),
        key("slot", Takes::Text, "The slot whose value it gets.").required(),
    ],
    unknown: Unknown::Refused,
};

/// An item of `mapping.output`.
pub(crate) static TOOL_OUTPUT: Shape = Shape {
    name: "output of a tool",
    file: "data/**/*.yml",
    keys: &[
        key("slot", Takes::Text, "The slot that is filled.").required(),
        key("value", Takes::Text, "An expression over `result`, such as `result.structuredContent.id`.").required(),
    ],
    unknown: Unknown::Refused,
};
