//! What differs, job by job of those whose transfers GitLab refuses.

use crate::differences::{
    ARTIFACTS, Difference, EXIT, PLATFORM, begin, difference, download, sent,
};
use crate::example::FAILED;

/// The first job's number, and what the jobs are about, in their order.
const FIRST: u64 = 74;
const MADE: [&str; 5] = ["missing", "forbidden", "again", "attempts", "unwell"];
const SENT: [&str; 6] = [
    "too-large",
    "forbidden",
    "again",
    "unavailable",
    "given-up",
    "first-of-two",
];
/// What gitlab-runner's client says of each of its own repetitions.
const WAITING: &str = "01E Waiting before making the next call               ^[0;m  *";
/// The server's name in ours.
const SERVER: &str = "http://gitlab.test";

/// What is expected of a job; none of a job that is not among them.
pub(crate) fn of(job: &str) -> Option<Vec<Difference>> {
    let (kind, about) = job.split_once(':')?;
    let number = |list: &[&str]| list.iter().position(|one| *one == about).map(|n| n as u64);
    let mut list = begin("debian:12");
    // There is no repository.
    list.pop();
    match kind {
        "made" => list.extend(sent("archive", FIRST + number(&MADE)?)),
        "upload" => list.extend(upload(about, FIRST + 5 + number(&SENT)?)),
        "download" => list.extend(taken(about, FIRST + number(&MADE)?)),
        _ => return None,
    }
    Some(list)
}

fn fatal(text: &str) -> String {
    format!("01E ^[31;1mFATAL: {text:<43}^[0;m ")
}

/// The last line: of a program's exit there, of what happened here.
fn last(why: &str) -> Difference {
    let line = |why: &str| format!("{FAILED}{why}^[0;m");
    difference(EXIT, &[&line("exit status 1")], &[&line(why)])
}

fn strs(lines: &[String]) -> Vec<&str> {
    lines.iter().map(String::as_str).collect()
}

fn upload(about: &str, job: u64) -> Vec<Difference> {
    let begin = difference(ARTIFACTS, &[PLATFORM], &[]);
    let stock = |colour: &str, level: &str, kind: &str, status: &str, more: &str| {
        let status_text = format!("POST {SERVER}/api/v4/jobs/{job}/artifacts: {more}");
        let code = status;
        format!(
            "01E {colour}{level}: Uploading artifacts as \"{kind}\" to coordinator... \
             {status_text}^[0;m  {colour}correlation_id^[0;m=* {colour}id^[0;m={job} \
             {colour}status^[0;m={code} {colour}token^[0;m=*"
        )
    };
    let ours = |colour: &str, level: &str, kind: &str, status: &str, more: &str| {
        format!(
            "01E {colour}{level}: Uploading artifacts as \"{kind}\" to coordinator... \
             {more}^[0;m  {colour}id^[0;m={job} {colour}status^[0;m={status}"
        )
    };
    let (red, yellow) = ("^[31;1m", "^[0;33m");
    let again = "01E ^[0;33mWARNING: Retrying...                              ^[0;m ";
    match about {
        "too-large" => {
            let words = "413 Request Entity Too Large";
            let why = "artifacts too large: GitLab takes none of this size (413)";
            let theirs = [
                stock(red, "ERROR", "junit", "413", words),
                fatal("too large"),
            ];
            let own = [ours(red, "ERROR", "junit", "413", words), fatal(why)];
            let told = difference(ARTIFACTS, &strs(&theirs), &strs(&own));
            vec![begin, told, last(why)]
        }
        "forbidden" | "first-of-two" => {
            let made = "403 made by a fault";
            let why = format!("artifacts were not uploaded to {SERVER}: {made}");
            let words = format!("403 Forbidden ({made})");
            let theirs = [
                stock(red, "ERROR", "archive", "403", &words),
                fatal("permission denied"),
            ];
            let own = [ours(red, "ERROR", "archive", "403", made), fatal(&why)];
            let told = difference(ARTIFACTS, &strs(&theirs), &strs(&own));
            vec![begin, told, last(&why)]
        }
        "given-up" => {
            let made = "500 made by a fault";
            let why = format!("artifacts were not uploaded to {SERVER}: {made}");
            let words = format!("500 Internal Server Error ({made})");
            let failed = stock(yellow, "WARNING", "archive", "500", &words);
            let retrying = "01E ^[0;33mWARNING: Retrying...                              ^[0;m  *";
            let mut theirs = Vec::new();
            for n in 0..3 {
                theirs.extend([WAITING; 4].map(str::to_owned));
                theirs.push(failed.clone());
                theirs.extend((n < 2).then(|| retrying.to_owned()));
            }
            theirs.push(fatal("upload failed with no response from coordinator"));
            let own_failed = ours(yellow, "WARNING", "archive", "500", made);
            let own = [
                own_failed.clone(),
                again.to_owned(),
                own_failed.clone(),
                again.to_owned(),
                own_failed,
                fatal(&why),
            ];
            let told = difference(ARTIFACTS, &strs(&theirs), &strs(&own));
            vec![begin, told, last(&why)]
        }
        once => {
            let status = if once == "again" { "500" } else { "503" };
            let made = format!("{status} made by a fault");
            let own = [
                ours(yellow, "WARNING", "archive", status, &made),
                again.to_owned(),
            ];
            let mut list = vec![begin, difference(ARTIFACTS, &[WAITING], &strs(&own))];
            list.extend(sent("archive", job).pop());
            list
        }
    }
}

fn taken(about: &str, from: u64) -> Vec<Difference> {
    let line = |colour: &str, level: &str, how: &str, fields: &str| {
        let message = format!("{level}Downloading artifacts from coordinator... {how}");
        format!("01E {colour}{message:<50}^[0;m  {fields}")
    };
    let fields = |colour: &str, stock: bool, status: &str| {
        let field = |name: &str, value: &str| format!("{colour}{name}^[0;m={value}");
        let id = field("id", &from.to_string());
        let status = field("status", status);
        match stock {
            true => format!(
                "{} {id} {status} {}",
                field("correlation_id", "*"),
                field("token", "*")
            ),
            false => format!("{id} {status}"),
        }
    };
    let (red, yellow) = ("^[31;1m", "^[0;33m");
    let why = |words: &str| {
        format!("the artifacts of made:{about} ({from}) were not had from {SERVER}: {words}")
    };
    let refused = |how: &str, stock_status: &str, status: &str, end: &str, words: &str| {
        let theirs = [
            PLATFORM.to_owned(),
            line(red, "ERROR: ", how, &fields(red, true, stock_status)),
            fatal(end),
        ];
        let own = [
            line(red, "ERROR: ", how, &fields(red, false, status)),
            fatal(&why(words)),
        ];
        difference(ARTIFACTS, &strs(&theirs), &strs(&own))
    };
    let retrying = "01E ^[0;33mWARNING: Retrying...                              ^[0;m ";
    let failed = |stock: bool, status: &str| {
        line(
            yellow,
            "WARNING: ",
            "failed",
            &fields(yellow, stock, status),
        )
    };
    match about {
        "missing" | "attempts" => {
            let words = "404 Not Found";
            let told = refused("not found", "404", "404", "file does not exist", words);
            match about {
                "missing" => vec![told, last(&why(words))],
                _ => vec![told, download(from)],
            }
        }
        "forbidden" => {
            let words = "403 Forbidden";
            let theirs = format!(
                "GET {SERVER}/api/v4/jobs/{from}/artifacts: 403 Forbidden (403 made by a fault)"
            );
            let told = refused("forbidden", &theirs, words, "permission denied", words);
            vec![told, last(&why(words))]
        }
        "again" => {
            let theirs = [
                PLATFORM.to_owned(),
                failed(true, "500"),
                format!("{retrying} *"),
                line(
                    "",
                    "",
                    "ok     ",
                    &format!(
                        "correlation_id^[0;m=* host^[0;m=gitlab.test id^[0;m={from} status^[0;m=200 token^[0;m=*"
                    ),
                ),
            ];
            let own = [
                failed(false, "500 Internal Server Error"),
                retrying.to_owned(),
                line(
                    "",
                    "",
                    "ok     ",
                    &format!("id^[0;m={from} status^[0;m=200"),
                ),
            ];
            vec![difference(ARTIFACTS, &strs(&theirs), &strs(&own))]
        }
        _ => {
            let words = "502 Bad Gateway";
            let mut theirs = vec![PLATFORM.to_owned()];
            for n in 0..3 {
                if n > 0 {
                    theirs.extend([WAITING; 4].map(str::to_owned));
                }
                let told = line(yellow, "WARNING: ", "failed", "*status^[0;m=502*");
                theirs.push(told);
                theirs.push(if n < 2 {
                    format!("{retrying} *")
                } else {
                    fatal("invalid argument")
                });
            }
            let own = [
                failed(false, words),
                retrying.to_owned(),
                failed(false, words),
                retrying.to_owned(),
                failed(false, words),
                fatal(&why(words)),
            ];
            let told = difference(ARTIFACTS, &strs(&theirs), &strs(&own));
            vec![told, last(&why(words))]
        }
    }
}
