//! The pages hold: files that they show load, commands are those of the program, and requests get the answers that stand below them.
//!
//! The info string of a block says what it is; readers do not see it.
//!
//! * `yaml FILE`: the file, or a part of it with its outermost keys. `yaml FILE PATH`: what is below a path of the file, such as
//!   `endpoints.yml mcp_servers.shop`. It is merged into a copy of `tests/projects/pages`, after the blocks above it, and `segue check`
//!   finds no error. The pages of the tutorial share one folder, which is empty at first, and a whole file replaces the one that is
//!   there. `try` at the end: the next blocks do not build on it. `run`, of test cases: they pass with the starter.
//! * `python FILE`: a file; it compiles.
//! * `sh`: commands; those of `segue` are accepted by the command line. `sh run`: they are run in the page's project.
//! * `sh serve`, `text serve`: requests (`curl`) to the page's project, which is served. The answer follows in the same block, or in a
//!   `json` block after it; a comment `# 401` is the status.
//! * `ignore` in place of all of this.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use segue::project::{SourceFile, test_cases::TestFile};
use serde_json::{Map, Value as Json};

use crate::{
    folder::copy_folder,
    program::{ProgramOutput, command, run_in},
    support::server_process::{ServerProcess, client},
};

/// A block of code of a page.
#[derive(Debug)]
pub(crate) struct Block {
    /// The page, and the line of the fence.
    place: String,
    pub(crate) language: String,
    /// The words of the info string after the language.
    marks: Vec<String>,
    pub(crate) text: String,
}

/// The blocks of a page.
pub(crate) fn blocks(name: &str, page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        let Some(info) = line.trim_start().strip_prefix("```") else { continue };
        let mut words = info.split_whitespace().map(str::to_owned);
        let language = words.next().unwrap_or_default();
        let mut text = String::new();
        for (_, line) in lines.by_ref().take_while(|(_, line)| line.trim() != "```") {
            text += line.get(indent..).unwrap_or_default();
            text.push('\n');
        }
        blocks.push(Block { place: format!("{name}:{}", number + 1), language, marks: words.collect(), text });
    }
    blocks
}

impl Block {
    fn is(&self, mark: &str) -> bool {
        self.marks.iter().any(|one| one == mark)
    }

    /// The file that the block is the whole of.
    pub(crate) fn file(&self) -> Option<&str> {
        let is_file = ["yaml", "python"].contains(&&*self.language) && self.path().is_empty() && !self.is("ignore");
        is_file.then(|| self.marks.first().map(String::as_str)).flatten()
    }

    /// The path of the block in its file.
    fn path(&self) -> Vec<&str> {
        let path = self.marks.get(1).filter(|mark| !["try", "run"].contains(&mark.as_str()));
        path.map(|path| path.split('.').collect()).unwrap_or_default()
    }

    fn is_shell(&self) -> bool {
        ["sh", "bash", "shell", "console"].contains(&&*self.language)
    }

    /// Its commands, each with the output that the block shows after it.
    fn commands(&self) -> Vec<(String, String)> {
        let transcript = self.language == "text" || self.language == "console";
        let mut commands: Vec<(String, String)> = Vec::new();
        let mut continued = false;
        for line in self.text.lines() {
            let start = if transcript { line.strip_prefix("$ ") } else { Some(line) };
            let text = if continued { Some(line) } else { start };
            match (text, commands.last_mut()) {
                (Some(text), Some((command, _))) if continued => *command += text,
                (Some(text), _) if transcript || !text.trim().is_empty() => {
                    commands.push((text.to_owned(), String::new()))
                }
                (None, Some((_, output))) => *output += &format!("{line}\n"),
                _ => {}
            }
            continued = text.is_some_and(|text| text.ends_with('\\'));
            if let Some((command, _)) = commands.last_mut().filter(|_| continued) {
                command.pop();
            }
        }
        commands
    }
}

/// The README and all pages of `docs`, but those of error codes, whose examples `crates/engine/tests/error_page_examples.rs` runs.
fn pages() -> Vec<(String, Vec<Block>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = vec![root.join("README.md")];
    let walk = walkdir::WalkDir::new(root.join("docs")).sort_by_file_name().into_iter().map(Result::unwrap);
    paths.extend(walk.map(walkdir::DirEntry::into_path).filter(|path| path.extension().is_some_and(|end| end == "md")));
    let name = |path: &Path| path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
    let paths = paths.into_iter().filter(|path| !path.starts_with(root.join("docs/errors")));
    paths.map(|path| (name(&path), blocks(&name(&path), &fs::read_to_string(&path).unwrap()))).collect()
}

/// Words as a shell reads them, command by command; the comment at the end.
fn shell(line: &str) -> (Vec<Vec<String>>, Option<String>) {
    let (mut commands, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let mut chars = line.chars().peekable();
    let mut comment = None;
    while let Some(char) = chars.next() {
        match char {
            '\'' | '"' => {
                let text = word.get_or_insert_default();
                text.extend(chars.by_ref().take_while(|next| *next != char));
            }
            '#' if word.is_none() => comment = Some(chars.by_ref().collect::<String>().trim().to_owned()),
            '|' | ';' | '&' => {
                words.extend(word.take());
                commands.push(std::mem::take(&mut words));
            }
            char if char.is_whitespace() => words.extend(word.take()),
            char => word.get_or_insert_default().push(char),
        }
    }
    words.extend(word);
    commands.push(words);
    commands.retain(|words| !words.is_empty());
    (commands, comment)
}

/// The arguments of the program, if that is what the words run.
fn arguments(words: &[String]) -> Option<Vec<String>> {
    let words: Vec<&str> = words.iter().map(String::as_str).skip_while(|word| word.contains('=')).collect();
    let arguments = match words.as_slice() {
        ["segue", rest @ ..] | ["cargo", "run", "--", rest @ ..] => rest,
        _ => return None,
    };
    // Where input comes from and output goes to is for the shell.
    let redirect = arguments.iter().position(|word| word.starts_with(['<', '>'])).unwrap_or(arguments.len());
    Some(arguments[..redirect].iter().map(|word| (*word).to_owned()).collect())
}

/// What the command line says against it.
fn refusal(arguments: &[String], is_mention: bool) -> Option<String> {
    use clap::error::ErrorKind;
    let words = std::iter::once("segue".to_owned()).chain(arguments.iter().cloned());
    let error = segue::cli::command().try_get_matches_from(words).err()?;
    let is_fine = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
        // A command is also named without what it needs.
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::InvalidValue
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => is_mention,
        _ => false,
    };
    (!is_fine).then(|| error.to_string())
}

fn known_commands() -> Vec<String> {
    segue::cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect()
}

#[test]
fn commands_are_those_of_the_program() {
    let (mut segue, mut others, mut problems) = (0, BTreeMap::<String, usize>::new(), Vec::new());
    let known = known_commands();
    let mut check = |place: &str, arguments: &[String], is_mention: bool| {
        segue += 1;
        if let Some(refusal) = refusal_by_name(arguments, &known).or_else(|| refusal(arguments, is_mention)) {
            problems.push(format!("{place}: segue {}: {refusal}", arguments.join(" ")));
        }
    };
    for (page, blocks) in pages() {
        for block in &blocks {
            let is_transcript = block.language == "text" && block.text.starts_with("$ ");
            if block.is("ignore") || !(block.is_shell() || is_transcript) {
                continue;
            }
            for (line, _) in block.commands() {
                for words in shell(&line).0 {
                    match arguments(&words) {
                        Some(arguments) => check(&block.place, &arguments, false),
                        None => *others.entry(words[0].clone()).or_default() += 1,
                    }
                }
            }
        }
        for mention in mentions(&fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(&page)).unwrap()) {
            if let Some(arguments) = shell(&mention).0.first().and_then(|words| arguments(words)) {
                check(&page, &arguments, true);
            }
        }
    }
    println!("{segue} commands and mentions of `segue`; of other programs, not run: {others:?}");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(segue > 80, "{segue}");
}

/// What is no command of the program is left to the program by the command line.
fn refusal_by_name(arguments: &[String], known: &[String]) -> Option<String> {
    let name = arguments.first().filter(|name| !name.starts_with('-') && !known.contains(name))?;
    Some(format!("there is no command `{name}`"))
}

/// What a page says in its text about `segue`: code within a line.
fn mentions(page: &str) -> Vec<String> {
    let mut text = String::new();
    let mut is_block = false;
    for line in page.lines() {
        let fence = line.trim_start().starts_with("```");
        is_block ^= fence;
        if !is_block && !fence {
            text += line;
            text.push(' ');
        }
    }
    let code = text.split('`').skip(1).step_by(2);
    code.filter(|code| code.starts_with("segue ") && !code.contains('…')).map(str::to_owned).collect()
}

/// The pages that share a project.
const TUTORIAL: &str = "docs/tutorial/";

/// The project that the blocks of a page are parts of.
struct PageProject {
    folder: tempfile::TempDir,
    /// Variables that the files name.
    variables: Vec<(String, String)>,
    is_tutorial: bool,
    server: Option<ServerProcess>,
}

impl PageProject {
    fn new(page: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let is_tutorial = page.starts_with(TUTORIAL);
        match page {
            _ if is_tutorial => {}
            // It shows a file of this project.
            "README.md" => copy_folder(&root.join("examples/projects/blank"), folder.path()),
            _ => copy_folder(&root.join("tests/projects/pages"), folder.path()),
        }
        Self { folder, variables: Vec::new(), is_tutorial, server: None }
    }

    /// Sets the variables that a page names.
    fn set_variables(&mut self, blocks: &[Block]) {
        for block in blocks {
            for part in block.text.split("${").skip(1) {
                let name = part.split('}').next().unwrap().to_owned();
                // Long enough for a secret, and an address.
                let value = "https://page.example/0123456789abcdef".to_owned();
                self.variables.push((name, value));
            }
        }
    }

    /// Puts a block into its file.
    fn apply(&self, block: &Block) -> Result<(), String> {
        let file = self.folder.path().join(&block.marks[0]);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        if self.is_tutorial && block.path().is_empty() || block.language == "python" || !file.exists() {
            return fs::write(file, &block.text).map_err(|error| error.to_string());
        }
        let read = |text: &str| serde_yaml::from_str::<Json>(text).map_err(|error| error.to_string());
        let mut whole = read(&fs::read_to_string(&file).unwrap())?;
        let place = find(&mut whole, &block.path())?;
        merge(place, read(&block.text)?);
        fs::write(file, serde_json::to_string_pretty(&whole).unwrap()).map_err(|error| error.to_string())
    }

    fn segue(&self, arguments: &[&str]) -> ProgramOutput {
        let mut command = command();
        command.envs(self.variables.iter().cloned()).args(arguments).current_dir(self.folder.path());
        let done = command.output().unwrap();
        ProgramOutput {
            code: done.status.code().unwrap_or(-1),
            out: String::from_utf8(done.stdout).unwrap(),
            err: String::from_utf8(done.stderr).unwrap(),
        }
    }

    /// What `segue check` has against it.
    fn check(&self) -> Option<String> {
        let ran = self.segue(&["check"]);
        // The script of the pages is for chat models, and some pages configure embeddings.
        let is_error = |part: &&str| part.contains(": error[") && !part.contains("embeddings: model `pages`");
        let errors = ran.out.split("\n\n").filter(is_error).collect::<Vec<_>>().join("\n\n");
        Some(format!("{errors}{}", ran.err)).filter(|text| ran.code != 0 && !text.is_empty())
    }

    /// The address at which the project is served.
    fn address(&mut self) -> &str {
        let server = self.server.get_or_insert_with(|| {
            let mut command = command();
            command.envs(self.variables.iter().cloned()).current_dir(self.folder.path());
            command.args(["run", "--port", "0", "--store", "memory"]);
            ServerProcess::start(command).expect("the server listens")
        });
        &server.address
    }
}

/// The place in a file that a path leads to; entries of lists are given by name or number. Maps on the way are made.
fn find<'a>(value: &'a mut Json, path: &[&str]) -> Result<&'a mut Json, String> {
    path.iter().try_fold(value, |value, part| match value {
        Json::Array(entries) => entries
            .iter_mut()
            .enumerate()
            .find(|(number, entry)| number.to_string() == *part || name_of(entry).is_some_and(|name| name == *part))
            .map(|(_, entry)| entry)
            .ok_or_else(|| format!("there is no entry `{part}`")),
        Json::Object(map) => Ok(map.entry((*part).to_owned()).or_insert_with(|| Json::Object(Map::new()))),
        _ => Err(format!("nothing can be below `{part}`")),
    })
}

/// The name of an entry of a list: of a map its `name` or `id`, or its only key; a text.
fn name_of(entry: &Json) -> Option<String> {
    if let Some(text) = entry.as_str() {
        return Some(text.to_owned());
    }
    if let Some((name, Json::Object(_))) = entry
        .as_object()
        .and_then(|map| map.iter().next())
        .filter(|_| entry.as_object().is_some_and(|map| map.len() == 1))
    {
        return Some(name.clone());
    }
    ["name", "id", "test_case"].iter().find_map(|key| Some(entry.get(key)?.as_str()?.to_owned()))
}

/// Maps are merged by key, lists of entries with names by name; everything else is replaced.
fn merge(old: &mut Json, new: Json) {
    match (old, new) {
        (Json::Object(old), Json::Object(new)) => {
            for (key, value) in new {
                match old.get_mut(&key) {
                    Some(there) => merge(there, value),
                    None => drop(old.insert(key, value)),
                }
            }
        }
        (Json::Array(old), Json::Array(new)) if new.iter().all(|entry| name_of(entry).is_some()) => {
            for entry in new {
                match old.iter_mut().find(|there| name_of(there) == name_of(&entry)) {
                    Some(there) => merge(there, entry),
                    None => old.push(entry),
                }
            }
        }
        // The block shows one entry of a list.
        (old @ Json::Object(_), Json::Array(mut new)) if new.len() == 1 => *old = new.remove(0),
        (old, new) => *old = new,
    }
}

/// What is wrong with a block of YAML, after it was put into its project.
fn yaml_problem(project: &PageProject, block: &Block) -> Option<String> {
    let Some(file) = block.marks.first() else {
        return Some("say which file it is, as in ```yaml config.yml, or `ignore`".to_owned());
    };
    let path: PathBuf = project.folder.path().join(file);
    let before = fs::read_to_string(&path).ok();
    if let Err(error) = project.apply(block) {
        return Some(error);
    }
    let mut problem = None;
    if file.starts_with("tests/") {
        let text = fs::read_to_string(&path).unwrap();
        let source = SourceFile { path: file.as_str().into(), text: text.as_str().into() };
        let is_conftest = file.ends_with("conftest.yml");
        let (_, findings) = if is_conftest { TestFile::read_conftest(&source) } else { TestFile::read(&source) };
        problem = (!findings.is_empty()).then(|| format!("{findings:?}"));
        if block.is("run") {
            let ran = run_in(project.folder.path(), &["test", file, "--project", env!("CARGO_MANIFEST_DIR")], "");
            problem = problem.or_else(|| (ran.code != 0).then(|| format!("{}{}", ran.out, ran.err)));
        }
    } else if !project.is_tutorial || block.is("try") {
        problem = project.check();
    }
    if block.is("try") {
        fs::write(path, before.unwrap_or_default()).unwrap();
    }
    problem
}

/// Writes a file of Python, and compiles it where there is Python.
fn python_problem(project: &PageProject, block: &Block) -> Option<String> {
    let Some(file) = block.marks.first() else {
        return Some("say which file it is, as in ```python shop.py".to_owned());
    };
    project.apply(block).err().or_else(|| {
        let mut python = Command::new("python3");
        python
            .args(["-c", "import ast, sys; ast.parse(open(sys.argv[1]).read())", file])
            .current_dir(project.folder.path());
        let done = python.output().ok()?;
        (!done.status.success()).then(|| String::from_utf8_lossy(&done.stderr).into_owned())
    })
}

/// Runs the commands of a block in its project.
fn run_problem(project: &PageProject, block: &Block) -> Option<String> {
    let program = Path::new(env!("CARGO_BIN_EXE_segue")).parent().unwrap().to_owned();
    #[allow(clippy::disallowed_methods)] // the test finds the program as a shell does
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("sh");
    shell.args(["-euc", &block.text]).current_dir(project.folder.path());
    shell.env("PATH", format!("{}:{path}", program.display())).envs(project.variables.iter().cloned());
    let done = shell.output().unwrap();
    (!done.status.success()).then(|| String::from_utf8_lossy(&done.stderr).into_owned())
}

#[test]
fn blocks_of_yaml_and_commands_to_run_work() {
    let mut tutorial = Some(PageProject::new(TUTORIAL));
    let (mut yaml, mut run, mut ignored, mut problems) = (0, 0, 0, Vec::new());
    for (page, blocks) in pages() {
        let is_tutorial = page.starts_with(TUTORIAL);
        let mut project = if is_tutorial { tutorial.take().unwrap() } else { PageProject::new(&page) };
        project.set_variables(&blocks);
        for block in &blocks {
            let problem = match &*block.language {
                "" => Some("say what language it is".to_owned()),
                "yaml" | "yml" | "sh" | "bash" | "shell" | "console" if block.is("ignore") => {
                    ignored += 1;
                    None
                }
                "yaml" | "yml" => {
                    yaml += 1;
                    yaml_problem(&project, block)
                }
                "python" => python_problem(&project, block),
                "sh" if block.is("run") => {
                    run += 1;
                    run_problem(&project, block)
                }
                "json" if !block.text.contains('…') => {
                    serde_json::from_str::<Json>(&block.text).err().map(|error| error.to_string())
                }
                _ => None,
            };
            problems.extend(problem.map(|problem| format!("{}: {problem}", block.place)));
        }
        // A file of the tutorial may name what the page shows further down.
        problems.extend(project.check().filter(|_| is_tutorial).map(|problem| format!("{page}: {problem}")));
        tutorial = if is_tutorial { Some(project) } else { tutorial };
    }
    println!("{yaml} blocks of YAML are loaded, {run} blocks of commands are run, {ignored} are ignored");
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
    assert!(yaml > 50 && run > 1, "{yaml} {run}");
}

/// A request as `curl` sends it.
fn request(
    client: &reqwest::Client,
    address: &str,
    words: &[String],
    variables: &[(String, String)],
) -> reqwest::RequestBuilder {
    let expand = |text: &str| {
        variables.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${name}"), value))
    };
    let mut words = words.iter().skip(1);
    let (mut url, mut headers, mut body) = (String::new(), Vec::new(), None);
    while let Some(word) = words.next() {
        match word.as_str() {
            "-i" | "-s" | "-N" => {}
            "-H" => headers.push(expand(words.next().unwrap())),
            "-d" => body = Some(words.next().unwrap().clone()),
            word => url = word.replace("http://127.0.0.1:5005", address),
        }
    }
    let mut request = if body.is_some() { client.post(url) } else { client.get(url) };
    for (name, value) in headers.iter().filter_map(|header| header.split_once(": ")) {
        request = request.header(name, value);
    }
    request.body(body.unwrap_or_default())
}

/// Whether an answer is the one that a page shows: equal as JSON, line by line where it is a stream. A line `…` stands for any lines,
/// times are not compared.
fn is_shown(shown: &str, answer: &str) -> bool {
    let json = |line: &str| {
        let mut value = serde_json::from_str::<Json>(line).unwrap_or_else(|_| line.into());
        if let Some(map) = value.as_object_mut() {
            map.remove("ts");
        }
        value
    };
    if let (Ok(shown), Ok(answer)) = (serde_json::from_str::<Json>(shown), serde_json::from_str::<Json>(answer)) {
        return shown == answer;
    }
    let mut lines = answer.lines().map(json);
    let mut skipping = false;
    for line in shown.lines() {
        if line == "…" {
            skipping = true;
        } else if skipping {
            skipping = false;
            if !lines.any(|one| one == json(line)) {
                return false;
            }
        } else if lines.next() != Some(json(line)) {
            return false;
        }
    }
    skipping || lines.next().is_none()
}

#[tokio::test]
async fn requests_get_the_answers_that_pages_show() {
    let has_python = Command::new("python3").arg("--version").output().is_ok_and(|ran| ran.status.success());
    let mut tutorial = Some(PageProject::new(TUTORIAL));
    let (mut requests, mut problems) = (0, Vec::new());
    let client = client();
    for (page, blocks) in pages() {
        let is_tutorial = page.starts_with(TUTORIAL);
        let mut project = if is_tutorial { tutorial.take().unwrap() } else { PageProject::new(&page) };
        project.set_variables(&blocks);
        for (number, block) in blocks.iter().enumerate() {
            let is_part = ["yaml", "python"].contains(&&*block.language);
            if is_part && !block.marks.is_empty() && !block.is("ignore") && !block.is("try") {
                project.apply(block).unwrap();
            }
            if !block.is("serve") || is_tutorial && !has_python {
                continue;
            }
            for (line, output) in block.commands() {
                let (commands, comment) = shell(&line);
                let Some(words) = commands.iter().find(|words| words[0] == "curl") else { continue };
                requests += 1;
                let variables = project.variables.clone();
                let answer = request(&client, project.address(), words, &variables).send().await.unwrap();
                let status = answer.status().as_u16();
                let text = answer.text().await.unwrap();
                let next =
                    blocks.get(number + 1).filter(|next| next.language == "json" && !block.text.contains("\n$ "));
                let shown = if output.is_empty() { next.map(|next| &next.text) } else { Some(&output) };
                let wanted = comment.and_then(|comment| comment.parse::<u16>().ok());
                if wanted.is_some_and(|wanted| wanted != status) {
                    problems.push(format!("{}: status {status}: {text}", block.place));
                } else if let Some(shown) = shown.filter(|shown| wanted.is_none() && !is_shown(shown, &text)) {
                    problems.push(format!("{}: shown\n{shown}\nanswered\n{text}", block.place));
                }
            }
        }
        project.server = None;
        tutorial = if is_tutorial { Some(project) } else { tutorial };
    }
    println!("{requests} requests");
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
    assert!(requests > 5, "{requests}");
}

/// The rows of the tables of routes: method, path, and whether a token is needed.
fn routes() -> Vec<(String, String, bool)> {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/http.md")).unwrap();
    let row = |line: &str| {
        let (route, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
        let (method, path) = route.split_once(' ')?;
        Some((method.to_owned(), path.to_owned(), rest.starts_with("yes |")))
    };
    page.lines().filter_map(row).collect()
}

#[tokio::test]
async fn routes_of_the_reference_are_served_and_ask_for_tokens_as_it_says() {
    let mut project = PageProject::new("docs/reference/http.md");
    let write = |name: &str, text: &str| fs::write(project.folder.path().join(name), text).unwrap();
    let token = "a token of this test";
    let channels = ["rest", "openai", "mcp", "websocket", "socketio", "callback"];
    let entry = |name: &str| match name {
        "callback" => format!("{name}: {{ auth_token: \"${{TOKEN}}\", url: \"http://127.0.0.1:9/\" }}\n"),
        name => format!("{name}: {{ auth_token: \"${{TOKEN}}\" }}\n"),
    };
    write("credentials.yml", &channels.map(entry).concat());
    let endpoints = fs::read_to_string(project.folder.path().join("endpoints.yml")).unwrap();
    let a2a = "a2a_server: { description: Hires out bikes., auth: { token: \"${TOKEN}\" } }\n";
    write("endpoints.yml", &format!("{endpoints}{a2a}"));
    project.variables.push(("TOKEN".to_owned(), token.to_owned()));
    let (client, address) = (client(), project.address().to_owned());
    let routes = routes();
    assert!(routes.len() > 15, "{routes:?}");
    for (method, path, needs_token) in routes {
        let path = path.replace("{id}", "t-1").replace("{config}", "c-1").replace("{file}", "chat.js");
        let ask = |path: &str| client.request(method.parse().unwrap(), format!("{address}{path}"));
        let answer = ask(&path).send().await.unwrap();
        assert_eq!(answer.status() == 401, needs_token, "{method} {path}: {}", answer.status());
        let answer = ask(&path).bearer_auth(token).body("{}").send().await.unwrap();
        let is_open = answer.headers().get("content-type").is_some_and(|kind| kind == "text/event-stream");
        let status = answer.status();
        // A stream does not end.
        let text = if is_open { String::new() } else { answer.text().await.unwrap() };
        // What the page names is there; a task or session may not be.
        let is_missing = status == 405
            || status == 404 && !["TASK_NOT_FOUND", "no task", "no model"].iter().any(|it| text.contains(it));
        assert!(!is_missing, "{method} {path}: {status} {text}");
        let other = ask(&format!("{path}/nothing-here")).bearer_auth(token).body("{}").send().await.unwrap();
        assert_ne!(other.status(), 200, "{method} {path}");
    }
}
