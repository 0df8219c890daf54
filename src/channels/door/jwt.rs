//! Tokens that say themselves who shows them (RFC 7519), as access tokens (RFC 9068) and with the cautions of RFC 8725.

use std::{collections::HashSet, fmt, sync::Arc};

use jsonwebtoken::{Algorithm, Header, Validation};
use segue_engine::project::JwtDef;
use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};

use super::{
    Caller, Refused, crypto,
    keys::{Keys, NoKeys},
};
use crate::{clock::Clock, limits};

/// How tokens of one issuer are checked.
pub(super) struct Rules {
    def: JwtDef,
    algorithms: Vec<Algorithm>,
    keys: Keys,
}

impl Rules {
    /// Of the project's rules.
    ///
    /// # Errors
    /// In words, for operators: an address or an algorithm is none.
    pub(super) fn new(def: &JwtDef) -> Result<Self, String> {
        crypto::install();
        let algorithm = |name: &String| name.parse().map_err(|_| format!("`{name}` is no algorithm of tokens"));
        Ok(Self {
            algorithms: def.algorithms.iter().map(algorithm).collect::<Result<_, _>>()?,
            keys: Keys::new(&def.keys)?,
            def: def.clone(),
        })
    }

    /// Who shows a token, if it is good.
    ///
    /// # Errors
    /// [`Refused`].
    pub(super) async fn caller(&self, token: &str, clock: &Arc<dyn Clock>) -> Result<Caller, Refused> {
        if token.len() > limits::JWT_TEXT {
            return Err(Refused::Invalid("the token is too long"));
        }
        let head = jsonwebtoken::decode_header(token).map_err(|_| Refused::Invalid("the token cannot be read"))?;
        self.accepts(&head)?;
        let keys = self.keys.of(&head, clock).await.map_err(|NoKeys| Refused::Later)?;
        if keys.is_empty() {
            return Err(Refused::Invalid("nobody knows the key of the token"));
        }
        // The signature alone: time is ours to tell, and the other claims are compared more strictly below.
        let mut signature = Validation::new(head.alg);
        (signature.validate_exp, signature.validate_nbf, signature.validate_aud) = (false, false, false);
        signature.required_spec_claims = HashSet::new();
        let claims = keys.iter().find_map(|key| jsonwebtoken::decode::<Map<String, Json>>(token, key, &signature).ok());
        let claims = claims.ok_or(Refused::Invalid("the signature does not fit"))?.claims;
        self.admits(&claims, clock.now().as_micros())
    }

    /// What can be said before a key is looked for.
    fn accepts(&self, head: &Header) -> Result<(), Refused> {
        if !self.algorithms.contains(&head.alg) {
            return Err(Refused::Invalid("tokens of this algorithm are not taken"));
        }
        if head.crit.is_some() {
            return Err(Refused::Invalid("the token wants something that is not known here"));
        }
        // Tokens for other ends, such as logouts, say so (RFC 8725, 3.11).
        let kind = head.typ.as_deref().unwrap_or("JWT").to_ascii_lowercase();
        match kind.strip_prefix("application/").unwrap_or(&kind) {
            "jwt" | "at+jwt" => Ok(()),
            _ => Err(Refused::Invalid("the token is not made for this use")),
        }
    }

    fn admits(&self, claims: &Map<String, Json>, now: i64) -> Result<Caller, Refused> {
        let text = |key: &str| claims.get(key).and_then(Json::as_str);
        if text("iss") != Some(&self.def.issuer) {
            return Err(Refused::Invalid("the token is of another issuer"));
        }
        if !texts(claims.get("aud")).any(|one| self.def.audiences.iter().any(|own| own == one)) {
            return Err(Refused::Invalid("the token is for another audience"));
        }
        let (now, leeway) = (now as f64 / 1e6, self.def.leeway.as_secs_f64());
        let ends = claims.get("exp").and_then(Json::as_f64).ok_or(Refused::Invalid("the token has no end"))?;
        if now >= ends + leeway {
            return Err(Refused::Invalid("the token has run out"));
        }
        if let Some(begins) = claims.get("nbf") {
            let begins = begins.as_f64().ok_or(Refused::Invalid("the token cannot be read"))?;
            if now + leeway < begins {
                return Err(Refused::Invalid("the token is not good yet"));
            }
        }
        let rights: HashSet<&str> =
            texts(claims.get("scope")).chain(texts(claims.get("scp"))).flat_map(str::split_ascii_whitespace).collect();
        if !self.def.scopes.iter().all(|wanted| rights.contains(wanted.as_str())) {
            return Err(Refused::Scope(self.def.scopes.join(" ")));
        }
        let names = |key: &str| text(key).filter(|name| !name.is_empty());
        let subject = names("sub").or_else(|| names("client_id")).or_else(|| names("azp"));
        let subject = subject.ok_or(Refused::Invalid("the token names nobody"))?;
        Ok(Caller { mark: Some(mark(&self.def.issuer, subject).into()) })
    }
}

/// One text, or a list of texts.
fn texts(claim: Option<&Json>) -> impl Iterator<Item = &str> {
    let one = claim.and_then(Json::as_str);
    let many = claim.and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
    one.into_iter().chain(many)
}

/// What tells one caller from another, and says nothing else about them.
fn mark(issuer: &str, subject: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(issuer.as_bytes());
    hash.update([0]);
    hash.update(subject.as_bytes());
    hash.finalize().iter().take(12).map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").field("issuer", &self.def.issuer).finish_non_exhaustive()
    }
}
