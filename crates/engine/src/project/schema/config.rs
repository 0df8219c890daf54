//! Keys of `config.yml`.

use super::{MODEL, MapSchema, UnknownKeys::*, ValueType::*, key};

const FILE: &str = "config.yml";

/// The file.
pub(crate) static CONFIG: MapSchema = MapSchema::new("configuration", FILE, Refused).keys(&[
    key("version", Any, "The format's version; conventional and not needed.").accepted(""),
    key("recipe", OneOf(&["default.v1"]), "The recipe; `default.v1` is the only one."),
    key("assistant_id", Text, "Put on events."),
    key("language", Text, "The assistant's language, ISO 639-1.").default("en"),
    key("additional_languages", Texts, "Further languages of responses."),
    key("pipeline", List(&AnyOf(&[Text, Section(&GENERATOR)])), "The command generator."),
    key(
        "policies",
        List(&AnyOf(&[Text, Section(&SEARCH)])),
        "`FlowPolicy` and, for answers from documents, `EnterpriseSearchPolicy`.",
    ),
    key("shortcuts", Bool, "Whether button titles, yes, no and numbers are taken without the model.").default("true"),
    key("compat", Section(&COMPAT), "Switches that keep older behaviour."),
    key("data", TextOrTexts, "Folders or files with flows; `data` and `flows` unless set."),
    key("domain", TextOrTexts, "The domain's file or folder; `domain.yml` or `domain` unless set."),
    key("docs", TextOrTexts, "Folder with documents to search.").default("docs"),
    key("tests", TextOrTexts, "Folders with end-to-end tests; `tests` and `e2e_tests` unless set."),
    key("sub_agents", Text, "Folder with agents.").default("sub_agents"),
    key("importers", List(&Any), "Readers of other layouts.")
        .warned("They are Python; place the files as usual or name their folders"),
]);

/// A command generator in the pipeline.
pub(crate) static GENERATOR: MapSchema = MapSchema::new("command generator", FILE, Refused).keys(&[
    key("name", Text, "The component.").required(),
    key("llm", Section(&MODEL), "`model_group: <id>`, or the model's settings in place."),
    key("prompt_template", Text, "A template of the project's own.").older(&["prompt"]),
    key("prompt_templates", Map(&Any), "The two templates of the multi-step generator.")
        .warned("One request does the work of both; give one template as `prompt_template`, or none"),
    key(
        "command_aliases",
        Map(&Text),
        "Regular expressions for lines of the model's answer, and the command that each stands for.",
    ),
    key("flow_retrieval", Section(&RETRIEVAL), "How flows are chosen when there are many."),
    key("user_input", Section(&USER_INPUT), "Limits of the user's text."),
    key("minimize_num_calls", Bool, "Whether the model is left out where an intent message said enough.").accepted(""),
    key("include_date_time", Bool, "Whether the prompt shows the date.").default("true"),
    key("timezone", Text, "IANA time zone of that date.").default("UTC"),
    key("trace_prompt_tokens", Bool, "Whether traces count tokens; they always do.").accepted(""),
]);

/// `flow_retrieval`.
pub(crate) static RETRIEVAL: MapSchema = MapSchema::new("flow_retrieval", FILE, Refused).keys(&[
    key("active", Bool, "Whether flows are chosen by similarity.").default("true"),
    key("num_flows", Number, "How many are chosen.").default("20"),
    key("turns_to_embed", Number, "How many turns are compared with the flows.").default("1"),
    key("should_embed_slots", Bool, "Whether slots count in the comparison.").default("true"),
    key("embeddings", Section(&MODEL), "The model that compares meanings; without one, words are compared."),
]);

/// `EnterpriseSearchPolicy`.
pub(crate) static SEARCH: MapSchema = MapSchema::new("search policy", FILE, Warned).keys(&[
    key("name", Text, "The policy.").required(),
    key("llm", Section(&MODEL), "The model that writes answers."),
    key("embeddings", Section(&MODEL), "The model that compares meanings; without one, words are compared."),
    key("vector_store", Section(&DOCUMENTS), "Where the documents are."),
    key("use_generative_llm", Bool, "Whether a model writes the answer.").default("true"),
    key("citation_enabled", Bool, "Whether answers name their sources.").default("false"),
    key("check_relevancy", Bool, "Whether the model may find that nothing answers.").default("false"),
    key("max_messages_in_query", Whole, "How many utterances make the question.").default("2"),
    key("max_history", Whole, "How many utterances the model is shown.").default("20"),
    key("include_date_time", Bool, "Whether the prompt shows the date.").default("true"),
    key("timezone", Text, "IANA time zone of that date.").default("UTC"),
    key("prompt_template", Text, "A template of the project's own.").older(&["prompt"]),
    key("priority", Number, "The order of policies; there is one order here.").accepted(""),
    key("trace_prompt_tokens", Bool, "Whether traces count tokens; they always do.").accepted(""),
]);

/// `vector_store` of the search policy.
pub(crate) static DOCUMENTS: MapSchema = MapSchema::new("`vector_store` of a policy", FILE, Warned).keys(&[
    key("type", Text, "`faiss`, the folder's own index; or `qdrant`.").default("faiss"),
    key("source", Text, "The folder with the documents.").default("docs"),
    key("threshold", Number, "What a passage must score to count as found.").default("0"),
]);

/// `user_input`.
pub(crate) static USER_INPUT: MapSchema = MapSchema::new("user_input", FILE, Refused).keys(&[key(
    "max_characters",
    Number,
    "Longest text that is understood; negative = no limit.",
)
.default("420")]);

/// `compat`.
pub(crate) static COMPAT: MapSchema = MapSchema::new("compat", FILE, Refused).keys(&[
        key(
            "patterns",
            OneOf(&["3.13", "3.14", "3.15", "3.16", "3.17"]),
            "Built-in conversation patterns as in this generation.",
        )
        .default("3.15"),
        key(
            "rerun_actions",
            Bool,
            "Whether actions run again after a correction even if nothing they read has changed.",
        )
        .default("false"),
        key(
            "clarify_on_multiple_start_flows",
            Bool,
            "Whether several flows in one message lead to the question which is meant.",
        )
        .default("false"),
        key(
            "failed_actions",
            OneOf(&["continue"]),
            "`continue`: after an action that failed the flow goes on as if it had done nothing, unless `on_error` says otherwise.",
        ),
    ]);
