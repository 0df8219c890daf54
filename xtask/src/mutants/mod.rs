//! Whether the engine's tests bite: every mutant is put into a copy of the engine, and the tests must fail.
//!
//! `cargo xtask mutants [--only NAME,NAME…] [--from NAME]` prints a table of which test caught which. A mutant that survives is a
//! hole in the tests; one whose text is not in the source any more is an error, here and in the ordinary tests of this package.

mod list;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use self::list::{MUTANTS, Mutant};
use crate::place;

/// The engine's folder.
const ENGINE: &str = "crates/engine";
/// What else the copy needs.
const BESIDE: &[&str] = &["flows/patterns", "Cargo.toml", "Cargo.lock"];
/// A mutant that takes longer hangs, which is caught too.
const PATIENCE: Duration = Duration::from_secs(240);
/// Memory of the tests, in KiB.
const MEMORY: u64 = 6 << 20;
/// Turns of each storm: enough for what is rare, and short enough for a whole list.
const TURNS: &str = "8000";

/// What came of one mutant.
enum Fate {
    /// These tests failed, with what they said first.
    Caught(Vec<String>, String),
    Hung,
    /// The compiler would not have it: the mutant is badly written.
    Unbuilt(String),
    Survived,
}

/// Runs the list. True if every mutant was caught.
pub fn run(arguments: &[String]) -> Result<bool> {
    let root = place::root()?;
    let chosen = chosen(arguments)?;
    let missing = misplaced(&root);
    if !missing.is_empty() {
        bail!("the list of mutants is out of date:\n{}", missing.join("\n"));
    }
    let copy = Copy::make(&root)?;
    println!("the engine without a bug first");
    match copy.test()? {
        Fate::Survived => {}
        Fate::Caught(_, said) | Fate::Unbuilt(said) => bail!("its tests fail: {said}"),
        Fate::Hung => bail!("its tests do not end"),
    }
    let (mut caught, mut rows) = (0, Vec::new());
    for mutant in &chosen {
        let began = Instant::now();
        let source = copy.path.join(ENGINE).join(mutant.file);
        let text = fs::read_to_string(&source).with_context(|| format!("cannot read {}", source.display()))?;
        fs::write(&source, text.replacen(mutant.find, mutant.put, 1))?;
        let fate = copy.test();
        fs::write(&source, text)?;
        let (is_caught, row) = told(mutant, &fate?);
        caught += usize::from(is_caught);
        println!("{row} ({} s)", began.elapsed().as_secs());
        rows.push(row);
    }
    println!("\nfull: {caught} of {} mutants of the engine caught", chosen.len());
    for row in rows.iter().filter(|row| !row.starts_with("caught")) {
        println!("{row}");
    }
    Ok(caught == chosen.len())
}

fn chosen(arguments: &[String]) -> Result<Vec<&'static Mutant>> {
    match arguments {
        [] => Ok(MUTANTS.iter().collect()),
        [flag, names] if flag == "--only" => names.split(',').map(|name| Ok(&MUTANTS[place_of(name)?])).collect(),
        [flag, name] if flag == "--from" => Ok(MUTANTS[place_of(name)?..].iter().collect()),
        _ => bail!("usage: cargo xtask mutants [--only NAME,NAME… | --from NAME]"),
    }
}

fn place_of(name: &str) -> Result<usize> {
    let at = MUTANTS.iter().position(|mutant| mutant.name == name);
    at.with_context(|| format!("there is no mutant `{name}`"))
}

fn told(mutant: &Mutant, fate: &Fate) -> (bool, String) {
    let Mutant { name, breaks, .. } = mutant;
    match fate {
        Fate::Caught(tests, said) => {
            (true, format!("caught    {name}: {breaks}\n            by {}: {said}", tests.join(", ")))
        }
        Fate::Hung => (true, format!("caught    {name}: {breaks}\n            by a test that does not end any more")),
        Fate::Unbuilt(said) => (false, format!("UNBUILT   {name}: {said}")),
        Fate::Survived => (false, format!("SURVIVED  {name}: {breaks}")),
    }
}

/// The mutants whose text does not occur exactly once.
fn misplaced(root: &Path) -> Vec<String> {
    let check = |mutant: &Mutant| {
        let text = fs::read_to_string(root.join(ENGINE).join(mutant.file)).unwrap_or_default();
        match text.matches(mutant.find).count() {
            1 => None,
            count => Some(format!("`{}`: its text occurs {count} times in {}", mutant.name, mutant.file)),
        }
    };
    MUTANTS.iter().filter_map(check).collect()
}

/// The engine and its tests as a workspace of their own, in a folder that stays, so that builds are short.
struct Copy {
    path: PathBuf,
    target: PathBuf,
}

impl Copy {
    fn make(root: &Path) -> Result<Self> {
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from).join("mutants");
        let path = target.join("tree");
        let _ = fs::remove_dir_all(&path);
        for part in [ENGINE].iter().chain(BESIDE) {
            copy(&root.join(part), &path.join(part))?;
        }
        let manifest = path.join("Cargo.toml");
        let text = fs::read_to_string(&manifest)?;
        // The workspace without its root package and other members.
        let (workspace, rest) = text.split_once("\n[package]").context("the manifest has no [package]")?;
        let (_, profiles) = rest.split_once("\n[profile.dev]").context("the manifest has no [profile.dev]")?;
        let members = workspace.lines().map(|line| match line.split_once('=').map(|(key, _)| key.trim()) {
            Some("members" | "default-members") if line.starts_with("members") => format!("members = [\"{ENGINE}\"]"),
            Some("default-members") => String::new(),
            _ => line.to_owned(),
        });
        let members: Vec<String> = members.collect();
        fs::write(&manifest, format!("{}\n[profile.dev]{profiles}", members.join("\n")))?;
        Ok(Self { path, target })
    }

    fn cargo(&self) -> Command {
        let mut cargo = place::cargo();
        cargo
            .current_dir(&self.path)
            .args(["test", "--package", "segue-engine", "--test", "dialogue", "--offline", "--no-run"])
            .env("CARGO_TARGET_DIR", &self.target)
            // The storms take most of the time; a little optimisation pays.
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_INCREMENTAL", "1")
            // A mutant may leave something unused behind.
            .env("RUSTFLAGS", "-Awarnings");
        cargo
    }

    /// Builds and runs the tests.
    fn test(&self) -> Result<Fate> {
        let built = self.cargo().output().context("cannot start cargo")?;
        if !built.status.success() {
            let said = String::from_utf8_lossy(&built.stderr).into_owned();
            return Ok(Fate::Unbuilt(said.lines().find(|line| line.starts_with("error")).unwrap_or(&said).to_owned()));
        }
        let said = String::from_utf8_lossy(&built.stderr);
        let binary = said
            .lines()
            .find_map(|line| line.trim().strip_prefix("Executable ")?.rsplit_once('(')?.1.strip_suffix(')'));
        let binary = self.path.join(binary.context("cargo does not say where the tests are")?);
        let mut child = bounded(&binary)
            .env("RUST_BACKTRACE", "0")
            .env("SEGUE_STORM_TURNS", TURNS)
            .env("SEGUE_STORM_SHRINK", "0")
            .env_remove("SEGUE_FULL")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start the tests")?;
        let said = collect(&mut child);
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if began.elapsed() > PATIENCE {
                let _ = child.kill();
                let _ = child.wait();
                return Ok(Fate::Hung);
            }
            thread::sleep(Duration::from_millis(200));
        };
        let said = said.join().unwrap_or_default();
        if status.success() {
            return Ok(Fate::Survived);
        }
        let failed = said.iter().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
        let failed: Vec<String> = failed.map(str::to_owned).collect();
        Ok(Fate::Caught(failed, first_words(&said)))
    }
}

/// Reads what the tests print, so that they never wait for a full pipe.
fn collect(child: &mut Child) -> thread::JoinHandle<Vec<String>> {
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let errors = thread::spawn(move || err.map(|mut err| std::io::copy(&mut err, &mut std::io::sink())));
    thread::spawn(move || {
        let lines = out.map(|out| BufReader::new(out).lines().map_while(Result::ok).collect()).unwrap_or_default();
        let _ = errors.join();
        lines
    })
}

/// The tests, with bounded memory where the system can: a mutant may fill it.
fn bounded(binary: &Path) -> Command {
    if cfg!(unix) {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -v {MEMORY}; exec \"$0\"")]).arg(binary);
        return shell;
    }
    Command::new(binary)
}

/// What a storm says first, or the first thing that failed.
fn first_words(said: &[String]) -> String {
    let storm = said.iter().find_map(|line| line.split_once("invariant ").map(|(_, words)| words.to_owned()));
    let breach = || said.iter().find_map(|line| line.split_once("rule: ").map(|(_, words)| words.to_owned()));
    let other = || said.iter().find(|line| line.starts_with("assertion") || line.contains("cases fail")).cloned();
    let words = storm.or_else(breach).or_else(other).unwrap_or_default();
    words.chars().take(160).collect()
}

/// Copies a file, or a folder with all that is in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if from.is_dir() {
        for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    fs::create_dir_all(to.parent().context("a file has a folder")?)?;
    let (mut bytes, mut source) = (Vec::new(), fs::File::open(from)?);
    source.read_to_end(&mut bytes)?;
    fs::File::create(to)?.write_all(&bytes).with_context(|| format!("cannot write {}", to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_every_mutant_is_in_the_source_once() {
        assert_eq!(misplaced(&place::root().unwrap()), Vec::<String>::new());
    }

    #[test]
    fn there_are_enough_of_them_and_each_has_a_name() {
        let mut names: Vec<&str> = MUTANTS.iter().map(|mutant| mutant.name).collect();
        names.sort_unstable();
        names.dedup();
        assert!(names.len() == MUTANTS.len() && names.len() >= 20, "{} mutants", names.len());
        assert!(MUTANTS.iter().all(|mutant| mutant.find != mutant.put));
    }

    #[test]
    fn the_invariant_is_told_before_anything_else() {
        let said = ["assertion `left == right` failed", "after 3 turns: invariant `a`: b"].map(str::to_owned);
        assert_eq!(first_words(&said), "`a`: b");
    }
}
