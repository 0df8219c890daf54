//! Text search: lexical (BM25), by embedding vectors, or both; in memory or in a vector store.
//!
//! It serves flow retrieval and the search in documents: [`HybridIndex`] for texts in memory, [`Folder`] for documents on disk,
//! [`Qdrant`] for an external vector store. It calls no model, vectors are passed in, and it stores no queries.
//!
//! | file | contents |
//! | --- | --- |
//! | `tokenizer` | splits text into index terms |
//! | `bm25` | the lexical score |
//! | [`index`] | lexical and vector ranking, and their fusion |
//! | [`splitter`] | splits documents into passages |
//! | [`folder`] | the documents of a folder, and whether they changed |
//! | [`qdrant`] | a client of the HTTP API of Qdrant |

mod bm25;
pub mod folder;
pub mod index;
pub mod qdrant;
pub mod splitter;
mod tokenizer;

pub use self::{
    folder::{Folder, FolderError},
    index::{Hit, HybridIndex, Vector},
    qdrant::{Qdrant, QdrantError},
    splitter::{Passage, ScoredPassage},
};
