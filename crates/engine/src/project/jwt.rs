//! How JWTs (RFC 7519) of callers are validated: `jwt` of `a2a_server` and of channels.

use std::{fmt, time::Duration};

use serde_json::{Map, Value as Json};

/// How the tokens of an issuer are validated. Its `Debug` output contains no secret.
#[derive(Clone, PartialEq)]
pub struct JwtDef {
    /// Whom the tokens must be from and for. `None`: any caller that has the key for the signature.
    pub claims: Option<JwtClaims>,
    /// The keys for the signature.
    pub keys: JwtKeys,
    /// The accepted signature algorithms, at least one.
    pub algorithms: Vec<String>,
    /// The allowed difference between the clocks of the issuer and this machine.
    pub leeway: Duration,
    /// The scopes that every caller needs.
    pub scopes: Vec<String>,
}

/// Whom tokens must be from and for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtClaims {
    /// The required `iss` claim.
    pub issuer: String,
    /// The accepted audiences; the `aud` claim must contain one of them.
    pub audiences: Vec<String>,
}

/// The keys for the signature of tokens.
#[derive(Clone, PartialEq)]
pub enum JwtKeys {
    /// The URL of a JSON Web Key Set (RFC 7517).
    Address(String),
    /// The key set itself.
    Set(Json),
    /// A shared secret. Never print it.
    Secret(String),
}

/// An invalid `jwt` section.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}; {help}")]
pub struct JwtRuleError {
    /// The key with the error.
    pub key: &'static str,
    /// What is wrong.
    pub message: String,
    /// How to fix it, as the rest of a sentence.
    pub help: String,
}

/// Signature algorithms with a public and a private key.
const ASYMMETRIC: [&str; 9] = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"];
/// The default of `algorithms` with `jwks`.
const DEFAULT_ASYMMETRIC: [&str; 3] = ["RS256", "ES256", "EdDSA"];
/// Signature algorithms with a shared secret, and its minimum length in bytes (RFC 7518, 3.2).
const SYMMETRIC: [(&str, usize); 3] = [("HS256", 32), ("HS384", 48), ("HS512", 64)];
/// The default and the maximum of `leeway` in seconds.
const LEEWAY: (f64, f64) = (30.0, 300.0);

impl JwtDef {
    /// Reads the section, whose keys and types the loader has checked. `jwks` may be a URL or a key set.
    ///
    /// # Errors
    /// [`JwtRuleError`].
    pub fn read(rules: &Map<String, Json>) -> Result<Self, JwtRuleError> {
        let text = |key: &str| rules.get(key).and_then(Json::as_str).map(str::trim).filter(|text| !text.is_empty());
        let wrong =
            |key, message: &str, help: &str| JwtRuleError { key, message: message.to_owned(), help: help.to_owned() };
        let issuer = text("issuer").ok_or_else(|| {
            wrong("issuer", "tokens of any issuer would be accepted", "set `issuer` to the `iss` claim of the tokens")
        })?;
        let audiences = texts(rules.get("audience"));
        if audiences.is_empty() {
            let help = "set `audience` to the `aud` claim of tokens for this assistant";
            return Err(wrong("audience", "tokens for other services would be accepted", help));
        }
        let keys = keys(rules)?;
        let algorithms = algorithms(rules, &keys)?;
        let leeway = rules.get("leeway").and_then(Json::as_f64).unwrap_or(LEEWAY.0);
        if !(0.0..=LEEWAY.1).contains(&leeway) {
            let message = format!("a leeway of {leeway} seconds is out of range");
            return Err(wrong("leeway", &message, "write a number of seconds from 0 to 300"));
        }
        Ok(Self {
            claims: Some(JwtClaims { issuer: issuer.to_owned(), audiences }),
            keys,
            algorithms,
            leeway: Duration::from_secs_f64(leeway),
            scopes: text("scope").unwrap_or_default().split_ascii_whitespace().map(str::to_owned).collect(),
        })
    }
}

impl JwtDef {
    /// Accepts every token with a signature by this shared secret: the key belongs to this assistant alone.
    ///
    /// # Errors
    /// [`JwtRuleError`] for `secret` or `algorithms`.
    pub fn with_shared_key(secret: &str, algorithm: &str) -> Result<Self, JwtRuleError> {
        let keys = JwtKeys::Secret(secret.to_owned());
        let rules = Map::from_iter([("algorithms".to_owned(), Json::from(algorithm))]);
        let algorithms = algorithms(&rules, &keys)?;
        Ok(Self { claims: None, keys, algorithms, leeway: Duration::from_secs_f64(LEEWAY.0), scopes: Vec::new() })
    }
}

fn keys(rules: &Map<String, Json>) -> Result<JwtKeys, JwtRuleError> {
    let wrong =
        |key, message: &str, help: &str| JwtRuleError { key, message: message.to_owned(), help: help.to_owned() };
    match (rules.get("jwks"), rules.get("secret").and_then(Json::as_str)) {
        (Some(_), Some(_)) => Err(wrong("secret", "`jwks` and `secret` cannot be combined", "remove one of them")),
        (Some(Json::String(address)), None) => Ok(JwtKeys::Address(address.clone())),
        (Some(set), None) if set.get("keys").is_some_and(Json::is_array) => Ok(JwtKeys::Set(set.clone())),
        (Some(_), None) => {
            let help = "write the URL of the issuer's keys, a JSON file of the project, or `{keys: […]}`";
            Err(wrong("jwks", "`jwks` is not a key set", help))
        }
        (None, Some(secret)) => Ok(JwtKeys::Secret(secret.to_owned())),
        (None, None) => {
            let help = "set `jwks` to the URL of the issuer's keys";
            Err(wrong("jwks", "the keys for the signature of tokens are missing", help))
        }
    }
}

/// The accepted algorithms. They depend only on the configuration, never on the token: otherwise a public key could be used
/// as a shared secret (algorithm confusion, RFC 8725, 2.1).
fn algorithms(rules: &Map<String, Json>, keys: &JwtKeys) -> Result<Vec<String>, JwtRuleError> {
    let wrong = |message: String, help: String| JwtRuleError { key: "algorithms", message, help };
    let wanted = texts(rules.get("algorithms"));
    let wanted = match (wanted.as_slice(), rules.contains_key("algorithms"), keys) {
        ([_, ..], _, _) => wanted,
        ([], true, _) => {
            return Err(wrong("`algorithms` is empty".into(), "list an algorithm, or remove the key".into()));
        }
        ([], false, JwtKeys::Secret(_)) => vec!["HS256".to_owned()],
        ([], false, _) => DEFAULT_ASYMMETRIC.iter().map(|name| (*name).to_owned()).collect(),
    };
    for name in &wanted {
        let shared = SYMMETRIC.iter().find(|(shared, _)| shared == name);
        match (keys, shared) {
            (JwtKeys::Secret(secret), Some((name, least))) if secret.len() < *least => {
                let message = format!("the secret for {name} is shorter than {least} bytes and could be guessed");
                return Err(JwtRuleError { key: "secret", message, help: "use a longer one".to_owned() });
            }
            (JwtKeys::Secret(_), Some(_)) => {}
            (JwtKeys::Secret(_), None) => {
                let help = "write HS256, HS384 or HS512, or set `jwks` instead of `secret`";
                return Err(wrong(format!("`{name}` is not an algorithm with a shared secret"), help.into()));
            }
            (_, Some(_)) => {
                let message = format!("with `{name}` anyone who can read the public keys could create tokens");
                return Err(wrong(message, "remove it, or set `secret` instead of `jwks`".into()));
            }
            (_, None) if ASYMMETRIC.contains(&name.as_str()) => {}
            (_, None) => {
                let help = format!("write one of {}", ASYMMETRIC.join(", "));
                return Err(wrong(format!("`{name}` is not a supported signature algorithm"), help));
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
        f.debug_struct("JwtDef").field("claims", &self.claims).finish_non_exhaustive()
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
    fn the_configuration_determines_the_accepted_algorithms() {
        assert_eq!(read(json!({"jwks": "https://i/keys"})).unwrap().algorithms, DEFAULT_ASYMMETRIC);
        let long = "s".repeat(48);
        assert_eq!(read(json!({"secret": long})).unwrap().algorithms, ["HS256"]);
        for (rules, key, says) in [
            (json!({"jwks": {"keys": []}, "secret": long}), "secret", "cannot be combined"),
            (json!({}), "jwks", "are missing"),
            (json!({"jwks": {}}), "jwks", "not a key set"),
            (json!({"jwks": "https://i/keys", "algorithms": ["RS256", "HS256"]}), "algorithms", "anyone"),
            (json!({"jwks": "https://i/keys", "algorithms": ["none"]}), "algorithms", "`none` is not a supported"),
            (json!({"jwks": "https://i/keys", "algorithms": []}), "algorithms", "empty"),
            (json!({"secret": long, "algorithms": ["none"]}), "algorithms", "with a shared secret"),
            (json!({"secret": long, "algorithms": ["RS256"]}), "algorithms", "with a shared secret"),
            (json!({"secret": long, "algorithms": ["HS512"]}), "secret", "64 bytes"),
            (json!({"secret": "short"}), "secret", "32 bytes"),
            (json!({"jwks": "https://i/keys", "issuer": " "}), "issuer", "any issuer"),
            (json!({"jwks": "https://i/keys", "audience": []}), "audience", "other services"),
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
