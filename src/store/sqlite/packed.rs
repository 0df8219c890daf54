//! Records of the journal, as a row holds them: `[[build, [[step, kind, request, outcome, at], ...]], ...]`. Those of a batch stand in its row,
//! and those that are written while their turn runs have a row for each write.
//!
//! Names of fields and the build are not written again with every record, so that the rows of two usual turns fit into one page of
//! the file. Files of earlier versions hold a list of objects for a batch, which stays readable.

use std::sync::Arc;

use segue_engine::{
    conversation::codec::{self, CodecError},
    ids::ConversationId,
    time::Timestamp,
};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::{cx::StepKey, store::JournalRecord};

/// Bytes of a usual record.
const USUAL: usize = 256;

/// A record without its build.
type Fields = (StepKey, Arc<str>, Arc<str>, Option<Arc<str>>, Timestamp);

/// Records of one build that follow each other.
struct Run<'a>(&'a [JournalRecord]);

impl Serialize for Run<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.iter().map(|of| (&of.key, &of.kind, &of.request, &of.outcome, of.at)))
    }
}

struct Runs<'a>(&'a [JournalRecord]);

impl Serialize for Runs<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let runs = self.0.chunk_by(|one, next| one.build == next.build);
        to.collect_seq(runs.map(|run| (run.first().map(|record| record.build), Run(run))))
    }
}

/// Writes the journal of batch `number`, or a part of that of turn `number`.
pub(super) fn pack(id: &ConversationId, number: u64, records: &[JournalRecord]) -> Result<Vec<u8>, CodecError> {
    codec::seal(id.as_str(), number, &Runs(records), USUAL * records.len())
}

/// Reads what [`pack`] wrote, or an earlier version.
pub(super) fn unpack(id: &ConversationId, number: u64, record: &[u8]) -> Result<Vec<JournalRecord>, CodecError> {
    let body: &RawValue = codec::open(id.as_str(), number, record)?;
    let wrong = |e: serde_json::Error| CodecError::Body(e.to_string());
    if body.get().starts_with("[{") {
        return serde_json::from_str(body.get()).map_err(wrong);
    }
    let runs: Vec<(u64, Vec<Fields>)> = Deserialize::deserialize(body).map_err(wrong)?;
    let records = |(build, run): (u64, Vec<Fields>)| {
        run.into_iter().map(move |(key, kind, request, outcome, at)| JournalRecord {
            key,
            kind,
            request,
            outcome,
            at,
            build,
        })
    };
    Ok(runs.into_iter().flat_map(records).collect())
}

#[cfg(test)]
mod tests;
