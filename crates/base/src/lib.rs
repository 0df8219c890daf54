//! The foundation of every adapter: time, the context of a call, outbound HTTP and its authentication, secrets, limits.
//!
//! | module | content |
//! | --- | --- |
//! | [`clock`] | time as a dependency |
//! | [`manual_clock`] | a clock for tests |
//! | [`context`] | deadline, cancellation and step key of one call |
//! | [`effect`] | effect classes: what may be repeated |
//! | [`http`], `grpc` | clients for other servers: proxies, SSRF protection, bounded bodies |
//! | [`outbound_auth`] | credentials and tokens for other servers |
//! | [`secret`] | secrets that are never printed |
//! | [`environment`] | environment variables |
//! | [`limits`] | every size, count and time limit of the running parts |
//! | [`health`] | whether another server responds |
//! | [`json`] | JSON whose text is not quite valid |
//! | [`sse`] | a decoder of server-sent events |
//! | [`child`] | child processes that end with their owner |
//! | [`process`] | whether a process that a store names has ended |
//! | [`failpoint`] | named points at which a test lets the process crash |
//!
//! Nothing here depends on a project, a model, a tool or a channel.

pub mod child;
pub mod clock;
pub mod context;
pub mod effect;
pub mod environment;
pub mod failpoint;
#[cfg(feature = "grpc")]
pub mod grpc;
pub mod health;
pub mod http;
pub mod json;
pub mod limits;
pub mod manual_clock;
pub mod outbound_auth;
pub mod process;
pub mod secret;
pub mod sse;
