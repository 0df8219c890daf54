//! What was measured, and the table it becomes.

use std::fmt::Write;

/// What a figure may be at most: what must be reached, what is wanted, what it is compared with.
#[derive(Clone, Copy, Default)]
pub(crate) struct Goal {
    pub(crate) must: Option<f64>,
    pub(crate) wants: Option<f64>,
}

impl Goal {
    pub(crate) const NONE: Self = Self { must: None, wants: None };
    pub(crate) const fn of(must: f64, wants: f64) -> Self {
        Self { must: Some(must), wants: Some(wants) }
    }
    pub(crate) const fn must(must: f64) -> Self {
        Self { must: Some(must), wants: None }
    }
}

/// One line of the table: the same thing measured several times.
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    seen: Vec<f64>,
    goal: Goal,
    /// The median of the floor of the same run.
    floor: Option<f64>,
}

impl Figure {
    pub(crate) fn new(name: impl Into<String>, unit: &'static str, seen: Vec<f64>) -> Self {
        let mut seen = seen;
        seen.sort_by(f64::total_cmp);
        Self { name: name.into(), unit, seen, goal: Goal::NONE, floor: None }
    }
    pub(crate) fn goal(mut self, goal: Goal) -> Self {
        self.goal = goal;
        self
    }
    pub(crate) fn floor(mut self, floor: f64) -> Self {
        self.floor = Some(floor);
        self
    }
    pub(crate) fn median(&self) -> f64 {
        self.seen[self.seen.len() / 2]
    }
    /// Whether a "must" is missed.
    pub(crate) fn missed(&self) -> bool {
        self.goal.must.is_some_and(|must| self.median() > must)
    }
    fn verdict(&self) -> &'static str {
        let within = |limit: Option<f64>| limit.is_some_and(|limit| self.median() <= limit);
        match self.goal {
            Goal { must: None, wants: None } => "",
            goal if within(goal.wants) => "wanted",
            goal if within(goal.must) => "ok",
            _ => "MISSED",
        }
    }
}

fn number(value: f64) -> String {
    if value >= 1000.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// A titled group of figures.
pub(crate) struct Table {
    title: String,
    figures: Vec<Figure>,
    /// What could not be measured, and why.
    missing: Vec<String>,
}

impl Table {
    pub(crate) fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), figures: Vec::new(), missing: Vec::new() }
    }
    pub(crate) fn push(&mut self, figure: Figure) {
        self.figures.push(figure);
    }
    pub(crate) fn missing(&mut self, why: impl Into<String>) {
        self.missing.push(why.into());
    }
    pub(crate) fn missed(&self) -> impl Iterator<Item = &Figure> {
        self.figures.iter().filter(|figure| figure.missed())
    }
    /// Markdown, so that it can be pasted where figures are kept.
    pub(crate) fn print(&self) {
        let mut out = format!("\n## {}\n\n", self.title);
        if !self.figures.is_empty() {
            out.push_str("| figure | unit | min | median | max | to floor | must | wants | |\n");
            out.push_str("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n");
        }
        for figure in &self.figures {
            let optional = |value: Option<f64>| value.map(|value| format!("≤ {value}")).unwrap_or_default();
            let ratio = figure.floor.map(|floor| format!("{:.2}×", figure.median() / floor)).unwrap_or_default();
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} | {ratio} | {} | {} | {} |",
                figure.name,
                figure.unit,
                number(figure.seen[0]),
                number(figure.median()),
                number(figure.seen[figure.seen.len() - 1]),
                optional(figure.goal.must),
                optional(figure.goal.wants),
                figure.verdict(),
            );
        }
        for why in &self.missing {
            let _ = writeln!(out, "\nNot measured: {why}");
        }
        print!("{out}");
    }
}
