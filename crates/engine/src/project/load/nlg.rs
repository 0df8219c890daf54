//! `nlg` of `endpoints.yml`.

use super::{
    super::{
        Nlg, NlgServer, Rephraser,
        reader::{Fields, Reader},
        schema::NLG,
        uses::Used,
        yaml::Node,
    },
    endpoints::{basic_auth, pairs},
};

/// Turns that a rephraser sees, unless set.
const TURNS: u64 = 5;

/// Reads the section. A key of the one kind is said to be useless in the other.
pub(super) fn nlg(reader: &mut Reader<'_>, node: &Node) -> Option<Nlg> {
    let fields = reader.fields(node, &NLG)?;
    let kind = fields.text("type");
    if fields.has("url") && kind.is_none_or(|kind| kind != "rephrase") {
        return server(reader, &fields);
    }
    match kind {
        Some("rephrase") => {}
        Some(other) if other.contains('.') => {
            let message = format!("`{other}` is Python code, which is not run here; the built-in rephraser is used");
            reader.warning("F0707", fields.at("type"), message, "Write `type: rephrase`.");
        }
        Some(other) => {
            let message = format!("`{other}` is not a kind of `nlg`");
            reader.error("F0111", fields.at("type"), message, "Write `type: rephrase`, or the `url` of a server.");
            return None;
        }
        None => {
            let help = "Write `type: rephrase`, or the `url` of a server.";
            reader.error("F0109", node, "the `nlg` section needs `type` or `url`", help);
            return None;
        }
    }
    let (mut model_group, llm) = fields.node("llm").map(|llm| reader.model(llm)).unwrap_or_default();
    if let Some(group) = fields.node("model_group").filter(|_| model_group.is_none()) {
        reader.uses(Used::ModelGroup, group);
        model_group = fields.shared("model_group");
    }
    Some(Nlg::Rephraser(Rephraser {
        all: fields.flag("rephrase_all"),
        prompt: fields.node("prompt_template").and_then(|file| reader.template_file(file)),
        // The cast saturates; what can be shown is bounded by the conversation's own history.
        turns: fields.whole("max_historical_turns").unwrap_or(TURNS) as usize,
        model_group,
        llm,
    }))
}

fn server(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<Nlg> {
    reader.address(fields.node("url"));
    let basic_auth = basic_auth(reader, fields, "NLG_PASSWORD");
    Some(Nlg::Server(NlgServer {
        url: fields.text("url")?.to_owned(),
        token: fields.text("token").map(str::to_owned),
        basic_auth,
        headers: pairs(reader, fields, "headers"),
        timeout: fields.seconds("timeout"),
    }))
}
