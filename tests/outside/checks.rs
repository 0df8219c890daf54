//! The guarantees that are checked after the run, when the server has stopped.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use segue::{Assistant, store::SqliteStore};

use crate::{
    clients::{AnsweredMessage, Workload},
    payment_server::{self, Fault, PaymentServer},
    server::ProjectCopy,
};

/// The replies to each message, by the reference of the message.
pub(crate) type StoredReplies = HashMap<String, Vec<String>>;

/// The outcome of a payment according to the replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ReportedOutcome {
    Paid,
    Unknown,
    Refused,
    /// The replies report an error, and that the payment was made.
    PartlyDone,
    /// The replies report an error and do not mention the payment.
    Error,
}

fn reported_outcome(replies: &[String]) -> ReportedOutcome {
    let has = |word: &str| replies.iter().any(|reply| reply.contains(word));
    if has("PAID") {
        ReportedOutcome::Paid
    } else if has("UNKNOWN") || has("MAY HAVE HAPPENED") {
        ReportedOutcome::Unknown
    } else if has("PARTLY DONE: pay") {
        ReportedOutcome::PartlyDone
    } else if has("FAILED") {
        ReportedOutcome::Refused
    } else {
        ReportedOutcome::Error
    }
}

/// Checks that no payment is made twice, that replies report the true outcome, and that each payment has an idempotency key of its own.
/// Returns how often each combination of reported outcome and number of payments occurs.
pub(crate) fn check_payments(
    workload: &Workload,
    payments: &PaymentServer,
    stored: &StoredReplies,
) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    let answers = workload.answers.lock().unwrap().clone();
    for AnsweredMessage { reference, .. } in &answers {
        let Some(replies) = stored.get(reference) else { continue };
        let count = payments.count(reference);
        if count > 1 {
            workload.violation(format!("{reference} was paid {count} times"));
        }
        if reference.starts_with("ref-t-") {
            continue;
        }
        let (outcome, fault) = (reported_outcome(replies), payment_server::fault(reference));
        *counts.entry(format!("{outcome:?}, paid {count} times")).or_default() += 1;
        let is_true = match outcome {
            ReportedOutcome::Paid => count == 1 && matches!(fault, Fault::None | Fault::Slow | Fault::Large),
            // After status 500 or a kill the payment may or may not have been made.
            ReportedOutcome::Unknown => true,
            ReportedOutcome::Refused => count == 0,
            ReportedOutcome::PartlyDone => count == 1 && matches!(fault, Fault::None | Fault::Slow | Fault::Large),
            ReportedOutcome::Error => count == 0,
        };
        if !is_true {
            workload
                .violation(format!("{reference} ({fault:?}) was paid {count} times, but the replies are {replies:?}"));
        }
    }
    let answered: HashSet<&str> = answers.iter().map(|message| &*message.reference).collect();
    let mut keys: HashMap<String, String> = HashMap::new();
    for (reference, payments) in payments.all() {
        if !reference.starts_with("ref-m-") && !answered.contains(&*reference) {
            workload.violation(format!("{reference} was paid, but no message with this reference was answered"));
        }
        for payment in payments {
            let Some(key) = payment.idempotency_key else {
                workload.violation(format!("{reference}: a payment without an idempotency key"));
                continue;
            };
            if let Some(other) = keys.insert(key.clone(), reference.clone())
                && other != reference
            {
                workload.violation(format!("{reference} and {other} have the same idempotency key: {key}"));
            }
        }
    }
    counts
}

/// Checks the store: each message has exactly one turn, no turn is unfinished, replies belong to their message and match those that the
/// client received, and every conversation replays to the same events. Returns the stored replies and the number of conversations.
pub(crate) async fn check_store(workload: &Workload, project: &ProjectCopy) -> (StoredReplies, usize) {
    let store = Arc::new(SqliteStore::open(&project.database(), false).unwrap());
    let assistant = Assistant::builder(project.path("")).unwrap().offline().store(store).build().unwrap();
    let mut by_conversation: BTreeMap<String, Vec<AnsweredMessage>> = BTreeMap::new();
    for message in workload.answers.lock().unwrap().iter().cloned() {
        by_conversation.entry(message.conversation.clone()).or_default().push(message);
    }
    let mut stored = StoredReplies::new();
    for (conversation, messages) in &by_conversation {
        let id = conversation.as_str().into();
        let turns = assistant.store().turns(&id).await.unwrap();
        let mut turn_counts: HashMap<String, u64> = HashMap::new();
        for turn in &turns {
            let texts = turn.replies.iter().filter_map(|reply| reply.reply.text.as_deref().map(str::to_owned));
            stored.insert(turn.inbound.message.message_id.to_string(), texts.collect());
            *turn_counts.entry(turn.inbound.message.message_id.to_string()).or_default() += 1;
        }
        for AnsweredMessage { reference, replies, .. } in messages {
            let turns = turn_counts.get(reference).copied().unwrap_or_default();
            if turns != 1 {
                workload.violation(format!("{reference}: {turns} turns for one message"));
            }
            let texts = stored.get(reference).cloned().unwrap_or_default();
            let mentioned = texts.iter().flat_map(|text| text.match_indices("ref-").map(move |(at, _)| &text[at..]));
            for other in mentioned.filter(|mentioned| !mentioned.starts_with(reference)) {
                workload.violation(format!("{reference}: a reply mentions another message: {other}"));
            }
            if !texts.iter().all(|text| replies.iter().any(|reply| text.contains(reply.as_str()))) {
                workload.violation(format!("{reference}: the client received {replies:?}, but {texts:?} is stored"));
            }
        }
        let unfinished = assistant.store().unfinished_turns(&id).await.unwrap();
        if !unfinished.is_empty() {
            workload.violation(format!("{conversation} has {} unfinished turns", unfinished.len()));
        }
        match assistant.replay(&id).await {
            Ok(None) => {}
            Ok(Some(difference)) => {
                workload.violation(format!("the replay of {conversation} differs: {difference:?}"));
            }
            Err(error) => workload.violation(format!("{conversation} cannot be replayed: {error}")),
        }
    }
    (stored, by_conversation.len())
}
