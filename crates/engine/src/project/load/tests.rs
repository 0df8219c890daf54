//! Loading whole projects from texts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::time::Duration;

use super::super::*;
use crate::finding::Finding;

/// Loads files by their names: `config.yml`, `domain.yml`, `endpoints.yml`, `credentials.yml`, `sub_agents/…`, `data/…`, `missions/…`,
/// `subagents.yml`.
pub(crate) fn load(files: &[(&str, &str)]) -> LoadResult {
    let loaded = Project::load(&sources(files));
    schema::json_schema::tests::assert_agrees_with_loader(files, &loaded.findings);
    loaded
}

/// The input of a load, from files by their names.
pub(crate) fn sources(files: &[(&str, &str)]) -> Sources {
    let mut sources = Sources::default();
    for (path, text) in files {
        let file = SourceFile { path: (*path).into(), text: (*text).into() };
        match *path {
            "config.yml" => sources.config = Some(file),
            "endpoints.yml" => sources.endpoints = Some(file),
            "credentials.yml" => sources.credentials = Some(file),
            _ if path.starts_with("domain") => sources.domain.push(file),
            _ if path.starts_with("sub_agents/") && path.ends_with(".yml") => sources.agents.push(file),
            _ if path.starts_with("data/") => sources.data.push(file),
            "subagents.yml" => sources.subagents = Some(file),
            _ if path.starts_with("missions/") => sources.missions.push(file),
            _ if path.starts_with("patterns/") => sources.patterns.push(file),
            _ => _ = sources.texts.insert((*path).to_owned(), file.text),
        }
    }
    sources.environment.insert("KEY".into(), "hidden".into());
    sources.environment.insert("SHORT".into(), " a1! ".into());
    sources.environment.insert("YES".into(), "true".into());
    sources.environment.insert("PORT".into(), "5055".into());
    sources.read_skills_of_texts();
    sources
}

/// The same with what the analyses find.
pub(crate) fn load_and_analyse(files: &[(&str, &str)]) -> LoadResult {
    Project::load_and_analyse(&sources(files))
}

/// Loads and expects nothing to be found.
pub(crate) fn clean(files: &[(&str, &str)]) -> Project {
    let loaded = load(files);
    assert!(loaded.findings.is_empty(), "{:#?}", loaded.findings);
    loaded.project.unwrap()
}

/// The findings as `code file:line:column`.
pub(crate) fn places(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|f| format!("{} {}:{}:{}", f.code, f.place.file, f.place.line, f.place.column)).collect()
}

/// A text without its marks `¦`, and the marked locations as `line:column`.
pub(crate) fn marked(text: &str) -> (String, Vec<String>) {
    let mut places = Vec::new();
    for (line, text) in text.lines().enumerate() {
        let mut column = 1;
        let mut parts = text.split('¦').peekable();
        while let Some(part) = parts.next() {
            column += part.chars().count();
            if parts.peek().is_some() {
                places.push(format!("{}:{column}", line + 1));
            }
        }
    }
    (text.replace('¦', ""), places)
}

const DOMAIN: &str = "slots:\n  amount: {type: float}\n  name: {type: text}\nresponses:\n  utter_ask_amount: [{text: How much?}]\n  utter_ask_name: [{text: Who?}]\n  utter_ok: [{text: 'ok {name}'}]\n";

#[test]
fn a_simple_project_loads() {
    let flow = "flows:\n  pay:\n    description: send money\n    steps:\n      - collect: amount\n        next:\n          - if: slots.amount > 10\n            then:\n              - collect: name\n                next: done\n          - else:\n              - action: utter_ok\n                next: END\n      - id: done\n        action: utter_ok";
    let project = clean(&[("config.yml", ""), ("domain.yml", DOMAIN), ("data/pay.yml", flow)]);
    let flow = project.flow("pay").unwrap();
    let ids: Vec<&str> = flow.steps.iter().map(|step| step.id.as_str()).collect();
    assert_eq!(ids, ["pay_0_collect_amount", "pay_1_collect_name", "pay_2_utter_ok", "done"]);
    let NextStep::Branch { branches, otherwise } = &flow.steps[0].next else { panic!() };
    assert_eq!(branches[0].target, Target::Step("pay_1_collect_name".into()));
    assert_eq!(otherwise.as_ref().unwrap().target, Target::Step("pay_2_utter_ok".into()));
    assert!(matches!(&flow.steps[3].next, NextStep::Go(Target::End)));
    assert_eq!((&*flow.name, flow.steps[1].place.line, flow.steps[1].place.column), ("pay", 9, 26));
    assert!(project.slot("language").is_some_and(|slot| slot.builtin));
}

#[test]
fn idioms_of_public_calm_projects_have_no_findings() {
    let flow = "flows:\n  a:\n    description: x\n    if: True\n    steps:\n      # a comment\n      - noop:\n        next:\n          - if: not slots.amount\n            then:\n              - set_slots:\n                  amount: 5\n                next: \"END\"\n\n          # between\n          - else: END";
    let project = clean(&[("config.yml", ""), ("domain.yml", DOMAIN), ("data/pay.yml", flow)]);
    assert!(matches!(&project.flow("a").unwrap().steps[1].kind, StepKind::SetSlots(pairs) if pairs.len() == 1));
}

#[test]
fn config_is_read() {
    let config = "recipe: default.v1\nassistant_id: a\nlanguage: de\nadditional_languages: [en]\nshortcuts: false\ncompat: {patterns: '3.13'}\ndata: [one, two]\ndocs: []\npipeline:\n  - name: NLUCommandAdapter\n  - name: SearchReadyLLMCommandGenerator\n    llm: {model_group: main}\n    prompt_template: prompts/own.j2\n    user_input: {max_characters: -1}\n    include_date_time: false\n    flow_retrieval: {num_flows: 5}\npolicies:\n  - name: FlowPolicy\n  - name: EnterpriseSearchPolicy\n    vector_store: {type: faiss}\n";
    let endpoints = "model_groups: [{id: main, models: [{provider: scripted, script: a.yml}]}]\n";
    let project = clean(&[
        ("config.yml", config),
        ("endpoints.yml", endpoints),
        ("prompts/own.j2", "hi {{ user_message }}"),
        ("data/s.yml", SEARCHES),
    ]);
    let generator = project.config.generator.unwrap();
    assert_eq!((&*generator.name, generator.model_group.as_deref()), ("SearchReadyLLMCommandGenerator", Some("main")));
    assert_eq!((generator.max_characters, generator.retrieval.active, generator.retrieval.flows), (None, true, 5));
    assert!(!generator.include_date_time && !project.config.shortcuts && project.command_prompt.is_some());
    assert_eq!(project.config.compat.patterns, CalmVersion::UpTo3_13);
    assert!(project.config.nlu_adapter);
    assert_eq!(project.config.folders.docs, Some(Vec::new()));
    assert_eq!(project.config.folders.data.unwrap().len(), 2);
    let search = project.config.search.unwrap();
    assert_eq!(search.store, DocumentStore::Folder { path: "docs".into(), named: false });
    assert!(search.generative && !search.citations && search.messages_in_query == 2);
    let SlotType::Categorical(languages) = &project.domain.slots["language"].kind else { panic!() };
    assert_eq!(languages.iter().map(|l| &**l).collect::<Vec<_>>(), ["de", "en"]);
}

const SEARCHES: &str = "flows:\n  pattern_search:\n    description: asks for knowledge\n    steps:\n      - action: action_trigger_search\n";

#[test]
fn the_search_policy_and_its_store_are_read() {
    let config = "pipeline:\n  - name: SearchReadyLLMCommandGenerator\n    flow_retrieval: {num_flows: 7, turns_to_embed: 0, should_embed_slots: false, embeddings: {model_group: vectors}}\npolicies:\n  - name: EnterpriseSearchPolicy\n    llm: {provider: scripted, model: m, script: a.yml}\n    embeddings: {model_group: vectors}\n    vector_store: {type: qdrant, threshold: 0.4}\n    use_generative_llm: false\n    citation_enabled: true\n    check_relevancy: true\n    max_messages_in_query: 4\n    max_history: 6\n    include_date_time: false\n    timezone: Europe/Oslo\n    prompt: prompts/own.j2\n";
    let endpoints = "model_groups: [{id: vectors, models: [{provider: openai, model: small}]}]\nvector_store: {type: qdrant, collection: c, host: far.example, port: 443, https: true, prefix: /q/, api_key: '${KEY}', vector_name: dense, content_payload_key: body, timeout: 3, grpc_port: 6334}\n";
    let files = [
        ("config.yml", config),
        ("endpoints.yml", endpoints),
        ("prompts/own.j2", "{{ docs }}"),
        ("data/s.yml", SEARCHES),
    ];
    let project = clean(&files);
    let retrieval = project.config.generator.unwrap().retrieval;
    assert_eq!((retrieval.active, retrieval.flows, retrieval.turns, retrieval.slots), (true, 7, 1, false));
    assert_eq!(retrieval.embeddings.unwrap().group.as_deref(), Some("vectors"));
    let search = project.config.search.unwrap();
    assert_eq!(search.store, DocumentStore::Qdrant);
    assert_eq!((search.threshold, search.messages_in_query, search.max_history), (0.4, 4, Some(6)));
    assert!(!search.generative && search.citations && search.check_relevancy && !search.include_date_time);
    assert_eq!((&*search.timezone, search.llm.own["model"].as_str()), ("Europe/Oslo", Some("m")));
    assert!(search.prompt.is_some() && search.embeddings.is_some());
    let qdrant = project.endpoints.qdrant.unwrap();
    assert_eq!((qdrant.url.as_str(), qdrant.collection.as_str()), ("https://far.example:443/q", "c"));
    assert_eq!((qdrant.vector_name.as_deref(), qdrant.content_key.as_deref()), (Some("dense"), Some("body")));
    assert_eq!((qdrant.api_key.as_deref(), qdrant.metadata_key.as_str()), (Some("hidden"), "metadata"));
    assert!(!format!("{qdrant:?}").contains("hidden"));
}

#[test]
fn fallback_groups_are_read_in_every_form() {
    let load_with = |router: &str| {
        let group =
            |id: &str, more: &str| format!("  - {{id: {id}, {more}models: [{{provider: openai, model: a}}]}}\n");
        let main = group("main", &format!("router: {{fallbacks: {router}}}, "));
        let endpoints = format!("model_groups:\n{main}{}{}", group("spare", ""), group("last", ""));
        load(&[("config.yml", ""), ("domain.yml", DOMAIN), ("endpoints.yml", &endpoints)])
    };
    for (written, expected) in [
        ("spare", vec!["spare"]),
        ("[spare, last, spare, main]", vec!["spare", "last"]),
        ("[{main: [spare, last]}]", vec!["spare", "last"]),
        ("[{main: spare}, {spare: [last]}]", vec!["spare"]),
        ("[{'*': [last]}, {main: [spare]}]", vec!["spare", "last"]),
        ("{main: [spare]}", vec!["spare"]),
        ("[]", vec![]),
    ] {
        let loaded = load_with(written);
        let fallbacks = &loaded.project.unwrap().endpoints.model_groups["main"].fallbacks;
        assert_eq!(fallbacks.iter().map(|group| &**group).collect::<Vec<_>>(), expected, "{written}");
    }
    for (written, code) in
        [("[spair]", "F0606"), ("[{main: [spair]}]", "F0606"), ("[{mian: [spare]}]", "F0606"), ("[[spare]]", "F0108")]
    {
        let findings = load_with(written).findings;
        assert!(findings.iter().any(|finding| finding.code == code), "{written}: {findings:?}");
    }
}

#[test]
fn endpoints_are_read_and_filled_from_the_environment() {
    let endpoints = "model_groups:\n  - id: main\n    router: {routing_strategy: simple-shuffle, cooldown_time: 2.5, allowed_fails: 1, num_retries: 3}\n    models:\n      - {provider: openai, model: a, api_key: '${KEY}', timeout: 7, custom_key: [1]}\n      - {provider: cassette, path: tapes}\nmcp_servers:\n  - {name: far, type: http, url: 'http://localhost:${PORT}/mcp', api_key: '${KEY}', header_name: X-Key, header_format: 'Key {key}', headers: {A: b}, effects: {pay: write}, tool_timeout: 2.5, meta_map: {static: {a: b}, from_slots: [{slot: name, param: who}]}}\n  - {name: near, type: stdio, command: segue, args: [demo, 7], env: {A: b}, trust_annotations: true}\naction_endpoint: {url: 'http://localhost:${PORT}/webhook'}\ninteraction_handling: {global_silence_timeout: 7}\n";
    let project = clean(&[("config.yml", ""), ("domain.yml", DOMAIN), ("endpoints.yml", endpoints)]);
    let router = project.endpoints.model_groups["main"].router.as_ref().unwrap();
    assert_eq!(
        (router.strategy.as_deref(), router.cooldown),
        (Some("simple-shuffle"), Some(Duration::from_millis(2500)))
    );
    assert_eq!((router.allowed_fails, router.num_retries), (Some(1), Some(3)));
    let models = &project.endpoints.model_groups["main"].models;
    assert_eq!(models[0].settings["api_key"], "hidden");
    assert_eq!(
        (&models[0].settings["timeout"], &models[0].settings["custom_key"]),
        (&7.into(), &serde_json::json!([1]))
    );
    assert!(!format!("{models:?}").contains("hidden"));
    assert_eq!((&*models[1].provider, &*models[1].model), ("cassette", ""));
    let far = &project.endpoints.mcp_servers["far"];
    assert_eq!(far.transport, McpTransport::Http { url: "http://localhost:5055/mcp".into() });
    assert_eq!(far.headers, [("A".into(), "b".into()), ("X-Key".into(), "Key hidden".into())]);
    assert_eq!((far.effects["pay"].as_str(), far.tool_timeout.unwrap().as_millis()), ("write", 2500));
    assert_eq!(far.meta_slots, [("who".to_owned(), "name".into())]);
    let McpTransport::Stdio { args, env, .. } = &project.endpoints.mcp_servers["near"].transport else { panic!() };
    assert_eq!((args.join(" "), env.len()), ("demo 7".to_owned(), 1));
    assert!(project.endpoints.mcp_servers["near"].trust_annotations);
    assert_eq!(project.endpoints.action_endpoint.unwrap().url.as_deref(), Some("http://localhost:5055/webhook"));
}

#[test]
fn an_agent_is_read() {
    let endpoints = "mcp_servers: [{name: srv, url: 'http://localhost/mcp'}]\n";
    let agent = "agent: {name: helper, description: helps, protocol: rasa}\nconfiguration: {prompt_template: ./near.jinja2, timeout: 20, tool_timeout: 1.5, timezone: Europe/Oslo, on_tool_error: fail, max_iterations: 4, enable_filler_messages: false}\nconnections: {mcp_servers: [{name: srv, include_tools: [a, b]}]}\n";
    let project = clean(&[
        ("config.yml", ""),
        ("endpoints.yml", endpoints),
        ("sub_agents/h/config.yml", agent),
        ("sub_agents/h/near.jinja2", "x {{ slots.a }}"),
    ]);
    let agent = project.agent("helper").unwrap();
    assert_eq!((agent.protocol, agent.max_retries, agent.max_iterations), (Protocol::Rasa, 3, Some(4)));
    assert_eq!((agent.timeout.unwrap().as_secs(), agent.tool_timeout.unwrap().as_millis()), (20, 1500));
    assert_eq!(
        (&*agent.timezone, agent.on_tool_error, agent.enable_filler_messages),
        ("Europe/Oslo", OnToolError::Fail, false)
    );
    assert!(agent.prompt.is_some() && agent.include_date_time);
    assert_eq!(agent.connections[0].include.len(), 2);
}

#[test]
fn zero_model_calls_of_an_agent_are_an_error() {
    let agent = "agent: {name: helper, description: helps}\nconfiguration: {max_iterations: 0}\n";
    let loaded = load(&[("config.yml", ""), ("sub_agents/h/config.yml", agent)]);
    let found = loaded.findings.iter().find(|found| found.message.contains("max_iterations"));
    assert!(found.is_some_and(|found| format!("{found:?}").contains("1 or more")), "{:#?}", loaded.findings);
}

#[test]
fn more_model_calls_of_an_agent_than_a_conversation_has_are_reported() {
    for (written, is_reported) in [(20, false), (40, false), (41, true), (5_000_000_000_u64, true)] {
        let agent =
            format!("agent: {{name: helper, description: helps}}\nconfiguration: {{max_iterations: {written}}}\n");
        let loaded = load(&[("config.yml", ""), ("sub_agents/h/config.yml", &agent)]);
        let found = loaded.findings.iter().any(|found| found.message.contains("`max_iterations` is 40 at most"));
        assert_eq!(found, is_reported, "{written}: {:#?}", loaded.findings);
    }
}

#[test]
fn an_action_endpoint_is_read_with_all_its_keys() {
    let text = "action_endpoint:\n  url: http://localhost:5055/webhook\n  actions_module: a.b\n  token: '${KEY}'\n  token_name: t\n  basic_auth: {username: u, password: '${KEY}'}\n  headers: {X-A: b}\n  params: {p: q}\n  cafile: ca.pem\n  enable_selective_domain: true\n  tracker_events: 25\n  timeout: 2.5\n  compress: true\n  effects: {action_look: read}\n";
    let domain = "actions: [action_look]\n";
    let project = clean(&[("config.yml", ""), ("domain.yml", domain), ("endpoints.yml", text)]);
    let endpoint = project.endpoints.action_endpoint.unwrap();
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(endpoint.params, [pair("p", "q"), pair("t", "hidden")]);
    assert_eq!((endpoint.basic_auth.clone(), &endpoint.headers), (Some(pair("u", "hidden")), &vec![pair("X-A", "b")]));
    assert_eq!(
        (endpoint.tracker_events, endpoint.timeout),
        (TrackerEvents::Latest(25), Some(Duration::from_millis(2500)))
    );
    assert_eq!(
        (endpoint.selective_domain, endpoint.compress, endpoint.effects["action_look"].as_str()),
        (true, Some(true), "read")
    );
    assert_eq!((endpoint.module.as_deref(), endpoint.cafile.as_deref()), (Some("a.b"), Some("ca.pem")));
    assert!(!format!("{endpoint:?}").contains("hidden"), "secrets are not printed");
    for (wrong, code) in [
        ("url: ftp://x", "F0612"),
        ("timeout: 3", "F0109"),
        ("{url: 'http://x', tracker_events: 0}", "F0623"),
        ("{url: 'http://x', effects: {action_x: read}}", "F0222"),
        ("{url: 'http://x', effects: {action_look: often}}", "F0613"),
        ("{url: 'http://x', basic_auth: {username: a}}", "F0109"),
    ] {
        let text = if wrong.starts_with('{') {
            format!("action_endpoint: {wrong}")
        } else {
            format!("action_endpoint:\n  {wrong}")
        };
        let findings = load(&[("config.yml", ""), ("domain.yml", domain), ("endpoints.yml", &text)]).findings;
        assert!(findings.iter().any(|finding| finding.code == code), "{wrong}: {findings:?}");
    }
    assert!(clean(&[("config.yml", ""), ("endpoints.yml", "action_endpoint:")]).endpoints.action_endpoint.is_none());
}

/// A list of strings is wrong by one of its items, and that is where it is corrected.
#[test]
fn a_list_of_strings_names_each_item_that_is_none() {
    let mission = |tools: &str| {
        format!(
            "mission:\n  description: x\n  local_agents: {{a: {{description: helps, tools: {tools}}}}}\n  agents: [a]\n  tasks: {{t: {{objective: Do.}}}}\n"
        )
    };
    let servers = "mcp_servers: [{name: shop, type: http, url: 'http://localhost:1'}]";
    let findings = |tools: &str| {
        let files = [("config.yml", ""), ("endpoints.yml", servers), ("missions/m.yml", &*mission(tools))];
        let findings = load(&files).findings.into_iter().filter(|finding| finding.code.starts_with("F0"));
        findings.map(|found| (found.code, found.place.column, found.message, found.help)).collect::<Vec<_>>()
    };
    let at = mission("").find("tools: ").unwrap() + 7 - mission("").find("  local").unwrap();
    let column = |offset: usize| u32::try_from(at + 1 + offset).unwrap();
    let wrong = findings("[shop, {a: b}, [x]]");
    let expected = [(column(7), "its item 2 is a map"), (column(15), "its item 3 is a list")];
    assert_eq!(wrong.len(), expected.len(), "{wrong:?}");
    for ((code, place, message, _), (column, text)) in wrong.iter().zip(expected) {
        assert!(*code == "F0108" && message.starts_with("`tools` must be a list of strings"), "{message}");
        assert!(*place == column && message.ends_with(text), "{place} {message}");
    }
    let [(code, .., help)] = &findings("[shop, set_subtasks]")[..] else { panic!("{:?}", findings("[set_subtasks]")) };
    assert_eq!((*code, &**help), ("F0505", "The runtime supplies `set_subtasks`: remove the entry."));
}

#[test]
fn the_server_section_is_read_and_a_limit_of_zero_is_an_error() {
    let read = |text: &str| clean(&[("config.yml", ""), ("endpoints.yml", text)]).endpoints.server;
    let server = read(
        "server: {open_turns: 20, running_turns: 10, turns_per_caller: 2, expected_wait: 7.5, connections: 99, connections_per_address: 0}",
    );
    assert_eq!((server.open_turns, server.running_turns, server.turns_per_caller), (Some(20), Some(10), Some(2)));
    assert_eq!(server.expected_wait, Some(Duration::from_millis(7500)));
    assert_eq!((server.connections, server.connections_per_address), (Some(99), Some(0)));
    assert_eq!(read("server: {}"), Default::default());
    for key in ["open_turns", "running_turns", "turns_per_caller", "connections"] {
        let text = format!("server: {{{key}: 0}}");
        let findings = load(&[("config.yml", ""), ("endpoints.yml", &text)]).findings;
        assert!(findings.iter().any(|finding| finding.code == "F0108"), "{key}: {findings:?}");
    }
}

#[test]
fn every_form_of_a_tracker_store_is_read() {
    let sqlite = |file: Option<&str>, full| TrackerStoreDef::Sqlite { file: file.map(str::to_owned), full };
    for (store, expected) in [
        ("{}", TrackerStoreDef::Memory),
        ("{type: InMemory}", TrackerStoreDef::Memory),
        ("{type: SQL}", sqlite(Some("rasa.db"), None)),
        ("{type: SQL, dialect: sqlite, db: x.db}", sqlite(Some("x.db"), None)),
        ("{type: SQL, db: x.db, synchronous: full}", sqlite(Some("x.db"), Some(true))),
        ("{type: sqlite, db: x.db, synchronous: normal}", sqlite(Some("x.db"), Some(false))),
        ("{type: segue, path: x.db}", sqlite(Some("x.db"), None)),
        ("{type: segue}", sqlite(None, None)),
    ] {
        let endpoints = format!("tracker_store: {store}");
        let project = clean(&[("config.yml", ""), ("endpoints.yml", &endpoints)]);
        assert_eq!(project.endpoints.tracker_store, Some(expected), "{store}");
    }
    for (store, code, what) in [
        ("{type: SQL, dialect: postgresql, db: x, username: u}", "F0614", "`postgresql`"),
        ("{type: mongod, url: m}", "F0614", "`mongod`"),
        ("{type: segue, synchronous: off}", "F0111", "`off`"),
    ] {
        let endpoints = format!("tracker_store: {store}");
        let findings = load(&[("config.yml", ""), ("endpoints.yml", &endpoints)]).findings;
        assert!(findings.len() == 1 && findings[0].code == code, "{findings:?}");
        assert!(findings[0].message.contains(what), "{findings:?}");
    }
}

#[test]
fn sections_without_effect_accept_any_value() {
    for form in ["[a]", "text", "7", "{unheard: [1]}", "{type: [1], rules: x, global_silence_timeout: long}"] {
        for section in ["privacy", "interaction_handling", "tracing", "metrics"] {
            let endpoints = format!("{section}: {form}");
            let loaded = load(&[("config.yml", ""), ("endpoints.yml", &endpoints)]);
            assert!(loaded.project.is_some(), "{endpoints}: {:?}", loaded.findings);
        }
    }
}

#[test]
fn oauth_credentials_are_parsed_with_environment_values() {
    let endpoints = "mcp_servers:\n  - name: far\n    url: https://far/mcp\n    oauth: {client_id: 7, client_secret: '${KEY}', scope: a b, hosts: [in.far], redirect_port: '${PORT}', timeout: 2.5}\n";
    let project = clean(&[("config.yml", ""), ("endpoints.yml", endpoints)]);
    let oauth = project.endpoints.mcp_servers["far"].oauth.as_ref().unwrap();
    assert_eq!((oauth.client_id.as_deref(), oauth.client_secret.as_deref()), (Some("7"), Some("hidden")));
    assert_eq!((oauth.grant, oauth.redirect_port), (OAuthGrant::ClientCredentials, Some(5055)));
    assert_eq!((oauth.hosts.join(","), oauth.timeout), ("in.far".to_owned(), Some(Duration::from_millis(2500))));
    assert!(!format!("{oauth:?}").contains("hidden"));
    let agent = "agent: {name: a, description: b, protocol: A2A}\nconfiguration:\n  agent_card: https://a/card\n  auth: {oauth: {client_id: me, client_secret: '${KEY}', token_url: 'https://t', timeout: '${PORT}'}, hosts: [b.a]}\n";
    let project = clean(&[("config.yml", ""), ("sub_agents/a/config.yml", agent)]);
    let auth = &project.agents["a"].auth;
    let oauth = auth.oauth.as_ref().unwrap();
    assert_eq!((oauth.timeout, auth.hosts.join(",")), (Some(Duration::from_secs(5055)), "b.a".to_owned()));
}

#[test]
fn an_unknown_channel_key_is_a_warning_and_a_typo_keeps_the_channel_closed() {
    for (channel, key, misspelt) in [
        ("rest", "auth_tokn", true),
        ("rest", "colour", false),
        ("mcp", "elicitations", true),
        ("mcp", "colour", false),
    ] {
        let loaded = load(&[("config.yml", ""), ("credentials.yml", &format!("{channel}:\n  {key}: x\n"))]);
        assert_eq!(places(&loaded.findings), ["F0107 credentials.yml:2:3"], "{:?}", loaded.findings);
        let channel = &loaded.project.unwrap().credentials[channel];
        assert_eq!(channel.check_spelling().is_err(), misspelt, "{key}");
    }
    let loaded = load(&[("config.yml", ""), ("credentials.yml", "rest:\n  payloads: maybe\n")]);
    assert_eq!(places(&loaded.findings), ["F0108 credentials.yml:2:13"], "{:?}", loaded.findings);
}

#[test]
fn on_error_has_the_forms_of_next() {
    let flow = "flows:\n  a:\n    description: x\n    steps:\n      - action: utter_ok\n        on_error:\n          - if: context.error.code is \"timeout\"\n            then: END\n          - else:\n              - action: utter_ok\n                next: END\n      - action: utter_ok\n        on_error: last\n        next: END\n      - id: last\n        action: utter_ok";
    let project = clean(&[("config.yml", ""), ("domain.yml", DOMAIN), ("data/a.yml", flow)]);
    let flow = project.flow("a").unwrap();
    let exits: Vec<usize> = flow.steps.iter().map(|step| step.exits().count()).collect();
    assert_eq!(exits, [3, 1, 2, 1]);
    let wrong = "flows:\n  a:\n    description: x\n    steps:\n      - action: utter_ok\n        on_error: nowhere\n      - noop: true\n        on_error: END\n        next: END";
    let findings = load(&[("config.yml", ""), ("domain.yml", DOMAIN), ("data/a.yml", wrong)]).findings;
    assert_eq!(places(&findings), ["F0205 data/a.yml:6:19", "F0236 data/a.yml:8:9"]);
}

#[test]
fn domain_files_are_merged_and_kept_as_json() {
    let one = "slots:\n  code: {type: text, initial_value: 007}\n  size: {type: categorical, values: [1, Large], initial_value: large}\n  picked:\n    type: bool\n    mappings: [{type: controlled, run_action_every_turn: action_look}]\n    validation: {rejections: [{if: slots.picked is false, utter: utter_a}], refill_utter: utter_a}\nactions: [action_look, {action_send: {send_domain: true}}]\nsession_config: {session_expiration_time: 0}\n";
    let two = "responses:\n  utter_a:\n    - text: 'Pay ${code}'\n      condition: slots.picked is true\n      buttons: [{title: Yes, payload: '/SetSlots(picked=true)', type: web}]\n    - text: 'Other'\n      channel: slack\n      condition: [{type: slot, name: code, value: 007}]\n      custom: {blocks: [1]}\n      metadata: {rephrase: true}\nactions: [action_look]\nintents: [greet, {bye: {use_entities: true}}]\n";
    let endpoints = "action_endpoint: {url: 'http://localhost/webhook'}\nnlg: {type: rephrase}\n";
    let project =
        clean(&[("config.yml", ""), ("domain/a.yml", one), ("domain/b.yml", two), ("endpoints.yml", endpoints)]);
    assert_eq!(project.slot("code").unwrap().initial, "007");
    assert_eq!(project.slot("size").unwrap().initial, "Large");
    assert!(project.domain.actions["action_send"].send_domain && !project.domain.actions["action_look"].send_domain);
    assert_eq!((project.domain.session.expiration_minutes, project.domain.intents.len()), (0.0, 2));
    let variations = &project.response("utter_a").unwrap().variations;
    assert!(matches!(&variations[0].text, Some(ResponseText::Braces(text)) if &**text == "Pay ${code}"));
    assert!(
        matches!(&variations[0].buttons[0], (ResponseText::Braces(title), _, extra) if &**title == "Yes" && extra["type"] == "web")
    );
    assert_eq!(variations[1].slot_conditions, [("code".into(), "007".into())]);
    assert_eq!(project.domain.as_json["actions"].as_array().unwrap().len(), 2);
}

#[test]
fn project_patterns_replace_built_in_ones() {
    let pattern = "flows:\n  pattern_search: {description: x, steps: [{action: utter_none}]}\n  pattern_chitchat: {description: x, steps: [{action: 'validate_{{context.collect}}'}]}\n";
    let texts = "responses: {utter_none: [{text: none}], utter_ok: [{text: built in}]}\n";
    let own = "flows:\n  pattern_search: {description: own, steps: [{action: utter_ok}]}\n";
    let files = [
        ("config.yml", ""),
        ("domain.yml", DOMAIN),
        ("data/a.yml", own),
        ("patterns/a.yml", pattern),
        ("patterns/b.yml", texts),
    ];
    let project = clean(&files);
    assert_eq!(&*project.flow("pattern_search").unwrap().description, "own");
    assert!(matches!(
        &project.flow("pattern_chitchat").unwrap().steps[0].kind,
        StepKind::Action(ActionReference::Template(_))
    ));
    assert!(project.response("utter_none").unwrap().builtin && !project.response("utter_ok").unwrap().builtin);
}

#[test]
fn a_syntax_error_does_not_hide_findings_in_other_files() {
    let loaded = load(&[
        ("config.yml", ""),
        ("domain.yml", DOMAIN),
        ("data/a.yml", "flows: ["),
        ("data/b.yml", "flows: {x: {description: y, stps: []}}"),
    ]);
    let codes: Vec<_> = loaded.findings.iter().map(|f| (f.code, &*f.place.file)).collect();
    assert_eq!(codes, [("F0102", "data/a.yml"), ("F0109", "data/b.yml"), ("F0107", "data/b.yml")]);
}

#[test]
fn the_fingerprint_depends_only_on_behaviour() {
    let flow = |steps: &str| format!("flows:\n  a:\n    description: x\n    steps:\n{steps}");
    let print = |text: &str| {
        clean(&[("config.yml", ""), ("domain.yml", DOMAIN), ("data/a.yml", text)]).flow("a").unwrap().fingerprint
    };
    let plain = print(&flow("      - action: utter_ok\n"));
    assert_eq!(plain, print(&flow("\n      # a comment\n      - action: \"utter_ok\"\n        metadata: {x: 1}\n")));
    assert_ne!(plain, print(&flow("      - action: utter_ask_name\n")));
}

#[test]
fn an_unset_variable_is_one_finding() {
    let endpoints = "action_endpoint: {url: '${HOST}/webhook', timeout: '${WAIT}', compress: '${NO_KEY}'}\nnlg: {url: 'https://${HOST}'}\n";
    let loaded = load(&[("config.yml", ""), ("domain.yml", DOMAIN), ("endpoints.yml", endpoints)]);
    let codes: Vec<_> = loaded.findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, ["F0110"; 4], "{:#?}", loaded.findings);
}

#[test]
fn the_proxy_is_read_and_its_password_is_never_shown() {
    let http = |text: &str| {
        let endpoints = format!("http: {text}\n");
        load(&[("config.yml", ""), ("domain.yml", DOMAIN), ("endpoints.yml", &endpoints)])
    };
    for (text, no_proxy) in [
        ("{proxy: 'http://me:s3cret@proxy.corp:3128', no_proxy: [a.corp, 10.0.0.0/8]}", "a.corp,10.0.0.0/8"),
        ("{proxy: 'http://me:s3cret@proxy.corp:3128', no_proxy: 'a.corp, b.corp'}", "a.corp, b.corp"),
    ] {
        let loaded = http(text);
        assert!(loaded.findings.is_empty(), "{:#?}", loaded.findings);
        let def = loaded.project.unwrap().endpoints.http;
        assert_eq!(def.proxy.as_deref(), Some("http://me:s3cret@proxy.corp:3128"));
        assert_eq!(def.no_proxy.as_deref(), Some(no_proxy));
        assert!(!format!("{def:?}").contains("s3cret"));
    }
    for wrong in ["{proxy: 'me:s3cret@proxy.corp'}", "{proxy: 'ftp://me:s3cret@proxy.corp'}", "{proxy: 'http://'}"] {
        let findings = http(wrong).findings;
        assert!(matches!(&*findings, [one] if one.code == "F0612" && !one.message.contains("s3cret")), "{findings:#?}");
    }
}

#[test]
fn secrets_that_rasa_allows_in_files_are_warnings() {
    let with = |secret: &str| {
        format!(
            "action_endpoint: {{url: 'http://h/webhook', token: {secret}, basic_auth: {{username: a, password: {secret}}}}}\n\
             nlg: {{url: 'http://h/nlg', basic_auth: {{username: a, password: {secret}}}}}\n"
        )
    };
    let endpoints = with("sk-live-1");
    let loaded = load(&[("config.yml", ""), ("domain.yml", DOMAIN), ("endpoints.yml", &endpoints)]);
    let found: Vec<_> = loaded.findings.iter().map(|finding| (finding.code, finding.severity)).collect();
    assert_eq!(found, [("F0601", crate::finding::Severity::Warning); 3], "{:#?}", loaded.findings);
    assert!(loaded.project.is_some(), "such files are legal in the format");
    clean(&[("config.yml", ""), ("domain.yml", DOMAIN), ("endpoints.yml", &with("'${KEY}'"))]);
}

#[test]
fn findings_do_not_show_secrets_in_their_line() {
    let endpoints = "model_groups:\n  - id: main\n    models:\n      - {provider: openai, model: m, api_key: sk-live-1, temperatur: 1}\n      - {provider: openai, model: m, apikey: sk-live-2}\nmcp_servers:\n  - {name: m, tokn: 1, token: sk-live-3}\n";
    let file = SourceFile { path: "endpoints.yml".into(), text: endpoints.into() };
    let sources = Sources { endpoints: Some(file), ..Sources::default() };
    let findings = Project::load(&sources).findings;
    let shown = super::super::findings_report::all(&findings, &sources);
    assert!(findings.iter().filter(|finding| finding.place.line == 4).count() >= 2, "{shown}");
    assert!(shown.contains("apikey") && !shown.contains("sk-live"), "{shown}");
}

#[test]
fn unset_variables_may_be_ignored_except_those_of_the_store() {
    let endpoints = "action_endpoint: {url: '${HOST}/webhook', timeout: '${WAIT}'}\n\
                     mcp_servers: [{name: bank, type: http, url: '${BANK}'}]\n\
                     model_groups: [{id: m, models: [{provider: openai, model: gpt-4.1, api_key: '${NO_KEY}'}]}]\n\
                     tracker_store: {type: sqlite, db: '${DB}'}\n";
    let mut sources = sources(&[("config.yml", ""), ("domain.yml", DOMAIN), ("endpoints.yml", endpoints)]);
    sources.unset_variables = UnsetVariables::IgnoredExceptStore;
    let loaded = Project::load(&sources);
    assert_eq!(places(&loaded.findings), ["F0110 endpoints.yml:4:35"], "{:#?}", loaded.findings);
    sources.unset_variables = UnsetVariables::Ignored;
    let loaded = Project::load(&sources);
    assert!(loaded.project.is_some(), "{:#?}", loaded.findings);
}

#[test]
fn a_name_in_a_file_with_a_syntax_error_is_not_missing_in_another_file() {
    let broken = "flows:\n  check_balance: {description: a, steps: [{action: utter_ok}\n";
    let links = "flows:\n  pay:\n    description: b\n    steps:\n      - link: check_balance\n";
    let loaded =
        load_and_analyse(&[("config.yml", ""), ("domain.yml", DOMAIN), ("data/a.yml", broken), ("data/b.yml", links)]);
    let codes: Vec<_> = loaded.findings.iter().map(|finding| (finding.code, &*finding.place.file)).collect();
    assert_eq!(codes, [("F0102", "data/a.yml")], "{:#?}", loaded.findings);
}

#[test]
fn a_deprecated_key_that_repeats_the_default_is_to_be_removed() {
    let warning = |value: &str| {
        let flow = format!(
            "flows:\n  pay:\n    description: b\n    steps:\n      - collect: amount\n        reset_after_flow_ends: {value}\n"
        );
        let loaded = load(&[("config.yml", ""), ("domain.yml", DOMAIN), ("data/b.yml", &flow)]);
        let found = loaded.findings.iter().find(|finding| finding.code == "F0116").unwrap();
        (found.message.clone(), found.help.clone())
    };
    let (message, help) = warning("true");
    assert_eq!(message, "`reset_after_flow_ends: true` in a step has no effect: it is the default");
    assert_eq!(help, "Remove `reset_after_flow_ends`.");
    let (message, help) = warning("false");
    assert_eq!(message, "`reset_after_flow_ends` in a step works but is deprecated");
    assert_eq!(help, "Write the slot under `persisted_slots` of the flow.");
}

#[test]
fn a_python_component_with_a_model_or_a_prompt_is_a_command_generator() {
    for key in ["llm: {model_group: m}", "prompt_template: p.jinja2"] {
        let config = format!("pipeline: [{{name: my.gen.MyGenerator, {key}}}]\n");
        let loaded = load(&[
            ("config.yml", &config),
            ("domain.yml", DOMAIN),
            ("p.jinja2", "{{ user_message }}"),
            ("endpoints.yml", "model_groups: [{id: m, models: [{provider: openai, model: gpt-4.1}]}]\n"),
        ]);
        let codes: Vec<_> = loaded.findings.iter().map(|finding| finding.code).collect();
        assert!(codes.contains(&"F0707"), "{:#?}", loaded.findings);
        let project = loaded.project.unwrap();
        assert_eq!(&*project.config.generator.as_ref().unwrap().name, "CompactLLMCommandGenerator");
        assert_eq!(project.command_prompt.is_some(), key.starts_with("prompt"));
    }
}

#[test]
fn unknown_names_in_the_template_of_a_response_are_findings() {
    let domain = "responses:\n  utter_a:\n    - text: \"{{ slots.balance | currency }} {{ slots.balance.foo() }}\"\n      metadata: {template: jinja}\nslots: {balance: {type: text}}\n";
    let loaded = load(&[("config.yml", ""), ("domain.yml", domain)]);
    assert_eq!(places(&loaded.findings), ["F0406 domain.yml:3:33", "F0406 domain.yml:3:62"], "{:#?}", loaded.findings);
}
