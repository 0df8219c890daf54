//! Rules for the tokens of callers that an authorization server signs (RFC 7519): `jwt` of `a2a_server` and of channels.

use std::{fmt, time::Duration};

use serde_json::{Map, Value as Json};

/// How tokens of one issuer are checked. What holds its secret is never printed.
#[derive(Clone, PartialEq)]
pub struct JwtDef {
    /// Who signs them, as `iss` says it.
    pub issuer: String,
    /// For whom they are: one of these stands in `aud`.
    pub audiences: Vec<String>,
    /// With what they are signed.
    pub keys: JwtKeys,
    /// How they may be signed; at least one.
    pub algorithms: Vec<String>,
    /// How far the clocks of the issuer and of this machine may differ.
    pub leeway: Duration,
    /// Rights that every caller needs.
    pub scopes: Vec<String>,
}

/// With what tokens are signed.
#[derive(Clone, PartialEq)]
pub enum JwtKeys {
    /// Keys at an address, as a key set (RFC 7517).
    Address(String),
    /// The key set itself.
    Set(Json),
    /// A secret that both sides know. Never print it.
    Secret(String),
}

/// What is wrong with a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}; {help}")]
pub struct JwtRuleError {
    /// The key that it is about.
    pub key: &'static str,
    /// What is wrong.
    pub message: String,
    /// The cure, as the rest of a sentence.
    pub help: String,
}

/// Algorithms with a pair of keys.
const PAIRS: [&str; 9] = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"];
/// Those that are taken with `jwks` unless `algorithms` says otherwise.
const USUAL: [&str; 3] = ["RS256", "ES256", "EdDSA"];
/// Algorithms with a secret that both sides know, and the bytes that it needs (RFC 7518, 3.2).
const SHARED: [(&str, usize); 3] = [("HS256", 32), ("HS384", 48), ("HS512", 64)];
/// Seconds of leeway, unless set and at most.
const LEEWAY: (f64, f64) = (30.0, 300.0);

impl JwtDef {
    /// Reads the rules, whose keys were checked when the project was loaded; `jwks` may be an address, or a key set.
    ///
    /// # Errors
    /// [`JwtRuleError`].
    pub fn read(rules: &Map<String, Json>) -> Result<Self, JwtRuleError> {
        let text = |key: &str| rules.get(key).and_then(Json::as_str).map(str::trim).filter(|text| !text.is_empty());
        let wrong =
            |key, message: &str, help: &str| JwtRuleError { key, message: message.to_owned(), help: help.to_owned() };
        let issuer = text("issuer").ok_or_else(|| {
            wrong("issuer", "tokens of any issuer would be taken", "set `issuer` to what `iss` of its tokens says")
        })?;
        let audiences = texts(rules.get("audience"));
        if audiences.is_empty() {
            let help = "set `audience` to what `aud` of tokens for this assistant says";
            return Err(wrong("audience", "tokens that are meant for others would be taken", help));
        }
        let keys = keys(rules)?;
        let algorithms = algorithms(rules, &keys)?;
        let leeway = rules.get("leeway").and_then(Json::as_f64).unwrap_or(LEEWAY.0);
        if !(0.0..=LEEWAY.1).contains(&leeway) {
            let message = format!("a leeway of {leeway} seconds is none");
            return Err(wrong("leeway", &message, "write a number of seconds from 0 to 300"));
        }
        Ok(Self {
            issuer: issuer.to_owned(),
            audiences,
            keys,
            algorithms,
            leeway: Duration::from_secs_f64(leeway),
            scopes: text("scope").unwrap_or_default().split_ascii_whitespace().map(str::to_owned).collect(),
        })
    }
}

fn keys(rules: &Map<String, Json>) -> Result<JwtKeys, JwtRuleError> {
    let wrong =
        |key, message: &str, help: &str| JwtRuleError { key, message: message.to_owned(), help: help.to_owned() };
    match (rules.get("jwks"), rules.get("secret").and_then(Json::as_str)) {
        (Some(_), Some(_)) => {
            Err(wrong("secret", "`jwks` and `secret` are two ways to check a token", "keep one of them"))
        }
        (Some(Json::String(address)), None) => Ok(JwtKeys::Address(address.clone())),
        (Some(set), None) if set.get("keys").is_some_and(Json::is_array) => Ok(JwtKeys::Set(set.clone())),
        (Some(_), None) => {
            let help = "write the address of the issuer's keys, a JSON file of the project, or `{keys: […]}`";
            Err(wrong("jwks", "`jwks` is no key set", help))
        }
        (None, Some(secret)) => Ok(JwtKeys::Secret(secret.to_owned())),
        (None, None) => {
            let help = "set `jwks` to the address of the issuer's keys";
            Err(wrong("jwks", "nothing says with what tokens are signed", help))
        }
    }
}

/// A key that everybody may know must never serve as a shared secret, and the other way round: which algorithms are taken
/// depends on what is configured, never on what a token says.
fn algorithms(rules: &Map<String, Json>, keys: &JwtKeys) -> Result<Vec<String>, JwtRuleError> {
    let wrong = |message: String, help: String| JwtRuleError { key: "algorithms", message, help };
    let wanted = texts(rules.get("algorithms"));
    let wanted = match (wanted.as_slice(), rules.contains_key("algorithms"), keys) {
        ([_, ..], _, _) => wanted,
        ([], true, _) => {
            return Err(wrong("`algorithms` is empty".into(), "name one, or leave the key out".into()));
        }
        ([], false, JwtKeys::Secret(_)) => vec!["HS256".to_owned()],
        ([], false, _) => USUAL.iter().map(|name| (*name).to_owned()).collect(),
    };
    for name in &wanted {
        let shared = SHARED.iter().find(|(shared, _)| shared == name);
        match (keys, shared) {
            (JwtKeys::Secret(secret), Some((name, least))) if secret.len() < *least => {
                let message = format!("the secret for {name} is shorter than {least} bytes and could be guessed");
                return Err(JwtRuleError { key: "secret", message, help: "use a longer one".to_owned() });
            }
            (JwtKeys::Secret(_), Some(_)) => {}
            (JwtKeys::Secret(_), None) => {
                let help = "write HS256, HS384 or HS512, or set `jwks` in place of `secret`";
                return Err(wrong(format!("`{name}` is no algorithm with a secret"), help.into()));
            }
            (_, Some(_)) => {
                let message = format!("with `{name}` everybody who can read the keys could make tokens");
                return Err(wrong(message, "leave it out, or set `secret` in place of `jwks`".into()));
            }
            (_, None) if PAIRS.contains(&name.as_str()) => {}
            (_, None) => {
                let help = format!("there are {}", PAIRS.join(", "));
                return Err(wrong(format!("`{name}` is no algorithm of tokens that is taken"), help));
            }
        }
    }
    Ok(wanted)
}

/// One text, or a list of texts; empty ones left out.
fn texts(value: Option<&Json>) -> Vec<String> {
    let one = value.and_then(Json::as_str);
    let many = value.and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
    one.into_iter().chain(many).map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned).collect()
}

impl fmt::Debug for JwtDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtDef").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

impl fmt::Debug for JwtKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address(_) => "Address(…)",
            Self::Set(_) => "Set(…)",
            Self::Secret(_) => "Secret(…)",
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn read(more: Json) -> Result<JwtDef, JwtRuleError> {
        let mut rules = json!({"issuer": "https://i", "audience": "me"}).as_object().unwrap().clone();
        rules.extend(more.as_object().unwrap().clone());
        JwtDef::read(&rules)
    }

    #[test]
    fn what_is_configured_decides_how_tokens_may_be_signed() {
        assert_eq!(read(json!({"jwks": "https://i/keys"})).unwrap().algorithms, USUAL);
        let long = "s".repeat(48);
        assert_eq!(read(json!({"secret": long})).unwrap().algorithms, ["HS256"]);
        for (rules, key, says) in [
            (json!({"jwks": {"keys": []}, "secret": long}), "secret", "two ways"),
            (json!({}), "jwks", "with what"),
            (json!({"jwks": {}}), "jwks", "no key set"),
            (json!({"jwks": "https://i/keys", "algorithms": ["RS256", "HS256"]}), "algorithms", "everybody"),
            (json!({"jwks": "https://i/keys", "algorithms": ["none"]}), "algorithms", "`none` is no algorithm"),
            (json!({"jwks": "https://i/keys", "algorithms": []}), "algorithms", "empty"),
            (json!({"secret": long, "algorithms": ["none"]}), "algorithms", "with a secret"),
            (json!({"secret": long, "algorithms": ["RS256"]}), "algorithms", "with a secret"),
            (json!({"secret": long, "algorithms": ["HS512"]}), "secret", "64 bytes"),
            (json!({"secret": "short"}), "secret", "32 bytes"),
            (json!({"jwks": "https://i/keys", "issuer": " "}), "issuer", "any issuer"),
            (json!({"jwks": "https://i/keys", "audience": []}), "audience", "others"),
            (json!({"jwks": "https://i/keys", "leeway": 900}), "leeway", "900"),
        ] {
            let wrong = read(rules.clone()).unwrap_err();
            assert!(wrong.key == key && wrong.message.contains(says), "{rules}: {wrong}");
            assert!(!wrong.to_string().contains(&long), "{wrong}");
        }
        let shown = format!("{:?}", read(json!({"secret": long})).unwrap());
        assert!(!shown.contains(&long), "{shown}");
    }
}
