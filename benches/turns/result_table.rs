//! What was measured, and the table it becomes: Markdown, so that it can be pasted where figures are kept.

/// The figures in the order in which they were measured.
pub(crate) struct Table {
    only: Option<String>,
    rows: Vec<String>,
}

impl Table {
    /// A table of the figures whose names hold `only`.
    pub(crate) fn new(only: Option<&str>) -> Self {
        Self { only: only.map(str::to_owned), rows: Vec::new() }
    }

    /// Whether a figure is wanted.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }

    /// Adds what was seen of a figure; `floor` is the median that it is compared with, `most` what it may be. Its median.
    pub(crate) fn push(
        &mut self,
        name: &str,
        unit: &str,
        mut seen: Vec<f64>,
        floor: Option<f64>,
        most: Option<f64>,
    ) -> f64 {
        seen.sort_by(f64::total_cmp);
        let (least, median) = (seen[0], seen[seen.len() / 2]);
        let ratio = floor.map(|floor| format!("{:.2}×", median / floor)).unwrap_or_default();
        let limit = most.map(|most| format!("≤ {most}")).unwrap_or_default();
        let missed = if most.is_some_and(|most| median > most) { "missed" } else { "" };
        self.rows.push(format!("| {name} | {unit} | {least:.2} | {median:.2} | {ratio} | {limit} | {missed} |"));
        median
    }

    /// Prints it.
    pub(crate) fn print(&self) {
        println!(
            "| figure | unit | least | median | to the floor | goal | |\n| --- | --- | ---: | ---: | ---: | ---: | --- |"
        );
        self.rows.iter().for_each(|row| println!("{row}"));
    }
}
