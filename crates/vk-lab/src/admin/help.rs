//! What `vk-lab inject --help` and `vk-lab admin --help` say.

/// Every fault.
pub(crate) const INJECT: &str = "\
A fault is one JSON object. Which calls, what happens, when, and how often:

  on      request   POST /jobs/request        update    PUT /jobs/:id
          trace     PATCH /jobs/:id/trace     upload    POST /jobs/:id/artifacts
          download  GET /jobs/:id/artifacts   verify    POST /runners/verify
          runner    the other calls about a runner
          any       all of these              git       git and LFS
          registry  container registry and dependency proxy

  action  {\"status\":N}          this status instead; with \"retry_after\":S
          \"drop\"                the connection is closed without an answer
          \"lose_answer\"         drop, after it was applied
          {\"stall_ms\":N}        nothing is read or said for so long, then it is closed
          {\"delay_ms\":N}        so much later (at most 60000)
          {\"trickle_ms\":N}      the answer in eight parts, so far apart
          \"truncate\"            half of the answer
          {\"headers\":{\"Range\":\"0-0\",\"Job-Status\":null}}   set, or taken away
          {\"body\":\"<html>…\"}    another body, the same status
          {\"redirect\":{\"status\":307,\"to\":\"http://…\"}}     path and query stay;
                                without `to`: to the other host (vk-lab admin, listen)
          {\"cancel\":{\"force\":true}}                       the job is cancelled
          {\"forget_trace\":{\"keep\":N}} or {\"tail\":N}         stored output is lost

  when    before    nothing is read or applied (status, drop, stall_ms, redirect, cancel and
                    forget_trace, unless another is given)
          body      all of the body was read, nothing is applied
          after     it was applied (the others)

  job     only calls of this job
  skip    so many calls are let through first
  every   every how many calls
  chance  of each of those, such as 0.05; with `seed`, by which the same calls are hit again
  count   how many are hit (1); any number with chance, for_secs or \"forever\":true
  for_secs  for so long by the server's clock

Of several faults for one call the first that hits is taken.

Examples:
  vk-lab inject --admin ./lab.sock '{\"on\":\"request\",\"action\":{\"status\":409}}'
  vk-lab inject --admin ./lab.sock '{\"on\":\"request\",\"action\":\"lose_answer\"}'
  vk-lab inject --admin ./lab.sock \\
      '{\"on\":\"trace\",\"action\":{\"status\":429},\"retry_after\":1,\"count\":3,\"every\":2}'
  vk-lab inject --admin ./lab.sock '{\"on\":\"any\",\"action\":{\"status\":503},\"for_secs\":300}'
  vk-lab inject --admin ./lab.sock '{\"on\":\"any\",\"action\":\"drop\",\"when\":\"after\",\"chance\":0.01,\"seed\":7}'
  vk-lab inject --admin ./lab.sock '{\"on\":\"upload\",\"action\":{\"cancel\":{}},\"when\":\"body\"}'
  vk-lab admin  --admin ./lab.sock '{\"cmd\":\"faults\"}'        # and clear_faults";

/// Every command.
pub(crate) const ADMIN: &str = "\
Commands, each one JSON object with \"cmd\":
  trigger {pipeline}                 cancel {job, force}      play {job}     retry {job}
  status {pipeline, wait}            trace {job, follow}      invariants     totals
  expect {job, trace_file|contains}  erase {job}              forget_trace {job, keep|tail}
  inject {on, action, …}             faults                   clear_faults
  advance {secs}       the server's clock goes on, and silent jobs are looked for
  skew {secs}          the server's clock is moved, backwards too, and nothing else happens
  restart {down_ms}    all connections break, and for so long none is taken
  snapshot             how everything stands is remembered; rollback goes back to it
  listen {as:\"elsewhere\", addr, url}      another host: object store, end of redirects
  listen {as:\"https\", addr, cert, key}    the server with TLS; again: another certificate
  elsewhere            the requests that came to the other host
  runner {id, paused, tags, run_untagged, ref_protected, maximum_timeout_secs,
          token_expires_in_secs}
  add_runners {count, tags, token_dir}    each one's token in runner-<id>.token
  hide_ref {pipeline, secs}               its refs/pipelines/<id> comes late, or never
  let_read {project, reader}              job tokens of `reader` read `project`
  image {name, layout}                    an OCI layout is served by the registry
  delete_project {project}
  set {…}              settings; those left out stay, and all are answered

Settings:
  commit_mode          \"modern\", \"ack-18.5\" or \"legacy\"; ack_timeout_zero
  long_poll_ns         0 is off, GitLab has 50 or 50000000000
  live_trace, store_delay_ms, trace_limit_mib
  artifact_limit, artifact_limits {\"junit\":N}, artifacts_enabled, direct_download
  lower_stuck_timeouts, sweep_every_secs (3600 as GitLab's task, 0 at once)
  rate_limits {request, trace, job} (0 is none), rate_limit_retry_after, migrating
  job_token_bytes, sum_ended_traces, cancel_within_ms

Examples:
  vk-lab admin --admin ./lab.sock '{\"cmd\":\"advance\",\"secs\":3600}'
  vk-lab admin --admin ./lab.sock '{\"cmd\":\"set\",\"commit_mode\":\"ack-18.5\"}'
  vk-lab admin --admin ./lab.sock '{\"cmd\":\"restart\",\"down_ms\":5000}'";
