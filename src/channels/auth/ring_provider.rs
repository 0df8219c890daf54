//! A cryptography provider for the crate `jsonwebtoken`, based on ring: ring is also the cryptography of TLS here, so that the program
//! contains only one implementation. It verifies signatures and cannot sign.

use jsonwebtoken::{
    Algorithm, DecodingKey, DecodingKeyKind,
    crypto::{CryptoProvider, JwtVerifier, KeyUtils},
    errors::{Error, ErrorKind},
    signature,
};
use ring::{hmac, signature as keys};

/// Installs the provider for this process. May be called repeatedly.
pub(super) fn install() {
    // An error means that a provider is installed already: this one, or that of a program that uses Segue as a library.
    let _ = RING.install_default();
}

static RING: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(unsupported()),
    verifier_factory: |algorithm, key| {
        if key.family() != family(*algorithm)? {
            return Err(ErrorKind::InvalidAlgorithm.into());
        }
        Ok(Box::new(RingVerifier { algorithm: *algorithm, key: key.clone() }))
    },
    key_utils: KeyUtils {
        rsa_pub_components_from_private_key: |_| Err(unsupported()),
        rsa_pub_components_from_public_key: |_| Err(unsupported()),
        ec_pub_components_from_private_key: |_, _| Err(unsupported()),
        ed_pub_components_from_private_key: |_, _| Err(unsupported()),
        compute_digest: |_, _| Err(unsupported()),
    },
};

fn unsupported() -> Error {
    ErrorKind::Provider("this provider only verifies signatures".to_owned()).into()
}

/// The family of an algorithm.
///
/// # Errors
/// `jsonwebtoken` assigns the algorithm to no family.
pub(super) fn family(algorithm: Algorithm) -> Result<jsonwebtoken::AlgorithmFamily, Error> {
    use jsonwebtoken::AlgorithmFamily::{Ec, Ed, Hmac, Rsa};
    [Hmac, Rsa, Ec, Ed]
        .into_iter()
        .find(|family| family.algorithms().contains(&algorithm))
        .ok_or_else(|| ErrorKind::UnsupportedAlgorithm.into())
}

/// Verifies signatures of one algorithm with one key.
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
