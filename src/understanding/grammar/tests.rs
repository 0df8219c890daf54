//! The text forms and the commands they are parsed into.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use proptest::prelude::*;
use segue_engine::project::Project;

use super::*;
use crate::understanding::fixture::bank;

fn grammar(project: &Project) -> Grammar<'_> {
    Grammar { project, active: vec!["transfer_money"] }
}

/// Commands in short: `start f`, `set s=v` with the value as JSON, `clarify a b`, and one word for the others.
pub(in crate::understanding) fn short(commands: &[Command]) -> String {
    let words: Vec<String> = commands
        .iter()
        .map(|command| match command {
            Command::StartFlow { flow } => format!("start {flow}"),
            Command::SetSlot { name, value, .. } => format!("set {name}={value}"),
            Command::Clarify { options } => {
                options.iter().fold("clarify".to_owned(), |text, option| format!("{text} {option}"))
            }
            Command::RestartAgent { agent_id } => format!("restart {agent_id}"),
            Command::CancelFlow => "cancel".into(),
            Command::SkipQuestion => "skip".into(),
            Command::Search => "search".into(),
            Command::ChitChat => "chat".into(),
            Command::HumanHandoff => "human".into(),
            Command::RepeatBotMessages => "repeat".into(),
            Command::ContinueAgent => "continue".into(),
            Command::CannotHandle { .. } => "cannot".into(),
            other => panic!("{other:?}"),
        })
        .collect();
    words.join(" | ")
}

const FORMS: &[(&str, &str)] = &[
    // words
    ("start flow transfer_money", "start transfer_money"),
    ("start flow check-balance", "start check-balance"),
    ("set slot amount 50", r#"set amount="50""#),
    ("set slot recipient Joe Bloggs", r#"set recipient="Joe Bloggs""#),
    ("cancel flow", "cancel"),
    ("disambiguate flows transfer_money check-balance", "clarify check-balance transfer_money"),
    ("skip question", "skip"),
    ("provide info", "search"),
    ("search and reply", "search"),
    ("offtopic reply", "chat"),
    ("hand over", "human"),
    ("repeat message", "repeat"),
    ("continue agent", "continue"),
    ("restart agent trip_planner", "restart trip_planner"),
    ("cannot handle", "cannot"),
    ("change flow", ""),
    ("correct slot amount 5", ""),
    // calls
    ("StartFlow(transfer_money)", "start transfer_money"),
    ("StartFlow('check-balance')", "start check-balance"),
    ("StartFlow( \"transfer_money\" )", "start transfer_money"),
    ("SetSlot(amount, 50)", r#"set amount="50""#),
    ("SetSlot(recipient,Joe)", r#"set recipient="Joe""#),
    ("SetSlot('recipient', 'Joe')", r#"set recipient="Joe""#),
    ("SetSlot(recipient, \"Joe (the tall one)\")", r#"set recipient="Joe (the tall one)""#),
    ("SetSlot(recipient, Joe (the tall one))", r#"set recipient="Joe (the tall one)""#),
    ("SetSlot(recipient, Joe :) Bloggs)", r#"set recipient="Joe :) Bloggs""#),
    ("SetSlot(amount, 5))", r#"set amount="5""#),
    ("SetSlot(recipient, Joe, Ann)", r#"set recipient="Joe, Ann""#),
    ("SetSlot(recipient, )", "set recipient=null"),
    ("SetSlot(recipient, \"\")", "set recipient=null"),
    ("SetSlot(recipient, None)", "set recipient=null"),
    ("SetSlot(recipient)", ""),
    ("SetSlot()", ""),
    ("SetSlot(recipient, Joe", r#"set recipient="Joe""#),
    ("SetSlot(name=amount, value=5)", r#"set amount="5""#),
    ("SetSlot(slot_name=\"amount\", value=\"5\")", r#"set amount="5""#),
    ("CancelFlow()", "cancel"),
    ("CancelFlow(transfer_money)", "cancel"),
    ("Clarify(transfer_money, check-balance)", "clarify check-balance transfer_money"),
    ("Clarify('transfer_money', \"check-balance\")", "clarify check-balance transfer_money"),
    ("Clarify(transfer_money)", "start transfer_money"),
    ("Clarify()", "clarify"),
    ("SkipQuestion()", "skip"),
    ("SearchAndReply()", "search"),
    ("ChitChat()", "chat"),
    ("HumanHandoff()", "human"),
    ("RepeatLastBotMessages()", "repeat"),
    ("ChangeFlow()", ""),
    ("ContinueAgent()", "continue"),
    ("RestartAgent(trip_planner)", "restart trip_planner"),
    ("RestartAgent('car-finder')", "restart car-finder"),
    ("I would say StartFlow(transfer_money) fits", "start transfer_money"),
    ("StartFlow(transfer_money), SetSlot(amount, 5)", r#"start transfer_money | set amount="5""#),
    ("SetSlot(amount, 5), SetSlot(recipient, Joe)", r#"set amount="5" | set recipient="Joe""#),
    (
        "SetSlot(amount, \"5\") SetSlot(recipient, 'Joe') CancelFlow()",
        r#"set amount="5" | set recipient="Joe" | cancel"#,
    ),
    ("startflow(transfer_money)", "start transfer_money"),
    ("start_flow(transfer_money)", "start transfer_money"),
    ("set_slot('amount', 5)", r#"set amount="5""#),
    ("MySetSlot(amount, 5)", ""),
    ("StartFlow(nothing)", ""),
    ("StartFlow()", ""),
    // text before a command
    ("  start flow transfer_money", "start transfer_money"),
    ("- start flow transfer_money", "start transfer_money"),
    ("* cancel flow", "cancel"),
    ("• cancel flow", "cancel"),
    ("1. start flow transfer_money", "start transfer_money"),
    ("1) start flow transfer_money", "start transfer_money"),
    ("12.) - start flow transfer_money", "start transfer_money"),
    ("a) start flow transfer_money", "start transfer_money"),
    ("--> cancel flow", "cancel"),
    ("> cancel flow", "cancel"),
    ("`start flow transfer_money`", "start transfer_money"),
    ("\"cancel flow\"", "cancel"),
    ("**start flow transfer_money**", "start transfer_money"),
    ("**Action:** start flow transfer_money", "start transfer_money"),
    ("Action: set slot amount 5", r#"set amount="5""#),
    ("Action 2: set slot amount 5", r#"set amount="5""#),
    ("AI: cancel flow", "cancel"),
    ("Actions:", ""),
    ("please start flow transfer_money", ""),
    ("then cancel flow", ""),
    ("The user wants to start flow transfer_money", ""),
    // text around names
    ("start flow 'transfer_money'", "start transfer_money"),
    ("start flow \"transfer_money\"", "start transfer_money"),
    ("start flow `transfer_money`", "start transfer_money"),
    ("start flow <transfer_money>", "start transfer_money"),
    ("start flow [transfer_money]", "start transfer_money"),
    ("start flow: transfer_money", "start transfer_money"),
    ("start flow transfer_money.", "start transfer_money"),
    ("start flow transfer_money because they ask", "start transfer_money"),
    ("start flow transfer_money (send money)", "start transfer_money"),
    ("start  flow   transfer_money", "start transfer_money"),
    ("Start Flow transfer_money", "start transfer_money"),
    ("START FLOW transfer_money", "start transfer_money"),
    ("start_flow transfer_money", "start transfer_money"),
    ("start flow Transfer_Money", "start transfer_money"),
    ("start flow transfer-money", "start transfer_money"),
    ("start flow check_balance", "start check-balance"),
    ("start flow transfer money", "start transfer_money"),
    ("start flow \"transfer money\"", "start transfer_money"),
    ("start flow check balance, please", "start check-balance"),
    ("start flow transfer", ""),
    ("start flow", ""),
    ("start flow pattern_continue_interrupted", ""),
    ("start flow pattern_search", ""),
    ("start flow <flow>", ""),
    ("start flows transfer_money", ""),
    ("start flow transfer_money; start flow check-balance", "start transfer_money | start check-balance"),
    ("start flow transfer_money, start flow check-balance", "start transfer_money | start check-balance"),
    ("start flow transfer_money and set slot amount 5", r#"start transfer_money | set amount="5""#),
    ("`start flow transfer_money`, `set slot amount 5`", r#"start transfer_money | set amount="5""#),
    ("cancel flow, start flow check-balance", "cancel | start check-balance"),
    ("start flow transfer_money start flow check-balance", "start transfer_money"),
    // slots and values
    ("set slot 'amount' '50'", r#"set amount="50""#),
    ("set slot \"recipient\" \"Joe\"", r#"set recipient="Joe""#),
    ("set slot `recipient` `Joe`", r#"set recipient="Joe""#),
    ("`set slot recipient Joe`", r#"set recipient="Joe""#),
    ("set slot recipient 'Joe", r#"set recipient="Joe""#),
    ("set slot recipient O'Neil", r#"set recipient="O'Neil""#),
    ("set slot recipient “Joe”", r#"set recipient="Joe""#),
    ("set slot recipient = Joe", r#"set recipient="Joe""#),
    ("set slot recipient=Joe", r#"set recipient="Joe""#),
    ("set slot recipient: Joe", r#"set recipient="Joe""#),
    ("set slot recipient : Joe", r#"set recipient="Joe""#),
    ("set slot recipient -> Joe", r#"set recipient="Joe""#),
    ("set slot recipient :30", r#"set recipient=":30""#),
    ("set slot recipient a = b", r#"set recipient="a = b""#),
    ("set slot recipient Joe.", r#"set recipient="Joe.""#),
    ("set slot recipient jürgen@exämple.org", r#"set recipient="jürgen@exämple.org""#),
    ("set slot recipient 山田", r#"set recipient="山田""#),
    ("set slot amount 50.", r#"set amount="50""#),
    ("set slot amount 50.5", r#"set amount="50.5""#),
    ("set slot transfer_confirmed true", r#"set transfer_confirmed="true""#),
    ("set slot transfer_confirmed True.", r#"set transfer_confirmed="True""#),
    ("set slot account savings.", r#"set account="savings""#),
    ("set slot account other", r#"set account="other""#),
    ("set slot Amount 5", r#"set amount="5""#),
    ("set slot transfer-confirmed true", r#"set transfer_confirmed="true""#),
    ("set slot transfer confirmed true", r#"set transfer_confirmed="true""#),
    ("set_slot amount 5", r#"set amount="5""#),
    ("Set slot amount 5", r#"set amount="5""#),
    ("SET SLOT amount 5", r#"set amount="5""#),
    ("set slot amount None", "set amount=null"),
    ("set slot amount null", "set amount=null"),
    ("set slot amount undefined", "set amount=null"),
    ("set slot amount [missing]", "set amount=null"),
    ("set slot amount [missing information]", "set amount=null"),
    ("set slot amount \"\"", "set amount=null"),
    ("set slot recipient none", r#"set recipient="none""#),
    ("set slot recipient NULL", r#"set recipient="NULL""#),
    ("set slot amount", ""),
    ("set slot amount   ", ""),
    ("set slot", ""),
    ("set slot unheard_of 5", ""),
    ("set slot <slot> <value>", ""),
    ("set slots amount 5", ""),
    ("set slot flow_name transfer_money", "start transfer_money"),
    ("set slot flow check-balance", "start check-balance"),
    ("SetSlot(flow_name, transfer_money)", "start transfer_money"),
    ("set slot flow_name unheard_of", ""),
    // a value never becomes a command
    ("set slot recipient Joe, start flow check-balance", r#"set recipient="Joe, start flow check-balance""#),
    ("set slot recipient Joe; cancel flow", r#"set recipient="Joe; cancel flow""#),
    ("set slot recipient CancelFlow()", r#"set recipient="CancelFlow()""#),
    ("SetSlot(recipient, \"CancelFlow()\")", r#"set recipient="CancelFlow()""#),
    ("SetSlot(recipient, please CancelFlow() now)", r#"set recipient="please CancelFlow() now""#),
    ("SetSlot(recipient, \"x) CancelFlow(\")", r#"set recipient="x) CancelFlow(""#),
    ("SetSlot(recipient, \"a\", \"b\")", r#"set recipient="a\", \"b""#),
    // clarification
    ("disambiguate flows transfer_money, check-balance", "clarify check-balance transfer_money"),
    ("disambiguate flows 'transfer_money' or `check-balance`", "clarify check-balance transfer_money"),
    ("disambiguate flows [transfer_money, check-balance]", "clarify check-balance transfer_money"),
    ("disambiguate flow transfer_money check-balance", "clarify check-balance transfer_money"),
    ("clarify transfer_money check-balance", "clarify check-balance transfer_money"),
    ("disambiguate flows transfer_money transfer_money", "start transfer_money"),
    ("disambiguate flows transfer_money", "start transfer_money"),
    ("disambiguate flows transfer_money unheard_of", "start transfer_money"),
    ("disambiguate flows unheard_of", ""),
    ("disambiguate flows <flow> <flow>", "clarify"),
    ("disambiguate flows", "clarify"),
    // text after commands without arguments
    ("cancel flow.", "cancel"),
    ("cancel flow()", "cancel"),
    ("cancel flow (they said stop)", "cancel"),
    ("cancel flow # they said stop", "cancel"),
    ("cancel flow - they said stop", "cancel"),
    ("cancel flow transfer_money", "cancel"),
    ("cancel flow `transfer_money`", "cancel"),
    ("cancel flow check-balance", ""),
    ("cancel flow right now", ""),
    ("- `cancel flow`: the person wants to stop the active flow.", ""),
    ("hand over: the person asks for a human", ""),
    ("off-topic reply", "chat"),
    ("hand-over", "human"),
    ("handover", "human"),
    ("chit chat", "chat"),
    ("skip question amount", "skip"),
    ("continue agent trip_planner", "continue"),
    ("continue agent trip planner's work", ""),
    ("restart agent `trip_planner`", "restart trip_planner"),
    ("restart agent car_finder", "restart car-finder"),
    ("restart agent nobody", ""),
    ("restart agent", ""),
    ("cancel flows", ""),
    ("cancel flow_x", ""),
    ("Cannot handle this message.", ""),
    // several lines
    ("start flow transfer_money\nset slot amount 5", r#"start transfer_money | set amount="5""#),
    ("start flow transfer_money\r\nset slot amount 5\r\n", r#"start transfer_money | set amount="5""#),
    ("\n\n  cancel flow\n\n", "cancel"),
    ("cancel flow\ncancel flow", "cancel"),
    ("set slot amount 5\nset slot amount 6", r#"set amount="5" | set amount="6""#),
    ("cannot handle\nset slot amount 5", r#"set amount="5""#),
    ("cannot handle\ncannot handle", "cannot"),
    ("```\ncancel flow\n```", "cancel"),
    ("```text\ncancel flow\n```", "cancel"),
    ("hello there", ""),
    ("", ""),
    ("???", ""),
    ("🙂", ""),
];

#[test]
fn every_form_is_parsed_into_its_commands() {
    assert!(FORMS.len() >= 150, "{}", FORMS.len());
    let project = bank();
    let wrong: Vec<String> = FORMS
        .iter()
        .filter_map(|(text, expected)| {
            let found = short(&grammar(&project).parse(text, false).commands);
            (found != *expected).then(|| format!("{text:?}: {found:?} instead of {expected:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn dropped_text_has_a_position_and_a_reason() {
    let project = bank();
    for (text, line, column, reason) in [
        ("cancel flow\n\n  ü start flow x", 2, 3, DropReason::NotACommand),
        ("- start flow nöthing", 1, 14, DropReason::UnknownFlow),
        ("start flow", 1, 11, DropReason::NoName),
        ("set slot unheard_of 5", 1, 10, DropReason::UnknownSlot),
        ("set slot amount", 1, 10, DropReason::NoValue),
        ("restart agent nobody", 1, 14, DropReason::UnknownAgent),
        ("cancel flow right now", 1, 12, DropReason::UnexpectedArguments),
        ("cancel flow check-balance", 1, 12, DropReason::NotActive),
        ("change flow", 1, 1, DropReason::NotOffered),
        ("cancel flow\ncancel flow", 2, 1, DropReason::Duplicate),
        ("disambiguate flows transfer_money, x", 1, 36, DropReason::UnknownFlow),
    ] {
        let dropped = grammar(&project).parse(text, false).dropped;
        assert_eq!(dropped.len(), 1, "{text:?}: {dropped:?}");
        assert_eq!((dropped[0].line, dropped[0].column, dropped[0].reason), (line, column, reason), "{text:?}");
    }
}

/// The text forms that the prompts of Rasa's command generators ask for.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// Calls, `StartFlow(x)`: `SingleStepLLMCommandGenerator`.
    V1,
    /// Words, `start flow x`: `CompactLLMCommandGenerator`.
    V2,
    /// Words, with `search and reply`: `SearchReadyLLMCommandGenerator`.
    V3,
}

/// A command in this form; `None` where the form does not have it.
fn written(command: &Command, form: Form) -> Option<String> {
    use Form::{V1, V2, V3};
    let text = |value: &serde_json::Value| value.as_str().unwrap_or("None").to_owned();
    let list = |options: &[segue_engine::ids::FlowId], between: &str| {
        options.iter().map(ToString::to_string).collect::<Vec<_>>().join(between)
    };
    Some(match (command, form) {
        (Command::StartFlow { flow }, V1) => format!("StartFlow({flow})"),
        (Command::StartFlow { flow }, _) => format!("start flow {flow}"),
        (Command::SetSlot { name, value, .. }, V1) => format!("SetSlot({name}, {})", text(value)),
        (Command::SetSlot { name, value, .. }, _) => format!("set slot {name} {}", text(value)),
        (Command::CancelFlow, V1) => "CancelFlow()".into(),
        (Command::CancelFlow, _) => "cancel flow".into(),
        (Command::Clarify { options }, V1) => format!("Clarify({})", list(options, ", ")),
        (Command::Clarify { options }, _) => format!("disambiguate flows {}", list(options, " ")),
        (Command::SkipQuestion, V1) => "SkipQuestion()".into(),
        (Command::SkipQuestion, V2) => "skip question".into(),
        (Command::Search, V1) => "SearchAndReply()".into(),
        (Command::Search, V2) => "provide info".into(),
        (Command::Search, V3) => "search and reply".into(),
        (Command::ChitChat, V1) => "ChitChat()".into(),
        (Command::ChitChat, V2) => "offtopic reply".into(),
        (Command::HumanHandoff, V1) => "HumanHandoff()".into(),
        (Command::HumanHandoff, V2) => "hand over".into(),
        (Command::RepeatBotMessages, V1) => "RepeatLastBotMessages()".into(),
        (Command::RepeatBotMessages, _) => "repeat message".into(),
        (Command::ContinueAgent, V2 | V3) => "continue agent".into(),
        (Command::RestartAgent { agent_id }, V2 | V3) => format!("restart agent {agent_id}"),
        _ => return None,
    })
}

fn set(name: &str, value: serde_json::Value) -> Command {
    Command::SetSlot { name: name.into(), value, extractor: segue_engine::conversation::FilledBy::Llm }
}

fn any_command() -> impl Strategy<Value = Command> {
    prop_oneof![
        prop::sample::select(vec!["transfer_money", "check-balance"])
            .prop_map(|flow| Command::StartFlow { flow: flow.into() }),
        "[a-zA-Z0-9][a-zA-Z0-9 .,'%/-]{0,20}[a-zA-Z0-9]".prop_map(|value| set("recipient", value.into())),
        (0_u32..100_000).prop_map(|value| set("amount", value.to_string().into())),
        Just(set("recipient", serde_json::Value::Null)),
        Just(Command::Clarify { options: vec!["check-balance".into(), "transfer_money".into()] }),
        prop::sample::select(vec!["trip_planner", "car-finder"])
            .prop_map(|agent| Command::RestartAgent { agent_id: agent.into() }),
        prop::sample::select(vec![
            Command::CancelFlow,
            Command::SkipQuestion,
            Command::Search,
            Command::ChitChat,
            Command::HumanHandoff,
            Command::RepeatBotMessages,
            Command::ContinueAgent,
        ]),
    ]
}

proptest! {
    /// A command that is written in a form and parsed again is the same command, also after a bullet or a number.
    #[test]
    fn written_commands_are_parsed_back(
        commands in prop::collection::vec(any_command(), 1..6),
        form in prop::sample::select(vec![Form::V1, Form::V2, Form::V3]),
        bullet in prop::sample::select(vec!["", "- ", "* ", "  ", "1. ", "2) ", "\u{2022} "]),
    ) {
        let project = bank();
        let mut wanted: Vec<Command> = Vec::new();
        let mut lines = Vec::new();
        for command in commands {
            if let Some(line) = written(&command, form) {
                lines.push(format!("{bullet}{line}"));
                if !wanted.contains(&command) {
                    wanted.push(command);
                }
            }
        }
        let parsed = grammar(&project).parse(&lines.join("\n"), false);
        prop_assert_eq!(short(&parsed.commands), short(&wanted), "{:?}", lines);
        prop_assert!(parsed.dropped.iter().all(|dropped| dropped.reason == DropReason::Duplicate), "{:?}", parsed.dropped);
    }

    /// A line with a word in it is a command or has a reason why not.
    #[test]
    fn every_line_is_a_command_or_dropped_with_a_reason(line in "[^\r\n]{0,60}") {
        let project = bank();
        let parsed = grammar(&project).parse(&line, false);
        let has_word = !command_names::line_start(&line).is_empty() && !line.trim_start().starts_with("```");
        prop_assert!(!has_word || !parsed.commands.is_empty() || !parsed.dropped.is_empty(), "{line:?}");
    }
}

#[test]
fn aliases_of_the_project_replace_lines_by_commands() {
    let mut project = bank();
    let alias = |line: &str, command: &str| segue_engine::project::CommandAlias {
        line: segue_engine::regex_dialect::PythonRegex::new(line, segue_engine::regex_dialect::Flags::default())
            .unwrap(),
        command: command.into(),
    };
    let generator = project.config.generator.get_or_insert_default();
    generator.aliases = vec![alias(r"^escalate\b", "hand over"), alias("^pay$", "start flow transfer_money")];
    let parse = |text: &str| short(&grammar(&project).parse(text, false).commands);
    assert_eq!(parse("escalate (angry)\npay\nset slot amount 5"), "human | start transfer_money | set amount=\"5\"");
    assert_eq!(parse("do not pay"), "");
}

#[test]
fn long_answers_are_limited_and_parsed_in_linear_time() {
    let project = bank();
    let many = (0..1000).map(|n| format!("set slot amount {n}\n")).collect::<String>();
    let parsed = grammar(&project).parse(&many, false);
    assert_eq!(parsed.commands.len(), limits::COMMANDS_MAX);
    assert!(parsed.dropped.iter().any(|dropped| dropped.reason == DropReason::LimitExceeded));
    // Takes minutes if any part is read repeatedly.
    for piece in
        ["SetSlot(a,", "SetSlot(amount, \"x\") ) ", "start flow x; ", "((((", "clarify(", "set slot \"", "\"),("]
    {
        let parsed = grammar(&project).parse(&piece.repeat(limits::MODEL_ANSWER / piece.len()), false);
        assert!(parsed.commands.len() <= limits::COMMANDS_MAX && parsed.dropped.len() <= 2 * limits::COMMAND_LINES);
    }
}

proptest! {
    #[test]
    fn arbitrary_text_yields_only_known_names_and_no_panic(text in any::<String>(), is_truncated in any::<bool>()) {
        check(&text, is_truncated)?;
    }

    #[test]
    fn text_like_commands_yields_only_known_names_and_no_panic(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "start flow ", "set slot ", "SetSlot(", "StartFlow(", "Clarify(", "disambiguate flows ", "cancel flow",
                "transfer_money", "check-balance", "amount", "recipient", "flow_name", "trip_planner", "restart agent ",
                "(", ")", "\"", "'", "`", ",", ";", ":", "=", " ", "\n", "- ", "1.", "and ", "ü", "\u{2028}", "<flow>", "x", "None",
            ]),
            0..40,
        ),
        is_truncated in any::<bool>(),
    ) {
        check(&parts.concat(), is_truncated)?;
    }

    #[test]
    fn a_slot_value_never_becomes_a_command(value in "[^\r\n]{0,60}") {
        let project = bank();
        let parsed = grammar(&project).parse(&format!("set slot recipient {value}"), false);
        let is_value = |command: &Command| matches!(command, Command::SetSlot { name, .. } if *name == *"recipient");
        prop_assert!(parsed.commands.len() <= 1 && parsed.commands.iter().all(is_value));
    }
}

fn check(text: &str, is_truncated: bool) -> Result<(), TestCaseError> {
    let project = bank();
    let parsed = grammar(&project).parse(text, is_truncated);
    for command in &parsed.commands {
        let is_known = match command {
            Command::StartFlow { flow } => project.flow(flow.as_str()).is_some_and(|flow| !flow.is_pattern()),
            Command::SetSlot { name, .. } => project.slot(name.as_str()).is_some(),
            Command::Clarify { options } => {
                options.len() != 1 && options.iter().all(|flow| project.flow(flow.as_str()).is_some())
            }
            Command::RestartAgent { agent_id } => project.agent(agent_id.as_str()).is_some(),
            _ => true,
        };
        prop_assert!(is_known, "{command:?}");
    }
    for dropped in &parsed.dropped {
        prop_assert!(dropped.column >= 1 && dropped.line >= 1, "{dropped:?}");
    }
    Ok(())
}
