//! The recorded traces, and the pipelines they are of, in the order in which they ran.

/// A job of the stock runner.
pub(crate) struct Recorded {
    /// Its name in the pipeline.
    pub(crate) name: &'static str,
    /// Its trace as the stand-in stored it.
    pub(crate) trace: &'static str,
}

macro_rules! golden {
    ($name:literal) => {
        include_str!(concat!(
            "../../../../tests/golden/gitlab-runner-19.4.0/",
            $name
        ))
    };
}

macro_rules! recorded {
    ($($name:literal $file:literal),*) => {
        &[$(Recorded { name: $name, trace: golden!($file) }),*]
    };
}

/// The one file of the project, a program.
pub(crate) const PROJECT: (&str, &str) = ("make-greeting.sh", golden!("project/make-greeting.sh"));

/// Each pipeline with its jobs.
pub(crate) const PIPELINES: [(&str, &[Recorded]); 3] = [
    (golden!("hello.json"), recorded!("hello" "hello.trace")),
    (
        golden!("failing.json"),
        recorded!("failing" "failing.trace"),
    ),
    (
        golden!("pipeline.json"),
        recorded!(
            "build" "pipeline-build.trace",
            "test:words" "pipeline-test-words.trace",
            "test:size" "pipeline-test-size.trace",
            "test:picky" "pipeline-test-picky.trace",
            "package" "pipeline-package.trace"
        ),
    ),
];

/// The project's variables while the example's jobs were recorded.
pub(crate) const EXAMPLE_VARIABLES: &str = golden!("parity/variables.toml");

/// How the stock runner's jobs of the example ended, one a line: name, status, exit code, reason.
pub(crate) const EXAMPLE_ENDS: &str = golden!("parity/ends.txt");

/// Steps that GitLab alone makes, with their jobs.
pub(crate) const STEPS: (&str, &[Recorded]) = (
    golden!("parity/steps.json"),
    recorded!(
        "release" "parity/release.trace",
        "release:failed" "parity/release-failed.trace"
    ),
);

/// The jobs of the example, in the order of its file.
pub(crate) const EXAMPLE: &[Recorded] = recorded!(
        "script:shown" "parity/script-shown.trace",
        "script:shell" "parity/script-shell.trace",
        "script:sections" "parity/script-sections.trace",
        "script:debug" "parity/script-debug.trace",
        "exit:allowed" "parity/exit-allowed.trace",
        "exit:pipe" "parity/exit-pipe.trace",
        "exit:killed" "parity/exit-killed.trace",
        "exit:unknown" "parity/exit-unknown.trace",
        "variables:kinds" "parity/variables-kinds.trace",
        "variables:masked" "parity/variables-masked.trace",
        "variables:kept" "parity/variables-kept.trace",
        "after:success" "parity/after-success.trace",
        "after:counts" "parity/after-counts.trace",
        "after:both" "parity/after-both.trace",
        "timeout:script" "parity/timeout-script.trace",
        "timeout:after" "parity/timeout-after.trace",
        "timeout:job" "parity/timeout-job.trace",
        "cancel" "parity/cancel.trace",
        "settings:wrong" "parity/settings-wrong.trace",
        "settings:submodules" "parity/settings-submodules.trace",
        "git:clone" "parity/git-clone.trace",
        "git:none" "parity/git-none.trace",
        "git:empty" "parity/git-empty.trace",
        "git:no-checkout" "parity/git-no-checkout.trace",
        "git:deep" "parity/git-deep.trace",
        "git:flags" "parity/git-flags.trace",
        "git:submodules" "parity/git-submodules.trace",
        "git:hook" "parity/git-hook.trace",
        "git:attempts" "parity/git-attempts.trace",
        "cache:keep" "parity/cache-keep.trace",
        "cache:take" "parity/cache-take.trace",
        "cache:miss" "parity/cache-miss.trace",
        "cache:fallback" "parity/cache-fallback.trace",
        "cache:last-resort" "parity/cache-last-resort.trace",
        "cache:push" "parity/cache-push.trace",
        "cache:several" "parity/cache-several.trace",
        "cache:failed" "parity/cache-failed.trace",
        "cache:wrong" "parity/cache-wrong.trace",
        "artifacts:make" "parity/artifacts-make.trace",
        "artifacts:take" "parity/artifacts-take.trace",
        "artifacts:patterns" "parity/artifacts-patterns.trace",
        "artifacts:untracked" "parity/artifacts-untracked.trace",
        "artifacts:nothing" "parity/artifacts-nothing.trace",
        "artifacts:repository" "parity/artifacts-repository.trace",
        "artifacts:reports" "parity/artifacts-reports.trace",
        "artifacts:failed" "parity/artifacts-failed.trace",
        "artifacts:not-now" "parity/artifacts-not-now.trace",
        "artifacts:two-raw" "parity/artifacts-two-raw.trace",
        "artifacts:zipped-directory" "parity/artifacts-zipped-directory.trace",
        "script:unstamped" "parity/script-unstamped.trace",
        "settings:long" "parity/settings-long.trace",
        "settings:flags" "parity/settings-flags.trace",
        "git:clone-path" "parity/git-clone-path.trace",
        "git:clone-path-outside" "parity/git-clone-path-outside.trace",
        "cache:refused-fallback" "parity/cache-refused-fallback.trace",
        "cache:odd-fallback" "parity/cache-odd-fallback.trace",
        "artifacts:odd" "parity/artifacts-odd.trace",
        "cancel:sources" "parity/cancel-sources.trace",
        "cancel:after" "parity/cancel-after.trace"
);

/// A script that makes the repositories of [`SOURCES`]: its argument is GitLab's host as SSH names it.
pub(crate) const MAKE_SOURCES: &str = golden!("sources/make.sh");

/// Submodules, files of LFS, a tag, SHA-256 as the hash of commits.
pub(crate) const SOURCES: [(&str, &[Recorded]); 3] = [
    (
        golden!("sources/tree.json"),
        recorded!(
            "tree:normal" "sources/tree-normal.trace",
            "tree:recursive" "sources/tree-recursive.trace",
            "tree:excluded" "sources/tree-excluded.trace",
            "tree:ssh" "sources/tree-ssh.trace",
            "tree:closed" "sources/tree-closed.trace",
            "tree:bad-path" "sources/tree-bad-path.trace",
            "tree:remote" "sources/tree-remote.trace",
            "tree:large" "sources/tree-large.trace",
            "tree:large-parts" "sources/tree-large-parts.trace",
            "tree:no-checkout" "sources/tree-no-checkout.trace"
        ),
    ),
    (
        golden!("sources/tag.json"),
        recorded!("tag" "sources/tag.trace"),
    ),
    (
        golden!("sources/long.json"),
        recorded!("long" "sources/long.trace"),
    ),
];

/// How they ended.
pub(crate) const SOURCES_ENDS: &str = golden!("sources/ends.txt");

/// Transfers that GitLab refuses or fails at.
pub(crate) const REFUSED: (&str, &[Recorded]) = (
    golden!("refused/transfers.json"),
    recorded!(
        "made:missing" "refused/made-missing.trace",
        "made:forbidden" "refused/made-forbidden.trace",
        "made:again" "refused/made-again.trace",
        "made:attempts" "refused/made-attempts.trace",
        "made:unwell" "refused/made-unwell.trace",
        "upload:too-large" "refused/upload-too-large.trace",
        "upload:forbidden" "refused/upload-forbidden.trace",
        "upload:again" "refused/upload-again.trace",
        "upload:unavailable" "refused/upload-unavailable.trace",
        "upload:given-up" "refused/upload-given-up.trace",
        "upload:first-of-two" "refused/upload-first-of-two.trace",
        "download:missing" "refused/download-missing.trace",
        "download:forbidden" "refused/download-forbidden.trace",
        "download:again" "refused/download-again.trace",
        "download:attempts" "refused/download-attempts.trace",
        "download:unwell" "refused/download-unwell.trace"
    ),
);

/// How they ended.
pub(crate) const REFUSED_ENDS: &str = golden!("refused/ends.txt");

/// What the stand-in does to them, one a line, as `vk-lab inject` takes it; `job` counts from the
/// pipeline's first, which is 0.
pub(crate) const FAULTS: &str = golden!("refused/faults.jsonl");
