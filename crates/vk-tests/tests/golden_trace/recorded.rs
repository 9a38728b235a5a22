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
