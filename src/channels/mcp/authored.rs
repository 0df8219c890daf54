//! What the author of a project offers to hosts besides flows: prompts and resources, each made of a response of the domain.

use rmcp::model::{PromptArgument, ResourceContents};
use segue_engine::{
    conversation::Reply,
    project::{McpArgumentDef, McpPromptDef, McpResourceDef, Project, ResponseText, Variation},
    template,
};
use serde_json::{Map, Value as Json};

/// Values by name: texts.
pub(super) type Values = Map<String, Json>;

/// What a prompt says, with these values.
pub(super) fn prompt(project: &Project, prompt: &McpPromptDef, values: &Values) -> Reply {
    said(project, &prompt.response, values)
}

/// The arguments of a prompt as hosts are told.
pub(super) fn arguments(prompt: &McpPromptDef) -> Vec<PromptArgument> {
    let told = |one: &McpArgumentDef| {
        let told = PromptArgument::new(&*one.name).with_required(one.required);
        one.description.iter().fold(told, |told, about| told.with_description(about))
    };
    prompt.arguments.iter().map(told).collect()
}

/// Whether the address of a resource is a template.
pub(super) fn is_template(resource: &McpResourceDef) -> bool {
    resource.uri.contains('{')
}

/// The values that an address gives to the template of a resource; empty for the address itself.
pub(super) fn matched(resource: &McpResourceDef, address: &str) -> Option<Values> {
    let (ours, theirs): (Vec<&str>, Vec<&str>) = (resource.uri.split('/').collect(), address.split('/').collect());
    if ours.len() != theirs.len() {
        return None;
    }
    let mut values = Values::new();
    for (our, their) in ours.into_iter().zip(theirs) {
        match our.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            Some(name) if !their.is_empty() => drop(values.insert(name.to_owned(), their.into())),
            None if our == their => {}
            _ => return None,
        }
    }
    Some(values)
}

/// What stands at the address of a resource: the text of the response, and what it holds as data.
pub(super) fn contents(
    project: &Project,
    resource: &McpResourceDef,
    address: &str,
    values: &Values,
) -> Vec<ResourceContents> {
    let reply = said(project, &resource.response, values);
    let attached = reply.attachment.as_ref().and_then(Json::as_str);
    let data = [reply.image.as_deref(), attached].into_iter().flatten().filter_map(|data| {
        let (kind, data) = data.strip_prefix("data:")?.split_once(";base64,")?;
        Some(ResourceContents::blob(data, address).with_mime_type(kind))
    });
    let kind = resource.mime_type.as_deref().unwrap_or("text/plain");
    let text = reply.text.as_ref().map(|text| ResourceContents::text(&**text, address).with_mime_type(kind));
    text.into_iter().chain(data).collect()
}

/// Whether the responses of the author's prompts and resources are there, and say the same in every talk.
///
/// # Errors
/// Which is not, and the cure.
pub(super) fn check(project: &Project, prompts: &[McpPromptDef], resources: &[McpResourceDef]) -> Result<(), String> {
    let of_prompts = prompts.iter().map(|one| ("prompts", &one.response));
    for (key, name) in of_prompts.chain(resources.iter().map(|one| ("resources", &one.response))) {
        let Some(response) = project.response(name) else {
            return Err(format!("`{key}` names the response `{name}`, which the domain does not have; add it there"));
        };
        let is_plain = |one: &Variation| {
            let is_braces = |text: &Option<ResponseText>| !matches!(text, Some(ResponseText::Jinja(_)));
            is_braces(&one.text) && is_braces(&one.image) && one.condition.is_none() && one.channel.is_none()
        };
        if !matches!(response.variations.as_slice(), [only] if is_plain(only)) {
            return Err(format!(
                "`{key}` names the response `{name}`, which has several variations, conditions or Jinja; give it one plain variation"
            ));
        }
    }
    Ok(())
}

fn said(project: &Project, response: &str, values: &Values) -> Reply {
    let only = project.response(response).and_then(|response| response.variations.first());
    let filled = |text: &ResponseText| match text {
        ResponseText::Braces(text) => Some(template::interpolate_text(text, values).content.into_owned()),
        ResponseText::Jinja(_) => None,
    };
    let Some(only) = only else { return Reply::default() };
    Reply {
        text: only.text.as_ref().and_then(filled).map(Into::into),
        image: only.image.as_ref().and_then(filled),
        attachment: only.attachment.clone(),
        ..Reply::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_address_fits_its_template_piece_by_piece() {
        let resource = McpResourceDef {
            uri: "boats://{name}/deck/{number}".to_owned(),
            name: None,
            description: None,
            mime_type: None,
            response: String::new(),
        };
        let values = json!({"name": "eider", "number": "2"});
        assert_eq!(matched(&resource, "boats://eider/deck/2").map(Json::Object), Some(values));
        for other in ["boats://eider/deck", "boats://eider/hold/2", "boats://eider/deck/2/3", "boats:///deck/2"] {
            assert_eq!(matched(&resource, other), None, "{other}");
        }
    }
}
