//! The expression languages that project files contain, safe handling of text, and a few plain values shared by every package.
//!
//! | module | content |
//! | --- | --- |
//! | [`condition`] | conditions of flows and responses |
//! | [`template`] | Jinja templates of prompts, responses and conditions |
//! | [`regex_dialect`] | regular expressions in the dialect of Python's `re` |
//! | [`text`] | truncating text; removing or escaping hidden characters |
//! | [`time`] | a point in time, without a clock |
//! | [`finding`] | a problem in a project file: code, location, message, help |
//! | [`limits`] | sizes, counts and depths |
//! | [`usage`] | tokens of model calls and their cost |
//!
//! Nothing here depends on a project or a conversation, and nothing waits, reads a clock or opens a file.

pub mod condition;
pub mod finding;
pub mod limits;
pub mod regex_dialect;
pub mod template;
pub mod text;
pub mod time;
pub mod usage;
