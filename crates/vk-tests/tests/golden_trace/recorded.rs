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
        "artifacts:zipped-directory" "parity/artifacts-zipped-directory.trace"
);
