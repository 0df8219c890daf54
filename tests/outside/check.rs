//! What must hold when everything is quiet again.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use segue::{Assistant, store::SqliteStore};

use crate::{
    clients::{Answered, Crowd},
    payments::{self, Fault, Payments},
    server::Ground,
};

/// What the user was told about a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    Paid,
    Unknown,
    Refused,
    /// That something went wrong, before or after.
    Sorry,
}

fn told(replies: &[String]) -> Told {
    let has = |word: &str| replies.iter().any(|reply| reply.contains(word));
    if has("PAID") {
        Told::Paid
    } else if has("UNKNOWN") || has("MAY HAVE HAPPENED") {
        Told::Unknown
    } else if has("FAILED") {
        Told::Refused
    } else {
        Told::Sorry
    }
}

/// Holds what people were told against what the payment server did. `stored` has the replies to each message.
pub(crate) fn payments(
    crowd: &Crowd,
    payments: &Payments,
    stored: &HashMap<String, Vec<String>>,
) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    let answered = crowd.answered.lock().unwrap().clone();
    for Answered { reference, .. } in &answered {
        let Some(replies) = stored.get(reference) else { continue };
        let made = payments.count(reference);
        if made > 1 {
            crowd.wrong(format!("{reference} was paid {made} times"));
        }
        if reference.starts_with("ref-t-") {
            continue;
        }
        let (told, fault) = (told(replies), payments::fault(reference));
        *counts.entry(format!("{told:?}, made {made}")).or_default() += 1;
        let fits = match told {
            Told::Paid => made == 1 && matches!(fault, Fault::None | Fault::Slow),
            // Whether a server that answers 500 has done it, nobody can know; nor after a kill.
            Told::Unknown => true,
            Told::Refused => made == 0,
            // An agent may fail after it has paid; that something went wrong says nothing of the payment then.
            Told::Sorry => made == 0 || reference.starts_with("ref-a-"),
        };
        if !fits {
            crowd.wrong(format!("{reference} ({fault:?}) was paid {made} times, and the user heard {replies:?}"));
        }
    }
    let known: HashMap<&str, ()> = answered.iter().map(|one| (&*one.reference, ())).collect();
    let mut keys: HashMap<String, String> = HashMap::new();
    for (reference, made) in payments.all() {
        if !known.contains_key(&*reference) && !reference.contains("stuck") {
            crowd.wrong(format!("{reference} was paid, and nobody was told"));
        }
        for payment in made {
            let Some(key) = payment.key else {
                crowd.wrong(format!("{reference}: a write came without an idempotency key"));
                continue;
            };
            if let Some(other) = keys.insert(key.clone(), reference.clone())
                && other != reference
            {
                crowd.wrong(format!("{reference} and {other} came with one idempotency key: {key}"));
            }
        }
    }
    counts
}

/// Looks into the store: one turn for each message, none open, every conversation the same when it is replayed.
/// The replies to each message, and how many conversations were replayed.
pub(crate) async fn store(crowd: &Crowd, ground: &Ground, replays: usize) -> (HashMap<String, Vec<String>>, usize) {
    let store = Arc::new(SqliteStore::open(&ground.database(), false).unwrap());
    let assistant = Assistant::builder(ground.path("")).unwrap().offline().store(store).build().unwrap();
    let answered = crowd.answered.lock().unwrap().clone();
    let mut by_conversation: BTreeMap<String, Vec<Answered>> = BTreeMap::new();
    for one in answered {
        by_conversation.entry(one.conversation.clone()).or_default().push(one);
    }
    let (mut stored, mut replayed) = (HashMap::new(), 0);
    for (conversation, messages) in &by_conversation {
        let id = conversation.as_str().into();
        let turns = assistant.store().turns(&id).await.unwrap();
        let mut seen: HashMap<String, u64> = HashMap::new();
        for turn in &turns {
            let texts = turn.replies.iter().filter_map(|reply| reply.reply.text.as_deref().map(str::to_owned));
            stored.insert(turn.inbound.message.message_id.to_string(), texts.collect::<Vec<_>>());
            *seen.entry(turn.inbound.message.message_id.to_string()).or_default() += 1;
        }
        for message in messages {
            match seen.get(&message.reference) {
                Some(1) => {}
                other => crowd.wrong(format!("{}: {other:?} turns for one message", message.reference)),
            }
            let own = stored.get(&message.reference).cloned().unwrap_or_default();
            let ours = |text: &&str| text.starts_with(&message.reference);
            let mentioned = own.iter().flat_map(|text| text.match_indices("ref-").map(move |(at, _)| &text[at..]));
            for other in mentioned.filter(|other| !ours(other)) {
                crowd.wrong(format!("{}: its reply speaks of another message: {other}", message.reference));
            }
            if !own
                .iter()
                .all(|text| message.replies.iter().any(|heard| text.contains(heard.as_str()) || heard == text))
            {
                crowd.wrong(format!("{}: {:?} was answered, {own:?} is stored", message.reference, message.replies));
            }
        }
        let open = assistant.store().unfinished_turns(&id).await.unwrap();
        if !open.is_empty() {
            crowd.wrong(format!("{conversation} has {} open turns", open.len()));
        }
        if replayed < replays {
            replayed += 1;
            match assistant.replay(&id).await {
                Ok(None) => {}
                Ok(Some(difference)) => crowd.wrong(format!("{conversation} replays otherwise: {difference:?}")),
                Err(error) => crowd.wrong(format!("{conversation} cannot be replayed: {error}")),
            }
        }
    }
    (stored, replayed)
}
