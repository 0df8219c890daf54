//! Why there is no answer.

use std::error::Error;

use prost::Message;
pub use tonic::Code;
use tonic::Status;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrpcError {
    /// No connection came about: nothing was sent.
    Unreachable(String),
    /// The connection broke.
    Broken(String),
    /// The server says so.
    Refused {
        /// How.
        code: Code,
        /// In its words.
        message: String,
        /// The word for programs, where it says one beside.
        reason: Option<String>,
    },
    /// A message is larger than is taken.
    TooLarge,
    /// It took too long.
    Late,
    /// Nobody waits for it any more.
    Cancelled,
}

impl GrpcError {
    /// Reads what a call ended with.
    pub(super) fn of(status: Status) -> Self {
        let cause = causes(status.source()).find_map(|cause| cause.downcast_ref::<reqwest::Error>());
        match cause {
            Some(error) if error.is_connect() => return Self::Unreachable(innermost(error)),
            Some(error) => return Self::Broken(innermost(error)),
            None => {}
        }
        match status.code() {
            // What our side says of a message beyond the limit; no server has a reason to say the same.
            Code::OutOfRange if status.message().contains("message length too large") => Self::TooLarge,
            Code::ResourceExhausted if status.message().starts_with("Error decompressing: size limit") => {
                Self::TooLarge
            }
            code => Self::Refused { code, message: status.message().to_owned(), reason: reason(status.details()) },
        }
    }
}

/// The innermost reason of an error, which says most and holds no address.
fn innermost(error: &dyn Error) -> String {
    causes(error.source()).last().map_or_else(|| "the request failed".to_owned(), ToString::to_string)
}

fn causes<'a>(first: Option<&'a (dyn Error + 'static)>) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(first, |cause| <dyn Error>::source(*cause))
}

/// The details of a refusal: `google.rpc.Status`, of which only the list of details is read.
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

/// `google.rpc.ErrorInfo`, without what stands beside.
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

/// The details that tell a program why something was refused.
#[cfg(test)]
pub(super) fn details(code: Code, message: &str, reason: &str, domain: &str) -> Vec<u8> {
    /// `google.rpc.Status`, whole.
    #[derive(Clone, PartialEq, Message)]
    struct Whole {
        #[prost(int32, tag = "1")]
        code: i32,
        #[prost(string, tag = "2")]
        message: String,
        #[prost(message, repeated, tag = "3")]
        details: Vec<Any>,
    }
    let info = ErrorInfo { reason: reason.to_owned(), domain: domain.to_owned() };
    let any = Any { type_url: "type.googleapis.com/google.rpc.ErrorInfo".to_owned(), value: info.encode_to_vec() };
    Whole { code: code as i32, message: message.to_owned(), details: vec![any] }.encode_to_vec()
}
