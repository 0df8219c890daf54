//! Keys of `config.yml`.

use super::{Shape, Takes, Unknown, key};

const FILE: &str = "config.yml";

/// The file.
pub(crate) static CONFIG: Shape = Shape {
    name: "configuration",
    file: FILE,
    keys: &[
        key("version", Takes::Any, "The format's version; conventional and not needed.").quiet(),
        key("recipe", Takes::OneOf(&["default.v1"]), "The recipe; `default.v1` is the only one."),
        key("assistant_id", Takes::Text, "Put on events."),
        key("language", Takes::Text, "The assistant's language, ISO 639-1; `en` unless set."),
        key("additional_languages", Takes::Texts, "Further languages of responses."),
        key("pipeline", Takes::List, "The command generator."),
        key("policies", Takes::List, "`FlowPolicy` and, for answers from documents, `EnterpriseSearchPolicy`."),
        key(
            "shortcuts",
            Takes::Bool,
            "Whether button titles, yes, no and numbers are taken without the model; `true` unless set.",
        ),
        key("compat", Takes::Map, "Switches that keep older behaviour."),
        key("data", Takes::TextOrTexts, "Folders or files with flows; `data` and `flows` unless set."),
        key("domain", Takes::TextOrTexts, "The domain's file or folder; `domain.yml` or `domain` unless set."),
        key("docs", Takes::TextOrTexts, "Folder with documents to search; `docs` unless set."),
        key("tests", Takes::TextOrTexts, "Folders with end-to-end tests; `tests` and `e2e_tests` unless set."),
        key("sub_agents", Takes::Text, "Folder with agents; `sub_agents` unless set."),
        key("importers", Takes::List, "Readers of other layouts.")
            .warned("They are Python; place the files as usual or name their folders"),
    ],
    unknown: Unknown::Refused,
};

/// A command generator in the pipeline.
pub(crate) static GENERATOR: Shape = Shape {
    name: "command generator",
    file: FILE,
    keys: &[
        key("name", Takes::Text, "The component.").required(),
        key("llm", Takes::Map, "`model_group: <id>`, or the model's settings in place."),
        key("prompt_template", Takes::Text, "A template of the project's own."),
        key("prompt", Takes::Text, "Older name of `prompt_template`."),
        key("prompt_templates", Takes::Map, "The two templates of the multi-step generator.")
            .warned("One request does the work of both; give one template as `prompt_template`, or none"),
        key(
            "command_aliases",
            Takes::Map,
            "Regular expressions for lines of the model's answer, and the command that each stands for.",
        ),
        key("flow_retrieval", Takes::Map, "How flows are chosen when there are many."),
        key("user_input", Takes::Map, "Limits of the user's text."),
        key("minimize_num_calls", Takes::Bool, "Whether the model is left out where an intent message said enough.")
            .quiet(),
        key("include_date_time", Takes::Bool, "Whether the prompt shows the date; `true` unless set."),
        key("timezone", Takes::Text, "IANA time zone of that date; `UTC` unless set."),
        key("trace_prompt_tokens", Takes::Bool, "Whether traces count tokens; they always do.").quiet(),
    ],
    unknown: Unknown::Refused,
};

/// `flow_retrieval`.
pub(crate) static RETRIEVAL: Shape = Shape {
    name: "flow_retrieval",
    file: FILE,
    keys: &[
        key("active", Takes::Bool, "Whether flows are chosen by similarity; `true` unless set."),
        key("num_flows", Takes::Number, "How many are chosen; 20 unless set."),
        key("turns_to_embed", Takes::Number, "How many turns are compared with the flows; 1 unless set."),
        key("should_embed_slots", Takes::Bool, "Whether slots count in the comparison; `true` unless set."),
        key("embeddings", Takes::Map, "The model that compares meanings; without one, words are compared."),
    ],
    unknown: Unknown::Refused,
};

/// `EnterpriseSearchPolicy`.
pub(crate) static SEARCH: Shape = Shape {
    name: "search policy",
    file: FILE,
    keys: &[
        key("name", Takes::Text, "The policy.").required(),
        key("llm", Takes::Map, "The model that writes answers."),
        key("embeddings", Takes::Map, "The model that compares meanings; without one, words are compared."),
        key("vector_store", Takes::Map, "Where the documents are."),
        key("use_generative_llm", Takes::Bool, "Whether a model writes the answer; `true` unless set."),
        key("citation_enabled", Takes::Bool, "Whether answers name their sources; `false` unless set."),
        key("check_relevancy", Takes::Bool, "Whether the model may find that nothing answers; `false` unless set."),
        key("max_messages_in_query", Takes::Whole, "How many utterances make the question; 2 unless set."),
        key("max_history", Takes::Whole, "How many utterances the model is shown; 20 unless set."),
        key("include_date_time", Takes::Bool, "Whether the prompt shows the date; `true` unless set."),
        key("timezone", Takes::Text, "IANA time zone of that date; `UTC` unless set."),
        key("prompt_template", Takes::Text, "A template of the project's own."),
        key("prompt", Takes::Text, "Older name of `prompt_template`."),
        key("priority", Takes::Number, "The order of policies; there is one order here.").quiet(),
        key("trace_prompt_tokens", Takes::Bool, "Whether traces count tokens; they always do.").quiet(),
    ],
    unknown: Unknown::Warned,
};

/// `vector_store` of the search policy.
pub(crate) static DOCUMENTS: Shape = Shape {
    name: "`vector_store` of a policy",
    file: FILE,
    keys: &[
        key("type", Takes::Text, "`faiss`, the folder's own index; or `qdrant`. `faiss` unless set."),
        key("source", Takes::Text, "The folder with the documents; `docs` unless set."),
        key("threshold", Takes::Number, "What a passage must score to count as found; 0 unless set."),
    ],
    unknown: Unknown::Warned,
};

/// `user_input`.
pub(crate) static USER_INPUT: Shape = Shape {
    name: "user_input",
    file: FILE,
    keys: &[key(
        "max_characters",
        Takes::Number,
        "Longest text that is understood; negative = no limit; 420 unless set.",
    )],
    unknown: Unknown::Refused,
};

/// `compat`.
pub(crate) static COMPAT: Shape = Shape {
    name: "compat",
    file: FILE,
    keys: &[
        key(
            "patterns",
            Takes::OneOf(&["3.13", "3.14", "3.15", "3.16", "3.17"]),
            "Built-in conversation patterns as in this generation; `3.15` unless set.",
        ),
        key(
            "rerun_actions",
            Takes::Bool,
            "Whether actions run again after a correction even if nothing they read has changed; `false` unless set.",
        ),
        key(
            "clarify_on_multiple_start_flows",
            Takes::Bool,
            "Whether several flows in one message lead to the question which is meant; `false` unless set.",
        ),
        key(
            "failed_actions",
            Takes::OneOf(&["continue"]),
            "`continue`: after an action that failed the flow goes on as if it had done nothing, unless `on_error` says otherwise.",
        ),
    ],
    unknown: Unknown::Refused,
};
