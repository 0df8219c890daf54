//! The body of a webhook request: limited in size, and compressed if configured.

use std::io::{self, Write};

use flate2::{Compression, write::ZlibEncoder};
use serde::Serialize;
use serde_json::{Value as Json, value::RawValue};

use crate::limits;

/// The Rasa version in requests: the newest version whose projects are supported.
pub(super) const VERSION: &str = "3.17.0";

/// The JSON body.
#[derive(Serialize)]
pub(super) struct WebhookBody<'a> {
    pub(super) next_action: &'a str,
    pub(super) sender_id: &'a str,
    pub(super) tracker: &'a Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) domain: Option<&'a RawValue>,
    pub(super) domain_digest: &'a str,
    pub(super) version: &'static str,
}

impl WebhookBody<'_> {
    /// The body as bytes.
    ///
    /// # Errors
    /// A text for operators: it is larger than [`limits::ACTION_REQUEST`].
    pub(super) fn bytes(&self, compress: bool) -> Result<Vec<u8>, String> {
        let written = if compress {
            let mut encoder = ZlibEncoder::new(Capped::default(), Compression::fast());
            serde_json::to_writer(&mut Counted { inner: &mut encoder, left: limits::ACTION_REQUEST }, self)
                .map_err(io::Error::from)
                .and_then(|()| encoder.finish())
        } else {
            let mut capped = Capped::default();
            serde_json::to_writer(&mut capped, self).map_err(io::Error::from).map(|()| capped)
        };
        written.map(|capped| capped.0).map_err(|_| too_large())
    }
}

/// The error text for a request that is larger than [`limits::ACTION_REQUEST`].
pub(super) fn too_large() -> String {
    format!(
        "the conversation is larger than {} bytes: set `tracker_events: session` under `action_endpoint`",
        limits::ACTION_REQUEST
    )
}

/// A buffer that rejects bytes beyond the limit.
#[derive(Default)]
struct Capped(Vec<u8>);

impl Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > limits::ACTION_REQUEST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Limits the uncompressed bytes, so that a body that compresses well is not larger than the server accepts.
struct Counted<W> {
    inner: W,
    left: usize,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        self.inner.write_all(bytes)?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Read;

    use serde_json::json;

    use super::*;

    fn body<'a>(tracker: &'a Json, domain: Option<&'a RawValue>) -> WebhookBody<'a> {
        WebhookBody { next_action: "action_a", sender_id: "u", tracker, domain, domain_digest: "d", version: VERSION }
    }

    #[test]
    fn compressed_body_is_a_zlib_stream_of_the_same_json() {
        let tracker = json!({"events": [1, 2]});
        let domain = RawValue::from_string("{\"slots\":{}}".to_owned()).unwrap();
        let body = body(&tracker, Some(&domain));
        let (plain, compressed) = (body.bytes(false).unwrap(), body.bytes(true).unwrap());
        let mut again = Vec::new();
        flate2::read::ZlibDecoder::new(compressed.as_slice()).read_to_end(&mut again).unwrap();
        assert_eq!(plain, again);
        let json: Json = serde_json::from_slice(&plain).unwrap();
        assert_eq!((&json["domain"], &json["version"]), (&json!({"slots": {}}), &json!(VERSION)));
    }

    #[test]
    fn request_over_the_limit_is_not_sent() {
        let tracker = Json::String("x".repeat(limits::ACTION_REQUEST));
        for compress in [false, true] {
            let error = body(&tracker, None).bytes(compress).unwrap_err();
            assert!(error.contains("tracker_events: session"), "{error}");
        }
    }
}
