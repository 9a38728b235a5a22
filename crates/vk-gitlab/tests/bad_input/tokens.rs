//! What cannot be a runner's token.

use crate::desk::{Desk, TOKEN};

const REMEDY: &str = "write a runner's token there, glrt-…: GitLab shows it once when a runner is \
                      created, and when its token is reset";

/// What stands in the token's place, and what is said of it before the remedy.
fn rows() -> Vec<(Vec<u8>, String)> {
    let text = |text: &str, said: &str| (text.as_bytes().to_vec(), said.to_owned());
    vec![
        text("", "the token is empty"),
        text(" \n\n", "the token is empty"),
        text("glrt-abc def\n", "a blank is the token's character 9"),
        text("glrt-abc\tdef", "a blank is the token's character 9"),
        text("glrt-abc\u{a0}def", "a blank is the token's character 9"),
        text(
            "glrt-abcdefghijkl\nglrt-mnopqrstuvwx\n",
            "the token has more than one line",
        ),
        text("glrt-abc\rdefghijkl", "the token has more than one line"),
        text(
            "glrt-abc\0def",
            "a control character is the token's character 9",
        ),
        text(
            "glrt-abc\u{1b}[0m",
            "a control character is the token's character 9",
        ),
        text(
            "glrt-abcdefgh\u{fc}",
            "a letter outside ASCII is the token's character 14",
        ),
        text(
            "\u{feff}glrt-abcdefghijkl",
            "a byte order mark stands before the token",
        ),
        text("\"glrt-abcdefghijkl\"", "the token stands in quotes"),
        text("'glrt-abcdefghijkl'", "the token stands in quotes"),
        text("glrt-", "the token is cut off behind its prefix"),
        text("glrtr-\n", "the token is cut off behind its prefix"),
        text(
            &format!("glrt-{}", "x".repeat(508)),
            "the token is longer than 512 characters",
        ),
        text("GR1348941abcdefghijkl", "this is a registration token"),
        text("glptt-abcdefghijkl", "this is a pipeline trigger token"),
        text(
            "glpat-abcdefghijkl",
            "this is a personal, project or group access token",
        ),
        text("glcbt-64_abcdefghijkl", "this is a job's token"),
        text("gldt-abcdefghijkl", "this is a deploy token"),
        text(
            "glagent-abcdefghijkl",
            "this is a token of the agent for Kubernetes",
        ),
        text("ghp_abcdefghijkl", "this is a token of GitHub's"),
    ]
}

/// CFG-14, CRED-01
#[test]
fn every_text_that_is_no_runners_token_is_refused_in_a_file() {
    let desk = Desk::new();
    desk.configure_runner("name = \"ci\"\ntoken_file = \"ci.token\"");
    let (config, file) = (desk.shown("config.toml"), desk.shown("ci.token"));
    for (content, said) in rows() {
        desk.file("ci.token", &content, 0o600);
        let told = format!("{config}:6: runners[0].token_file: {file}: {said}: {REMEDY}");
        desk.refuses(&["run"], &told);
    }
    for bad in [
        b"glrt-\xff\xfeabcdefgh".to_vec(),
        b"\xff\xfeg\0l\0r\0t\0".to_vec(),
    ] {
        desk.file("ci.token", bad, 0o600);
        let told = format!(
            "{config}:6: runners[0].token_file: {file}: the token is not UTF-8: write the file again"
        );
        desk.refuses(&["verify"], &told);
    }
}

/// CFG-14, CRED-01
#[test]
fn every_text_that_is_no_runners_token_is_refused_in_the_configuration() {
    let desk = Desk::new();
    let config = desk.shown("config.toml");
    for (content, said) in rows() {
        let Ok(text) = String::from_utf8(content) else {
            continue;
        };
        // What a file has around its token is no fault, and here it is.
        if text != text.trim() || text.is_empty() {
            continue;
        }
        let escaped: String = text
            .chars()
            .map(|one| match one {
                one if one.is_ascii_alphanumeric() => one.to_string(),
                one => format!("\\U{:08x}", u32::from(one)),
            })
            .collect();
        desk.configure_runner(&format!("token = \"{escaped}\""));
        let told = format!("{config}:5: runners[0].token: {said}: {REMEDY}");
        desk.refuses(&["config", "check"], &told);
    }
}

/// CFG-14
#[test]
fn blanks_and_line_ends_around_a_token_in_a_file_are_no_fault() {
    let desk = Desk::new();
    desk.configure_runner("token_file = \"ci.token\"");
    for good in [
        format!("{TOKEN}\n"),
        format!(" {TOKEN}\r\n\n"),
        TOKEN.to_owned(),
    ] {
        desk.file("ci.token", good, 0o600);
        let said = desk.run(&["config", "check"]);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    }
}
