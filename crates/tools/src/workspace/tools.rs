//! The tools of one agent in a workspace. Their descriptions and schemas are in `prompts/workspace.json`.

use std::{collections::HashMap, io::BufReader, marker::PhantomData, sync::Arc, sync::LazyLock};

use async_trait::async_trait;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use super::{
    Abandoned, Change, Inner, Workspace, Written,
    bash::BashTool,
    clarification::{Clarification, ClarificationField, ClarificationKind},
    error::FileError,
    folder::{Hash, HashingReader},
    lines::{is_binary, next_line},
    path::{Area, VirtualPath},
    readers::{ReadVersions, Readers},
    registry::Workspaces,
    sandbox::Sandbox,
    search::{self, Grep},
};
use crate::{
    ArgumentCheck, EffectClass, FailureKind, Tool, ToolCallContext, ToolCaller, ToolHandler, ToolInfo, ToolOutcome,
    ToolOutput,
    messages::{ToolMessage, render_message},
    tool::deserialize_arguments,
};
use segue_base::limits;

/// The source of these tools.
pub const SOURCE: &str = "workspace";
/// Lists a folder.
pub const LS: &str = "ls";
/// Reads a file.
pub const READ_FILE: &str = "read_file";
/// Writes a file.
pub const WRITE_FILE: &str = "write_file";
/// Replaces text in a file.
pub const STR_REPLACE: &str = "str_replace";
/// Finds files.
pub const GLOB: &str = "glob";
/// Finds lines.
pub const GREP: &str = "grep";
/// Runs a command.
pub const BASH: &str = "bash";
/// Shows files to the user.
pub const PRESENT_FILES: &str = "present_files";
/// The field of `_meta` of a result with the SHA-256 of the whole file that was read or written, from which a turn that runs again restores
/// what the agent knows.
const CONTENT: &str = "sha256";
/// Asks the user a question.
pub const ASK_CLARIFICATION: &str = "ask_clarification";

const FILE: &str = include_str!("../../prompts/workspace.json");

#[derive(Deserialize)]
pub(super) struct Definition {
    description: String,
    parameters: Json,
}

pub(super) static DEFINITIONS: LazyLock<HashMap<String, Definition>> =
    LazyLock::new(|| serde_json::from_str(FILE).unwrap_or_default());

/// The description of a tool of the file.
pub(super) fn info(name: &str, effect: EffectClass) -> ToolInfo {
    let info = match DEFINITIONS.get(name) {
        Some(definition) => {
            ToolInfo::new(name, definition.description.as_str()).parameters(definition.parameters.clone())
        }
        None => ToolInfo::new(name, ""),
    };
    info.effect(effect).source(SOURCE)
}

/// The tools that work in workspaces. What a session of an agent has read or written is kept, so that each must know the present content
/// of a file before it changes it. A turn that runs again restores it from its records; after a restart, files must be read again.
#[derive(Clone)]
pub struct WorkspaceTools {
    place: Place,
    sandbox: Option<Sandbox>,
    stop: CancellationToken,
    readers: Arc<Readers>,
}

/// Where a call works.
#[derive(Clone, Debug)]
pub(super) enum Place {
    One(Workspace),
    /// In the workspace of the conversation that calls.
    OfConversations(Workspaces),
    /// In the workspace of the run that calls.
    OfRuns(Workspaces),
}

impl Place {
    pub(super) fn workspace(&self, caller: &ToolCaller) -> Result<Workspace, FileError> {
        match self {
            Self::One(workspace) => Ok(workspace.clone()),
            Self::OfConversations(workspaces) => Ok(workspaces.of_conversation(&caller.conversation)),
            Self::OfRuns(workspaces) => workspaces.of_run(&caller.conversation),
        }
    }
}

impl WorkspaceTools {
    /// Tools for one workspace, without a sandbox: `bash` is refused.
    pub fn new(workspace: Workspace) -> Self {
        Self::of(Place::One(workspace))
    }

    /// Tools for the workspaces of conversations: a call works in that of its conversation.
    pub fn of_conversations(workspaces: Workspaces) -> Self {
        Self::of(Place::OfConversations(workspaces))
    }

    /// Tools for the workspaces of runs of missions: a call works in that of its run.
    pub fn of_runs(workspaces: Workspaces) -> Self {
        Self::of(Place::OfRuns(workspaces))
    }

    fn of(place: Place) -> Self {
        Self { place, sandbox: None, stop: CancellationToken::new(), readers: Arc::default() }
    }

    /// Lets `bash` run commands in this sandbox.
    #[must_use]
    pub fn sandbox(mut self, sandbox: Option<Sandbox>) -> Self {
        self.sandbox = sandbox;
        self
    }

    /// Stops a running command when this token is cancelled. The token of a call is not enough: calls with effects are not cancelled
    /// by it.
    #[must_use]
    pub fn stopped_by(mut self, stop: CancellationToken) -> Self {
        self.stop = stop;
        self
    }

    /// All tools. `bash` is among them even without a sandbox; it then answers how to allow it.
    pub fn tools(&self) -> Vec<Tool> {
        vec![
            self.ls(),
            self.read_file(),
            self.write_file(),
            self.str_replace(),
            self.glob(),
            self.grep(),
            Tool::from_handler(BashTool::new(self.place.clone(), self.sandbox.clone(), self.stop.clone())),
            self.present_files(),
            ask_clarification(),
        ]
    }

    /// The tool with this name.
    pub fn tool(&self, name: &str) -> Option<Tool> {
        self.tools().into_iter().find(|tool| &*tool.info().name == name)
    }

    fn ls(&self) -> Tool {
        self.file_tool(LS, EffectClass::Read, |inner, _, abandoned, arguments: ListArguments| {
            let path = VirtualPath::parse(&arguments.path)?;
            search::list(inner, &path, abandoned).map(ToolOutput::text)
        })
    }

    fn read_file(&self) -> Tool {
        self.file_tool(READ_FILE, EffectClass::Read, |inner, reads, abandoned, arguments: ReadArguments| {
            read(inner, reads, abandoned, &arguments)
        })
    }

    fn write_file(&self) -> Tool {
        self.file_tool(WRITE_FILE, EffectClass::Write, |inner, reads, _, arguments: WriteArguments| {
            let path = writable(&arguments.path)?;
            let bytes = arguments.content.len();
            if !arguments.append && bytes > limits::WORKSPACE_WRITE {
                return Err(FileError::WriteTooLarge { bytes });
            }
            let content = arguments.content.as_bytes();
            let change = if arguments.append { Change::Append(content) } else { Change::Content(content) };
            let (written, hash) = inner.write(&path, &change, Some(reads))?;
            let word = match written {
                Written::Created => ToolMessage::WriteCreated,
                Written::Unchanged => ToolMessage::WriteUnchanged,
                Written::Replaced if arguments.append => ToolMessage::WriteAppended,
                Written::Replaced => ToolMessage::WriteReplaced,
            };
            Ok(with_content(render_message(word, &[("path", &path), ("bytes", &bytes)]), &hash))
        })
    }

    fn str_replace(&self) -> Tool {
        self.file_tool(STR_REPLACE, EffectClass::Write, |inner, reads, _, arguments: ReplaceArguments| {
            let path = writable(&arguments.path)?;
            if arguments.old_str.is_empty() {
                return Err(FileError::EmptyOld);
            }
            if arguments.old_str == arguments.new_str {
                return Err(FileError::SameText);
            }
            let (count, hash) = inner.edit(&path, reads, |text| replaced(&path, &text, &arguments))?;
            Ok(with_content(render_message(ToolMessage::EditDone, &[("count", &count), ("path", &path)]), &hash))
        })
    }

    fn glob(&self) -> Tool {
        self.file_tool(GLOB, EffectClass::Read, |inner, _, abandoned, arguments: GlobArguments| {
            let path = start(arguments.path.as_deref())?;
            let most = limited(arguments.max_results, limits::WORKSPACE_GLOB);
            search::glob(inner, &arguments.pattern, &path, most, abandoned).map(ToolOutput::text)
        })
    }

    fn grep(&self) -> Tool {
        self.file_tool(GREP, EffectClass::Read, |inner, _, abandoned, arguments: GrepArguments| {
            let path = start(arguments.path.as_deref())?;
            let search = Grep {
                pattern: &arguments.pattern,
                glob: arguments.glob.as_deref(),
                ignore_case: arguments.ignore_case,
                most: limited(arguments.max_results, limits::WORKSPACE_GREP),
            };
            search::grep(inner, &search, &path, abandoned).map(ToolOutput::text)
        })
    }

    fn present_files(&self) -> Tool {
        self.file_tool(PRESENT_FILES, EffectClass::Read, |inner, _, _, arguments: PresentArguments| {
            present(inner, &arguments).map(ToolOutput::structured)
        })
    }

    /// A tool whose work is file operations.
    fn file_tool<A, F>(&self, name: &str, effect: EffectClass, work: F) -> Tool
    where
        A: DeserializeOwned + Send + 'static,
        F: Fn(&Inner, &ReadVersions, &Abandoned, A) -> Result<ToolOutput, FileError> + Send + Sync + 'static,
    {
        let info = info(name, effect);
        let check = ArgumentCheck::compile(&info.parameters).ok().map(Arc::new);
        let (place, readers) = (self.place.clone(), self.readers.clone());
        Tool::from_handler(FileTool { info, check, place, readers, work: Arc::new(work), arguments: PhantomData })
    }
}

/// A tool whose work is file operations.
struct FileTool<A, F> {
    info: ToolInfo,
    check: Option<Arc<ArgumentCheck>>,
    place: Place,
    readers: Arc<Readers>,
    work: Arc<F>,
    arguments: PhantomData<fn(A)>,
}

#[async_trait]
impl<A, F> ToolHandler for FileTool<A, F>
where
    A: DeserializeOwned + Send + 'static,
    F: Fn(&Inner, &ReadVersions, &Abandoned, A) -> Result<ToolOutput, FileError> + Send + Sync + 'static,
{
    fn info(&self) -> &ToolInfo {
        &self.info
    }
    fn argument_check(&self) -> Option<Arc<ArgumentCheck>> {
        self.check.clone()
    }
    async fn call(&self, arguments: Json, context: &ToolCallContext) -> ToolOutcome {
        let arguments = match deserialize_arguments::<A>(arguments) {
            Ok(arguments) => arguments,
            Err(problem) => return bad_arguments(&problem),
        };
        let workspace = match self.place.workspace(&context.caller) {
            Ok(workspace) => workspace,
            Err(error) => return error.into_outcome(),
        };
        let (reads, work) = (self.readers.of(&workspace, &context.caller), self.work.clone());
        let done = workspace.run(move |inner, abandoned| work(inner, &reads, abandoned, arguments)).await;
        let outcome = done.map_or_else(FileError::into_outcome, ToolOutcome::Done);
        // Also the paths that the model itself wrote.
        workspace.inner.masks.mask_outcome(outcome)
    }
    fn replayed(&self, arguments: &Json, outcome: &ToolOutcome, context: &ToolCallContext) {
        let ToolOutcome::Done(output) = outcome else { return };
        let content = output.meta.get(CONTENT).and_then(Json::as_str).and_then(hash_from_text);
        let path = arguments.get("path").and_then(Json::as_str).and_then(|path| VirtualPath::parse(path).ok());
        if let (Some(content), Some(path)) = (content, path)
            && let Ok(workspace) = self.place.workspace(&context.caller)
        {
            self.readers.of(&workspace, &context.caller).record(&path, content);
        }
    }
}

impl std::fmt::Debug for WorkspaceTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkspaceTools").field("place", &self.place).finish_non_exhaustive()
    }
}

pub(super) fn bad_arguments(problem: &str) -> ToolOutcome {
    ToolOutcome::failed(
        FailureKind::BadArguments,
        render_message(ToolMessage::InvalidArguments, &[("problems", &problem)]),
    )
}

// `description` is for logs and displays; the tools themselves do not use it. The schemas require it where a call acts or reads.

#[derive(Deserialize)]
struct ListArguments {
    path: String,
}

#[derive(Deserialize)]
struct ReadArguments {
    path: String,
    start_line: Option<u64>,
    end_line: Option<u64>,
}

#[derive(Deserialize)]
struct WriteArguments {
    path: String,
    content: String,
    #[serde(default)]
    append: bool,
}

#[derive(Deserialize)]
struct ReplaceArguments {
    path: String,
    old_str: String,
    new_str: String,
    #[serde(default)]
    replace_all: bool,
}

#[derive(Deserialize)]
struct GlobArguments {
    pattern: String,
    path: Option<String>,
    max_results: Option<u64>,
}

#[derive(Deserialize)]
struct GrepArguments {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    #[serde(default)]
    ignore_case: bool,
    max_results: Option<u64>,
}

#[derive(Deserialize)]
struct PresentArguments {
    filepaths: Vec<String>,
}

#[derive(Deserialize)]
struct AskArguments {
    question: String,
    clarification_type: ClarificationKind,
    context: Option<String>,
    #[serde(default)]
    options: Vec<String>,
    #[serde(default)]
    fields: Vec<ClarificationField>,
}

fn start(path: Option<&str>) -> Result<VirtualPath, FileError> {
    path.map_or_else(|| Ok(VirtualPath::of(Area::Workspace)), VirtualPath::parse)
}

fn limited(asked: Option<u64>, most: usize) -> usize {
    asked.and_then(|asked| usize::try_from(asked).ok()).map_or(most, |asked| asked.clamp(1, most))
}

/// A path that tools may write.
fn writable(path: &str) -> Result<VirtualPath, FileError> {
    let path = VirtualPath::parse(path)?;
    if path.area().is_some_and(Area::is_writable) { Ok(path) } else { Err(FileError::ReadOnly(path)) }
}

/// Reads a range of lines, and records the version of the file as read.
fn read(
    inner: &Inner,
    reads: &ReadVersions,
    abandoned: &Abandoned,
    arguments: &ReadArguments,
) -> Result<ToolOutput, FileError> {
    let path = VirtualPath::parse(&arguments.path)?;
    let start = arguments.start_line.unwrap_or(1).max(1);
    let end = arguments.end_line.unwrap_or(u64::MAX);
    if end < start {
        return Err(FileError::Range);
    }
    let folder = inner.opened()?;
    let mut reader = BufReader::new(HashingReader::new(folder.file(&path)?));
    let failed = |error: std::io::Error| FileError::system(&error);
    if is_binary(&mut reader).map_err(failed)? {
        return Err(FileError::Binary(path));
    }
    let mut lines = 0_u64;
    let mut shown = Shown::new(inner, start);
    while let Some(line) = next_line(&mut reader).map_err(failed)? {
        lines += 1;
        if lines.is_multiple_of(1024) {
            abandoned.check()?;
        }
        if (start..=end).contains(&lines) {
            shown.push(lines, &line.bytes, line.cut);
        }
    }
    let content = reader.into_inner().hash();
    reads.record(&path, content);
    let output = |text| Ok(with_content(text, &content));
    if lines == 0 {
        return output(render_message(ToolMessage::ReadEmpty, &[]));
    }
    if start > lines {
        return output(render_message(ToolMessage::ReadPastEnd, &[("lines", &lines), ("start", &start)]));
    }
    let mut text = shown.finish(lines);
    if end != u64::MAX && end > lines {
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&render_message(ToolMessage::ReadEnd, &[("lines", &lines)]));
    }
    output(text)
}

/// A result after which the agent knows the content of a file.
fn with_content(text: String, content: &Hash) -> ToolOutput {
    let meta = [(CONTENT.to_owned(), Json::from(hash_as_text(content)))];
    ToolOutput { meta: meta.into_iter().collect(), ..ToolOutput::text(text) }
}

fn hash_as_text(hash: &Hash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hash_from_text(text: &str) -> Option<Hash> {
    let mut hash = Hash::default();
    if text.len() != 2 * hash.len() {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(hash)
}

/// The lines of a result of `read_file`.
struct Shown<'a> {
    inner: &'a Inner,
    /// The number of the first line.
    start: u64,
    text: String,
    /// Bytes that are kept before masking.
    room: usize,
    /// Whether not all of the range was kept.
    is_cut: bool,
    /// The first line that was too long to be kept whole.
    long: Option<u64>,
}

impl<'a> Shown<'a> {
    fn new(inner: &'a Inner, start: u64) -> Self {
        let room = limits::TOOL_RESULT.max(limits::WORKSPACE_READ * 4) + inner.masks.longest();
        Self { inner, start, text: String::new(), room, is_cut: false, long: None }
    }
    fn push(&mut self, number: u64, bytes: &[u8], line_is_cut: bool) {
        if self.is_cut {
            return;
        }
        if line_is_cut {
            self.long.get_or_insert(number);
        }
        let text = String::from_utf8_lossy(bytes);
        let room = self.room.saturating_sub(self.text.len());
        self.is_cut = text.len() > room;
        self.text.push_str(text.get(..text.floor_char_boundary(room)).unwrap_or_default());
        if line_is_cut && !self.is_cut {
            self.text.push('\n');
        }
    }
    /// The masked text, with a note if it was cut. `lines`: how many the file has.
    fn finish(self, lines: u64) -> String {
        let mut masked = self.inner.masks.apply(&self.text);
        if self.is_cut {
            // The end may be the beginning of a secret, which the masks do not recognise.
            masked.truncate(masked.floor_char_boundary(masked.len().saturating_sub(self.inner.masks.longest())));
        }
        // The bytes of a result are limited too; some are left for the note.
        let limit = masked.char_indices().nth(limits::WORKSPACE_READ).map_or(masked.len(), |(at, _)| at);
        let limit = masked.floor_char_boundary(limit.min(limits::TOOL_RESULT - 256));
        let kept = masked.get(..limit).unwrap_or_default();
        let cut = if self.is_cut || limit < masked.len() {
            let line = self.start + kept.matches('\n').count() as u64;
            Some(render_message(ToolMessage::ReadCut, &[("line", &line), ("lines", &lines)]))
        } else {
            self.long.map(|line| render_message(ToolMessage::ReadLineCut, &[("line", &line)]))
        };
        let masks = self.inner.masks.note(&self.text, kept);
        if cut.is_none() && masks.is_none() {
            return masked;
        }
        let mut text = kept.strip_suffix('\n').unwrap_or(kept).to_owned();
        for note in cut.into_iter().chain(masks) {
            text.push('\n');
            text.push_str(&note);
        }
        text
    }
}

/// The text after the replacement, and the number of replacements.
fn replaced(path: &VirtualPath, text: &str, arguments: &ReplaceArguments) -> Result<(String, usize), FileError> {
    let (mut old, mut new) = (arguments.old_str.clone(), arguments.new_str.clone());
    if !text.contains(&old) && text.contains("\r\n") && !old.contains('\r') {
        // Models see line ends of every kind as `\n`.
        (old, new) = (old.replace('\n', "\r\n"), new.replace('\n', "\r\n"));
    }
    match text.matches(&old).count() {
        0 => Err(FileError::Absent(path.clone())),
        count if count > 1 && !arguments.replace_all => Err(FileError::Ambiguous { path: path.clone(), count }),
        count => {
            let bytes = text.len() - count * old.len() + count.saturating_mul(new.len());
            if bytes as u64 > limits::WORKSPACE_EDIT {
                let (path, bytes, limit) = (path.clone(), bytes as u64, limits::WORKSPACE_EDIT);
                return Err(FileError::FileTooLarge { path, bytes, limit });
            }
            Ok((text.replace(&old, &new), count))
        }
    }
}

fn present(inner: &Inner, arguments: &PresentArguments) -> Result<Json, FileError> {
    let folder = inner.opened()?;
    let mut files = Vec::new();
    for path in arguments.filepaths.iter().take(limits::WORKSPACE_PRESENTED) {
        let path = VirtualPath::parse(path)?;
        if path.area() != Some(Area::Outputs) {
            return Err(FileError::NotAnOutput(path));
        }
        let metadata = folder.file(&path)?.metadata().map_err(|error| FileError::system(&error))?;
        files.push(json!({"path": path.to_string(), "bytes": metadata.len()}));
    }
    Ok(json!({"files": files}))
}

fn ask_clarification() -> Tool {
    Tool::from_fn(info(ASK_CLARIFICATION, EffectClass::Read), |arguments, _| async move {
        let arguments: AskArguments = match deserialize_arguments(arguments) {
            Ok(arguments) => arguments,
            Err(problem) => return bad_arguments(&problem),
        };
        let question = Clarification {
            question: arguments.question,
            clarification_type: arguments.clarification_type,
            context: arguments.context,
            options: arguments.options,
            fields: arguments.fields,
        };
        if let Some(problem) = question.problem() {
            let message = render_message(ToolMessage::QuestionInvalid, &[("problem", &problem)]);
            return ToolOutcome::failed(FailureKind::BadArguments, message);
        }
        match serde_json::to_value(question) {
            Ok(value) => ToolOutcome::Done(ToolOutput::structured(value)),
            Err(error) => bad_arguments(&error.to_string()),
        }
    })
}
