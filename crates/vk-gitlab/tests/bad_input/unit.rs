//! The unit for systemd, as systemd reads it.

use std::fs;
use std::process::Command;

use crate::desk::program;

const UNIT: &str = include_str!("../../../../packaging/vk-gitlab.service");

#[test]
fn systemd_has_nothing_to_say_about_the_unit() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vk-gitlab.service");
    let unit = UNIT.replace("/usr/bin/vk-gitlab", program().to_str().unwrap());
    assert_ne!(unit, UNIT);
    fs::write(&path, &unit).unwrap();
    let verify = |path| {
        Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .arg(path)
            .output()
    };
    let Ok(said) = verify(&path) else {
        println!("there is no systemd-analyze here: the unit is not verified");
        return;
    };
    let about = |text: &[u8]| {
        let text = String::from_utf8_lossy(text).into_owned();
        let lines = text
            .lines()
            .filter(|line| line.contains("vk-gitlab.service"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(about(&said.stderr), Vec::<String>::new());
    // It would say what is wrong.
    let wrong = unit.replace("KillMode=mixed", "KillMode=sometimes");
    assert_ne!(wrong, unit);
    fs::write(&path, wrong).unwrap();
    let said = verify(&path).unwrap();
    assert_eq!(about(&said.stderr).len(), 1, "{said:?}");
}
