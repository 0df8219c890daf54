//! DemoServer project, and where its parts and its conversations are.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::anyhow;
use clap::{ArgMatches, FromArgMatches};
use segue::{
    project::{self, Finding, LoadedProject, Places, Project, Severity, Texts, findings_report},
    runtime::{AssistantBuilder, LoadError},
    store::{self, Store, StoreError, StoreLocation},
};

use super::output;

/// The project of a command.
pub(super) struct ProjectArgs {
    /// The project's folder.
    pub(super) project: PathBuf,
    pub(super) parts: ProjectPaths,
}

/// The same as it is written on the command line.
#[derive(clap::Args)]
struct Written {
    /// The project's folder
    #[arg(default_value = ".")]
    project: PathBuf,
    #[command(flatten)]
    parts: ProjectPaths,
}

impl From<Written> for ProjectArgs {
    fn from(Written { mut project, mut parts }: Written) -> Self {
        // `--data flows mine`: an option that takes several values takes the project's folder too.
        for given in [&mut parts.data, &mut parts.domain] {
            if project.as_os_str() == "." && given.len() > 1 && given.last().is_some_and(|last| is_project(last)) {
                project = given.pop().unwrap_or(project);
            }
        }
        Self { project, parts }
    }
}

impl FromArgMatches for ProjectArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Written::from_arg_matches(matches).map(Self::from)
    }
    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for ProjectArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        Written::augment_args(command)
    }
    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Written::augment_args_for_update(command)
    }
}

/// Whether a folder is a project's.
pub(super) fn is_project(folder: &Path) -> bool {
    folder.join("config.yml").is_file()
}

/// Other places than the usual ones.
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
    /// Reads the project.
    fn read(&self) -> anyhow::Result<LoadedProject> {
        project::load(&self.project, &self.places()).map_err(|error| self.unreadable(&error))
    }

    /// Reads the project and finds everything that is wrong with it.
    pub(super) fn check(&self) -> anyhow::Result<LoadedProject> {
        project::check(&self.project, &self.places()).map_err(|error| self.unreadable(&error))
    }

    fn unreadable(&self, error: &std::io::Error) -> anyhow::Error {
        anyhow!(
            "cannot read the project folder {}: {error}; pass another folder, or create a project with `segue init`",
            self.project.display()
        )
    }

    /// Where the parts are.
    pub(super) fn places(&self) -> Places {
        let parts = &self.parts;
        Places {
            config: parts.config.clone(),
            domain: parts.domain.clone(),
            data: parts.data.clone(),
            endpoints: parts.endpoints.clone(),
            credentials: parts.credentials.clone(),
            sub_agents: parts.sub_agents.clone(),
            channels: Vec::new(),
        }
    }

    /// The project, ready to be given parts. `None`: it has errors, and they were shown.
    pub(super) fn open(&self) -> anyhow::Result<Option<OpenProject>> {
        Ok(match self.opened()? {
            Ok(opened) => Some(opened),
            Err((errors, texts)) => {
                output::eprint(&findings_report::all(&errors, &texts));
                output::status("the project has errors; `segue explain CODE` explains one");
                None
            }
        })
    }

    /// The same; the caller shows the errors.
    pub(super) fn opened(&self) -> anyhow::Result<Result<OpenProject, (Vec<Finding>, Texts)>> {
        let loaded = self.read()?;
        let findings = &loaded.findings;
        let errors: Vec<_> = findings.iter().filter(|f| f.severity == Severity::Error).cloned().collect();
        let Some(project) = loaded.project.filter(|_| errors.is_empty()) else {
            return Ok(Err((errors, loaded.texts)));
        };
        self.count_warnings();
        let project = Arc::new(project);
        let builder = AssistantBuilder::new(project.clone(), self.project.clone());
        Ok(Ok(OpenProject { project, builder }))
    }

    /// Says how many warnings there are. The analysis of a large project takes longer than a start, so nobody waits for it.
    fn count_warnings(&self) {
        let (root, places) = (self.project.clone(), self.places());
        std::thread::spawn(move || {
            let Ok(checked) = project::check(&root, &places) else { return };
            let warnings = checked.findings.iter().filter(|f| f.severity == Severity::Warning).count();
            if warnings > 0 {
                output::status(&format!("the project has {warnings} warning(s), see `segue check`"));
            }
        });
    }

    /// Where the conversations are: what was asked for, else what `endpoints.yml` says, else the usual file. Where
    /// `endpoints.yml` names the database of another program, a file beside it.
    pub(super) fn location(&self, asked: Option<&str>, project: &Project) -> anyhow::Result<StoreLocation> {
        if let Some(asked) = asked {
            return Ok(StoreLocation::parse(asked)?);
        }
        if let Some((theirs, ours)) = self.beside(project) {
            output::status(&format!("{}; {}", kept_beside(&theirs, &ours), brought_over(&theirs)));
            return Ok(ours);
        }
        Ok(self.configured(project)?)
    }

    /// Where a store is that must be there already.
    pub(super) fn existing_location(&self, asked: Option<&str>, project: &Project) -> anyhow::Result<StoreLocation> {
        let location = self.location(asked, project)?;
        match &location {
            StoreLocation::Sqlite { path, .. } if !path.is_file() => Err(anyhow!(
                "there is no store {}; `segue run` and `segue chat --store` create one; pass another one with `--store`",
                path.display()
            )),
            StoreLocation::Memory => {
                Err(anyhow!("a store in memory ends with its process; pass a file with `--store`"))
            }
            StoreLocation::Sqlite { .. } => Ok(location),
        }
    }

    /// A store that must be there already, for reading only: another process may be writing to it.
    pub(super) fn open_existing_store(&self, asked: Option<&str>, project: &Project) -> anyhow::Result<Arc<dyn Store>> {
        Ok(store::open_read_only(&self.existing_location(asked, project)?)?)
    }
}

/// A project that can run.
pub(super) struct OpenProject {
    pub(super) project: Arc<Project>,
    pub(super) builder: AssistantBuilder,
}

impl OpenProject {
    /// Says which models are scripted: nobody should take their answers for those of a language model.
    pub(super) fn warn_about_scripted_models(&self) {
        let groups = self.project.endpoints.model_groups.values().flat_map(|group| &group.models);
        let mut named = std::collections::BTreeSet::new();
        for model in groups.filter(|model| &*model.provider == "scripted") {
            named.insert(model.model.to_string());
        }
        let generator = self.project.config.generator.as_ref();
        let inline = generator.is_some_and(|g| g.llm.get("provider").and_then(|p| p.as_str()) == Some("scripted"));
        if inline {
            named.insert("of the command generator".to_owned());
        }
        for name in named {
            output::status(&format!("the model {name} is scripted: it answers by rule, no language model is asked"));
        }
    }
}

/// A model, or a prompt, that cannot be opened.
pub(super) const MODEL_OR_PROMPT_ERROR: &str = "M0101";

/// An error of building, with the cure.
pub(super) fn describe_build_error(error: LoadError) -> anyhow::Error {
    match error {
        LoadError::Model { .. } => anyhow!("{error}; models are named in endpoints.yml [{MODEL_OR_PROMPT_ERROR}]"),
        LoadError::Prompt(_) => anyhow!("{error} [{MODEL_OR_PROMPT_ERROR}]"),
        other => other.into(),
    }
}

impl ProjectArgs {
    fn configured(&self, project: &Project) -> Result<StoreLocation, StoreError> {
        let location = match &project.endpoints.tracker_store {
            Some(configured) => StoreLocation::from_config(configured)?,
            None => StoreLocation::parse(StoreLocation::DEFAULT)?,
        };
        Ok(match location {
            StoreLocation::Sqlite { path, synchronous_full } => {
                StoreLocation::Sqlite { path: self.project.join(path), synchronous_full }
            }
            StoreLocation::Memory => StoreLocation::Memory,
        })
    }

    /// The database of another program that `endpoints.yml` names, and what is used in its place. Projects of the CALM format
    /// name the file of their tracker.
    pub(super) fn beside(&self, project: &Project) -> Option<(PathBuf, StoreLocation)> {
        let location = self.configured(project).ok()?;
        match &location {
            StoreLocation::Sqlite { path, synchronous_full } if location.is_of_another_program() => {
                let ours = StoreLocation::Sqlite {
                    path: path.with_extension("segue.db"),
                    synchronous_full: *synchronous_full,
                };
                Some((path.clone(), ours))
            }
            _ => None,
        }
    }
}

/// Says where conversations are kept in place of the database of another program.
pub(super) fn kept_beside(theirs: &Path, ours: &StoreLocation) -> String {
    let ours = match ours {
        StoreLocation::Sqlite { path, .. } => path.display().to_string(),
        StoreLocation::Memory => "memory".to_owned(),
    };
    format!(
        "{} is a database of another program and is left as it is; conversations are kept in {ours}",
        theirs.display()
    )
}

/// Says how the conversations of another program come over.
pub(super) fn brought_over(theirs: &Path) -> String {
    format!("`segue import --from sqlite:///{}` brings its conversations over", theirs.display())
}
