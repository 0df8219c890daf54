//! Secrets in files: allowed as `${NAME}` only.

use super::super::{
    keys,
    reader::{Fields, Reader},
    yaml::Node,
};

impl Reader<'_> {
    /// Refuses a secret that stands in the file itself.
    pub(super) fn secret(&mut self, fields: &Fields<'_>, key: &str) {
        let Some(node) = fields.node(key).filter(|node| !node.expanded) else { return };
        let variable = format!("{}_{key}", fields.text("name").or(fields.text("provider")).unwrap_or("my"));
        let variable = variable.to_uppercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        let place = crate::finding::Place { width: 1, ..self.place(node) };
        let message = format!("`{key}` is a secret and must not stand in a file");
        self.findings.error("F0601", &place, message, format!("Write `{key}: ${{{variable}}}` and set that variable."));
    }

    /// Checks the keys that say who we are: one way at most, secrets from the environment.
    pub(super) fn auth(&mut self, fields: &Fields<'_>) {
        let ways: Vec<&str> = ["api_key", "oauth", "token"].into_iter().filter(|key| fields.has(key)).collect();
        if let [first, second, ..] = ways.as_slice() {
            let message = format!("`{first}` and `{second}` are two ways to say who we are; one is allowed");
            self.error("F0604", fields.at(second), message, "Keep one of them.");
        }
        self.secret(fields, "api_key");
        self.secret(fields, "token");
        if let Some(oauth) = fields.node("oauth").and_then(|node| self.fields(node, &keys::OAUTH)) {
            self.secret(&oauth, "client_secret");
            self.address(oauth.node("token_url"));
        }
    }

    /// Checks that a text is an HTTP address.
    pub(super) fn address(&mut self, node: Option<&Node>) {
        let Some((node, text)) = node.and_then(|node| Some((node, node.text()?))) else { return };
        let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        if rest.is_none_or(|rest| rest.is_empty() || rest.starts_with('/') || rest.contains(char::is_whitespace)) {
            let shown = super::super::reader::said(node);
            let message = format!("an address begins with `http://` or `https://` and a host, but here stands {shown}");
            self.error("F0612", node, message, "Write it in full, such as `http://localhost:8000/mcp`.");
        }
    }

    /// The headers that `api_key` or `token` make.
    pub(super) fn auth_headers(&self, fields: &Fields<'_>) -> Vec<(String, String)> {
        let name = fields.text("header_name").unwrap_or("Authorization").to_owned();
        if let Some(key) = fields.text("api_key") {
            let format = fields.text("header_format").unwrap_or("Bearer {key}");
            return vec![(name, format.replace("{key}", key))];
        }
        let token = fields.text("token").map(|token| ("Authorization".to_owned(), format!("Bearer {token}")));
        token.into_iter().collect()
    }
}
