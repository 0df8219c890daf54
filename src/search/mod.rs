//! Finding texts: by their words, by vectors, by both, in memory or in a vector store.
//!
//! *For*: flows for a prompt and passages for an answer; who asks decides what becomes of them. *Entry*: [`Index`] for texts
//! in memory, [`Folder`] for documents on disk, [`Qdrant`] for a store of others. *Never*: asks a model (vectors are handed in), and keeps
//! nothing that was asked.
//!
//! | file | holds |
//! | --- | --- |
//! | `words` | what counts as a word |
//! | `lexical` | how well texts cover the words of a question |
//! | [`index`] | both ways of looking, and one order made of them |
//! | [`passages`] | documents cut into pieces of one subject |
//! | [`folder`] | documents of a folder, and whether they changed |
//! | [`qdrant`] | the HTTP interface of Qdrant |

pub mod folder;
pub mod index;
mod lexical;
pub mod passages;
pub mod qdrant;
mod words;

pub use self::{
    folder::{Folder, FolderError},
    index::{Hit, Index, Vector},
    passages::{Found, Passage},
    qdrant::{Qdrant, QdrantError},
};
