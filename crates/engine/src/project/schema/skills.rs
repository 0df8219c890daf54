//! Keys about Agent Skills, of agents in `sub_agents/*/config.yml` and of local agents of missions.

use super::{
    Key, MapSchema,
    UnknownKeys::*,
    ValueType::{self, *},
    key,
};

/// How the scripts of one skill are written.
static SCRIPTS: ValueType = AnyOf(&[TextList, Section(&SKILL_SCRIPT)]);

/// `skill_folders`.
pub(super) const SKILL_FOLDERS: Key = key(
    "skill_folders",
    TextList,
    "The folders with its skills; if two contain the same name, the first is used. Default: `.agents/skills`.",
);
/// `skill_scripts`.
pub(super) const SKILL_SCRIPTS: Key = key(
    "skill_scripts",
    Map(&SCRIPTS),
    "Scripts of its skills that it may run as tools, by skill: their paths, or also their environment.",
);
/// `skills_narrow_tools`.
pub(super) const SKILLS_NARROW_TOOLS: Key =
    key("skills_narrow_tools", Bool, "Whether loaded skills with `allowed-tools` take all other tools away.")
        .default("false");
/// `skills_by_user`.
pub(super) const SKILLS_BY_USER: Key =
    key("skills_by_user", Bool, "Whether a user loads a skill by a message that begins with `/` and its name.")
        .default("false");
/// `trust`.
pub(super) const TRUST: Key =
    key("trust", Bool, "Whether `skill_folders` may be outside the project.").default("false");

/// A value of `skill_scripts`.
pub(crate) static SKILL_SCRIPT: MapSchema =
    MapSchema::new("grant of scripts", "sub_agents/*/config.yml", Refused).keys(&[
        key("scripts", TextList, "The paths of the scripts in the folder of the skill.").required(),
        key(
            "environment",
            Map(&Text),
            "Their environment variables, such as the secrets that the skill requires, as `${NAME}`. They inherit none.",
        ),
        key("timeout", Seconds, "The time limit of a call in seconds.").default("60"),
    ]);

/// A skill in the configuration of a local agent.
pub(crate) static SKILL: MapSchema = MapSchema::new("skill", "missions/*.yml", Refused).keys(&[
    key("name", Text, "Its name: `a-z`, `0-9` and `-`.").required(),
    key("description", Text, "What it does and when to use it. The agent always sees it.").required(),
    key("instructions", Text, "What the agent reads when it loads the skill.").required(),
    key(
        "tools",
        TextList,
        "Tools that the agent has only after it loaded the skill: `server` for all tools of an MCP server, `server.tool` for one.",
    ),
]);
