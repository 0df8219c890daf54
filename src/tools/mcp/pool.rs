//! All servers of the process: every agent and every call step shares their sessions.

use std::{collections::BTreeMap, sync::Arc};

use futures::future::join_all;
use indexmap::IndexMap;
use segue_engine::{ids::ServerName, project::McpServerDef};

use super::{McpServer, Surroundings};
use crate::{
    cx::Cx,
    tools::{SourceError, SourceStatus, ToolSource},
};

/// The servers by name, in the order of `endpoints.yml`. Cheap to clone; clones share the sessions.
#[derive(Clone, Default)]
pub struct McpServers(Arc<IndexMap<ServerName, Arc<McpServer>>>);

impl McpServers {
    /// The servers of the project. Nothing is connected yet.
    pub fn new<'a>(defs: impl IntoIterator<Item = &'a McpServerDef>, around: &Surroundings) -> Self {
        let server = |def: &McpServerDef| (def.name.clone(), Arc::new(McpServer::new(def, around.clone())));
        Self(Arc::new(defs.into_iter().map(server).collect()))
    }

    /// A pool of servers made elsewhere.
    pub fn of(servers: impl IntoIterator<Item = McpServer>) -> Self {
        let named = |server: McpServer| (ServerName::from(server.name()), Arc::new(server));
        Self(Arc::new(servers.into_iter().map(named).collect()))
    }

    /// The server of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<McpServer>> {
        self.0.get(name)
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<McpServer>> {
        self.0.values()
    }

    /// Connects to all at once and lists their tools; those that cannot be reached are returned, and tried again when
    /// somebody needs them.
    pub async fn connect(&self, cx: &Cx) -> Vec<SourceError> {
        let lists = join_all(self.iter().map(|server| server.list(cx))).await;
        lists.into_iter().filter_map(Result::err).collect()
    }

    /// Who answers, for `/health`.
    pub fn statuses(&self) -> BTreeMap<String, SourceStatus> {
        self.iter().map(|server| (server.name().to_owned(), server.status())).collect()
    }

    /// Closes all at once; waits at most as long as the context allows.
    pub async fn close(&self, cx: &Cx) {
        join_all(self.iter().map(|server| server.close(cx))).await;
    }
}
