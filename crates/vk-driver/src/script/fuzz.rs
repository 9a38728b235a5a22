//! Hostile variables, seen by what real shells make of them: a thousand at a time.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use vk_fuzz::{Plan, inputs_of};

use super::compose::is_exportable;
use super::quote::{ansi_c, single};
use super::tests::{run, script};
use super::{Shell, Wrapped};

/// How many variables one shell gets.
const BATCH: usize = 1000;

/// Judges `few` batches, or as many as have the inputs that are asked for.
fn batches<S: Strategy>(few: u64, strategy: &S, judge: impl Fn(S::Value) -> TestCaseResult) {
    let each = BATCH as u64;
    inputs_of(Plan::asked(few * each), each, strategy, judge);
}

/// What ends a word, begins another, or runs something where it is not quoted as it should be.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let word = prop::sample::select(vec![
        "$(touch canary)",
        "`touch canary`",
        "';touch canary;'",
        "\";touch canary;\"",
        "\ntouch canary\n",
        "'$(touch canary)'",
        "\\$(touch canary)",
        ";touch canary #",
        "\ntouch canary #",
        "|touch canary",
        "&&touch canary",
        ")touch canary",
        "$HOME",
        "${IFS}",
        "${x:=y}",
        "$((1+1))",
        "'",
        "''",
        "\"",
        "\\",
        "\\\\",
        "\\'",
        "\\\"",
        "$'",
        "'\\''",
        "$\"",
        "\\x41",
        "\\101",
        "\\u0041",
        "\\c",
        "\\",
        "!",
        "!!",
        "#",
        " #",
        "*",
        "?",
        "[a]",
        "~",
        "~root",
        "{a,b}",
        "-n",
        "-e",
        "--",
        "=",
        "a=b",
        "export A=b",
        "EOF",
        "<<EOF\n",
        "\n",
        "\r",
        "\r\n",
        "\t",
        " ",
        "  ",
        "\u{1}",
        "\u{7f}",
        "\u{1b}[0K",
        "\u{7}",
        "é",
        "€",
        "🐤",
        "\u{85}",
        "\u{a0}",
        "\u{2028}",
        "\u{feff}",
        "%s",
        "%n",
        "a",
        "abc",
        "0",
    ]);
    prop_oneof![
        5 => word.prop_map(|word| word.as_bytes().to_vec()),
        1 => any::<char>().prop_map(|one| one.to_string().into_bytes()),
        1 => (1..128_u8).prop_map(|byte| vec![byte]),
    ]
}

fn text() -> impl Strategy<Value = String> {
    let pieces = prop::collection::vec(piece(), 0..7).prop_map(|pieces| pieces.concat());
    pieces.prop_map(|bytes| String::from_utf8(bytes).unwrap().replace('\0', ""))
}

/// Any bytes but NUL, which no environment holds.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let raw = prop::collection::vec(1..=255_u8, 0..12);
    let piece = prop_oneof![2 => piece(), 1 => raw];
    let pieces = prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat());
    pieces.prop_map(|mut bytes| {
        bytes.retain(|byte| *byte != 0);
        bytes
    })
}

/// Names: of any kind, and those that mean something to a shell.
fn name() -> impl Strategy<Value = String> {
    let special = prop::sample::select(vec![
        "IFS",
        "ENV",
        "BASH_ENV",
        "PS1",
        "PS2",
        "PS4",
        "CDPATH",
        "HOME",
        "MAIL",
        "TERM",
        "GLOBIGNORE",
        "PROMPT_COMMAND",
        "POSIXLY_CORRECT",
        "SHELL",
        "INPUTRC",
        "TMPDIR",
        "HISTFILE",
        "EXECIGNORE",
        "BASH_XTRACEFD",
        "FIGNORE",
        "TIMEFORMAT",
        "OPTARG",
        "x",
        "line",
    ]);
    prop_oneof![
        60 => "[A-Za-z_][A-Za-z0-9_]{3,9}",
        1 => special.prop_map(str::to_owned),
    ]
}

/// The environment that a script's last command tells.
fn told(output: &[u8], shown: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let head = format!("\x1b[32;1m$ {shown}\x1b[0;m\n");
    let rest = output.strip_prefix(head.as_bytes()).unwrap_or(output);
    let pairs = rest.split(|byte| *byte == 0).filter_map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        Some((pair[..equals].to_vec(), pair[equals + 1..].to_vec()))
    });
    pairs.collect()
}

/// What each shell has without being told, or keeps for itself.
const OWN: [&str; 6] = ["PATH", "PWD", "OLDPWD", "SHLVL", "_", "GITLAB_ENV"];

fn differs(
    told: &BTreeMap<Vec<u8>, Vec<u8>>,
    expected: &BTreeMap<Vec<u8>, Vec<u8>>,
) -> Option<String> {
    let shown =
        |bytes: Option<&Vec<u8>>| bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let wrong = expected
        .iter()
        .find(|(name, value)| told.get(*name) != Some(*value));
    let more = told.keys().find(|name| {
        !expected.contains_key(*name) && !OWN.iter().any(|own| own.as_bytes() == name.as_slice())
    });
    let name = wrong.map(|(name, _)| name).or(more)?;
    Some(format!(
        "{:?}: {:?} came as {:?}",
        String::from_utf8_lossy(name),
        shown(expected.get(name)),
        shown(told.get(name))
    ))
}

fn check(
    shell: Shell,
    variables: &[(String, String, bool)],
    dir: &Path,
) -> Result<(), TestCaseError> {
    let mut expected = BTreeMap::new();
    let temp = dir.join("p.tmp");
    let mut listed: Vec<(&str, &str, bool)> = Vec::new();
    for (name, value, file) in variables {
        if OWN.contains(&name.as_str()) || listed.iter().any(|(known, ..)| known == name) {
            continue;
        }
        listed.push((name, value, *file));
        let seen = match file {
            true => temp.join(name).to_str().unwrap().to_owned(),
            false => value.clone(),
        };
        if *file || is_exportable(name, value) {
            expected.insert(name.clone().into_bytes(), seen.into_bytes());
        }
    }
    let shown = "/usr/bin/env -0";
    let text = script(shell, dir, listed.clone(), &[shown]);
    let output = run(shell, &text);
    let said = String::from_utf8_lossy(&output.stderr);
    prop_assert!(output.status.success(), "{:?}: {}", output.status, said);
    prop_assert_eq!(
        differs(&told(&output.stdout, shown), &expected),
        None,
        "{}",
        said
    );
    for (name, value, _) in listed.iter().filter(|(_, _, file)| *file) {
        let content = fs::read(temp.join(name)).unwrap();
        prop_assert_eq!(&content, value.as_bytes(), "the file of {}", name);
    }
    prop_assert!(
        !dir.join("p/canary").exists() && !Path::new("canary").exists(),
        "something ran"
    );
    Ok(())
}

/// STAGE-13: what the script itself reads into is a variable of the job's, too.
#[test]
fn a_variable_of_any_name_that_a_script_uses_arrives() {
    let named = |name: &str| (name.to_owned(), format!("the job's {name}"), false);
    let variables = ["line", "line_", "read", "x"].map(named);
    for shell in [Shell::Bash, Shell::Sh] {
        let dir = tempfile::tempdir().unwrap();
        check(shell, &variables, dir.path()).unwrap();
    }
}

/// STAGE-13, STAGE-35
#[test]
fn hostile_variables_arrive_as_they_are_and_run_nothing() {
    let variable = (name(), text(), prop::bool::weighted(0.02));
    let variables = prop::collection::vec(variable, BATCH);
    let long = prop::option::weighted(0.2, (131_000_usize..131_100, piece()));
    batches(2, &(variables, long), |(mut variables, long)| {
        if let Some((len, piece)) = long {
            let value = String::from_utf8_lossy(&piece)
                .replace('\0', "")
                .repeat(len);
            let end = value.floor_char_boundary(len);
            variables.push(("LONG".to_owned(), value[..end].to_owned(), false));
        }
        for shell in [Shell::Bash, Shell::Sh] {
            let dir = tempfile::tempdir().unwrap();
            check(shell, &variables, dir.path())?;
        }
        Ok(())
    });
}

/// STAGE-13
#[test]
fn words_of_any_bytes_arrive_as_they_are_and_run_nothing() {
    let values = prop::collection::vec(bytes(), BATCH);
    batches(2, &values, |values| {
        for shell in [Shell::Bash, Shell::Sh] {
            let (mut body, mut expected) = (Vec::new(), BTreeMap::new());
            for (nth, value) in values.iter().enumerate() {
                let word = match shell {
                    Shell::Bash => ansi_c(value),
                    Shell::Sh => single(value),
                };
                let name = format!("V{nth}");
                body.extend([b"export ", name.as_bytes(), b"=", &word, b"\n"].concat());
                expected.insert(name.into_bytes(), value.clone());
            }
            let dir = tempfile::tempdir().unwrap();
            let place = dir.path().to_str().unwrap().to_owned();
            body.extend(format!("cd {place}\n/usr/bin/env -0\n").into_bytes());
            let xtrace = false;
            let wrapped = Wrapped {
                shell,
                xtrace,
                body,
            };
            let output = run(shell, &wrapped.text());
            let said = String::from_utf8_lossy(&output.stderr);
            prop_assert!(output.status.success(), "{}", said);
            prop_assert_eq!(differs(&told(&output.stdout, "-"), &expected), None);
            prop_assert!(!Path::new("canary").exists() && !dir.path().join("canary").exists());
        }
        Ok(())
    });
}
