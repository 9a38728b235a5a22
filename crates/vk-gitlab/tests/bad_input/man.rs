//! The manual page says what the manual says, and what the program takes.

use crate::desk::{COMMANDS, Desk};

const MAN: &str = include_str!("../../../../packaging/vk-gitlab.1");
const MANUAL: &str = include_str!("../../../../docs/vk-gitlab.md");
/// What of the manual the page has.
const SECTIONS: [&str; 5] = [
    "Commands",
    "Stopping, restarting, reloading",
    "Tokens",
    "config.toml",
    "Files",
];

/// The page's words, without how they look.
fn page() -> String {
    let marks = [
        ("\\fB", ""),
        ("\\fI", ""),
        ("\\fR", ""),
        ("\\&", ""),
        ("\\-", "-"),
        ("\\(en", "–"),
        ("\\e", "\\"),
    ];
    let text = MAN.to_owned();
    marks
        .iter()
        .fold(text, |text, (mark, is)| text.replace(mark, is))
}

/// The cells of a table's row, or the line as it is.
fn words(line: &str) -> Vec<String> {
    let plain = |text: &str| text.trim().replace('`', "").replace('…', "...");
    match line
        .strip_prefix("| ")
        .and_then(|row| row.strip_suffix(" |"))
    {
        None => vec![plain(line)],
        Some(row) => row.split(" | ").map(plain).collect(),
    }
}

#[test]
fn the_manual_page_has_every_sentence_and_every_row_of_the_manuals_sections() {
    let page = page();
    let parts: Vec<&str> = MANUAL.split("\n## ").collect();
    for name in SECTIONS {
        let part = parts.iter().find(|part| part.lines().next() == Some(name));
        let lines: Vec<&str> = part.unwrap().lines().skip(1).collect();
        let rule = |line: Option<&&str>| line.is_some_and(|line| line.starts_with("|---"));
        for (at, line) in lines.iter().enumerate() {
            let head = rule(lines.get(at + 1));
            if head || rule(Some(line)) || line.starts_with("```") {
                continue;
            }
            for words in words(line) {
                let is_there = words == "–" || page.contains(&words);
                assert!(
                    is_there,
                    "{name}: {words:?} is not in packaging/vk-gitlab.1"
                );
            }
        }
    }
}

#[test]
fn the_manual_page_has_every_command_and_option() {
    let page = page();
    let desk = Desk::new();
    desk.configure("");
    for command in COMMANDS {
        let words = command
            .iter()
            .take_while(|word| word.starts_with(char::is_alphabetic));
        let words: Vec<&str> = words.copied().filter(|word| !word.contains(':')).collect();
        assert!(page.contains(&words.join(" ")), "{words:?}");
        let said = desk.run(&[&words[..], &["--help"]].concat());
        let help = said.out.split_whitespace();
        let options = help.filter_map(|word| word.strip_prefix("--"));
        for option in options {
            let name: String = option
                .chars()
                .take_while(|one| one.is_ascii_alphanumeric() || *one == '-')
                .collect();
            let common = ["help", "version", ""].contains(&name.as_str());
            assert!(common || page.contains(&format!("--{name}")), "--{name}");
        }
        assert!(said.out.contains("--"), "{said:?}");
    }
}
