//! What differs, job by job of those with sources of other kinds.

use crate::differences::{Difference, LFS, begin, difference, first_tree};
use crate::example::{FAILED, SOURCES, SUBMODULES, ended_by_settings};

/// What `.gitmodules` says of each.
const NAMED: [(&str, &str); 3] = [
    ("by-ssh", "git@gitlab.test:lab/leaf.git"),
    ("closed", "http://gitlab.test/lab/closed.git"),
    ("part", "http://gitlab.test/lab/part.git"),
];
const LEAF: &str = "http://gitlab.test/lab/leaf.git";

/// What is expected of a job; none of a job that is not among them.
pub(crate) fn of(job: &str) -> Option<Vec<Difference>> {
    let project = match job {
        "tag" => "tree",
        "long" => "long",
        _ if job.starts_with("tree:") => "tree",
        _ => return None,
    };
    let mut list = begin("debian:12");
    match job {
        "tree:bad-path" => {
            const WHY: &str = "GIT_SUBMODULE_PATHS: invalid submodule pathspec";
            list.truncate(2);
            list.extend(ended_by_settings(
                &format!("{WHY} [\":(exclude)\" \"part\"]"),
                &format!("{WHY} \":(exclude)\""),
            ));
            return Some(list);
        }
        "tree:closed" => {
            list.extend(closed());
            return Some(list);
        }
        _ => list.push(first_tree(project)),
    }
    match job {
        "tree:normal" | "tree:excluded" | "tree:remote" => list.extend(one("part", NAMED[2].1)),
        "tree:ssh" => list.extend(one("by-ssh", LEAF)),
        "tree:recursive" => list.extend(nested()),
        "tree:large" => list.push(objects("1/1", 22)),
        "tree:large-parts" => {
            let [first, ..] = one("part", NAMED[2].1);
            list.push(first);
            list.push(difference(SUBMODULES, &strs(&again(&["part"])), &[]));
            let mut told = vec![entering("part")];
            told.extend(registered());
            told.push(cloning("part"));
            list.push(difference(SUBMODULES, &strs(&told), &[]));
            list.push(objects("2/2", 42));
        }
        "tree:no-checkout" => list.extend(no_checkout()),
        _ => {}
    }
    Some(list)
}

fn strs(lines: &[String]) -> Vec<&str> {
    lines.iter().map(String::as_str).collect()
}

fn objects(count: &str, bytes: u64) -> Difference {
    let line = format!("01O Downloading LFS objects: 100% ({count}), {bytes} B");
    difference(LFS, &[], &[&line])
}

fn synchronizing(path: &str) -> String {
    format!("01O Synchronizing submodule url for '{path}'")
}

fn entering(path: &str) -> String {
    format!("01O Entering '{path}'")
}

fn cloning(path: &str) -> String {
    format!("01E Cloning into '/builds/<token>/0/lab/tree/{path}'...")
}

fn is_registered(stream: &str, name: &str, url: &str, path: &str) -> String {
    format!("{stream} Submodule '{name}' ({url}) registered for path '{path}'")
}

/// All of the project's, whichever are wanted.
fn registered() -> Vec<String> {
    let line = |(name, url): &(&str, &str)| is_registered("01E", name, url, name);
    NAMED.iter().map(line).collect()
}

/// What is done once all are there.
fn again(paths: &[&str]) -> Vec<String> {
    let of_all = |line: fn(&str) -> String| paths.iter().map(|path| line(path)).collect::<Vec<_>>();
    let configuring = "01O ^[32;1mConfiguring submodules to use parent git credentials...^[0;m";
    let mut lines = of_all(synchronizing);
    lines.extend(of_all(entering));
    lines.push(configuring.to_owned());
    lines.extend(of_all(entering));
    lines
}

/// One submodule.
fn one(path: &str, url: &str) -> [Difference; 2] {
    let ours = is_registered("01O", path, url, path);
    let mut told = again(&[path]);
    told.extend(registered());
    told.push(cloning(path));
    [
        difference(SUBMODULES, &[&synchronizing(path)], &[&ours]),
        difference(SUBMODULES, &strs(&told), &[]),
    ]
}

/// One with one of its own.
fn nested() -> [Difference; 3] {
    let [first, _] = one("part", NAMED[2].1);
    let leaf = |stream| is_registered(stream, "leaf", LEAF, "part/leaf");
    let mut told = again(&["part", "part/leaf"]);
    told.extend(registered());
    told.extend([cloning("part"), leaf("01E"), cloning("part/leaf")]);
    [
        first,
        difference(SUBMODULES, &[], &[&leaf("01O")]),
        difference(SUBMODULES, &strs(&told), &[]),
    ]
}

/// One that the job's token does not read.
fn closed() -> [Difference; 2] {
    const URL: &str = "http://gitlab.test/lab/closed.git";
    let notice = |text: &str| format!("01O ^[32;1m{text}^[0;m");
    let mut told = vec![
        "01O Initialized empty Git repository in /builds/<token>/0/lab/tree/.git/".to_owned(),
        notice("Created fresh repository."),
        notice("Checking out <commit> as detached HEAD (ref is main)..."),
        notice("Updating/initializing submodules with git depth set to 20..."),
        synchronizing("closed"),
        "01O ^[0;33mUpdating submodules failed. Retrying...^[0;m".to_owned(),
        synchronizing("closed"),
    ];
    told.extend(registered());
    for _ in 0..2 {
        for end in [". Retry scheduled", " a second time, aborting"] {
            let failed = format!(
                "01E fatal: clone of '{URL}' into submodule path \
                 '/builds/<token>/0/lab/tree/closed' failed"
            );
            told.extend([
                cloning("closed"),
                format!("01E fatal: repository '{URL}/' not found"),
                failed,
                format!("01E Failed to clone 'closed'{end}"),
            ]);
        }
    }
    let ours = format!(
        "{FAILED}submodule \"closed\": git cannot fetch the repository: fatal: repository '{URL}/' \
         not found (from {URL})^[0;m"
    );
    let last = format!("{FAILED}exit status 1^[0;m");
    [
        difference(SOURCES, &strs(&told), &[]),
        difference(SOURCES, &[&last], &[&ours]),
    ]
}

/// Paths of submodules where nothing is checked out.
fn no_checkout() -> [Difference; 3] {
    [
        difference(
            SUBMODULES,
            &["01E error: pathspec 'part' did not match any file(s) known to git"],
            &[
                "01O ^[32;1mUpdated submodules^[0;m",
                "01O ^[32;1mPulling LFS files...^[0;m",
            ],
        ),
        difference(
            SUBMODULES,
            &[],
            &[
                "00O+section_start:<time>:step_script^M^[0K",
                "00O+^[0K^[36;1mExecuting \"step_script\" stage of the job script^[0;m^[0;m",
                "01O ^[32;1m$ find . -path ./.git -prune -o -type f -print | LC_ALL=C sort^[0;m",
                "00O section_end:<time>:step_script^M^[0K",
            ],
        ),
        difference(
            SUBMODULES,
            &[&format!("{FAILED}exit status 1^[0;m")],
            &["00O ^[32;1mJob succeeded^[0;m"],
        ),
    ]
}
