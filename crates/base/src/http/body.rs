//! Reading a whole response body with a size limit.

use super::TransportError;

/// Why a body was not read to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It is longer than the limit.
    #[error("the response is longer than {limit} bytes")]
    TooLong {
        /// The limit, in bytes.
        limit: usize,
    },
    /// It broke off.
    #[error(transparent)]
    Broken(#[from] TransportError),
}

/// Reads the body of `response`, whatever its status. `limit` counts decompressed bytes.
///
/// # Errors
/// [`BodyError`]: the body is longer than `limit` bytes, or broke off.
pub async fn read_limited(mut response: reqwest::Response, limit: usize) -> Result<Vec<u8>, BodyError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(TransportError::from)? {
        if body.len() + chunk.len() > limit {
            return Err(BodyError::TooLong { limit });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
