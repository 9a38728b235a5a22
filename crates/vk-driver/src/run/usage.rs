//! What a job used, said in its trace.

use vk_trace::Line as TraceLine;
use vk_vm::usage::HostUsage;

use crate::job::Job;

/// The job's variable that asks for the line.
const ASKED: &str = "MICROVM_USAGE_REPORT";

/// Says what the job's VMs used up to now, `used` by the last of them, where the job asks for it
/// (DISP-58). It is what its result says, too.
pub(super) fn report(job: &Job, used: HostUsage) {
    let asked = job.shared().variables.content(ASKED).map(str::to_owned);
    match asked.as_deref() {
        None | Some("" | "0" | "false") => return,
        Some("1" | "true") => {}
        Some(other) => {
            let line = format!("{ASKED}: expected bool got {other:?}, using default value: false");
            return job.output.line(TraceLine::Warning(&line));
        }
    }
    let before = job.used().unwrap_or_default();
    let all = HostUsage {
        cpu_ms: before.cpu_ms + used.cpu_ms,
        peak_mem_bytes: before.peak_mem_bytes.max(used.peak_mem_bytes),
    };
    let plan = &job.context.plan;
    let line = said(all, plan.cpus, plan.mem_mib);
    job.output.line(TraceLine::Plain(&line));
}

/// The line. Memory is rounded up: it is an upper bound as it is.
fn said(used: HostUsage, cpus: u32, mem_mib: u64) -> String {
    let (seconds, millis) = (used.cpu_ms / 1000, used.cpu_ms % 1000);
    let peak = used.peak_mem_bytes.div_ceil(1 << 20);
    format!(
        "Job resource usage: {seconds}.{millis:03} s of CPU time, at most {peak} MiB of memory \
         (guest: {cpus} CPUs, {mem_mib} MiB)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DISP-58
    #[test]
    fn the_line_has_the_figures_of_the_result() {
        let used = HostUsage {
            cpu_ms: 61_007,
            peak_mem_bytes: (300 << 20) + 1,
        };
        assert_eq!(
            said(used, 2, 4096),
            "Job resource usage: 61.007 s of CPU time, at most 301 MiB of memory (guest: 2 CPUs, \
             4096 MiB)"
        );
    }
}
