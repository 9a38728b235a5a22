//! Rows, and how they are shown.

use serde_json::{Value, json};

/// What is measured against what.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// What was measured, in milliseconds, run by run.
    pub(crate) measured_ms: Vec<u64>,
    /// What it is compared with, each measured beside one of those.
    pub(crate) floor_ms: Vec<u64>,
    /// The ratio of the medians at most.
    pub(crate) limit: f64,
    /// What it was measured on.
    pub(crate) on: String,
}

impl Row {
    #[expect(clippy::cast_precision_loss, reason = "milliseconds of a few minutes")]
    fn ratio(&self) -> f64 {
        let floor = median(&self.floor_ms).max(1);
        median(&self.measured_ms) as f64 / floor as f64
    }

    pub(crate) fn is_within(&self) -> bool {
        self.ratio() <= self.limit
    }
}

fn median(samples: &[u64]) -> u64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

pub(crate) fn text(rows: &[Row]) -> String {
    let name = rows.iter().map(|row| row.name.chars().count()).max();
    let width = name.unwrap_or(0).max(3);
    let mut text = format!(
        "{:width$}  {:>9}  {:>9}  {:>5}  {:>5}\n",
        "row", "median", "floor", "ratio", "limit"
    );
    for row in rows {
        let verdict = if row.is_within() { "" } else { "  over" };
        text.push_str(&format!(
            "{:width$}  {:>6} ms  {:>6} ms  {:>5.2}  {:>5.2}{verdict}\n",
            row.name,
            median(&row.measured_ms),
            median(&row.floor_ms),
            row.ratio(),
            row.limit,
        ));
        text.push_str(&format!("  on {}\n", row.on));
        text.push_str(&format!("  measured {:?} ms\n", row.measured_ms));
        text.push_str(&format!("  floor    {:?} ms\n", row.floor_ms));
    }
    text
}

pub(crate) fn json(rows: &[Row]) -> Value {
    let row = |row: &Row| {
        json!({
            "row": row.name, "on": row.on, "measured_ms": row.measured_ms,
            "floor_ms": row.floor_ms, "median_ms": median(&row.measured_ms),
            "floor_median_ms": median(&row.floor_ms), "ratio": row.ratio(), "limit": row.limit,
            "within": row.is_within(),
        })
    };
    rows.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(measured: &[u64], floor: &[u64]) -> Row {
        Row {
            name: "a",
            measured_ms: measured.to_vec(),
            floor_ms: floor.to_vec(),
            limit: 3.0,
            on: "tcg".into(),
        }
    }

    #[test]
    fn the_ratio_is_that_of_the_medians() {
        let within = row(&[10, 600, 20], &[10, 1, 7]);
        assert!(within.is_within());
        assert_eq!(json(&[within])[0]["median_ms"], 20);
        let over = row(&[31], &[10]);
        assert!(!over.is_within());
        assert!(text(&[over]).contains("3.10   3.00  over"));
    }
}
