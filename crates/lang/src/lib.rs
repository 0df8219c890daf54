//! The small languages that project files contain, text made safe, and a few plain values that every package shares.
//!
//! | module | what it reads or makes |
//! | --- | --- |
//! | [`condition`] | the conditions of flows and responses |
//! | [`template`] | Jinja templates of prompts, responses and conditions |
//! | [`pattern`] | regular expressions, in the dialect of existing projects |
//! | [`text`] | text that is cut, cleaned or shown safely |
//! | [`time`] | a point in time, without a clock |
//! | [`finding`] | what is wrong with a file: code, place, message, help |
//! | [`limits`] | sizes, counts and depths |
//! | [`usage`] | tokens of models' answers and what they cost: kept in events, counted by the clients of models |
//!
//! Nothing here knows a project or a conversation, and nothing waits, reads a clock or opens a file.

pub mod condition;
pub mod finding;
pub mod limits;
pub mod pattern;
pub mod template;
pub mod text;
pub mod time;
pub mod usage;
