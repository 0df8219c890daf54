//! Signatures of JWTs, checked by the one provider of cryptography of this program.
//!
//! The library reads tokens and keys and leaves the arithmetic to whoever is installed; nothing here signs.

use jsonwebtoken::{
    Algorithm, DecodingKey, DecodingKeyKind,
    crypto::{CryptoProvider, JwtVerifier, KeyUtils},
    errors::{Error, ErrorKind},
    signature,
};
use ring::{hmac, signature as keys};

/// Makes ring the library's provider in this process. Harmless when repeated.
pub(super) fn install() {
    // An error says that there is one already: that of a program that embeds us.
    let _ = RING.install_default();
}

static RING: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(not_here()),
    verifier_factory: |algorithm, key| {
        if key.family() != family(*algorithm)? {
            return Err(ErrorKind::InvalidAlgorithm.into());
        }
        Ok(Box::new(RingVerifier { algorithm: *algorithm, key: key.clone() }))
    },
    key_utils: KeyUtils {
        rsa_pub_components_from_private_key: |_| Err(not_here()),
        rsa_pub_components_from_public_key: |_| Err(not_here()),
        ec_pub_components_from_private_key: |_, _| Err(not_here()),
        ed_pub_components_from_private_key: |_, _| Err(not_here()),
        compute_digest: |_, _| Err(not_here()),
    },
};

fn not_here() -> Error {
    ErrorKind::Provider("tokens are only checked here".to_owned()).into()
}

/// The family of an algorithm that is known here.
pub(super) fn family(algorithm: Algorithm) -> Result<jsonwebtoken::AlgorithmFamily, Error> {
    use jsonwebtoken::AlgorithmFamily::{Ec, Ed, Hmac, Rsa};
    [Hmac, Rsa, Ec, Ed]
        .into_iter()
        .find(|family| family.algorithms().contains(&algorithm))
        .ok_or_else(|| ErrorKind::UnsupportedAlgorithm.into())
}

/// One algorithm with one key.
struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl signature::Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let bytes = || self.key.try_get_as_bytes().map_err(signature::Error::from_source);
        let unspecified = |_| signature::Error::new();
        let rsa = |parameters: &'static keys::RsaParameters| match self.key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                keys::RsaPublicKeyComponents { n, e }.verify(parameters, message, signature).map_err(unspecified)
            }
            DecodingKeyKind::SecretOrDer(_) => Err(signature::Error::new()),
        };
        let public = |algorithm: &'static dyn keys::VerificationAlgorithm| {
            keys::UnparsedPublicKey::new(algorithm, bytes()?).verify(message, signature).map_err(unspecified)
        };
        let shared =
            |algorithm| hmac::verify(&hmac::Key::new(algorithm, bytes()?), message, signature).map_err(unspecified);
        match self.algorithm {
            Algorithm::RS256 => rsa(&keys::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::RS384 => rsa(&keys::RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => rsa(&keys::RSA_PKCS1_2048_8192_SHA512),
            Algorithm::PS256 => rsa(&keys::RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => rsa(&keys::RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => rsa(&keys::RSA_PSS_2048_8192_SHA512),
            Algorithm::ES256 => public(&keys::ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => public(&keys::ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDSA => public(&keys::ED25519),
            Algorithm::HS256 => shared(hmac::HMAC_SHA256),
            Algorithm::HS384 => shared(hmac::HMAC_SHA384),
            Algorithm::HS512 => shared(hmac::HMAC_SHA512),
            _ => Err(signature::Error::new()),
        }
    }
}
