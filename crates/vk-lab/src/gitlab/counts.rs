//! What each job cost, and how quickly it was picked up: the numbers of a bench.

use serde::Serialize;

/// Calls and bytes of one job. Calls that a fault answered before they acted are not in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Updates.
    pub updates: u64,
    /// Patches of the trace.
    pub patches: u64,
    /// Uploads and downloads of artifacts.
    pub transfers: u64,
    /// Bytes of bodies that came.
    pub bytes_in: u64,
    /// 204s that its runner was answered while it was pending; 64 means as many or more.
    pub empty_before: u64,
    /// From pending to the 201, in milliseconds.
    pub pick_up_ms: Option<u64>,
    /// Shortest time between two patches, in milliseconds.
    pub shortest_gap_ms: Option<u64>,
    /// Longest time between two patches, in milliseconds.
    pub longest_gap_ms: Option<u64>,
    /// The last patch that brought something.
    pub last_output_ms: Option<u64>,
    /// The last patch of any kind.
    #[serde(skip)]
    last_patch_ms: Option<u64>,
}

impl Counts {
    pub(super) fn patched(&mut self, bytes: u64, now: u64) {
        self.patches += 1;
        if let Some(last) = self.last_patch_ms.replace(now) {
            let gap = now.saturating_sub(last);
            self.shortest_gap_ms = Some(self.shortest_gap_ms.map_or(gap, |least| least.min(gap)));
            self.longest_gap_ms = Some(self.longest_gap_ms.map_or(gap, |most| most.max(gap)));
        }
        if bytes > 0 {
            self.last_output_ms = Some(now);
        }
        self.bytes_in += bytes;
    }
}

impl super::Gitlab {
    /// Bytes of a body that came for a job.
    pub fn count_bytes(&mut self, id: u64, bytes: u64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.counts.bytes_in += bytes;
        }
    }
}

/// What all jobs cost together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Jobs by status.
    pub jobs: std::collections::BTreeMap<&'static str, u64>,
    /// Jobs that were handed out.
    pub handed_out: u64,
    /// Sums over all jobs.
    pub updates: u64,
    /// As above.
    pub patches: u64,
    /// As above.
    pub transfers: u64,
    /// As above.
    pub bytes_in: u64,
    /// Bytes of all traces.
    pub trace_bytes: u64,
    /// Half of the jobs were picked up within so many milliseconds.
    pub pick_up_ms_p50: Option<u64>,
    /// 99 of 100 were.
    pub pick_up_ms_p99: Option<u64>,
    /// All were.
    pub pick_up_ms_max: Option<u64>,
}

impl Totals {
    /// Sums up.
    pub(super) fn of<'a>(jobs: impl Iterator<Item = &'a super::Job>) -> Self {
        let mut totals = Self::default();
        let mut waits = Vec::new();
        for job in jobs {
            *totals.jobs.entry(job.status.word()).or_default() += 1;
            totals.handed_out += u64::from(job.calls.handed_out > 0);
            totals.updates += job.counts.updates;
            totals.patches += job.counts.patches;
            totals.transfers += job.counts.transfers;
            totals.bytes_in += job.counts.bytes_in;
            totals.trace_bytes += job.stored.size;
            waits.extend(job.counts.pick_up_ms);
        }
        waits.sort_unstable();
        totals.pick_up_ms_p50 = share(&waits, 50);
        totals.pick_up_ms_p99 = share(&waits, 99);
        totals.pick_up_ms_max = waits.last().copied();
        totals
    }
}

/// The smallest value that `percent` of the sorted `values` do not pass.
fn share(values: &[u64], percent: usize) -> Option<u64> {
    let rank = (values.len() * percent).div_ceil(100);
    values.get(rank.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_lie_between_patches_and_empty_ones_are_no_output() {
        let mut counts = Counts::default();
        for (bytes, now) in [(5, 100), (0, 400), (7, 450)] {
            counts.patched(bytes, now);
        }
        assert_eq!((counts.patches, counts.bytes_in), (3, 12));
        let gaps = (counts.shortest_gap_ms, counts.longest_gap_ms);
        assert_eq!(gaps, (Some(50), Some(300)));
        assert_eq!(counts.last_output_ms, Some(450));
        counts.patched(0, 900);
        assert_eq!(counts.last_output_ms, Some(450));
    }

    #[test]
    fn a_share_is_the_value_that_so_many_do_not_pass() {
        let values: Vec<u64> = (1..=200).collect();
        assert_eq!(
            (share(&values, 50), share(&values, 99)),
            (Some(100), Some(198))
        );
        assert_eq!(share(&[], 50), None);
        assert_eq!(share(&[7], 99), Some(7));
    }
}
