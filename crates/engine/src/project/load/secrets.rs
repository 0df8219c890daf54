//! Secrets in files: allowed as `${NAME}` only.

use super::super::{
    AuthDef, OAuthDef,
    reader::{Fields, Reader},
    schema::{AUTH, MCP_OAUTH, MapSchema, OAUTH},
    yaml::Node,
};

impl Reader<'_> {
    /// Refuses a secret that stands in the file itself.
    pub(crate) fn secret(&mut self, fields: &Fields<'_>, key: &str) {
        let Some(node) = fields.node(key).filter(|node| !node.expanded) else { return };
        let variable = format!("{}_{key}", fields.text("name").or(fields.text("provider")).unwrap_or("my"));
        let variable = variable.to_uppercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        let place = crate::finding::SourceLocation { width: 1, ..self.place(node) };
        let message = format!("`{key}` is a secret and must not stand in a file");
        self.findings.error("F0601", &place, message, format!("Write `{key}: ${{{variable}}}` and set that variable."));
    }

    /// Warns of a secret that stands in the file itself, where other programs that read the file allow it.
    pub(super) fn secret_warned(&mut self, node: Option<&Node>, key: &str, variable: &str) {
        let Some(node) = node.filter(|node| !node.expanded && node.text().is_some_and(|text| !text.is_empty())) else {
            return;
        };
        let place = crate::finding::SourceLocation { width: 1, ..self.place(node) };
        let message = format!("`{key}` is a secret and should not stand in a file");
        let help = format!("Write `{key}: ${{{variable}}}` and set that variable.");
        self.findings.warning("F0601", &place, message, help);
    }

    /// `auth` or `hook_auth`: one way at most, secrets from the environment.
    pub(super) fn auth(&mut self, node: &Node) -> Option<AuthDef> {
        let fields = self.fields(node, &AUTH)?;
        self.one_way(&fields, &OAUTH);
        fields.parse()
    }

    /// `oauth` of an MCP server, which knows more ways to come by a token.
    pub(super) fn mcp_oauth(&mut self, server: &Fields<'_>) -> Option<OAuthDef> {
        let fields = self.one_way(server, &MCP_OAUTH)?;
        if fields.text("grant") != Some("authorization_code") {
            for key in ["client_id", "client_secret"].into_iter().filter(|key| !fields.has(key)) {
                let message = format!("`oauth` of an MCP server needs `{key}`");
                let help =
                    format!("Add `{key}: …`, or set `grant: authorization_code` for a server that people log in to.");
                self.error("F0109", fields.node, message, help);
            }
        }
        fields.parse()
    }

    /// Checks that there is one way at most. The answer is what stands under `oauth`.
    fn one_way<'n>(&mut self, fields: &Fields<'n>, oauth_schema: &'static MapSchema) -> Option<Fields<'n>> {
        let ways: Vec<&str> = ["api_key", "oauth", "token"].into_iter().filter(|key| fields.has(key)).collect();
        if let [first, second, ..] = ways.as_slice() {
            let message = format!("`{first}` and `{second}` are two ways to say who we are; one is allowed");
            self.error("F0604", fields.at(second), message, "Keep one of them.");
        }
        let oauth = self.fields(fields.node("oauth")?, oauth_schema)?;
        self.address(oauth.node("token_url"));
        self.address(oauth.node("client_metadata_url"));
        Some(oauth)
    }

    /// Checks that a text is an HTTP address.
    pub(super) fn address(&mut self, node: Option<&Node>) {
        let Some((node, text)) = node.and_then(|node| Some((node, node.text()?))) else { return };
        let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        if rest.is_none_or(|rest| rest.is_empty() || rest.starts_with('/') || rest.contains(char::is_whitespace)) {
            // A query may hold a key.
            let shown = match text.split_once('?') {
                Some((before, _)) if !node.expanded => format!("a text (`{before}?…`)"),
                _ => super::super::reader::said(node),
            };
            let message = format!("an address begins with `http://` or `https://` and a host, but this is {shown}");
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
