//! The prompts and resources that a project defines under `mcp` in `credentials.yml`; the content of each is a response of the domain.

use rmcp::model::{PromptArgument, ResourceContents};
use segue_engine::{
    conversation::Reply,
    project::{McpArgumentDef, McpPromptDef, McpResourceDef, Project, ResponseText, Variation},
    template,
};
use serde_json::{Map, Value as Json};

/// The arguments of a prompt, or the values in the URI of a resource: texts by name.
pub(super) type TextValues = Map<String, Json>;

/// The content of a prompt with these arguments.
pub(super) fn prompt_content(project: &Project, prompt: &McpPromptDef, values: &TextValues) -> Reply {
    fill_response(project, &prompt.response, values)
}

/// The arguments of a prompt as `prompts/list` describes them.
pub(super) fn arguments(prompt: &McpPromptDef) -> Vec<PromptArgument> {
    let describe = |def: &McpArgumentDef| {
        let argument = PromptArgument::new(&*def.name).with_required(def.required);
        def.description.iter().fold(argument, |argument, text| argument.with_description(text))
    };
    prompt.arguments.iter().map(describe).collect()
}

/// Whether the URI of a resource is a template.
pub(super) fn is_template(resource: &McpResourceDef) -> bool {
    resource.uri.contains('{')
}

/// The values of the placeholders in a resource's URI template, if `uri` matches it; empty for a URI without placeholders. A
/// placeholder is a whole segment between slashes.
pub(super) fn match_uri(resource: &McpResourceDef, uri: &str) -> Option<TextValues> {
    let (template, segments): (Vec<&str>, Vec<&str>) = (resource.uri.split('/').collect(), uri.split('/').collect());
    if template.len() != segments.len() {
        return None;
    }
    let mut values = TextValues::new();
    for (part, segment) in template.into_iter().zip(segments) {
        match part.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            Some(name) if !segment.is_empty() => drop(values.insert(name.to_owned(), segment.into())),
            None if part == segment => {}
            _ => return None,
        }
    }
    Some(values)
}

/// The contents of a resource: the text of its response, and an image or attachment in a `data:` URL in base64.
pub(super) fn resource_contents(
    project: &Project,
    resource: &McpResourceDef,
    uri: &str,
    values: &TextValues,
) -> Vec<ResourceContents> {
    let reply = fill_response(project, &resource.response, values);
    let attached = reply.attachment.as_ref().and_then(Json::as_str);
    let data = [reply.image.as_deref(), attached].into_iter().flatten().filter_map(|data| {
        let (mime_type, data) = data.strip_prefix("data:")?.split_once(";base64,")?;
        Some(ResourceContents::blob(data, uri).with_mime_type(mime_type))
    });
    let mime_type = resource.mime_type.as_deref().unwrap_or("text/plain");
    let text = reply.text.as_ref().map(|text| ResourceContents::text(&**text, uri).with_mime_type(mime_type));
    text.into_iter().chain(data).collect()
}

/// Checks that the responses of the prompts and resources exist, and that their content depends on no conversation.
///
/// # Errors
/// Which response is wrong, and the fix.
pub(super) fn check(project: &Project, prompts: &[McpPromptDef], resources: &[McpResourceDef]) -> Result<(), String> {
    let of_prompts = prompts.iter().map(|one| ("prompts", &one.response));
    for (key, name) in of_prompts.chain(resources.iter().map(|one| ("resources", &one.response))) {
        let Some(response) = project.response(name) else {
            return Err(format!("`{key}` names the response `{name}`, which the domain does not have; add it there"));
        };
        let is_plain = |one: &Variation| {
            let has_no_jinja = |text: &Option<ResponseText>| !matches!(text, Some(ResponseText::Jinja(_)));
            has_no_jinja(&one.text) && has_no_jinja(&one.image) && one.condition.is_none() && one.channel.is_none()
        };
        if !matches!(response.variations.as_slice(), [only] if is_plain(only)) {
            return Err(format!(
                "`{key}` names the response `{name}`, which has several variations, conditions or Jinja; give it one plain variation"
            ));
        }
    }
    Ok(())
}

/// The reply of a response with these values.
fn fill_response(project: &Project, response: &str, values: &TextValues) -> Reply {
    let variation = project.response(response).and_then(|response| response.variations.first());
    let fill = |text: &ResponseText| match text {
        ResponseText::Braces(text) => Some(template::interpolate_text(text, values).content.into_owned()),
        ResponseText::Jinja(_) => None,
    };
    let Some(variation) = variation else { return Reply::default() };
    Reply {
        text: variation.text.as_ref().and_then(fill).map(Into::into),
        image: variation.image.as_ref().and_then(fill),
        attachment: variation.attachment.clone(),
        ..Reply::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn uri_matches_its_template_segment_by_segment() {
        let resource = McpResourceDef {
            uri: "boats://{name}/deck/{number}".to_owned(),
            name: None,
            description: None,
            mime_type: None,
            response: String::new(),
        };
        let values = json!({"name": "eider", "number": "2"});
        assert_eq!(match_uri(&resource, "boats://eider/deck/2").map(Json::Object), Some(values));
        for other in ["boats://eider/deck", "boats://eider/hold/2", "boats://eider/deck/2/3", "boats:///deck/2"] {
            assert_eq!(match_uri(&resource, other), None, "{other}");
        }
    }
}
