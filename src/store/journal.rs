//! The recorded door: whether an effect may leave, and what came of it.
//!
//! The rules (decisions.md 3, 13.1 and 13.5), which every caller relies on:
//!
//! * A `read` leaves at once. Its outcome is kept pending and is written with the next commit that must happen anyway.
//! * An `idempotent` or a `write` leaves only after its intent **and everything pending** are durable: the answer of a model
//!   is stored before the first effect it decided.
//! * The outcome of such an effect is durable when [`Journal::finish`] returns.
//! * What has a recorded outcome never leaves again. A `write` whose intent has no outcome never leaves again either: it is
//!   [`Begun::Unknown`]. An `idempotent` one leaves again, with the same key.
//! * A request that changed is an error, never a silent second run.
//! * All tries of a turn in one process share one journal: an outcome that could not be stored is known to the next one, and is
//!   stored before anything else.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::BoxFuture;
use segue_engine::{ids::ConversationId, time::Timestamp};

use super::{JournalRecord, Store, StoreError, TurnNumber};
use crate::{clock::Clock, cx::StepKey, effect::Effect, failpoint};

/// What the journal says before an effect.
#[derive(Clone, Debug, PartialEq)]
pub enum Begun {
    /// Nothing is recorded that forbids it: perform it, then call [`Journal::finish`].
    Fresh,
    /// It was performed before, with this outcome. Do not perform it.
    Done {
        /// The outcome as JSON text.
        outcome: Arc<str>,
        /// When it came.
        at: Timestamp,
    },
    /// A `write` that may have happened: do not perform it, tell whoever asked. [`Journal::finish`] may record what was told.
    Unknown,
    /// Another build recorded this step: nothing may be replayed. The runtime turns what is recorded into events.
    OtherBuild,
}

/// What is known of a step before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has an outcome.
    Done,
    /// It has none.
    Open,
    /// It has none, and never gets one: nothing leaves here.
    Never,
}

/// The recorded door of one turn. Decorators of models, tools and actions hold it; the loop behind them does not know it.
pub trait Journal: Send + Sync {
    /// Asks whether the effect at `key` may leave. `kind` is one of the kinds of [`JournalRecord`], `request` the hash of what
    /// will be sent. *Cancellation*: an intent may be stored; a later begin then sees it.
    ///
    /// # Errors
    /// [`StoreError::RequestChanged`]; those of [`Store::journal`] when something had to be written.
    fn begin<'a>(
        &'a self,
        key: &'a StepKey,
        kind: &'a str,
        effect: Effect,
        request: &'a str,
    ) -> BoxFuture<'a, Result<Begun, StoreError>>;

    /// What is known of the effect at `key`, without beginning it: whoever may find that there is nothing to be done asks this first.
    fn standing(&self, key: &StepKey, kind: &str, request: &str) -> Standing {
        let _ = (key, kind, request);
        Standing::Open
    }

    /// What is recorded of the step at `key`, whatever it asked for: its outcome, or the intent of a step that may have happened.
    /// Whoever would need a server to know what to ask for looks here first: after a crash the server may be away.
    fn recorded(&self, key: &StepKey) -> Option<JournalRecord> {
        let _ = key;
        None
    }

    /// Records the outcome, JSON text, of an effect that began. *Cancellation*: the outcome may be lost; the step is then as
    /// after a crash.
    ///
    /// # Errors
    /// [`StoreError::NotRecorded`] for a step that did not begin; those of [`Store::journal`].
    fn finish<'a>(
        &'a self,
        key: &'a StepKey,
        outcome: Arc<str>,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Marks that pieces of this reply are about to be shown, before the first of them is; durable when it returns.
    ///
    /// # Errors
    /// Those of [`Store::journal`].
    fn speaking<'a>(&'a self, reply_id: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// The kind of the mark that [`Journal::speaking`] leaves.
pub(crate) const SPEAKING: &str = "speaking";

/// The mark of a reply.
pub(super) fn speaking(reply_id: &str, at: Timestamp, build: u64) -> JournalRecord {
    let key = StepKey::root().child(SPEAKING).child(reply_id);
    JournalRecord { key, kind: SPEAKING.into(), request: reply_id.into(), outcome: None, at, build }
}

/// The kind of the record that counts how often a turn was tried.
pub(super) const ATTEMPTS: &str = "attempts";

/// The kind of a list of tools that a model is offered. It matters once an answer to the offer is recorded, and travels with that.
pub(crate) const OFFERED: &str = "tools";

/// The journal of a turn that runs, over a [`Store`].
pub struct TurnJournal {
    store: Arc<dyn Store>,
    conversation: ConversationId,
    turn: TurnNumber,
    /// Hash of engine version and project.
    build: u64,
    clock: Arc<dyn Clock>,
    /// Never held across a wait.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The latest record of each step, from before a crash and from now.
    known: HashMap<StepKey, Known>,
    /// Outcomes that are not durable yet, in order. They leave the list when a write that carried them has succeeded, so that
    /// two writes under way at once both carry them, whichever arrives first.
    pending: Vec<JournalRecord>,
    /// Why the present try cannot go on: nothing more begins in it.
    halted: Option<StoreError>,
}

struct Known {
    record: JournalRecord,
    /// `None` until the step begins in this process.
    effect: Option<Effect>,
}

impl TurnJournal {
    /// A journal for `turn`. `recorded` is what an earlier process left of it, empty for a new turn; `build` is the hash of
    /// engine version and project.
    pub fn new(
        store: Arc<dyn Store>,
        conversation: ConversationId,
        turn: TurnNumber,
        build: u64,
        clock: Arc<dyn Clock>,
        recorded: Vec<JournalRecord>,
    ) -> Self {
        let known = recorded.into_iter().map(|record| (record.key.clone(), Known { record, effect: None })).collect();
        let state = State { known, ..State::default() };
        Self { store, conversation, turn, build, clock, state: Mutex::new(state) }
    }

    /// How often the turn of `recorded` was tried, as far as that tells: one that is found open was tried once at least.
    pub fn attempts(recorded: &[JournalRecord]) -> u32 {
        let count = recorded.iter().find(|record| &*record.kind == ATTEMPTS);
        count.and_then(|record| record.outcome.as_deref()?.parse().ok()).unwrap_or(1)
    }

    /// The replies of `recorded` that had begun to be shown.
    pub fn spoken(recorded: &[JournalRecord]) -> impl Iterator<Item = &Arc<str>> {
        recorded.iter().filter(|record| &*record.kind == SPEAKING).map(|record| &record.request)
    }

    /// The outcomes that are not durable yet, for the batch of the turn. They stay, for the batch may fail. Call it once nothing is
    /// under way.
    pub fn pending(&self) -> Vec<JournalRecord> {
        self.lock().pending.clone()
    }

    /// The latest record of each step, stored or not, in the order of their keys.
    pub fn records(&self) -> Vec<JournalRecord> {
        let mut records: Vec<_> = self.lock().known.values().map(|known| known.record.clone()).collect();
        records.sort_by(|one, other| one.key.cmp(&other.key));
        records
    }

    /// Counts that the turn is tried for the `number`th time, from 1, together with the outcomes that are not durable yet; durable
    /// when it returns. The first time needs no count.
    ///
    /// # Errors
    /// Those of [`Store::journal`]: then the turn must not be tried.
    pub async fn count(&self, number: u32) -> Result<(), StoreError> {
        let key = StepKey::new(self.turn.0.to_string()).child(ATTEMPTS);
        let mut record = self.record(&key, ATTEMPTS, "");
        record.outcome = Some(number.to_string().into());
        self.flush(Some(record.clone())).await?;
        self.lock().known.insert(key, Known { record, effect: None });
        self.begin_again();
        Ok(())
    }

    /// Another try begins: what halted the one before does not concern it.
    pub fn begin_again(&self) {
        self.lock().halted = None;
    }

    fn record(&self, key: &StepKey, kind: &str, request: &str) -> JournalRecord {
        JournalRecord {
            key: key.clone(),
            kind: kind.into(),
            request: request.into(),
            outcome: None,
            at: self.clock.now(),
            build: self.build,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what is pending, then the intent if there is one, in one transaction.
    async fn flush(&self, intent: Option<JournalRecord>) -> Result<(), StoreError> {
        let mut records = self.lock().pending.clone();
        records.extend(intent);
        if records.is_empty() {
            return Ok(());
        }
        self.store.journal(&self.conversation, self.turn, records.clone()).await?;
        self.lock().pending.retain(|record| !records.contains(record));
        Ok(())
    }

    /// After an error of the store, or a record that does not fit, nothing more begins in this try: what would come of it is not
    /// what the turn does when it is tried again. What is under way still finishes.
    fn halt<T>(&self, done: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error) = &done {
            self.lock().halted.get_or_insert_with(|| error.clone());
        }
        done
    }

    fn may_begin(&self) -> Result<(), StoreError> {
        self.lock().halted.clone().map_or(Ok(()), Err)
    }

    async fn begin_step(&self, key: &StepKey, kind: &str, effect: Effect, request: &str) -> Result<Begun, StoreError> {
        self.may_begin()?;
        let record = self.record(key, kind, request);
        let again = match self.recall(&record, effect)? {
            Recalled::Answer(begun) => return Ok(begun),
            Recalled::Again => true,
            Recalled::New => false,
        };
        if effect == Effect::Read {
            return Ok(Begun::Fresh);
        }
        // The intent of a step that is done again is durable already; what led to it may not be.
        if let Err(error) = self.flush((!again).then_some(record)).await {
            if !again && !matches!(error, StoreError::AlreadyBegun { .. }) {
                // Whoever asked may ask again: the intent must not count as written.
                self.lock().known.remove(key);
            }
            return Err(error);
        }
        failpoint::hit("C11");
        Ok(Begun::Fresh)
    }

    /// What is known of the step of `record`, which becomes known now.
    fn recall(&self, record: &JournalRecord, effect: Effect) -> Result<Recalled, StoreError> {
        let mut state = self.lock();
        let Some(known) = state.known.get_mut(&record.key) else {
            state.known.insert(record.key.clone(), Known { record: record.clone(), effect: Some(effect) });
            return Ok(Recalled::New);
        };
        known.effect = Some(effect);
        if known.record.build != self.build {
            return Ok(Recalled::Answer(Begun::OtherBuild));
        }
        if effect == Effect::Read && known.record.outcome.is_none() {
            // Asked before in this process, without an answer: nothing is stored that it could contradict.
            known.record.clone_from(record);
            return Ok(Recalled::New);
        }
        Ok(match answer(&known.record, effect, &record.request)? {
            Begun::Fresh => Recalled::Again,
            begun => Recalled::Answer(begun),
        })
    }

    async fn finish_step(&self, key: &StepKey, outcome: Arc<str>, at: Timestamp) -> Result<(), StoreError> {
        let effect = {
            let mut state = self.lock();
            let begun = state.known.get_mut(key).and_then(|known| Some((known.effect?, &mut known.record)));
            let Some((effect, record)) = begun else {
                return Err(StoreError::NotRecorded { key: key.clone(), kind: "finish".into() });
            };
            (record.outcome, record.at, record.build) = (Some(outcome), at, self.build);
            let record = record.clone();
            // Pending even when it is written at once: should that fail, the batch of the turn carries it.
            state.pending.push(record);
            effect
        };
        if effect != Effect::Read {
            failpoint::hit("C14");
            self.flush(None).await?;
            failpoint::hit("C15");
        }
        Ok(())
    }

    async fn mark(&self, reply_id: &str) -> Result<(), StoreError> {
        self.may_begin()?;
        let record = speaking(reply_id, self.clock.now(), self.build);
        if self.lock().known.contains_key(&record.key) {
            return Ok(());
        }
        if self.lock().pending.iter().all(|pending| *pending.kind == *OFFERED) {
            // Nothing is decided yet that words could depend on.
            self.store.journal(&self.conversation, self.turn, vec![record.clone()]).await?;
        } else {
            self.flush(Some(record.clone())).await?;
        }
        self.lock().known.insert(record.key.clone(), Known { record, effect: None });
        Ok(())
    }
}

/// What is known of a step that begins.
enum Recalled {
    /// Nothing.
    New,
    /// It began before and may be performed again.
    Again,
    /// It must not be performed.
    Answer(Begun),
}

/// What a record of the same build says to a step that begins.
pub(super) fn answer(record: &JournalRecord, effect: Effect, request: &str) -> Result<Begun, StoreError> {
    if *record.request != *request {
        return Err(StoreError::RequestChanged {
            key: record.key.clone(),
            recorded: record.request.clone(),
            found: request.into(),
        });
    }
    Ok(match (&record.outcome, effect) {
        (Some(outcome), _) => Begun::Done { outcome: outcome.clone(), at: record.at },
        (None, Effect::Write) => Begun::Unknown,
        (None, Effect::Read | Effect::Idempotent) => Begun::Fresh,
    })
}

impl Journal for TurnJournal {
    fn begin<'a>(
        &'a self,
        key: &'a StepKey,
        kind: &'a str,
        effect: Effect,
        request: &'a str,
    ) -> BoxFuture<'a, Result<Begun, StoreError>> {
        Box::pin(async move { self.halt(self.begin_step(key, kind, effect, request).await) })
    }

    fn standing(&self, key: &StepKey, _: &str, _: &str) -> Standing {
        let state = self.lock();
        let done = state.known.get(key).is_some_and(|known| known.record.outcome.is_some());
        if done { Standing::Done } else { Standing::Open }
    }

    fn recorded(&self, key: &StepKey) -> Option<JournalRecord> {
        let state = self.lock();
        let known = state.known.get(key)?;
        // What began in this process and may be repeated is no more in doubt than its caller says.
        let may_have_happened = matches!(known.effect, None | Some(Effect::Write));
        (known.record.outcome.is_some() || may_have_happened).then(|| known.record.clone())
    }

    fn finish<'a>(
        &'a self,
        key: &'a StepKey,
        outcome: Arc<str>,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move { self.halt(self.finish_step(key, outcome, at).await) })
    }

    fn speaking<'a>(&'a self, reply_id: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(self.mark(reply_id))
    }
}

#[cfg(test)]
mod tests;
