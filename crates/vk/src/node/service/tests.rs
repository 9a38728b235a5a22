//! The unit, and what is supposed where nothing says.

use super::*;

#[test]
fn the_unit_has_its_user_and_program_and_lets_jobs_outlive_it() {
    let state = Path::new("/srv/ci/vk");
    let made = unit(Path::new("/opt/vk/bin/vk"), "ci", 90, state).unwrap();
    for line in [
        "ExecStart=/opt/vk/bin/vk node run",
        "User=ci",
        "RequiresMountsFor=/srv/ci/vk",
        "TimeoutStopSec=90",
        "KillMode=process",
        "RestartPreventExitStatus=75 78",
    ] {
        assert!(made.lines().any(|one| one == line), "{line}: {made}");
    }
    assert_eq!(made.lines().count(), UNIT.lines().count());
}

#[test]
fn a_units_user_and_its_home_are_found() {
    let made = unit(Path::new("/opt/vk"), "ci", 30, Path::new(STATE_DIR)).unwrap();
    assert_eq!(user_of(&made), Some("ci"));
    assert_eq!(user_of("[Service]\nUser=\n"), None);
    let passwd = "root:x:0:0:root:/root:/bin/sh\nci:x:7:7::/srv/ci:/bin/false\nodd:x:8:8::x:\n";
    assert_eq!(home_in(passwd, "ci"), Some(PathBuf::from("/srv/ci")));
    for none in ["c", "odd", ""] {
        assert_eq!(home_in(passwd, none), None, "{none}");
    }
}

#[test]
fn a_configuration_that_protect_home_hides_is_none_of_the_services() {
    assert!(UNIT.contains("\nProtectHome=yes\n"));
    let of_host = PathBuf::from("/etc/vk/config.toml");
    for hidden in ["/home/ci", "/root", "/run/user/7"] {
        let found = configurations(Some(Path::new(hidden)));
        assert_eq!(found, std::slice::from_ref(&of_host), "{hidden}");
    }
    assert_eq!(configurations(None), std::slice::from_ref(&of_host));
    let of_user = PathBuf::from("/homes/ci/.config/vk/config.toml");
    assert_eq!(
        configurations(Some(Path::new("/homes/ci"))),
        [of_user, of_host]
    );
}

#[test]
fn jobs_are_looked_for_wherever_the_state_may_be() {
    let dir = tempfile::tempdir().unwrap();
    let unit = dir.path().join(NAME);
    fs::write(&unit, "[Service]\nUser=vk-nobody-has-it\n").unwrap();
    let mut uninstall = Uninstall {
        force: false,
        config: None,
        state_dir: None,
        place: Systemd {
            unit_dir: dir.path().to_owned(),
        },
    };
    // Whatever this host's own configuration says.
    let found = uninstall.state_dirs(&unit).unwrap();
    assert!(found.contains(&PathBuf::from("/var/lib/vk")), "{found:?}");
    uninstall.state_dir = Some(dir.path().to_owned());
    assert_eq!(uninstall.state_dirs(&unit).unwrap(), [dir.path()]);
}

#[test]
fn what_would_make_another_unit_is_refused() {
    let of = |path: &str, user: &str| unit(Path::new(path), user, 30, Path::new(STATE_DIR));
    assert!(of("/opt/v k", "vk").is_err());
    assert!(of("/home/ci/bin/vk", "vk").is_err());
    assert!(of("/opt/vk", "vk\nExecStartPre=/bin/x").is_err());
    assert!(of("/opt/vk", "").is_err());
    let root = of("/opt/vk", "root").unwrap_err().to_string();
    assert!(root.contains("never runs as root"), "{root}");
}

#[test]
fn the_unit_waits_for_the_state_directory_of_the_first_configuration_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let files = ["gone", "first", "second"].map(|name| dir.path().join(name));
    assert_eq!(state_dir_among(&files).unwrap(), Path::new("/var/lib/vk"));
    let write = |at: usize, text: &str| fs::write(&files[at], text).unwrap();
    write(2, "state_dir = \"/srv/second\"\n");
    assert_eq!(state_dir_among(&files).unwrap(), Path::new("/srv/second"));
    write(1, "state_dir = \"/srv/first\"\n");
    assert_eq!(state_dir_among(&files).unwrap(), Path::new("/srv/first"));
    write(1, "state_dir = \"/home/vk/state\"\n");
    let hidden = state_dir_among(&files).unwrap_err().to_string();
    assert!(hidden.contains("hidden from services"), "{hidden}");
    write(1, "state_dirr = \"/srv/first\"\n");
    let senseless = format!("{:#}", state_dir_among(&files).unwrap_err());
    assert!(senseless.contains("mend it first"), "{senseless}");
    assert!(senseless.contains("state_dirr"), "{senseless}");
}

#[test]
fn a_unit_is_printed_where_nothing_is_configured_yet_and_says_what_it_supposes() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    let install = Install {
        user: "vk-nobody-has-it".to_owned(),
        no_start: false,
        stop_timeout: 30,
        print: true,
        place: Systemd {
            unit_dir: dir.path().to_owned(),
        },
    };
    let print = |program: &str| {
        let files = std::slice::from_ref(&file);
        install.printed(Path::new(program), files).unwrap()
    };
    let in_it = |printed: &str, words: &[&str]| {
        for word in words {
            assert!(printed.contains(word), "{word}: {printed}");
        }
    };
    let nothing = print("/home/ci/vk/target/debug/vk");
    in_it(
        &nothing,
        &[
            "# - its state is in /var/lib/vk: no configuration is here yet\n",
            "# - the program is /usr/bin/vk, since this one cannot be: /home/ci/vk/target",
            "# - it runs as vk-nobody-has-it; there is no user vk-nobody-has-it: make it with",
            "\nExecStart=/usr/bin/vk node run\n",
            "\nRequiresMountsFor=/var/lib/vk\n",
            "\nUser=vk-nobody-has-it\n",
        ],
    );
    fs::write(&file, "state_dir = 3\n").unwrap();
    let senseless = print("/opt/bin/vk");
    in_it(
        &senseless,
        &[
            "# - its state is in /var/lib/vk, since: the unit's service will read this",
            "# - the program is /opt/bin/vk, this one\n",
            "\nExecStart=/opt/bin/vk node run\n",
        ],
    );
    // The comment is one, whatever a cause says over several lines.
    let of_unit = |printed: &str| printed.lines().count() - 4;
    assert_eq!(of_unit(&senseless), UNIT.lines().count());
    assert!(!senseless.contains("\n\n# -"));
    fs::write(&file, "state_dir = \"/srv/ci\"\n").unwrap();
    let configured = print("/opt/bin/vk");
    in_it(&configured, &["\nRequiresMountsFor=/srv/ci\n"]);
    in_it(&configured, &["# - its state is in /srv/ci, by "]);
}

#[test]
fn a_state_directory_of_any_name_stays_one_path_in_the_unit() {
    for (path, expected) in [
        ("/srv/vk", "/srv/vk"),
        ("/srv/a b", r#""/srv/a b""#),
        ("/srv/100%", r#""/srv/100%%""#),
        (r#"/srv/a"b\c'd"#, r#""/srv/a\"b\\c'd""#),
    ] {
        assert_eq!(quoted(Path::new(path)).unwrap(), expected);
    }
    assert!(quoted(Path::new("/srv/a\nExecStartPre=/bin/x")).is_err());
}
