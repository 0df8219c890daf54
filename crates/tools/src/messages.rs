//! Texts about tools for models, such as errors. The texts are in `prompts/words.txt`, one `key = text` per line with
//! `{placeholders}`; [`render_message`] fills in the values.

use std::{collections::HashMap, fmt::Display, sync::LazyLock, time::Duration};

const FILE: &str = include_str!("../prompts/words.txt");

macro_rules! messages {
    ($($name:ident = $key:literal,)*) => {
        /// A message of the file.
        // Only the MCP client uses some of the messages.
        #[cfg_attr(not(feature = "mcp"), allow(dead_code))]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum ToolMessage { $($name,)* }

        impl ToolMessage {
            #[cfg(test)]
            const ALL: &'static [Self] = &[$(Self::$name,)*];
            const fn key(self) -> &'static str {
                match self { $(Self::$name => $key,)* }
            }
        }
    };
}

messages! {
    Failed = "failed",
    UnknownOutcome = "unknown",
    Pending = "pending",
    EmptyResult = "empty",
    UnusableResult = "unusable",
    Truncated = "cut",
    Image = "image",
    Audio = "audio",
    ResourceLink = "link",
    Resource = "resource",
    OtherPart = "part",
    UnknownTool = "no_tool",
    NoToolsAtAll = "no_tools",
    InvalidArguments = "arguments",
    MissingKey = "missing",
    UnexpectedKey = "surplus",
    NotInEnum = "choice",
    InvalidValue = "misfit",
    MoreProblems = "more",
    NoMatch = "no_match",
    TooMuchToCheck = "too_much",
    TimedOut = "late",
    TimedOutBeforeSend = "late_before",
    Unavailable = "away",
    ConnectionLost = "lost",
    SessionExpired = "not_run",
    Cancelled = "stopped",
    CancelledBeforeSend = "stopped_before",
    CredentialsRejected = "refused_credentials",
    ResultTooLarge = "too_large",
    ResultAgainstSchema = "against_schema",
    InvalidResult = "no_answer",
    InputNotAllowed = "wants_input",
    InputRequired = "needs_input",
    FormDeclined = "form_declined",
    FormKeyword = "form_keyword",
    FormType = "form_type",
    FormNoProperty = "form_no_property",
    FormNoValue = "form_no_value",
    FormNobodyAsked = "form_nobody",
    FormOfOtherCall = "form_other_call",
    ToolError = "said",
    ToolErrorWithoutText = "said_nothing",
    InternalError = "internal",
    PathEmpty = "path_empty",
    PathOutside = "path_outside",
    PathNotRelative = "path_not_relative",
    FileExists = "file_exists",
    SlotFileNotFound = "slot_file_not_found",
    SlotUnknown = "slot_unknown",
    SlotReadOnly = "slot_read_only",
    SlotMissing = "slot_missing",
    PathCharacters = "path_characters",
    PathTooLong = "path_too_long",
    PathTooDeep = "path_too_deep",
    FileNotFound = "file_not_found",
    FileNotAFolder = "file_not_a_folder",
    FileNotAFile = "file_not_a_file",
    FileLink = "file_link",
    FileReadOnly = "file_read_only",
    FileNotAnOutput = "file_not_an_output",
    FileUnread = "file_unread",
    FileChanged = "file_changed",
    FileBinary = "file_binary",
    FileMasked = "file_masked",
    FileTooLarge = "file_too_large",
    WriteTooLarge = "write_too_large",
    FileQuota = "file_quota",
    FileTooMany = "file_too_many",
    FileRemoved = "file_removed",
    EditEmpty = "edit_empty",
    EditSame = "edit_same",
    EditAbsent = "edit_absent",
    EditAmbiguous = "edit_ambiguous",
    EditDone = "edit_done",
    ReadRange = "read_range",
    ReadEmpty = "read_empty",
    ReadPastEnd = "read_past_end",
    ReadEnd = "read_end",
    ReadCut = "read_cut",
    ReadLineCut = "read_line_cut",
    ReadMasked = "read_masked",
    WriteCreated = "write_created",
    WriteReplaced = "write_replaced",
    WriteAppended = "write_appended",
    WriteUnchanged = "write_unchanged",
    ListEmpty = "list_empty",
    ListLink = "list_link",
    ListOther = "list_other",
    ListSize = "list_size",
    ListMore = "list_more",
    SearchPattern = "search_pattern",
    SearchPatternLong = "search_pattern_long",
    SearchNone = "search_none",
    SearchMore = "search_more",
    SearchBinary = "search_binary",
    QuestionInvalid = "question_invalid",
    QuestionBlank = "question_blank",
    QuestionLong = "question_long",
    QuestionMany = "question_many",
    QuestionNameTwice = "question_name_twice",
    QuestionNoOptions = "question_no_options",
    QuestionOptions = "question_options",
    ScriptDescription = "script_description",
    ScriptNotStarted = "script_not_started",
    ScriptFailed = "script_failed",
    ScriptTimeout = "script_timeout",
    ScriptCancelled = "script_cancelled",
    ScriptOutput = "script_output",
    BashOff = "bash_off",
    BashSystem = "bash_system",
    BashCommand = "bash_command",
    BashBusy = "bash_busy",
    BashNotStarted = "bash_not_started",
    BashExit = "bash_exit",
    BashSignal = "bash_signal",
    BashTimeout = "bash_timeout",
    BashQuota = "bash_quota",
    BashQuotaEntries = "bash_quota_entries",
    BashQuotaDepth = "bash_quota_depth",
    BashPruned = "bash_pruned",
    BashOver = "bash_over",
    BashOverDepth = "bash_over_depth",
    BashOverCounted = "bash_over_counted",
    BashCancelled = "bash_cancelled",
    BashCut = "bash_cut",
    BashQuiet = "bash_quiet",
    Slept = "slept",
    TimeZoneUnknown = "time_zone",
    TimeFormat = "time_format",
    HttpAddress = "http_address",
    HttpHeader = "http_header",
    HttpBodyLong = "http_body_long",
    HttpNotAllowed = "http_not_allowed",
    HttpPrivate = "http_private",
    HttpNoResponse = "http_no_response",
    HttpTooLong = "http_too_long",
    HttpBinary = "http_binary",
    HttpRedirect = "http_redirect",
    HttpRedirects = "http_redirects",
    HttpRedirectFailed = "http_redirect_failed",
}

static TEXTS: LazyLock<HashMap<&'static str, &'static str>> = LazyLock::new(|| {
    let lines = FILE.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(" = ")).collect()
});

/// Renders a message with its values. Braces within a value are kept; a placeholder without a value becomes empty.
pub(super) fn render_message(message: ToolMessage, values: &[(&str, &dyn Display)]) -> String {
    let mut rest = TEXTS.get(message.key()).copied().unwrap_or(message.key());
    let mut out = String::with_capacity(rest.len() + 32);
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let Some((name, tail)) = after.split_once('}') else {
            out.push('{');
            rest = after;
            continue;
        };
        if let Some((_, value)) = values.iter().find(|(key, _)| *key == name) {
            out.push_str(&value.to_string());
        }
        rest = tail;
    }
    out.push_str(rest);
    out
}

/// A time in seconds, rounded to tenths.
pub(super) fn shown_seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_contains_exactly_the_messages() {
        for message in ToolMessage::ALL {
            assert!(TEXTS.contains_key(message.key()), "{} is missing in prompts/words.txt", message.key());
        }
        assert_eq!(TEXTS.len(), ToolMessage::ALL.len());
    }

    #[test]
    fn braces_within_values_are_kept() {
        let text = render_message(ToolMessage::UnknownTool, &[("name", &"{tools}"), ("tools", &"a, b")]);
        assert_eq!(text, "There is no tool named `{tools}`. The tools are: a, b.");
    }
}
