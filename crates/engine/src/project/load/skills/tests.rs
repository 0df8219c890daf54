//! Reading Agent Skills and the settings of agents about them.

use super::super::{
    super::{LoadResult, Project, SKILL_FOLDER, SkillFolder, SkillOrigin, SkillProblem, SkillSource, SourceFile},
    tests::sources,
};

const CONFIG: &str = "recipe: default.v1\n";
const TONE: &str =
    "---\nname: tone\ndescription: How we write to customers. Use it before every reply.\n---\n\nBe kind.\n";

fn agent(settings: &str) -> String {
    format!("agent: {{name: clerk, description: Helps}}\nconfiguration:\n{settings}connections: {{mcp_servers: []}}\n")
}

fn load(settings: &str, files: &[(&str, &str)]) -> LoadResult {
    let config = agent(settings);
    let mut all = vec![("config.yml", CONFIG), ("sub_agents/clerk/config.yml", config.as_str())];
    all.extend(files);
    Project::load_and_analyse(&sources(&all))
}

/// The findings about skills: code, severity, line, message.
fn found(loaded: &LoadResult) -> Vec<(&'static str, u32, &str)> {
    let about_skills = loaded.findings.iter().filter(|finding| finding.code.starts_with("F087"));
    about_skills.map(|finding| (finding.code, finding.place.line, &*finding.message)).collect()
}

fn skills(loaded: &LoadResult) -> Vec<&str> {
    let agent = &loaded.project.as_ref().unwrap().agents["clerk"];
    agent.skills.as_ref().map(|skills| skills.skills.keys().map(|name| &**name).collect()).unwrap_or_default()
}

#[test]
fn an_agent_has_the_skills_that_it_names_and_none_by_default() {
    let files = [
        (".agents/skills/tone/SKILL.md", TONE),
        (".agents/skills/tone/references/words.md", "Words"),
        (
            ".agents/skills/more/invoice/SKILL.md",
            "---\nname: invoice\ndescription: Reads invoices\nallowed-tools: [read]\n---\nRead.",
        ),
    ];
    let all = load("  skills: all\n", &files);
    assert_eq!(skills(&all), ["invoice", "tone"]);
    assert_eq!(found(&all), []);
    let one = load("  skills: [tone]\n", &files);
    assert_eq!(skills(&one), ["tone"]);
    assert_eq!(found(&one), [("F0876", 1, "no agent may load the skill `invoice`")]);
    let tone = one.project.as_ref().unwrap().agents["clerk"].skills.as_ref().unwrap().get("tone").unwrap().clone();
    assert_eq!((&*tone.body, &*tone.root, tone.origin), ("Be kind.", ".agents/skills/tone", SkillOrigin::Project));
    assert_eq!(tone.files.iter().map(|file| &*file.path).collect::<Vec<_>>(), ["references/words.md"]);
    let none = load("  timeout: 5\n", &files);
    assert_eq!((skills(&none), found(&none)), (vec![], vec![]));
}

#[test]
fn wrong_name_warns_and_a_colon_in_a_value_is_read() {
    let colon = "---\nname: tone\ndescription: Writes: use it when asked\nlicense: MIT\n---\nx";
    let files = [
        (".agents/skills/other/SKILL.md", TONE),
        (".agents/skills/colon/SKILL.md", &colon.replace("name: tone", "name: colon")),
        (".agents/skills/shouting/SKILL.md", "---\nname: SHOUT ing\ndescription: d\n---\n"),
    ];
    let loaded = load("  skills: all\n", &files);
    assert_eq!(skills(&loaded), ["colon", "shouting", "tone"]);
    assert_eq!(
        found(&loaded),
        [
            ("F0870", 2, "the skill is named `tone`, but its folder `other`"),
            ("F0870", 2, "`SHOUT ing` is not a name of a skill; `shouting` is used"),
        ]
    );
    let skill = loaded.project.as_ref().unwrap().agents["clerk"].skills.as_ref().unwrap().get("colon").unwrap().clone();
    assert_eq!(&*skill.description, "Writes: use it when asked");
}

#[test]
fn skill_without_description_or_with_too_long_text_is_left_out() {
    let long = format!("{TONE}{}", "x".repeat(300 * 1024)).replace("name: tone", "name: long");
    let files = [
        (".agents/skills/bare/SKILL.md", "Just a text"),
        (".agents/skills/broken/SKILL.md", "---\nname: [\n---\n"),
        (".agents/skills/empty/SKILL.md", "---\nname: empty\n---\nText"),
        (".agents/skills/long/SKILL.md", long.as_str()),
        (".agents/skills/other/skill.md", "import_tools: [x]"),
        (".agents/skills/tone/SKILL.md", TONE),
    ];
    let loaded = load("  skills: all\n", &files);
    assert_eq!(skills(&loaded), ["tone"]);
    let about_skills = loaded.findings.iter().filter(|finding| finding.code.starts_with("F087"));
    let codes: Vec<_> = about_skills.map(|finding| (finding.code, &*finding.place.file)).collect();
    assert_eq!(
        codes,
        [
            ("F0871", ".agents/skills/bare/SKILL.md"),
            ("F0871", ".agents/skills/broken/SKILL.md"),
            ("F0871", ".agents/skills/empty/SKILL.md"),
            ("F0871", ".agents/skills/long/SKILL.md"),
            ("F0871", ".agents/skills/other/skill.md"),
        ]
    );
    assert!(found(&loaded)[3].2.ends_with("bytes; the limit is 262144"), "{:?}", found(&loaded));
}

#[test]
fn allowed_tools_are_read_as_text_and_as_list() {
    let tools = |written: &str| {
        let skill = format!("---\nname: tone\ndescription: d\n{written}---\n");
        let loaded = load("  skills: all\n", &[(".agents/skills/tone/SKILL.md", &skill)]);
        let codes: Vec<_> = found(&loaded).iter().map(|(code, ..)| *code).collect();
        let skill =
            loaded.project.as_ref().unwrap().agents["clerk"].skills.as_ref().unwrap().get("tone").unwrap().clone();
        let tools = skill.allowed_tools.as_ref();
        (tools.map(|tools| tools.iter().map(|tool| tool.to_string()).collect::<Vec<_>>()), codes)
    };
    assert_eq!(tools(""), (None, vec![]));
    assert_eq!(
        tools("allowed-tools: Bash(git add:*) Read\n"),
        (Some(vec!["Bash(git add:*)".into(), "Read".into()]), vec![])
    );
    assert_eq!(tools("allowed-tools: [find, pay]\n"), (Some(vec!["find".into(), "pay".into()]), vec![]));
    assert_eq!(tools("allowed-tools: []\n"), (Some(vec![]), vec![]));
    // A policy that cannot be read allows nothing.
    assert_eq!(tools("allowed-tools: {a: b}\n"), (Some(vec![]), vec!["F0870"]));
}

#[test]
fn nearer_skill_wins_and_a_skill_below_a_skill_is_one_of_its_files() {
    let inner = TONE.replace("kind", "rude");
    let files = [
        ("agent_skills/tone/SKILL.md", inner.as_str()),
        (".agents/skills/tone/SKILL.md", TONE),
        (".agents/skills/deep/er/twice/SKILL.md", TONE),
        (".agents/skills/tone/examples/tone/SKILL.md", TONE),
    ];
    let loaded = load("  skills: [tone]\n  skill_folders: [./agent_skills/, .agents/skills]\n", &files);
    let tone = loaded.project.as_ref().unwrap().agents["clerk"].skills.as_ref().unwrap().get("tone").unwrap().clone();
    assert_eq!((&*tone.body, &*tone.root), ("Be rude.", "agent_skills/tone"));
    let loaded = load("  skills: [tone]\n", &files);
    let codes: Vec<_> = found(&loaded).iter().map(|(code, line, _)| (*code, *line)).collect();
    assert_eq!(codes, [("F0870", 1), ("F0870", 2)], "{:?}", found(&loaded));
    let tone = loaded.project.as_ref().unwrap().agents["clerk"].skills.as_ref().unwrap().get("tone").unwrap().clone();
    assert_eq!(&*tone.root, ".agents/skills/tone");
    assert_eq!(tone.files.iter().map(|file| &*file.path).collect::<Vec<_>>(), ["examples/tone/SKILL.md"]);
}

#[test]
fn unknown_names_scripts_and_folders_are_errors() {
    let files = [
        (".agents/skills/tone/SKILL.md", TONE),
        (".agents/skills/tone/scripts/run.py", "print(1)"),
        (".agents/skills/tone/scripts/run.sh", "true"),
    ];
    let settings = "  skills: [tune, tone]\n  skill_folders: [.agents/skills, none]\n  skill_scripts:\n    tone: [scripts/rum.py]\n    other: [x]\n";
    assert_eq!(
        found(&load(settings, &files)),
        [
            ("F0872", 3, "there is no skill `tune` in the folders of the agent"),
            ("F0873", 4, "there is no folder `none` with skills"),
            ("F0878", 6, "the skill `tone` has no file `scripts/rum.py`"),
            ("F0878", 7, "the agent has no skill `other`"),
        ]
    );
    let twice = "  skills: [tone]\n  skill_scripts: {tone: [scripts/run.py, scripts/run.sh]}\n";
    assert_eq!(found(&load(twice, &files)), [("F0878", 4, "two scripts would be the tool `tone_run`")]);
    let granted = "  skills: [tone]\n  skill_scripts: {tone: {scripts: [scripts/run.py], environment: {TOKEN: '${KEY}'}, timeout: 5}}\n";
    let loaded = load(granted, &files);
    let skills = loaded.project.as_ref().unwrap().agents["clerk"].skills.clone().unwrap();
    let script = &skills.scripts[0];
    assert_eq!((&*script.tool, &*script.path, script.timeout.as_secs()), ("tone_run", "scripts/run.py", 5));
    assert_eq!(script.environment, [("TOKEN".into(), "hidden".into())]);
    assert!(!format!("{skills:?}{script:?}").contains("hidden"));
}

#[test]
fn missing_files_and_secrets_are_warnings() {
    let text = "---\nname: tone\ndescription: d\nrequired-secrets: [TOKEN, {name: OTHER, optional: true}]\n---\n\nSee [rules](references/rules.md)\nand `scripts/run.py`, https://x.example/a.md, [there](references/none.md).\n";
    let files = [
        (".agents/skills/tone/SKILL.md", text),
        (".agents/skills/tone/references/rules.md", "r"),
        (".agents/skills/tone/scripts/run.py", "r"),
    ];
    let loaded = load("  skills: [tone]\n  skill_scripts: {tone: [scripts/run.py]}\n", &files);
    assert_eq!(
        found(&loaded),
        [
            ("F0875", 8, "the skill mentions `references/none.md`, which it does not have"),
            ("F0877", 4, "the skill `tone` requires `TOKEN`, which its scripts do not get"),
        ]
    );
}

#[test]
fn folder_outside_the_project_needs_trust() {
    let settings = |trust: &str| agent(&format!("  skills: all\n  skill_folders: [../shared]\n{trust}"));
    let load = |config: &str| {
        let mut sources = sources(&[("config.yml", CONFIG), ("sub_agents/clerk/config.yml", config)]);
        let file = SourceFile { path: "../shared/tone/SKILL.md".into(), text: TONE.into() };
        let left_out = vec![("../shared/tone/link".into(), SkillProblem::Link)];
        let skills = vec![SkillSource { file, files: Vec::new() }];
        sources.skills =
            vec![SkillFolder { path: "../shared".into(), exists: true, is_outside: true, skills, left_out }];
        Project::load(&sources)
    };
    let refused = load(&settings(""));
    let codes: Vec<_> = found(&refused).iter().map(|(code, ..)| *code).collect();
    assert_eq!(codes, ["F0873", "F0872", "F0873"], "{:?}", refused.findings);
    let trusted = load(&settings("  trust: true\n"));
    assert_eq!(skills(&trusted), ["tone"]);
    let tone = trusted.project.as_ref().unwrap().agents["clerk"].skills.as_ref().unwrap().get("tone").unwrap().clone();
    assert_eq!(tone.origin, SkillOrigin::Outside);
}

#[test]
fn local_agent_of_a_mission_may_have_skills_of_its_own() {
    let mission = |skills: &str| {
        format!(
            "mission:\n  description: x\n  local_agents:\n    writer:\n      description: Writes\n      tools: [shop.find]\n      skills:\n{skills}  agents: [writer]\n  tasks: {{write: {{objective: Write}}}}\n"
        )
    };
    let endpoints = "mcp_servers: [{name: shop, url: 'http://localhost:1'}]\n";
    let load = |skills: &str| {
        let mission = mission(skills);
        let files = [
            ("config.yml", CONFIG),
            ("endpoints.yml", endpoints),
            ("missions/report.yml", mission.as_str()),
            (".agents/skills/tone/SKILL.md", TONE),
        ];
        Project::load(&sources(&files))
    };
    let own = "        - tone\n        - {name: refunds, description: Pays back, instructions: Ask first., tools: [mcp.shop.refund]}\n";
    let loaded = load(own);
    let mission = &loaded.project.as_ref().unwrap().missions["report"];
    let skills = mission.local_agents["writer"].skills.clone().unwrap();
    let refunds = skills.get("refunds").unwrap();
    assert_eq!(
        (&*refunds.body, &refunds.brings[..], refunds.origin),
        ("Ask first.", &["shop.refund".into()][..], SkillOrigin::Configuration)
    );
    assert!(skills.get("tone").is_some());
    let taken = load(
        "        - {name: tone, description: d, instructions: i}\n        - {name: A_b, description: '', instructions: i}\n",
    );
    assert_eq!(
        found(&taken),
        [
            ("F0879", 8, "the skill `tone` has the name of the one in .agents/skills/tone/SKILL.md"),
            ("F0879", 9, "`A_b` is not a name of a skill"),
            ("F0879", 9, "the `description` of a skill must not be empty"),
        ]
    );
}

#[test]
fn names_with_underscores_are_found_and_subsets_keep_their_scripts() {
    let skill = "---\nname: invoice-reading\ndescription: d\n---\n";
    let files = [
        (".agents/skills/invoice-reading/SKILL.md", skill),
        (".agents/skills/invoice-reading/run.sh", "true"),
        (".agents/skills/tone/SKILL.md", TONE),
    ];
    let loaded = load("  skills: all\n  skill_scripts: {invoice-reading: [run.sh]}\n", &files);
    let skills = loaded.project.as_ref().unwrap().agents["clerk"].skills.clone().unwrap();
    assert_eq!(skills.get("invoice_reading").map(|skill| &*skill.name), Some("invoice-reading"));
    let names = |only: Option<&[&str]>| {
        let only: Option<Vec<std::sync::Arc<str>>> =
            only.map(|names| names.iter().map(|name| (*name).into()).collect());
        let own = skills.only(only.as_deref());
        (own.skills.keys().map(|name| name.to_string()).collect::<Vec<_>>(), own.scripts.len())
    };
    assert_eq!(names(None), (vec!["invoice-reading".into(), "tone".into()], 1));
    assert_eq!(names(Some(&["tone", "unknown"])), (vec!["tone".into()], 0));
    assert_eq!(names(Some(&["invoice_reading"])), (vec!["invoice-reading".into()], 1));
    assert_eq!(names(Some(&[])), (vec![], 0));
    assert_eq!(SKILL_FOLDER, ".agents/skills");
}
