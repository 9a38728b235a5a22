//! Scripts, as text and run by real shells.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::compose::is_exportable;
use super::{Known, Prologue, Shell, Wrapped, commands};

/// Runs a script as the guest's agent does: the shell reads it on stdin.
pub(super) fn run(shell: Shell, text: &[u8]) -> Output {
    run_with(shell, text, &[])
}

fn run_with(shell: Shell, text: &[u8], env: &[(String, String)]) -> Output {
    let program = match shell {
        Shell::Bash => "bash",
        Shell::Sh => "sh",
    };
    let mut child = Command::new(program)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .envs(env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let text = text.to_vec();
    let feed = std::thread::spawn(move || {
        // A script that ends early does not read the rest.
        let _ = stdin.write_all(&text);
    });
    let output = child.wait_with_output().unwrap();
    feed.join().unwrap();
    output
}

pub(super) fn script(
    shell: Shell,
    dir: &Path,
    variables: Vec<(&str, &str, bool)>,
    lines: &[&str],
) -> Vec<u8> {
    let project = dir.join("p");
    fs::create_dir_all(&project).unwrap();
    let project = project.to_str().unwrap().to_owned();
    let temp = format!("{project}.tmp");
    let prologue = Prologue {
        project_dir: &project,
        temp_dir: &temp,
        variables,
        image: &[],
        shell: Known::default(),
    };
    let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
    let mut body = prologue.text_in_project(shell, false);
    body.extend(commands(shell, &lines, None));
    Wrapped {
        shell,
        xtrace: false,
        body,
    }
    .text()
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// STAGE-13: what gitlab-runner 19.4.0 printed with `FF_SCRIPT_SECTIONS`, but for the times.
#[test]
fn a_command_of_several_lines_is_shown_whole_in_a_section_where_that_is_wanted() {
    let lines = [
        "echo one".to_owned(),
        "if true; then\n  printf '%s\\n' several\nfi".to_owned(),
    ];
    for shell in [Shell::Bash, Shell::Sh] {
        let text = Wrapped {
            shell,
            xtrace: false,
            body: commands(shell, &lines, Some("script_step")),
        }
        .text();
        let printed = printed(&run(shell, &text));
        let timeless: Vec<_> = printed
            .split(|c: char| c.is_ascii_digit())
            .filter(|part| !part.is_empty())
            .collect();
        let recorded = "\x1b[;m$ echo one\x1b[;m\none\n\
            section_start::section_script_step_[hide_duration=true,collapsed=true]\r\x1b[K\
            \x1b[;m$ if true; then\n  printf '%s\\n' several\nfi\x1b[;m\n\
            section_end::section_script_step_\r\x1b[K\nseveral\n";
        assert_eq!(timeless.concat(), recorded, "{shell:?}");
        assert!(printed.contains(":section_script_step_1[hide"), "{printed}");
    }
}

/// What a script left behind: its outputs, its code, the files below its directory with their bytes.
fn effect(shell: Shell, xtrace: bool, prepare: impl Fn(&Path)) -> impl PartialEq + std::fmt::Debug {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (project, temp) = (at("p"), at("p.tmp"));
    fs::create_dir(&project).unwrap();
    prepare(dir.path());
    let prologue = Prologue {
        project_dir: &project,
        temp_dir: &temp,
        variables: vec![("KEY", "s3cret\n", true), ("FOO", "a b", false)],
        image: &[],
        shell: Known::default(),
    };
    let lines = [
        "cat \"$KEY\"; echo \"$FOO $LATER\"; echo LATER=x >> \"$GITLAB_ENV\"".to_owned(),
        "set -o | grep -E 'errexit|pipefail|noclobber'; false | true; echo $?".to_owned(),
        "exit 7".to_owned(),
    ];
    let mut body = prologue.text_in_project(shell, xtrace);
    body.extend(commands(shell, &lines, None));
    let wrapped = Wrapped {
        shell,
        xtrace,
        body,
    };
    let output = run(shell, &wrapped.text());
    let files = ["p.tmp/KEY", "p.tmp/gitlab_runner_env"].map(|name| {
        let path = dir.path().join(name);
        let mode = fs::metadata(&path).map(|of| of.permissions().mode());
        (fs::read(&path).ok(), mode.ok())
    });
    let said = (!xtrace).then(|| String::from_utf8_lossy(&output.stderr).into_owned());
    assert_eq!(said.unwrap_or_default(), "");
    (printed(&output), output.status.code(), files)
}

/// What a script with these lines prints and leaves, run in the environment that it is given with and
/// without its knowing.
fn known_and_not(shell: Shell, known: Known, lines: &[&str]) -> [(String, Option<i32>, String); 2] {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (project, temp) = (at("p"), at("p.tmp"));
    let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
    [Known::default(), known].map(|known| {
        for at in [&project, &temp] {
            let _ = fs::remove_dir_all(at);
            fs::create_dir(at).unwrap();
        }
        let mut prologue = Prologue {
            project_dir: &project,
            temp_dir: &temp,
            variables: vec![
                ("CI_JOB_NAME", "a 'name'\n", false),
                ("CI_TWICE", "first", false),
                ("PS4", "> ", false),
                ("FILE", "content", true),
                ("CI_TWICE", "second", false),
                ("CI", "true", false),
                ("GITLAB_FEATURES", "", false),
            ],
            image: &[],
            shell: known,
        };
        let mut env: Vec<(String, String)> = Vec::new();
        if known.environment {
            env.push(("GITLAB_ENV".to_owned(), prologue.env_file()));
        }
        for (name, value, file) in &prologue.variables {
            let path = format!("{temp}/{name}");
            env.push((
                (*name).to_owned(),
                if *file { path } else { (*value).to_owned() },
            ));
        }
        if known.login_shell {
            env.push(("SHELL".to_owned(), login_shell()));
        }
        let mut body = prologue.text_in_project(shell, false);
        let text = String::from_utf8_lossy(&body).into_owned();
        prologue.variables.clear();
        body.extend(commands(shell, &lines, None));
        let wrapped = Wrapped {
            shell,
            xtrace: false,
            body,
        };
        let output = run_with(shell, &wrapped.text(), &env);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        (printed(&output), output.status.code(), text)
    })
}

/// The shell of whoever runs this, as the C library tells bash.
fn login_shell() -> String {
    let asked = run(Shell::Bash, b"echo \"$SHELL\"");
    printed(&asked).trim().to_owned()
}

/// STAGE-13, STAGE-35: what a shell has from its environment a script does not set again.
#[test]
fn what_a_script_knows_to_be_so_changes_nothing_of_its_effect() {
    let lines = [
        "env | grep -v -e ^_= -e ^SHLVL= | sort",
        "[ -f \"$GITLAB_ENV\" ] && cat \"$GITLAB_ENV\"",
    ];
    for shell in [Shell::Bash, Shell::Sh] {
        let known = Known {
            environment: true,
            first: true,
            login_shell: shell == Shell::Bash,
        };
        let mut all = lines.to_vec();
        if shell == Shell::Bash {
            all.push("declare -p SHELL CI CI_TWICE GITLAB_ENV PS4");
        }
        // Where an error says that it is.
        all.push("echo $LINENO; (nothing-of-this-name) 2>&1 || cat /nowhere/at/all 2>&1");
        let [plain, knowing] = known_and_not(shell, known, &all);
        assert_eq!((&plain.0, plain.1), (&knowing.0, knowing.1), "{shell:?}");
        assert!(plain.0.contains("CI_TWICE=second\n"), "{}", plain.0);
        let text = &knowing.2;
        let lines = |text: &str| text.matches('\n').count();
        assert_eq!(lines(&plain.2), lines(text), "{text}");
        assert!(
            !text.contains("CI_JOB_NAME") && !text.contains("export CI="),
            "{text}"
        );
        // A name of two values, and what means something to a shell, is set all the same.
        assert!(
            text.contains("export CI_TWICE=") && text.contains("export PS4="),
            "{text}"
        );
        assert!(!text.contains("while read"), "{text}");
    }
}

/// STAGE-13: the runner's own `GITLAB_ENV` counts, whatever variables of that name there are.
#[test]
fn a_variable_of_the_jobs_does_not_take_the_place_of_the_runners() {
    let prologue = Prologue {
        project_dir: "/p",
        temp_dir: "/p.tmp",
        variables: vec![("GITLAB_ENV", "/a", false), ("GITLAB_ENV", "/b", false)],
        image: &[],
        shell: Known {
            environment: true,
            first: true,
            login_shell: false,
        },
    };
    let text = String::from_utf8(prologue.text(Shell::Bash, false)).unwrap();
    let exports: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("export"))
        .collect();
    assert!(
        exports
            .last()
            .is_some_and(|last| last.contains("/p.tmp/gitlab_runner_env")),
        "{text}"
    );
}

/// STAGE-13: a later script has what an earlier one wrote.
#[test]
fn a_script_that_is_not_the_first_reads_what_was_written_for_it() {
    for shell in [Shell::Bash, Shell::Sh] {
        let known = Known {
            environment: true,
            ..Known::default()
        };
        let [_, later] = known_and_not(shell, known, &["true"]);
        assert!(later.2.contains("while read -r line"), "{}", later.2);
    }
}

/// STAGE-13: a script that is not shown does the same with fewer programs, whatever it finds.
#[test]
fn what_is_left_out_of_a_script_changes_nothing_of_its_effect() {
    type Prepare = fn(&Path);
    let nothing: Prepare = |_| ();
    let directory: Prepare = |dir| fs::create_dir(dir.join("p.tmp")).unwrap();
    let variables: Prepare = |dir| {
        fs::create_dir(dir.join("p.tmp")).unwrap();
        fs::write(dir.join("p.tmp/gitlab_runner_env"), "LATER=before\n").unwrap();
    };
    for shell in [Shell::Bash, Shell::Sh] {
        for prepare in [nothing, directory, variables] {
            let plain = effect(shell, false, prepare);
            assert_eq!(plain, effect(shell, true, prepare), "{shell:?}");
        }
    }
}

/// STAGE-13: the recorded script of gitlab-runner, to the byte, where its commands are shown.
#[test]
fn a_bash_script_is_the_recorded_one() {
    let prologue = Prologue {
        project_dir: "/builds/g/p",
        temp_dir: "/builds/g/p.tmp",
        image: &[],
        shell: Known::default(),
        variables: vec![
            ("FOO", "a b", false),
            ("BAR", "x", false),
            ("KEY", "s3cret\n", true),
        ],
    };
    let lines = [
        "echo hi".to_owned(),
        "if true; then\n\techo yes\nfi\n".to_owned(),
    ];
    let mut body = prologue.text_in_project(Shell::Bash, true);
    body.extend(commands(Shell::Bash, &lines, None));
    let golden = "export FOO=$'a b'\nexport BAR=x\nmkdir -p \"/builds/g/p.tmp\"\n\
        printf '%s' $'s3cret\\n' > \"/builds/g/p.tmp/KEY\"\nexport KEY=\"/builds/g/p.tmp/KEY\"\n\
        export GITLAB_ENV=/builds/g/p.tmp/gitlab_runner_env\nmkdir -p \"/builds/g/p.tmp\"\n\
        touch \"/builds/g/p.tmp/gitlab_runner_env\"\n\
        while read -r line; do export \"$line\"; done < \"/builds/g/p.tmp/gitlab_runner_env\"\n\
        cd /builds/g/p\necho $'\\x1b[32;1m$ echo hi\\x1b[0;m'\necho hi\n\
        echo $'\\x1b[32;1m$ if true; then # collapsed multi-line command\\x1b[0;m'\n\
        if true; then\n\techo yes\nfi\n";
    assert_eq!(String::from_utf8(body.clone()).unwrap(), golden);
    let text = Wrapped {
        shell: Shell::Bash,
        xtrace: true,
        body,
    }
    .text();
    let shown = "set -o xtrace\n";
    let text = String::from_utf8(text).unwrap().replacen(shown, "", 1);
    let mut sum = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    sum.stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let sum = printed(&sum.wait_with_output().unwrap());
    let recorded = "cbf6a29f4e5a91607920337cf5ba40ded41935e200344d8964dd493a796cffe4";
    assert!(sum.starts_with(recorded), "{sum}{}", text);
}

/// STAGE-13
#[test]
fn each_command_is_shown_and_run_in_one_shell() {
    for shell in [Shell::Bash, Shell::Sh] {
        let dir = tempfile::tempdir().unwrap();
        let lines = ["  echo 'a \\n b'  ", "", "X=kept", "echo $X\npwd", "cat"];
        let output = run(shell, &script(shell, dir.path(), vec![], &lines));
        let project = dir.path().join("p").display().to_string();
        let expected = format!(
            "\x1b[32;1m$ echo 'a \\n b'\x1b[0;m\n{}\n\n\x1b[32;1m$ X=kept\x1b[0;m\n\
             \x1b[32;1m$ echo $X # collapsed multi-line command\x1b[0;m\nkept\n{project}\n\
             \x1b[32;1m$ cat\x1b[0;m\n",
            printed(
                &Command::new(if shell == Shell::Bash { "bash" } else { "sh" })
                    .args(["-c", "echo 'a \\n b'"])
                    .output()
                    .unwrap()
            )
            .trim_end_matches('\n'),
        );
        assert_eq!(printed(&output), expected, "{shell:?}");
        assert_eq!(output.status.code(), Some(0));
    }
}

/// STAGE-37
#[test]
fn the_first_failing_command_ends_the_script_with_its_code() {
    for shell in [Shell::Bash, Shell::Sh] {
        let dir = tempfile::tempdir().unwrap();
        let text = script(
            shell,
            dir.path(),
            vec![],
            &["(exit 42)", "echo not reached"],
        );
        let output = run(shell, &text);
        assert_eq!(output.status.code(), Some(42), "{shell:?}");
        assert!(!printed(&output).contains("\nnot reached"));
    }
}

#[test]
fn a_pipe_fails_where_any_part_of_it_does() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(
        Shell::Bash,
        &script(Shell::Bash, dir.path(), vec![], &["(exit 3) | cat"]),
    );
    assert_eq!(output.status.code(), Some(3));
}

/// STAGE-13, STAGE-35
#[test]
fn variables_of_any_content_and_size_arrive_whole() {
    let nasty = "a'b\"c\\d$HOME`id`\n\u{e9}\t\r\x01\x7f!*?[";
    let huge = "x'\n".repeat(400 * 1024 / 3);
    for shell in [Shell::Bash, Shell::Sh] {
        let dir = tempfile::tempdir().unwrap();
        let variables = vec![
            ("NASTY", nasty, false),
            ("NASTY_FILE", nasty, true),
            ("HUGE", huge.as_str(), false),
            ("HUGE_FILE", huge.as_str(), true),
            ("not-a-name", "x", false),
            ("EMPTY", "", false),
        ];
        let lines = [
            "env printf %s \"$NASTY\" > nasty",
            "printf %s \"$HUGE\" > huge",
            "cat \"$NASTY_FILE\" > nasty_file",
            "cat \"$HUGE_FILE\" > huge_file",
            "env | grep -c '^EMPTY=$'",
        ];
        let output = run(shell, &script(shell, dir.path(), variables, &lines));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{shell:?}: {said}");
        for (name, content) in [
            ("nasty", nasty),
            ("nasty_file", nasty),
            ("huge", &huge),
            ("huge_file", &huge),
        ] {
            let found = fs::read(dir.path().join("p").join(name)).unwrap();
            assert!(found == content.as_bytes(), "{shell:?}: {name} differs");
        }
    }
}

/// STAGE-35: together they are more than the kernel gives a command, and each alone is not.
#[test]
fn more_variables_than_a_command_can_have_keep_none_from_starting() {
    let large = "x".repeat(120_000);
    let names: Vec<_> = (0..40).map(|n| format!("LARGE_{n}")).collect();
    for shell in [Shell::Bash, Shell::Sh] {
        let dir = tempfile::tempdir().unwrap();
        let mut variables: Vec<_> = names
            .iter()
            .map(|name| (name.as_str(), &*large, false))
            .collect();
        variables.push(("LAST", "small", false));
        // Exported, and then too large for it.
        variables.insert(0, ("TWICE", "small", false));
        variables.push(("TWICE", &large, false));
        variables.insert(0, ("OF_FILE", "small", true));
        variables.push(("OF_FILE", &large, false));
        let lines = [
            "printf %s \"$LARGE_39\" | wc -c",
            "echo \"of file ${#OF_FILE} $(env | grep -c ^OF_FILE=)\"",
            "echo \"twice ${#TWICE} $(env | grep -c ^TWICE=)\"",
            "env | grep -c ^LARGE_",
            "env | grep ^LAST=",
        ];
        let output = run(shell, &script(shell, dir.path(), variables, &lines));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{shell:?}: {said}");
        let printed = printed(&output);
        // What there is room for, and the small one that comes after.
        for line in [
            "120000",
            "twice 120000 0",
            "of file 120000 0",
            "15",
            "LAST=small",
        ] {
            assert!(
                printed.lines().any(|one| one.trim() == line),
                "{line}: {printed}"
            );
        }
    }
}

/// STAGE-35: what the image sets counts, too.
#[test]
fn variables_are_exported_beside_what_the_image_sets() {
    let (large, image) = (
        "x".repeat(100_000),
        vec![("OF_IMAGE".to_owned(), "x".repeat(1_700_000))],
    );
    let prologue = Prologue {
        project_dir: "/builds/g/p",
        temp_dir: "/builds/g/p.tmp",
        variables: vec![
            ("A", &large, false),
            ("B", &large, false),
            ("C", "c", false),
            ("D", &large, true),
        ],
        image: &image,
        shell: Known::default(),
    };
    assert_eq!(prologue.exported(), [true, false, true, true]);
}

#[test]
fn what_a_job_wrote_to_gitlab_env_is_exported_next_time() {
    for shell in [Shell::Bash, Shell::Sh] {
        let dir = tempfile::tempdir().unwrap();
        let first = script(shell, dir.path(), vec![], &["echo 'A=b c' >> $GITLAB_ENV"]);
        assert!(run(shell, &first).status.success());
        let second = script(shell, dir.path(), vec![], &["env | grep '^A='"]);
        assert!(printed(&run(shell, &second)).ends_with("\nA=b c\n"));
    }
}

/// STAGE-13: the text of the script must not show where bash is told to end.
#[test]
fn a_script_that_is_told_to_end_says_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let text = script(
        Shell::Bash,
        dir.path(),
        vec![],
        &["kill -TERM $$; sleep 0.2"],
    );
    let output = run(Shell::Bash, &text);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

/// STAGE-35
#[test]
fn a_string_the_kernel_would_refuse_is_not_exported() {
    let fits = "x".repeat(128 * 1024 - 3);
    assert!(is_exportable("A", &fits));
    assert!(!is_exportable("AB", &fits));
}
