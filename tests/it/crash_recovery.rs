//! A process crashes in the middle of a turn and another process takes the turn over. No accepted message is lost, no message starts two
//! turns, and a call that writes is never sent twice.
//!
//! The crashes are real: `SEGUE_FAILPOINT` makes the server abort at a named point (`crates/base/src/failpoint.rs`), and the next server
//! opens the same SQLite file.

mod actions;
mod background;
mod confirmations;
mod tool_calls;
mod turns;

/// The failpoints of these tests. `NAME@2` is the second hit of a failpoint.
mod failpoint {
    /// Before the message is stored.
    pub(super) const BEFORE_ACCEPT: &str = "C03";
    /// The message is stored; the channel does not know it yet.
    pub(super) const AFTER_ACCEPT: &str = "C04";
    /// The message is accepted; its turn has not begun.
    pub(super) const BEFORE_TURN: &str = "C05";
    /// A model has accepted a request; its answer is not read yet.
    pub(super) const AFTER_MODEL_CALL: &str = "C08";
    pub(super) const AFTER_SECOND_MODEL_CALL: &str = "C08@2";
    pub(super) const AFTER_THIRD_MODEL_CALL: &str = "C08@3";
    /// A part of a streamed reply was sent.
    pub(super) const AFTER_DELTA: &str = "C09";
    /// A part of the last streamed reply was sent.
    pub(super) const DURING_LAST_REPLY: &str = "C09@5";
    /// The intent of a call is stored; nothing of the call was sent.
    pub(super) const AFTER_INTENT: &str = "C11";
    pub(super) const AFTER_SECOND_INTENT: &str = "C11@2";
    /// Half of the request was sent.
    pub(super) const DURING_REQUEST: &str = "C12";
    /// The request was sent; the response has not arrived.
    pub(super) const AFTER_REQUEST: &str = "C13";
    /// The response has arrived; the outcome is not stored.
    pub(super) const BEFORE_OUTCOME_STORED: &str = "C14";
    /// The outcome is stored; the flow or the agent has not got it.
    pub(super) const AFTER_OUTCOME_STORED: &str = "C15";
    pub(super) const AFTER_SECOND_OUTCOME_STORED: &str = "C15@2";
    pub(super) const AFTER_THIRD_OUTCOME_STORED: &str = "C15@3";
    pub(super) const AFTER_FOURTH_INTENT: &str = "C11@4";
    /// Everything of the turn is ready to be committed.
    pub(super) const BEFORE_COMMIT: &str = "C19";
    /// The turn is committed; the runtime does not know it yet.
    pub(super) const AFTER_COMMIT: &str = "C20";
    /// The turn is committed; its replies are not delivered.
    pub(super) const BEFORE_DELIVERY: &str = "C21";
    /// The replies are delivered; no receipt is stored.
    pub(super) const BEFORE_RECEIPT: &str = "C22";
    /// The receipt is stored.
    pub(super) const AFTER_RECEIPT: &str = "C23";
}

/// What must be true of a booking after the recovery.
#[derive(Clone, Copy, PartialEq)]
enum Expected {
    /// The booking was made once, and the user gets its reference.
    Booked,
    /// The booking was made at most once, and the reply says that the outcome is unknown.
    Unknown,
}

/// The name of a failpoint without the number of the hit.
fn failpoint_name(failpoint: &str) -> &str {
    failpoint.split('@').next().unwrap()
}
