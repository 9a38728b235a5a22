//! The hub's manual page has what the program and its manual have.

use std::path::Path;
use std::process::Command;

use crate::fleet::test_root;
use crate::program::run;

const PAGE: &str = include_str!("../../../../packaging/vk-hub.1");
const MANUAL: &str = include_str!("../../../../docs/vk-hub.md");

/// The page's words, without how they look.
fn page() -> String {
    let marks = [
        ("\\fB", ""),
        ("\\fI", ""),
        ("\\fR", ""),
        ("\\-", "-"),
        ("\\e", "\\"),
    ];
    let text = PAGE.to_owned();
    marks
        .iter()
        .fold(text, |text, (mark, is)| text.replace(mark, is))
}

/// Every command of a program by its helps, with its options.
fn commands(program: &Path, words: &[String], all: &mut Vec<(String, Vec<String>)>) {
    let help = run(Command::new(program).args(words).arg("--help"));
    let section = |name: &'static str| {
        let lines = help.lines().skip_while(move |line| *line != name).skip(1);
        lines.take_while(|line| line.starts_with(' ') || line.is_empty())
    };
    let options = section("Options:").filter_map(|line| {
        let word = line
            .split_whitespace()
            .take(2)
            .find(|word| word.starts_with("--"))?;
        Some(word.to_owned())
    });
    let options: Vec<String> = options.collect();
    let below = section("Commands:").filter_map(|line| {
        let name = line.strip_prefix("  ")?;
        let name = name.split(' ').next().filter(|name| !name.is_empty())?;
        (name != "help").then(|| name.to_owned())
    });
    let below: Vec<String> = below.collect();
    for one in &below {
        commands(program, &[words, std::slice::from_ref(one)].concat(), all);
    }
    all.push((words.join(" "), options));
}

#[test]
fn the_hubs_manual_page_has_every_command_and_option() {
    let Some(root) = test_root("the hub's manual page") else {
        return;
    };
    let mut all = Vec::new();
    commands(&root.join("bin/vk-hub"), &[], &mut all);
    let page = page();
    assert!(all.len() > 20, "{all:?}");
    for (command, options) in all {
        // One that is nothing without another.
        let alone = format!("vk-hub {command}");
        assert!(page.contains(alone.trim_end()), "{command}");
        for option in options {
            let common = ["--help", "--version"].contains(&option.as_str());
            assert!(common || page.contains(&option), "{command} {option}");
        }
    }
}

#[test]
fn the_hubs_manual_page_has_every_key() {
    let (_, part) = MANUAL.split_once("\n## hub.toml\n").unwrap();
    let part = part.split("\n## ").next().unwrap();
    let rows = part.lines().filter_map(|line| line.strip_prefix("| `"));
    let page = page();
    let mut keys = 0;
    for row in rows {
        let cell = row.split(" | ").next().unwrap().replace('`', "");
        assert!(page.contains(&cell), "{cell} is not in packaging/vk-hub.1");
        keys += 1;
    }
    assert!(keys >= 10, "{keys}");
}
