//! Reads `flow_retrieval`, `EnterpriseSearchPolicy` and `vector_store`.

use super::super::{
    DocumentStore, ModelChoice, QdrantDef, RetrievalConfig, SearchConfig,
    load_context::{LoadContext, MapFields},
    schema::{DOCUMENTS, RETRIEVAL, SEARCH, VECTOR_STORE},
    yaml::Node,
};

/// The default folder of documents.
const FOLDER: &str = "docs";
/// The default of `max_messages_in_query`.
const MESSAGES: usize = 2;

/// Reads `flow_retrieval`.
pub(super) fn retrieval(context: &mut LoadContext<'_>, node: &Node) -> RetrievalConfig {
    let mut config = RetrievalConfig::default();
    let Some(fields) = context.fields(node, &RETRIEVAL) else { return config };
    config.active = fields.flag("active");
    config.slots = fields.flag("should_embed_slots");
    config.embeddings = fields.node("embeddings").map(|node| choice(context, node));
    match fields.number("num_flows") {
        Some(n) if n < 1.0 => {
            let message = format!("`num_flows` must be 1 or more; {} is used", config.flows);
            context.warning(
                "F0728",
                fields.at("num_flows"),
                message,
                "Write the maximum number of flows in the prompt, such as 20.",
            );
        }
        Some(n) => config.flows = n as usize,
        None => {}
    }
    if let Some(turns) = fields.number("turns_to_embed") {
        // The minimum is one turn. The cast saturates.
        config.turns = (turns as usize).max(1);
    }
    config
}

/// Reads the policy.
pub(super) fn policy(context: &mut LoadContext<'_>, node: &Node) -> Option<SearchConfig> {
    let place = context.place(node.get("name").unwrap_or(node));
    if node.map().is_none() {
        return Some(SearchConfig { place, ..defaults() });
    }
    let fields = context.fields(node, &SEARCH)?;
    let mut config = SearchConfig { place, ..defaults() };
    if let Some(llm) = fields.node("llm") {
        config.llm = choice(context, llm);
    }
    config.embeddings = fields.node("embeddings").map(|node| choice(context, node));
    if let Some(store) = fields.node("vector_store") {
        documents(context, store, &mut config);
    }
    config.generative = fields.flag("use_generative_llm");
    config.citations = fields.flag("citation_enabled");
    config.check_relevancy = fields.flag("check_relevancy");
    let count = |key: &str| fields.whole(key).map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    config.messages_in_query = count("max_messages_in_query").unwrap_or(MESSAGES).max(1);
    config.max_history = count("max_history");
    config.include_date_time = fields.flag("include_date_time");
    config.timezone = context.timezone(fields.node("timezone"), "F0705");
    config.prompt = fields.node("prompt_template").and_then(|node| context.template_file(node));
    Some(config)
}

fn defaults() -> SearchConfig {
    SearchConfig {
        llm: ModelChoice::default(),
        embeddings: None,
        store: DocumentStore::Folder { path: FOLDER.into(), named: false },
        threshold: 0.0,
        generative: true,
        citations: false,
        check_relevancy: false,
        messages_in_query: MESSAGES,
        max_history: None,
        include_date_time: true,
        timezone: "UTC".into(),
        prompt: None,
        place: crate::finding::SourceLocation::default(),
    }
}

fn documents(context: &mut LoadContext<'_>, node: &Node, config: &mut SearchConfig) {
    let Some(fields) = context.fields(node, &DOCUMENTS) else { return };
    config.threshold = fields.number("threshold").unwrap_or(0.0);
    let source = fields.text("source").map(|path| path.trim_start_matches("./").trim_end_matches('/'));
    config.store = match fields.text("type").map(str::to_lowercase).as_deref() {
        Some("qdrant") => DocumentStore::Qdrant,
        kind => {
            if let Some(other) = kind.filter(|kind| *kind != "faiss") {
                report_unsupported_store(context, fields.node("type").unwrap_or(node), other);
            }
            let path = source.filter(|path| !path.is_empty()).unwrap_or(FOLDER);
            DocumentStore::Folder { path: path.into(), named: source.is_some() }
        }
    };
}

fn report_unsupported_store(context: &mut LoadContext<'_>, node: &Node, store: &str) {
    let default_help = "Write `faiss` to search the files of a folder, or `qdrant`.";
    let help = match crate::finding::did_you_mean(store, ["faiss", "qdrant"]) {
        Some(near) => format!("Did you mean `{near}`?"),
        None if store.contains('.') => format!("It is a Python class, which does not run. {default_help}"),
        None => default_help.to_owned(),
    };
    let message = format!("the vector store `{store}` is not supported; the files of a folder are searched instead");
    context.warning("F0720", node, message, help);
}

/// Reads `vector_store` of `endpoints.yml`.
pub(super) fn vector_store(context: &mut LoadContext<'_>, node: &Node) -> Option<QdrantDef> {
    let fields = context.fields(node, &VECTOR_STORE)?;
    match fields.text("type").map(str::to_lowercase).as_deref() {
        Some("qdrant") => qdrant(context, &fields),
        Some("faiss") => None,
        other => {
            // A custom retriever has arbitrary keys and often no type.
            report_unsupported_store(context, fields.node("type").unwrap_or(node), other.unwrap_or("custom"));
            None
        }
    }
}

fn qdrant(context: &mut LoadContext<'_>, fields: &MapFields<'_>) -> Option<QdrantDef> {
    context.address(fields.node("url"));
    let Some(collection) = fields.text("collection") else {
        let message = "a Qdrant store needs `collection`";
        context.error("F0109", fields.at("type"), message, "Add `collection: …` with the name of the collection.");
        return None;
    };
    let mut url = match fields.text("url") {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => {
            let host = fields.text("host").unwrap_or("localhost").trim_end_matches('/');
            let scheme = if fields.flag("https") { "https" } else { "http" };
            let base = if host.contains("://") { host.to_owned() } else { format!("{scheme}://{host}") };
            format!("{base}:{}", fields.whole("port").unwrap_or(6333))
        }
    };
    if let Some(prefix) = fields.text("prefix").map(|prefix| prefix.trim_matches('/')).filter(|p| !p.is_empty()) {
        url = format!("{url}/{prefix}");
    }
    Some(QdrantDef {
        url,
        collection: collection.to_owned(),
        api_key: fields.text("api_key").map(str::to_owned),
        vector_name: fields.text("vector_name").map(str::to_owned).filter(|name| !name.is_empty()),
        content_key: fields.text("content_payload_key").map(str::to_owned),
        metadata_key: fields.text("metadata_payload_key").unwrap_or("metadata").to_owned(),
        timeout: fields.seconds("timeout"),
    })
}

fn choice(context: &mut LoadContext<'_>, node: &Node) -> ModelChoice {
    let (group, own) = context.model(node);
    ModelChoice { group, own }
}
