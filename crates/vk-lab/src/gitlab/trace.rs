//! `PATCH /jobs/:id/trace` (sections 2.8 and 3).

use super::ledger::{Channel, Kind};
use super::limits::JobRate;
use super::reply::Reply;
use super::settings::CommitMode;
use super::state::Gitlab;

const MIB: u64 = 1 << 20;
/// How long the flag that someone watches lasts.
pub(super) const WATCH_MS: u64 = 10_000;

/// The offset that a `Content-Range` names: the integer before the first `-`, read as Ruby does:
/// leading digits count, anything else is 0 (so `bytes 5-9` is 0).
fn start_of(content_range: &str) -> u64 {
    let text = content_range
        .split('-')
        .next()
        .unwrap_or_default()
        .trim_start();
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    digits
        .parse()
        .unwrap_or(if digits.is_empty() { 0 } else { u64::MAX })
}

impl Gitlab {
    /// The first half of a patch, before its body: authentication, header, the trace's lock.
    ///
    /// # Errors
    ///
    /// The refusal to answer; then the lock is not held.
    pub fn begin_patch(
        &mut self,
        id: u64,
        token: &str,
        content_range: Option<&str>,
        begun: u64,
        lost: bool,
        now: u64,
    ) -> Result<u64, Reply> {
        self.note_call(id, Channel::Control, begun, None);
        self.throttle_job(id, token, JobRate::Trace, 1, now)?;
        if let Err(reply) = self.authorize(id, token, true, now) {
            self.note_end(id, Channel::Control, None, lost);
            return Err(reply);
        }
        self.heartbeat(id, now);
        let Some(range) = content_range else {
            return Err(Reply::message(400, "400 Missing header Content-Range"));
        };
        let Some(job) = self.jobs.get_mut(&id) else {
            return Err(Reply::forbidden(None));
        };
        if job.trace_locked {
            return Err(Reply::message(409, "409 Conflict"));
        }
        job.trace_locked = true;
        Ok(start_of(range))
    }

    /// Gives the trace's lock back.
    pub fn end_patch(&mut self, id: u64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.trace_locked = false;
        }
    }

    /// The second half: appends `body` at `start`. The job may have ended since the first half.
    pub fn append(
        &mut self,
        id: u64,
        start: u64,
        body: &mut [u8],
        debug: bool,
        lost: bool,
        now: u64,
    ) -> Reply {
        let limit = self.settings.trace_limit_mib;
        let Some(job) = self.jobs.get_mut(&id) else {
            return Reply::forbidden(None);
        };
        if !job.with_runner(now) {
            let reply = self.jobs.get(&id).map(|job| self.not_running(job));
            self.note_end(id, Channel::Control, None, lost);
            return reply.unwrap_or_else(|| Reply::forbidden(None));
        }
        job.counts.patched(body.len() as u64, now);
        if start == 0 && debug {
            job.debug_trace = true;
        }
        let end = start.saturating_add(body.len() as u64);
        if limit > 0 && end / MIB >= limit {
            self.drop_job(id, "trace_size_exceeded", now);
            if let Some(job) = self.jobs.get_mut(&id) {
                // The runner sent too much: that ends the job, and is not its silence.
                job.dropped_by_server = false;
            }
            self.note_end(id, Channel::Control, None, lost);
            return Reply::forbidden(None);
        }
        let size = job.stored.size;
        if start != size {
            let text = "416 Range Not Satisfiable";
            return Reply::message(416, text).header("Range", format!("0-{size}"));
        }
        self.mask(id, body);
        self.stored(id, body, now)
    }

    fn stored(&mut self, id: u64, body: &[u8], now: u64) -> Reply {
        let unwatched = match self.settings.commit_mode {
            CommitMode::Legacy => "30",
            _ => "60",
        };
        let Some(job) = self.jobs.get_mut(&id) else {
            return Reply::forbidden(None);
        };
        job.append(body);
        let watched = now < job.watched_until_ms;
        let interval = if watched { "3" } else { unwatched };
        let size = job.stored.size;
        Reply::digits(202)
            .header("Job-Status", job.status.word())
            .header("Range", format!("0-{size}"))
            .header("X-GitLab-Trace-Update-Interval", interval)
    }

    /// Overwrites the job's and the runner's token with as many `x`, and notes that it had to.
    fn mask(&mut self, id: u64, body: &mut [u8]) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let runner = self
            .runners
            .iter()
            .find(|runner| Some(runner.id) == job.runner);
        let tokens = [
            Some(("job", &job.token)),
            runner.map(|r| ("runner", &r.token)),
        ];
        let mut found = Vec::new();
        for (name, token) in tokens.into_iter().flatten() {
            let secret = token.expose().as_bytes();
            let at: Vec<usize> = memchr::memmem::find_iter(body, secret).collect();
            if !at.is_empty() {
                found.push(name);
            }
            for start in at {
                if let Some(part) = body.get_mut(start..start + secret.len()) {
                    part.fill(b'x');
                }
            }
        }
        for name in found {
            let detail = format!("the {name} token came in a patch and was overwritten");
            self.ledger.note(Kind::MaskedInPlace, Some(id), detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::start_of;

    #[test]
    fn the_offset_is_the_integer_before_the_first_dash() {
        let rows = [
            ("28-32/5", 28),
            ("0-9", 0),
            ("bytes 5-9", 0),
            ("", 0),
            ("7", 7),
            ("-5-9", 0),
            (" 12x-4", 12),
            ("99999999999999999999-1", u64::MAX),
        ];
        for (text, start) in rows {
            assert_eq!(start_of(text), start, "{text:?}");
        }
    }
}
