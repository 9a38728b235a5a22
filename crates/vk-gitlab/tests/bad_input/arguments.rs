//! Arguments that make no sense.

use crate::desk::{Desk, program};

#[test]
fn arguments_that_make_no_sense_end_with_2_and_a_log_filter_with_1() {
    let desk = Desk::new();
    desk.configure_runner("token_file = \"ci.token\"");
    let rows: [(&[&str], &str); 6] = [
        (&["rum"], "error: unrecognized subcommand 'rum'"),
        (&["run", "now"], "error: unexpected argument 'now' found"),
        (
            &["--log-format", "xml", "run"],
            "error: invalid value 'xml' for '--log-format <FORMAT>'",
        ),
        (
            &["join"],
            "error: the following required arguments were not provided:",
        ),
        (&["config"], "Usage: vk-gitlab config [OPTIONS] <COMMAND>"),
        (&["config", "chek"], "error: unrecognized subcommand 'chek'"),
    ];
    for (arguments, told) in rows {
        let said = desk.run(arguments);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(
            said.err.lines().any(|line| line.starts_with(told)),
            "{told}: {said:?}"
        );
    }
    let said = desk.run(&["--log-level", "vk_gitlab=loud", "run"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.first_line().contains("vk_gitlab=loud"), "{said:?}");
}

/// `vk-gitlab jobs | head`: whoever reads has enough, and that is no error.
#[test]
fn a_reader_who_has_enough_ends_a_list_without_an_error() {
    let desk = Desk::new();
    desk.configure_runner("name = \"ci\"\ntoken_file = \"ci.token\"");
    for arguments in [&["jobs"][..], &["jobs", "--json"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let out = std::process::Command::new(program())
            .arg("--config")
            .arg(desk.path("config.toml"))
            .args(arguments)
            .stdout(writer)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(
            out.status.success() && said.is_empty(),
            "{arguments:?}: {said}"
        );
    }
}
