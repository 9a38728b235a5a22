//! The manual page has every command and every option, in the program's own words.

use clap::{Arg, Command, CommandFactory as _};

use crate::Arguments;

const PAGE: &str = include_str!("../../../packaging/vk.1");
const BEGIN: &str = ".\\\" commands begin\n";
const END: &str = ".\\\" commands end\n";

#[test]
fn the_manual_page_has_every_command_and_option_in_the_programs_words() {
    let mut program = Arguments::command();
    program.build();
    let mut commands = String::new();
    describe(&program, "", &mut commands);
    assert!(commands.contains("\\fBvk node service install\\fR"));
    let (_, rest) = PAGE.split_once(BEGIN).unwrap();
    let (of_page, _) = rest.split_once(END).unwrap();
    assert!(
        of_page == commands,
        "between its marks, packaging/vk.1 should have:\n{BEGIN}{commands}{END}"
    );
}

#[test]
fn every_command_has_examples() {
    let mut waiting = vec![Arguments::command()];
    while let Some(command) = waiting.pop() {
        let shown = |one: &&Command| !one.is_hide_set() && one.get_name() != "help";
        let below: Vec<Command> = command.get_subcommands().filter(shown).cloned().collect();
        let examples = command.get_after_help().map(ToString::to_string);
        let has = examples.is_some_and(|text| text.starts_with("Examples:"));
        assert!(has || !below.is_empty(), "{}", command.get_name());
        waiting.extend(below);
    }
}

/// An option of builds for tests alone.
const FOR_TESTS: &str = "process_vmm";
/// The default that is another for each user.
const STATE_DIR: &str = "/var/lib/vk for root and its owner, else $HOME/.local/state/vk,";

/// All commands below one, each with its options.
fn describe(command: &Command, above: &str, out: &mut String) {
    let name = format!("{above}{}", command.get_name());
    let below: Vec<&Command> = command
        .get_subcommands()
        .filter(|one| !one.is_hide_set() && one.get_name() != "help")
        .collect();
    if below.is_empty() {
        describe_one(command, &name, out);
    }
    for one in below {
        describe(one, &format!("{name} "), out);
    }
}

fn describe_one(command: &Command, name: &str, out: &mut String) {
    let arguments = || {
        let shown = command.get_arguments();
        shown
            .filter(|one| !one.is_hide_set() && one.get_id() != "help" && one.get_id() != FOR_TESTS)
    };
    let words: Vec<String> = arguments()
        .filter(|one| one.is_positional())
        .map(|one| format!(" \\fI{}\\fR", escaped(&one.to_string())))
        .collect();
    out.push_str(&format!(
        ".SS \\fB{}\\fR{}\n",
        escaped(name),
        words.concat()
    ));
    let about = command.get_long_about().or_else(|| command.get_about());
    paragraphs(&about.unwrap().to_string(), out);
    for argument in arguments() {
        out.push_str(&format!(".TP\n{}\n", usage(argument)));
        let help = argument.get_long_help().or_else(|| argument.get_help());
        paragraphs(&help.map(ToString::to_string).unwrap_or_default(), out);
    }
    if let Some(examples) = command.get_after_help() {
        let examples = examples.to_string();
        out.push_str(&format!(".PP\n.nf\n{}\n.fi\n", escaped(&examples)));
    }
}

fn usage(argument: &Arg) -> String {
    let text = escaped(&argument.to_string());
    let values: Vec<String> = match argument.get_num_args() {
        Some(range) if range.takes_values() => argument.get_possible_values(),
        _ => Vec::new(),
    }
    .iter()
    .map(|value| escaped(value.get_name()))
    .collect();
    let values = match values.is_empty() {
        true => String::new(),
        false => format!(" ({})", values.join(", ")),
    };
    let defaults: Vec<String> = argument
        .get_default_values()
        .iter()
        .map(
            |value| match crate::image::default_state_dir().as_os_str() == *value {
                true => STATE_DIR.to_owned(),
                false => escaped(&value.to_string_lossy()),
            },
        )
        .collect();
    let takes = argument
        .get_num_args()
        .is_some_and(|range| range.takes_values());
    let default = match takes && !defaults.is_empty() {
        true => format!(", {} where not given", defaults.join(" ")),
        false => String::new(),
    };
    format!("\\fB{text}\\fR{values}{default}")
}

fn paragraphs(text: &str, out: &mut String) {
    let paragraphs: Vec<String> = text
        .split("\n\n")
        .map(|paragraph| escaped(&paragraph.split_whitespace().collect::<Vec<_>>().join(" ")))
        .filter(|paragraph| !paragraph.is_empty())
        .collect();
    out.push_str(&paragraphs.join("\n.sp\n"));
    if !paragraphs.is_empty() {
        out.push('\n');
    }
}

/// As the page's language has it: a line that began with a dot or a quote would be an order.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    let lines = text
        .lines()
        .map(|line| match line.starts_with(['.', '\'']) {
            true => format!("\\&{line}"),
            false => line.to_owned(),
        });
    lines.collect::<Vec<_>>().join("\n")
}
