//! What attacks.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::objects::Store;
use super::random::Random;

/// Something in a tree.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    File {
        name: Vec<u8>,
        content: Vec<u8>,
        runs: bool,
    },
    Link {
        name: Vec<u8>,
        target: Vec<u8>,
    },
    Directory {
        name: Vec<u8>,
        entries: Vec<Entry>,
    },
    /// Whatever it says.
    Raw {
        mode: &'static str,
        name: Vec<u8>,
        object: String,
    },
}

impl Entry {
    pub(super) fn name(&self) -> &OsStr {
        let (Entry::File { name, .. }
        | Entry::Link { name, .. }
        | Entry::Directory { name, .. }
        | Entry::Raw { name, .. }) = self;
        OsStr::from_bytes(name)
    }

    fn file(name: &[u8], content: impl Into<Vec<u8>>) -> Entry {
        Entry::File {
            name: name.to_vec(),
            content: content.into(),
            runs: true,
        }
    }

    fn link(name: &[u8], target: &str) -> Entry {
        Entry::Link {
            name: name.to_vec(),
            target: target.as_bytes().to_vec(),
        }
    }

    fn directory(name: &[u8], entries: Vec<Entry>) -> Entry {
        let name = name.to_vec();
        Entry::Directory { name, entries }
    }
}

/// Names that mean something to a shell, to git, to another system or to whoever prints them.
const NAMES: [&str; 40] = [
    "-rf",
    "--upload-pack=touch canary",
    "$(touch canary)",
    "`touch canary`",
    ";touch canary",
    " ",
    "\n",
    "a\nb",
    "\t",
    "\r",
    "con",
    "aux.c",
    "nul",
    "x:y",
    "a\\b",
    "..a",
    "...",
    "a..",
    "~",
    "~root",
    "*",
    "?",
    "[a]",
    "\u{202e}gpj",
    "\u{1b}[2J",
    ":(exclude)a",
    ":!a",
    ":/",
    "HEAD",
    "config",
    "objects",
    "refs",
    "hooks",
    "index",
    "post-checkout",
    ".lfsconfig",
    "#a#",
    "%s%n",
    "\"",
    "'",
];

const TARGETS: [&str; 14] = [
    "..",
    "../..",
    "../witness",
    "../witness/file",
    "../../witness",
    "/etc/passwd",
    "/proc/self/mem",
    ".",
    "nowhere",
    ".git",
    ".git/config",
    ".git/hooks/post-checkout",
    "/dev/zero",
    "self",
];

fn name(random: &mut Random) -> Vec<u8> {
    let mut name = match random.below(6) {
        0 => random.bytes(12),
        1 => vec![b'n'; 200 + random.index(50)],
        2 | 3 => random.of(&NAMES).as_bytes().to_vec(),
        _ => format!("f{}", random.below(1 << 40)).into_bytes(),
    };
    if random.below(3) == 0 {
        name.extend(random.bytes(3));
    }
    name.retain(|byte| !matches!(byte, 0 | b'/'));
    name.truncate(250);
    name
}

/// Names that git keeps for itself are no sly repository's.
fn is_sly(name: &[u8]) -> bool {
    let lower = name.to_ascii_lowercase();
    !lower.is_empty()
        && !matches!(name, b"." | b"..")
        && !lower.windows(3).any(|part| part == b"git")
        // What a file system of Apple's leaves out of a name: U+200C and the like.
        && !name.windows(2).any(|part| matches!(part, b"\xe2\x80" | b"\xe2\x81" | b"\xef\xbb"))
}

fn content(random: &mut Random, canary: &Path) -> Vec<u8> {
    let touch = format!("touch {}", canary.display());
    match random.below(8) {
        0 => Vec::new(),
        1 => random.bytes(300),
        2 => vec![b'x'; 70_000],
        3 => format!("#!/bin/sh\n{touch}\n").into_bytes(),
        4 => format!("[core]\n\tfsmonitor = {touch}\n\thooksPath = hooks\n").into_bytes(),
        5 => format!(
            "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 9\n",
            "0".repeat(64)
        )
        .into_bytes(),
        6 => b"a\r\nb\n$Id$\n".to_vec(),
        _ => format!("{}\n", random.below(300)).into_bytes(),
    }
}

/// So many entries that git takes as they are.
pub(super) fn sly(random: &mut Random, count: u64, canary: &Path) -> Vec<Entry> {
    fn fill(
        random: &mut Random,
        left: &mut u64,
        most: u64,
        depth: u32,
        canary: &Path,
    ) -> Vec<Entry> {
        let (mut entries, mut names) = (Vec::new(), HashSet::new());
        let end = left.saturating_sub(most);
        while *left > end {
            *left -= 1;
            let name = name(random);
            if !is_sly(&name) || !names.insert(name.clone()) {
                continue;
            }
            entries.push(match random.below(12) {
                0 if depth < 4 => {
                    let most = random.below(60);
                    let entries = fill(random, left, most, depth + 1, canary);
                    // Git keeps no empty ones.
                    match entries.is_empty() {
                        true => Entry::link(&name, "."),
                        false => Entry::directory(&name, entries),
                    }
                }
                1..4 => Entry::link(&name, random.of::<&str>(&TARGETS)),
                _ => Entry::File {
                    name,
                    content: content(random, canary),
                    runs: random.below(2) == 0,
                },
            });
        }
        entries
    }
    let mut left = count;
    fill(random, &mut left, count, 0, canary)
}

/// A repository with one attack in it, and which.
pub(super) fn bold(
    random: &mut Random,
    store: &Store,
    canary: &Path,
    bare: &Path,
) -> (String, String) {
    let touch = format!("touch {}", canary.display());
    let mut entries = sly(random, 12, canary);
    let attack = random.below(13);
    let told = match attack {
        0 => git_folder(random, &mut entries, &touch),
        1 => through_a_link(random, &mut entries),
        2 | 3 => modules(random, &mut entries, &touch, store),
        4 => attributes(random, &mut entries, &touch),
        5 => raw(random, &mut entries, store),
        6 => return bent_tree(random, store, &entries),
        7 => return bent_commit(random, store, &entries),
        8 => return bent_file(random, store, &entries),
        9 => return odd_refs(random, store, &entries, bare),
        10 => return far_too_large(random, store, &entries),
        11 => deep(random, &mut entries, store),
        _ => bare_inside(random, &mut entries, &touch),
    };
    (store.commit(&entries), told)
}

/// A `.git` of the repository's own, by one of its names.
fn git_folder(random: &mut Random, entries: &mut Vec<Entry>, touch: &str) -> String {
    let spelled = [
        ".git",
        ".GIT",
        ".Git",
        "git~1",
        "GIT~1",
        ".git.",
        ".git ",
        ".git...",
        ".git::$INDEX_ALLOCATION",
        ".g\u{200c}it",
        "\u{feff}.git",
        ".git\\config",
        "a\\..\\.git",
        "..git",
        ".git\u{1}",
    ];
    let name = random.of(&spelled);
    let hook = format!("#!/bin/sh\n{touch}\n");
    let config = format!("[core]\n\tfsmonitor = {touch}\n\tsshCommand = {touch}\n");
    let hooks = [
        "post-checkout",
        "reference-transaction",
        "post-index-change",
    ];
    let hooks = hooks
        .iter()
        .map(|one| Entry::file(one.as_bytes(), hook.as_str()))
        .collect();
    entries.push(match random.below(3) {
        0 => Entry::file(name.as_bytes(), "gitdir: ../witness\n"),
        1 => Entry::link(name.as_bytes(), "../witness"),
        _ => Entry::directory(
            name.as_bytes(),
            vec![
                Entry::file(b"config", config),
                Entry::directory(b"hooks", hooks),
            ],
        ),
    });
    format!("a folder {name:?}")
}

/// A link and a directory of one name: what is below the one is written through the other.
fn through_a_link(random: &mut Random, entries: &mut Vec<Entry>) -> String {
    let (link, other) = *random.of(&[
        ("d", "d"),
        ("D", "d"),
        ("d", "D"),
        ("é", "e\u{301}"),
        ("d ", "d"),
    ]);
    let target = *random.of(&["../witness", "../../witness", ".git", ".git/hooks", "/tmp"]);
    let below = vec![
        Entry::file(b"file", "touched"),
        Entry::file(b"post-checkout", "#!/bin/sh\nexit\n"),
    ];
    entries.push(Entry::link(link.as_bytes(), target));
    entries.push(Entry::directory(other.as_bytes(), below));
    format!("{link:?} -> {target}, and a directory {other:?}")
}

/// Submodules that lead, or run, somewhere.
fn modules(random: &mut Random, entries: &mut Vec<Entry>, touch: &str, store: &Store) -> String {
    let names = [
        "a",
        "../../witness",
        "..",
        "x/../../hooks",
        "-a",
        "a\u{1}",
        ".git",
        "hooks",
        "A",
        "",
    ];
    let urls = [
        format!("ext::sh -c {touch}"),
        format!("--upload-pack={touch}"),
        format!("-u{touch}"),
        "file:///etc".to_owned(),
        "/etc".to_owned(),
        "../../../../../../witness".to_owned(),
        "./p.git".to_owned(),
        "ssh://-oProxyCommand=x/p".to_owned(),
        "http://127.0.0.1:1/p.git".to_owned(),
        "http://[::1/p.git\n".to_owned(),
        String::new(),
    ];
    let paths = [
        "m",
        "../m",
        ".git",
        ".git/hooks",
        "-m",
        "d/m",
        "m\n",
        "/m",
        ".",
        "M",
    ];
    let (name, url, path) = (random.of(&names), random.of(&urls), random.of(&paths));
    let update = *random.of(&["checkout", "none", "!touch", "rebase"]);
    let update = update.replace("touch", touch);
    let quoted = |text: &str| {
        text.replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n")
    };
    let mut text = format!(
        "[submodule \"{}\"]\n\tpath = \"{}\"\n\turl = \"{}\"\n\tupdate = \"{}\"\n\tbranch = -x\n",
        name.replace('"', ""),
        quoted(path),
        quoted(url),
        quoted(&update),
    );
    match random.below(5) {
        0 => text.push_str("[include]\n\tpath = /etc/passwd\n"),
        1 => text.push_str(&format!(
            "[core]\n\tfsmonitor = {touch}\n[alias]\n\tx = !{touch}\n"
        )),
        2 => text = text.repeat(3),
        3 => text.truncate(random.index(text.len())),
        _ => {}
    }
    if random.below(6) == 0 {
        entries.push(Entry::link(b".gitmodules", "../witness/file"));
    } else {
        entries.push(Entry::file(b".gitmodules", text.as_str()));
    }
    let object = match random.below(2) {
        0 => store.commit(&[]),
        _ => "1".repeat(40),
    };
    let place = *random.of(&["m", "-m", "M", "d", ".git"]);
    if random.below(4) == 0 {
        entries.push(Entry::link(place.as_bytes(), "../witness"));
    }
    let name = place.as_bytes().to_vec();
    let mode = "160000";
    entries.push(Entry::Raw { mode, name, object });
    format!("submodule at {place:?}: {text:?}")
}

fn attributes(random: &mut Random, entries: &mut Vec<Entry>, touch: &str) -> String {
    let lines = [
        "* filter=evil diff=evil merge=evil\n".to_owned(),
        "* filter=lfs diff=lfs merge=lfs -text\n".to_owned(),
        "* text eol=crlf working-tree-encoding=UTF-16\n".to_owned(),
        "* working-tree-encoding=no-such-thing\n".to_owned(),
        "* ident export-subst\n".to_owned(),
        format!("[attr]evil filter={touch}\n* evil\n"),
        "a".repeat(100_000),
        format!("* {}\n", "x ".repeat(20_000)),
        "\"unfinished\n\0\u{1}".to_owned(),
    ];
    let line = random.of(&lines).clone();
    match random.below(4) {
        0 => entries.push(Entry::link(b".gitattributes", "../witness/file")),
        1 => entries.push(Entry::directory(
            b".gitattributes",
            vec![Entry::file(b"a", "a")],
        )),
        _ => entries.push(Entry::file(b".gitattributes", line.as_str())),
    }
    format!("attributes {:?}", line.chars().take(60).collect::<String>())
}

/// Entries that no git would write.
fn raw(random: &mut Random, entries: &mut Vec<Entry>, store: &Store) -> String {
    let modes = [
        "100664",
        "0100644",
        "000000",
        "777777",
        "100000",
        "120777",
        "040000",
        "40755",
        "160755",
        "060000",
        "",
        "1",
        "99999999999999999999",
        "10064x",
    ];
    let names = [
        "a",
        "..",
        ".",
        "",
        "a/b",
        "../witness/file",
        "/etc/x",
        ".git/config",
        ".git",
    ];
    let blob = store.put("blob", b"touched");
    let tree = store.tree(&[Entry::file(b"file", "touched")]);
    let objects = [
        blob,
        tree,
        "0".repeat(40),
        "f".repeat(40),
        store.commit(&[]),
    ];
    let (mode, name) = (*random.of(&modes), random.of(&names).as_bytes().to_vec());
    let object = random.of(&objects).clone();
    let told = format!("{mode} {:?} {object}", String::from_utf8_lossy(&name));
    entries.push(Entry::Raw { mode, name, object });
    told
}

fn bend(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.below(4) {
        let at = random.index(bytes.len().max(1));
        match random.below(4) {
            0 => bytes.truncate(at),
            1 => bytes.splice(at..at, random.bytes(6)).for_each(drop),
            _ => {
                let to = u8::try_from(random.below(256)).unwrap();
                bytes.get_mut(at).into_iter().for_each(|byte| *byte = to);
            }
        }
    }
}

fn bent_tree(random: &mut Random, store: &Store, entries: &[Entry]) -> (String, String) {
    let mut content: Vec<u8> = entries.iter().flat_map(|one| store.line(one).1).collect();
    bend(random, &mut content);
    let tree = store.put("tree", &content);
    (store.commit_of(&tree), "a bent tree".to_owned())
}

fn bent_commit(random: &mut Random, store: &Store, entries: &[Entry]) -> (String, String) {
    let tree = store.tree(entries);
    let who = *random.of(&[
        "A <a@example.com> 1700000000 +0000",
        "$(touch canary) <-x> 99999999999999999999 +9999",
        "\u{1b}[2J <\n",
        "",
    ]);
    let mut text = format!(
        "tree {tree}\nparent {}\nauthor {who}\ncommitter {who}\ngpgsig x\n\n{}",
        random.of(&["0".repeat(40), "1".repeat(40), tree.clone()]),
        "m".repeat(random.index(9000)),
    )
    .into_bytes();
    bend(random, &mut text);
    (store.put("commit", &text), "a bent commit".to_owned())
}

/// An object whose file is broken.
fn bent_file(random: &mut Random, store: &Store, entries: &[Entry]) -> (String, String) {
    let content = format!("{:?}", random.bytes(400));
    let blob = store.put("blob", content.as_bytes());
    let mut entries = entries.to_vec();
    entries.push(Entry::file(b"broken", content.as_str()));
    let commit = store.commit(&entries);
    let mut bytes = fs::read(store.path(&blob)).unwrap();
    bend(random, &mut bytes);
    fs::write(store.path(&blob), bytes).unwrap();
    (commit, "a broken object".to_owned())
}

/// A commit or a directory that is small in a pack, and more than a git may have in memory.
fn far_too_large(random: &mut Random, store: &Store, entries: &[Entry]) -> (String, String) {
    let bytes = 2 * usize::try_from(super::super::GIT_MEMORY).unwrap();
    let tree = store.tree(entries);
    let commit = if random.below(2) == 0 {
        let who = "A <a@example.com> 1700000000 +0000";
        let mut text = format!("tree {tree}\nauthor {who}\ncommitter {who}\n\n").into_bytes();
        text.resize(bytes, b'm');
        store.put("commit", &text)
    } else {
        let blob = store.put("blob", b"");
        let (_, line) = store.line(&Entry::Raw {
            mode: "100644",
            name: vec![b'n'; 200],
            object: blob,
        });
        let tree = store.put("tree", &line.repeat(bytes / line.len()));
        store.commit_of(&tree)
    };
    (commit, "an object of far too many bytes".to_owned())
}

fn odd_refs(
    random: &mut Random,
    store: &Store,
    entries: &[Entry],
    bare: &Path,
) -> (String, String) {
    let commit = store.commit(entries);
    let names = [
        "refs/heads/-x",
        "refs/heads/$(touch canary)",
        "refs/heads/../../x",
        "refs/heads/a..b",
        "refs/heads/a.lock",
        "refs/heads/\u{202e}x",
        "refs/heads/x\u{7f}",
        "refs/heads/@{-1}",
        "refs/heads/a b",
        "refs/heads/HEAD",
        "refs/heads//x",
        "HEAD",
        "../x",
        "refs/heads/main/x",
    ];
    let mut text = "# pack-refs with: peeled fully-peeled sorted \n".to_owned();
    let mut told: Vec<&str> = (0..4).map(|_| *random.of(&names)).collect();
    told.sort_unstable();
    told.iter()
        .for_each(|name| text.push_str(&format!("{commit} {name}\n")));
    fs::write(bare.join("packed-refs"), text).unwrap();
    (commit, format!("refs {told:?}"))
}

fn deep(random: &mut Random, entries: &mut Vec<Entry>, store: &Store) -> String {
    let depth = 50 + random.index(3000);
    let mut inner = Entry::file(b"f", "x");
    // From within, tree by tree: none has another in it, which would have to be walked down.
    for _ in 0..depth {
        inner = Entry::Raw {
            mode: "40000",
            name: b"deeper".to_vec(),
            object: store.tree(&[inner]),
        };
    }
    entries.push(inner);
    format!("{depth} directories in each other")
}

/// A bare repository in the tree, whose configuration git would read if it went there.
fn bare_inside(random: &mut Random, entries: &mut Vec<Entry>, touch: &str) -> String {
    let config = format!(
        "[core]\n\tbare = {}\n\tworktree = ..\n\tfsmonitor = {touch}\n\thooksPath = hooks\n[alias]\n\tx = !{touch}\n",
        random.below(2) == 0
    );
    let hook = format!("#!/bin/sh\n{touch}\n");
    let inside = vec![
        Entry::file(b"HEAD", "ref: refs/heads/main\n"),
        Entry::file(b"config", config),
        Entry::directory(b"objects", vec![Entry::file(b"k", "")]),
        Entry::directory(b"refs", vec![Entry::file(b"k", "")]),
        Entry::directory(b"hooks", vec![Entry::file(b"post-checkout", hook)]),
    ];
    if random.below(2) == 0 {
        let names: Vec<_> = inside.iter().map(|one| one.name().to_owned()).collect();
        entries.retain(|one| !names.iter().any(|name| name == one.name()));
        entries.extend(inside);
    } else {
        entries.push(Entry::directory(b"bare.d", inside));
    }
    "a bare repository in the tree".to_owned()
}
