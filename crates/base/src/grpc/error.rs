//! Errors of gRPC calls.
use std::error::Error;

use prost::Message;
pub use tonic::Code;
use tonic::Status;

/// Why a gRPC call has no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrpcError {
    /// No connection: nothing was sent.
    Unreachable(String),
    /// The connection broke.
    Broken(String),
    /// The server responded with an error.
    Refused {
        /// The status code.
        code: Code,
        /// The message of the server.
        message: String,
        /// The `reason` of `google.rpc.ErrorInfo` in the details, if there is one.
        reason: Option<String>,
    },
    /// A message is larger than the limit.
    TooLarge,
    /// The deadline passed.
    DeadlineExceeded,
    /// The call was cancelled.
    Cancelled,
}

impl GrpcError {
    /// The error of a status with which a call ended.
    pub(super) fn from_status(status: Status) -> Self {
        let cause = causes(status.source()).find_map(|cause| cause.downcast_ref::<reqwest::Error>());
        match cause {
            Some(error) if error.is_connect() => return Self::Unreachable(innermost(error)),
            Some(error) => return Self::Broken(innermost(error)),
            None => {}
        }
        match status.code() {
            // tonic reports a message beyond the limit with these texts; a server has no reason to send them.
            Code::OutOfRange if status.message().contains("message length too large") => Self::TooLarge,
            Code::ResourceExhausted if status.message().starts_with("Error decompressing: size limit") => {
                Self::TooLarge
            }
            code => Self::Refused { code, message: status.message().to_owned(), reason: reason(status.details()) },
        }
    }
}

/// The innermost cause of an error, which is the most specific and contains no address.
fn innermost(error: &dyn Error) -> String {
    causes(error.source()).last().map_or_else(|| "the request failed".to_owned(), ToString::to_string)
}

fn causes<'a>(first: Option<&'a (dyn Error + 'static)>) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(first, |cause| <dyn Error>::source(*cause))
}

/// `google.rpc.Status`; only the list of details is read.
#[derive(Clone, PartialEq, Message)]
struct Details {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.ErrorInfo` without its metadata.
#[derive(Clone, PartialEq, Message)]
struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    domain: String,
}

fn reason(details: &[u8]) -> Option<String> {
    let details = Details::decode(details).ok()?.details;
    let info = details.iter().find(|any| any.type_url.ends_with("/google.rpc.ErrorInfo"))?;
    let reason = ErrorInfo::decode(info.value.as_slice()).ok()?.reason;
    Some(reason).filter(|reason| !reason.is_empty())
}

/// Error details with a `google.rpc.ErrorInfo`.
#[cfg(test)]
pub(super) fn details(code: Code, message: &str, reason: &str, domain: &str) -> Vec<u8> {
    /// `google.rpc.Status` with all fields.
    #[derive(Clone, PartialEq, Message)]
    struct FullStatus {
        #[prost(int32, tag = "1")]
        code: i32,
        #[prost(string, tag = "2")]
        message: String,
        #[prost(message, repeated, tag = "3")]
        details: Vec<Any>,
    }
    let info = ErrorInfo { reason: reason.to_owned(), domain: domain.to_owned() };
    let any = Any { type_url: "type.googleapis.com/google.rpc.ErrorInfo".to_owned(), value: info.encode_to_vec() };
    FullStatus { code: code as i32, message: message.to_owned(), details: vec![any] }.encode_to_vec()
}
