//! The skills of delegates: those that both their parent and their type allow.

use std::sync::Arc;

use segue_engine::project::AgentSkills;
use serde_json::{Value as Json, json};

use super::harness::{World, call, say, task};
use crate::{
    llm::ChatRequest,
    prompts::PromptSet,
    react::{BroughtTools, LoadedSkills, SkillSession},
};

/// The skills `a`, `b` and `c` of a project; the parent may load `a` and `b`.
fn parent_skills(settings: &str) -> Arc<AgentSkills> {
    let config = format!(
        "agent: {{name: lead, description: Helps}}\nconfiguration:\n  skills: [a, b]\n{settings}connections: {{mcp_servers: []}}\n"
    );
    let skill = |name: &str| format!("---\nname: {name}\ndescription: d\nallowed-tools: find\n---\nText of {name}.");
    let (a, b, c) = (skill("a"), skill("b"), skill("c"));
    let loaded = crate::project::from_texts([
        ("config.yml", "recipe: default.v1\n"),
        ("sub_agents/lead/config.yml", config.as_str()),
        (".agents/skills/a/SKILL.md", a.as_str()),
        (".agents/skills/b/SKILL.md", b.as_str()),
        (".agents/skills/c/SKILL.md", c.as_str()),
    ]);
    loaded.project.unwrap().agent("lead").unwrap().skills.clone().unwrap()
}

/// The names that `load_skill` enumerates; null without the tool.
fn enumerated(request: &ChatRequest) -> Json {
    let tool = request.tools.iter().find(|tool| &*tool.name == "load_skill");
    tool.map(|tool| tool.parameters["properties"]["name"]["enum"].clone()).unwrap_or_default()
}

#[tokio::test]
async fn delegate_loads_only_skills_that_its_parent_and_its_type_allow() {
    let names = |names: &[&str]| Some(names.iter().map(|name| (*name).into()).collect::<Vec<Arc<str>>>());
    for (own, expected) in [(names(&["b", "c"]), json!(["b"])), (None, json!(["a", "b"])), (names(&[]), Json::Null)] {
        let mut world = World::new([("delegate: x", vec![say("done")])]).await;
        world.skills = Some(parent_skills(""));
        world.kind().skills = own.clone();
        world.parent("c").await.task("t", task("x")).await;
        assert_eq!(enumerated(&world.model.requests("delegate: x")[0]), expected, "{own:?}");
    }
    let world = World::new([("delegate: x", vec![say("done")])]).await;
    world.parent("c").await.task("t", task("x")).await;
    assert_eq!(enumerated(&world.model.requests("delegate: x")[0]), Json::Null, "a parent without skills");
}

#[tokio::test]
async fn delegate_loads_a_skill_and_follows_it() {
    let load = call("", &[("load_skill", json!({"name": "b"}))]);
    let mut world = World::new([("delegate: x", vec![load, say("done")])]).await;
    world.skills = Some(parent_skills(""));
    world.parent("c").await.task("t", task("x")).await;
    let requests = world.model.requests("delegate: x");
    let text = |at: usize| requests[at].messages.iter().map(|message| message.text()).collect::<String>();
    assert!(!text(0).contains("Text of b."));
    assert_eq!(text(1).matches("Text of b.").count(), 1, "{}", text(1));
    assert_eq!(requests[1].messages.last().unwrap().text().split('.').next(), Some("The skill `b` is loaded"));
}

#[tokio::test]
async fn delegate_has_only_the_tools_that_the_loaded_skills_of_its_parent_leave() {
    let mut world = World::new([("delegate: x", vec![say("done")])]).await;
    let skills = parent_skills("  skills_narrow_tools: true\n");
    let prompts = PromptSet::new(|_| None).unwrap();
    let mut session =
        SkillSession::new(skills.clone(), world.narrowing.clone(), BroughtTools::new(), &prompts).unwrap();
    let hash = skills.get("a").unwrap().hash.clone();
    let loaded: LoadedSkills = serde_json::from_value(json!([{"name": "a", "hash": hash}])).unwrap();
    session.restore(&loaded, &prompts);
    world.skills = Some(skills);
    world.parent("c").await.task("t", task("x")).await;
    let request = &world.model.requests("delegate: x")[0];
    let names: Vec<&str> = request.tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["find", "load_skill", "read_skill_file"]);
}
