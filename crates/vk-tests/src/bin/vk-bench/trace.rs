//! What a job's output costs on its way to the trace: `trace-throughput` is `vk-trace`'s own example, built
//! with optimisation, and measures processor time of its one thread.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::table::{Figure, Row};

/// A GB of usual lines, of short ones, and of what is slowest, in milliseconds.
const LINES: f64 = 1000.0;
const SHORT_LINES: f64 = 2000.0;
const PATHOLOGICAL: f64 = 3000.0;
/// Of overlaps at random: nothing about these steps repeats itself.
const RANDOM: f64 = 30_000.0;

/// One line of the example.
struct Said {
    name: String,
    of: String,
    millis: f64,
}

pub(crate) fn measure(root: &Path) -> anyhow::Result<Vec<Row>> {
    println!("trace: what a GB of output costs");
    let program = root.join("bin/trace-throughput");
    let ran = Command::new(&program)
        .arg("--bench")
        .output()
        .with_context(|| format!("running {}", program.display()))?;
    ensure!(
        ran.status.success(),
        "{}: {}",
        program.display(),
        ran.status
    );
    let said = String::from_utf8(ran.stdout)?;
    let said: Option<Vec<Said>> = said.lines().map(read).collect();
    rows(&said.context("trace-throughput says something else than rows")?)
}

fn read(line: &str) -> Option<Said> {
    let mut fields = line.split('\t');
    let said = Said {
        name: fields.next()?.to_owned(),
        of: fields.next()?.to_owned(),
        millis: fields.next()?.parse().ok()?,
    };
    fields.next().is_none().then_some(said)
}

fn rows(said: &[Said]) -> anyhow::Result<Vec<Row>> {
    let of = |kind: &str, part: &str| -> Vec<&Said> {
        let is_meant = |one: &&Said| one.of == kind && one.name.contains(part);
        said.iter().filter(is_meant).collect()
    };
    let copy = of("copy", "");
    let copy = copy.first().context("copying was not measured")?.millis;
    let row = |name, limit, meant: Vec<&Said>| {
        let slowest = meant.iter().max_by(|a, b| a.millis.total_cmp(&b.millis));
        let slowest = slowest.map_or("nothing", |one| one.name.as_str());
        Row {
            name,
            unit: "ms",
            figure: Figure::Largest,
            measured: meant.iter().map(|one| one.millis).collect(),
            floor: None,
            limit,
            on: format!(
                "one core, 20 secrets, stamped; slowest: {slowest}; copying takes {copy} ms"
            ),
        }
    };
    Ok(vec![
        row(
            "trace: a GB of 120-byte lines",
            LINES,
            of("lines", "120-byte"),
        ),
        row(
            "trace: a GB of 20-byte lines",
            SHORT_LINES,
            of("lines", "20-byte"),
        ),
        row(
            "trace: a GB of what is slowest",
            PATHOLOGICAL,
            of("pathological", ""),
        ),
        row("trace: a GB of random overlaps", RANDOM, of("random", "")),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> anyhow::Result<Vec<Row>> {
        let said: Option<Vec<Said>> = text.lines().map(read).collect();
        rows(&said.context("no rows")?)
    }

    const FINE: &str = "copying\tcopy\t22\n120-byte lines\tlines\t300\n20-byte lines\tlines\t700\n\
                        a\tpathological\t2000\nb\tpathological\t2900\nc\trandom\t15000\n";

    #[test]
    fn the_slowest_of_a_kind_is_what_is_judged() {
        let rows = of(FINE).unwrap();
        assert_eq!(rows.len(), 4);
        assert!(rows.iter().all(Row::is_within));
        assert!(rows[2].on.contains("slowest: b; copying takes 22 ms"));
        let over = of(&FINE.replace("2900", "3001")).unwrap();
        assert!(!over[2].is_within() && over[3].is_within());
    }

    #[test]
    fn what_was_not_measured_is_not_within_its_limit() {
        assert!(of("x\ty").is_err());
        assert!(of(&FINE.replace("copy\t", "else\t")).is_err());
        let missing = of(&FINE.replace("\trandom", "\telse")).unwrap();
        assert!(!missing[3].is_within());
    }
}
