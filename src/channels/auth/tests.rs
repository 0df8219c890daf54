#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use axum::{Json as JsonResponse, Router, routing};
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
use crate::testing::ManualClock;

/// A private key that signs tokens.
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
    fn sign(&self, head: &Json, claims: &Json) -> String {
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

fn jwt_settings(more: Json) -> Json {
    let mut settings = json!({"issuer": "https://i", "audience": "me"});
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"jwt": settings})
}

/// The authenticator of a channel with these settings.
fn authenticator(settings: &Json) -> Result<Authenticator, String> {
    let channel = crate::channels::tests::channel("rest", settings)?;
    let ChannelSettings::Rest(settings) = &channel.settings else { panic!("{channel:?}") };
    Authenticator::from_settings(&settings.auth)
}

fn clock() -> ManualClock {
    ManualClock::new().at(Timestamp::from_micros(NOW * 1_000_000))
}

async fn authenticate(auth: &Authenticator, clock: &ManualClock, token: &str) -> Result<Caller, AuthError> {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, HeaderValue::try_from(format!("Bearer {token}")).unwrap());
    let clock: Arc<dyn Clock> = Arc::new(clock.clone());
    auth.authenticate(&headers, &clock).await
}

/// A JWT of the issuer `https://i` for the audience `me`, signed with a secret, that does not expire during tests.
pub(in crate::channels) fn signed_token(subject: &str, secret: &str) -> String {
    let claims = claims(json!({"sub": subject, "exp": NOW * 2}));
    Signer::Shared(secret.to_owned()).sign(&json!({"alg": "HS256"}), &claims)
}

#[tokio::test]
async fn valid_jwts_are_accepted_and_invalid_ones_rejected_with_a_reason() {
    let (ed, ec, stranger) = (Signer::ed(), Signer::ec(), Signer::ed());
    let keys =
        json!({"keys": [ed.jwk("a"), ec.jwk("b"), {"kty": "unsupported", "kid": "c"}, {"kty": "RSA", "kid": "d"}]});
    let auth = authenticator(&jwt_settings(json!({"jwks": keys, "scope": "talk"}))).unwrap();
    let clock = clock();
    let (head_a, head_b) = (json!({"alg": "EdDSA", "kid": "a", "typ": "at+jwt"}), json!({"alg": "ES256", "kid": "b"}));
    let valid = claims(json!({"scope": "read talk"}));
    for token in [
        ed.sign(&head_a, &valid),
        ec.sign(&head_b, &valid),
        ed.sign(&json!({"alg": "EdDSA"}), &valid),
        ed.sign(&head_a, &claims(json!({"scp": ["talk"], "aud": "me", "nbf": NOW}))),
        // Within the leeway for differing clocks.
        ed.sign(&head_a, &claims(json!({"scope": "talk", "exp": NOW - 29, "nbf": NOW + 29}))),
        ed.sign(&head_a, &claims(json!({"scope": "talk", "sub": null, "client_id": "ada"}))),
    ] {
        let id = authenticate(&auth, &clock, &token).await.unwrap().id.unwrap();
        assert_eq!(id.len(), 24, "{id}");
    }
    let unsigned = format!("{}.", ed.sign(&json!({"alg": "none"}), &valid).rsplit_once('.').unwrap().0);
    let mut malformed = ed.sign(&head_a, &valid);
    malformed = malformed.replace('.', "_.");
    let public = URL_SAFE_NO_PAD.decode(ed.jwk("a")["x"].as_str().unwrap()).unwrap();
    let public = Signer::Shared(String::from_utf8_lossy(&public).into_owned());
    for (token, expected) in [
        ("nonsense".to_owned(), "malformed"),
        (unsigned, "malformed"),
        (malformed, "malformed"),
        (public.sign(&json!({"alg": "HS256", "kid": "a"}), &valid), "this algorithm"),
        (stranger.sign(&head_a, &valid), "signature"),
        (ec.sign(&head_a, &valid), "signature"),
        (ed.sign(&json!({"alg": "EdDSA", "kid": "z"}), &valid), "key of the token is unknown"),
        (ed.sign(&json!({"alg": "EdDSA", "kid": "b"}), &valid), "key of the token is unknown"),
        (ed.sign(&json!({"alg": "EdDSA", "kid": "a", "crit": ["b64"], "b64": false}), &valid), "unsupported extension"),
        (ed.sign(&json!({"alg": "EdDSA", "kid": "a", "typ": "logout+jwt"}), &valid), "another type"),
        (ed.sign(&head_a, &claims(json!({"iss": "https://j"}))), "another issuer"),
        (ed.sign(&head_a, &claims(json!({"iss": ["https://i"]}))), "another issuer"),
        (ed.sign(&head_a, &claims(json!({"aud": "you"}))), "another audience"),
        (ed.sign(&head_a, &claims(json!({"aud": null}))), "another audience"),
        (ed.sign(&head_a, &claims(json!({"exp": null}))), "no expiry time"),
        (ed.sign(&head_a, &claims(json!({"exp": (NOW + 60).to_string()}))), "no expiry time"),
        (ed.sign(&head_a, &claims(json!({"exp": NOW - 30}))), "expired"),
        (ed.sign(&head_a, &claims(json!({"nbf": NOW + 31}))), "not valid yet"),
        (ed.sign(&head_a, &claims(json!({"nbf": "soon"}))), "malformed"),
        (ed.sign(&head_a, &claims(json!({"scope": "talk", "sub": null}))), "no subject"),
        ("x".repeat(limits::JWT_TEXT + 1), "too long"),
    ] {
        let Err(AuthError::InvalidToken(reason)) = authenticate(&auth, &clock, &token).await else {
            panic!("{expected}: {token}")
        };
        assert!(reason.contains(expected), "{expected}: {reason}");
        let response = AuthError::InvalidToken(reason).response("this agent");
        assert_eq!(response.status(), 401);
        let challenge = response.headers()[WWW_AUTHENTICATE].to_str().unwrap();
        assert!(challenge.starts_with("Bearer error=\"invalid_token\""), "{challenge}");
    }
    let without_scope = authenticate(&auth, &clock, &ed.sign(&head_a, &claims(json!({"scope": "read"})))).await;
    assert_eq!(without_scope, Err(AuthError::InsufficientScope("talk".to_owned())));
    assert_eq!(without_scope.unwrap_err().response("this agent").status(), 403);
    let missing = auth.authenticate(&HeaderMap::new(), &(Arc::new(clock.clone()) as Arc<dyn Clock>)).await;
    assert_eq!(missing, Err(AuthError::MissingToken));
}

#[tokio::test]
async fn shared_secret_is_accepted_only_if_configured_and_subjects_have_different_ids() {
    let secret = "a secret of thirty-two bytes, or more";
    let auth = authenticator(&jwt_settings(json!({"secret": secret}))).unwrap();
    let (clock, signer) = (clock(), Signer::Shared(secret.to_owned()));
    let head = json!({"alg": "HS256", "kid": "whatever"});
    let ada = authenticate(&auth, &clock, &signer.sign(&head, &claims(json!({})))).await.unwrap();
    let bob = authenticate(&auth, &clock, &signer.sign(&head, &claims(json!({"sub": "bob"})))).await.unwrap();
    assert_ne!(ada, bob);
    assert_eq!(ada, authenticate(&auth, &clock, &signer.sign(&head, &claims(json!({"exp": NOW + 5})))).await.unwrap());
    let other = Signer::Shared("another secret of thirty-two bytes".to_owned());
    assert!(authenticate(&auth, &clock, &other.sign(&head, &claims(json!({})))).await.is_err());
    let ed = Signer::ed();
    assert!(authenticate(&auth, &clock, &ed.sign(&json!({"alg": "EdDSA"}), &claims(json!({})))).await.is_err());
    // A symmetric key in a key set is not accepted either.
    let keys = json!({"keys": [signer.jwk("whatever")]});
    let auth = authenticator(&jwt_settings(json!({"jwks": keys}))).unwrap();
    assert!(authenticate(&auth, &clock, &signer.sign(&head, &claims(json!({})))).await.is_err());
    assert!(!format!("{auth:?}").contains(secret));
}

#[tokio::test]
async fn fixed_token_is_accepted_only_as_the_single_bearer_token() {
    let auth = Authenticator::new(BearerToken::new("s3cret"), None).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(clock());
    for (values, expected) in [
        (&["Bearer s3cret"][..], Ok(Caller::default())),
        (&["bearer  s3cret"], Ok(Caller::default())),
        (&["Basic s3cret"], Err(AuthError::MissingToken)),
        (&["Bearer s3cre"], Err(AuthError::InvalidToken("the token is wrong"))),
        (&["Bearer s3cret", "Bearer x"], Err(AuthError::MissingToken)),
        (&[], Err(AuthError::MissingToken)),
    ] {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_static(value));
        }
        assert_eq!(auth.authenticate(&headers, &clock).await, expected, "{values:?}");
    }
}

#[tokio::test]
async fn fixed_token_and_jwts_can_be_configured_together() {
    let ed = Signer::ed();
    let mut settings = jwt_settings(json!({"jwks": {"keys": [ed.jwk("a")]}}));
    settings["auth_token"] = json!("s3cret");
    let auth = authenticator(&settings).unwrap();
    assert_eq!(authenticate(&auth, &clock(), "s3cret").await, Ok(Caller::default()));
    let token = ed.sign(&json!({"alg": "EdDSA", "kid": "a"}), &claims(json!({})));
    assert!(authenticate(&auth, &clock(), &token).await.unwrap().id.is_some());
    assert!(authenticate(&auth, &clock(), "s3cre").await.is_err());
    let mut twice = HeaderMap::new();
    twice.append(AUTHORIZATION, HeaderValue::try_from(format!("Bearer {token}")).unwrap());
    twice.append(AUTHORIZATION, HeaderValue::from_static("Bearer x"));
    let clock: Arc<dyn Clock> = Arc::new(clock());
    assert_eq!(
        auth.authenticate(&twice, &clock).await,
        Err(AuthError::MissingToken),
        "two Authorization headers are ambiguous"
    );
    for invalid in [json!({"jwt": 7}), json!({"jwt": {}}), json!({"auth_token": " "}), json!({"auth_token": []})] {
        assert!(authenticator(&invalid).is_err(), "{invalid}");
    }
}

/// The examples of RFC 7515 (appendix A.1 to A.3) and RFC 8037 (appendix A.2 and A.4).
#[test]
fn example_signatures_of_the_rfcs_are_verified() {
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

/// A server for a key set: its URL, the set, which a test can change, and the number of requests. While the set is `null`, it returns an
/// error; while it is `"…"`, it does not respond.
async fn key_server(first: Json) -> (String, Arc<Mutex<Json>>, Arc<AtomicUsize>) {
    let (set, requests) = (Arc::new(Mutex::new(first)), Arc::new(AtomicUsize::new(0)));
    let (served, count) = (set.clone(), requests.clone());
    let respond = move || {
        count.fetch_add(1, Ordering::SeqCst);
        let served = served.lock().unwrap().clone();
        async move {
            match served {
                Json::Null => Err(StatusCode::BAD_GATEWAY),
                Json::String(_) => std::future::pending().await,
                served => Ok(JsonResponse(served)),
            }
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/keys", listener.local_addr().unwrap());
    let router = Router::new().route("/keys", routing::get(respond));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, set, requests)
}

#[tokio::test]
async fn keys_are_cached_and_fetched_again_for_an_unknown_key_id_but_not_too_often() {
    let (old, new) = (Signer::ed(), Signer::ed());
    let (url, set, requests) = key_server(json!({"keys": [old.jwk("old")]})).await;
    let auth = authenticator(&jwt_settings(json!({"jwks": url}))).unwrap();
    let clock = clock();
    let count = || requests.load(Ordering::SeqCst);
    let token = |signer: &Signer, id: &str| {
        signer.sign(&json!({"alg": "EdDSA", "kid": id}), &claims(json!({"exp": NOW + 1_000_000})))
    };
    let (first, second) = (token(&old, "old"), token(&new, "new"));
    let all = futures::future::join_all((0..20).map(|_| authenticate(&auth, &clock, &first))).await;
    assert!(all.iter().all(Result::is_ok) && count() == 1, "concurrent callers share one fetch");
    *set.lock().unwrap() = json!({"keys": [old.jwk("old"), new.jwk("new")]});
    assert!(authenticate(&auth, &clock, &second).await.is_err(), "the last fetch is too recent for another one");
    clock.advance(limits::JWKS_MIN_INTERVAL);
    assert!(authenticate(&auth, &clock, &second).await.is_ok());
    assert_eq!(count(), 2);
    for number in 0..50 {
        let unknown = token(&new, &format!("unknown {number}"));
        assert!(authenticate(&auth, &clock, &unknown).await.is_err());
    }
    assert_eq!(count(), 2, "tokens with invented key ids cause no fetch");
    *set.lock().unwrap() = json!({"keys": [new.jwk("new")]});
    clock.advance(limits::JWKS_REFRESH_AFTER);
    assert!(authenticate(&auth, &clock, &first).await.is_ok(), "cached keys are used while newer ones are fetched");
    assert!(
        authenticate(&auth, &clock, &token(&new, "unknown")).await.is_err(),
        "a caller with an unknown key waits for the fetch"
    );
    assert!(authenticate(&auth, &clock, &first).await.is_err(), "the key has been removed from the set");
    assert_eq!(count(), 3);
    // While the server is down, cached keys are used until their maximum age.
    *set.lock().unwrap() = Json::Null;
    clock.advance(limits::JWKS_REFRESH_AFTER);
    assert!(authenticate(&auth, &clock, &second).await.is_ok());
    clock.advance(limits::JWKS_MAX_AGE);
    assert_eq!(authenticate(&auth, &clock, &second).await, Err(AuthError::Unavailable));
    assert_eq!(AuthError::Unavailable.response("this agent").status(), 503);
}

#[tokio::test]
async fn fetch_of_keys_is_completed_although_the_caller_disconnects() {
    let signer = Signer::ed();
    let (url, _, requests) = key_server(json!({"keys": [signer.jwk("a")]})).await;
    let auth = authenticator(&jwt_settings(json!({"jwks": url}))).unwrap();
    let clock = clock();
    let unknown = Signer::ed().sign(&json!({"alg": "EdDSA", "kid": "x"}), &json!({}));
    let mut disconnecting = Box::pin(authenticate(&auth, &clock, &unknown));
    assert!(futures::poll!(&mut disconnecting).is_pending());
    drop(disconnecting);
    let valid = signer.sign(&json!({"alg": "EdDSA", "kid": "a"}), &claims(json!({})));
    assert!(authenticate(&auth, &clock, &valid).await.is_ok());
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn caller_with_a_cached_key_does_not_wait_for_an_unresponsive_key_server() {
    let signer = Signer::ed();
    let (url, set, _) = key_server(json!({"keys": [signer.jwk("a")]})).await;
    let auth = authenticator(&jwt_settings(json!({"jwks": url}))).unwrap();
    let clock = clock();
    let token = |id: &str| signer.sign(&json!({"alg": "EdDSA", "kid": id}), &claims(json!({"exp": NOW + 1_000_000})));
    let known = token("a");
    assert!(authenticate(&auth, &clock, &known).await.is_ok());
    *set.lock().unwrap() = json!("…");
    clock.advance(limits::JWKS_REFRESH_AFTER);
    for _ in 0..2 {
        assert!(matches!(authenticate(&auth, &clock, &known).now_or_never(), Some(Ok(_))), "without waiting");
    }
    assert!(authenticate(&auth, &clock, &token("b")).now_or_never().is_none(), "an unknown key is waited for");
    clock.advance(limits::JWKS_MAX_AGE);
    assert!(authenticate(&auth, &clock, &known).now_or_never().is_none(), "the cached keys are too old");
}

#[tokio::test]
async fn unresponsive_key_server_and_oversized_key_set_are_errors() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let auth = authenticator(&jwt_settings(json!({"jwks": url}))).unwrap();
    let advancing = ManualClock::auto_advancing().at(Timestamp::from_micros(NOW * 1_000_000));
    let token = Signer::ed().sign(&json!({"alg": "EdDSA"}), &claims(json!({})));
    assert_eq!(authenticate(&auth, &advancing, &token).await, Err(AuthError::Unavailable));
    assert_eq!(advancing.slept().last(), Some(&limits::JWKS_WAIT));

    let (url, _, requests) = key_server(json!({"keys": ["x".repeat(limits::JWKS_ANSWER)]})).await;
    let auth = authenticator(&jwt_settings(json!({"jwks": url}))).unwrap();
    let clock = clock();
    assert_eq!(authenticate(&auth, &clock, &token).await, Err(AuthError::Unavailable));
    assert_eq!(authenticate(&auth, &clock, &token).await, Err(AuthError::Unavailable));
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

#[test]
fn number_of_keys_read_and_tried_is_limited() {
    let signer = Signer::ed();
    let many: Vec<Json> = (0..limits::JWKS_KEYS + 5).map(|number| signer.jwk(&number.to_string())).collect();
    assert_eq!(jwks::read_key_set(&json!({"keys": many})).unwrap().len(), limits::JWKS_KEYS);
    let clock: Arc<dyn Clock> = Arc::new(clock());
    let keys = jwks::JwkSource::new(&segue_engine::project::JwtKeys::Set(json!({"keys": many}))).unwrap();
    let header = jsonwebtoken::Header::new(jsonwebtoken::Algorithm::EdDSA);
    let matching = futures::executor::block_on(keys.keys_for(&header, &clock)).unwrap();
    assert_eq!(matching.len(), limits::JWKS_TRIED);
}
