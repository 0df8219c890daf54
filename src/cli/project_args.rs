//! The arguments that select a project of a command, the paths of its files, and its store.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::anyhow;
use clap::{ArgMatches, FromArgMatches};
use segue::{
    project::{self, Finding, LoadOptions, LoadedProject, Project, Severity, Sources, UnsetVariables, findings_report},
    runtime::{AssistantBuilder, LoadError},
    store::{self, Store, StoreError, StoreLocation},
};

use super::output;

/// The project of a command, with its arguments resolved.
pub(super) struct ProjectArgs {
    /// The folder of the project.
    pub(super) folder: PathBuf,
    pub(super) paths: ProjectPaths,
}

/// The arguments as parsed by clap.
#[derive(clap::Args)]
struct ParsedArgs {
    /// The project's folder
    #[arg(default_value = ".")]
    project: PathBuf,
    #[command(flatten)]
    paths: ProjectPaths,
}

impl From<ParsedArgs> for ProjectArgs {
    fn from(ParsedArgs { project: mut folder, mut paths }: ParsedArgs) -> Self {
        // In `--data flows my-project`, clap takes the folder of the project as a second value of the option.
        for values in [&mut paths.data, &mut paths.domain] {
            if folder.as_os_str() == "." && values.len() > 1 && values.last().is_some_and(|last| is_project(last)) {
                folder = values.pop().unwrap_or(folder);
            }
        }
        Self { folder, paths }
    }
}

impl FromArgMatches for ProjectArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        ParsedArgs::from_arg_matches(matches).map(Self::from)
    }
    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for ProjectArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        ParsedArgs::augment_args(command)
    }
    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        ParsedArgs::augment_args_for_update(command)
    }
}

/// Whether a folder contains a project: a `config.yml`.
pub(super) fn is_project(folder: &Path) -> bool {
    folder.join("config.yml").is_file()
}

/// Paths of project files, if they differ from the defaults.
#[derive(Clone, clap::Args)]
pub(super) struct ProjectPaths {
    /// Instead of config.yml; relative to the project's folder
    #[arg(short, long, value_name = "FILE", help_heading = "Project files")]
    config: Option<PathBuf>,
    /// Instead of domain.yml and domain/
    #[arg(short, long, value_name = "PATH", num_args = 1.., help_heading = "Project files")]
    domain: Vec<PathBuf>,
    /// Instead of data/ and flows/
    #[arg(long, value_name = "PATH", num_args = 1.., help_heading = "Project files")]
    data: Vec<PathBuf>,
    /// Instead of endpoints.yml
    #[arg(long, value_name = "FILE", help_heading = "Project files")]
    endpoints: Option<PathBuf>,
    /// Instead of credentials.yml
    #[arg(long, value_name = "FILE", help_heading = "Project files")]
    credentials: Option<PathBuf>,
    /// Instead of sub_agents/
    #[arg(long, value_name = "FOLDER", help_heading = "Project files")]
    sub_agents: Option<PathBuf>,
}

impl ProjectArgs {
    /// Loads the project and analyses its flows: all findings, not only those of loading.
    pub(super) fn check(&self) -> anyhow::Result<LoadedProject> {
        project::check(&self.folder, &self.places()).map_err(|error| self.unreadable(&error))
    }

    fn unreadable(&self, error: &std::io::Error) -> anyhow::Error {
        anyhow!(
            "cannot read the project folder {}: {error}; pass another folder, or create a project with `segue init`",
            self.folder.display()
        )
    }

    /// The paths of the project files.
    pub(super) fn places(&self) -> LoadOptions {
        self.places_with(UnsetVariables::Reported)
    }

    fn places_with(&self, unset_variables: UnsetVariables) -> LoadOptions {
        let paths = &self.paths;
        LoadOptions {
            config: paths.config.clone(),
            domain: paths.domain.clone(),
            data: paths.data.clone(),
            endpoints: paths.endpoints.clone(),
            credentials: paths.credentials.clone(),
            sub_agents: paths.sub_agents.clone(),
            channels: Vec::new(),
            unset_variables,
        }
    }

    /// Loads the project for running it. `None`: it has errors, which are printed.
    pub(super) fn open(&self) -> anyhow::Result<Option<OpenProject>> {
        Ok(or_print_errors(self.try_open()?))
    }

    /// Like [`open`](Self::open), for a command that only reads the store: environment variables that are not set do not matter, except
    /// those of `tracker_store` if the store is not named by `--store`.
    pub(super) fn open_to_read(&self, store: Option<&str>) -> anyhow::Result<Option<OpenProject>> {
        let unset = if store.is_some() { UnsetVariables::Ignored } else { UnsetVariables::IgnoredExceptStore };
        Ok(or_print_errors(self.try_open_with(unset)?))
    }

    /// Like [`open`](Self::open), but returns the errors instead of printing them.
    pub(super) fn try_open(&self) -> anyhow::Result<Result<OpenProject, (Vec<Finding>, Sources)>> {
        self.try_open_with(UnsetVariables::Reported)
    }

    fn try_open_with(&self, unset: UnsetVariables) -> anyhow::Result<Result<OpenProject, (Vec<Finding>, Sources)>> {
        let loaded = project::load(&self.folder, &self.places_with(unset)).map_err(|error| self.unreadable(&error))?;
        let findings = &loaded.findings;
        let errors: Vec<_> = findings.iter().filter(|f| f.severity == Severity::Error).cloned().collect();
        let Some(project) = loaded.project.filter(|_| errors.is_empty()) else {
            return Ok(Err((errors, loaded.sources)));
        };
        self.report_warnings();
        let project = Arc::new(project);
        let builder = AssistantBuilder::new(project.clone(), self.folder.clone());
        Ok(Ok(OpenProject { project, builder }))
    }

    /// Prints the number of warnings, from another thread: the analysis of a large project takes longer than starting it.
    fn report_warnings(&self) {
        let (root, places) = (self.folder.clone(), self.places());
        std::thread::spawn(move || {
            let Ok(checked) = project::check(&root, &places) else { return };
            let warnings = checked.findings.iter().filter(|f| f.severity == Severity::Warning).count();
            if warnings > 0 {
                output::status(&format!("the project has {warnings} warning(s), see `segue check`"));
            }
        });
    }

    /// The location of the store: `url` if it is set, or else `tracker_store` of `endpoints.yml`, or else the default file. If
    /// `tracker_store` is a database of another program, it is a file next to that, and a message is printed.
    pub(super) fn location(&self, url: Option<&str>, project: &Project) -> anyhow::Result<StoreLocation> {
        if let Some(url) = url {
            return Ok(StoreLocation::parse(url)?);
        }
        if let Some((foreign, own)) = self.replacement_of_foreign_store(project) {
            let (replaced, import) = (describe_replacement(&foreign, &own), describe_import(&foreign));
            output::status(&format!("{replaced}; {import}"));
            return Ok(own);
        }
        Ok(self.configured_location(project)?)
    }

    /// The location of a store that must exist.
    pub(super) fn existing_location(&self, url: Option<&str>, project: &Project) -> anyhow::Result<StoreLocation> {
        let location = self.location(url, project)?;
        match &location {
            StoreLocation::Sqlite { path, .. } if !path.is_file() => Err(anyhow!(
                "there is no store {}; `segue run`, `segue chat --store` and `segue mission run` create one; pass another one with `--store`",
                path.display()
            )),
            StoreLocation::Memory => {
                Err(anyhow!("a store in memory ends with its process; pass a file with `--store`"))
            }
            StoreLocation::Sqlite { .. } => Ok(location),
        }
    }

    /// Opens a store that must exist, read-only: another process may be writing to it.
    pub(super) fn open_existing_store(&self, url: Option<&str>, project: &Project) -> anyhow::Result<Arc<dyn Store>> {
        Ok(store::open_read_only(&self.existing_location(url, project)?)?)
    }
}

fn or_print_errors(opened: Result<OpenProject, (Vec<Finding>, Sources)>) -> Option<OpenProject> {
    match opened {
        Ok(opened) => Some(opened),
        Err((errors, texts)) => {
            output::eprint(&findings_report::all(&errors, &texts));
            output::status("the project has errors; `segue explain CODE` explains an error");
            None
        }
    }
}

/// A project without errors, and a builder of its assistant.
pub(super) struct OpenProject {
    pub(super) project: Arc<Project>,
    pub(super) builder: AssistantBuilder,
}

impl OpenProject {
    /// Prints the names of scripted models, so that their responses are not mistaken for those of a language model.
    pub(super) fn warn_about_scripted_models(&self) {
        let groups = self.project.endpoints.model_groups.values().flat_map(|group| &group.models);
        let mut names = std::collections::BTreeSet::new();
        for model in groups.filter(|model| &*model.provider == "scripted") {
            names.insert(model.model.to_string());
        }
        let generator = self.project.config.generator.as_ref();
        let is_inline = generator.is_some_and(|g| g.llm.get("provider").and_then(|p| p.as_str()) == Some("scripted"));
        if is_inline {
            names.insert("of the command generator".to_owned());
        }
        for name in names {
            output::status(&format!(
                "the model {name} is scripted: its responses come from rules, no language model is called"
            ));
        }
    }
}

/// The code of a model or a prompt that cannot be opened.
pub(super) const MODEL_OR_PROMPT_ERROR: &str = "M0101";

/// An error of building an assistant, with its code and what to do.
pub(super) fn describe_build_error(error: LoadError) -> anyhow::Error {
    match error {
        LoadError::Model { .. } => anyhow!("{error}; correct the model in endpoints.yml [{MODEL_OR_PROMPT_ERROR}]"),
        LoadError::Prompt(_) => anyhow!("{error} [{MODEL_OR_PROMPT_ERROR}]"),
        other => other.into(),
    }
}

impl ProjectArgs {
    /// `tracker_store` of `endpoints.yml`, or the default file; relative to the folder of the project.
    fn configured_location(&self, project: &Project) -> Result<StoreLocation, StoreError> {
        let location = match &project.endpoints.tracker_store {
            Some(configured) => StoreLocation::from_config(configured)?,
            None => StoreLocation::parse(StoreLocation::DEFAULT)?,
        };
        Ok(match location {
            StoreLocation::Sqlite { path, synchronous_full } => {
                StoreLocation::Sqlite { path: self.folder.join(path), synchronous_full }
            }
            StoreLocation::Memory => StoreLocation::Memory,
        })
    }

    /// If `tracker_store` is a database of another program, such as a tracker store of Rasa: its path, and the location of the store
    /// that is used instead.
    pub(super) fn replacement_of_foreign_store(&self, project: &Project) -> Option<(PathBuf, StoreLocation)> {
        let location = self.configured_location(project).ok()?;
        match &location {
            StoreLocation::Sqlite { path, synchronous_full } if location.is_of_another_program() => {
                let own = StoreLocation::Sqlite {
                    path: path.with_extension("segue.db"),
                    synchronous_full: *synchronous_full,
                };
                Some((path.clone(), own))
            }
            _ => None,
        }
    }
}

/// The message that a database of another program is not used, and which store is used instead.
pub(super) fn describe_replacement(foreign: &Path, own: &StoreLocation) -> String {
    let own = match own {
        StoreLocation::Sqlite { path, .. } => path.display().to_string(),
        StoreLocation::Memory => "memory".to_owned(),
    };
    format!(
        "{} is a database of another program and is not changed; conversations are stored in {own}",
        foreign.display()
    )
}

/// How to import the conversations of a database of another program.
pub(super) fn describe_import(foreign: &Path) -> String {
    format!("`segue import --from sqlite:///{}` imports its conversations", foreign.display())
}
