//! Which sources of the machine's apt an image is made from.

use std::fs;

use crate::machine::Machine;

/// What apt says of four sources: the release, its security updates, another vendor's of the same
/// release's name, and another release.
const TARGETS: &str = "cat <<'E'
Packages main trixie http://mirror.example/debian http://mirror.example/debian/
Sources main trixie http://mirror.example/debian http://mirror.example/debian/
Packages main trixie-security http://sec.example/debian-security/ http://sec.example/debian-security/
Packages stable trixie http://vendor.example/linux http://vendor.example/linux/
Packages main sid http://other.example/debian http://other.example/debian/
E";

fn sources(one_line: &str, deb822: &str) -> (String, String) {
    let machine = Machine::new();
    machine.program("apt-get", TARGETS);
    let etc = machine.path("etc");
    fs::create_dir_all(etc.join("sources.list.d")).unwrap();
    fs::write(etc.join("sources.list"), one_line).unwrap();
    fs::write(etc.join("sources.list.d/a.sources"), deb822).unwrap();
    let out = machine.path("out");
    let run = machine.run(
        "apt-sources.sh",
        &["trixie", out.to_str().unwrap(), etc.to_str().unwrap()],
    );
    assert!(run.ok, "{}", run.said);
    let read = |name| fs::read_to_string(out.join(name)).unwrap_or_default();
    (read("one-line.list"), read("deb822.sources"))
}

#[test]
fn entries_of_the_release_keep_their_options_and_others_are_left_out() {
    let kept = "deb [trusted=yes arch=amd64] http://mirror.example/debian/ trixie main\n";
    let one_line = format!(
        "# a comment\ndeb cdrom:[Debian]/ trixie main\n{kept}\
         deb-src http://mirror.example/debian trixie main\n\
         deb http://vendor.example/linux trixie stable\n\
         deb http://other.example/debian sid main\n"
    );
    let (found, none) = sources(&one_line, "");
    assert_eq!(found, kept);
    assert_eq!(none, "");
}

#[test]
fn paragraphs_are_read_as_a_whole() {
    let deb822 = "Types: deb deb-src\nURIs: http://mirror.example/debian\nSuites: trixie\n\
                  Components: main\nSigned-By: /k.gpg\n\n\
                  Types: deb\nURIs: http://vendor.example/linux\nSuites: trixie\n\n\
                  Enabled: no\nTypes: deb\nURIs: http://mirror.example/debian\nSuites: old\n\n\
                  Types: deb\nURIs: http://sec.example/debian-security\nSuites: trixie-security\n";
    let (none, found) = sources("", deb822);
    assert_eq!(none, "");
    let paragraphs: Vec<_> = found.trim().split("\n\n").collect();
    assert_eq!(paragraphs.len(), 2, "{found}");
    assert!(paragraphs[0].starts_with("Types: deb\nURIs: http://mirror.example/debian\n"));
    assert!(paragraphs[0].ends_with("Signed-By: /k.gpg"));
    assert!(paragraphs[1].contains("sec.example"));
}
