//! Keys of `subagents.yml`, and of `delegation` of an agent.

use super::{MODEL, MapSchema, UnknownKeys::*, ValueType::*, key, missions};

const FILE: &str = "subagents.yml";

/// The file.
pub(crate) static SUBAGENTS_FILE: MapSchema = MapSchema::new("sub-agents file", FILE, Refused).keys(&[
    key("version", Any, "The version of the format. Not needed.").accepted(""),
    key("subagents", Section(&SUBAGENTS), "The types of sub-agents and their limits."),
]);

/// `subagents`.
pub(crate) static SUBAGENTS: MapSchema = MapSchema::new("`subagents` section", FILE, Refused).keys(&[
    key("defaults", Section(&SUBAGENT_DEFAULTS), "Limits of all types that do not set their own."),
    key("types", Map(&AnyOf(&[Section(&SUBAGENT_TYPE), Null])), "The types by name."),
    key("custom_agents", Map(&Section(&SUBAGENT_TYPE)), "The same as `types`, as in the format of DeerFlow."),
    key("agents", Map(&Section(&SUBAGENT_OVERRIDE)), "Settings that replace those of a type, by its name."),
    key("timeout_seconds", Seconds, "The time limit of the built-in types in seconds."),
    key("max_turns", PositiveInteger, "The maximum number of model calls of the built-in types."),
    key("max_total_per_run", PositiveInteger, "The maximum number of delegations in one turn of an agent, at most 50.")
        .default("6"),
    key("token_budget", Section(&TOKEN_BUDGET), "The token budget of each sub-agent."),
    key("admission", Section(&ADMISSION), "How many sub-agents run at the same time, over all conversations."),
]);

/// `defaults`.
pub(crate) static SUBAGENT_DEFAULTS: MapSchema = MapSchema::new("`defaults` section", FILE, Refused).keys(&[
    key("timeout_seconds", Seconds, "The time limit in seconds.").default("900"),
    key("max_turns", PositiveInteger, "The maximum number of model calls. Default: 50; of `bash` 30."),
    key("token_budget", Section(&TOKEN_BUDGET), "The token budget of each sub-agent."),
]);

/// `admission`.
pub(crate) static ADMISSION: MapSchema = MapSchema::new("`admission` section", FILE, Refused).keys(&[
    key("max_running", PositiveInteger, "The maximum number of sub-agents that run, at most 64.").default("3"),
    key("max_queued", Integer, "The maximum number of sub-agents that wait.").default("64"),
    key("policy", OneOf(&["queue", "reject"]), "What happens to another one: it waits, or it is refused.")
        .default("queue"),
    key("queue_timeout_seconds", Seconds, "The longest wait in seconds. It does not count as run time.").default("300"),
]);

/// `token_budget`.
pub(crate) static TOKEN_BUDGET: MapSchema = MapSchema::new("`token_budget` section", FILE, Refused).keys(&[
    key("enabled", Bool, "Whether it is in force.").default("true"),
    key("max_tokens", PositiveInteger, "The maximum number of input and output tokens.").default("1000000"),
    key("warn_threshold", Number, "The share at which the sub-agent is asked to finish, above 0 and at most 1.")
        .default("0.7"),
]);

/// A type of sub-agents.
pub(crate) static SUBAGENT_TYPE: MapSchema = MapSchema::new("type of sub-agents", FILE, Refused).keys(&[
    key(
        "preset",
        OneOf(&["general-purpose", "bash", "deep"]),
        "The built-in type that it is, or whose instructions it has. `deep` is for long work: `bash` with 60 model calls for the type of that name, else `general-purpose` with 150. Default: the type with its name.",
    ),
    key("requires", OneOf(&["sandbox"]), "`sandbox`: the type exists only if `endpoints.yml` sets a sandbox."),
    key("description", Text, "When to delegate to it. Models see it. Required without a preset."),
    key("system_prompt", Text, "Its instructions. Required without a preset."),
    key("tools", TextList, "The tools that it may use. Default: all of its parent."),
    key("disallowed_tools", TextList, "The tools that it may not use. Default: none."),
    key("skills", TextList, "The skills that it may load; `[]`: none. Default: all of its parent."),
    key(
        "model",
        AnyOf(&[Text, Section(&MODEL)]),
        "`inherit` for the model of its parent, the id of a model group, or the settings of a model.",
    )
    .default("inherit"),
    key("max_turns", PositiveInteger, "The maximum number of model calls."),
    key("timeout_seconds", Seconds, "The time limit in seconds."),
    key("token_budget", Section(&TOKEN_BUDGET), "The token budget."),
    key("output", missions::field_map!(), "The fields of its result. Default: its result is a text."),
    key("interactive", Bool, "Whether it may ask the user.").default("false").accepted_with_warning(
        "A sub-agent cannot ask the user; the agent that started it asks, and starts it again with the answer",
    ),
]);

/// An entry of `agents`.
pub(crate) static SUBAGENT_OVERRIDE: MapSchema = MapSchema::new("override of a type", FILE, Refused).keys(&[
    key("max_turns", PositiveInteger, "The maximum number of model calls."),
    key("timeout_seconds", Seconds, "The time limit in seconds."),
    key("token_budget", Section(&TOKEN_BUDGET), "The token budget."),
    key("model", AnyOf(&[Text, Section(&MODEL)]), "`inherit`, the id of a model group, or the settings of a model."),
    key("skills", TextList, "The skills that it may load; `[]`: none."),
]);

/// `delegation` of an agent.
pub(crate) static DELEGATION: MapSchema = MapSchema::new("`delegation` section", "sub_agents/*/config.yml", Refused)
    .keys(&[
        key("enabled", Bool, "Whether the agent has the tool `task`, which starts sub-agents.").default("true"),
        key("types", TextList, "The types of sub-agents that it may start. Default: all."),
        key("max_concurrent", PositiveInteger, "The maximum number of sub-agents at the same time, at most 16.")
            .default("3"),
        key("max_total", PositiveInteger, "The maximum number of sub-agents in one turn of the user, at most 50.")
            .default("6"),
        key(
            "per_conversation",
            PositiveInteger,
            "The maximum number of sub-agents in a conversation. Default: no limit.",
        ),
        key("depth", PositiveInteger, "The depth of delegation, at most 4. With 1, sub-agents start none.")
            .default("1"),
        key("background", Bool, "Whether sub-agents may run while the conversation goes on.").default("false"),
        key(
            "budget",
            Section(&DELEGATION_BUDGET),
            "What the agent and its sub-agents may use together in one turn of the user. Default: no limit.",
        ),
    ]);

/// `budget` of `delegation`.
pub(crate) static DELEGATION_BUDGET: MapSchema = MapSchema::new("`budget` section", "sub_agents/*/config.yml", Refused)
    .keys(&[
        key("tokens", Integer, "The maximum number of input and output tokens."),
        key("dollars", Number, "The maximum cost, in the currency of the prices in `endpoints.yml`.")
            .aliases(&["cost"]),
        key("warn_at", Number, "The share at which all are asked to finish, above 0 and at most 1.").default("0.8"),
    ]);
