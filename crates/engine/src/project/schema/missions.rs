//! Keys of `missions/*.yml`.

use super::{
    Key, MODEL, MapSchema, SKILL,
    UnknownKeys::*,
    ValueType::*,
    agents::{BUILTIN_TOOLS, WORKSPACE},
    key, skills,
};

const FILE: &str = "missions/*.yml";

/// The type names of fields.
const TYPES: &[&str] =
    &["string", "number", "integer", "bool", "boolean", "list", "array", "map", "object", "any", "any_primitive"];
/// The type names of inputs.
const INPUT_TYPES: &[&str] = &[
    "string",
    "number",
    "integer",
    "bool",
    "boolean",
    "list",
    "array",
    "map",
    "object",
    "any",
    "any_primitive",
    "file",
];
// Macros, because a constant cannot refer to a schema that refers to the constant.

/// How a field is written: the short form, or a map.
macro_rules! field_form {
    () => {
        AnyOf(&[Text, Section(&$crate::project::schema::missions::FIELD)])
    };
}

/// Fields by name, or a list of fields with names. `field` may hold the list, as in HCL.
macro_rules! field_map {
    () => {
        AnyOf(&[
            Map(&AnyOf(&[
                Text,
                Section(&$crate::project::schema::missions::FIELD),
                List(&Section(&$crate::project::schema::missions::FIELD)),
            ])),
            List(&Section(&$crate::project::schema::missions::FIELD)),
        ])
    };
}
pub(super) use field_map;

/// The keys of a field or an input: its own ones, and those that say which values it may have.
macro_rules! value_keys {
    ($($own:expr),* $(,)?) => {
        &[
            $($own,)*
            key("enum", List(&Any), "The values that it may have."),
            key("pattern", Text, "Of a `string`: a regular expression that matches some part of it."),
            key("minimum", Number, "Of a number: the lowest value."),
            key("maximum", Number, "Of a number: the highest value."),
            key("items", field_form!(), "Of a `list`: the type of its items."),
            key("values", field_form!(), "Of a `map`: the type of its values."),
            key("properties", field_map!(), "Of an `object`: its fields."),
        ]
    };
}

/// `llm` of commanders and local agents.
const LLM: Key = key("llm", Section(&MODEL), "The model: `model_group: <id>`, or the settings of a model.");
/// `model`, which has another name here.
const REFUSED_MODEL: Key = key("model", Any, "Not a key of this format.")
    .refused("Write `llm: {model_group: <id>}` with a group of `endpoints.yml`");

/// The file.
pub(crate) static MISSION_FILE: MapSchema = MapSchema::new("mission file", FILE, Refused).keys(&[
    key("version", Any, "The version of the format. Not needed.").accepted(""),
    key("mission", Section(&MISSION), "The mission.").required(),
]);

/// `mission`.
pub(crate) static MISSION: MapSchema = MapSchema::new("mission", FILE, Refused).keys(&[
    key("name", Text, "Its id: `a-z`, `0-9` and `_`. Default: the name of the file."),
    key("title", Text, "Its name for people, with any characters. Default: its id."),
    key("description", Text, "What it does. People and the model that chooses flows see it.").required(),
    key("directive", Text, "A rule for all commanders of the mission."),
    key(
        "commander",
        AnyOf(&[Text, Section(&COMMANDER)]),
        "The settings of the commanders, or only the id of their model group.",
    ),
    key("agents", TextList, "The agents that tasks without `agents` may call."),
    key(
        "local_agents",
        AnyOf(&[Map(&Section(&MISSION_AGENT)), List(&Section(&MISSION_AGENT))]),
        "Agents that exist only in this mission.",
    )
    .aliases(&["agent"]),
    key("inputs", AnyOf(&[Map(&AnyOf(&[Text, Section(&INPUT)])), List(&Section(&INPUT))]), "The inputs of a run.")
        .aliases(&["input"]),
    key(
        "datasets",
        AnyOf(&[Map(&AnyOf(&[Section(&DATASET), Null])), List(&Section(&DATASET))]),
        "Lists of objects that tasks iterate over.",
    )
    .aliases(&["dataset"]),
    key("storage", Section(&STORAGE), "Folders that the file tools of a run may use."),
    key("budget", Section(&BUDGET), "The budget of a run."),
    key("concurrency", Section(&CONCURRENCY), "How many runs and tasks may run at the same time."),
    key("tasks", AnyOf(&[Map(&Section(&TASK)), List(&Section(&TASK))]), "The tasks, at least one.")
        .aliases(&["task"])
        .required(),
    key("schedules", Any, "When runs start by themselves.")
        .aliases(&["schedule"])
        .accepted_with_warning("Runs do not start by themselves; start them with a scheduler of your system"),
    key("trigger", Section(&MISSION_TRIGGER), "The webhook that starts runs.")
        .accepted_with_warning("There is no webhook; start runs with `segue mission run`"),
    key("notification", Any, "Who learns about the end of a run.")
        .accepted_with_warning("No notifications are sent; read the events of the run"),
    key("memories", SHARED, "The same as `storage.shared`."),
    key("packets", PACKETS, "The same as `storage.packets`."),
    key("memory", Any, "Not a key of this format.").refused("Write `storage: {memory: …}`"),
    key("scratchpad", Any, "Not a key of this format.").refused("Write `storage: {scratchpad: true}`"),
    key("max_parallel", Any, "Not a key of this format.").refused("Write `concurrency: {max_parallel: …}`"),
    key("folders", Any, "Not a key of this format.").refused("Write `storage: {memory: …, scratchpad: true}`"),
    key("folder", Any, "Not a key of this format.").refused("Write `storage: {memory: …, scratchpad: true}`"),
    key("run_folder", Any, "Not a key of this format.").refused("Write `storage: {scratchpad: true}`"),
]);

/// `commander`.
pub(crate) static COMMANDER: MapSchema = MapSchema::new("`commander` section", FILE, Refused).keys(&[
    LLM,
    key("reasoning", OneOf(&["low", "medium", "high"]), "The reasoning effort."),
    key(
        "plan",
        OneOf(&["required", "optional"]),
        "Whether a commander must list its subtasks before it does anything else.",
    )
    .default("required"),
    key(
        "max_turns",
        PositiveInteger,
        "The maximum number of model calls of one commander; in a sequential iteration, for each item.",
    )
    .default("60"),
    key("corrections", Integer, "The maximum number of corrections in a row before the task fails.").default("3"),
    key(
        "max_parallel_agents",
        PositiveInteger,
        "The maximum number of agents that work at the same time, when one response calls several in a row.",
    )
    .default("3"),
    key("tool_response", Section(&TOOL_RESPONSE), "What happens to large results of tools."),
    key("compaction", Section(&COMPACTION), "When older messages are replaced by a summary. Default: never."),
    key("pruning", Any, "Removal of older messages.")
        .accepted_with_warning("Messages are not removed without a summary; use `compaction`"),
    REFUSED_MODEL,
]);

/// `tool_response` of a commander or an agent.
pub(crate) static TOOL_RESPONSE: MapSchema = MapSchema::new("`tool_response` section", FILE, Refused).keys(&[key(
    "max_tokens",
    PositiveInteger,
    "A result above this size is stored, and the model gets a preview. A token counts as 4 bytes.",
)
.default("16000")]);

/// `compaction` of a commander or an agent.
pub(crate) static COMPACTION: MapSchema = MapSchema::new("`compaction` section", FILE, Refused).keys(&[
    key("token_limit", PositiveInteger, "The number of input tokens above which it happens.").required(),
    key("turn_retention", Integer, "The number of turns that stay as they are.").default("10"),
    key("summary", OneOf(&["deterministic", "model"]), "Who writes the summary: code (`deterministic`) or a model.")
        .default("deterministic"),
]);

/// An agent that exists only in a mission.
pub(crate) static MISSION_AGENT: MapSchema = MapSchema::new("local agent", FILE, Refused).keys(&[
    key("name", Text, "Its name, in a list of agents."),
    key("title", Text, "Its name for people, with any characters. Default: its name."),
    key("description", Text, "What it is good at. Commanders choose by it, and it is its instruction.")
        .aliases(&["personality"])
        .required(),
    LLM,
    key("tools", TextList, "Its tools: `server` for all tools of an MCP server, `server.tool` for one."),
    key("tool_response", Section(&TOOL_RESPONSE), "What happens to large results of its tools."),
    key("compaction", Section(&COMPACTION), "When older messages are replaced by a summary. Default: never."),
    key(
        "workspace",
        WORKSPACE,
        "Its tools for the folder of the run: `none`, `read`, `files`, `commands` or a list of tools, as for agents of the project.",
    )
    .default("none"),
    key(
        "skills",
        AnyOf(&[OneOf(&["all"]), List(&AnyOf(&[Text, Section(&SKILL)]))]),
        "The Agent Skills that it may load: names of skills in its folders, or skills written here; `all` of its folders. Default: none.",
    ),
    key("builtin_tools", Section(&BUILTIN_TOOLS), "Its built-in tools, as for agents of the project. Default: none."),
    skills::SKILL_FOLDERS,
    skills::SKILL_SCRIPTS,
    skills::SKILLS_NARROW_TOOLS,
    skills::TRUST,
    REFUSED_MODEL,
    key("role", Any, "Not a key of this format.").refused("Write its role into `description`"),
]);

/// A field of an output, of a dataset or of an object.
pub(crate) static FIELD: MapSchema = MapSchema::new("field", FILE, Refused).keys(value_keys![
    key("name", Text, "Its name, in a list of fields."),
    key("type", OneOf(TYPES), "Its type.").required(),
    key("description", Text, "What it is. Models see it."),
    key("required", Bool, "Whether it must be present and not null.").default("false"),
]);

/// An input.
pub(crate) static INPUT: MapSchema = MapSchema::new("mission input", FILE, Refused).keys(value_keys![
    key("name", Text, "Its name, in a list of inputs."),
    key(
        "type",
        OneOf(INPUT_TYPES),
        "Its type. `file`: a run gets a copy of the file whose path is given, and the value is the path by which agents read it.",
    )
    .required(),
    key("description", Text, "What it is. Models see it."),
    key("required", Bool, "Whether a run must set it. An input without `default` is always required."),
    key("default", Any, "Its value if a run does not set it."),
    key(
        "protected",
        Bool,
        "Whether it is a secret: models and templates do not see it. A model writes `${secrets.<name>}`, which is replaced in calls of tools that leave the program.",
    )
    .default("false"),
    key("value", Secret, "The value of a protected input, as `${NAME}`. It needs at least 4 characters."),
    key(
        "tools",
        TextList,
        "The tools that get a protected input: `server`, `server.tool`, or `http_get` and the other tools for HTTP requests. Default: all tools of MCP servers and all for HTTP requests.",
    ),
]);

/// A dataset.
pub(crate) static DATASET: MapSchema = MapSchema::new("dataset", FILE, Refused).keys(&[
    key("name", Text, "Its name, in a list of datasets."),
    key("description", Text, "What it holds. Models see it."),
    key("schema", field_map!(), "The fields of its items. Default: any object is an item."),
    key("items", List(&Map(&Any)), "Its items. Default: tasks fill it."),
    key("bind_to", Text, "The input of type `list` that holds its items."),
]);

/// `storage`.
pub(crate) static STORAGE: MapSchema = MapSchema::new("`storage` section", FILE, Refused).keys(&[
    key("memory", Text, "The description of the folder `memory`, which lasts from run to run. Default: there is none."),
    key("scratchpad", Bool, "Whether each run has a folder `scratchpad`. That of a completed run is removed 7 days after its start.")
        .default("false"),
    key(
        "shared",
        SHARED,
        "Folders that last from run to run and that all missions with the name share: a list of names, or descriptions by name.",
    ),
    key(
        "packets",
        PACKETS,
        "Folders of the project that runs can read: a list of names of folders below `packets`, or paths by name.",
    ),
]);

/// `storage.shared`.
const SHARED: super::ValueType = AnyOf(&[TextList, Map(&Text)]);
/// `storage.packets`.
const PACKETS: super::ValueType = AnyOf(&[TextList, Map(&AnyOf(&[Text, Section(&PACKET)]))]);

/// An entry of `storage.packets`.
pub(crate) static PACKET: MapSchema = MapSchema::new("packet", FILE, Refused).keys(&[
    key("path", Text, "The folder, relative to the project.").required(),
    key("description", Text, "What it holds. Models see it."),
]);

/// `budget`.
pub(crate) static BUDGET: MapSchema = MapSchema::new("`budget` section", FILE, Refused).keys(&[
    key("tokens", Integer, "The maximum number of input and output tokens."),
    key("dollars", Number, "The maximum cost, in the currency of the prices in `endpoints.yml`.").aliases(&["cost"]),
    key("warn_at", Number, "The share at which a warning is recorded, above 0 and at most 1.").default("0.8"),
    key(
        "on_breach",
        OneOf(&["fail", "finish_turn", "ask"]),
        "What happens when it is used up: the run fails (`fail`), every task gets one more turn to end (`finish_turn`), or the run waits until a person has raised it (`ask`).",
    )
    .default("fail"),
]);

/// `concurrency`.
pub(crate) static CONCURRENCY: MapSchema = MapSchema::new("`concurrency` section", FILE, Refused).keys(&[
    key("max_parallel", PositiveInteger, "The maximum number of runs of this mission at the same time.").default("3"),
    key("max_tasks", PositiveInteger, "The maximum number of tasks of one run at the same time.").default("8"),
    key(
        "key",
        Text,
        "A template with `inputs`. Runs with the same key, of this and other missions, are limited by `limit`.",
    ),
    key("limit", PositiveInteger, "The maximum number of runs with the same `key` at the same time.").default("1"),
    key(
        "overflow",
        OneOf(&["skip", "queue", "replace"]),
        "What happens to a run above a limit: it is refused (`skip`), or it waits until another one has ended (`queue`).",
    )
    .default("skip"),
]);

/// `trigger`.
pub(crate) static MISSION_TRIGGER: MapSchema = MapSchema::new("`trigger` section", FILE, Refused).keys(&[
    key("webhook_path", Text, "The path of the webhook."),
    key("secret", Secret, "The secret of its callers, as `${NAME}`."),
]);

/// A task.
pub(crate) static TASK: MapSchema = MapSchema::new("task", FILE, Refused).keys(&[
    key("name", Text, "Its id, in a list of tasks."),
    key("title", Text, "Its name for people, with any characters. Default: its id."),
    key(
        "always",
        Bool,
        "Whether it runs at the end of every run that succeeds or fails, when nothing else runs: to clean up, or to report.",
    )
    .default("false"),
    key("objective", Text, "What it must achieve: a template with `inputs` and, in parallel iterations, `item`.")
        .required(),
    key("agents", TextList, "The agents that it may call. Default: those of the mission."),
    key("depends_on", TextOrList, "The tasks that must be completed before."),
    key(
        "router",
        AnyOf(&[List(&Section(&ROUTE)), Section(&TASK_ROUTER)]),
        "The routes of which one is taken when the task is completed.",
    ),
    key("send_to", TextOrList, "The tasks that start when this one is completed."),
    key("iterator", Section(&ITERATOR), "The iteration over a dataset."),
    key("output", field_map!(), "The fields of its output. Default: it has no structured output."),
    key("budget", Section(&BUDGET), "The budget of this task with all its iterations."),
    key("packets", TextList, "Packets that the task needs. All tasks of the mission can read them."),
    key("questions", Section(&QUESTIONS), "What holds for questions of the task to people."),
    key("repeat", Section(&REPEAT), "The rounds in which the task is repeated until a condition holds."),
]);

/// `router` in the form of HCL.
pub(crate) static TASK_ROUTER: MapSchema =
    MapSchema::new("`router` section", FILE, Refused)
        .keys(&[key("route", List(&Section(&ROUTE)), "The routes.").aliases(&["routes"]).required()]);

/// A route.
pub(crate) static ROUTE: MapSchema = MapSchema::new("route", FILE, Refused).keys(&[
    key("to", Text, "Where it leads: a task, `mission:<name>`, or `mission:<name>#<task>`.")
        .aliases(&["target", "then"]),
    key("when", Text, "When the model should choose it, in words.").aliases(&["condition"]),
    key(
        "if",
        Condition,
        "The condition over `output`, `inputs` and `summary` that decides. The first that is true is taken.",
    ),
    key(
        "else",
        AnyOf(&[Bool, Text]),
        "`true`: it is taken if no other route is. A route without `when` and `if` is the same. Or the target itself.",
    ),
    key("max_visits", Any, "Not a key of this format.")
        .refused("A task runs at most once in a run; start the mission again with `to: mission:<name>`"),
    key(
        "hand_over",
        List(&OneOf(&["summaries", "outputs"])),
        "Of a route to a mission: what it may read of this run: the summaries of its tasks (`summaries`), and their outputs by queries (`outputs`). Default: nothing.",
    ),
    key(
        "no_answer",
        Bool,
        "`true`: it is taken if a question of the task to people gets no answer in time, and only then.",
    )
    .default("false"),
]);

/// `questions`.
pub(crate) static QUESTIONS: MapSchema = MapSchema::new("`questions` section", FILE, Refused).keys(&[
    key(
        "timeout_seconds",
        PositiveInteger,
        "The time after which a question is closed without an answer. A question may set its own. Default: never.",
    ),
    key("default", Text, "The answer that counts if nobody answers in time. Default: there is none."),
    key(
        "agents",
        TextList,
        "The agents of the task that may ask people themselves, with the tool `ask`. Commanders always may. Default: none.",
    ),
]);

/// `repeat`.
pub(crate) static REPEAT: MapSchema = MapSchema::new("`repeat` section", FILE, Refused).keys(&[
    key(
        "until",
        Condition,
        "The condition over `output`, `inputs` and `summary` that ends the repetition. Code decides it after each round.",
    )
    .required(),
    key("max", PositiveInteger, "The maximum number of rounds.").default("3"),
    key(
        "on_exhausted",
        OneOf(&["fail", "continue"]),
        "What happens if the condition does not hold after the last round: the task fails (`fail`), or it is completed with the result of that round (`continue`).",
    )
    .default("fail"),
]);

/// `iterator`.
pub(crate) static ITERATOR: MapSchema = MapSchema::new("`iterator` section", FILE, Refused).keys(&[
    key("dataset", Text, "The dataset.").required(),
    key(
        "parallel",
        Bool,
        "Whether each item has a commander of its own. Otherwise one commander works through the items in their order.",
    )
    .default("false"),
    key("concurrency_limit", PositiveInteger, "Parallel: the maximum number of iterations at the same time.").default("5"),
    key("start_delay", Integer, "Parallel: the pause between the first starts in milliseconds.")
        .aliases(&["start_delay_ms"])
        .default("0"),
    key("smoketest", Bool, "Parallel: whether the first item must succeed before the others start.")
        .aliases(&["smoke_test"])
        .default("false"),
    key("max_retries", Integer, "Parallel: the maximum number of attempts after the first.").default("0"),
    key("retry_delay", Integer, "Parallel: the pause before a retry in milliseconds; it doubles with each.")
        .aliases(&["retry_delay_ms"])
        .default("1000"),
    key(
        "retry",
        OneOf(&["only_before_writes", "also_after_writes"]),
        "Parallel: whether an item is retried after an attempt that has called a tool that writes. A retry may make such calls a second time.",
    )
    .default("only_before_writes"),
    key(
        "on_error",
        OneOf(&["fail_fast", "finish_then_fail", "continue"]),
        "Parallel: what the failure of an item means for the others: they are cancelled, they run to their end and the task fails, or the task succeeds if enough of them do.",
    )
    .default("fail_fast"),
    key("min_success", Number, "With `on_error: continue`: the share of items that must succeed, from 0 to 1.").default("0"),
    key(
        "session",
        OneOf(&["shared", "fresh"]),
        "Sequential: one session for all items (`shared`), or a fresh one for each with what was learned so far (`fresh`).",
    )
    .default("shared"),
    key(
        "learnings",
        OneOf(&["keep", "share"]),
        "Parallel: what was learned from an item is kept (`keep`), or told to the items that start later (`share`).",
    )
    .default("keep"),
]);
