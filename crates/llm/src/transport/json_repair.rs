//! Parses the JSON of events, with broken characters: some providers split text between the bytes of a character or between the
//! halves of a surrogate pair.

use segue_base::json::from_slice_lossy;
use serde::de::DeserializeOwned;

use crate::error::{InvalidResponse, LlmError, LlmErrorKind};

/// Parses the JSON of one event. Broken characters are replaced by U+FFFD; then the second value is `true`.
///
/// # Errors
/// [`LlmErrorKind::Truncated`] when the JSON ends too early, else [`InvalidResponse::NotJson`].
pub(crate) fn parse<T: DeserializeOwned>(data: &[u8]) -> Result<(T, bool), LlmError> {
    from_slice_lossy(data).map_err(|error| match error.is_eof() {
        true => LlmError::new(LlmErrorKind::Truncated).with_detail(error),
        false => LlmError::from(InvalidResponse::NotJson).with_detail(error),
    })
}
