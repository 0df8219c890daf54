#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Json as Answer, Router, routing};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use futures::FutureExt;
use ring::{
    hmac,
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair},
};
use segue_engine::{project::ChannelSettings, time::Timestamp};
use serde_json::{Value as Json, json};

use super::*;
use crate::{context::CallContext, testing::ManualClock};

/// Somebody who signs tokens.
enum Signer {
    Ed(Ed25519KeyPair),
    Ec(EcdsaKeyPair),
    Shared(String),
}

const NOW: i64 = 1_800_000_000;

impl Signer {
    fn ed() -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::Ed(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap())
    }
    fn ec() -> Self {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        Self::Ec(EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random).unwrap())
    }
    fn jwk(&self, id: &str) -> Json {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match self {
            Self::Ed(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "x": text(pair.public_key().as_ref()), "use": "sig"})
            }
            Self::Ec(pair) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
                json!({"kty": "EC", "crv": "P-256", "kid": id, "alg": "ES256", "x": text(x), "y": text(y)})
            }
            Self::Shared(secret) => json!({"kty": "oct", "kid": id, "k": text(secret.as_bytes())}),
        }
    }
    fn signs(&self, head: &Json, claims: &Json) -> String {
        let part = |json: &Json| URL_SAFE_NO_PAD.encode(json.to_string());
        let message = format!("{}.{}", part(head), part(claims));
        let bytes = message.as_bytes();
        let signature = match self {
            Self::Ed(pair) => pair.sign(bytes).as_ref().to_vec(),
            Self::Ec(pair) => pair.sign(&SystemRandom::new(), bytes).unwrap().as_ref().to_vec(),
            Self::Shared(secret) => {
                hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), bytes).as_ref().to_vec()
            }
        };
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn claims(more: Json) -> Json {
    let mut claims = json!({"iss": "https://i", "aud": ["other", "me"], "sub": "ada", "exp": NOW + 60});
    for (key, value) in more.as_object().unwrap() {
        match value {
            Json::Null => drop(claims.as_object_mut().unwrap().remove(key)),
            value => claims[key] = value.clone(),
        }
    }
    claims
}

fn rules(more: Json) -> Json {
    let mut rules = json!({"issuer": "https://i", "audience": "me"});
    rules.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"jwt": rules})
}

/// The auth of a channel with these settings.
fn door_of(settings: &Json) -> Result<Authenticator, String> {
    let channel = crate::channels::tests::channel("rest", settings)?;
    let ChannelSettings::Rest(settings) = &channel.settings else { panic!("{channel:?}") };
    Authenticator::of(&settings.auth)
}

fn clock() -> ManualClock {
    ManualClock::new().at(Timestamp::from_micros(NOW * 1_000_000))
}

async fn comes(auth: &Authenticator, clock: &ManualClock, token: &str) -> Result<Caller, AuthError> {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, HeaderValue::try_from(format!("Bearer {token}")).unwrap());
    let clock: Arc<dyn Clock> = Arc::new(clock.clone());
    auth.authenticate(&headers, &clock).await
}

/// A token for `me` of the issuer `https://i`, signed with a secret; its end is far.
pub(in crate::channels) fn token_of(subject: &str, secret: &str) -> String {
    let claims = claims(json!({"sub": subject, "exp": NOW * 2}));
    Signer::Shared(secret.to_owned()).signs(&json!({"alg": "HS256"}), &claims)
}

#[tokio::test]
async fn only_a_good_token_is_let_in_and_the_others_hear_why() {
    let (ed, ec, stranger) = (Signer::ed(), Signer::ec(), Signer::ed());
    let keys = json!({"keys": [ed.jwk("a"), ec.jwk("b"), {"kty": "unheard", "kid": "c"}, {"kty": "RSA", "kid": "d"}]});
    let auth = door_of(&rules(json!({"jwks": keys, "scope": "talk"}))).unwrap();
    let clock = clock();
    let (head_a, head_b) = (json!({"alg": "EdDSA", "kid": "a", "typ": "at+jwt"}), json!({"alg": "ES256", "kid": "b"}));
    let good = claims(json!({"scope": "read talk"}));
    for token in [
        ed.signs(&head_a, &good),
        ec.signs(&head_b, &good),
        ed.signs(&json!({"alg": "EdDSA"}), &good),
        ed.signs(&head_a, &claims(json!({"scp": ["talk"], "aud": "me", "nbf": NOW}))),
        // Clocks differ a little.
        ed.signs(&head_a, &claims(json!({"scope": "talk", "exp": NOW - 29, "nbf": NOW + 29}))),
        ed.signs(&head_a, &claims(json!({"scope": "talk", "sub": null, "client_id": "ada"}))),
    ] {
        let mark = comes(&auth, &clock, &token).await.unwrap().id.unwrap();
        assert_eq!(mark.len(), 24, "{mark}");
    }
    let none = format!("{}.", ed.signs(&json!({"alg": "none"}), &good).rsplit_once('.').unwrap().0);
    let mut bent = ed.signs(&head_a, &good);
    bent = bent.replace('.', "_.");
    let public = URL_SAFE_NO_PAD.decode(ed.jwk("a")["x"].as_str().unwrap()).unwrap();
    let public = Signer::Shared(String::from_utf8_lossy(&public).into_owned());
    for (token, says) in [
        ("nonsense".to_owned(), "cannot be read"),
        (none, "cannot be read"),
        (bent, "cannot be read"),
        (public.signs(&json!({"alg": "HS256", "kid": "a"}), &good), "this algorithm"),
        (stranger.signs(&head_a, &good), "signature"),
        (ec.signs(&head_a, &good), "signature"),
        (ed.signs(&json!({"alg": "EdDSA", "kid": "z"}), &good), "knows the key"),
        (ed.signs(&json!({"alg": "EdDSA", "kid": "b"}), &good), "knows the key"),
        (ed.signs(&json!({"alg": "EdDSA", "kid": "a", "crit": ["b64"], "b64": false}), &good), "not known here"),
        (ed.signs(&json!({"alg": "EdDSA", "kid": "a", "typ": "logout+jwt"}), &good), "for this use"),
        (ed.signs(&head_a, &claims(json!({"iss": "https://j"}))), "another issuer"),
        (ed.signs(&head_a, &claims(json!({"iss": ["https://i"]}))), "another issuer"),
        (ed.signs(&head_a, &claims(json!({"aud": "you"}))), "another audience"),
        (ed.signs(&head_a, &claims(json!({"aud": null}))), "another audience"),
        (ed.signs(&head_a, &claims(json!({"exp": null}))), "no end"),
        (ed.signs(&head_a, &claims(json!({"exp": (NOW + 60).to_string()}))), "no end"),
        (ed.signs(&head_a, &claims(json!({"exp": NOW - 30}))), "run out"),
        (ed.signs(&head_a, &claims(json!({"nbf": NOW + 31}))), "not good yet"),
        (ed.signs(&head_a, &claims(json!({"nbf": "soon"}))), "cannot be read"),
        (ed.signs(&head_a, &claims(json!({"scope": "talk", "sub": null}))), "names nobody"),
        ("x".repeat(limits::JWT_TEXT + 1), "too long"),
    ] {
        let Err(AuthError::InvalidToken(why)) = comes(&auth, &clock, &token).await else { panic!("{says}: {token}") };
        assert!(why.contains(says), "{says}: {why}");
        let answer = AuthError::InvalidToken(why).response("this agent");
        assert_eq!(answer.status(), 401);
        let challenge = answer.headers()[WWW_AUTHENTICATE].to_str().unwrap();
        assert!(challenge.starts_with("Bearer error=\"invalid_token\""), "{challenge}");
    }
    let lacking = comes(&auth, &clock, &ed.signs(&head_a, &claims(json!({"scope": "read"})))).await;
    assert_eq!(lacking, Err(AuthError::InsufficientScope("talk".to_owned())));
    assert_eq!(lacking.unwrap_err().response("this agent").status(), 403);
    let nothing = auth.authenticate(&HeaderMap::new(), &(Arc::new(clock.clone()) as Arc<dyn Clock>)).await;
    assert_eq!(nothing, Err(AuthError::MissingToken));
}

#[tokio::test]
async fn a_secret_of_both_sides_signs_only_where_it_is_configured_and_callers_differ() {
    let secret = "a secret of thirty-two bytes, or more";
    let auth = door_of(&rules(json!({"secret": secret}))).unwrap();
    let (clock, signer) = (clock(), Signer::Shared(secret.to_owned()));
    let head = json!({"alg": "HS256", "kid": "whatever"});
    let ada = comes(&auth, &clock, &signer.signs(&head, &claims(json!({})))).await.unwrap();
    let bob = comes(&auth, &clock, &signer.signs(&head, &claims(json!({"sub": "bob"})))).await.unwrap();
    assert_ne!(ada, bob);
    assert_eq!(ada, comes(&auth, &clock, &signer.signs(&head, &claims(json!({"exp": NOW + 5})))).await.unwrap());
    let other = Signer::Shared("another secret of thirty-two bytes".to_owned());
    assert!(comes(&auth, &clock, &other.signs(&head, &claims(json!({})))).await.is_err());
    let ed = Signer::ed();
    assert!(comes(&auth, &clock, &ed.signs(&json!({"alg": "EdDSA"}), &claims(json!({})))).await.is_err());
    // A key set that holds a secret is no way around.
    let keys = json!({"keys": [signer.jwk("whatever")]});
    let auth = door_of(&rules(json!({"jwks": keys}))).unwrap();
    assert!(comes(&auth, &clock, &signer.signs(&head, &claims(json!({})))).await.is_err());
    assert!(!format!("{auth:?}").contains(secret));
}

#[tokio::test]
async fn a_fixed_token_and_signed_ones_may_stand_side_by_side() {
    let ed = Signer::ed();
    let mut settings = rules(json!({"jwks": {"keys": [ed.jwk("a")]}}));
    settings["auth_token"] = json!("s3cret");
    let auth = door_of(&settings).unwrap();
    assert_eq!(comes(&auth, &clock(), "s3cret").await, Ok(Caller::default()));
    let token = ed.signs(&json!({"alg": "EdDSA", "kid": "a"}), &claims(json!({})));
    assert!(comes(&auth, &clock(), &token).await.unwrap().id.is_some());
    assert!(comes(&auth, &clock(), "s3cre").await.is_err());
    let mut twice = HeaderMap::new();
    twice.append(AUTHORIZATION, HeaderValue::try_from(format!("Bearer {token}")).unwrap());
    twice.append(AUTHORIZATION, HeaderValue::from_static("Bearer x"));
    let clock: Arc<dyn Clock> = Arc::new(clock());
    assert_eq!(
        auth.authenticate(&twice, &clock).await,
        Err(AuthError::MissingToken),
        "what could be read in two ways is not read"
    );
    for wrong in [json!({"jwt": 7}), json!({"jwt": {}}), json!({"auth_token": " "}), json!({"auth_token": []})] {
        assert!(door_of(&wrong).is_err(), "{wrong}");
    }
}

/// The examples of RFC 7515 (A.1 to A.3) and RFC 8037 (A.2 and A.4): what others signed, with keys of theirs.
#[test]
fn signatures_of_the_standards_are_understood() {
    ring_provider::install();
    let set = |json: Json| jwks::read_key_set(&json!({"keys": [json]})).unwrap();
    for (jwk, token) in [
        (
            json!({"kty": "oct", "k": "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"}),
            "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
        ),
        (
            json!({"kty": "RSA", "e": "AQAB", "n": "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"}),
            "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw",
        ),
        (
            json!({"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}),
            "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
        ),
        (
            json!({"kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}),
            "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
        ),
    ] {
        let head = jsonwebtoken::decode_header(token).unwrap();
        let (message, signature) = token.rsplit_once('.').unwrap();
        let key = &set(jwk)[0].key;
        assert_eq!(jsonwebtoken::crypto::verify(signature, message.as_bytes(), key, head.alg), Ok(true), "{token}");
        let other = message.replace("eyJ", "eyK");
        assert_eq!(jsonwebtoken::crypto::verify(signature, other.as_bytes(), key, head.alg), Ok(false));
    }
}

/// A server of keys that are changed while it runs; how often it was asked. For `null` it fails, for `"…"` it hangs.
async fn published(first: Json) -> (String, Arc<Mutex<Json>>, Arc<AtomicUsize>) {
    let (set, asked) = (Arc::new(Mutex::new(first)), Arc::new(AtomicUsize::new(0)));
    let (shown, count) = (set.clone(), asked.clone());
    let answer = move || {
        count.fetch_add(1, Ordering::SeqCst);
        let shown = shown.lock().unwrap().clone();
        async move {
            match shown {
                Json::Null => Err(StatusCode::BAD_GATEWAY),
                Json::String(_) => std::future::pending().await,
                shown => Ok(Answer(shown)),
            }
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/keys", listener.local_addr().unwrap());
    let router = Router::new().route("/keys", routing::get(answer));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, set, asked)
}

#[tokio::test]
async fn keys_are_kept_and_asked_for_again_when_a_token_names_a_new_one_but_not_too_often() {
    let (old, new) = (Signer::ed(), Signer::ed());
    let (url, set, asked) = published(json!({"keys": [old.jwk("old")]})).await;
    let auth = door_of(&rules(json!({"jwks": url}))).unwrap();
    let clock = clock();
    let count = || asked.load(Ordering::SeqCst);
    let token = |signer: &Signer, id: &str| {
        signer.signs(&json!({"alg": "EdDSA", "kid": id}), &claims(json!({"exp": NOW + 1_000_000})))
    };
    let (first, second) = (token(&old, "old"), token(&new, "new"));
    let all = futures::future::join_all((0..20).map(|_| comes(&auth, &clock, &first))).await;
    assert!(all.iter().all(Result::is_ok) && count() == 1, "one asks for all");
    *set.lock().unwrap() = json!({"keys": [old.jwk("old"), new.jwk("new")]});
    assert!(comes(&auth, &clock, &second).await.is_err(), "a moment ago it was not there");
    clock.advance(limits::JWKS_MIN_INTERVAL);
    assert!(comes(&auth, &clock, &second).await.is_ok());
    assert_eq!(count(), 2);
    for number in 0..50 {
        let made_up = token(&new, &format!("made up {number}"));
        assert!(comes(&auth, &clock, &made_up).await.is_err());
    }
    assert_eq!(count(), 2, "whoever makes up ids does not make us ask");
    *set.lock().unwrap() = json!({"keys": [new.jwk("new")]});
    clock.advance(limits::JWKS_REFRESH_AFTER);
    assert!(comes(&auth, &clock, &first).await.is_ok(), "answered from what is known, while newer ones come");
    assert!(comes(&auth, &clock, &token(&new, "unknown")).await.is_err(), "whose key is not known waits for them");
    assert!(comes(&auth, &clock, &first).await.is_err(), "a key that was taken away");
    assert_eq!(count(), 3);
    // While the server is down, what is known goes on for a while.
    *set.lock().unwrap() = Json::Null;
    clock.advance(limits::JWKS_REFRESH_AFTER);
    assert!(comes(&auth, &clock, &second).await.is_ok());
    clock.advance(limits::JWKS_MAX_AGE);
    assert_eq!(comes(&auth, &clock, &second).await, Err(AuthError::Unavailable));
    assert_eq!(AuthError::Unavailable.response("this agent").status(), 503);
}

#[tokio::test]
async fn whoever_hangs_up_has_not_used_up_the_question_for_keys() {
    let signer = Signer::ed();
    let (url, _, asked) = published(json!({"keys": [signer.jwk("a")]})).await;
    let auth = door_of(&rules(json!({"jwks": url}))).unwrap();
    let clock = clock();
    let made_up = Signer::ed().signs(&json!({"alg": "EdDSA", "kid": "x"}), &json!({}));
    let mut gone = Box::pin(comes(&auth, &clock, &made_up));
    assert!(futures::poll!(&mut gone).is_pending());
    drop(gone);
    let good = signer.signs(&json!({"alg": "EdDSA", "kid": "a"}), &claims(json!({})));
    assert!(comes(&auth, &clock, &good).await.is_ok());
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn nobody_whose_key_is_known_waits_for_a_server_of_keys_that_hangs() {
    let signer = Signer::ed();
    let (url, set, _) = published(json!({"keys": [signer.jwk("a")]})).await;
    let auth = door_of(&rules(json!({"jwks": url}))).unwrap();
    let clock = clock();
    let token = |id: &str| signer.signs(&json!({"alg": "EdDSA", "kid": id}), &claims(json!({"exp": NOW + 1_000_000})));
    let known = token("a");
    assert!(comes(&auth, &clock, &known).await.is_ok());
    *set.lock().unwrap() = json!("…");
    clock.advance(limits::JWKS_REFRESH_AFTER);
    for _ in 0..2 {
        assert!(matches!(comes(&auth, &clock, &known).now_or_never(), Some(Ok(_))), "at once");
    }
    assert!(comes(&auth, &clock, &token("b")).now_or_never().is_none(), "a key that is not known is waited for");
    clock.advance(limits::JWKS_MAX_AGE);
    assert!(comes(&auth, &clock, &known).now_or_never().is_none(), "too old to be trusted");
}

#[tokio::test]
async fn a_server_of_keys_that_hangs_or_talks_without_end_is_given_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let auth = door_of(&rules(json!({"jwks": url}))).unwrap();
    let jumping = ManualClock::auto_advancing().at(Timestamp::from_micros(NOW * 1_000_000));
    let token = Signer::ed().signs(&json!({"alg": "EdDSA"}), &claims(json!({})));
    assert_eq!(comes(&auth, &jumping, &token).await, Err(AuthError::Unavailable));
    assert_eq!(jumping.slept().last(), Some(&limits::JWKS_WAIT));

    let (url, _, asked) = published(json!({"keys": ["x".repeat(limits::JWKS_ANSWER)]})).await;
    let auth = door_of(&rules(json!({"jwks": url}))).unwrap();
    let clock = clock();
    assert_eq!(comes(&auth, &clock, &token).await, Err(AuthError::Unavailable));
    assert_eq!(comes(&auth, &clock, &token).await, Err(AuthError::Unavailable));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let _ = CallContext::new(Arc::new(clock), Duration::ZERO);
}

#[test]
fn no_more_keys_are_read_and_tried_than_allowed() {
    let signer = Signer::ed();
    let many: Vec<Json> = (0..limits::JWKS_KEYS + 5).map(|number| signer.jwk(&number.to_string())).collect();
    assert_eq!(jwks::read_key_set(&json!({"keys": many})).unwrap().len(), limits::JWKS_KEYS);
    let clock: Arc<dyn Clock> = Arc::new(clock());
    let keys = jwks::JwkSource::new(&segue_engine::project::JwtKeys::Set(json!({"keys": many}))).unwrap();
    let head = jsonwebtoken::Header::new(jsonwebtoken::Algorithm::EdDSA);
    let found = futures::executor::block_on(keys.of(&head, &clock)).unwrap();
    assert_eq!(found.len(), limits::JWKS_TRIED);
}
