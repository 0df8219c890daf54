//! Types of sub-agents and the delegation of agents are read, in both formats, and mistakes are found at their places.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::time::Duration;

use super::super::super::{
    BudgetLimits, DelegateModel, LoadResult, Preset, Project, SandboxProgram, WorkspaceAccess,
    load::tests::{load, marked, places},
    missions::ValueKind,
};

const GROUPS: &str = "model_groups: [{id: small, models: [{provider: scripted, script: a.yml}]}]\nmcp_servers: [{name: web, type: http, url: 'http://localhost/mcp'}]\n";
const SANDBOX: &str = "sandbox: {command: [bwrap, --unshare-all, '--setenv=X=${KEY}']}\n";
const AGENT: &str = "agent: {name: desk, description: helps}\nconnections: {mcp_servers: [{name: web}]}\n";

fn with(endpoints: &str, agent: &str, subagents: &str) -> LoadResult {
    load(&[
        ("config.yml", ""),
        ("endpoints.yml", endpoints),
        ("sub_agents/d/config.yml", agent),
        ("subagents.yml", subagents),
    ])
}

fn read(endpoints: &str, agent: &str, subagents: &str) -> Project {
    let loaded = with(endpoints, agent, subagents);
    assert!(loaded.findings.is_empty(), "{:#?}", loaded.findings);
    loaded.project.unwrap()
}

fn with_sandbox() -> String {
    format!("{GROUPS}{SANDBOX}")
}

#[test]
fn without_a_file_there_are_the_built_in_types() {
    let project = read(GROUPS, AGENT, "");
    let types: Vec<&str> = project.subagents.types.keys().map(|name| &**name).collect();
    assert_eq!(types, ["general-purpose"]);
    let general = &project.subagents.types["general-purpose"];
    assert_eq!((general.max_turns, general.timeout, &general.tools), (50, Duration::from_secs(900), &None));
    assert!(project.agent("desk").unwrap().delegation.is_none());
    assert!(project.agent("desk").unwrap().workspace.is_none());
    let project = read(&with_sandbox(), AGENT, "");
    let bash = &project.subagents.types["bash"];
    assert_eq!((bash.max_turns, bash.tools.as_ref().unwrap().len(), bash.preset), (30, 5, Some(Preset::Bash)));
    let sandbox = project.endpoints.sandbox.as_ref().unwrap();
    assert!(matches!(&sandbox.program, SandboxProgram::Command(command) if &*command[0] == "bwrap"));
    assert!(!format!("{:?}", project.endpoints).contains("hidden"));
}

#[test]
fn types_are_read_with_their_defaults() {
    let project = read(
        &with_sandbox(),
        AGENT,
        "subagents:
  defaults: {timeout_seconds: 600, max_turns: 40, token_budget: {max_tokens: 5000, warn_threshold: 0.5}}
  admission: {max_running: 5, max_queued: 9, queue_timeout_seconds: 30}
  types:
    general-purpose: {preset: general-purpose}
    bash: {preset: bash, requires: sandbox}
    analysis:
      description: Works on tables
      system_prompt: Costs are in ${CURRENCY}.
      tools: null
      disallowed_tools: [task]
      skills: []
      model: small
      output: {table: {type: list}}
    quick: {preset: general-purpose, max_turns: 5, token_budget: {enabled: false}, model: {provider: openai, api_key: '${KEY}'}}
",
    );
    let types = &project.subagents.types;
    assert_eq!(types.keys().map(|name| &**name).collect::<Vec<_>>(), ["general-purpose", "bash", "analysis", "quick"]);
    let analysis = &types["analysis"];
    assert_eq!((analysis.max_turns, analysis.timeout.as_secs(), analysis.preset), (40, 600, None));
    assert_eq!(analysis.token_budget.tokens, Some(5000));
    assert_eq!(analysis.system_prompt.as_deref(), Some("Costs are in ${CURRENCY}."));
    assert_eq!((&analysis.tools, analysis.skills.as_ref().map(Vec::len)), (&None, Some(0)));
    assert_eq!(analysis.model, DelegateModel::Group("small".into()));
    assert_eq!(analysis.output["table"].kind, ValueKind::List);
    assert!(*analysis.disallowed_tools[0] == *"task");
    assert_eq!((types["quick"].max_turns, types["quick"].token_budget), (5, BudgetLimits::default()));
    assert_eq!(types["bash"].max_turns, 40);
    let admission = project.subagents.admission;
    assert_eq!((admission.max_running, admission.max_queued, admission.queue_timeout.as_secs()), (5, 9, 30));
    assert!(!format!("{:?} {:?}", project.subagents, types["quick"].model).contains("hidden"));
}

#[test]
fn the_preset_deep_allows_more_model_calls_unless_the_type_or_an_override_sets_its_own() {
    let turns = |text: &str| {
        let project = read(&with_sandbox(), AGENT, text);
        let types = project.subagents.types.iter();
        types.map(|(name, kind)| (name.to_string(), kind.max_turns, kind.preset)).collect::<Vec<_>>()
    };
    let (general, bash) = (Some(Preset::GeneralPurpose), Some(Preset::Bash));
    let found = turns(
        "subagents: {defaults: {max_turns: 40}, max_turns: 45, types: {general-purpose: {preset: deep}, bash: {preset: deep}, study: {preset: deep}, short: {preset: deep, max_turns: 70}}}",
    );
    let expected =
        [("general-purpose", 150, general), ("bash", 60, bash), ("study", 150, general), ("short", 70, general)];
    assert_eq!(found, expected.map(|(name, turns, preset)| (name.to_owned(), turns, preset)));
    let found = turns("subagents: {types: {study: {preset: deep}}, agents: {study: {max_turns: 99}}}");
    assert_eq!(found[2], ("study".to_owned(), 99, general));
}

#[test]
fn the_format_of_deerflow_is_read() {
    let project = read(
        &with_sandbox(),
        AGENT,
        "subagents:
  timeout_seconds: 1800
  max_turns: null
  max_total_per_run: 9
  token_budget: {enabled: true, max_tokens: 2000000, warn_threshold: 0.7}
  agents:
    general-purpose: {timeout_seconds: 2700, max_turns: 250, model: small, skills: [a], token_budget: {max_tokens: 7}}
    analysis: {max_turns: 7}
  custom_agents:
    analysis:
      description: Works on tables
      system_prompt: You work on tables.
      tools: null
      skills: null
      model: inherit
      max_turns: 50
      timeout_seconds: 900
",
    );
    let subagents = &project.subagents;
    let general = &subagents.types["general-purpose"];
    assert_eq!((general.timeout.as_secs(), general.max_turns, general.token_budget.tokens), (2700, 250, Some(7)));
    assert_eq!((&general.model, general.skills.as_ref().unwrap().len()), (&DelegateModel::Group("small".into()), 1));
    assert_eq!((subagents.types["bash"].timeout.as_secs(), subagents.types["bash"].max_turns), (1800, 30));
    let analysis = &subagents.types["analysis"];
    assert_eq!((analysis.timeout.as_secs(), analysis.max_turns), (900, 7), "global limits are for built-in types");
    assert_eq!((analysis.token_budget.tokens, subagents.max_total), (Some(2_000_000), 9));
    assert_eq!((&analysis.model, &analysis.skills), (&DelegateModel::Inherit, &None));
}

#[test]
fn the_delegation_of_an_agent_is_read() {
    let agent = format!(
        "{AGENT}workspace: commands\ndelegation: {{types: [bash], max_concurrent: 2, depth: 2, background: true, budget: {{tokens: 9000, dollars: 1.5}}}}\n"
    );
    let project = read(&with_sandbox(), &agent, "subagents: {max_total_per_run: 9}\n");
    let desk = project.agent("desk").unwrap();
    let delegation = desk.delegation.as_ref().unwrap();
    assert_eq!((delegation.max_concurrent, delegation.max_total, delegation.depth), (2, 9, 2));
    assert!(delegation.background && delegation.per_conversation.is_none());
    let budget = BudgetLimits { tokens: Some(9_000), cost: Some(1.5), warn_at: Some(0.8) };
    assert_eq!(delegation.budget, budget);
    assert_eq!(project.subagents.allowed(delegation).map(|kind| &*kind.name).collect::<Vec<_>>(), ["bash"]);
    assert_eq!(desk.workspace.tools(), WorkspaceAccess::TOOLS);
    let off = format!("{AGENT}workspace: files\ndelegation: {{enabled: false}}\n");
    let project = read(GROUPS, &off, "");
    assert!(project.agent("desk").unwrap().delegation.is_none());
    assert_eq!(project.agent("desk").unwrap().workspace.tools(), &WorkspaceAccess::TOOLS[..6]);
}

#[test]
fn a_workspace_is_a_word_or_a_list_of_tools() {
    for (written, tools) in [
        ("none", &WorkspaceAccess::TOOLS[..0]),
        ("read", &WorkspaceAccess::TOOLS[..4]),
        ("files", &WorkspaceAccess::TOOLS[..6]),
        ("[write_file, ls]", &["ls", "write_file"]),
        ("[bash]", &["bash"]),
    ] {
        let agent = format!("{AGENT}workspace: {written}\n");
        assert_eq!(read(&with_sandbox(), &agent, "").agent("desk").unwrap().workspace.tools(), tools, "{written}");
    }
    let alone = "agent: {name: desk, description: helps}\nworkspace: files\n";
    assert!(read("", alone, "").agent("desk").unwrap().workspace.changes_files(), "it needs no server");
}

#[test]
fn a_sandbox_is_a_preset_or_a_command() {
    let sandbox = |text: &str| {
        let project = read(&format!("{GROUPS}sandbox: {text}\nworkspaces: {{max_mib: 2}}\n"), AGENT, "");
        assert_eq!(project.endpoints.workspace_bytes, Some(2 * 1024 * 1024));
        project.endpoints.sandbox.unwrap()
    };
    let preset = sandbox(
        "{preset: bubblewrap, network: true, read_only: [/opt/rust], timeout_seconds: 300, path: /opt/rust/bin}",
    );
    let expected = SandboxProgram::Bubblewrap { network: true, read_only: vec!["/opt/rust".into()] };
    assert_eq!((preset.program, preset.timeout, preset.max_parallel), (expected, Some(Duration::from_secs(300)), None));
    assert_eq!(sandbox("{command: [jail], max_parallel: 2}").max_parallel, Some(2));
    for text in [
        "{preset: bubblewrap, ¦command: [bwrap]}",
        "{command: [bwrap], ¦network: true}",
        "{preset: bubblewrap, read_only: [¦rust]}",
        "¦{timeout_seconds: 5}",
    ] {
        let (text, at) = marked(&format!("sandbox: {text}\n"));
        let found = load(&[("config.yml", ""), ("endpoints.yml", &text)]);
        assert_eq!(places(&found.findings), [format!("F0855 endpoints.yml:{}", at[0])], "{text}");
    }
}

#[test]
fn mistakes_in_types_are_found() {
    for (codes, text) in [
        ("F0107", "subagents: {¦tpyes: {}}"),
        ("F0107", "subagents: {types: {a: {preset: general-purpose, ¦tols: []}}}"),
        ("F0851 F0851", "subagents: {types: {¦¦a: {model: inherit}}}"),
        ("F0851", "subagents: {types: {a: {preset: general-purpose, ¦description: ''}}}"),
        ("F0111", "subagents: {types: {a: {preset: ¦general}}}"),
        ("F0116", "subagents: {types: {a: {preset: general-purpose, ¦interactive: true}}}"),
        ("F0606", "subagents: {types: {a: {preset: general-purpose, model: ¦smal}}}"),
        ("F0853", "subagents: {types: {general-purpose: {¦preset: bash, description: x, system_prompt: y}}}"),
        ("F0853", "subagents: {custom_agents: {¦bash: {description: x, system_prompt: y}}}"),
        (
            "F0853",
            "subagents:\n  types: {a: {preset: general-purpose}}\n  custom_agents: {¦a: {preset: general-purpose}}",
        ),
        ("F0850", "subagents: {agents: {¦general: {max_turns: 5}}}"),
        ("F0811", "subagents: {token_budget: {¦warn_threshold: 7}}"),
        ("F0810", "subagents: {¦max_total_per_run: 500}"),
        ("F0810", "subagents: {admission: {¦max_running: 500}}"),
        ("F0805", "subagents: {types: {a: {preset: general-purpose, output: {x: ¦tabel}}}}"),
    ] {
        let (text, at) = marked(text);
        let expected: Vec<String> =
            codes.split(' ').zip(&at).map(|(code, at)| format!("{code} subagents.yml:{at}")).collect();
        assert_eq!(places(&with(&with_sandbox(), AGENT, &text).findings), expected, "{text}");
    }
}

#[test]
fn what_needs_a_sandbox_is_found_without_one() {
    for (codes, text) in [
        ("F0852", "subagents: {types: {¦bash: {preset: bash}}}"),
        ("F0852", "subagents: {types: {¦a: {preset: general-purpose, requires: sandbox}}}"),
        ("F0852", "subagents: {types: {a: {preset: general-purpose, tools: [¦bash]}}}"),
    ] {
        let (text, at) = marked(text);
        let loaded = with(GROUPS, AGENT, &text);
        assert_eq!(places(&loaded.findings), [format!("{codes} subagents.yml:{}", at[0])], "{text}");
        assert!(loaded.project.is_some());
    }
    assert!(with(GROUPS, AGENT, "subagents: {agents: {bash: {max_turns: 5}}}").findings.is_empty());
    let empty =
        with("sandbox: {command: []}\nmcp_servers: [{name: web, type: http, url: 'http://x/mcp'}]\n", AGENT, "");
    assert_eq!(places(&empty.findings), ["F0855 endpoints.yml:1:11"]);
}

#[test]
fn mistakes_in_the_delegation_of_an_agent_are_found() {
    for (code, text) in [
        ("F0850", "delegation: {types: [¦general]}"),
        ("F0850", "delegation: {¦types: []}"),
        ("F0852", "delegation: {types: [¦bash]}"),
        ("F0852", "¦workspace: commands"),
        ("F0852", "¦workspace: [ls, bash]"),
        ("F0111", "workspace: [ls, ¦reed_file]"),
        ("F0810", "delegation: {¦max_concurrent: 99}"),
        ("F0811", "delegation: {¦budget: {warn_at: 0.5}}"),
        ("F0811", "delegation: {budget: {¦tokens: 0}}"),
        ("F0810", "delegation: {¦max_total: 99}"),
        ("F0810", "delegation: {¦depth: 9}"),
        ("F0107", "delegation: {¦typs: []}"),
        ("F0111", "workspace: ¦all"),
    ] {
        let (agent, at) = marked(&format!("{AGENT}{text}\n"));
        let found = places(&with(GROUPS, &agent, "").findings);
        assert_eq!(found, [format!("{code} sub_agents/d/config.yml:{}", at[0])], "{text}");
    }
    let remote = "agent: {name: far, description: x, protocol: A2A}\nconfiguration: {agent_card: 'https://example.org/card'}\ndelegation: {}\n";
    assert_eq!(places(&with(GROUPS, remote, "").findings), ["F0510 sub_agents/d/config.yml:3:1"]);
}
