//! Reads `nlg` of `endpoints.yml`.

use super::{
    super::{
        Nlg, NlgServer, Rephraser,
        load_context::{LoadContext, MapFields},
        references::ReferenceKind,
        schema::NLG,
        yaml::Node,
    },
    endpoints::{basic_auth, pairs},
};

/// The default of `max_historical_turns`.
const TURNS: u64 = 5;

/// Reads the section: a rephraser, or an NLG server if there is a `url`.
pub(super) fn nlg(context: &mut LoadContext<'_>, node: &Node) -> Option<Nlg> {
    let fields = context.fields(node, &NLG)?;
    let kind = fields.text("type");
    if fields.has("url") && kind.is_none_or(|kind| kind != "rephrase") {
        return server(context, &fields);
    }
    match kind {
        Some("rephrase") => {}
        Some(other) if other.contains('.') => {
            let message = format!("`{other}` is Python code, which does not run; the built-in rephraser is used");
            context.warning("F0707", fields.at("type"), message, "Write `type: rephrase`.");
        }
        Some(other) => {
            let message = format!("`{other}` is not an `nlg` type");
            context.error(
                "F0111",
                fields.at("type"),
                message,
                "Write `type: rephrase`, or the `url` of an NLG server.",
            );
            return None;
        }
        None => {
            let help = "Write `type: rephrase`, or the `url` of an NLG server.";
            context.error("F0109", node, "the `nlg` section needs `type` or `url`", help);
            return None;
        }
    }
    let (mut model_group, llm) = fields.node("llm").map(|llm| context.model(llm)).unwrap_or_default();
    if let Some(group) = fields.node("model_group").filter(|_| model_group.is_none()) {
        context.reference(ReferenceKind::ModelGroup, group);
        model_group = fields.shared("model_group");
    }
    Some(Nlg::Rephraser(Rephraser {
        all: fields.flag("rephrase_all"),
        prompt: fields.node("prompt_template").and_then(|file| context.template_file(file)),
        // The cast saturates; the history of the conversation is limited anyway.
        turns: fields.whole("max_historical_turns").unwrap_or(TURNS) as usize,
        model_group,
        llm,
    }))
}

fn server(context: &mut LoadContext<'_>, fields: &MapFields<'_>) -> Option<Nlg> {
    context.address(fields.node("url"));
    let basic_auth = basic_auth(context, fields, "NLG_PASSWORD");
    Some(Nlg::Server(NlgServer {
        url: fields.text("url")?.to_owned(),
        token: fields.text("token").map(str::to_owned),
        basic_auth,
        headers: pairs(context, fields, "headers"),
        timeout: fields.seconds("timeout"),
    }))
}
