//! The page of environment variables. `tidy` reports a variable that the source names and this table does not.

use std::fmt::Write;

const HEAD: &str = "\
# Environment variables

Every variable that the program reads itself. Project files name further ones as `${NAME}`; `segue check` reports those that are not set
([F0110](../errors/F0110.md)). Variables of tests are in [tests/README.md](../../tests/README.md).
";

/// Headings, each with its variables and what they mean.
pub const VARIABLES: [(&str, &[(&str, &str)]); 5] = [
    (
        "Server",
        &[
            (
                "SEGUE_AUTH_TOKEN",
                "The token that callers of `/mcp` must send, if neither `--auth-token` nor `credentials.yml` sets one.",
            ),
            (
                "LOG_LEVEL",
                "What is logged: `debug`, `info`, `warning`, `error` or `critical`. Default: `info` for `segue run`, `warning` otherwise.",
            ),
            ("RUST_LOG", "The same for parts of the program, as in `segue::store=debug`. Overrides `LOG_LEVEL`."),
            ("NO_COLOR", "Any value: `segue mission` draws without colours in a terminal."),
        ],
    ),
    (
        "Models",
        &[
            ("OPENAI_API_KEY", "The key of entries with `provider: openai` that have no `api_key`."),
            ("OPENAI_BASE_URL", "The address of `provider: openai`, if an entry has no `api_base`."),
            ("OPENAI_API_BASE", "The same, if `OPENAI_BASE_URL` is not set."),
            ("AZURE_API_KEY", "The key of `provider: azure`."),
            ("AZURE_API_BASE", "The address of `provider: azure`."),
            ("AZURE_API_VERSION", "The API version of `provider: azure`."),
            ("ANTHROPIC_API_KEY", "The key of `provider: anthropic`."),
            ("ANTHROPIC_BASE_URL", "The address of `provider: anthropic`."),
            ("MISTRAL_API_KEY", "The key of `provider: mistral`."),
            ("GEMINI_API_KEY", "The key of `provider: gemini`."),
            ("COHERE_API_KEY", "The key of `provider: cohere`."),
            ("GROQ_API_KEY", "The key of `provider: groq`."),
            ("DEEPSEEK_API_KEY", "The key of `provider: deepseek`."),
            ("OPENROUTER_API_KEY", "The key of `provider: openrouter`."),
        ],
    ),
    (
        "Proxies",
        &[
            (
                "HTTP_PROXY",
                "The proxy for `http` addresses, in upper or lower case. `http.proxy` in `endpoints.yml` overrides it; see [proxies](server.md#proxies).",
            ),
            ("HTTPS_PROXY", "The proxy for `https` addresses."),
            ("ALL_PROXY", "The proxy for both, where the others are not set."),
            ("NO_PROXY", "Hosts that are reached without a proxy."),
        ],
    ),
    (
        "Custom actions",
        &[
            ("SEGUE_PYTHON", "The Python interpreter for `actions_module`. Default: `python3`."),
            (
                "COMPRESS_ACTION_SERVER_REQUEST",
                "`true` compresses requests to the action server, if `action_endpoint` does not set `compress`.",
            ),
        ],
    ),
    (
        "For tests of the program",
        &[
            ("SEGUE_FAILPOINT", "Debug builds only: ends the process at a named place of the code."),
            ("SEGUE_FAILPOINT_PROOF", "Debug builds only: the file that records that the place was reached."),
            ("SEGUE_TEST_CLOCK_AHEAD", "Debug builds only: milliseconds by which the clock is ahead."),
            ("SEGUE_FULL", "Tests only: `1` runs every case of the tests that otherwise run a sample."),
        ],
    ),
];

/// What MCP servers on stdio get, which is not read here.
const FOOT: &str = "
## Passed on

An MCP server that is started by `command` gets `PATH`, `HOME`, the locale, the time zone and the folder for temporary files, and what `env`
of its entry names; nothing else. A Python module of `actions_module` gets the whole environment.
";

/// The text of the page.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    for (heading, variables) in VARIABLES {
        let _ = write!(page, "\n## {heading}\n\n| variable | meaning |\n| --- | --- |\n");
        for (name, meaning) in variables {
            let _ = writeln!(page, "| `{name}` | {meaning} |");
        }
    }
    page + FOOT
}
