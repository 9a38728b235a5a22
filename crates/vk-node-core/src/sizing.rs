//! How large a job's VM is, and how much memory is set aside for it (ADM-15, ADM-32, ADM-33).
//!
//! A `MICROVM_CPUS` or `MICROVM_MEM` variable wins over the first `# vk:` comment of the scripts,
//! that over the node's defaults; the node's ceilings cut all of them. Past runs change what is
//! set aside, never the VM.

use vk_hub_proto::job::CiJob;

/// MiB of memory below which no VM boots.
pub const MEM_MIB_MIN: u64 = 128;

/// The node's default and largest VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// CPUs where a job says nothing.
    pub cpus: u32,
    /// MiB of memory where a job says nothing.
    pub mem_mib: u64,
    /// CPUs at most.
    pub max_cpus: u32,
    /// MiB of memory at most.
    pub max_mem_mib: u64,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes {
            cpus: 4,
            mem_mib: 4096,
            max_cpus: 4,
            max_mem_mib: 4096,
        }
    }
}

/// What came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sized {
    /// The VM's CPUs.
    pub cpus: u32,
    /// The VM's memory in MiB.
    pub mem_mib: u64,
    /// For the trace: what did not parse or was cut. Values are left out, they may be secrets.
    pub warnings: Vec<String>,
}

/// Sizes a job.
#[must_use]
pub fn size(job: &CiJob, sizes: Sizes) -> Sized {
    let hint = hint(job);
    let mut warnings = Vec::new();
    let cpus = choose("MICROVM_CPUS", job, hint.cpus, count, &mut warnings);
    let mem_mib = choose("MICROVM_MEM", job, hint.mem, mib, &mut warnings);
    let cpus = cpus.unwrap_or(sizes.cpus.into());
    let mem_mib = mem_mib.unwrap_or(sizes.mem_mib);
    let (max_cpus, max_mem_mib) = (sizes.max_cpus.max(1), sizes.max_mem_mib.max(1));
    if cpus > u64::from(max_cpus) {
        warnings.push(format!(
            "the job asks for {cpus} CPUs; this node gives a job at most {max_cpus}"
        ));
    }
    if mem_mib > max_mem_mib {
        warnings.push(format!(
            "the job asks for {mem_mib} MiB of memory; this node gives a job at most {max_mem_mib} MiB"
        ));
    }
    if mem_mib < MEM_MIB_MIN {
        warnings.push(format!(
            "the job asks for {mem_mib} MiB of memory; a VM has at least {MEM_MIB_MIN} MiB"
        ));
    }
    Sized {
        cpus: u32::try_from(cpus).unwrap_or(u32::MAX).clamp(1, max_cpus),
        mem_mib: mem_mib.max(MEM_MIB_MIN).min(max_mem_mib),
        warnings,
    }
}

/// A variable where it is set and parses, else the hint where that parses.
fn choose(
    name: &str,
    job: &CiJob,
    hint: Option<&str>,
    parse: fn(&str) -> Option<u64>,
    warnings: &mut Vec<String>,
) -> Option<u64> {
    let variable = job.variables.iter().rev().find(|v| v.key == name);
    // An empty value equals none.
    let variable = variable
        .map(|v| v.value.expose().trim())
        .filter(|v| !v.is_empty());
    if let Some(text) = variable {
        if let Some(value) = parse(text) {
            return Some(value);
        }
        warnings.push(format!("{name} is not a size such as {}", example(name)));
    }
    let value = parse(hint?);
    if value.is_none() {
        warnings.push(format!(
            "a \"# vk:\" comment gives no size such as {}",
            example(name)
        ));
    }
    value
}

fn example(name: &str) -> &'static str {
    match name {
        "MICROVM_CPUS" => "4",
        _ => "8G",
    }
}

/// The first value of each in `# vk:` comments.
#[derive(Default)]
struct Hint<'a> {
    cpus: Option<&'a str>,
    mem: Option<&'a str>,
}

fn hint(job: &CiJob) -> Hint<'_> {
    let mut hint = Hint::default();
    let lines = job.steps.iter().flat_map(|step| &step.script);
    for line in lines.flat_map(|entry| entry.lines()) {
        let Some(rest) = line
            .trim_start()
            .strip_prefix('#')
            .and_then(|comment| comment.trim_start().strip_prefix("vk:"))
        else {
            continue;
        };
        for word in rest.split_whitespace() {
            match word.split_once('=') {
                Some(("cpus", value)) if hint.cpus.is_none() => hint.cpus = Some(value),
                Some(("mem", value)) if hint.mem.is_none() => hint.mem = Some(value),
                _ => {}
            }
        }
    }
    hint
}

/// A whole number of at least 1.
fn count(text: &str) -> Option<u64> {
    text.parse().ok().filter(|count| *count >= 1)
}

/// Bytes with an optional suffix K, M, G or T (powers of 1024, also `Gi` and `GiB`), in whole MiB
/// of at least 1.
fn mib(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, suffix) = text.split_at(digits);
    let shift = match suffix.trim_start().to_ascii_lowercase().as_str() {
        "" => 0,
        "k" | "ki" | "kib" => 10,
        "m" | "mi" | "mib" => 20,
        "g" | "gi" | "gib" => 30,
        "t" | "ti" | "tib" => 40,
        _ => return None,
    };
    let bytes = number.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    Some(bytes >> 20).filter(|mib| *mib >= 1)
}

/// One earlier run of a job, as the node keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastRun {
    /// How long ago it ended, in seconds.
    pub age_secs: u64,
    /// Its VM's memory in MiB.
    pub mem_mib: u64,
    /// Its peak in MiB.
    pub peak_mib: u64,
}

/// The memory to set aside by past runs with this VM size: the largest peak of the last 14 days
/// with at least 5 runs, a quarter more, at least 512 MiB and at most the VM's size (ADM-33).
#[must_use]
pub fn from_history(runs: &[PastRun], mem_mib: u64) -> Option<u64> {
    const DAYS_14: u64 = 14 * 24 * 3600;
    let peaks: Vec<u64> = runs
        .iter()
        .filter(|run| run.age_secs <= DAYS_14 && run.mem_mib == mem_mib)
        .map(|run| run.peak_mib)
        .collect();
    if peaks.len() < 5 {
        return None;
    }
    let peak = peaks.into_iter().max()?;
    Some(peak.saturating_add(peak.div_ceil(4)).max(512).min(mem_mib))
}

#[cfg(test)]
mod tests;
