//! Keys of `config.yml`.

use super::{MODEL, MapSchema, UnknownKeys::*, ValueType::*, key};

const FILE: &str = "config.yml";

/// The file.
pub(crate) static CONFIG: MapSchema = MapSchema::new("configuration", FILE, Refused).keys(&[
    key("version", Any, "The version of the format. Not needed.").accepted(""),
    key("recipe", OneOf(&["default.v1"]), "The recipe. Only `default.v1` exists."),
    key("assistant_id", Text, "An id of the assistant that is added to its events."),
    key("language", Text, "The language of the assistant, as an ISO 639-1 code.").default("en"),
    key("additional_languages", TextList, "Further languages that responses are translated into."),
    key(
        "pipeline",
        List(&AnyOf(&[Text, Section(&GENERATOR)])),
        "The components that understand messages: the command generator.",
    ),
    key(
        "policies",
        List(&AnyOf(&[Text, Section(&SEARCH)])),
        "`FlowPolicy` and, for answers from documents, `EnterpriseSearchPolicy`.",
    ),
    key("shortcuts", Bool, "Whether titles of buttons, yes, no, numbers and values of categorical slots are understood without a call of the model.")
        .default("true"),
    key("compat", Section(&COMPAT), "Switches for compatibility with Rasa."),
    key("data", TextOrList, "Folders or files with flows. Default: `data` and `flows`."),
    key("domain", TextOrList, "Files or folders of the domain. Default: `domain.yml` or `domain`."),
    key("docs", TextOrList, "The folder with documents to search.").default("docs"),
    key("tests", TextOrList, "Folders with end-to-end tests. Default: `tests` and `e2e_tests`."),
    key("sub_agents", Text, "The folder with agents.").default("sub_agents"),
    key("importers", List(&Any), "Python classes that import projects with another layout.")
        .accepted_with_warning("Python importers do not run; use the default layout, or set `data` and `domain`"),
]);

/// A command generator in the pipeline.
pub(crate) static GENERATOR: MapSchema = MapSchema::new("command generator", FILE, Refused).keys(&[
    key("name", Text, "The name of the component.").required(),
    key("llm", Section(&MODEL), "The model: `model_group: <id>`, or the settings of a model."),
    key("prompt_template", Text, "The file of a prompt template that replaces the built-in one.").aliases(&["prompt"]),
    key("prompt_templates", Map(&Any), "The two prompt templates of the multi-step generator.")
        .accepted_with_warning("One request replaces both; write one template as `prompt_template`, or remove the key"),
    key(
        "command_aliases",
        Map(&Text),
        "Regular expressions for lines of the model's response, each with the command that replaces it.",
    ),
    key("flow_retrieval", Section(&RETRIEVAL), "How the flows in the prompt are chosen when there are many."),
    key("user_input", Section(&USER_INPUT), "Limits for the text of the user."),
    key("minimize_num_calls", Bool, "Whether the model is not called when an intent message is enough.").accepted(""),
    key("include_date_time", Bool, "Whether the prompt contains the date.").default("true"),
    key("timezone", Text, "The IANA time zone of that date.").default("UTC"),
    key("trace_prompt_tokens", Bool, "Whether traces contain token counts. They always do.").accepted(""),
]);

/// `flow_retrieval`.
pub(crate) static RETRIEVAL: MapSchema = MapSchema::new("flow_retrieval", FILE, Refused).keys(&[
    key("active", Bool, "Whether flows are chosen by their similarity to the message.").default("true"),
    key("num_flows", Number, "How many flows are chosen.").default("20"),
    key("turns_to_embed", Number, "How many of the last turns are compared with the flows.").default("1"),
    key("should_embed_slots", Bool, "Whether the slots of a flow are part of the comparison.").default("true"),
    key("embeddings", Section(&MODEL), "The embedding model. Without it the search is lexical."),
]);

/// `EnterpriseSearchPolicy`.
pub(crate) static SEARCH: MapSchema = MapSchema::new("search policy", FILE, IgnoredWithWarning).keys(&[
    key("name", Text, "The name of the policy.").required(),
    key("llm", Section(&MODEL), "The model that writes answers."),
    key("embeddings", Section(&MODEL), "The embedding model. Without it the search is lexical."),
    key("vector_store", Section(&DOCUMENTS), "The documents."),
    key(
        "use_generative_llm",
        Bool,
        "Whether a model writes the answer. Otherwise the answer stored with the best passage is sent.",
    )
    .default("true"),
    key("citation_enabled", Bool, "Whether answers cite their sources.").default("false"),
    key("check_relevancy", Bool, "Whether the model may decide that the documents do not answer the question.")
        .default("false"),
    key("max_messages_in_query", Integer, "How many of the last messages form the query.").default("2"),
    key("max_history", Integer, "How many of the last messages are in the prompt.").default("20"),
    key("include_date_time", Bool, "Whether the prompt contains the date.").default("true"),
    key("timezone", Text, "The IANA time zone of that date.").default("UTC"),
    key("prompt_template", Text, "The file of a prompt template that replaces the built-in one.").aliases(&["prompt"]),
    key("priority", Number, "The priority of the policy. The order of policies is fixed.").accepted(""),
    key("trace_prompt_tokens", Bool, "Whether traces contain token counts. They always do.").accepted(""),
]);

/// `vector_store` of the search policy.
pub(crate) static DOCUMENTS: MapSchema =
    MapSchema::new("`vector_store` of a policy", FILE, IgnoredWithWarning).keys(&[
        key("type", Text, "`faiss` for an index of the folder `source`, or `qdrant`.").default("faiss"),
        key("source", Text, "The folder with the documents.").default("docs"),
        key("threshold", Number, "The minimum score of a passage.").default("0"),
    ]);

/// `user_input`.
pub(crate) static USER_INPUT: MapSchema = MapSchema::new("user_input", FILE, Refused).keys(&[key(
    "max_characters",
    Number,
    "The maximum length of a message that is processed. Negative: no limit.",
)
.default("420")]);

/// `compat`.
pub(crate) static COMPAT: MapSchema = MapSchema::new("compat", FILE, Refused).keys(&[
    key(
        "patterns",
        OneOf(&["3.13", "3.14", "3.15", "3.16", "3.17"]),
        "The CALM version whose built-in conversation patterns are used.",
    )
    .default("3.15"),
    key(
        "rerun_actions",
        Bool,
        "Whether actions run again after a correction even if none of the slots that they read has changed.",
    )
    .default("false"),
    key(
        "clarify_on_multiple_start_flows",
        Bool,
        "Whether a message that starts several flows triggers a clarification question.",
    )
    .default("false"),
    key(
        "failed_actions",
        OneOf(&["continue"]),
        "`continue`: a flow without `on_error` continues after a failed action as if the action had done nothing.",
    ),
]);
