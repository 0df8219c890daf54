//! The chat page: a web page that talks to the assistant over the REST channel, and the script that puts the same chat on another site.
//!
//! The files are in `page/`, plain modules and style sheets that are part of the program. `GET /` is the page, `GET /chat/<file>` are its
//! files, and `GET /chat/config.json` says where and how it reaches the channel. The page may load and connect to its own server only.

use axum::{
    Json, Router,
    extract::Path,
    http::{
        HeaderName, HeaderValue, StatusCode,
        header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS},
    },
    response::{IntoResponse, Response},
    routing::get,
};
use rust_embed::RustEmbed;
use serde_json::json;

use crate::{
    channels::{Channel, problem},
    runtime::Assistant,
};

/// The path below which the REST channel is served.
const REST: &str = "/webhooks/rest";
/// The default of `assistant_id` in config.yml, which names nothing.
const UNNAMED: &str = "assistant";
const TITLE: &str = "Assistant";

/// Sent with every file. The page cannot run or load anything that is not a file of this server, and no other site can frame it.
const HEADERS: [(HeaderName, &str); 4] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' https: data:; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "same-origin"),
    // A new version of the program must not run with files of an old one.
    (CACHE_CONTROL, "no-cache"),
];

#[derive(RustEmbed)]
#[folder = "src/server/page/"]
struct Files;

/// The routes of the page, which talks over this REST channel.
pub(super) fn routes(assistant: &Assistant, rest: &dyn Channel) -> Router {
    let title = title(&assistant.project().config.assistant_id);
    let config = json!({"title": title, "rest": REST, "requires_token": rest.requires_authentication()});
    Router::new()
        .route("/", get(|| async { file("index.html") }))
        .route("/chat/config.json", get(|| async { with_headers(Json(config)) }))
        .route("/chat/{file}", get(|Path(name): Path<String>| async move { file(&name) }))
}

/// The title of the page: the id of the assistant as words.
fn title(assistant_id: &str) -> String {
    if assistant_id == UNNAMED {
        return TITLE.to_owned();
    }
    let words = assistant_id.replace(['_', '-'], " ");
    let mut letters = words.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn file(name: &str) -> Response {
    let found = Files::get(name).zip(media_type(name));
    match found {
        Some((file, media_type)) => with_headers(([(CONTENT_TYPE, media_type)], file.data)),
        None => problem(StatusCode::NOT_FOUND, "the chat page has no such file"),
    }
}

fn media_type(name: &str) -> Option<&'static str> {
    match name.rsplit_once('.')?.1 {
        "html" => Some("text/html; charset=utf-8"),
        "js" => Some("text/javascript; charset=utf-8"),
        "css" => Some("text/css; charset=utf-8"),
        "svg" => Some("image/svg+xml"),
        _ => None,
    }
}

fn with_headers(response: impl IntoResponse) -> Response {
    let mut response = response.into_response();
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_title_is_the_id_of_the_assistant_as_words() {
        for (id, expected) in
            [("assistant", "Assistant"), ("northwater_ferries", "Northwater ferries"), ("Élan-2", "Élan 2")]
        {
            assert_eq!(title(id), expected);
        }
    }

    #[test]
    fn every_file_of_the_page_has_a_media_type() {
        for name in Files::iter() {
            assert!(media_type(&name).is_some(), "{name}");
        }
        assert!(Files::get("index.html").is_some());
    }
}
