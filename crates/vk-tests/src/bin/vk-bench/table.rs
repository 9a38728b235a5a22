//! Rows, and how they are shown.

use serde_json::{Value, json};

/// Which of many samples a row is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Figure {
    /// Half are no larger.
    Median,
    /// 99 of 100 are no larger.
    P99,
    /// None is larger.
    Largest,
    /// The median, compared run by run: each run with the floor that was measured right before it or
    /// after, since how fast a machine is may change within seconds. Half of the ratios are no larger
    /// than what is judged.
    Pairs,
}

impl Figure {
    const fn name(self) -> &'static str {
        match self {
            Self::Median => "median",
            Self::P99 => "p99",
            Self::Largest => "largest",
            Self::Pairs => "pairs",
        }
    }

    fn of(self, samples: &[f64]) -> f64 {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = match self {
            Self::Median | Self::Pairs => sorted.len() / 2,
            Self::P99 => (sorted.len() * 99).div_ceil(100).saturating_sub(1),
            Self::Largest => sorted.len().saturating_sub(1),
        };
        sorted.get(at).copied().unwrap_or(0.0)
    }
}

/// What is measured against what.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Of what the samples are: `ms`, or nothing where something was counted.
    pub(crate) unit: &'static str,
    pub(crate) figure: Figure,
    /// What was measured, run by run.
    pub(crate) measured: Vec<f64>,
    /// What it is compared with, measured beside it: the limit is on the ratio to its median, or to each
    /// of its own where runs are compared one by one. Without it the limit is on what was measured.
    pub(crate) floor: Option<Vec<f64>>,
    pub(crate) limit: f64,
    /// What it was measured on.
    pub(crate) on: String,
}

impl Row {
    fn value(&self) -> f64 {
        self.figure.of(&self.measured)
    }

    fn floor_value(&self) -> Option<f64> {
        let floor = self.floor.as_ref()?;
        Some(Figure::Median.of(floor).max(1.0))
    }

    /// What the limit is on.
    fn judged(&self) -> f64 {
        if let (Figure::Pairs, Some(floor)) = (self.figure, &self.floor) {
            let pairs = self.measured.iter().zip(floor);
            let ratios: Vec<f64> = pairs.map(|(one, floor)| one / floor.max(1.0)).collect();
            return Figure::Median.of(&ratios);
        }
        self.value() / self.floor_value().unwrap_or(1.0)
    }

    /// A row of nothing is none that is within its limit.
    pub(crate) fn is_within(&self) -> bool {
        !self.measured.is_empty() && self.judged() <= self.limit
    }
}

/// Milliseconds as samples.
#[expect(clippy::cast_precision_loss, reason = "milliseconds of a few minutes")]
pub(crate) fn samples(numbers: &[u64]) -> Vec<f64> {
    numbers.iter().map(|number| *number as f64).collect()
}

fn shown(samples: &[f64]) -> String {
    let shown: Vec<String> = samples.iter().map(|one| number(*one)).collect();
    shown.join(" ")
}

fn number(one: f64) -> String {
    if one.fract() == 0.0 {
        format!("{one:.0}")
    } else {
        format!("{one:.2}")
    }
}

pub(crate) fn text(rows: &[Row]) -> String {
    let name = rows.iter().map(|row| row.name.chars().count()).max();
    let width = name.unwrap_or(0).max(3);
    let mut text = format!(
        "{:width$}  {:>8}  {:>9}  {:>9}  {:>6}  {:>6}\n",
        "row", "figure", "measured", "floor", "judged", "limit"
    );
    for row in rows {
        let verdict = if row.is_within() { "" } else { "  over" };
        let with_unit = |value: f64| format!("{} {}", number(value), row.unit);
        let floor = row.floor_value().map_or_else(|| "-".to_owned(), with_unit);
        text.push_str(&format!(
            "{:width$}  {:>8}  {:>9}  {:>9}  {:>6.2}  {:>6.2}{verdict}\n",
            row.name,
            row.figure.name(),
            with_unit(row.value()).trim_end(),
            floor.trim_end(),
            row.judged(),
            row.limit,
        ));
        text.push_str(&format!("  on {}\n", row.on));
        text.push_str(&format!("  measured {}\n", shown(&row.measured)));
        if let Some(floor) = &row.floor {
            text.push_str(&format!("  floor    {}\n", shown(floor)));
        }
    }
    text
}

pub(crate) fn json(rows: &[Row]) -> Value {
    let row = |row: &Row| {
        json!({
            "row": row.name, "on": row.on, "unit": row.unit, "figure": row.figure.name(),
            "measured": row.measured, "floor": row.floor, "value": row.value(),
            "floor_median": row.floor_value(), "judged": row.judged(), "limit": row.limit,
            "within": row.is_within(),
        })
    };
    rows.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(measured: &[u64], floor: Option<&[u64]>) -> Row {
        Row {
            name: "a",
            unit: "ms",
            figure: Figure::Median,
            measured: samples(measured),
            floor: floor.map(samples),
            limit: 3.0,
            on: "tcg".into(),
        }
    }

    #[test]
    fn the_ratio_is_that_of_the_medians() {
        let within = row(&[10, 600, 20], Some(&[10, 1, 7]));
        assert!(within.is_within());
        assert_eq!(json(&[within])[0]["value"], 20.0);
        let over = row(&[31], Some(&[10]));
        assert!(!over.is_within());
        assert!(text(&[over]).contains("3.10    3.00  over"));
    }

    #[test]
    fn what_has_no_floor_is_judged_by_itself_and_nothing_is_never_within() {
        let mut counted = row(&[1, 2, 4], None);
        assert!(counted.is_within());
        counted.figure = Figure::Largest;
        assert!(!counted.is_within());
        assert!(!row(&[], None).is_within());
    }

    #[test]
    fn the_ninety_ninth_of_a_hundred_is_the_last_but_one() {
        let hundred: Vec<u64> = (1..=100).rev().collect();
        let hundred = samples(&hundred);
        assert_eq!(Figure::P99.of(&hundred), 99.0);
        assert_eq!(Figure::P99.of(&hundred[..50]), 100.0);
        assert_eq!(Figure::Largest.of(&hundred), 100.0);
    }

    #[test]
    fn runs_are_compared_with_the_floor_beside_them() {
        // The machine was half as fast in two of the runs, and in one only while the floor was measured.
        let paired = Row {
            figure: Figure::Pairs,
            ..row(&[130, 260, 270, 130, 140], Some(&[100, 200, 200, 200, 100]))
        };
        assert!((paired.judged() - 1.3).abs() < 1e-9, "{}", paired.judged());
    }
}
