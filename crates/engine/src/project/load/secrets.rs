//! Checks credentials in files. Secrets must be written as `${NAME}`.

use super::super::{
    AuthDef, OAuthDef,
    load_context::{LoadContext, MapFields},
    schema::{AUTH, MCP_OAUTH, MapSchema, OAUTH},
    yaml::Node,
};

impl LoadContext<'_> {
    /// Reports a secret in the file as an error.
    pub(crate) fn secret(&mut self, fields: &MapFields<'_>, key: &str) {
        let Some(node) = fields.node(key).filter(|node| !node.expanded) else { return };
        let variable = format!("{}_{key}", fields.text("name").or(fields.text("provider")).unwrap_or("my"));
        let variable = variable.to_uppercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        let place = crate::finding::SourceLocation { width: 1, ..self.place(node) };
        let message = format!("`{key}` is a secret and must not be written in a file");
        self.findings.error("F0601", &place, message, format!("Write `{key}: ${{{variable}}}` and set that variable."));
    }

    /// Reports a secret in the file as a warning, for keys where Rasa allows it.
    pub(super) fn secret_warned(&mut self, node: Option<&Node>, key: &str, variable: &str) {
        let Some(node) = node.filter(|node| !node.expanded && node.text().is_some_and(|text| !text.is_empty())) else {
            return;
        };
        let place = crate::finding::SourceLocation { width: 1, ..self.place(node) };
        let message = format!("`{key}` is a secret and should not be written in a file");
        let help = format!("Write `{key}: ${{{variable}}}` and set that variable.");
        self.findings.warning("F0601", &place, message, help);
    }

    /// Reads `auth` or `hook_auth`: at most one kind of credentials.
    pub(super) fn auth(&mut self, node: &Node) -> Option<AuthDef> {
        let fields = self.fields(node, &AUTH)?;
        self.single_credentials(&fields, &OAUTH);
        fields.parse()
    }

    /// Reads `oauth` of an MCP server, which supports more grant types than that of agents.
    pub(super) fn mcp_oauth(&mut self, server: &MapFields<'_>) -> Option<OAuthDef> {
        let fields = self.single_credentials(server, &MCP_OAUTH)?;
        if fields.text("grant") != Some("authorization_code") {
            for key in ["client_id", "client_secret"].into_iter().filter(|key| !fields.has(key)) {
                let message = format!("`oauth` of an MCP server needs `{key}`");
                let help = format!(
                    "Add `{key}: …`, or set `grant: authorization_code` for a server with an interactive login."
                );
                self.error("F0109", fields.node, message, help);
            }
        }
        fields.parse()
    }

    /// Checks that there is at most one kind of credentials. Returns the fields of `oauth`.
    fn single_credentials<'n>(
        &mut self,
        fields: &MapFields<'n>,
        oauth_schema: &'static MapSchema,
    ) -> Option<MapFields<'n>> {
        let kinds: Vec<&str> = ["api_key", "oauth", "token"].into_iter().filter(|key| fields.has(key)).collect();
        if let [first, second, ..] = kinds.as_slice() {
            let message = format!("`{first}` and `{second}` are two kinds of credentials; only one is allowed");
            self.error("F0604", fields.at(second), message, "Remove one of them.");
        }
        let oauth = self.fields(fields.node("oauth")?, oauth_schema)?;
        self.address(oauth.node("token_url"));
        self.address(oauth.node("client_metadata_url"));
        Some(oauth)
    }

    /// Checks that a string is an HTTP URL.
    pub(super) fn address(&mut self, node: Option<&Node>) {
        let Some((node, text)) = node.and_then(|node| Some((node, node.text()?))) else { return };
        let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        if rest.is_none_or(|rest| rest.is_empty() || rest.starts_with('/') || rest.contains(char::is_whitespace)) {
            // The query may contain a key.
            let shown = match text.split_once('?') {
                Some((before, _)) if !node.expanded => format!("a string (`{before}?…`)"),
                _ => super::super::load_context::describe(node),
            };
            let message = format!("a URL must start with `http://` or `https://` and a host, but this is {shown}");
            self.error("F0612", node, message, "Write the full URL, such as `http://localhost:8000/mcp`.");
        }
    }

    /// The headers for `api_key` or `token`.
    pub(super) fn auth_headers(&self, fields: &MapFields<'_>) -> Vec<(String, String)> {
        let name = fields.text("header_name").unwrap_or("Authorization").to_owned();
        if let Some(key) = fields.text("api_key") {
            let format = fields.text("header_format").unwrap_or("Bearer {key}");
            return vec![(name, format.replace("{key}", key))];
        }
        let token = fields.text("token").map(|token| ("Authorization".to_owned(), format!("Bearer {token}")));
        token.into_iter().collect()
    }
}
