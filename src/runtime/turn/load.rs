//! Load: reads a conversation from its snapshot and the events since.

use segue_engine::{conversation::Conversation, ids::ConversationId};

use crate::{
    runtime::{Inner, mailbox::CachedConversation},
    store::StoreError,
};

/// Reads and folds a conversation; without stored events it is new.
pub(in crate::runtime) async fn load(
    inner: &Inner,
    id: &ConversationId,
) -> Result<Box<CachedConversation>, StoreError> {
    let stored = inner.store.load(id).await?;
    let mut conversation = stored.snapshot.unwrap_or_else(|| Conversation::new(id.clone()));
    stored.tail.iter().for_each(|event| conversation.apply(event));
    Ok(Box::new(CachedConversation {
        conversation,
        version: stored.version,
        known_texts: Default::default(),
        may_have_pending_replies: true,
    }))
}
