//! File selection by gitlab-runner's own table.

use vk_guest_proto::*;

use crate::archives::{names, note, project, tar_out, write};
use crate::host::{Heard, Host};

/// Patterns, excludes, what is taken of [`FILES`], and what each exclude is said to have kept out. In
/// all of them `W` stands for the project's directory, `B` for its last name.
struct Row {
    paths: &'static str,
    excludes: &'static [&'static str],
    taken: &'static [&'static str],
    excluded: &'static [(&'static str, u64)],
}

const fn row(
    paths: &'static str,
    excludes: &'static [&'static str],
    taken: &'static [&'static str],
    excluded: &'static [(&'static str, u64)],
) -> Row {
    Row {
        paths,
        excludes,
        taken,
        excluded,
    }
}

const FILES: &[&str] = &[
    "root.txt",
    "file.thing",
    "file2.thing",
    "foo/file.bin",
    "foo/file.txt",
    "foo/file2.txt",
    "foo/file.thing",
    "foo/bar/file.bin",
    "foo/bar/file2.bin",
    "foo/bar/file.txt",
    "foo/bar/baz/file.bin",
    "foo/bar/baz/file.txt",
    "foo/bar/baz2/even-this.txt.md",
    "foo/bar/baz2/file.txt",
    "bar/foo/test.txt",
];

const ROWS: &[Row] = &[
    row(
        "foo/**/*.txt",
        &["foo/**/file2.txt"],
        &[
            "foo/bar/baz/file.txt",
            "foo/bar/baz2/file.txt",
            "foo/bar/file.txt",
            "foo/file.txt",
        ],
        &[("foo/**/file2.txt", 1)],
    ),
    row(
        "foo//*.txt",
        &["foo//*2.txt"],
        &["foo/file.txt"],
        &[("foo//*2.txt", 1)],
    ),
    row(
        "W/*.thing",
        &["W/*2.thing"],
        &["file.thing"],
        &[("W/*2.thing", 1)],
    ),
    row(
        "W/foo/bar/*.bin",
        &["W/foo/bar/*2.bin"],
        &["foo/bar/file.bin"],
        &[("W/foo/bar/*2.bin", 1)],
    ),
    row(
        "./foo/**//*/*.*",
        &["**/*.bin"],
        &[
            "foo/bar/baz/file.txt",
            "foo/bar/baz2/even-this.txt.md",
            "foo/bar/baz2/file.txt",
            "foo/bar/file.txt",
        ],
        &[("**/*.bin", 3)],
    ),
    row(
        "foo/**/*.*",
        &["**/*.bin", "**/*even-this*"],
        &[
            "foo/bar/baz/file.txt",
            "foo/bar/baz2/file.txt",
            "foo/bar/file.txt",
            "foo/file.thing",
            "foo/file.txt",
            "foo/file2.txt",
        ],
        &[("**/*.bin", 4), ("**/*even-this*", 1)],
    ),
    row(
        "foo/**",
        &[],
        &[
            "foo/",
            "foo/bar/",
            "foo/bar/baz/",
            "foo/bar/baz/file.bin",
            "foo/bar/baz/file.txt",
            "foo/bar/baz2/",
            "foo/bar/baz2/even-this.txt.md",
            "foo/bar/baz2/file.txt",
            "foo/bar/file.bin",
            "foo/bar/file.txt",
            "foo/bar/file2.bin",
            "foo/file.bin",
            "foo/file.thing",
            "foo/file.txt",
            "foo/file2.txt",
        ],
        &[],
    ),
    row(
        "../B/foo/*.txt",
        &["../B/foo/*2.txt"],
        &["foo/file.txt"],
        &[("../B/foo/*2.txt", 1)],
    ),
];

fn excluded(heard: &Heard) -> Vec<(String, u64)> {
    let notes = heard.notes.iter();
    let mut all: Vec<_> = notes
        .filter(|note| note.code == NoteCode::Excluded)
        .map(|note| (String::from_utf8(note.subject.clone()).unwrap(), note.count))
        .collect();
    all.sort();
    all
}

fn out(host: &mut Host, tar: TarOut) -> Heard {
    host.run(&Request::TarOut { tar }, b"")
}

/// GUEST-01, GUEST-09
#[test]
fn each_row_of_gitlab_runners_table_takes_and_excludes_the_same() {
    let mut host = Host::start();
    let root = project(&host, FILES);
    let real = |text: &str| {
        text.replace("B/", "p/")
            .replace('W', root.to_str().unwrap())
    };
    for of in ROWS {
        let excludes: Vec<_> = of.excludes.iter().map(|one| real(one)).collect();
        let excludes: Vec<_> = excludes.iter().map(String::as_str).collect();
        let heard = out(&mut host, tar_out(&root, &[&real(of.paths)], &excludes));
        assert_eq!(names(&heard.content), *of.taken, "{}", of.paths);
        let told = of.excluded.iter().map(|(one, count)| (real(one), *count));
        assert_eq!(excluded(&heard), told.collect::<Vec<_>>(), "{}", of.paths);
    }
    let heard = out(&mut host, tar_out(&root, &["**"], &["**"]));
    assert_eq!(names(&heard.content), [""; 0]);
    assert!(
        note(&heard, NoteCode::NoMatch).is_some(),
        "{:?}",
        heard.notes
    );
}

/// GUEST-09
#[test]
fn excludes_below_a_directory_are_counted_each_by_itself() {
    let mut host = Host::start();
    let root = project(&host, &[]);
    for name in ["1.txt", "1.md", "2.txt", "2.md", "3.txt"] {
        write(&root.join("foo/test/bar/baz").join(name), b"x");
    }
    let excludes = ["foo/test/bar/baz/3.txt", "foo/**/*.md"];
    let heard = out(&mut host, tar_out(&root, &["foo/test/"], &excludes));
    let expected = [
        "foo/test/",
        "foo/test/bar/",
        "foo/test/bar/baz/",
        "foo/test/bar/baz/1.txt",
        "foo/test/bar/baz/2.txt",
    ];
    assert_eq!(names(&heard.content), expected);
    let told = [("foo/**/*.md", 2), ("foo/test/bar/baz/3.txt", 1)];
    let told = told.map(|(one, count)| (one.to_owned(), count));
    assert_eq!(excluded(&heard), told);
    // An absolute path that is not the project's excludes nothing, and is said.
    let path = "foo/test/bar/baz/1.txt";
    let outside = "/foo/test/bar/baz/1.txt";
    let heard = out(&mut host, tar_out(&root, &[path], &[outside]));
    assert_eq!(names(&heard.content), [path]);
    assert_eq!(
        note(&heard, NoteCode::ExcludeOutside),
        Some((outside.to_owned(), 0))
    );
}
