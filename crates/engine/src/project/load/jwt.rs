//! Reads `jwt` in `a2a_server` and in `credentials.yml`: how JWTs of callers are validated.

use serde_json::Value as Json;

use super::super::{
    jwt::JwtDef,
    load_context::{LoadContext, MapFields},
    schema::JWT,
    yaml::Node,
};

impl LoadContext<'_> {
    /// Reads the section. The path of a key set is replaced by the content of the file.
    pub(super) fn jwt(&mut self, node: &Node) -> Option<JwtDef> {
        let before = self.findings.as_slice().len();
        let fields = self.fields(node, &JWT)?;
        let mut rules = fields.json_all();
        if let Some(set) = self.key_set(&fields) {
            rules.insert("jwks".to_owned(), set);
        }
        // The errors are already reported.
        if self.findings.as_slice().len() > before {
            return None;
        }
        match JwtDef::read(&rules) {
            Ok(def) => Some(def),
            Err(wrong) => {
                let at = fields.node(wrong.key).unwrap_or(node);
                let mut help = wrong.help.chars();
                let first = help.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
                self.error("F0643", at, wrong.message, format!("{first}{}.", help.as_str()));
                None
            }
        }
    }

    /// Reads the file of a key set.
    fn key_set(&mut self, fields: &MapFields<'_>) -> Option<Json> {
        let node = fields.node("jwks")?;
        let text = node.text()?;
        if text.contains("://") {
            self.address(Some(node));
            return None;
        }
        let Some(content) = self.sources.texts.get(text.trim_start_matches("./")) else {
            let help = "Write a URL with `https://`, or create the file; paths are relative to the project folder.";
            self.error("F0643", node, format!("key set not found: `{text}`"), help);
            return None;
        };
        match serde_json::from_str(content) {
            Ok(set) => Some(set),
            Err(error) => {
                self.error(
                    "F0643",
                    node,
                    format!("the key set `{text}` is not valid JSON: {error}"),
                    "Correct the file.",
                );
                None
            }
        }
    }
}
