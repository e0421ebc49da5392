//! The rows that a run prints, and the little arithmetic behind them.

#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<[String; 4]>,
}

impl Table {
    /// What was measured, what came out, what it is compared with, and the ratio of the two.
    pub fn row(&mut self, what: &str, ours: String, bare: String, ratio: Option<f64>) {
        let ratio = ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        let row = [what.to_owned(), ours, bare, ratio];
        eprintln!("  {}", row.join(" | "));
        self.rows.push(row);
    }

    pub fn print(&self) {
        let head = ["measured", "handoffd", "compared with", "ratio"].map(str::to_owned);
        let rule = ["---"; 4].map(str::to_owned);
        let all: Vec<&[String; 4]> = [&head, &rule].into_iter().chain(&self.rows).collect();
        let width = |at: usize| all.iter().map(|row| row[at].chars().count()).max();
        let widths: Vec<usize> = (0..4).map(|at| width(at).unwrap_or(0)).collect();
        println!();
        for row in all {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:width$}"))
                .collect();
            println!("| {} |", cells.join(" | "));
        }
    }
}

/// The value that `share` of all are below; sorts them.
pub fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a place in a short list"
    )]
    let at = ((values.len() - 1) as f64 * share).round() as usize;
    values[at]
}

pub fn median(values: &mut [f64]) -> f64 {
    quantile(values, 0.5)
}
