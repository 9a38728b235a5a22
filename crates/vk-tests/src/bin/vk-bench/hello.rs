//! From the node's receipt of `start` to the script's first line, against the bare boot: QEMU's exec
//! to its exit, with the same kernel and machine and an init that powers off at once.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;

use crate::program::run;
use crate::table::{Figure, Row, samples};

/// How often each is measured.
const TIMES: usize = 5;
/// The ratio at most.
const LIMIT: f64 = 3.0;
/// The machine of both.
const CPUS: &str = "1";
const MEMORY_MIB: &str = "512";

pub(crate) fn measure(root: &Path) -> anyhow::Result<Row> {
    let (mut measured_ms, mut floor_ms) = (Vec::new(), Vec::new());
    let mut on = String::new();
    for number in 1..=TIMES {
        let job = start(root)?;
        let accelerator = text(&job, "accelerator")?;
        on = format!("{} under {accelerator}", text(&job, "vmm")?);
        let to_first_line = job.get("to_first_line_ms").and_then(Value::as_u64);
        let to_first_line = to_first_line.context("the trace holds no first line of the script")?;
        let floor = bare(root, &accelerator.to_lowercase())?;
        eprintln!("hello {number} of {TIMES}: {to_first_line} ms, bare boot {floor} ms");
        measured_ms.push(to_first_line);
        floor_ms.push(floor);
    }
    Ok(Row {
        name: "start to the script's first line ÷ bare boot",
        unit: "ms",
        figure: Figure::Median,
        measured: samples(&measured_ms),
        floor: Some(samples(&floor_ms)),
        limit: LIMIT,
        on,
    })
}

fn text<'a>(job: &'a Value, key: &str) -> anyhow::Result<&'a str> {
    let value = job.get(key).and_then(Value::as_str);
    value.with_context(|| format!("the job's result has no {key}"))
}

/// Runs the example; its one job.
fn start(root: &Path) -> anyhow::Result<Value> {
    let out = root.join("work/bench");
    let image = format!("debian:12={}", root.join("images/debian.tar").display());
    let mut command = Command::new(root.join("bin/vk-lab"));
    command.arg("run").arg(root.join("examples/hello"));
    command.arg("--out").arg(&out);
    command.arg("--state").arg(root.join("state"));
    command.arg("--bundle").arg(root.join("guest"));
    command.args(["--import", &image, "--cpus", CPUS, "--memory"]);
    command.arg(format!("{MEMORY_MIB}M"));
    run(&mut command)?;
    let path = out.join("result.json");
    let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    let result: Value = serde_json::from_slice(&bytes)?;
    let job = result.pointer("/jobs/0").cloned();
    job.context("the pipeline had no job")
}

/// Boots once, bare; milliseconds.
fn bare(root: &Path, accelerator: &str) -> anyhow::Result<u64> {
    let mut command = Command::new(root.join("bin/vk"));
    command.args(["guest", "boot", "--bare", "--accelerator", accelerator]);
    command.args(["--cpus", CPUS, "--memory", MEMORY_MIB, "--bundle"]);
    command.arg(root.join("guest"));
    let said = run(&mut command)?;
    // `qemu under TCG: 1234 ms from its start to its exit`
    let (_, rest) = said.split_once(": ").unwrap_or_default();
    let number = rest
        .split_once(" ms")
        .and_then(|(number, _)| number.parse().ok());
    number.with_context(|| format!("vk guest boot says {said:?}"))
}
