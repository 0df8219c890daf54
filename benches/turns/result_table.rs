//! The results as a Markdown table.

/// The results in the order of their measurement.
pub(crate) struct ResultTable {
    only: Option<String>,
    rows: Vec<String>,
}

impl ResultTable {
    /// A table of the figures whose names contain `only`; all figures without `only`.
    pub(crate) fn new(only: Option<&str>) -> Self {
        Self { only: only.map(str::to_owned), rows: Vec::new() }
    }

    /// Whether a figure is selected.
    pub(crate) fn includes(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }

    /// Adds a figure with its measured values. `baseline` is the median of the baseline, `limit` the largest allowed median. Returns the
    /// median.
    pub(crate) fn push(
        &mut self,
        name: &str,
        unit: &str,
        mut values: Vec<f64>,
        baseline: Option<f64>,
        limit: Option<f64>,
    ) -> f64 {
        values.sort_by(f64::total_cmp);
        let (min, median) = (values[0], values[values.len() / 2]);
        let ratio = baseline.map(|baseline| format!("{:.2}×", median / baseline)).unwrap_or_default();
        let exceeded = if limit.is_some_and(|limit| median > limit) { "exceeded" } else { "" };
        let limit = limit.map(|limit| format!("≤ {limit}")).unwrap_or_default();
        self.rows.push(format!("| {name} | {unit} | {min:.2} | {median:.2} | {ratio} | {limit} | {exceeded} |"));
        median
    }

    /// Prints the table to standard output.
    pub(crate) fn print(&self) {
        println!(
            "| figure | unit | minimum | median | ratio to baseline | limit | |\n| --- | --- | ---: | ---: | ---: | ---: | --- |"
        );
        self.rows.iter().for_each(|row| println!("{row}"));
    }
}
