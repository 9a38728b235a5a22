//! Traces as lines without what is another at each run, and where two of them differ.

use std::fmt;

/// Lines between two that are the same in both traces.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hunk {
    pub(crate) stock: Vec<String>,
    pub(crate) ours: Vec<String>,
}

impl fmt::Display for Hunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.stock {
            writeln!(f, "- {line}")?;
        }
        for line in &self.ours {
            writeln!(f, "+ {line}")?;
        }
        Ok(())
    }
}

/// What the begin of a trace without stamps says.
const UNSTAMPED: &str = "FF_TIMESTAMPS:false";

/// A trace's lines: each without its time, which must be there; with names in place of a section's
/// time, of GitLab's host and of the runner's short token; with escapes that can be read; a script's stdout before its
/// stderr.
pub(crate) fn lines(trace: &str) -> Vec<String> {
    assert!(trace.ends_with('\n'), "the last line has no end");
    let token = short_token(trace);
    let unstamped = trace.contains(UNSTAMPED);
    let plain = |line: &str| {
        let after = after_time(line);
        assert_eq!(after.is_none(), unstamped, "stamp: {line:?}");
        let rest = server(&commit(&section(after.unwrap_or(line))))
            .replace("\x1b[", "^[")
            .replace('\r', "^M");
        match &token {
            Some(token) => rest.replace(token, "<token>"),
            None => rest,
        }
    };
    let all = trace.trim_end_matches('\n').split('\n');
    let all: Vec<_> = all.map(plain).collect();
    stdout_first(&all)
}

/// Of a job with `CI_DEBUG_TRACE`: what the shell says of its own commands in `script` and
/// `after_script`, without the variables, which are those of a run and of a runner.
pub(crate) fn commands(lines: &[String]) -> Vec<String> {
    let is_begin =
        |line: &str| line.ends_with(":step_script^M^[0K") || line.ends_with(":after_script^M^[0K");
    let mut inside = false;
    let mut kept = Vec::new();
    for line in lines {
        if line.contains("section_start:") || line.contains("section_end:") {
            inside = line.contains("section_start:") && is_begin(line);
        }
        let said = line.strip_prefix("01E ").unwrap_or("+");
        let depth = said.chars().take_while(|c| *c == '+').count();
        let words = said.get(depth..).unwrap_or_default().trim_start();
        let (first, _) = words.split_once([' ', '=']).unwrap_or((words, ""));
        let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let is_variable = first == "export" || words.contains('=') && first.chars().all(is_name);
        if inside && depth > 0 && !(depth == 2 && is_variable) && !said.starts_with("+ eval ") {
            kept.push(line.replace("/builds/<token>/0/", "/builds/"));
        }
    }
    kept
}

/// A script's stdout and stderr keep their order each; between the two, pipes give none. So in each
/// stretch of a script's lines those of stdout come first.
fn stdout_first(lines: &[String]) -> Vec<String> {
    let is_script = |line: &String| line.starts_with("01");
    let stretches = lines.chunk_by(|a, b| is_script(a) == is_script(b));
    let sorted = stretches.map(|stretch| {
        let mut stretch = stretch.to_vec();
        if stretch.first().is_some_and(is_script) {
            stretch.sort_by_key(|line| line.starts_with("01E"));
        }
        stretch
    });
    sorted.flatten().collect()
}

/// What follows `2026-01-02T03:04:05.000000Z `: the stream, its kind and the flag, then the text.
fn after_time(line: &str) -> Option<&str> {
    let form = "dddd-dd-ddTdd:dd:dd.ddddddZ ";
    let (time, rest) = line.split_at_checked(form.len())?;
    let fits = |(form, c): (char, char)| match form {
        'd' => c.is_ascii_digit(),
        other => c == other,
    };
    if !form.chars().zip(time.chars()).all(fits) {
        return None;
    }
    let mut header = rest.chars();
    let hex = |c: char| matches!(c, '0'..='9' | 'a'..='f');
    let is_header = header.next().is_some_and(hex)
        && header.next().is_some_and(hex)
        && matches!(header.next(), Some('O' | 'E'))
        && matches!(header.next(), Some(' ' | '+'));
    is_header.then_some(rest)
}

/// A section's marker without its time.
fn section(rest: &str) -> String {
    let mut plain = rest.to_owned();
    for marker in ["section_start:", "section_end:"] {
        // Where lines have no stamps, an end and a begin stand in one.
        if let Some((before, after)) = plain.split_once(marker) {
            let digits = after.trim_start_matches(|c: char| c.is_ascii_digit());
            plain = format!("{before}{marker}<time>{digits}");
        }
    }
    plain
}

/// The address of the stand-in is that of the recorded jobs, and so is its name for SSH.
fn server(rest: &str) -> String {
    let mut plain = rest.replace("git@127.0.0.1:", "git@gitlab.test:");
    while let Some((before, after)) = plain.split_once("http://127.0.0.1:") {
        let digits = after.trim_start_matches(|c: char| c.is_ascii_digit());
        plain = format!("{before}http://gitlab.test{digits}");
    }
    plain
}

/// A line that names the commit, without its number: the example's own changes with its files.
fn commit(rest: &str) -> String {
    match rest.split_once("Checking out ") {
        Some((before, after)) if after.contains(" as detached HEAD ") => {
            let digits = after.trim_start_matches(|c: char| c.is_ascii_hexdigit());
            format!("{before}Checking out <commit>{digits}")
        }
        _ => rest.to_owned(),
    }
}

/// A line of the begin is `on <name> <short token>`, and may go on after a comma.
fn short_token(trace: &str) -> Option<String> {
    let mut begin = trace.lines().take(5);
    let (_, line) = begin.find_map(|line| line.split_once("\x1b[0K  on "))?;
    let line = line.split(['\x1b', ',']).next()?;
    line.split(' ').nth(1).map(str::to_owned)
}

/// Where two traces differ, by their longest common subsequence.
pub(crate) fn differences(stock: &[String], ours: &[String]) -> Vec<Hunk> {
    // The length of what is common to what follows each pair of places.
    let mut common = vec![vec![0_u32; ours.len() + 1]; stock.len() + 1];
    for i in (0..stock.len()).rev() {
        for j in (0..ours.len()).rev() {
            common[i][j] = if stock[i] == ours[j] {
                common[i + 1][j + 1] + 1
            } else {
                common[i + 1][j].max(common[i][j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut hunks: Vec<Hunk> = Vec::new();
    let mut open = false;
    while i < stock.len() || j < ours.len() {
        if i < stock.len() && j < ours.len() && stock[i] == ours[j] {
            (i, j, open) = (i + 1, j + 1, false);
            continue;
        }
        if !open {
            hunks.push(Hunk {
                stock: Vec::new(),
                ours: Vec::new(),
            });
            open = true;
        }
        let hunk = hunks.last_mut().unwrap();
        if j == ours.len() || (i < stock.len() && common[i + 1][j] >= common[i][j + 1]) {
            hunk.stock.push(stock[i].clone());
            i += 1;
        } else {
            hunk.ours.push(ours[j].clone());
            j += 1;
        }
    }
    hunks
}
