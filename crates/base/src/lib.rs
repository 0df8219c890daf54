//! What every adapter needs: time, the context of a call, outbound HTTP with its guards, authentication, secrets, limits.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`clock`] | time as a dependency |
//! | [`cx`] | deadline, cancellation and ids of one call |
//! | [`effect`] | what may be repeated |
//! | [`http`], `grpc` | clients for other servers: proxies, guarded addresses, bounded bodies |
//! | [`auth`] | credentials and tokens for other servers |
//! | [`secret`], [`environment`] | secrets that are never printed; variables of the environment |
//! | [`limits`] | every size, count and time limit of the running parts |
//! | [`health`] | whether another server was reached |
//! | [`child`] | child processes that end with their owner |
//! | [`failpoint`] | named places where a test lets the process die |
//!
//! Nothing here knows a project, a model, a tool or a channel.

pub mod auth;
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
pub mod limits;
pub mod manual_clock;
pub mod secret;
