//! Examples of the reference page, by the heading of their table. Each is a part of a file from its outermost key; a test loads them
//! (`tests/it/pages.rs`).

/// The heading, and the YAML.
pub(super) const EXAMPLES: &[(&str, &str)] = &[
    (
        "config.yml",
        "recipe: default.v1\nlanguage: en\nadditional_languages: [de]\nassistant_id: bikes\n\npipeline:\n  - name: CompactLLMCommandGenerator\n    llm: { model_group: main }\n\npolicies:\n  - name: FlowPolicy\n",
    ),
    (
        "pipeline[]",
        "pipeline:\n  - name: CompactLLMCommandGenerator\n    llm: { model_group: main }\n    timezone: Europe/Berlin\n    command_aliases: { \"^Escalate\": hand over }\n",
    ),
    (
        "pipeline[].flow_retrieval",
        "pipeline:\n  - name: CompactLLMCommandGenerator\n    flow_retrieval: { num_flows: 10, embeddings: { model_group: vectors } }\n",
    ),
    (
        "pipeline[].user_input",
        "pipeline:\n  - name: CompactLLMCommandGenerator\n    user_input: { max_characters: 1000 }\n",
    ),
    (
        "policies[]",
        "policies:\n  - name: FlowPolicy\n  - name: EnterpriseSearchPolicy\n    llm: { model_group: main }\n    citation_enabled: true\n",
    ),
    (
        "policies[].vector_store",
        "policies:\n  - name: EnterpriseSearchPolicy\n    vector_store: { type: faiss, source: docs, threshold: 0.2 }\n",
    ),
    ("compat", "compat: { patterns: \"3.16\", failed_actions: continue }\n"),
    (
        "domain.yml",
        "version: \"3.1\"\n\nslots:\n  amount: { type: float }\n\nresponses:\n  utter_ask_amount:\n    - text: How much?\n\nactions:\n  - action_book\n",
    ),
    (
        "slots.<name>",
        "slots:\n  size:\n    type: categorical\n    values: [small, large]\n  passengers:\n    type: float\n    min_value: 1\n    max_value: 9\n    fill: when_asked\n  customer_id: { type: text, write_once: true }\n  booking: { type: text, public: true }\n",
    ),
    ("actions[].<name>", "actions:\n  - action_book: { send_domain: true, inputs: [amount] }\n"),
    ("slots.<name>.mappings[]", "slots:\n  booking:\n    type: text\n    mappings: [{ type: controlled }]\n"),
    (
        "slots.<name>.mappings[].conditions[]",
        "slots:\n  note:\n    type: text\n    mappings: [{ type: from_text, conditions: [{ active_flow: book }] }]\n",
    ),
    (
        "slots.<name>.validation",
        "slots:\n  amount:\n    type: float\n    validation:\n      rejections: [{ if: slots.amount > 1000, utter: utter_try_later }]\n      refill_utter: utter_ask_amount\n",
    ),
    (
        "responses.<name>",
        "responses:\n  utter_hello:\n    - text: \"Hello! Shall we begin?\"\n      condition: slots.identified\n      translation: { de: \"Hallo! Fangen wir an?\" }\n    - text: Hello!\n",
    ),
    (
        "responses.<name>.condition[]",
        "responses:\n  utter_bye:\n    - text: Bye!\n      condition: [{ type: slot, name: identified, value: true }]\n    - text: Good bye!\n",
    ),
    (
        "responses.<name>.metadata",
        "responses:\n  utter_sum:\n    - text: \"{{ slots.amount | int }} EUR\"\n      metadata: { template: jinja, rephrase: false }\n",
    ),
    (
        "responses.<name>.buttons[]",
        "responses:\n  utter_ask_kind:\n    - text: Which kind?\n      buttons:\n        - { title: City, payload: \"/SetSlots(kind=city)\" }\n",
    ),
    ("session_config", "session_config: { session_expiration_time: 60, carry_over_slots_to_new_session: true }\n"),
    (
        "flows.<name>",
        "flows:\n  ask_price:\n    name: asking for the price\n    description: The user asks what something costs.\n    if: slots.identified\n    persisted_slots: [kind]\n    steps:\n      - collect: kind\n      - action: utter_reserved\n",
    ),
    (
        "flows.<name>.nlu_trigger[]",
        "flows:\n  ask_help:\n    description: The user wants help.\n    nlu_trigger: [{ intent: { name: help, confidence_threshold: 0.8 } }]\n    steps: [{ action: utter_reserved }]\n",
    ),
    (
        "flows.<name>.steps[]",
        "flows:\n  hire_two:\n    description: The user wants to hire two bikes.\n    steps:\n      - collect: kind\n        description: the kind of both bikes\n        ask_before_filling: true\n      - set_slots: [{ amount: 2 }]\n      - call: reserve\n        mcp_server: shop\n        mapping:\n          input: [{ param: kind, slot: kind }]\n          output: [{ slot: reference, value: result.structuredContent.id }]\n        on_error: sorry\n      - action: utter_reserved\n        next: END\n      - id: sorry\n        action: utter_try_later\n",
    ),
    (
        "flows.<name>.steps[].next[]",
        "flows:\n  choose:\n    description: The user wants to choose.\n    steps:\n      - collect: kind\n        next:\n          - if: slots.kind is \"city\"\n            then: [{ action: utter_reserved, next: END }]\n          - else: [{ action: utter_try_later, next: END }]\n",
    ),
    (
        "endpoints.yml",
        "model_groups:\n  - id: main\n    models: [{ provider: openai, model: gpt-4.1-mini, api_key: \"${OPENAI_API_KEY}\" }]\n\nmcp_servers:\n  - name: shop\n    url: https://shop.example.com/mcp\n\ntracker_store: { type: sqlite, db: talks.db }\n",
    ),
    (
        "action_endpoint",
        "action_endpoint:\n  url: http://localhost:5055/webhook\n  tracker_events: session\n  timeout: 10\n  effects: { action_book: write }\n",
    ),
    (
        "action_endpoint.basic_auth",
        "action_endpoint:\n  url: http://localhost:5055/webhook\n  basic_auth: { username: segue, password: \"${ACTIONS_PASSWORD}\" }\n",
    ),
    (
        "model_groups[]",
        "model_groups:\n  - id: spare\n    models: [{ provider: self-hosted, model: qwen3:8b, api_base: \"http://localhost:11434/v1\" }]\n",
    ),
    (
        "model_groups[].models[]",
        "model_groups:\n  - id: careful\n    models:\n      - provider: anthropic\n        model: claude-haiku-4-5\n        api_key: \"${ANTHROPIC_API_KEY}\"\n        max_tokens: 1000\n        timeout: 20\n",
    ),
    (
        "model_groups[].router",
        "model_groups:\n  - id: pair\n    router: { routing_strategy: in-order, cooldown_time: 30, allowed_fails: 3, fallbacks: [main] }\n    models:\n      - { provider: openai, model: gpt-4.1-mini, api_key: \"${OPENAI_API_KEY}\" }\n      - { provider: azure, deployment: east, api_base: \"${EAST}\", api_key: \"${EAST_KEY}\" }\n",
    ),
    (
        "mcp_servers[]",
        "mcp_servers:\n  - name: files\n    command: files-server\n    args: [--read-only]\n    env: { FILES_ROOT: /srv/files }\n    effects: { list_files: read }\n",
    ),
    (
        "mcp_servers[].oauth",
        "mcp_servers:\n  - name: calendar\n    url: https://calendar.example.com/mcp\n    oauth: { grant: authorization_code, scope: read }\n",
    ),
    (
        "mcp_servers[].meta_map",
        "mcp_servers:\n  - name: shop\n    url: https://shop.example.com/mcp\n    meta_map:\n      static: { tenant: north }\n      from_slots: [{ slot: customer_id, param: customer }]\n      from_metadata: [{ key: tier, param: tier }]\n",
    ),
    (
        "vector_store",
        "vector_store:\n  type: qdrant\n  collection: travel\n  host: localhost\n  api_key: \"${QDRANT_KEY}\"\n",
    ),
    ("nlg", "nlg: { type: rephrase, rephrase_all: true, llm: { model_group: main } }\n"),
    ("tracker_store", "tracker_store: { type: sqlite, db: talks.db, synchronous: full }\n"),
    ("runs", "runs: { retention_days: 90 }\n"),
    ("server", "server: { open_turns: 100, running_turns: 16, connections_per_address: 0 }\n"),
    ("http", "http: { proxy: \"http://proxy.corp:3128\", no_proxy: [intern.corp, 10.0.0.0/8] }\n"),
    (
        "a2a_server",
        "a2a_server:\n  description: Hires out bikes.\n  url: https://bikes.example.com\n  auth: { token: \"${A2A_TOKEN}\" }\n",
    ),
    ("credentials.yml", "rest:\n  auth_token: \"${REST_TOKEN}\"\nmcp:\n  auth_token: \"${MCP_TOKEN}\"\n"),
    (
        "rest",
        "rest:\n  auth_token: \"${REST_TOKEN}\"\n  senders: [\"shop-*\"]\n  payloads: false\n  allowed_origins: [\"https://shop.example\"]\n",
    ),
    ("mcp", "mcp:\n  auth_token: \"${MCP_TOKEN}\"\n  elicitation: true\n  allowed_hosts: [assistant.example]\n"),
    (
        "mcp.prompts[]",
        "mcp:\n  prompts:\n    - name: plan_a_day\n      description: Plans a day on an island.\n      arguments: [{ name: island, description: Which one, required: true }]\n      response: utter_plan_a_day\n",
    ),
    (
        "mcp.resources[]",
        "mcp:\n  resources:\n    - { uri: \"ferries://timetable\", name: Timetable, mime_type: text/markdown, response: utter_timetable }\n",
    ),
    ("sandbox", "sandbox: { preset: bubblewrap, network: false, read_only: [/opt/rust], timeout_seconds: 300 }\n"),
    ("workspaces", "workspaces: { max_mib: 64 }\n"),
    (
        "sub_agents/*/config.yml",
        "agent:\n  name: teller\n  protocol: RASA\n  description: Pays bills.\nconfiguration:\n  llm: { model_group: main }\n  confirm: writes\nconnections:\n  mcp_servers: [{ name: bank, include_tools: [transfer_money] }]\n",
    ),
    (
        "configuration",
        "configuration:\n  llm: { model_group: main }\n  timeout: 30\n  max_iterations: 8\n  grounded: repair\n  filler_after: 3\n  skills: [refunds]\n",
    ),
    (
        "configuration.tools.<name>",
        "configuration:\n  tools:\n    transfer_money:\n      effect: write\n      requires: slots.identified and slots.amount < 1000\n      refusal: The user must be identified, and 1000 is the limit.\n      confirm: true\n      max_calls: 1\n      on_success: utter_reserved\n      on_failure: utter_try_later\n",
    ),
    (
        "configuration.claims[]",
        "configuration:\n  claims: [{ says: '\\b(gebucht|reserviert)\\b', needs: [transfer_money] }]\n",
    ),
    (
        "connections.mcp_servers[]",
        "connections:\n  mcp_servers: [{ name: bank, include_tools: [transfer_money, find_account] }]\n",
    ),
    (
        "tests/**/*.yml",
        "fixtures:\n  - member: [{ identified: true }]\n\ntest_cases:\n  - test_case: a member hires a bike\n    fixtures: [member]\n    steps:\n      - user: I want to hire a bike\n        assertions:\n          - flow_started: hire_a_bike\n",
    ),
    (
        "tests/**/conftest.yml",
        "metadata:\n  - phone: { source: phone }\nstub_mcp_tools:\n  bank.rates: { result: { eur: 1.1 } }\n",
    ),
    (
        "test_cases[]",
        "test_cases:\n  - test_case: hires nothing without an answer\n    fixtures: [member]\n    metadata: phone\n    steps:\n      - user: hire a bike\n      - bot: Which kind of bike would you like?\n",
    ),
    (
        "test_cases[].steps[]",
        "test_cases:\n  - test_case: the older form\n    steps:\n      - user: hello\n      - utter: utter_hello\n      - slot_was_set: [{ amount: 50 }, kind]\n",
    ),
    (
        "test_cases[].steps[].assertions[]",
        "test_cases:\n  - test_case: pays once\n    steps:\n      - user: \"yes\"\n        assertions:\n          - tool_called: { name: transfer_money, server: bank, arguments: { amount: 50 }, success: true, times: 1 }\n          - slot_was_set: [{ name: amount, value: 50 }]\n          - bot_uttered: { text_matches: Done }\n          - flow_completed: { flow_id: pay }\n          - max_llm_calls: 2\n",
    ),
    (
        "stub_agents.<name>",
        "stub_agents:\n  clerk: { says: Which month?, slots: { found: true }, status: awaiting_user }\ntest_cases:\n  - test_case: the clerk asks\n    steps: [{ user: hello }]\n",
    ),
];
