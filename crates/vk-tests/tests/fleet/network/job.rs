//! The job: it asks for all that it must reach, and for all that it must not, and says what it got.

use std::collections::BTreeMap;

use super::world::{
    HOST_PORT, IPV6, LAB, LAB_PORT, LINK_LOCAL, MAIN, METADATA, MIRROR_PORT, SECOND, TALK_PORT,
};

pub(crate) type Answers = BTreeMap<String, String>;

/// GitLab, at the lab.
pub(crate) const GITLAB_PORT: u16 = 8929;
/// Where the jobs wait for each other, at the lab.
pub(crate) const MEETING_PORT: u16 = 8082;
/// What each job listens on itself.
pub(crate) const OWN_PORT: u16 = 7777;
/// What a job hears of the host that has looked for a way in.
pub(crate) const ALONE: &str = "no way in";

/// What stands before each answer.
const MARK: &str = "answer ";
/// The guest's address, the same in each job.
const OWN: &str = "198.18.254.2";
/// The addresses of its namespace, and the other end of the way out.
const AROUND: [(&str, &str); 3] = [
    ("bridge", "198.18.254.1"),
    ("uplink", "198.18.255.2"),
    ("beyond", "198.18.255.1"),
];
/// A neighbour that is none.
const NEIGHBOUR: &str = "198.18.254.3";
/// The host's.
const HOST: [(&str, &str); 4] = [
    ("main", MAIN),
    ("second", SECOND),
    ("link-local", LINK_LOCAL),
    ("ipv6", IPV6),
];

/// What a job's script has of its own; bash's connections and perl's sockets are glibc's, and so is
/// the look-up of names.
const FUNCTIONS: &str = r#": what this job reaches
say() { echo "answer $1=$2"; }
get() {
    timeout "${4:-60}" bash -c 'exec 3<>"/dev/tcp/$0/$1"; printf "%b" "$2" >&3; cat <&3' \
        "$1" "$2" "${3:-GET / HTTP/1.0\r\n\r\n}" 2>&1 | tr -d '\r'
}
reach() { say "$1" "$(get "$2" "$3" | tail -n 1)"; }
deny() {
    timeout 120 bash -c 'true 3<>"/dev/tcp/$0/$1"' "$2" "$3" 2>/dev/null && code=0 || code=$?
    case $code in 0) say "$1" reached ;; 124) say "$1" late ;; *) say "$1" denied ;; esac
}
udp() {
    perl -MIO::Socket::INET -e '
        $to = IO::Socket::INET->new(Proto => "udp", PeerAddr => $ARGV[0], PeerPort => $ARGV[1]) or die;
        for (1..12) {
            defined $to->send("a question") or print("denied"), exit;
            $in = ""; vec($in, fileno $to, 1) = 1;
            select($in, undef, undef, 10) > 0 or next;
            print defined $to->recv($heard, 99) ? $heard : "denied"; exit
        }
        print "late"' "$1" "$2"
}
perl -MIO::Socket::INET -e '
    $at = IO::Socket::INET->new(Listen => 9, LocalPort => $ARGV[0], ReuseAddr => 1) or die;
    while ($to = $at->accept) { while (<$to>) { last if /^\s*$/ } print $to "$ENV{CI_JOB_NAME}\n"; close $to }
' PORT &
for i in $(seq 1000); do
    own=$(get OWN PORT) || true
    [ "$own" = "$CI_JOB_NAME" ] && break
    sleep 0.1
done
say own "$own"
meet() { get meet.example MEETING 'GET / HTTP/1.0\r\n\r\n' 600 | tail -n 1; }
say met "$(meet)"
"#;

/// The script, of a fleet whose hub has this port.
pub(crate) fn script(hub: u16) -> String {
    let mut text = FUNCTIONS
        .replace("OWN PORT", &format!("{OWN} {OWN_PORT}"))
        .replace("' PORT &", &format!("' {OWN_PORT} &"))
        .replace("MEETING", &MEETING_PORT.to_string());
    let mut line = |line: String| text.push_str(&format!("{line}\n"));
    line(r#"say resolv.conf "$(tr '\n' ' ' < /etc/resolv.conf)""#.to_owned());
    line(
        r#"say name "$(getent ahostsv4 mirror.example | head -n 1 | cut -d ' ' -f 1)""#.to_owned(),
    );
    let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups getent hosts mirror.example";
    line(format!(
        r#"say nobodys-name "$({nobody} | cut -d ' ' -f 1)""#
    ));
    line(r#"say no-name "$(getent hosts nothing.invalid || echo none)""#.to_owned());
    line(format!("reach lab {LAB} {LAB_PORT}"));
    line(format!("reach mirror mirror.example {MIRROR_PORT}"));
    line(format!(r#"say lab-udp "$(udp {LAB} {TALK_PORT})""#));
    line(git());
    for (case, address) in HOST {
        line(format!("deny {case} {address} {HOST_PORT}"));
    }
    line(format!("deny metadata {METADATA} 80"));
    line(format!("deny loopback 127.0.0.1 {HOST_PORT}"));
    line(format!("deny unspecified 0.0.0.0 {HOST_PORT}"));
    for (case, address) in [("main", MAIN), ("second", SECOND)] {
        line(format!("deny hub-{case} {address} {hub}"));
        line(format!("deny other-{case} {address} {OWN_PORT}"));
        line(format!(r#"say udp-{case} "$(udp {address} {TALK_PORT})""#));
    }
    for (case, address) in AROUND {
        line(format!("deny {case} {address} {HOST_PORT}"));
        line(format!("deny hub-{case} {address} {hub}"));
        line(format!("deny other-{case} {address} {OWN_PORT}"));
    }
    line(format!("deny other-neighbour {NEIGHBOUR} {OWN_PORT}"));
    // Neither ends before the other has looked for it.
    line(r#"say met-again "$(meet)""#.to_owned());
    line("kill %1".to_owned());
    text
}

/// What `git clone` asks first, with the job's own token.
fn git() -> String {
    let request = format!(
        "GET /lab/project.git/info/refs?service=git-upload-pack HTTP/1.1\\r\\n\
         Host: gitlab.example:{GITLAB_PORT}\\r\\nConnection: close\\r\\n\
         Authorization: Basic $login\\r\\n\\r\\n"
    );
    format!(
        "login=$(printf %s \"gitlab-ci-token:$CI_JOB_TOKEN\" | base64 -w 0)
refs=$(get gitlab.example {GITLAB_PORT} \"{request}\" | tr '\\0' ' ') || true
case $refs in *\"$CI_COMMIT_SHA refs/heads/main\"*) say git refs ;; *) say git \"$refs\" ;; esac"
    )
}

/// The answers of a job's log.
pub(crate) fn read(trace: &str) -> Answers {
    let answer = |line: &str| {
        let (_, said) = line.split_once(MARK)?;
        let (case, answer) = said.split_once('=')?;
        Some((case.to_owned(), answer.trim().to_owned()))
    };
    trace.lines().filter_map(answer).collect()
}

/// Says where a job reached something else than it should.
pub(crate) fn judge(name: &str, answers: &Answers) {
    let mut wanted = Answers::new();
    let mut want =
        |case: &str, answer: &str| drop(wanted.insert(case.to_owned(), answer.to_owned()));
    for case in ["met", "met-again"] {
        want(case, ALONE);
    }
    for (case, answer) in [
        ("own", name),
        ("resolv.conf", "nameserver 198.18.254.1"),
        ("name", LAB),
        ("nobodys-name", LAB),
        ("no-name", "none"),
        ("lab", "lab"),
        ("lab-udp", "lab"),
        ("mirror", "mirror"),
        ("git", "refs"),
    ] {
        want(case, answer);
    }
    for (case, _) in HOST.iter().chain(&AROUND) {
        want(case, "denied");
    }
    for case in [
        "other-neighbour",
        "metadata",
        "loopback",
        "unspecified",
        "udp-main",
        "udp-second",
    ] {
        want(case, "denied");
    }
    for (case, _) in HOST.iter().take(2).chain(&AROUND) {
        want(&format!("hub-{case}"), "denied");
        want(&format!("other-{case}"), "denied");
    }
    let differ = |(case, answer): &(&String, &String)| answers.get(*case) != Some(*answer);
    let differing: Vec<_> = wanted.iter().filter(differ).collect();
    assert!(
        differing.is_empty(),
        "{name} should have {differing:#?}: {answers:#?}"
    );
    assert_eq!(wanted.len(), answers.len(), "{name}: {answers:#?}");
}
