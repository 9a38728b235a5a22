//! What differs, job by job, in the order of the lines.

use crate::align::Hunk;
use crate::{example, refused, sources};

/// Lines of the stock runner's trace, and ours in their place. `*` stands for anything; a line of
/// ours that begins with `?` may be missing.
#[derive(Debug)]
pub(crate) struct Difference {
    /// The heading in the operators' page under which it is explained.
    pub(crate) reason: &'static str,
    stock: Vec<String>,
    ours: Vec<String>,
}

/// What of a hunk no difference has explained yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest<'a> {
    stock: &'a [String],
    ours: &'a [String],
}

impl<'a> Rest<'a> {
    pub(crate) fn of(hunk: &'a Hunk) -> Self {
        let Hunk { stock, ours } = hunk;
        Self { stock, ours }
    }

    pub(crate) fn is_empty(self) -> bool {
        self.stock.is_empty() && self.ours.is_empty()
    }
}

impl Difference {
    /// What is left of a hunk behind this difference, if it begins with it.
    pub(crate) fn explain<'a>(&self, rest: Rest<'a>) -> Option<Rest<'a>> {
        Some(Rest {
            stock: taken(&self.stock, rest.stock)?,
            ours: taken(&self.ours, rest.ours)?,
        })
    }
}

impl Difference {
    /// The same where no line has a stamp or a stream, and none has its end after a section's marker.
    pub(crate) fn unstamped(self) -> Self {
        let plain = |line: String| {
            let (may_miss, line) = match line.strip_prefix('?') {
                Some(line) => ("?", line),
                None => ("", line.as_str()),
            };
            let text = &line[4..];
            let begin = if text.contains("Preparing the ") {
                "section_start:<time>:prepare_executor^M^[0K"
            } else {
                ""
            };
            format!("{may_miss}{begin}{text}")
        };
        Self {
            reason: self.reason,
            stock: self.stock.into_iter().map(plain).collect(),
            ours: self.ours.into_iter().map(plain).collect(),
        }
    }
}

fn taken<'a>(patterns: &[String], mut lines: &'a [String]) -> Option<&'a [String]> {
    for pattern in patterns {
        let (may_miss, pattern) = match pattern.strip_prefix('?') {
            Some(pattern) => (true, pattern),
            None => (false, pattern.as_str()),
        };
        match lines.split_first() {
            Some((line, rest)) if fits(pattern, line) => lines = rest,
            _ if may_miss => {}
            _ => return None,
        }
    }
    Some(lines)
}

/// Whether a line has a pattern's parts in their order, the first at its begin and the last at its
/// end.
fn fits(pattern: &str, line: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == line,
        Some((before, after)) => line.strip_prefix(before).is_some_and(|rest| {
            let ends = (0..=rest.len()).filter_map(|at| rest.get(at..));
            ends.into_iter().any(|rest| fits(after, rest))
        }),
    }
}

const PROGRAM: &str = "The program's name";
const NODE: &str = "The node's name";
pub(crate) const EXECUTOR: &str = "The executor";
const PLACE: &str = "Where it runs";
const GITALY: &str = "Gitaly's correlation ID";
pub(crate) const DIRECTORY: &str = "The project's directory";
pub(crate) const LFS: &str = "Files of LFS";
const TREE: &str = "A new tree for each job";
pub(crate) const ARTIFACTS: &str = "The log of artifacts";
pub(crate) const EXIT: &str = "Exit codes";
pub(crate) const GUEST: &str = "What the guest is";

/// What introduces each of the stock runner's own programs.
pub(crate) const PLATFORM: &str = "01E Runtime platform                                  ^[0;m  \
                        arch^[0;m=amd64 os^[0;m=linux pid^[0;m=* revision^[0;m=d79f3e7b \
                        version^[0;m=19.4.0";

pub(crate) fn difference(reason: &'static str, stock: &[&str], ours: &[&str]) -> Difference {
    let owned = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
    Difference {
        reason,
        stock: owned(stock),
        ours: owned(ours),
    }
}

/// What is expected of a job.
pub(crate) fn of(job: &str) -> Vec<Difference> {
    let later = || sources::of(job).or_else(|| refused::of(job));
    let found = first(job).or_else(later);
    found.unwrap_or_else(|| example::of(job))
}

/// What is expected of a job of the first pipelines.
fn first(job: &str) -> Option<Vec<Difference>> {
    let mut list = begin(if job.starts_with("test:") && job != "test:words" {
        "busybox:latest"
    } else {
        "debian:12"
    });
    match job {
        "hello" => {
            list.push(first_tree("examples"));
            list.push(no_lfs());
            list.push(difference(GUEST, &["01O Linux 6.12.0"], &["01O Linux *"]));
            list.extend(upload(1));
        }
        "failing" => {
            list.extend(tree(&["hello.txt"]));
            list.push(exit(
                "00O+^[0;33mWARNING: after_script failed, but job will continue unaffected: ",
                1,
            ));
            list.push(difference(ARTIFACTS, &[PLATFORM], &[]));
            list.push(missing("nothing"));
            list.push(missing("out/*"));
            list.push(exit("00O ^[31;1mERROR: Job failed: ", 42));
        }
        "build" => {
            list.extend(tree(&[]));
            list.extend(upload(3));
        }
        "test:words" => {
            list.extend(tree(&["out/"]));
            list.push(download(3));
        }
        "test:size" => {
            list.extend(tree(&["out/"]));
            list.push(download(3));
            list.extend(upload(5));
        }
        "test:picky" => {
            list.extend(tree(&["out/", "size.txt"]));
            list.push(download(3));
            list.push(exit("00O ^[31;1mERROR: Job failed: ", 1));
        }
        "package" => {
            list.extend(tree(&["out/"]));
            list.push(download(3));
            list.push(download(5));
            let mut upload = upload(7);
            upload.insert(1, missing("missing/*"));
            list.extend(upload);
        }
        _ => return None,
    }
    Some(list)
}

/// Up to the sources.
pub(crate) fn begin(image: &str) -> Vec<Difference> {
    let line = |text: &str| format!("00O ^[0K{text}^[0;m");
    let is = |reason, stock: &str, ours: &str| difference(reason, &[stock], &[ours]);
    vec![
        is(
            PROGRAM,
            &line("Running with gitlab-runner 19.4.0 (d79f3e7b)"),
            &line("Running with vk * (*)"),
        ),
        is(
            NODE,
            &line("  on stock <token>, system ID: s_0123456789ab"),
            &line("  on * <token>"),
        ),
        difference(
            EXECUTOR,
            &[
                "00O+^[0K^[36;1mPreparing the \"shell\" executor^[0;m^[0;m",
                &line("Using Shell (bash) executor..."),
            ],
            &[
                "00O+^[0K^[36;1mPreparing the \"vk\" executor^[0;m^[0;m",
                "?00O ^[0KWaiting for room on the node ...^[0;m",
                &line(&format!("Using VM executor with image {image} ...")),
                &line(&format!(
                    "Using effective pull policy of [always] for image {image}"
                )),
                &line(&format!(
                    "Using image {image} with digest sha256:*, imported on the node"
                )),
                &line("Booted a VM by * under * in * s: 1 CPUs, * MiB, kernel *"),
                "?00O ^[0;33mWARNING: this node has no KVM that works: every instruction of the \
                 job is emulated, many times slower than on a processor^[0;m",
            ],
        ),
        is(
            PLACE,
            "01O Running on runner-host...",
            "01O Running on runner-*-project-*-concurrent-* via *...",
        ),
        difference(GITALY, &["01O ^[32;1mGitaly correlation ID: *^[0;m"], &[]),
    ]
}

/// The stock runner's first job has a new tree, too.
pub(crate) fn first_tree(project: &str) -> Difference {
    let line = |dir: &str| format!("01O Initialized empty Git repository in {dir}/.git/");
    let stock = line(&format!("/builds/<token>/0/lab/{project}"));
    let ours = line(&format!("/builds/lab/{project}"));
    difference(DIRECTORY, &[&stock], &[&ours])
}

/// The host of these jobs had no `git-lfs`, behind which gitlab-runner prints an empty line.
fn no_lfs() -> Difference {
    difference(LFS, &[], &["01O "])
}

/// A later one goes on with what the one before left, and removes some of it.
fn tree(removed: &[&str]) -> Vec<Difference> {
    let mut list = vec![difference(
        TREE,
        &["01O Reinitialized existing Git repository in /builds/<token>/0/lab/examples/.git/"],
        &[
            "01O Initialized empty Git repository in /builds/lab/examples/.git/",
            "01O ^[32;1mCreated fresh repository.^[0;m",
        ],
    )];
    for name in removed {
        list.push(difference(TREE, &[&format!("01O Removing {name}")], &[]));
    }
    list.push(no_lfs());
    list
}

fn upload(job: u64) -> Vec<Difference> {
    sent("archive", job)
}

/// An upload that went well, with its begin.
pub(crate) fn sent(kind: &str, job: u64) -> Vec<Difference> {
    let line = |fields: &str| {
        format!(
            "01E Uploading artifacts as \"{kind}\" to coordinator... 201 Created^[0;m  {fields}"
        )
    };
    let stock = line(&format!(
        "correlation_id^[0;m=* id^[0;m={job} status^[0;m=201 token^[0;m=*"
    ));
    let ours = line(&format!("id^[0;m={job} status^[0;m=201"));
    vec![
        difference(ARTIFACTS, &[PLATFORM], &[]),
        difference(ARTIFACTS, &[&stock], &[&ours]),
    ]
}

pub(crate) fn download(from: u64) -> Difference {
    let line = |fields: &str| {
        format!("01E Downloading artifacts from coordinator... ok      ^[0;m  {fields}")
    };
    let stock = line(&format!(
        "correlation_id^[0;m=* id^[0;m={from} status^[0;m=200 token^[0;m=*"
    ));
    let ours = line(&format!("id^[0;m={from} status^[0;m=200"));
    difference(ARTIFACTS, &[PLATFORM, &stock], &[&ours])
}

/// A pattern that finds nothing: the same words, another directory.
fn missing(pattern: &str) -> Difference {
    missing_in("examples", pattern)
}

/// The same in another project.
pub(crate) fn missing_in(project: &str, pattern: &str) -> Difference {
    let line = |directory: &str| {
        format!(
            "01E ^[0;33mWARNING: {pattern}: no matching files. Ensure that the artifact path is \
             relative to the working directory ({directory})^[0;m "
        )
    };
    let (stock, ours) = (
        line(&format!("/builds/<token>/0/lab/{project}")),
        line(&format!("/builds/lab/{project}")),
    );
    difference(DIRECTORY, &[&stock], &[&ours])
}

pub(crate) fn exit(before: &str, code: u8) -> Difference {
    let line = |words: &str| format!("{before}{words} {code}^[0;m");
    difference(EXIT, &[&line("exit status")], &[&line("exit code")])
}
